"""`GRPOTrainer` plays Tomato Salad; run by `make test-bridges`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))


@pytest.mark.timeout(600)
def test_two_steps_of_grpo_with_smollm2(tmp_path):
    from trl_grpo import train

    trainer, tasks = train(max_steps=2, out=tmp_path, n_oracle_episodes=4)
    steps = [len(task.env.rewards) for task in tasks if task.env.rewards]
    assert steps, "no environment step in any rollout"
    assert trainer.state.global_step == 2
