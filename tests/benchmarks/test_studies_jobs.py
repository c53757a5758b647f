"""Jobs and their pieces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from studies_users import job, result

from benchmarks.studies import jobs
from benchmarks.studies.jobs import Evaluation
from benchmarks.studies.pieces import Pieces

CHANGES: tuple[dict[str, Any], ...] = (
    {"algorithm": "NTPO"},
    {"env_id": "KeyToken-v1"},
    {"steps": 256},
    {"seed": 1},
    {"arguments": {"learning_rate": 2e-3}},
    {"arguments": {"learning_rate": 1e-3, "gamma": 0.9}},
    {"env_kwargs": {"horizon": 2}},
    {"evaluation": Evaluation(every=64, episodes=2)},
    {"evaluation": Evaluation(every=128, episodes=3)},
    {"evaluation": Evaluation(every=128, episodes=2, tests=("KeyToken-v0",), test_episodes=1)},
    {"evaluation": Evaluation(every=128, episodes=2, rollout=True)},
    {"evaluation": Evaluation(every=128, episodes=2, rollout=True, script=("a",))},
)


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_another_setting_is_another_piece(changes: dict[str, Any], tmp_path: Path) -> None:
    pieces = Pieces(tmp_path)
    pieces.put(job(), result(), {})
    assert pieces.find(job(**changes)) is None
    assert pieces.find(job()) == result()


def test_another_base_model_is_another_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Pieces(tmp_path).put(job(), result(), {})
    monkeypatch.setattr(jobs, "_model", lambda: "pocket trained anew")
    assert Pieces(tmp_path).find(job()) is None


def test_the_order_of_arguments_is_no_setting() -> None:
    one, other = ({"gamma": 0.9, "learning_rate": 1.0}, {"learning_rate": 1.0, "gamma": 0.9})
    assert job(arguments=one).name == job(arguments=other).name


def test_names_tell_task_method_steps_and_seed() -> None:
    assert job(seed=7, env_id="my.module:Overcooked-TomatoSalad-v0").name.startswith(
        "overcooked-tomatosalad_poad_128_7_"
    )


@pytest.mark.parametrize("torn", ["", "{", '{"settings": {}}', "[]", "\0\0\0"], ids=repr)
def test_a_torn_piece_is_none_and_is_written_again(torn: str, tmp_path: Path) -> None:
    pieces = Pieces(tmp_path)
    pieces.path(job()).write_text(torn)
    assert pieces.find(job()) is None
    pieces.put(job(), result(), {})
    assert pieces.find(job()) == result()
    assert [one.name for one in tmp_path.iterdir()] == [f"{job().name}.json"]


def test_a_piece_cut_anywhere_is_none(tmp_path: Path) -> None:
    path = Pieces(tmp_path).put(job(), result(), {})
    whole = path.read_bytes()
    for end in range(0, len(whole) - 2, 37):
        path.write_bytes(whole[:end])
        assert Pieces(tmp_path).find(job()) is None


def test_a_piece_under_the_name_of_another_is_none(tmp_path: Path) -> None:
    pieces = Pieces(tmp_path)
    pieces.put(job(1), result(), {}).rename(pieces.path(job(2)))
    assert pieces.find(job(2)) is None


def test_what_is_not_finite_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        Pieces(tmp_path).put(job(), result(float("nan")), {})
    assert not list(tmp_path.iterdir())
