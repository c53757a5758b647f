"""Checks of a model at loading: all properties that the package relies on.

Some things differ between architectures without any error: how a model changes its logits after the head (scaling, soft
caps), whether it attends to a packed tree of continuations as to separate sequences (sliding windows, biases by
distance and recurrent layers do not), whether the hidden states of a text depend on its batch or on later tokens (with
routing of experts by batch or sparse attention by index they may), whether its key-value cache continues padded
prompts, whether taking its adapter off restores it, and whether its layers
compute the same when their activations are computed again for the backward pass.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from poad_sb3.errors import ModelError
from poad_sb3.language_model.decoding import CachedDecoding, Decoding
from poad_sb3.language_model.forward import decoder_of
from poad_sb3.language_model.lora import is_quantized
from poad_sb3.language_model.packing import TokenIds, TokenRow

_WINDOW_SETTINGS = ("sliding_window", "window_size", "attention_window_size")
_REACHES = ("index_topk", "keep_window_size", "attention_chunk_size", "chunk_size")
_LONGEST_REACH = 128
_SIBLING = 64
"""Number of tokens of a branch in the probe of packed rows."""
_EXACT, _ROUNDED = 1e-4, 0.05
"""Maximum error of hidden states, relative to their size: in 16 bits or less the order of sums shows."""

HiddenStates = Callable[..., Tensor]


class Abilities(NamedTuple):
    """Capabilities of a model.

    Attributes:
        hidden_size: Width of the model's hidden states.
        plain_passes: Whether every position that is read needs a pass of its own over the tokens up to it, since its
            hidden state depends on the rest of its batch or on later tokens.
        packs_trees: Whether several continuations of a prompt may share a row.
        caches: Whether the model's key-value cache continues prompts of different lengths.
    """

    hidden_size: int
    plain_passes: bool
    packs_trees: bool
    caches: bool


def is_full_precision(base: Any) -> bool:
    """Return whether passes of another shape give the same numbers to about 1e-6: float32, not quantised."""
    return bool(base.dtype == torch.float32) and not is_quantized(base)


@torch.no_grad()
def check_model(
    base: Any, hidden_states: HiddenStates, vocabulary_logits: Callable[[Tensor], Tensor], name: str
) -> Abilities:
    """Find out on a few tokens which passes a model allows. `sampling_check` measures their errors afterwards.

    Args:
        base: Transformers model.
        hidden_states: Function from rows to hidden states, each row in its place in a batch.
        vocabulary_logits: Function from hidden states to logits, `LanguageModel.vocabulary_logits`.
        name: Name of the model, for the message.

    Raises:
        ModelError: If the model cannot be run.
    """
    row = probe_row(base)
    tokens = row.tokens
    tolerance = _EXACT if is_full_precision(base) else _ROUNDED
    try:
        hidden = hidden_states([row])
        vocabulary_logits(hidden)
        base(input_ids=torch.tensor([tokens], device=base.device), use_cache=False)
    except Exception as error:
        raise ModelError(
            f"Expected a causal language model with a decoder and an output head; {name!r} cannot be scored "
            f"({type(error).__name__}: {str(error)[:200]}). Fix: use another architecture (Llama, Qwen, Mistral, "
            "Gemma, GPT-2, Phi and the like work)."
        ) from error
    try:
        difference = _context_error(tokens, hidden_states)
        why = f"hidden states differ by {difference:.2g} from those of the texts alone"
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        difference, why = math.inf, f"{type(error).__name__}: {str(error)[:200]}"
    plain = not difference < tolerance
    if plain:
        message = f"Several texts cannot share a pass of {name!r} ({why}), so each takes one of its own, which is slow."
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    packs = not plain and _sees_whole_sequences(base.config.get_text_config())
    room = getattr(base.config.get_text_config(), "max_position_embeddings", None) or _SIBLING + len(tokens)
    sibling = min(_SIBLING, max(2, room - len(tokens)))
    packs = packs and _agrees(partial(_pack_error, sibling), tokens, hidden_states, tolerance)
    cached = partial(CachedDecoding, base, takes_bias=packs)
    one_by_one = partial(_one_by_one, hidden_states) if plain else hidden_states
    caches = _agrees(partial(_cache_error, cached, packs), tokens, one_by_one, tolerance)
    return Abilities(hidden.shape[-1], plain, packs, caches)


def probe_length(base: Any) -> int:
    """Return the length of a prompt that exercises an architecture: longer than its windows, where these are short."""
    config = base.config.get_text_config()
    reaches = [getattr(config, name, None) for name in (*_WINDOW_SETTINGS, *_REACHES)]
    shown = max([12, *(3 * reach // 2 for reach in reaches if isinstance(reach, int) and reach <= _LONGEST_REACH)])
    context = getattr(config, "max_position_embeddings", None)
    return min(shown, context - 8) if isinstance(context, int) and context > 8 else shown  # with room to continue


def probe_row(base: Any) -> TokenRow:
    """Return a row of some tokens of the vocabulary, read at their end."""
    size, length = base.config.get_text_config().vocab_size, probe_length(base)
    first, step = (7, 3) if size > 64 else (0, 1)
    return TokenRow(tuple((first + step * k) % size for k in range(length)), None, (length - 1,))


@torch.no_grad()
def plain_hidden(base: Any) -> Tensor:
    """Return the hidden states of the probe in the unchanged model."""
    ids = torch.tensor([probe_row(base).tokens], device=base.device)
    try:
        hidden: Tensor = decoder_of(base)(input_ids=ids, use_cache=False).last_hidden_state[:, -1]
    except Exception:  # an error here is reported by `check_model`
        return torch.zeros(0)
    return hidden


@torch.no_grad()
def check_reference(
    reference: HiddenStates,
    before: Tensor,
    trained: Sequence[Tensor],
    name: str,
    base: Any,
) -> None:
    """Compare the model without its adapter with the model before the adapter was added.

    Args:
        reference: Function from rows to hidden states without the adapter.
        before: Hidden states of the base before the adapter was added, from `plain_hidden`.
        trained: Parameters that training will change; changed here, and restored.
        name: Name of the model, for the message.
        base: Transformers model. With rounding, as in 8 bits, the tolerance is larger: passes differ in shape.

    Raises:
        ModelError: If the models differ, as with trained biases or adapters that begin with a part of the base.
    """
    kept = [parameter.detach().clone() for parameter in trained]
    try:
        for parameter in trained:
            parameter.add_(0.5 * parameter.abs().mean() + 0.01)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Careful, disabling adapter layers")  # done on purpose here
            difference = _relative(reference([probe_row(base)]), before)
    finally:
        for parameter, saved in zip(trained, kept, strict=True):
            parameter.copy_(saved)
    if not difference < (_EXACT if is_full_precision(base) else _ROUNDED):
        raise ModelError(
            f"Expected an adapter that can be taken off, so that the critic reads {name} as it was; without it hidden "
            f"states differ by {difference:.2g}. Fix: lora with bias='none' and the usual init_lora_weights, or "
            "critic_trunk='live'."
        )


def _sees_whole_sequences(config: Any) -> bool:
    """Return whether no layer is configured with a window; a mask of our own would override it."""
    layers = getattr(config, "layer_types", None)
    if layers is not None:
        return all(layer == "full_attention" for layer in layers)
    return all(getattr(config, setting, None) is None for setting in _WINDOW_SETTINGS)


def _agrees(
    error: Callable[[TokenIds, HiddenStates], float], tokens: TokenIds, hidden_states: HiddenStates, tolerance: float
) -> bool:
    try:
        return error(tokens, hidden_states) < tolerance
    except Exception:  # an architecture without such masks or caches; any error means: do without
        return False


def _relative(values: Tensor, reference: Tensor) -> float:
    difference = float((values - reference).abs().max() / reference.abs().max().clamp(min=1.0))
    return difference if math.isfinite(difference) else math.inf  # the greater of a number and NaN can be the number


def _one_by_one(hidden_states: HiddenStates, rows: Sequence[TokenRow]) -> Tensor:
    return torch.cat([hidden_states([row]) for row in rows])


def _context_error(tokens: TokenIds, hidden_states: HiddenStates) -> float:
    """Return the difference of texts alone from the same texts in a batch, and with more text behind them."""
    n = len(tokens)
    lengths = (n, 3, min(7, n), n - 1)
    rows = [TokenRow(tokens[:length], None, (length - 1,)) for length in lengths]
    alone = _one_by_one(hidden_states, rows)
    longer = TokenRow(tokens, None, tuple(length - 1 for length in lengths))
    return max(_relative(hidden_states(rows), alone), _relative(hidden_states([longer]), alone))


def _pack_error(sibling: int, tokens: TokenIds, hidden_states: HiddenStates) -> float:
    """Return the difference between two branches packed into one row and the same branches apart.

    A long branch stands before the second one: an attention that weighs distances in the row shows beside rounding.
    """
    n = len(tokens)
    left, right = (*tokens, *(tokens[3 + k % (n - 3)] for k in range(sibling))), (*tokens, tokens[1], tokens[8])
    last = len(left) - 1
    packed = TokenRow((*left, *right[n:]), (*range(-1, last), n - 1, last + 1), (last, last + 2))
    unpacked = [TokenRow(branch, None, (len(branch) - 1,)) for branch in (left, right)]
    return _relative(hidden_states([packed]), hidden_states(unpacked))


def _cache_error(
    start: Callable[[Sequence[TokenIds]], Decoding], reads_trees: bool, tokens: TokenIds, hidden_states: HiddenStates
) -> float:
    """Return the difference of decoding two prompts, the shorter padded, the longer ended early, from plain passes.

    Where the model packs trees, one is read behind a prompt.
    """

    def whole(*texts: TokenIds) -> Tensor:
        return hidden_states([TokenRow(text, None, (len(text) - 1,)) for text in texts])

    short, long = tokens[:5], tokens
    decoding = start([short, long])
    errors = [_relative(decoding.hidden, whole(short, long))]
    short, long = (*short, tokens[2]), (*long, tokens[4])
    decoding.advance([0, 1], [tokens[2], tokens[4]])
    errors.append(_relative(decoding.hidden, whole(short, long)))
    if reads_trees:
        left, right = (*short, tokens[1]), (*short, tokens[3])
        tree = TokenRow((*left, tokens[3]), (*range(-1, len(short)), len(short) - 1), (len(short), len(short) + 1))
        errors.append(_relative(decoding.read([0], [tree]), whole(left, right)))
    decoding.advance([0], [tokens[6]])
    errors.append(_relative(decoding.hidden, whole((*short, tokens[6]))))
    return max(errors)


@torch.no_grad()
def check_checkpointing(with_it: Callable[[], Tensor], without: Callable[[], Tensor], name: str) -> None:
    """Compare hidden states with activations computed again to those with activations kept.

    Raises:
        ModelError: If they differ: something in the layers, such as dropout, depends on the mode.
    """
    try:
        with torch.enable_grad():
            difference = _relative(with_it().detach(), without().detach())
    except Exception as error:
        raise ModelError(
            f"Expected an architecture with gradient checkpointing; {name!r} fails with it ({type(error).__name__}: "
            f"{str(error)[:200]}). Fix: gradient_checkpointing=False."
        ) from error
    if not difference < _EXACT:
        raise ModelError(
            f"Expected the same hidden states with gradient checkpointing; those of {name!r} differ by "
            f"{difference:.2g}. Fix: gradient_checkpointing=False, or a model without dropout."
        )
