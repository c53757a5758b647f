"""Trainable parameters: a LoRA adapter on a frozen base, or all weights."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners import lora
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils import AuxiliaryTrainingWrapper
from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from poad_sb3.errors import ModelError
from poad_sb3.settings.model import DEFAULT_LORA

_PAPERS_TARGETS = ("q_proj", "v_proj")
_TARGETS = {
    "cpmant": ["project_q", "project_v"],
    "deepseek_v4": ["q_b_proj", "kv_proj"],
    "falcon_mamba": ["in_proj", "x_proj"],
    "longcat_flash": ["q_b_proj", "kv_b_proj"],
    "mamba": ["in_proj", "x_proj"],
    "mamba2": ["in_proj"],
}
"""Target modules of architectures that read the weight of another linear layer past an adapter, or have grouped
layers."""
_ADAPTED = (BaseTunerLayer, AuxiliaryTrainingWrapper)
"""Modules that PEFT puts around layers; `model.load_adapter` of transformers does so without a `PeftModel`."""


def adapt(base: Any, lora: Mapping[str, Any] | None) -> Any:
    """Return the base with an adapter around it, or the base itself with all weights trainable.

    Args:
        base: Transformers model.
        lora: Arguments of `peft.LoraConfig` laid over `DEFAULT_LORA`; None for full fine-tuning.

    Raises:
        ModelError: If the adapter does not fit, or full fine-tuning would go wrong in silence.
    """
    if isinstance(base, PeftModel) or any(isinstance(module, _ADAPTED) for module in base.modules()):
        raise ModelError(
            f"Expected a base model without an adapter; got {type(base).__name__} with one. Fix: merge it first "
            "(merge_and_unload() of peft, `poad export --merge`), and let lora= describe the one to train."
        )
    if lora is None:
        _check_full(base)
        return base.requires_grad_(True)
    settings = {**DEFAULT_LORA, **lora}
    if settings["lora_dropout"]:
        raise ModelError(
            f"Expected lora_dropout 0; got {settings['lora_dropout']}. Fix: leave it out. Dropout would make the "
            "update see another distribution than the one that was sampled from (|log ratio| 0.03 before any step)."
        )
    settings.setdefault("target_modules", _default_targets(base))
    if _are_conv1d(base, settings["target_modules"]):
        settings.setdefault("fan_in_fan_out", True)  # GPT-2 keeps its weights transposed
    try:
        with warnings.catch_warnings():
            # peft 0.21 reads an attribute that transformers 5 deprecates; users cannot change that.
            warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", category=FutureWarning)
            if not {"rank_pattern", "alpha_pattern"} & set(settings):  # peft's own, for experts without an adapter
                warnings.filterwarnings("ignore", message="The following (rank|alpha)_pattern keys did not match")
            network = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", **settings))
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"Expected arguments of peft.LoraConfig that fit {type(base).__name__}; got {settings} "
            f"({str(error)[:300]}). Fix: target_modules that this architecture has, and arguments by peft's own names."
        ) from error

    rounded = [
        name
        for name, parameter in network.named_parameters()
        if parameter.requires_grad and parameter.dtype != torch.float32
    ]
    if rounded:
        raise ModelError(
            f"Expected trained weights in float32; {rounded[0]} and {len(rounded) - 1} more are not, and small steps "
            "would be rounded away. Fix: dtype='float32', or no modules_to_save."
        )
    for first, second in _tied_layers(network):
        second.lora_A, second.lora_B = first.lora_A, first.lora_B
    return network


def _tied_layers(network: Any) -> Iterator[tuple[Any, Any]]:
    """Yield pairs of adapted layers on one base weight, as in Zamba2: the first on each weight, and another one.

    They get one adapter: two could not be merged into one weight.
    """
    first: dict[int, Any] = {}
    for layer in network.modules():
        if type(layer) is lora.Linear:
            owner = first.setdefault(id(layer.get_base_layer().weight), layer)
            if owner is not layer:
                yield owner, layer


def _check_full(base: Any) -> None:
    if is_quantized(base):
        raise ModelError("Expected an adapter on a quantised base; got lora=None. Fix: leave lora out (QLoRA).")
    if base.dtype != torch.float32:
        raise ModelError(
            f"Expected dtype='float32' with lora=None; got {base.dtype}, in which small steps of the optimiser are "
            "rounded away. Fix: dtype='float32', or an adapter."
        )


def _default_targets(base: Any) -> list[str] | str:
    """Return the target modules: q_proj and v_proj, peft's choice for the architecture, or every linear layer."""
    leaves = {name.rpartition(".")[2] for name, _ in base.named_modules()}
    if leaves.issuperset(_PAPERS_TARGETS):
        return list(_PAPERS_TARGETS)
    targets = TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING.get(base.config.model_type)
    if targets is not None and not isinstance(targets, str) and leaves.issuperset(targets):
        return list(targets)
    return _TARGETS.get(base.config.model_type, "all-linear")


def _are_conv1d(base: Any, targets: Any) -> bool:
    names = {name.rpartition(".")[2] for name, module in base.named_modules() if isinstance(module, Conv1D)}
    return bool(names) and (
        targets == "all-linear" or not names.isdisjoint([targets] if isinstance(targets, str) else targets)
    )


def is_quantized(base: Any) -> bool:
    """Return whether the base weights are held in 8 or 4 bits."""
    return getattr(base, "hf_quantizer", None) is not None


def float32_copy(network: PeftModel) -> PeftModel:
    """Return a copy of the model in the CPU's memory, in float32: there base and adapter add up without rounding."""
    # deepcopy would copy on the model's own device, where there may be no room for a second one.
    copies: dict[int, Any] = {
        id(parameter): nn.Parameter(_on_cpu(parameter), requires_grad=False) for parameter in network.parameters()
    }
    copies |= {id(buffer): _on_cpu(buffer) for buffer in network.buffers()}
    copied = copy.deepcopy(network, copies)
    if copied.get_base_model().config._attn_implementation not in (None, "eager", "sdpa"):
        copied.get_base_model().set_attn_implementation("eager")  # other implementations need a GPU, or 16 bits
    return copied


def merge(network: PeftModel) -> Any:
    """Merge the adapter into the weights of the base model, and return that.

    Raises:
        ValueError: If peft cannot merge the adapter.
        RuntimeError: If peft cannot merge the adapter.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="All adapters are already merged")
        for _, second in _tied_layers(network):  # the weight gets the adapter by the first
            second.merged_adapters = list(second.active_adapters)
        return network.merge_and_unload(safe_merge=True)


def _on_cpu(tensor: Tensor) -> Tensor:
    dtype = torch.float32 if tensor.is_floating_point() else tensor.dtype
    return tensor.detach().to("cpu", dtype, copy=True)
