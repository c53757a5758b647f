"""The checks of a shipped model at its construction, made once in a test process.

A model is compared with its own forward pass, and its update with its sampling, whenever it is made: .1 s, which the
tests would pay more than a thousand times. Tests of the checks themselves use `every_check`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pytest

from poad_sb3.distributions import sampling_check
from poad_sb3.language_model import language_model
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.pocket import SHIPPED_MODELS

_check_model, _measure = language_model.check_model, sampling_check.measure_agreement
_known: dict[Hashable, Any] = {}


def _key(lm: LanguageModel) -> Hashable:
    shapes = tuple(
        (name, tuple(parameter.shape)) for name, parameter in lm.named_parameters() if parameter.requires_grad
    )
    text = lm.base.config.get_text_config()
    of_model = (lm.source.name, lm.fingerprint, str(lm.base.dtype), text._attn_implementation, shapes)
    return (*of_model, lm.max_tokens_per_forward, lm.plain_passes, lm.packs_trees, lm.critic_trunk)


def _checked(base: Any, hidden_states: Any, vocabulary_logits: Any, name: str) -> Any:
    lm = getattr(hidden_states, "__self__", None)
    if type(lm) is not LanguageModel or name not in SHIPPED_MODELS:
        return _check_model(base, hidden_states, vocabulary_logits, name)
    key = ("model", *_key(lm))
    if key not in _known:
        _known[key] = _check_model(base, hidden_states, vocabulary_logits, name)
    return _known[key]


def _measured(lm: LanguageModel) -> sampling_check.Agreement:
    if lm.source.name not in SHIPPED_MODELS:
        return _measure(lm)
    key = ("agreement", lm.caches, *_key(lm))
    if key not in _known:
        _known[key] = _measure(lm)
    return _known[key]


@pytest.fixture(scope="session", autouse=True)
def known_checks() -> Any:
    """Remember the results of all checks of shipped models in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(language_model, "check_model", _checked)
        patch.setattr(sampling_check, "measure_agreement", _measured)
        yield


@pytest.fixture
def every_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the checks of every model, known or not."""
    monkeypatch.setattr(language_model, "check_model", _check_model)
    monkeypatch.setattr(sampling_check, "measure_agreement", _measure)
