"""Spaces of language environments: `TextSpace` for observations, `TokenSequence` for actions.

The vector-environment functions of Gymnasium are registered here, at import, because worker processes that are
spawned (not forked) see them only if importing the space brings them along. Without them, Gymnasium's `Text` in the
default shared-memory `AsyncVectorEnv` silently returns `'000...'`.
"""

from __future__ import annotations

import ctypes
import string
from collections.abc import Iterator, Sequence
from functools import lru_cache
from multiprocessing.sharedctypes import SynchronizedArray
from types import ModuleType
from typing import Any

import numpy as np
from gymnasium.spaces import Box, MultiDiscrete, Text
from gymnasium.spaces.utils import flatdim, flatten, flatten_space, unflatten
from gymnasium.vector.utils import (
    batch_differing_spaces,
    batch_space,
    concatenate,
    create_empty_array,
    create_shared_memory,
    iterate,
    read_from_shared_memory,
    write_to_shared_memory,
)
from numpy.typing import NDArray

from lang_envs.errors import ActionError, EncodingError
from lang_envs.tokenizers import ByteTokenizer, Tokenizer

__all__ = ["TextObservation", "TextSpace", "TokenSequence"]

_SAMPLE_CHARACTERS = string.ascii_letters + string.digits + " .,;:!?'\"()-\n\té"
_SAMPLE_LENGTH = 64  # a sample is a short text, not 16,000 random characters


class TextObservation(str):
    """An observation: a `str` that carries its admissible actions, equal to and hashed as its text.

    So `model.predict(observation)` works on the result of `env.reset()`. Copies and pickles keep the list, and so do
    the arrays of SB3's vector environments; Gymnasium's shared memory holds the text alone.

    Args:
        text: Text of the observation.
        admissible_actions: Texts listed as possible now; None where any text is an action.

    Raises:
        TypeError: If the list is a single text.
    """

    __slots__ = ("admissible_actions",)

    admissible_actions: tuple[str, ...] | None

    def __new__(cls, text: str, admissible_actions: Sequence[str] | None = None) -> TextObservation:
        """See the class."""
        if isinstance(admissible_actions, str):
            raise TypeError(
                f"Expected admissible_actions as a list of str, or None; got {admissible_actions!r:.80}. "
                "Fix: a list, also of a single action."
            )
        self = super().__new__(cls, text)
        self.admissible_actions = None if admissible_actions is None else tuple(admissible_actions)
        return self

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Let `np.stack`, as SB3's SubprocVecEnv uses it, return an array of objects.

        An array of `numpy.str_` would lose the lists. Every other function treats an observation as any `str`.
        """
        if not all(issubclass(kind, TextObservation | np.ndarray) for kind in types) or not hasattr(
            func, "_implementation"
        ):
            return NotImplemented
        given = {**dict(zip(("arrays", "axis"), args, strict=False)), **kwargs}
        if func is np.stack and given.pop("axis", 0) == 0 and given.keys() == {"arrays"}:
            texts = list(given["arrays"])
            stacked = np.empty(len(texts), dtype=object)
            stacked[:] = texts
            return stacked
        return func._implementation(*args, **kwargs)


class TextSpace(Text):
    """Any Unicode string of at most `max_length` code points; a sample or observation is a plain `str`.

    `gymnasium.spaces.Text` admits letters and digits only (an English sentence is outside it) and has neither the
    shape nor the dtype that SB3's vector environments allocate with. This space has shape `()` and dtype `object`.

    Args:
        max_length: Largest number of Unicode code points.
        seed: Seed of `sample`.

    Raises:
        ValueError: If `max_length` is not a positive integer.
    """

    def __init__(self, max_length: int, *, seed: int | np.random.Generator | None = None) -> None:
        if isinstance(max_length, bool) or not isinstance(max_length, int | np.integer) or max_length < 1:
            raise ValueError(f"Expected max_length to be a positive integer; got {max_length!r}. Fix: pass e.g. 1024.")
        super().__init__(max_length=int(max_length), min_length=0, seed=seed)
        self._shape = ()
        self.dtype = np.dtype(object)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Return a random short text of letters, digits, punctuation and white space.

        Raises:
            ValueError: If a mask is given; free text has no mask.
        """
        if mask is not None or probability is not None:
            raise ValueError("Expected no mask: TextSpace holds free text. Fix: call sample() without arguments.")
        length = int(self.np_random.integers(0, min(self.max_length, _SAMPLE_LENGTH) + 1))
        picks = self.np_random.integers(0, len(_SAMPLE_CHARACTERS), size=length)
        return "".join(_SAMPLE_CHARACTERS[pick] for pick in picks)

    def contains(self, x: Any) -> bool:
        """Return whether `x` is a `str` (or a 0-d array of one) of at most `max_length` code points."""
        if isinstance(x, np.ndarray) and x.shape == ():
            x = x.item()
        return isinstance(x, str) and len(x) <= self.max_length

    def __repr__(self) -> str:
        """Return `TextSpace(max_length)`."""
        return f"TextSpace({self.max_length})"

    def __eq__(self, other: object) -> bool:
        """Return whether the bounds are equal."""
        return isinstance(other, TextSpace) and self.max_length == other.max_length

    __hash__ = None  # type: ignore[assignment]  # mutable (holds a random generator), like every gymnasium space


class TokenSequence(MultiDiscrete):
    """A sentence as a fixed-length array of token ids: a `MultiDiscrete` with `encode` and `decode`.

    Layout of an element, shape `(max_length,)`, int64: the tokens of the text, one end token, padding. The text ends
    at the first end *or* padding token. An array that is full without either is an *unfinished* sentence
    (`decode_finished` gives None): environments treat it as an invalid action, never as a shorter one.

    Args:
        tokenizer: Spec of the tokenizer; the space never holds a live one.
        max_length: Largest number of tokens, the end token included.
        seed: Seed of `sample`.

    Raises:
        ValueError: If `max_length` is not an integer of at least 2.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | None = None,
        max_length: int = 64,
        *,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        if isinstance(max_length, bool) or not isinstance(max_length, int | np.integer) or max_length < 2:
            raise ValueError(
                f"Expected max_length to be an integer of at least 2 (a token and the end token); got {max_length!r}. "
                "Fix: pass e.g. 64."
            )
        self.tokenizer: Tokenizer = ByteTokenizer() if tokenizer is None else tokenizer
        self.max_length = int(max_length)
        self.vocab_size = self.tokenizer.vocab_size
        self._stops = frozenset((self.tokenizer.end_token_id, self.tokenizer.pad_token_id))
        super().__init__(np.full(self.max_length, self.vocab_size, dtype=np.int64), seed=seed)

    def encode(self, text: str) -> NDArray[np.int64]:
        """Encode `text` as a token array.

        Args:
            text: Any string whose tokens, with the end token, fit `max_length`.

        Returns:
            int64 array of shape `(max_length,)`, a fresh one at each call.

        Raises:
            ActionError: If `text` is not a `str`.
            EncodingError: If `text` is too long, or the tokenizer would turn it into another text.
        """
        if not isinstance(text, str):
            raise ActionError(f"Expected a str to encode; got {type(text).__name__}. Fix: pass the action's text.")
        encode = _encode_cached if len(text) <= _CACHED_LENGTH else _encode_checked
        tokens = encode(self.tokenizer, str(text))
        if len(tokens) >= self.max_length:
            raise EncodingError(
                f"Expected a text of at most {self.max_length - 1} tokens; got {len(tokens)} ({text[:40]!r}...). "
                "Fix: shorten it, or make the environment with a larger max_action_length."
            )
        array = np.full(self.max_length, self.tokenizer.pad_token_id, dtype=np.int64)
        array[: len(tokens)] = tokens
        array[len(tokens)] = self.tokenizer.end_token_id
        return array

    def decode(self, tokens: NDArray[np.integer[Any]] | Sequence[int]) -> str:
        """Decode a token array, up to its first end or padding token.

        Raises:
            ActionError: If dtype, shape or a token id is wrong.
        """
        ids = self._checked_ids(tokens)
        return self.tokenizer.decode(ids[: self._text_length(ids)])

    def decode_finished(self, tokens: NDArray[np.integer[Any]] | Sequence[int]) -> str | None:
        """Decode a token array; return None where the sentence is unfinished (cut by `max_length`).

        Raises:
            ActionError: If dtype, shape or a token id is wrong.
        """
        ids = self._checked_ids(tokens)
        length = self._text_length(ids)
        return self.tokenizer.decode(ids[:length]) if length < self.max_length else None

    def unfinished(self) -> NDArray[np.int64]:
        """Return an element without an end token, which stands for a text too long to encode."""
        filler = next(token for token in range(self.vocab_size) if token not in self._stops)
        return np.full(self.max_length, filler, dtype=np.int64)

    def contains(self, x: Any) -> bool:
        """Return whether `x` is an integer array of the right shape with ids of the vocabulary."""
        try:
            self._checked_ids(x)
        except ActionError:
            return False
        return True

    def _text_length(self, ids: list[int]) -> int:
        return next((n for n, token in enumerate(ids) if token in self._stops), len(ids))

    def _checked_ids(self, tokens: Any) -> list[int]:
        try:
            array = np.asarray(tokens)
        except ValueError:  # ragged nested lists
            array = np.empty(0, dtype=object)
        if array.dtype.kind not in "iu" or array.shape != (self.max_length,):
            raise ActionError(
                f"Expected an action of integer token ids with shape ({self.max_length},); got "
                f"{type(tokens).__name__} with dtype {array.dtype} and shape {array.shape}. "
                "Fix: env.action_space.encode(text), or wrap the environment in lang_envs.wrappers.TextAction."
            )
        ids: list[int] = array.tolist()
        if min(ids) < 0 or max(ids) >= self.vocab_size:
            raise ActionError(
                f"Expected token ids from 0 to {self.vocab_size - 1}; got ids from {min(ids)} to {max(ids)}. "
                "Fix: encode with this action space, whose tokenizer may differ from your model's."
            )
        return ids

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickle: the spec instead of `nvec` (one repeated number)."""
        state: dict[str, Any] = self.__dict__.copy()
        del state["nvec"], state["start"]
        return state

    def __setstate__(self, state: Any) -> None:
        """Rebuild `nvec` from the spec."""
        self.__dict__.update(state)
        self.nvec = np.full(self.max_length, self.vocab_size, dtype=np.int64)
        self.start = np.zeros(self.max_length, dtype=np.int64)

    def __repr__(self) -> str:
        """Return `TokenSequence(tokenizer, max_length=...)`."""
        return f"TokenSequence({self.tokenizer!r}, max_length={self.max_length})"

    def __eq__(self, other: object) -> bool:
        """Return whether tokenizer spec and length are equal."""
        return (
            isinstance(other, TokenSequence)
            and self.tokenizer == other.tokenizer
            and self.max_length == other.max_length
        )

    __hash__ = None  # type: ignore[assignment]  # mutable (holds a random generator), like every gymnasium space


def _encode_checked(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    """Encode a text as token ids that decode to the same text."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise EncodingError(f"Expected valid Unicode; got {text[:80]!r} ({error.reason}). Fix: remove it.") from error
    tokens = tuple(tokenizer.encode(text))
    lost = tokenizer.decode(tokens) != text
    if lost or tokenizer.end_token_id in tokens or tokenizer.pad_token_id in tokens:
        raise EncodingError(
            f"Expected a text that the tokenizer can hold; {text[:80]!r} comes back as "
            f"{tokenizer.decode(tokens)[:80]!r}. Fix: use tokenizer='byte', which loses no valid Unicode."
        )
    return tokens


_CACHED_LENGTH = 256
_encode_cached = lru_cache(maxsize=4096)(_encode_checked)
"""Cache for short texts: admissible phrases repeat; long texts do not, and would only fill memory."""


class _SharedTexts(Sequence[str]):
    """Live view of the texts in shared memory; a deep copy (as `AsyncVectorEnv` returns) is a tuple of `str`.

    `AsyncVectorEnv` reads the shared memory once, at construction, and relies on the result being a view.
    """

    def __init__(self, memory: SynchronizedArray[ctypes.c_int32], n: int, max_length: int) -> None:
        view = np.frombuffer(memory.get_obj(), dtype=np.int32)  # type: ignore[call-overload]
        self._rows = view.reshape(n, max_length + 1)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self)[index]
        row = self._rows[index]
        return row[1 : 1 + int(row[0])].astype("<u4").tobytes().decode("utf-32-le", errors="surrogatepass")

    def __iter__(self) -> Iterator[str]:
        return (self[n] for n in range(len(self)))

    def __deepcopy__(self, memo: dict[int, Any]) -> tuple[str, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        return repr(tuple(self))


@create_shared_memory.register
def _create_text_memory(space: TextSpace, n: int = 1, ctx: ModuleType | None = None) -> Any:
    import multiprocessing

    return (ctx or multiprocessing).Array("i", n * (space.max_length + 1))


@read_from_shared_memory.register
def _read_text_memory(space: TextSpace, shared_memory: Any, n: int = 1) -> Any:
    return _SharedTexts(shared_memory, n, space.max_length)


@write_to_shared_memory.register
def _write_text_memory(space: TextSpace, index: int, values: str, shared_memory: Any) -> None:
    if not space.contains(values):
        raise ValueError(
            f"Expected a str of at most {space.max_length} characters; got {type(values).__name__} "
            f"of length {len(str(values))}. Fix: raise the observation space's max_length."
        )
    codes = np.frombuffer(str(values).encode("utf-32-le", errors="surrogatepass"), dtype="<u4").astype(np.int32)
    size = space.max_length + 1
    view = np.frombuffer(shared_memory.get_obj(), dtype=np.int32)
    view[index * size] = len(codes)
    view[index * size + 1 : index * size + 1 + len(codes)] = codes


@create_empty_array.register
def _create_empty_texts(space: TextSpace, n: int = 1, fn: Any = np.zeros) -> tuple[str, ...]:
    return ("",) * n


_FUNCTIONS: tuple[Any, ...] = (
    batch_space,
    batch_differing_spaces,
    concatenate,
    create_empty_array,
    create_shared_memory,
    iterate,
    read_from_shared_memory,
    write_to_shared_memory,
)
for _function in _FUNCTIONS:
    # Gymnasium dispatches batch_differing_spaces on the exact class, so the functions of the bases are registered too.
    _function.register(TokenSequence, _function.dispatch(MultiDiscrete))
    # `iterate` stays unregistered, as for Text: only so does Gymnasium iterate over a Tuple (a batch) of them.
    if TextSpace not in _function.registry and _function is not iterate:
        _function.register(TextSpace, _function.dispatch(Text))


@flatdim.register
def _flatdim_text(space: TextSpace) -> int:
    return space.max_length


@flatten_space.register
def _flatten_text_space(space: TextSpace) -> Box:
    return Box(low=-1, high=0x10FFFF, shape=(space.max_length,), dtype=np.int32)


@flatten.register
def _flatten_text(space: TextSpace, x: str) -> NDArray[np.int32]:  # type: ignore[misc]  # generic fallback
    codes = np.full(space.max_length, -1, dtype=np.int32)
    codes[: len(x)] = [ord(character) for character in x]
    return codes


@unflatten.register
def _unflatten_text(space: TextSpace, x: NDArray[np.int32]) -> str:  # type: ignore[misc]  # generic fallback
    return "".join(chr(code) for code in x if code >= 0)
