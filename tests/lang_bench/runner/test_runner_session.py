"""Plans into files: the written records, and resuming a file."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lang_bench.runner import plan as plan_module
from lang_bench.runner.errors import AgentFailedError, BenchmarkError, FileBusyError, ResultFileError
from lang_bench.runner.lines import LineFile, read_lines
from lang_bench.runner.plan import Plan
from lang_bench.runner.players import Workers
from lang_bench.runner.session import Done, measure
from lang_envs.report.results import steps_file
from poad_sb3.distributed.ray_cluster import RayConnection

KEYS, KITCHEN = "KeyToken-v0", "Overcooked-TomatoSalad-v0"


@pytest.fixture(autouse=True)
def _users_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "support"))


def _plan(agent: str = "runner_users:Valued", **changes: Any) -> Plan:
    return Plan(**{"agent": agent, "envs": (KEYS,), "episodes": 3, "seeds": 2, "steps": True, **changes})


def _records(path: Path) -> list[dict[str, Any]]:
    return [line.record for line in read_lines(path)]


@pytest.fixture
def undisturbed(tmp_path: Path) -> Path:
    """A whole file, and that of its steps."""
    path = tmp_path / "undisturbed.jsonl"
    assert measure(_plan(), path) == Done(path, 0, 6, pytest.approx(0, abs=60))
    return path


# ---------------------------------------------------------------------- written records


def test_every_episode_has_a_line_in_the_order_of_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    measure(_plan(envs=(KITCHEN, KEYS), first_seed=3), path)
    header, *episodes = _records(path)
    keys = [(one["env"], one["seed"], one["episode"]) for one in episodes]
    assert keys == [(env, seed, episode) for env in (KITCHEN, KEYS) for seed in (3, 4) for episode in range(3)]
    agent = header["agent"]
    assert (agent["name"], agent["spec"], agent["settings"]["temper"]) == ("valued", "runner_users:Valued", "calm")
    assert [env["discount"] for env in header["envs"]] == [0.99, 1.0]
    assert header["versions"]["gymnasium"]
    assert len({episode["reset_seed"] for episode in episodes}) == 12


def test_the_lines_of_an_episode_are_those_of_its_steps(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    measure(_plan(envs=(KITCHEN,), episodes=2, seeds=1), path)
    steps = _records(steps_file(path))[1:]
    for episode in _records(path)[1:]:
        of_episode = [step for step in steps if step["episode"] == episode["episode"]]
        assert [step["step"] for step in of_episode] == list(range(episode["steps"]))
        assert episode["return"] == pytest.approx(sum(step["reward"] for step in of_episode))
        clock, discounted = 0, 0.0
        for step in of_episode:
            discounted += 0.99**clock * step["reward"]
            clock += step["moves"]
        assert episode["discounted_return"] == pytest.approx(discounted)
        assert clock == episode["moves"] > episode["steps"]
        assert episode["requests"] == episode["steps"]
        assert episode["cost"] == 0.25 * episode["steps"]
        assert episode["completion_tokens"] == sum(len(step["tokens"]) for step in of_episode)
        assert ("final_observation" in of_episode[-1], "final_observation" in of_episode[0]) == (True, False)
        assert all(step["action"] in step["admissible_actions"] for step in of_episode)
        assert {len(row) for row in of_episode[0]["advantages"].values()} == {len(of_episode[0]["tokens"])}
        assert set(of_episode[0]["advantages"]) == {"POAD", "NTPO", "TWOSOME"}


def test_families_add_what_matters_in_them(tmp_path: Path) -> None:
    ids = ("VirtualHome-FoodPreparation-v0", KEYS, "DataSciCoding-iris-v0")
    measure(_plan("oracle", envs=ids, episodes=1, seeds=1, steps=False), tmp_path / "o.jsonl")
    home, keys, coding = _records(tmp_path / "o.jsonl")[1:]
    assert home["refused_share"] == 0.0
    assert keys["key_share"] == 1.0
    assert (coding["ran_share"], coding["data"]) == (1.0, "real")
    assert coding["best_score"] == coding["return"] > 0.9
    assert not steps_file(tmp_path / "o.jsonl").exists()


@pytest.mark.parametrize("where", list(Workers))
def test_workers_write_the_same_file(where: Workers, undisturbed: Path, tmp_path: Path) -> None:
    path = tmp_path / "workers.jsonl"
    measure(_plan(), path, n_workers=2, workers=where)
    assert path.read_bytes() == undisturbed.read_bytes()
    assert steps_file(path).read_bytes() == steps_file(undisturbed).read_bytes()


@pytest.mark.process
def test_actors_of_ray_write_the_same_file(undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MENDED", str(tmp_path / "mended"))
    path = tmp_path / "actors.jsonl"
    with closing(RayConnection()):  # one cluster for both
        measure(_plan(), path, n_workers=2, ray="local")
        with pytest.raises(AgentFailedError, match="to be played to its end; got"):
            measure(_plan("runner_users:Fails"), tmp_path / "fails.jsonl", n_workers=1, ray="local")
    assert path.read_bytes() == undisturbed.read_bytes()
    assert steps_file(path).read_bytes() == steps_file(undisturbed).read_bytes()


@pytest.mark.parametrize(("n_workers", "where"), [(1, Workers.THREADS), (2, Workers.THREADS)])
def test_agents_are_closed(n_workers: int, where: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marks = tmp_path / "closed"
    monkeypatch.setenv("CLOSED", str(marks))
    measure(_plan("runner_users:Closes"), tmp_path / "c.jsonl", n_workers=n_workers, workers=where)
    made_here = 1  # to ask it its name
    assert len(marks.read_text()) in range(made_here, made_here + n_workers + 1)
    assert len(marks.read_text()) > made_here or n_workers == 1


def test_every_seed_may_have_an_agent_of_its_own(tmp_path: Path) -> None:
    plan = _plan(agent_settings={"temper": "mood {seed}"}, label="moody")
    measure(plan, tmp_path / "s.jsonl")
    agent = _records(tmp_path / "s.jsonl")[0]["agent"]
    assert agent["name"] == "moody"
    assert {seed: own["temper"] for seed, own in agent["settings_by_seed"].items()} == {"0": "mood 0", "1": "mood 1"}


# ---------------------------------------------------------------------- going on


@pytest.mark.parametrize(("share", "behind"), [(0.0, 0), (0.02, 1), (0.52, 333), (0.999, 1)])
def test_wherever_a_kill_cuts_the_files_they_become_the_same(
    share: float, behind: int, undisturbed: Path, tmp_path: Path
) -> None:
    """Steps are written before the line of their episode: their file is as far, or some bytes further."""
    whole, whole_steps = undisturbed.read_bytes(), steps_file(undisturbed).read_bytes()
    kept = whole[: int(share * len(whole))]
    n_episodes = max(kept.count(b"\n") - 1, 0)
    episodes = _records(undisturbed)[1:]
    n_lines = sum(one["steps"] for one in episodes[:n_episodes]) + 1 if kept.count(b"\n") else 0
    end = sum(len(line) for line in whole_steps.splitlines(keepends=True)[:n_lines])
    path = tmp_path / "cut.jsonl"
    path.write_bytes(kept)
    steps_file(path).write_bytes(whole_steps[: end + behind])
    done = measure(_plan(), path)
    assert done.found == n_episodes
    assert path.read_bytes() == whole
    assert steps_file(path).read_bytes() == whole_steps


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"agent_settings": {"temper": "hot"}}, r"agent\.settings\.temper: expected 'calm', got 'hot'"),
        ({"seeds": 3}, r"seeds: expected \[0, 1\], got \[0, 1, 2\]"),
        ({"env_settings": {"horizon": 2}}, "env_settings.horizon: expected 'nothing', got 2"),
        ({"steps": False}, "steps: expected True, got False"),
    ],
)
def test_another_measurement_does_not_go_into_the_file(changes: dict[str, Any], told: str, undisturbed: Path) -> None:
    before = undisturbed.read_bytes()
    with pytest.raises(ResultFileError, match=f"(?s)holds another measurement.*{told}.*Fix: "):
        measure(_plan(**changes), undisturbed)
    assert undisturbed.read_bytes() == before


def test_what_is_incidental_to_an_agent_may_change(undisturbed: Path) -> None:
    before = undisturbed.read_bytes()
    assert measure(_plan(agent_settings={"seconds": 0.001}), undisturbed).found == 6
    assert undisturbed.read_bytes() == before
    with pytest.raises(ResultFileError) as refused:
        measure(_plan(agent_settings={"temper": "wild"}), undisturbed)
    assert str(refused.value).count("temper") == 1


def test_a_file_without_episodes_is_begun_anew_by_anything(undisturbed: Path, tmp_path: Path) -> None:
    path = tmp_path / "begun.jsonl"
    for file in (Path, steps_file):
        file(path).write_bytes(file(undisturbed).read_bytes().splitlines(keepends=True)[0])
    assert measure(_plan(episodes=1, agent_settings={"temper": "wild"}), path).played == 2
    assert _records(path)[0]["agent"]["settings"]["temper"] == "wild"
    assert len(_records(steps_file(path))) > 2


def test_other_versions_are_another_measurement_and_other_hardware_is_not(
    undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = plan_module.describe_machine()
    elsewhere = {"cpu": "abacus", "cpu_capability": "BEADS", "threads": 7, "command": "by hand", "commit": "0123"}
    monkeypatch.setattr(plan_module, "describe_machine", lambda: {**known, **elsewhere})
    assert measure(_plan(), undisturbed).found == 6
    monkeypatch.setattr(
        plan_module, "describe_machine", lambda: {**known, "versions": {**known["versions"], "numpy": "0.1"}}
    )
    with pytest.raises(ResultFileError, match=r"versions\.numpy: expected .* got '0\.1'"):
        measure(_plan(), undisturbed)
    other = {name: one for name, one in known.items() if name != "threads"} | {
        "versions": {**known["versions"], "peft": "0.1"}
    }
    monkeypatch.setattr(plan_module, "describe_machine", lambda: other)
    assert measure(_plan(), undisturbed).found == 6, "where torch is not loaded, peft is not used"
    monkeypatch.setattr(plan_module, "describe_machine", lambda: {**other, "threads": 1})
    with pytest.raises(ResultFileError, match=r"versions\.peft: expected .* got '0\.1'"):
        measure(_plan(), undisturbed)


def test_a_file_of_something_else_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "letter.jsonl"
    path.write_text("Dear reader,")
    with pytest.raises(ResultFileError, match="begins with b'Dear reader,'"):
        measure(_plan(), path)
    path.write_text("Dear reader,\nall is well\n")
    with pytest.raises(ResultFileError, match="line 1 of"):
        measure(_plan(), path)
    assert path.read_text() == "Dear reader,\nall is well\n"
    for lines in ('{"my": "notes"}\n', '{"my": "notes"}\n{"and": "more"}\n'):
        path.write_text(lines)
        with pytest.raises(ResultFileError, match=r"Expected a results file, or none.*my"):
            measure(_plan(), path)
        assert path.read_text() == lines
    with pytest.raises(ResultFileError, match=r"ends in \.jsonl"):
        measure(_plan(), tmp_path / "letter.txt")


def test_steps_of_another_measurement_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    measure(_plan(steps=True), path)
    path.unlink()  # or moved
    before = steps_file(path).read_bytes()
    with pytest.raises(ResultFileError, match="holds another measurement"):
        measure(_plan("runner_users:Valued", steps=True, first_seed=7), path)
    assert steps_file(path).read_bytes() == before


def test_a_damaged_line_is_named(undisturbed: Path) -> None:
    lines = undisturbed.read_bytes().splitlines(keepends=True)
    undisturbed.write_bytes(b"".join([*lines[:3], b"{broken\n", *lines[4:]]))
    with pytest.raises(ResultFileError, match=r"line 4 of .* is b'\{broken"):
        measure(_plan(), undisturbed)
    undisturbed.write_bytes(b"".join([*lines[:2], *lines[3:]]))
    with pytest.raises(ResultFileError, match="seed 0, episode 1 in line 3"):
        measure(_plan(), undisturbed)
    undisturbed.write_bytes(b"".join([*lines[:2], b"{}\n"]))
    with pytest.raises(ResultFileError, match="env, seed and episode in every line"):
        measure(_plan(), undisturbed)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.999])
def test_plays_episodes_again_whose_steps_are_lost(share: float, undisturbed: Path) -> None:
    steps = steps_file(undisturbed)
    whole, whole_steps = undisturbed.read_bytes(), steps.read_bytes()
    steps.write_bytes(whole_steps[: int(share * len(whole_steps))])
    n_lines = [record["steps"] for record in _records(undisturbed)[1:]]
    n_kept = max(steps.read_bytes().count(b"\n") - 1, 0)
    done = measure(_plan(), undisturbed)
    assert done.found == sum(sum(n_lines[: n + 1]) <= n_kept for n in range(6))
    assert undisturbed.read_bytes() == whole
    assert steps.read_bytes() == whole_steps


def test_keeps_episodes_whose_steps_file_is_gone(undisturbed: Path) -> None:
    whole = undisturbed.read_bytes()
    steps_file(undisturbed).unlink()
    with pytest.raises(ResultFileError, match=r"Expected the steps of 6 episodes in .*; there is no such file\."):
        measure(_plan(), undisturbed)
    assert undisturbed.read_bytes() == whole


def test_rejects_steps_of_another_episode_in_between(undisturbed: Path) -> None:
    lines = steps_file(undisturbed).read_bytes().splitlines(keepends=True)
    steps_file(undisturbed).write_bytes(b"".join([*lines[:2], *lines[-2:]]))
    with pytest.raises(ResultFileError, match=r"steps of KeyToken-v0, seed \d, episode \d .*; got those of another"):
        measure(_plan(), undisturbed)


def test_a_file_that_is_being_written_is_locked(undisturbed: Path) -> None:
    with LineFile(undisturbed), pytest.raises(FileBusyError, match="another process is writing it"):
        measure(_plan(), undisturbed)
    assert measure(_plan(), undisturbed).played == 0


# ---------------------------------------------------------------------- agents that fail


@pytest.mark.parametrize("n_workers", [1, 2])
def test_an_agent_that_raises_stops_the_run_and_mended_it_goes_on(
    n_workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MENDED", str(tmp_path / "mended"))
    path, plan = tmp_path / "f.jsonl", _plan("runner_users:Fails", steps=False)
    with pytest.raises(AgentFailedError, match=r"seed 0, episode 2 .* RuntimeError: the server is gone") as caught:
        measure(plan, path, n_workers=n_workers)
    assert "runner_users.py" in caught.value.trace
    assert len(_records(path)) == 1 + 2
    (tmp_path / "mended").touch()
    done = measure(plan, path)
    assert (done.found, done.played) == (2, 4)


@pytest.mark.parametrize(
    ("agent", "told"),
    [
        ("SaysNothing", "Decision whose text is a str; got NoneType"),
        ("LosesCount", "as many log_probs and values as tokens, or none"),
    ],
)
def test_answers_that_are_none_are_refused(agent: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(AgentFailedError, match=f"seed 0, episode 0 .*{told}"):
        measure(_plan(f"runner_users:{agent}"), tmp_path / "a.jsonl")
    assert len(_records(tmp_path / "a.jsonl")) == 1


# ---------------------------------------------------------------------- plans and lines


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"envs": (KEYS, KITCHEN, KEYS)}, "KeyToken-v0 again"),
        ({"episodes": 0}, "got 0"),
        ({"first_seed": 5_000}, "got 2 from 5000"),
    ],
)
def test_plans_with_nothing_to_play_are_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(BenchmarkError, match=told):
        _plan(**changes)


def test_no_two_episodes_are_seeded_alike() -> None:
    jobs = _plan(envs=(KEYS, KITCHEN, "VirtualHome-Cheese-v0"), episodes=50, seeds=4).jobs()
    assert len({job.reset_seed for job in jobs}) == len(jobs) == 600
    assert all(0 <= job.reset_seed < 2**32 for job in jobs)
    assert jobs[0].reset_seed == _plan().jobs()[0].reset_seed


def test_a_line_that_is_no_json_is_not_written(tmp_path: Path) -> None:
    with LineFile(tmp_path / "x.jsonl") as file:
        file.append([{"a": 1}])
        with pytest.raises(ResultFileError, match="finite numbers"):
            file.append([{"b": 2}, {"c": object()}])
        file.append([])
    assert _records(tmp_path / "x.jsonl") == [{"a": 1}]
