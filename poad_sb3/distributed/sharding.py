"""Sharding of weights over the ranks (FSDP2), and whole tensors for checkpoints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

__all__ = ["like", "shard", "whole"]


def shard(root: nn.Module, layers: Iterable[nn.Module], device: torch.device | str) -> None:
    """Divide the weights of a model among the ranks, each layer for itself, so that one at a time is whole.

    Gradients of the ranks are added up (FSDP2's own default is their mean): every rank has its part of one loss.

    Args:
        root: Module whose `forward` every pass enters through.
        layers: Modules of the root whose weights are gathered one module at a time.
        device: Device of the parts; the root may be in the memory of the host before.
    """
    mesh = init_device_mesh(torch.device(device).type, (dist.get_world_size(),))
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(root, mesh=mesh)
    for module in root.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # gloo has no other


def whole(state: Any, *, keep: bool = True) -> Any:
    """Return nested state with sharded tensors as whole ones on the host, or as None; every rank has to call it.

    Args:
        state: State of modules and optimizers.
        keep: Whether to keep the result; False for ranks that only take part, as whole weights and moments are three
            times the model.
    """
    if isinstance(state, DTensor):
        tensor = state.full_tensor()
        return tensor.detach().cpu() if keep else None
    if isinstance(state, dict):
        return {name: whole(value, keep=keep) for name, value in state.items()}
    return [whole(value, keep=keep) for value in state] if isinstance(state, list) else state


def like(tensor: Tensor, reference: Tensor) -> Tensor:
    """Return a whole tensor in the form of another of its shape: only this rank's part if that one is sharded."""
    if not isinstance(reference, DTensor) or isinstance(tensor, DTensor) or tensor.shape != reference.shape:
        return tensor
    return distribute_tensor(
        tensor.to(reference.device, reference.dtype), reference.device_mesh, reference.placements, src_data_rank=None
    )
