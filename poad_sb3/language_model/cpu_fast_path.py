"""Decoding on a processor, faster than a model's own modules; `policy_kwargs=dict(cpu_fast_path=False)` opts out.

Where rows are few, the products of a model take a third of the time that a token needs; the rest is spent between
them. This file does the same with fewer calls and with hardly a module around them, for one kind of layer, that of
Llama, Mistral and Qwen: two RMS norms, rotary positions of whole heads, keys and values that heads may share, a gated
MLP. Measured in turns in one process (`code` of `python -m benchmarks measure throughput`, vocabulary 2,000, one core):
a rollout takes 1/1.6 of the time of transformers' modules with the same cache, a rollout and its update 1/1.44.

Other architectures have nearly the same layers: they scale queries at late positions, or have weights without
effect in a fresh model. A comparison on a few tokens would not show that. So the layers must be of the known classes,
as transformers made them; and the comparison at loading must agree as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from poad_sb3.language_model.decoding import CachedDecoding
from poad_sb3.language_model.forward import decoder_of
from poad_sb3.language_model.packing import TokenIds

FEW_ROWS = 8
"""Largest number of rows at which `few_rows_product` is faster."""

_PRODUCTS = {"self_attn": ("q_proj", "k_proj", "v_proj", "o_proj"), "mlp": ("gate_proj", "up_proj", "down_proj")}


def applies_to(decoder: Any) -> bool:
    """Return whether the layers of a decoder, and the norm behind them, are known ones with plain products.

    False if a product is replaced, as by adapters, if a forward pass was replaced, or with hooks.
    """
    inside = [
        (name, module)
        for part in (*getattr(decoder, "layers", ()), getattr(decoder, "norm", None))
        if part is not None
        for name, module in part.named_modules()
        if not name.startswith("mlp.act_fn")  # called as it is
    ]
    watched = any(
        one._forward_hooks or one._forward_pre_hooks or "forward" in vars(one)
        for one in (decoder, *(module for _, module in inside))
    )
    return bool(inside) and not watched and all(type(module) in _known_classes() for _, module in inside)


@cache
def _known_classes() -> frozenset[type]:
    found: set[type] = {nn.Linear}
    for family in ("Llama", "Mistral", "Qwen2", "Qwen3"):
        source = import_module(f"transformers.models.{family.lower()}.modeling_{family.lower()}")
        found |= {getattr(source, family + part) for part in ("DecoderLayer", "Attention", "MLP", "RMSNorm")}
    return frozenset(found)


class TokenPass:
    """One token of each row through a decoder, by the weights that it has at construction.

    Args:
        decoder: Decoder that `applies_to` accepts.
    """

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder
        self._layers = [_Layer.of(layer) for layer in decoder.layers]
        self._last = _Norm.of(decoder.norm)

    def __call__(self, tokens: Tensor, positions: Tensor, bias: Tensor, cache: Sequence[Any]) -> Tensor:
        """Compute the last hidden states of tokens that follow those in a cache, `[n, hidden_size]`.

        Args:
            tokens: Token of each row, `[n]`.
            positions: Positions of the tokens, `[n]`.
            bias: Additive attention mask over all tokens in the cache after this call, `[n, 1, 1, length]`.
            cache: Layers of the cache; the tokens are appended to them.
        """
        hidden = self._decoder.embed_tokens(tokens)
        cosine, sine = self._decoder.rotary_emb(hidden, positions[:, None])
        # Half of a head turns the other half: with the sign in the sine, a roll does instead of slices and a negation.
        first, second = sine.chunk(2, dim=-1)
        turn = (cosine, torch.cat([-first, second], dim=-1))
        shape = self._layers[0].heads
        seen = bias.expand(-1, shape.shared, shape.sharing, -1).reshape(len(tokens) * shape.shared, shape.sharing, -1)
        for layer, known in zip(self._layers, cache, strict=True):
            hidden = hidden + layer.attention(layer.before_attention(hidden), turn, seen, known)
            hidden = hidden + layer.mlp(layer.before_mlp(hidden))
        return self._last(hidden)


class _Product(NamedTuple):
    """Weights of a linear layer: asking a module for its own takes as long as a small sum."""

    weight: Tensor
    bias: Tensor | None

    @classmethod
    def of(cls, module: Any) -> _Product:
        return cls(module.weight, module.bias)

    def __call__(self, rows: Tensor) -> Tensor:
        return few_rows_product(rows, self.weight, self.bias)


class _Norm(NamedTuple):
    weight: Tensor
    epsilon: float

    @classmethod
    def of(cls, module: Any) -> _Norm:
        return cls(module.weight, module.variance_epsilon)

    def __call__(self, values: Tensor) -> Tensor:
        return nn.functional.rms_norm(values, values.shape[-1:], self.weight, self.epsilon)


class _Heads(NamedTuple):
    """Shape of attention: key-value heads, query heads for each, and their width."""

    shared: int
    sharing: int
    width: int
    scaling: float


class _Layer(NamedTuple):
    before_attention: _Norm
    of_attention: tuple[_Product, _Product, _Product, _Product]
    of_heads: tuple[_Norm, _Norm] | None
    heads: _Heads
    before_mlp: _Norm
    of_mlp: tuple[_Product, _Product, _Product]
    activation: nn.Module

    @classmethod
    def of(cls, layer: Any) -> _Layer:
        attention, mlp = layer.self_attn, layer.mlp
        width, sharing = attention.head_dim, attention.num_key_value_groups
        queries, keys, values, output = (_Product.of(getattr(attention, name)) for name in _PRODUCTS["self_attn"])
        gate, up, down = (_Product.of(getattr(mlp, name)) for name in _PRODUCTS["mlp"])
        of_heads = (_Norm.of(attention.q_norm), _Norm.of(attention.k_norm)) if hasattr(attention, "q_norm") else None
        return cls(
            _Norm.of(layer.input_layernorm),
            (queries, keys, values, output),
            of_heads,
            _Heads(len(keys.weight) // width, sharing, width, attention.scaling),
            _Norm.of(layer.post_attention_layernorm),
            (gate, up, down),
            mlp.act_fn,
        )

    def attention(self, hidden: Tensor, turn: tuple[Tensor, Tensor], seen: Tensor, known: Any) -> Tensor:
        """Compute attention; see `TokenPass`.

        Args:
            hidden: Hidden states behind the norm, `[n, hidden_size]`.
            turn: Cosine and signed sine of the positions, `[n, 1, width]` each.
            seen: Additive attention mask, `[n * shared, sharing, length]`.
            known: Part of the cache that belongs to the layer.
        """
        to_queries, to_keys, to_values, to_output = self.of_attention
        n, (shared, sharing, width, scaling) = len(hidden), self.heads
        queries, keys = to_queries(hidden), to_keys(hidden)
        if self.of_heads is not None:
            parts = zip(self.of_heads, (queries, keys), strict=True)
            queries, keys = (norm(one.reshape(n, -1, width)).view(n, -1) for norm, one in parts)
        both = torch.cat([queries, keys], dim=-1).view(n, -1, width)
        both = torch.addcmul(both * turn[0], both.roll(width // 2, -1), turn[1])
        queries, keys = both[:, : shared * sharing], both[:, shared * sharing :]
        keys, values = known.update(keys[:, :, None], to_values(hidden).reshape(n, shared, 1, width))
        queries = queries.reshape(n * shared, sharing, width)
        scores = torch.baddbmm(seen, queries, keys.flatten(0, 1).transpose(1, 2), alpha=scaling)
        return to_output(torch.bmm(scores.softmax(-1), values.flatten(0, 1)).view(n, -1))

    def mlp(self, hidden: Tensor) -> Tensor:
        """Compute the gated MLP after its norm, `[n, hidden_size]`."""
        gate, up, down = self.of_mlp
        return down((self.activation(gate(hidden)) * up(hidden)).contiguous())


def few_rows_product(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Multiply as `nn.functional.linear`, `[n, in_features]`; few rows as weights times rows.

    Such a product waits for the weights to come from memory, and libraries first copy the second factor into another
    order. Measured on one core, 4 rows, weights not in its cache: 256 x 32,000 in 2.8 ms instead of 7.7, the matrices
    of a layer of width 256 in half the time; from 16 rows on there is no difference. The result may lie in memory the
    other way round.
    """
    if len(rows) > FEW_ROWS:
        return nn.functional.linear(rows, weight, bias)
    output = torch.mm(weight, rows.t()).t()
    return output if bias is None else output + bias


def few_rows_logits(head: nn.Linear, hidden: Tensor) -> Tensor:
    """Return the logits of the whole vocabulary as `lm_head.all_logits`, by `few_rows_product`."""
    return few_rows_product(hidden, head.weight, head.bias).contiguous()


class FastDecoding(CachedDecoding):
    """`CachedDecoding` whose tokens go through the layers by `TokenPass`.

    Args:
        base: Transformers model as in `CachedDecoding`, with an attention mask and a decoder that `applies_to` accepts.
        prompts: Token ids of the prompts, at least one each.
        enter: Function as in `CachedDecoding`.
    """

    def __init__(self, base: Any, prompts: Sequence[TokenIds], **enter: Any) -> None:
        super().__init__(base, prompts, takes_bias=True, **enter)
        self._pass = TokenPass(decoder_of(base))

    def _step(self, tokens: Tensor) -> None:
        self.hidden = self._enter(self._pass, tokens, self._next, self._bias(), self._cache.layers)
