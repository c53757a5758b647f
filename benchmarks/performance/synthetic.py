"""A task and a model of chosen sizes, for `throughput` and `scaling`.

The task has no signal to learn. Observations are random words, so that no two prompts share a beginning; the admissible
actions are built like commands (a verb, then things), so that some of them share theirs. Every word is one token of the
pocket model's tokenizer, so lengths in words are lengths in tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, PreTrainedConfig

from lang_envs.core import LangEnv, Outcome
from poad_sb3.language_model.loading import DTYPES
from poad_sb3.pocket import POCKET_FOLDER

MODELS: dict[str, tuple[int, int, int, int, int]] = {  # hidden, layers, heads, kv heads, intermediate
    "6m": (256, 6, 8, 8, 688),  # that of the profile of the reference implementation
    "50m": (512, 12, 8, 8, 1376),
}
_EPISODE = 10
_VERBS = 3


class TaskSizes(NamedTuple):
    """Bounds of the drawn sizes, both included.

    Attributes:
        prompt: Tokens of a prompt, start token included.
        candidates: Admissible actions; None for an open action space.
        action: Tokens of an action, end token included.
    """

    prompt: tuple[int, int] = (121, 163)
    candidates: tuple[int, int] | None = (6, 8)
    action: tuple[int, int] = (4, 8)


class SyntheticTask(LangEnv[tuple[str, tuple[str, ...], int]]):
    """Random prompts and commands of given sizes, a reward drawn at random, episodes of 10 steps.

    Args:
        sizes: Bounds of the drawn sizes.
    """

    def __init__(self, sizes: TaskSizes) -> None:
        super().__init__(max_action_length=4096, max_observation_length=12 * sizes.prompt[1])
        self.sizes = sizes
        self._world: tuple[str, tuple[str, ...], int] = ("", (), 0)

    def _restart(self, options: Mapping[str, Any]) -> None:
        self._draw(0)

    def _draw(self, moment: int) -> None:
        length = self._between(self.sizes.prompt) - 2  # the start token, and the first word: a letter
        actions: tuple[str, ...] = ()
        if self.sizes.candidates is not None:
            verbs, wanted = self._words(_VERBS), self._between(self.sizes.candidates)
            while len(actions) < wanted:
                things = self._words(self._between(self.sizes.action) - 2)
                actions = tuple(dict.fromkeys((*actions, " ".join([self.np_random.choice(verbs), *things]))))
        self._world = (" ".join(["a", *self._words(length)]), actions, moment)

    def _between(self, bounds: tuple[int, int]) -> int:
        return int(self.np_random.integers(bounds[0], bounds[1], endpoint=True))

    def _words(self, n: int) -> list[str]:
        return [str(word) for word in self.np_random.choice(one_token_words(), n)]

    def _describe(self) -> str:
        return self._world[0]

    def _listed_actions(self) -> list[str] | None:
        return None if self.sizes.candidates is None else list(self._world[1])

    def _execute(self, text: str) -> Outcome | None:
        return self._pass_time()

    def _pass_time(self) -> Outcome:
        self._draw(self._world[2] + 1)
        return Outcome(float(self.np_random.random()), self._world[2] >= _EPISODE, False, False)

    def _family_info(self, *, acted: bool) -> dict[str, Any]:
        return {}

    def _get_world(self) -> tuple[str, tuple[str, ...], int]:
        return self._world

    def _set_world(self, world: tuple[str, tuple[str, ...], int]) -> None:
        self._world = world


@cache
def _tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(POCKET_FOLDER)


@cache
def one_token_words() -> tuple[str, ...]:
    """Return the words that are one token behind a space."""
    names = _tokenizer().get_vocab()
    return tuple(sorted(name[1:] for name in names if name[0] == "Ġ" and len(name) > 2 and name[1:].isalpha()))


def make_model(size: str, vocabulary: int) -> tuple[Any, Any]:
    """Return a Llama with random weights, as `model=` of a policy takes it.

    Args:
        size: Key of `MODELS`.
        vocabulary: Rows of embedding and head; the tokenizer uses the first of them.
    """
    hidden, layers, heads, kv_heads, intermediate = MODELS[size]
    if vocabulary < len(_tokenizer()):
        raise ValueError(f"Expected a vocabulary of at least {len(_tokenizer())}, the tokenizer's; got {vocabulary}.")
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=hidden, num_hidden_layers=layers, intermediate_size=intermediate,
        num_attention_heads=heads, num_key_value_heads=kv_heads, max_position_embeddings=4096,
        bos_token_id=_tokenizer().bos_token_id, eos_token_id=_tokenizer().eos_token_id, tie_word_embeddings=False,
    )  # fmt: skip
    return random_model(config), _tokenizer()


def random_model(config: PreTrainedConfig, dtype: str = "float32", device: str = "cpu") -> Any:
    """Return a causal language model with random weights."""
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(DTYPES[dtype])  # 7 B weights in float32 first would take 28 GB
    try:
        with torch.device(device):
            return AutoModelForCausalLM.from_config(config)
    finally:
        torch.set_default_dtype(before)
