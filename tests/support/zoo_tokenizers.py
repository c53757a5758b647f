"""Small tokenizers of the kinds that language models come with, trained on the spot on sentences of our own."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_OTHERS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN_WORDS = rf"{_LETTERS}|\p{{N}}{_OTHERS}"
LLAMA3_WORDS = rf"{_LETTERS}|\p{{N}}{{1,3}}{_OTHERS}"


def sentences() -> list[str]:
    """A few hundred lines of kitchen, lamps and Python; ASCII only, so that other letters have to fall back."""
    verbs, foods = ("put", "press", "pick up", "wash", "chop", "open"), ("tomato", "onion", "bowl", "plate", "lettuce")
    places = ("table", "counter", "shelf", "door", "red button", "green button", "cutting board")
    lines = [f"{verb} the {food} on the {spot}" for verb, food, spot in itertools.product(verbs, foods, places)]
    lines += [f"The {food} is on the {spot}. You wait and look at the {spot}." for food in foods for spot in places]
    lines += [
        f"The lamp is {colour}. You have {n} moves left." for colour in ("red", "green", "blue") for n in range(10)
    ]
    lines += [f"def {verb[:4]}_{food}(x, y):\n    return x + y * {len(food)}\n" for verb in verbs for food in foods]
    lines += [f"model = {name}(n_estimators={n})\nmodel.fit(x, y)\n" for name in ("Forest", "Ridge") for n in range(9)]
    return lines


def byte_level(
    words: str,
    end: str,
    *,
    special: Sequence[str] = (),
    added: Sequence[str] = (),
    start: str | None = None,
    **settings: Any,
) -> PreTrainedTokenizerFast:
    """Byte-level BPE as in GPT-2, Qwen and Llama 3: a space belongs to the word behind it.

    Args:
        words: Regular expression that cuts a text into the units of merges.
        end: End token.
        special: Further special tokens.
        added: Further tokens that are not special: text that contains them is not kept from meaning them.
        start: Start token; put before every text, unless it is the end token too.
        **settings: Of the tokenizer, such as its template.
    """
    tokenizer = Tokenizer(models.BPE(**_byte_level_merges(words)))
    tokenizer.normalizer = normalizers.NFC() if words == QWEN_WORDS else None
    tokenizer.pre_tokenizer = _byte_level_cuts(words)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    specials = [end, *special, *([start] if start not in (None, end) else [])]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in specials])
    tokenizer.add_tokens([AddedToken(token, normalized=words == GPT2_WORDS) for token in added])
    if start not in (None, end):
        tokenizer.post_processor = processors.Sequence([tokenizer.post_processor, _starting_with(start, tokenizer)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=start, eos_token=end, **settings)


def sentence_piece(
    end: str,
    start: str,
    *,
    dummy_prefix: str,
    special: Sequence[AddedToken] = (),
    adds_start: bool = True,
    **settings: Any,
) -> PreTrainedTokenizerFast:
    """Byte-pair encoding as in sentencepiece: spaces are letters, unknown characters fall back to bytes.

    Args:
        end: End token.
        start: Start token.
        dummy_prefix: Who puts a space before a text: `"metaspace"` (Llama 2; not if there is one already),
            `"normalizer"` (Phi-3: always) or `"none"` (Gemma).
        special: Further special tokens.
        adds_start: Whether the start token is put before every text.
        **settings: Of the tokenizer, such as its template.
    """
    specials = ["<unk>", start, end] if dummy_prefix != "none" else ["<pad>", end, start, "<unk>"]
    tokenizer = Tokenizer(models.BPE(**_pieces(tuple(specials)), unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    parts: list[Any] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if dummy_prefix == "metaspace":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    elif dummy_prefix == "normalizer":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([*parts, *([decoders.Strip(" ", 1, 0)] if dummy_prefix != "none" else [])])
    tokenizer.add_special_tokens([*(AddedToken(token, special=True, normalized=False) for token in specials), *special])
    tokenizer.post_processor = (
        _starting_with(start, tokenizer) if adds_start else processors.TemplateProcessing(single="$A", pair="$A $B")
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token=start, eos_token=end, **settings
    )


def _byte_level_cuts(words: str) -> pre_tokenizers.PreTokenizer:
    cut = pre_tokenizers.Split(Regex(words), "isolated")
    return pre_tokenizers.Sequence([cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


@cache
def _byte_level_merges(words: str) -> Mapping[str, Any]:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = _byte_level_cuts(words)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=460, initial_alphabet=alphabet, show_progress=False)
    return _trained(tokenizer, trainer, sentences())


@cache
def _pieces(specials: tuple[str, ...]) -> Mapping[str, Any]:
    """Special tokens, bytes, merged pieces and letters, in the order of Llama's vocabulary."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    lines = [line for text in sentences() for line in text.splitlines()]  # a line's end is a byte
    learnt = _trained(tokenizer, trainers.BpeTrainer(vocab_size=280, show_progress=False), lines)
    runs = [("▁" * (n // 2 + n % 2), "▁" * (n // 2)) for n in range(2, 9)]  # of spaces: merged last, as Llama does
    pieces = sorted(learnt["vocab"], key=lambda piece: (len(piece) == 1, learnt["vocab"][piece]))
    tokens = [*specials, *(f"<0x{byte:02X}>" for byte in range(256)), *("".join(pair) for pair in runs), *pieces]
    return {"vocab": {token: number for number, token in enumerate(tokens)}, "merges": [*learnt["merges"], *runs]}


def _trained(tokenizer: Tokenizer, trainer: trainers.BpeTrainer, lines: Sequence[str]) -> Mapping[str, Any]:
    tokenizer.train_from_iterator(lines, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return {"vocab": model["vocab"], "merges": [tuple(pair) for pair in model["merges"]]}


def _starting_with(start: str, tokenizer: Tokenizer) -> processors.TemplateProcessing:
    number = tokenizer.token_to_id(start)
    return processors.TemplateProcessing(
        single=f"{start} $A", pair=f"{start} $A {start}:1 $B:1", special_tokens=[(start, number)]
    )
