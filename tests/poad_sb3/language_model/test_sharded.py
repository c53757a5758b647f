"""Weights that FSDP2 shards: hooks of the root module gather them for every pass."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from poad_sb3.distributions.free import generate
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.language_model.packing import TokenRow
from poad_sb3.settings.sampling import SamplingSettings

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without torch.distributed")


@pytest.fixture
def one_rank(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make this process a process group of its own, without a port."""
    from torch import distributed

    if sys.platform == "linux":
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")  # else it looks for the address of the host's name
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def _results(lm: LanguageModel) -> tuple[tuple[int, ...], torch.Tensor]:
    """Return generated tokens, and logits after a backward pass."""
    row, uniforms = TokenRow((1, 2, 3), None, (1, 2)), np.full((1, 4), 0.5)
    written = generate(lm, [(1, 2, 3)], SamplingSettings(max_new_tokens=4), uniforms)[0].path.action
    logits = lm.child_logits(lm.hidden_states([row]), [(1, 2), (3,)])
    logits.sum().backward()
    return written, logits.detach()


@pytest.mark.usefixtures("one_rank")
def test_a_sharded_model_writes_and_scores_the_same() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    plain = _results(LanguageModel("pocket-coder"))
    mesh, lm = init_device_mesh("cpu", (1,)), LanguageModel("pocket-coder")
    for layer in lm.base.model.layers:
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)
    fully_shard(lm, mesh=mesh, reshard_after_forward=True)
    written, logits = _results(lm)
    assert written == plain[0]
    torch.testing.assert_close(logits, plain[1])
