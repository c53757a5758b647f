"""Jobs and their pieces."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from studies_users import job, result

import poad_sb3
from benchmarks.studies.engine import jobs, training
from benchmarks.studies.engine.jobs import Evaluation
from benchmarks.studies.engine.pieces import Pieces
from poad_sb3.common.hyperparameters import preset
from poad_sb3.settings import ModelSettings
from poad_sb3.settings.arguments import PRIVATE, known_arguments

CHANGES: tuple[dict[str, Any], ...] = (
    {"seed": 1},
    {"arguments": {"learning_rate": 1e-3, "gamma": 0.9}},
    {"evaluation": Evaluation(every=128, episodes=2, rollout=True, script=("a",))},
)


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_another_setting_is_another_piece(changes: dict[str, Any], tmp_path: Path) -> None:
    pieces = Pieces(tmp_path)
    pieces.put(job(), result(), {})
    assert pieces.find(job(**changes)) is None
    assert pieces.find(job()) == result()


def test_a_job_names_the_weights_of_its_own_model() -> None:
    assert job().settings["model"] == jobs.checksum("pocket")
    for model in ("pocket", "pocket-char"):
        assert job(arguments={"policy_kwargs": {"model": model}}).settings["model"] == jobs.checksum(model)


@pytest.mark.parametrize("torn", ["", '{"settings": {}}', "[]", "[" * 100_000], ids=lambda torn: f"{torn!r:.20}")
def test_a_torn_piece_is_none_and_is_written_again(torn: str, tmp_path: Path) -> None:
    pieces = Pieces(tmp_path)
    pieces.path(job().name).write_text(torn)
    assert pieces.find(job()) is None
    pieces.put(job(), result(), {})
    assert pieces.find(job()) == result()
    assert [path.name for path in tmp_path.iterdir()] == [f"{job().name}.json"]


def test_a_piece_under_the_name_of_another_is_none(tmp_path: Path) -> None:
    pieces = Pieces(tmp_path)
    pieces.put(job(1), result(), {}).rename(pieces.path(job(2).name))
    assert pieces.find(job(2)) is None


def test_what_is_not_finite_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        Pieces(tmp_path).put(job(), result(float("nan")), {})
    assert not list(tmp_path.iterdir())


SILENT: dict[str, Any] = {
    "critic": "token",
    "gamma_token": 1.0, "normalize_advantage": True, "credit_level": "token", "bootstrap": "state", "paper_mode": False,
    "candidate_normalization": "word", "max_new_tokens": 128, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "stop": (),
    "smdp_discount": False, "normalize_value": False, "kl_coef": 0.0, "n_episodes": None, "critic_trunk": "frozen",
    "critic_arch": (1024, 512), "prompt": "auto", "dtype": "float32", "quantization": None,
    "lora": {"r": 8, "lora_alpha": 16, "lora_dropout": 0.0, "bias": "none"}, "EVALUATION_SEED": 10_000,
    "estimator": "gae", "baseline": "none", "leave_one_out": False, "advantage_scale": "none", "omega": 1.0,
    "group_size": 1, "state_key": None, "drop_truncated": False, "critic_first": True, "ratio": None,
    "clip_range_high": None, "dual_clip": None, "cispo_cap": None, "loss_reduction": "mean",
    "critic_whitening": True, "critic_init": "zero", "fsdp": False, "generation_endpoint": None,
    "generation_requests": 16, "max_thought_tokens": 32, "thought_marks": ("<think>", "</think>"),
    "gamma_thought": None, "gae_lambda_thought": None, "gae_alpha_thought": None, "thought_penalty": 0.0,
    "thought_loss_coef": 1.0, "keep_thoughts": False,
}  # fmt: skip


OF_GROUPS = {"normalize_advantage": False, "estimator": "episode_return", "baseline": "group"}
OTHERS = {
    "NTPO": {"gamma_token": None},
    "TWOSOME": {"credit_level": "action"},
    "GRPO": {**OF_GROUPS, "ratio": "token", "loss_reduction": "sequence_mean", "advantage_scale": "cell"},
    "RLOO": {**OF_GROUPS, "ratio": "sequence_product", "leave_one_out": True},
    "TurnPPO": {"credit_level": "action"},
}
"""Those of other methods, where they are not POAD's."""


@pytest.mark.parametrize("algorithm", OTHERS)
def test_defaults_of_other_methods_that_no_piece_names(algorithm: str) -> None:
    named = preset("pocket/virtualhome", algorithm, n_envs=1)
    defaults = {
        name: value
        for name, value in known_arguments(getattr(poad_sb3, algorithm)).items()
        if name in SILENT and name not in named
    }
    assert defaults == {name: {**SILENT, **OTHERS[algorithm]}[name] for name in defaults}


def test_defaults_that_no_piece_names_are_those_they_were_made_with() -> None:
    """One that changes makes the committed pieces those of another method: raise `_FORMAT` in jobs.py with it."""
    defaults = {name: parameter.default for name, parameter in inspect.signature(poad_sb3.POAD).parameters.items()}
    defaults |= ModelSettings.defaults()
    defaults["EVALUATION_SEED"] = training.EVALUATION_SEED
    assert {name: defaults[name] for name in SILENT} == SILENT
    named = {*preset("pocket/virtualhome", "POAD"), "action_sampling", "micro_batches"}
    nothing_to_learning = {"stats_window_size", "tensorboard_log", "verbose", "seed", "device", *PRIVATE}
    of_loading = {"use_sde", "model", "revision", "attn_implementation", "gradient_checkpointing", "check"}
    speed = {"max_tokens_per_forward"}
    others = {"policy", "env", "policy_kwargs"}
    known = {*SILENT, *named, *nothing_to_learning, *of_loading, *speed, *others}
    assert defaults.keys() <= known, f"say here what {sorted(defaults.keys() - known)} is to studies"
