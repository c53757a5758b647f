"""Reports, pictures and the leaderboard, of files that the runner wrote."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import report_data
from typer.testing import CliRunner

from benchmarks.app import app
from benchmarks.files import write_picture
from benchmarks.reports.plots import plot_curves
from lang_bench.reports import leaderboard
from lang_bench.reports.comparisons import comparison_tables, shown
from lang_bench.reports.html_report import report_of, write_html
from lang_bench.reports.labels import labels_remark
from lang_bench.reports.terminal import overview_table
from lang_bench.runner.errors import ResultFileError
from lang_bench.runner.plan import Plan
from lang_bench.runner.results import METRICS, References, load, normalised, references_of
from lang_bench.runner.session import measure
from lang_envs.cli.common import PlainConsole
from lang_envs.report import ReportError
from lang_envs.report.results import steps_file
from lang_envs.report.statistics import Estimate, learning_curve

SCHEMAS = Path(__file__).parents[3] / "lang_envs/report/schema"
KITCHEN, HOME, KEYS = "Overcooked-TomatoSalad-v0", "VirtualHome-FoodPreparation-v0", "KeyToken-v0"


@pytest.fixture(scope="module", autouse=True)
def _users_module() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[2] / "support"))
        yield


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("results")
    for agent in ("random", "oracle"):
        measure(Plan(agent, (KITCHEN, HOME), episodes=4, seeds=3), folder / f"{agent}.jsonl")
    valued = folder / "valued.jsonl"
    measure(Plan("runner_users:Valued", (KITCHEN,), episodes=4, seeds=3, steps=True), valued)
    return [folder / "random.jsonl", folder / "oracle.jsonl", valued]


def test_scores_are_means_over_the_episodes_of_a_seed(files: list[Path]) -> None:
    cell = load(files)[0]
    assert (cell.agent, cell.env, cell.is_complete) == ("random", KITCHEN, True)
    by_hand = [np.mean([one["return"] for one in cell.episodes if one["seed"] == seed]) for seed in range(3)]
    assert cell.scores("return") == pytest.approx(by_hand)
    assert len(cell.scores("ran_share")) == 0


def test_the_oracle_is_at_one_on_the_common_scale(files: list[Path]) -> None:
    for cell in load(files[1:2]):
        assert normalised(cell) == pytest.approx(np.ones(3))
        assert cell.scores("discounted_return") == pytest.approx(references_of(cell.env).oracle)
    assert references_of(f"lang_envs:{KEYS}") == References(0.2, 1.0)
    assert references_of("MultiKey-length-trap-v0") is None


def test_the_agents_are_compared_on_the_tasks_they_share(files: list[Path]) -> None:
    titles = [table.title for table in comparison_tables(load(files))]
    assert titles == ["Probability of improvement", "Which agent is better"]  # one task in common
    over_all, pairs, _ = comparison_tables(load(files[:2]))
    assert over_all.title == "All 2 tasks"
    assert over_all.rows[1] == ("oracle", "1.000", "100.0 %")
    assert pairs.rows == [("oracle", "random", "2", "1.000")]


def test_numbers_are_shown_with_their_intervals_where_they_have_any() -> None:
    assert shown(Estimate(0.5, 0.25, 0.75), METRICS["success"]) == "50.0 % [25.0, 75.0]"
    assert shown(Estimate(0.5, None, None), METRICS["return"]) == "0.500"
    assert shown(Estimate(0.5, 0.5, 0.5), METRICS["return"]) == "0.500"
    assert shown(Estimate(-1e-9, None, None), METRICS["return"]) == "0.000"


def test_names_of_any_characters_stay_in_their_row(files: list[Path]) -> None:
    names = "first\nsecond\x1b[31m\x07\r\t\x9b3\u2028m", "plain"
    cells = [cell._replace(agent=name) for name, cell in zip(names, load(files[:1]), strict=True)]
    output = io.StringIO()
    PlainConsole(file=output, width=200, markup=False, emoji=False).print(overview_table(cells, 200))
    lines = output.getvalue().splitlines()
    assert len(lines) == 3
    assert all(map(str.isprintable, lines))
    assert len({line.rindex("%") for line in lines[1:]}) == 1, "the columns are aligned"


def test_a_report_is_one_file(files: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    result = CliRunner().invoke(app, ["report", *map(str, files), "--html", str(path), "--pictures", "0"])
    assert result.exit_code == 0, result.output
    page = path.read_text()
    assert "Which agent is better" in page
    assert KITCHEN in page


def test_an_unfinished_run_is_reported_as_such_and_not_submitted(files: list[Path], tmp_path: Path) -> None:
    part = tmp_path / "part.jsonl"
    part.write_bytes(b"".join(files[0].read_bytes().splitlines(keepends=True)[:6]) + b'{"env":"Over')
    cells = load([part])
    assert [next(iter(column.cells)) for column in overview_table(cells).columns][2] == "5 of 12"
    assert (report_of([part]).scores[0].n_episodes, report_of([part]).scores[0].expected) == (5, 12)
    with pytest.raises(ResultFileError, match=r"Expected 12 episodes of random .* got 5"):
        leaderboard.add(cells, folder=tmp_path / "board")


def test_control_characters_of_a_file_do_not_reach_the_terminal(tmp_path: Path) -> None:
    text = "*a* | b `c` <i>d</i> [e](http://f.invalid) $g$ \x1b[2J\n# h \u202e"
    (path,) = report_data.hostile(tmp_path, [text])
    path.write_bytes(path.read_bytes().rpartition(b"{")[0])  # not complete
    result = CliRunner().invoke(app, ["report", str(path), "--html", str(tmp_path / "report.html")])
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output


def test_made_up_rows_and_arguments_are_told(tmp_path: Path) -> None:
    plan = Plan("oracle", ("DataSciCoding-breast-w-v0",), 1, 1, env_settings={"data": "synthetic"})
    measure(plan, tmp_path / "made_up.jsonl")
    cells = load([tmp_path / "made_up.jsonl"])
    remark = "DataSciCoding-breast-w-v0 (data=synthetic): Made-up rows: scores say nothing about the table."
    assert remark in report_of([tmp_path / "made_up.jsonl"]).about
    assert normalised(cells[0]) is None
    with pytest.raises(ResultFileError, match="Expected the task as registered"):
        leaderboard.add(cells, folder=tmp_path / "board")


@pytest.mark.parametrize(
    ("env_id", "settings", "remark"),
    [
        (KITCHEN, {}, ""),
        ("DataSciCoding-digits-v0", {}, "Memorizable: the labels are bundled with scikit-learn, so a score can"),
        ("DataSciCoding-balance-scale-v0", {"dataset": "iris"}, "Memorizable: the labels are bundled with scikit-"),
        ("DataSciCoding-airlines-v0", {"data": "synthetic"}, ""),
        ("DataSciCoding-generated-v0", {}, "Every table follows from the seed of its episode"),
    ],
)
def test_remarks_on_labels(env_id: str, settings: dict[str, str], remark: str) -> None:
    found = labels_remark(env_id, settings)
    assert found.startswith(remark)
    assert bool(found) == bool(remark)


@pytest.mark.parametrize("which", ["steps", "times", "text"])
def test_other_files_are_no_results(which: str, files: list[Path], tmp_path: Path) -> None:
    (tmp_path / "text.jsonl").write_text("{}\n")
    path = {
        "steps": steps_file(files[2]),
        "times": files[0].with_suffix(".times.jsonl"),
        "text": tmp_path / "text.jsonl",
    }
    with pytest.raises(ReportError, match=str(path[which])):
        load([path[which]])


def test_further_seeds_of_an_agent_join_those_of_another_file(tmp_path: Path) -> None:
    whole, *parts = (tmp_path / f"{name}.jsonl" for name in ("whole", "first", "second"))
    measure(Plan("random", (KEYS,), 3, 4), whole)
    for path, first in zip(parts, (0, 2), strict=True):
        measure(Plan("random", (KEYS,), 3, 2, first_seed=first), path)
    (expected,), (cell,) = load([whole]), load(parts)
    assert (cell.header["seeds"], cell.expected, cell.is_complete) == ([0, 1, 2, 3], 12, True)
    assert list(cell.episodes) == list(expected.episodes)
    assert len(report_of(parts).runs) == 2
    assert json.loads(leaderboard.add([cell], folder=tmp_path)[0].read_text())["tasks"][KEYS]["seeds"] == [0, 1, 2, 3]
    for changes, told in (({"episodes": 2}, "with other episodes"), ({"first_seed": 1}, "with some of the same seeds")):
        other = tmp_path / f"{next(iter(changes))}.jsonl"
        measure(Plan("random", (KEYS,), **{"episodes": 3, "seeds": 2, "first_seed": 4, **changes}), other)
        with pytest.raises(ResultFileError, match=rf"random on {KEYS} again in .*, {told}\. Fix: .* --first-seed"):
            load([*parts, other])


def test_an_id_with_other_arguments_is_another_task(tmp_path: Path) -> None:
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    for path, seed in ((first, 0), (second, 2)):
        measure(Plan("random", (KEYS,), 1, 2, first_seed=seed), path)
    header, _, rest = second.read_text().partition("\n")
    changed = json.loads(header)
    changed["envs"][0]["arguments"] = {"horizon": 3}
    second.write_text(f"{json.dumps(changed)}\n{rest}")
    with pytest.raises(ResultFileError, match="with other arguments"):
        load([first, second])


def test_agents_of_each_seed_join_and_differ_by_their_seeds(tmp_path: Path) -> None:
    def played(name: str, seed: int, env: str = KEYS, temper: str = "mood {seed}") -> Path:
        plan = Plan("runner_users:Valued", (env,), 1, 2, seed, {"temper": temper}, label="valued")
        measure(plan, tmp_path / f"{name}.jsonl")
        return tmp_path / f"{name}.jsonl"

    first, second, home = played("first", 0), played("second", 2), played("home", 0, HOME)
    assert [cell.header["seeds"] for cell in load([first, second, home])] == [[0, 1, 2, 3], [0, 1]]
    (path,) = leaderboard.add(load([first, second, home]), folder=tmp_path / "board")
    assert [*json.loads(path.read_text())["agent"]["settings_by_seed"]] == ["0", "1", "2", "3"]
    changed = home.read_text().replace('"mood 1"', '"cross"')
    home.write_text(changed)
    with pytest.raises(ResultFileError, match=r"valued of .* has other settings than in another file"):
        load([first, second, home])


# ---------------------------------------------------------------------- pairs of agents


def _verdicts(files: list[Path]) -> list[str]:
    return [row[-1] for table in report_of(files).tables for row in table.rows if table.head[-1] == "significant"]


def test_differences_are_significant_after_the_correction(files: list[Path], tmp_path: Path) -> None:
    assert _verdicts(files[:2]) == ["no"] * 2  # three against three: p is 0.1 at least
    paths = []
    for agent, label in (("oracle", "best"), ("random", "a"), ("random", "b")):
        paths.append(tmp_path / f"{label}.jsonl")
        measure(Plan(agent, (KEYS,), episodes=4, seeds=5, label=label), paths[-1])
    assert _verdicts(paths) == ["yes", "yes", "no"]


def test_seeds_that_lack_episodes_are_not_compared(files: list[Path], tmp_path: Path) -> None:
    for n_lines, seeds in ((1 + 2 * 4 + 3, ["3 and 2"]), (1 + 3, [])):
        part = tmp_path / f"part{n_lines}.jsonl"
        part.write_bytes(b"".join(files[0].read_bytes().splitlines(keepends=True)[:n_lines]))
        tables = {table.title: table.rows for table in report_of([part, files[1]]).tables}
        assert [row[4] for row in tables.get("Which agent is better", ())] == seeds


# ---------------------------------------------------------------------- pictures


def test_curves_are_drawn_with_bands_seeds_and_references(tmp_path: Path) -> None:
    curve = learning_curve({seed: [(0, 0.0), (10, float(seed))] for seed in range(3)})
    figure = plot_curves(
        {"POAD": curve, "NTPO": curve}, title="Kitchen", ylabel="return", references={"oracle": 1.0, "random": 0.0}
    )
    (axes,) = figure.axes
    assert len(axes.collections) == 2
    assert len(axes.lines) == 2 * (1 + 3) + 2
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["POAD (3 seeds)", "NTPO (3 seeds)", "oracle (1.00)", "random (0.00)"]
    assert write_picture(tmp_path / "curves.png", figure).stat().st_size > 10_000


# ---------------------------------------------------------------------- the leaderboard


def test_an_agent_is_put_on_the_leaderboard_task_by_task(files: list[Path], tmp_path: Path) -> None:
    cells = load(files[:1])
    for cell in cells:
        (path,) = leaderboard.add([cell], folder=tmp_path)
    entry = json.loads(path.read_text())
    assert path.name == "random.json"
    assert list(entry["tasks"]) == [KITCHEN, HOME]
    task = entry["tasks"][KITCHEN]
    assert task["scores"]["return"] == pytest.approx(list(cells[0].scores("return")), abs=1e-6)
    assert task["scores"]["score"] == pytest.approx(list(normalised(cells[0])), abs=1e-6)
    assert (task["episodes"], task["seeds"]) == (4, [0, 1, 2])
    assert task["versions"]["numpy"]
    assert leaderboard.entries(tmp_path) == [entry]


@pytest.mark.parametrize("text", ["", '{"agent": {"name": "random"}, "tasks": null}'])
def test_rejects_a_damaged_entry_of_the_leaderboard(files: list[Path], tmp_path: Path, text: str) -> None:
    (tmp_path / "random.json").write_text(text)
    with pytest.raises(ResultFileError, match=r"Expected an entry of the leaderboard in .*random\.json; it cannot be"):
        leaderboard.add(load(files[:1]), folder=tmp_path)


def test_what_is_there_is_replaced_only_if_that_is_asked_for(files: list[Path], tmp_path: Path) -> None:
    cells = load(files[:1])
    leaderboard.add(cells, folder=tmp_path)
    with pytest.raises(ResultFileError, match="not on the leaderboard with; got Overcooked"):
        leaderboard.add(cells, folder=tmp_path)
    assert leaderboard.add(cells[:1], replace=True, folder=tmp_path)
    assert len(leaderboard.entries(tmp_path)[0]["tasks"]) == 2


def test_agents_whose_files_would_be_one_are_refused(files: list[Path], tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.jsonl" for number in range(2)]
    for path, label in zip(paths, ("my agent", "my-agent"), strict=True):
        measure(Plan("random", (KEYS,), 2, 1, label=label), path)
    with pytest.raises(ResultFileError, match=r"files of their own; got \['my agent', 'my-agent'\]\. Fix: another --l"):
        leaderboard.add(load(paths), folder=tmp_path / "board")
    assert not (tmp_path / "board").exists()
    leaderboard.add(load(paths[:1]), folder=tmp_path / "board")
    for replace in (False, True):
        with pytest.raises(ResultFileError, match=r"my-agent.json is that of 'my agent', not of 'my-agent'. Fix: run"):
            leaderboard.add(load(paths[1:]), replace=replace, folder=tmp_path / "board")


def test_another_agent_does_not_take_a_name(files: list[Path], tmp_path: Path) -> None:
    leaderboard.add(load(files[:1]), folder=tmp_path)
    measure(Plan("oracle", (KEYS,), 2, 1, label="random"), tmp_path / "liar.jsonl")
    liar = load([tmp_path / "liar.jsonl"])
    with pytest.raises(ResultFileError, match="Expected one agent by the name 'random'"):
        leaderboard.add(liar, folder=tmp_path)
    leaderboard.add(liar, replace=True, folder=tmp_path)
    (entry,) = leaderboard.entries(tmp_path)
    assert list(entry["tasks"]) == [KEYS]


def test_the_committed_leaderboard_agrees_with_the_exact_scores() -> None:
    by_name = {entry["agent"]["name"]: entry["tasks"] for entry in leaderboard.entries()}
    for env_id, task in by_name["oracle"].items():
        if references_of(env_id) is not None:
            assert task["scores"]["score"] == pytest.approx([1.0] * len(task["seeds"]), abs=1e-5), env_id
    for env_id, task in by_name["random"].items():
        if references_of(env_id) is not None:
            assert abs(np.mean(task["scores"]["score"])) < 0.05, env_id


# ---------------------------------------------------------------------- files of other programs


def test_a_file_with_required_fields_alone_is_reported(files: list[Path], tmp_path: Path) -> None:
    names = json.loads((SCHEMAS / "header.schema.json").read_text())["required"]
    of_episodes = json.loads((SCHEMAS / "episode.schema.json").read_text())["required"]
    header, *episodes = (json.loads(line) for line in files[0].read_text().splitlines())
    least = [{name: header[name] for name in names}]
    least += [{**{name: episode[name] for name in of_episodes}, "success": None} for episode in episodes]
    path = tmp_path / "other.jsonl"
    path.write_text("\n".join(map(json.dumps, least)))  # and no newline at the end
    cells = load([path, files[1]])
    assert [len(cell.episodes) for cell in cells] == [12] * 4
    assert comparison_tables(cells)[0].rows[0][2] == ""
    assert write_html([path, files[1]], tmp_path / "report.html")
    row = [next(iter(column.cells)) for column in overview_table(cells).columns]
    assert row[4] == ""
    with pytest.raises(ResultFileError, match="got none of command, cpu"):
        leaderboard.add(load([path]), folder=tmp_path / "board")
