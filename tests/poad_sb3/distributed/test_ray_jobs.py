"""Jobs of studies on a Ray cluster that loses a node, and a search on one that is interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
from ray_nodes import SimulatedCluster
from ray_users import alive, until
from studies_users import LOG
from typer.testing import CliRunner

from poad_sb3.cli.app import app

ROOT = Path(__file__).parents[3]
SUPPORT = ROOT / "tests" / "support"
TUNE = ["tune", "ray_users:RayUsers/HeldLamps-v0", "--steps", "16", "--episodes", "1", "--set", "n_steps=16"]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"):  # of the cluster of other rows
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (ROOT, SUPPORT))))


STUDY = """
import os, sys, threading
from pathlib import Path
from ray_nodes import SimulatedCluster
from ray_users import until
from studies_users import LOG, HeldJob, KilledJob, job
from benchmarks.errors import JobFailedError
from benchmarks.studies.engine.pieces import COST, Pieces
from benchmarks.studies.engine.pool import work
from poad_sb3.distributed import job_executor
from poad_sb3.errors import WorkerError

job_executor._RETRIES = 1  # an actor takes long to start

def study():
    log, pieces = Path(os.environ[LOG]), Pieces(Path("pieces"))
    jobs = [job(0, HeldJob), job(1, HeldJob)]

    with SimulatedCluster() as cluster:
        import ray  # after the cluster, which sets where Ray listens

        def lose():
            until(lambda: log.exists() and len(log.read_text().splitlines()) == 2)
            cluster.lose_second(replace=False)
            until(lambda: sum(node["Alive"] for node in ray.nodes()) == 1, 120)  # its worker may outlive it
            Path(f"{log}.go").touch()

        threading.Thread(target=lose).start()
        ended, on_ray = [], {"n_workers": 2, "ray": cluster.address}
        watch = lambda job, error: ended.append((type(job).__name__, error is None))
        try:
            work(lambda: [*jobs, job(2, KilledJob)], pieces, {"commit": "c"}, **on_ray, watch=watch)
        except JobFailedError as error:
            assert "it was lost 2 times" in str(error), error
        assert sorted(ended) == [("HeldJob", True)] * 2 + [("KilledJob", False)], ended
        try:
            work(lambda: [job(3)], pieces, {}, **on_ray)
            raise AssertionError("there is room for one")
        except WorkerError as error:
            assert "Expected room for 2 workers" in str(error), error
        ray.shutdown()
    begun = log.read_text().splitlines()
    assert len(begun) == 3, begun
    assert {*begun} == {job.name for job in jobs}, "that of the lost node began again, the other once"
    assert [pieces.find(job)["threads"] for job in jobs] == [1, 1]
    measured = pieces.read(jobs[0].name)["measured"]
    assert measured["commit"] == "c" and measured["threads"] == 1 and measured[COST] > 0, measured
    assert work(lambda: jobs, pieces, {}) == (0, True), "without Ray"

if __name__ == "__main__":  # for processes that are spawned
    study()
"""


@pytest.mark.process
@pytest.mark.timeout(500)
def test_a_job_of_a_lost_node_begins_again_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LOG, str(tmp_path / "log"))
    file = tmp_path / "driver.py"
    file.write_text(f"{STUDY}\n")
    ended = subprocess.run([sys.executable, str(file)], cwd=tmp_path, capture_output=True, text=True, timeout=480)
    assert ended.returncode == 0, ended.stderr[-3000:]


@pytest.mark.process
@pytest.mark.timeout(500)
@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_search_ends_its_actors_and_goes_on_without_ray(tmp_path: Path) -> None:
    def actors() -> set[int]:
        return {int(path.name.partition("-")[0]) for path in tmp_path.glob("[0-9]*-*")}

    options = [*TUNE, "--env-set", f"folder={tmp_path}", "--out", str(tmp_path), "--trials", "2"]
    with SimulatedCluster() as cluster, (tmp_path / "errors").open("w") as errors:
        command = [sys.executable, "-m", "poad_sb3.cli", *options, "--workers", "2", "--ray", cluster.address]
        process = subprocess.Popen(command, stderr=errors)
        try:
            until(lambda: len(actors()) == 2 or process.poll() is not None, 240)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130, (tmp_path / "errors").read_text()
        finally:
            process.kill()
            process.wait()
        assert "interrupted; the same command continues" in (tmp_path / "errors").read_text()
        until(lambda: not alive(actors()))
    (tmp_path / "go").touch()
    assert CliRunner().invoke(app, options).exit_code == 0
    trials = optuna.load_study(study_name="poad", storage=f"sqlite:///{tmp_path}/trials.db").get_trials()
    assert [trial.state.name for trial in trials] == ["FAIL", "FAIL", "COMPLETE", "COMPLETE"]
    tried = [frozenset(trial.params.items()) for trial in trials]
    assert {*tried[:2]} == {*tried[2:]}, "the same again"
