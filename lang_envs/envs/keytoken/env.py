"""`KeyTokenEnv`: actions that differ in one word."""

from __future__ import annotations

from typing import Any, Unpack

from lang_envs.arguments import check_flags, check_integer
from lang_envs.core import SharedOptions, room_for_actions
from lang_envs.envs.independent.env import IndependentDecisions
from lang_envs.envs.keytoken.admissible import KEYS, sentence_lengths, sentences


class KeyTokenEnv(IndependentDecisions):
    """A diagnostic task: every action is a sentence of filler words and one key word, and the key word alone decides.

    The observation names the right key word, drawn for every decision: after `The order is the onion.` the right
    one of `the tomato the the`, `the onion the the`, ... is the second. A right decision pays 1 / `horizon`, a wrong
    one 0. So credit belongs to one token of each action, and the rest is known in closed form: uniformly
    random play returns 1 / `n_actions` on average and succeeds with probability `n_actions` ** -`horizon`; the oracle
    returns 1.

    Words and tokens: with the pocket model every word is one token, and its policy adds an end token; so an action of
    `n_tokens` words is a path of `n_tokens` + 1 tokens: the one at `key_position` branches and all others are
    forced. In the action space of the environment, whose default tokenizer is bytes, a word is several tokens.

    Args:
        n_tokens: Number of words of an action; with `variable_lengths`, of the longest.
        key_position: Position of the word that decides, counted from 0.
        n_actions: Number of listed actions, 2 to 32.
        horizon: Number of decisions in an episode.
        variable_lengths: Whether the actions differ in length, evenly from 2 words (or as few as hold the key word) to
            `n_tokens`, in the order of the list.
        max_steps: Time limit; reaching it truncates. Only invalid actions can, as a decision takes one step. By
            default 50, or twice the horizon where that is more.
        invalid_action_reward: Reward added when a text is not one of the listed actions; that costs one step.
        oracle_info: Put `oracle_action` into `info`.
        shuffle_actions: List the actions in an order drawn at every reset.
        tokenizer: Tokenizer of the action space.
        max_action_length: Largest number of action tokens, end token included. By default 96, as in the other
            families, or as many as the bytes of the longest action need.
        render_mode: None, `"ansi"` or `"rgb_array"`.

    `info`: `admissible_actions` (all actions, always the same), `key` (the word that is right now), `key_correct`
    (whether the last action was right; False at reset and for an invalid action), `success`, `invalid_action`.

    Raises:
        ValueError: If numbers are out of range or do not fit together.
        TypeError: If `variable_lengths` is not a bool.
    """

    def __init__(
        self,
        *,
        n_tokens: int = 4,
        key_position: int = 1,
        n_actions: int = 5,
        horizon: int = 4,
        variable_lengths: bool = False,
        max_steps: int | None = None,
        **options: Unpack[SharedOptions],
    ) -> None:
        check_flags(variable_lengths=variable_lengths)
        _check_sizes(n_tokens, key_position, n_actions, variable=variable_lengths)
        lengths = sentence_lengths(n_tokens, key_position, n_actions, variable=variable_lengths)
        actions = sentences(lengths, key_position)
        options.setdefault("max_action_length", room_for_actions(actions))
        super().__init__(**options)
        self.n_tokens, self.key_position, self.n_actions = n_tokens, key_position, n_actions
        self.variable_lengths = variable_lengths
        check_integer("horizon", horizon, 1)
        self._set_up(actions, horizon, max_steps, (0,))

    @property
    def key(self) -> str:
        """Word that is right now."""
        return KEYS[self._number]

    @property
    def order(self) -> str:
        """Right word with its article."""
        return f"the {self.key}"

    @property
    def legend(self) -> str:
        """Key words in one line."""
        return f"Key words (word {self.key_position + 1} of an action): {', '.join(KEYS[: self.n_actions])}"

    def key_places(self, text: str) -> list[int]:
        """Return the word of an action that decides, counted from 0; none of a text that is no action."""
        return [self.key_position] if text in self._numbers else []

    @property
    def optimal_return(self) -> float:
        """Expected return of an optimal policy."""
        return 1.0

    @property
    def random_return(self) -> float:
        """Expected return of uniformly random play."""
        return 1 / self.n_actions

    @property
    def random_success(self) -> float:
        """Probability that uniformly random play makes every decision right."""
        return float(self.n_actions**-self.horizon)

    def oracle_action(self) -> str:
        """Return the sentence with the right key word."""
        return self.sentences[self._number]

    @property
    def _number(self) -> int:
        return self._world.target[0]

    def _draw(self) -> tuple[int, ...]:
        return (int(self.np_random.integers(self.n_actions)),)

    def _score(self, number: int) -> tuple[float, int, bool]:
        right = number == self._number
        return float(right), int(right), right

    def _family_info(self, *, acted: bool) -> dict[str, Any]:
        return {"key": self.key, "key_correct": acted and self._world.n_correct == 1}

    def _configuration(self) -> dict[str, Any]:
        names = ("n_tokens", "key_position", "n_actions", "horizon", "variable_lengths", "max_steps")
        return {name: getattr(self, name) for name in names}


def _check_sizes(n_tokens: int, key_position: int, n_actions: int, *, variable: bool) -> None:
    for name, value, minimum in (
        ("n_tokens", n_tokens, 1),
        ("key_position", key_position, 0),
        ("n_actions", n_actions, 2),
    ):
        check_integer(name, value, minimum)
    if n_actions > len(KEYS):
        raise ValueError(f"Expected at most {len(KEYS)} actions, one for each key word; got n_actions={n_actions}.")
    if key_position >= n_tokens:
        raise ValueError(
            f"Expected key_position below n_tokens; got {key_position} and {n_tokens}. Fix: positions count from 0."
        )
    if variable and n_tokens <= max(2, key_position + 1):
        raise ValueError(
            f"Expected room for different lengths after the key word; got key_position={key_position} and "
            f"n_tokens={n_tokens}. Fix: an earlier key word, more tokens, or variable_lengths=False."
        )
