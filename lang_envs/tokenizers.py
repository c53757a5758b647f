"""Tokenizers of action spaces: small, hashable specs that never drag a model along.

An action space is pickled with every checkpoint and sent to every worker process, so it holds a *spec*
(a frozen dataclass of a few strings). Heavy objects are loaded on first use and kept in a cache of the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

from lang_envs.errors import MissingExtraError, TokenizerError, install_command

__all__ = ["ByteTokenizer", "HuggingFaceTokenizer", "Tokenizer", "resolve_tokenizer"]


@runtime_checkable
class Tokenizer(Protocol):
    """Interface of a tokenizer for an action space. Implementations are hashable and pickle small."""

    def __hash__(self) -> int:
        """Return the hash of the spec; specs key caches."""

    @property
    def vocab_size(self) -> int:
        """Number of token ids; valid ids are `0 .. vocab_size - 1`."""

    @property
    def pad_token_id(self) -> int:
        """Id that fills a sequence behind its end."""

    @property
    def end_token_id(self) -> int:
        """Id that ends a sentence."""

    def encode(self, text: str) -> list[int]:
        """Encode `text` as token ids, without end or padding."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Decode token ids that hold neither end nor padding."""


@dataclass(frozen=True)
class ByteTokenizer:
    """UTF-8 bytes plus a padding and an end token: lossless, without a model.

    Ids 0..255 are bytes, 256 is padding, 257 ends a sentence. Byte sequences that are not UTF-8 decode with
    U+FFFD in place of the bad bytes, so every token sequence has a text.
    """

    @property
    def vocab_size(self) -> int:
        """258: 256 bytes, padding, end."""
        return 258

    @property
    def pad_token_id(self) -> int:
        """256."""
        return 256

    @property
    def end_token_id(self) -> int:
        """257."""
        return 257

    def encode(self, text: str) -> list[int]:
        """Encode `text` as UTF-8 bytes; a lone surrogate (not valid Unicode) becomes `?`."""
        return list(text.encode("utf-8", errors="replace"))

    def decode(self, tokens: Sequence[int]) -> str:
        """Decode byte ids."""
        return bytes(tokens).decode("utf-8", errors="replace")


@dataclass(frozen=True)
class HuggingFaceTokenizer:
    """A tokenizer of the Hugging Face hub or of a local folder, loaded on first use.

    Args:
        name_or_path: Hub id (`"Qwen/Qwen2.5-0.5B-Instruct"`) or folder.
        revision: Commit, tag or branch on the hub.
    """

    name_or_path: str
    revision: str | None = None

    @property
    def vocab_size(self) -> int:
        """Size including added tokens."""
        return len(_load_hugging_face(self))

    @property
    def pad_token_id(self) -> int:
        """The tokenizer's padding token, or its end token where it has none."""
        pad = _load_hugging_face(self).pad_token_id
        return self.end_token_id if pad is None else int(pad)

    @property
    def end_token_id(self) -> int:
        """The tokenizer's end-of-sequence token."""
        return int(_load_hugging_face(self).eos_token_id)

    def encode(self, text: str) -> list[int]:
        """Return the token ids of `text`; special tokens in it are encoded as text."""
        tokenizer = _load_hugging_face(self)
        return [int(t) for t in tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)]

    def decode(self, tokens: Sequence[int]) -> str:
        """Decode `tokens`, spaces unchanged; special tokens show as their text, so they never vanish."""
        return str(_load_hugging_face(self).decode(list(tokens), clean_up_tokenization_spaces=False))


@lru_cache(maxsize=16)
def _load_hugging_face(spec: HuggingFaceTokenizer) -> Any:
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise MissingExtraError(
            f"Tokenizer {spec.name_or_path!r} needs the transformers package, which is not installed. "
            f"Fix: {install_command('llm')}."
        ) from error
    try:
        tokenizer = AutoTokenizer.from_pretrained(spec.name_or_path, revision=spec.revision)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:  # of a damaged folder
        raise TokenizerError(
            f"Expected 'byte', a folder holding a Hugging Face tokenizer, or an id of the Hugging Face hub; "
            f"got {spec.name_or_path!r}, which could not be loaded ({type(error).__name__}: {str(error)[:200]}). "
            "Fix: check the spelling, or download it where there is a network and pass the folder."
        ) from error
    if tokenizer.eos_token_id is None:
        raise TokenizerError(
            f"Expected a tokenizer with an end-of-sequence token; {spec.name_or_path!r} has none. "
            "Fix: set eos_token in its tokenizer_config.json."
        )
    return tokenizer


def resolve_tokenizer(tokenizer: str | Tokenizer) -> Tokenizer:
    """Turn the `tokenizer=` argument of an environment into a spec.

    Args:
        tokenizer: `"byte"`, a Hugging Face id or folder, or a `Tokenizer`.

    Raises:
        TokenizerError: If it is anything else, or the named tokenizer cannot be loaded.
    """
    if isinstance(tokenizer, str):
        if tokenizer == "byte":
            return ByteTokenizer()
        spec = HuggingFaceTokenizer(tokenizer)
        _load_hugging_face(spec)  # a wrong name should fail here, not in the middle of an episode
        return spec
    if isinstance(tokenizer, Tokenizer) and not isinstance(tokenizer, type):
        return tokenizer
    raise TokenizerError(
        f"Expected 'byte', a Hugging Face id or folder, or a lang_envs Tokenizer; got {type(tokenizer).__name__}. "
        "Fix: pass a string, or wrap a loaded tokenizer's folder in HuggingFaceTokenizer(folder)."
    )
