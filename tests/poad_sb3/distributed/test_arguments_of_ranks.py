"""Arguments that ranks refuse, and the bound that rank 0 judges for all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from toy import Collector, make_agent, moved, randomise, run_update, weights_of

from poad_sb3 import POAD
from poad_sb3.distributed import Ranks
from poad_sb3.errors import ModelError
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.settings import ModelSettings, PPOSettings

T = TypeVar("T")


def test_sharded_weights_cannot_be_quantised(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="Expected fsdp=True without quantization"):
        ModelSettings(fsdp=True, quantization="8bit")
    monkeypatch.setattr("poad_sb3.distributed.ranks._current", Ranks(1, 2))
    monkeypatch.setattr("poad_sb3.language_model.language_model.is_quantized", lambda _: True)
    with pytest.raises(ModelError, match="Expected weights that are not quantised for fsdp=True"):
        LanguageModel("pocket").shard("cpu")


def test_one_gpu_for_all_ranks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poad_sb3.distributed.ranks._current", Ranks(1, 2))
    with pytest.raises(ValueError, match=r"Expected a device without an index for 2 ranks.*got 'cuda:0'. Fix: device="):
        POAD("LLMPolicy", "MultiKey-v0", device="cuda:0")


@pytest.mark.parametrize("decision", [True, False])
def test_rank_0_judges_the_kl_bound(monkeypatch: pytest.MonkeyPatch, decision: bool) -> None:
    agent = make_agent(Collector)
    randomise(agent.policy)
    agent.learn(agent.n_steps * agent.n_envs)

    class Second(Ranks):
        def on_rank_zero(self, name: str, run: Callable[[], T]) -> Any:
            assert name == "the KL bound"
            return decision

    monkeypatch.setattr("poad_sb3.distributed.ranks._current", Second())
    before = weights_of(agent.policy)
    settings = replace(PPOSettings(), n_epochs=1, target_kl=1e9 if not decision else 1e-9, batch_size=10**6)
    run_update(agent, settings)
    assert any("lora" in name for name in moved(agent.policy, before)) == decision
