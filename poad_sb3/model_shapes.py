"""`ModelShape`: what the size of a decoder-only language model follows from, and the shapes of common ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from poad_sb3.arguments import nearest

__all__ = ["HEADS", "SHAPES", "Matrix", "ModelShape"]

HEADS = "heads"
"""What the attention's output matrix reads."""
_ATTENTION_INPUT, _MLP_INPUT, _PRODUCT = "attention input", "MLP input", "product"
_QKV, _GATE_UP = ("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")
_PARTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **{name: (name,) for name in (*_QKV, "o_proj", *_GATE_UP, "down_proj")},
        "qkv_proj": _QKV,  # Phi-3
        "gate_up_proj": _GATE_UP,
        "c_attn": _QKV,  # GPT-2
        "attn.c_proj": ("o_proj",),
        "c_fc": ("up_proj",),
        "mlp.c_proj": ("down_proj",),
        "dense": ("o_proj",),  # Phi
        "fc1": ("up_proj",),
        "fc2": ("down_proj",),
    }
)
"""Names that LoRA's `target_modules` have in the architectures, by what they are made of."""


class Matrix(NamedTuple):
    """One weight matrix of a layer.

    Attributes:
        inputs: Width of what it reads.
        outputs: Width of what it writes.
        reads: Which tensor it reads; matrices that read the same one share it.
    """

    inputs: int
    outputs: int
    reads: str


@dataclass(frozen=True)
class ModelShape:
    """A decoder of equal layers: attention and an MLP, each behind a norm.

    Args:
        name: For tables.
        layers: Number of layers.
        hidden: Width of the residual stream.
        intermediate: Width of the MLP.
        heads: Query heads.
        kv_heads: Key and value heads (fewer than `heads` with grouped-query attention).
        head_dim: Width of a head.
        vocabulary: Rows of the embedding, padding of the vocabulary included.
        tied_embeddings: Whether the language-model head is the embedding.
        gated: Whether the MLP has three matrices (gate, up, down) instead of two.
        layer_norm: LayerNorm, with weight and bias, instead of RMSNorm, with a weight.
        norms: Norms of a layer, over the residual stream.
        qk_norm: Whether queries and keys have an RMSNorm each, over a head.
        qkv_bias: Biases of queries, keys and values.
        output_bias: Bias of the attention's output.
        mlp_bias: Biases of the MLP.
        head_bias: Bias of the language-model head.
        positions: Rows of a learned position embedding.
        activation_tensors: Tensors of `intermediate` width that the activation function keeps for its backward pass
            (1; 4 for the `gelu_new` of GPT-2 and Phi, which transformers composes of elementary operations).
    """

    name: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied_embeddings: bool = False
    gated: bool = True
    layer_norm: bool = False
    norms: int = 2
    qk_norm: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    positions: int = 0
    activation_tensors: int = 1

    @classmethod
    def of(cls, config: Any, name: str | None = None) -> ModelShape:  # noqa: ANN401 - transformers has no types
        """The shape that a transformers config describes.

        Args:
            config: Of a model for text, or of one that has such a model inside.
            name: For tables; the config's own by default.

        Raises:
            ValueError: If the architecture is none of those known here.
        """
        text = config.get_text_config()
        family = _FAMILIES.get(text.model_type)
        if family is None:
            raise ValueError(
                f"Expected a config of an architecture whose weights are counted here; got {text.model_type!r}. "
                f"{nearest(text.model_type, _FAMILIES)} Fix: give the numbers to ModelShape(...) yourself."
            )
        heads, hidden = text.num_attention_heads, text.hidden_size
        return cls(
            name=name or getattr(config, "_name_or_path", "") or text.model_type,
            layers=text.num_hidden_layers,
            hidden=hidden,
            intermediate=getattr(text, "intermediate_size", None) or getattr(text, "n_inner", None) or 4 * hidden,
            heads=heads,
            kv_heads=getattr(text, "num_key_value_heads", None) or heads,
            head_dim=getattr(text, "head_dim", None) or hidden // heads,
            vocabulary=text.vocab_size,
            tied_embeddings=bool(config.tie_word_embeddings),
            **family(text),
        )

    # ------------------------------------------------------------------ counts

    @property
    def parameters(self) -> int:
        """Number of weights; tied ones count once."""
        head = 0 if self.tied_embeddings else self.hidden * self.vocabulary
        return self.trunk_parameters + head + (self.vocabulary if self.head_bias else 0)

    @property
    def trunk_parameters(self) -> int:
        """Number of weights without the language-model head: what hidden states are computed with."""
        embeddings = (self.vocabulary + self.positions) * self.hidden
        per_norm = self.hidden * (2 if self.layer_norm else 1)
        biases = (
            (self.heads_width + 2 * self.kv_width if self.qkv_bias else 0)
            + (self.hidden if self.output_bias else 0)
            + ((1 + self.gated) * self.intermediate + self.hidden if self.mlp_bias else 0)
        )
        others = biases + self.norms * per_norm + (2 * self.head_dim if self.qk_norm else 0)
        return embeddings + self.matrix_parameters + self.layers * others + per_norm

    @property
    def matrix_parameters(self) -> int:
        """Number of weights in the matrices of the layers: what a quantised model holds in few bits."""
        return self.layers * sum(one.inputs * one.outputs for one in map(self.matrix, self.matrices))

    @property
    def heads_width(self) -> int:
        """Width of all queries together."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Width of all keys (or values) together."""
        return self.kv_heads * self.head_dim

    # ------------------------------------------------------------------ matrices

    @property
    def matrices(self) -> tuple[str, ...]:
        """Names of the matrices of a layer, in Llama's words."""
        return (*_QKV, "o_proj", *(_GATE_UP if self.gated else ("up_proj",)), "down_proj")

    def matrix(self, name: str) -> Matrix:
        """One matrix of a layer, by its name as a target of LoRA; a fused one is the sum of its parts.

        Raises:
            ValueError: If there is none of that name.
        """
        parts = [part for part in _PARTS.get(name, ()) if part in self.matrices]
        if not parts:
            raise ValueError(
                f"Expected a matrix that the layers of {self.name} have; got {name!r}. "
                f"{nearest(name, (known for known in _PARTS if {*_PARTS[known]} <= {*self.matrices}))}"
            )
        known = {
            "q_proj": Matrix(self.hidden, self.heads_width, _ATTENTION_INPUT),
            "k_proj": Matrix(self.hidden, self.kv_width, _ATTENTION_INPUT),
            "v_proj": Matrix(self.hidden, self.kv_width, _ATTENTION_INPUT),
            "o_proj": Matrix(self.heads_width, self.hidden, HEADS),
            "gate_proj": Matrix(self.hidden, self.intermediate, _MLP_INPUT),
            "up_proj": Matrix(self.hidden, self.intermediate, _MLP_INPUT),
            "down_proj": Matrix(self.intermediate, self.hidden, _PRODUCT),
        }
        first = known[parts[0]]
        return first._replace(outputs=sum(known[part].outputs for part in parts))


# ---------------------------------------------------------------------- architectures


def _llama(config: Any) -> dict[str, Any]:  # noqa: ANN401 - as above
    bias = bool(getattr(config, "attention_bias", False))
    return {"qkv_bias": bias, "output_bias": bias, "mlp_bias": bool(getattr(config, "mlp_bias", False))}


def _gemma(config: Any) -> dict[str, Any]:  # noqa: ANN401 - as above
    return {**_llama(config), "mlp_bias": False}


_GELU_NEW = ("gelu_new", "gelu_fast", "gelu_python")


def _plain_mlp(activation: str) -> dict[str, Any]:
    biases = dict.fromkeys(("qkv_bias", "output_bias", "mlp_bias", "layer_norm"), True)
    return {**biases, "gated": False, "activation_tensors": 4 if activation in _GELU_NEW else 1}


_FAMILIES: Mapping[str, Callable[[Any], dict[str, Any]]] = MappingProxyType(
    {
        "llama": _llama,
        "granite": _llama,
        "mistral": lambda _: {},
        "qwen2": lambda _: {"qkv_bias": True},
        "qwen3": lambda config: {**_llama(config), "qk_norm": True},
        "gemma": _gemma,
        "gemma2": lambda config: {**_gemma(config), "norms": 4},
        "gemma3_text": lambda config: {**_gemma(config), "norms": 4, "qk_norm": True},
        "phi": lambda config: {
            **_plain_mlp(config.hidden_act), "norms": 1, "head_bias": True,
        },  # attention and MLP side by side, behind one norm
        "phi3": lambda _: {},
        "gpt2": lambda config: {**_plain_mlp(config.activation_function), "positions": config.n_positions},
    }
)  # fmt: skip
"""What a config does not say in numbers, by `model_type`."""


# ---------------------------------------------------------------------- common models

_ROWS = (
    # name, layers, hidden, intermediate, heads, kv_heads, head_dim, vocabulary, tied, qkv_bias
    ("Qwen2.5-0.5B", 24, 896, 4864, 14, 2, 64, 151_936, True, True),
    ("Llama-3.2-1B", 16, 2048, 8192, 32, 8, 64, 128_256, True, False),
    ("Qwen2.5-1.5B", 28, 1536, 8960, 12, 2, 128, 151_936, True, True),
    ("Qwen2.5-3B", 36, 2048, 11_008, 16, 2, 128, 151_936, True, True),
    ("Llama-2-7B", 32, 4096, 11_008, 32, 32, 128, 32_000, False, False),
    ("Qwen2.5-7B", 28, 3584, 18_944, 28, 4, 128, 152_064, False, True),
    ("Llama-3-8B", 32, 4096, 14_336, 32, 8, 128, 128_256, False, False),
    ("Llama-2-13B", 40, 5120, 13_824, 40, 40, 128, 32_000, False, False),
    ("Qwen2.5-32B", 64, 5120, 27_648, 40, 8, 128, 152_064, False, True),
    ("Llama-3-70B", 80, 8192, 28_672, 64, 8, 128, 128_256, False, False),
)
SHAPES: Mapping[str, ModelShape] = MappingProxyType(
    {row[0]: ModelShape(*row[:9], qkv_bias=row[9]) for row in _ROWS}  # numbers of the published config.json
)
"""Common models, from small to large."""
