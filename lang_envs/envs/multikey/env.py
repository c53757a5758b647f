"""`MultiKeyEnv`: several words of an action decide. `LengthTrapEnv`: a short and a long action compete."""

from __future__ import annotations

from typing import Any, Unpack

from lang_envs.arguments import check_choice, check_flags, check_integer, is_number
from lang_envs.core import SharedOptions, room_for_actions
from lang_envs.envs.independent.env import IndependentDecisions
from lang_envs.envs.multikey.admissible import (
    MAX_ACTIONS,
    WORDS,
    key_slots,
    sentences,
    trap_sentences,
    vocabularies,
)

_MAX_HORIZON = 4
_REWARDS = ("additive", "all")
_SIGNS = ("both", "positive", "negative")

TRAP_GAMMA = 0.95
"""Discount inside actions that the length trap is made for: `gamma` of the presets."""


class MultiKeyEnv(IndependentDecisions):
    """A diagnostic task: every action is a sentence of slots, some slots decide, and the others have no effect.

    Each of the k + d slots is filled with one of its `n_words` words. The observation names the right word of the k
    key slots, drawn for every decision: after `The order is the pot and the lamp.` the sentence `cup pot egg lamp` is
    right, and so is every other one with these two words. The d distractors are a real choice without effect. So
    credit belongs to k tokens of each action, and the rest is known in closed form.

    Words and tokens: with the pocket model every word is one token, and its policy adds an end token; so an action of n
    slots is a path of n + 1 tokens, of which all but the last branch. In the action space of the environment, whose
    default tokenizer is bytes, a word is several tokens.

    Args:
        k: Number of key slots, at least 1. Key i stands in slot floor((i + 1/2) n / k), counted from 0, of n = k + d.
        d: Number of distractors.
        n_words: Number of words of each slot, at least 2; at most 4,096 actions and 48 words in all.
        reward: `"additive"`: right keys / (k `horizon`) for each decision. `"all"`: 1 / `horizon` if all keys are
            right.
        horizon: Number of decisions in an episode, 1 to 4.
        variable_lengths: Whether word i of a slot, counted from 0, is followed by 2 i filler words, so that sentences
            differ in length; the first word of a phrase still decides.
        max_steps: Time limit; reaching it truncates. Only invalid actions can, as a decision takes one step. By
            default 50, or twice the horizon where that is more.
        invalid_action_reward: Reward added when a text is not one of the listed actions; that costs one step.
        oracle_info: Put `oracle_action` into `info`.
        shuffle_actions: List the actions in an order drawn at every reset.
        tokenizer: Tokenizer of the action space.
        max_action_length: Largest number of action tokens, end token included. By default 96, as in the other
            families, or as many as the bytes of the longest action need.
        render_mode: None, `"ansi"` or `"rgb_array"`.

    `info`: `admissible_actions` (all actions, always the same), `keys` (the right words now, in the order of their
    slots), `n_correct` (right keys of the last action; 0 at reset and for an invalid action), `key_correct` (whether
    all of them were right), `success`, `invalid_action`.

    Raises:
        ValueError: If numbers are out of range or do not fit together.
        TypeError: If `variable_lengths` is not a bool.
    """

    def __init__(
        self,
        *,
        k: int = 2,
        d: int = 2,
        n_words: int = 2,
        reward: str = "additive",
        horizon: int = 4,
        variable_lengths: bool = False,
        max_steps: int | None = None,
        **options: Unpack[SharedOptions],
    ) -> None:
        check_integer("k", k, 1)
        check_integer("d", d, 0)
        check_integer("n_words", n_words, 2)
        check_choice("reward", reward, _REWARDS)
        check_flags(variable_lengths=variable_lengths)
        self.k, self.d, self.n_words, self.reward, self.variable_lengths = k, d, n_words, reward, variable_lengths
        _check_sizes(k + d, n_words)
        self.slots = vocabularies(k + d, n_words, variable=variable_lengths)
        """Words of each slot."""
        self.key_slots = key_slots(k, d)
        """Slots that decide, counted from 0."""
        actions = sentences(self.slots)
        options.setdefault("max_action_length", room_for_actions(actions))
        super().__init__(**options)
        check_integer("horizon", horizon, 1, _MAX_HORIZON)
        self._set_up(actions, horizon, max_steps, (0,) * k)

    @property
    def keys(self) -> tuple[str, ...]:
        """Right word of each key slot."""
        slots = zip(self.key_slots, self._world.target, strict=True)
        return tuple(WORDS[slot * self.n_words + word] for slot, word in slots)

    @property
    def order(self) -> str:
        """Right words in a sentence."""
        *first, last = (f"the {key}" for key in self.keys)
        return f"{', '.join(first)} and {last}" if first else last

    @property
    def legend(self) -> str:
        """Words of the slots; `*` marks a slot that decides."""
        marks = ["*" if slot in self.key_slots else "" for slot in range(len(self.slots))]
        return f"Slots (* decides): {', '.join(m + '/'.join(w) for m, w in zip(marks, self.slots, strict=True))}"

    def key_places(self, text: str) -> list[int]:
        """Return the words of an action that decide, counted from 0; none of a text that is no action."""
        if text not in self._numbers:
            return []
        words = [self._word(self._numbers[text], slot) for slot in range(len(self.slots))]
        lengths = [len(self.slots[slot][word].split(" ")) for slot, word in enumerate(words)]
        return [sum(lengths[:slot]) for slot in self.key_slots]

    @property
    def optimal_return(self) -> float:
        """Expected return of an optimal policy."""
        return 1.0

    @property
    def random_return(self) -> float:
        """Expected return of uniformly random play."""
        return 1 / self.n_words if self.reward == "additive" else self.n_words**-self.k

    @property
    def random_success(self) -> float:
        """Probability that uniformly random play makes every decision right."""
        return float(self.n_words ** -(self.k * self.horizon))

    def oracle_action(self) -> str:
        """Return a sentence with the right words; distractors have their first word."""
        words = dict(zip(self.key_slots, self._world.target, strict=True))
        return " ".join(vocabulary[words.get(slot, 0)] for slot, vocabulary in enumerate(self.slots))

    def _draw(self) -> tuple[int, ...]:
        return tuple(self.np_random.integers(self.n_words, size=self.k).tolist())

    def _score(self, number: int) -> tuple[float, int, bool]:
        words = [self._word(number, slot) for slot in self.key_slots]
        n_right = sum(map(int.__eq__, words, self._world.target))
        all_right = n_right == self.k
        return n_right / self.k if self.reward == "additive" else float(all_right), n_right, all_right

    def _word(self, number: int, slot: int) -> int:
        """Return the number of a slot's word in an action."""
        return int(number // self.n_words ** (len(self.slots) - 1 - slot) % self.n_words)

    def _family_info(self, *, acted: bool) -> dict[str, Any]:
        n_correct = self._world.n_correct if acted else 0
        return {"keys": list(self.keys), "n_correct": n_correct, "key_correct": n_correct == self.k}

    def _configuration(self) -> dict[str, Any]:
        names = ("k", "d", "n_words", "reward", "horizon", "variable_lengths", "max_steps")
        return {name: getattr(self, name) for name in names}


class LengthTrapEnv(IndependentDecisions):
    """A diagnostic task: a short and a long sentence compete, and a discount inside actions prefers the wrong one.

    The observation tells the sign of the decision: after `The order is a gain.` both sentences have a positive reward,
    after `The order is a cost.` a negative one. That of the long sentence has the larger absolute value, 1 /
    `horizon`; that of the short one is `short_reward` / `horizon`. So the long one is right for a gain, and the short
    one for a cost. `short_reward` lies strictly between 0.95 to the power of the difference in tokens and 1; a discount
    of 0.95 per token therefore prefers the short one for a gain and the long one for a cost. Costs cannot be avoided: a
    step with an invalid action costs as much as the long sentence where the decision is a cost, and 0 elsewhere.

    Words and tokens: with the pocket model every word is one token, and its policy adds an end token; so a sentence of
    n words is a path of n + 1 tokens, and only its first branches. The trap is defined for these tokens. In bytes the
    difference is larger, and the trap holds as well.

    Args:
        sign: `"both"` draws it for every decision; `"positive"`: all are gains; `"negative"`: all are costs.
        short_length: Number of words of the short sentence.
        long_length: Number of words of the long sentence.
        short_reward: Reward of the short sentence as a share of the long one's.
        horizon: Number of decisions in an episode, 1 to 4.
        max_steps: Time limit; reaching it truncates. Only invalid actions can, as a decision takes one step. By
            default 50, or twice the horizon where that is more.
        invalid_action_reward: Reward added when a text is not one of the listed actions; that costs one step.
        oracle_info: Put `oracle_action` into `info`.
        shuffle_actions: List the actions in an order drawn at every reset.
        tokenizer: Tokenizer of the action space.
        max_action_length: Largest number of action tokens, end token included. By default 96, as in the other
            families, or as many as the bytes of the longest action need.
        render_mode: None, `"ansi"` or `"rgb_array"`.

    `info`: `admissible_actions` (the short and the long sentence), `sign` (of the decision now, `"positive"` or
    `"negative"`), `key_correct` (whether the last action was right; False at reset and for an invalid action),
    `success`, `invalid_action`.

    Raises:
        ValueError: If numbers are out of range or do not fit together.
    """

    def __init__(
        self,
        *,
        sign: str = "both",
        short_length: int = 2,
        long_length: int = 16,
        short_reward: float = 0.75,
        horizon: int = 4,
        max_steps: int | None = None,
        **options: Unpack[SharedOptions],
    ) -> None:
        check_choice("sign", sign, _SIGNS)
        check_integer("short_length", short_length, 1)
        check_integer("long_length", long_length, short_length + 1)
        self._fixed_sign, self.short_length, self.long_length = sign, short_length, long_length
        bound = TRAP_GAMMA ** (long_length - short_length)
        if not is_number(short_reward) or not bound < short_reward < 1:
            raise ValueError(
                f"Expected short_reward strictly between {TRAP_GAMMA} ** {long_length - short_length} = {bound:.4f} "
                f"and 1; got {short_reward!r}. Fix: lengths further apart, or a share in this range."
            )
        self.short_reward = float(short_reward)
        actions = trap_sentences(short_length, long_length)
        options.setdefault("max_action_length", room_for_actions(actions))
        super().__init__(**options)
        check_integer("horizon", horizon, 1, _MAX_HORIZON)
        self._set_up(actions, horizon, max_steps, self._fixed_target or (0,))

    @property
    def _fixed_target(self) -> tuple[int, ...]:
        """Target of every decision; empty where it is drawn."""
        return () if self._fixed_sign == "both" else (_SIGNS.index(self._fixed_sign) - 1,)

    @property
    def sign(self) -> str:
        """Sign of the present decision's rewards."""
        return _SIGNS[1 + self._world.target[0]]

    @property
    def order(self) -> str:
        """Sign in words."""
        return "a gain" if self.sign == "positive" else "a cost"

    @property
    def legend(self) -> str:
        """Lengths and rewards of the sentences."""
        return f"Sentences: {self.short_length} words, {self.short_reward:g}; {self.long_length} words, 1"

    def key_places(self, text: str) -> list[int]:
        """Return the first word, where the sentences part; none of a text that is no action."""
        return [0] if text in self._numbers else []

    @property
    def optimal_return(self) -> float:
        """Expected return of an optimal policy."""
        return {"positive": 1.0, "negative": -self.short_reward, "both": (1 - self.short_reward) / 2}[self._fixed_sign]

    @property
    def random_return(self) -> float:
        """Expected return of uniformly random play."""
        mean = (1 + self.short_reward) / 2
        return {"positive": mean, "negative": -mean, "both": 0.0}[self._fixed_sign]

    @property
    def random_success(self) -> float:
        """Probability that uniformly random play makes every decision right."""
        return float(2**-self.horizon)

    def oracle_action(self) -> str:
        """Return the long sentence for a gain, the short one for a cost."""
        short, long = self.sentences
        return long if self.sign == "positive" else short

    def _draw(self) -> tuple[int, ...]:
        return self._fixed_target or (int(self.np_random.integers(2)),)

    def _score(self, number: int) -> tuple[float, int, bool]:
        size = (self.short_reward, 1.0)[number]
        right = self.sentences[number] == self.oracle_action()
        return size if self.sign == "positive" else -size, int(right), right

    def _idle_reward(self) -> float:
        return 0.0 if self.sign == "positive" else -1.0

    def _family_info(self, *, acted: bool) -> dict[str, Any]:
        return {"sign": self.sign, "key_correct": acted and self._world.n_correct == 1}

    def _configuration(self) -> dict[str, Any]:
        names = ("short_length", "long_length", "short_reward", "horizon", "max_steps")
        return {"sign": self._fixed_sign, **{name: getattr(self, name) for name in names}}


def _check_sizes(n_slots: int, n_words: int) -> None:
    if n_slots > MAX_ACTIONS.bit_length() or n_words**n_slots > MAX_ACTIONS:
        raise ValueError(
            f"Expected at most {MAX_ACTIONS:,} actions, n_words ** (k + d); got {n_words} ** {n_slots}. "
            "Fix: fewer slots or words."
        )
    if n_slots * n_words > len(WORDS):
        raise ValueError(
            f"Expected at most {len(WORDS)} words, n_words * (k + d); got {n_words} * {n_slots}. Fix: fewer words."
        )
