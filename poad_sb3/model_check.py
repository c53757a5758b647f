"""What the package relies on in a model, checked when it is loaded instead of believed.

Two things differ between architectures without any error: what a model does to its logits behind the head (scaling,
soft caps), and whether it attends to a packed tree of continuations as to separate sequences (sliding windows, biases
by distance and recurrent layers do not).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from poad_sb3.errors import ModelError

__all__ = ["TokenRow", "adjust_logits", "check_model"]

TokenIds = tuple[int, ...]
_TOLERANCE = 1e-3
_WINDOW_SETTINGS = ("sliding_window", "window_size", "attention_window_size")


class TokenRow(NamedTuple):
    """Tokens for one pass through the model.

    Attributes:
        tokens: Token ids.
        parents: Position each token follows; None for an ordinary sequence, where that is the one before it. With a
            branching row, several continuations share one prefix: every token attends to its ancestors only.
        reads: Positions whose hidden states are wanted.
    """

    tokens: TokenIds
    parents: TokenIds | None
    reads: TokenIds


def adjust_logits(logits: Tensor, config: Any) -> Tensor:  # noqa: ANN401 - transformers configs share no type
    """What Granite, Cohere and Gemma do to the output of their heads."""
    logits = logits / (getattr(config, "logits_scaling", None) or 1.0)
    logits = logits * (getattr(config, "logit_scale", None) or 1.0)
    cap = getattr(config, "final_logit_softcapping", None)
    return logits if cap is None else torch.tanh(logits / cap) * cap


@torch.no_grad()
def check_model(
    network: Any,  # noqa: ANN401 - a peft model
    hidden_states: Callable[..., Tensor],
    child_logits: Callable[[Tensor, Sequence[TokenIds]], Tensor],
    name: str,
) -> tuple[int, bool]:
    """Compare the package's passes with the model's own on a few tokens.

    Args:
        network: The model with its adapter.
        hidden_states: `LanguageModel.hidden_states`.
        child_logits: `LanguageModel.child_logits`.
        name: The model's name, for the message.

    Returns:
        Width of the hidden states, and whether packed trees may be used.

    Raises:
        ModelError: If ordinary sequences are not scored as the model itself scores them.
    """
    config = network.get_base_model().config.get_text_config()
    tokens = (
        tuple(7 + 3 * k for k in range(12))
        if config.vocab_size > 64
        else tuple(k % config.vocab_size for k in range(12))
    )
    every = tuple(range(config.vocab_size))
    try:
        hidden = hidden_states([TokenRow(tokens, None, (len(tokens) - 1,))], adapter=True)
        ours = child_logits(hidden, [every])
        theirs = network(input_ids=torch.tensor([tokens], device=network.device), use_cache=False).logits[0, -1].float()
    except Exception as error:
        raise _unsupported(name, f"{type(error).__name__}: {str(error)[:200]}") from error
    difference = float((ours.log_softmax(0) - theirs.log_softmax(0)).abs().max())
    if not difference < _TOLERANCE:
        raise _unsupported(name, f"log-probabilities differ by {difference:.2g} from the model's own forward pass")
    return hidden.shape[-1], _sees_whole_sequences(config) and _trees_agree(tokens, hidden_states)


def _unsupported(name: str, reason: str) -> ModelError:
    return ModelError(
        f"Expected a causal language model with a decoder and an output head; {name!r} cannot be scored ({reason}). "
        "Fix: use another architecture (Llama, Qwen, Mistral, Gemma, GPT-2, Phi and the like work)."
    )


def _sees_whole_sequences(config: Any) -> bool:  # noqa: ANN401 - as above
    """Whether no layer is configured with a window; a mask of our own would override it."""
    layers = getattr(config, "layer_types", None)
    if layers is not None:
        return all(layer == "full_attention" for layer in layers)
    return all(getattr(config, setting, None) is None for setting in _WINDOW_SETTINGS)


def _trees_agree(tokens: TokenIds, hidden_states: Callable[..., Tensor]) -> bool:
    """Whether two branches packed into one row give what they give apart."""
    n = len(tokens)
    left, right = (*tokens, tokens[3], tokens[5]), (*tokens, tokens[1], tokens[8])
    parents = (*range(-1, n + 1), n - 1, n + 2)
    packed = TokenRow((*left, *right[n:]), parents, (n + 1, n + 3))
    apart = [TokenRow(branch, None, (n + 1,)) for branch in (left, right)]
    try:
        difference = (hidden_states([packed], adapter=True) - hidden_states(apart, adapter=True)).abs().max()
    except Exception:  # an architecture without such masks; any error means: do not pack
        return False
    return bool(difference < _TOLERANCE)
