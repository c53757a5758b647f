"""Weights that FSDP2 shards: hooks of the root module gather them for every pass."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

SHARDED = """
import numpy as np, torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from poad_sb3.distributions.free import generate
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.language_model.packing import TokenRow
from poad_sb3.settings.sampling import SamplingSettings

row, uniforms = TokenRow((1, 2, 3), None, (1, 2)), np.full((1, 4), 0.5)

def results(lm):
    written = generate(lm, [(1, 2, 3)], SamplingSettings(max_new_tokens=4), uniforms)[0].path.action
    logits = lm.child_logits(lm.hidden_states([row]), [(1, 2), (3,)])
    logits.sum().backward()
    return written, logits.detach()

plain = results(LanguageModel("pocket-coder"))
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
mesh, lm = init_device_mesh("cpu", (1,)), LanguageModel("pocket-coder")
for layer in lm.base.model.layers:
    fully_shard(layer, mesh=mesh, reshard_after_forward=True)
fully_shard(lm, mesh=mesh, reshard_after_forward=True)
sharded = results(lm)
assert sharded[0] == plain[0]
torch.testing.assert_close(sharded[1], plain[1])
dist.destroy_process_group()
print("same")
"""


@pytest.mark.process
@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without torch.distributed")
def test_a_sharded_model_writes_and_scores_the_same() -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if sys.platform == "linux":
        environment["GLOO_SOCKET_IFNAME"] = "lo"  # else it looks for the address of the host's name
    done = subprocess.run([sys.executable, "-c", SHARDED], env=environment, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "same\n"), done.stderr
