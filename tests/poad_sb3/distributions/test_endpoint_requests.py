"""The number of requests that a server of completions gets at a time."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from toy import make_agent

from benchmarks.performance.mismatch import flat_model
from poad_sb3.common.hyperparameters import require_effects
from poad_sb3.distributions.base import ScoreCache
from poad_sb3.distributions.endpoint import Completion, TokenServer
from poad_sb3.errors import PresetError
from poad_sb3.prompts import Question


@pytest.mark.parametrize("n_requests", [1, 3])
def test_requests_at_a_time(n_requests: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, now, most = threading.Lock(), 0, 0

    def complete(*_: Any, **__: Any) -> Completion:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.2)
        with lock:
            now -= 1
        return Completion((5,), (-1.0,))

    monkeypatch.setattr(TokenServer, "complete", complete)
    monkeypatch.setattr(TokenServer, "load_adapter", lambda *_: None)
    model = make_agent(
        action_sampling="free",
        generation_endpoint="http://h/v1",
        generation_requests=n_requests,
        policy_kwargs={"model": flat_model, "critic_arch": (8,)},
    )
    rngs = [np.random.default_rng(seed) for seed in range(9)]
    model.policy.distribution.sample([Question("The lamp is red.", ("wait",))] * 9, rngs, ScoreCache(()))
    assert most == n_requests


def test_requests_without_a_server_have_no_effect() -> None:
    with pytest.raises(PresetError, match="generation_requests has none"):
        require_effects(make_agent(action_sampling="free"), ["generation_requests"])
