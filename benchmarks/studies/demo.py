"""`make demo`: train POAD on Tomato Salad with the pocket model, compare, and show."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.files import write_picture
from benchmarks.reports.plots import plot_curves
from benchmarks.reports.tables import show_table
from benchmarks.studies.engine.jobs import Evaluation, TrainingJob
from benchmarks.studies.engine.training import train
from lang_bench.agents import make_agent
from lang_bench.agents.policy import PolicyAgent
from lang_bench.runner.evaluation import play, summarize
from lang_bench.runner.machine import describe_machine
from lang_envs.files import write_json
from lang_envs.recording import record_gif
from lang_envs.report import LearningCurve, Report, Table, read_run, write_report
from lang_envs.report.statistics import Curve
from poad_sb3 import POAD
from poad_sb3.common.episode_recording import EpisodeRecordingCallback

ENV_ID = "Overcooked-TomatoSalad-v0"


def demo(
    steps: Annotated[int, typer.Option(help="Environment steps.")] = 5_000,
    episodes: Annotated[int, typer.Option(help="Episodes for each row of the table.")] = 100,
    seed: int = 0,
    out: Annotated[Path, typer.Option(help="Folder for curve, GIF and checkpoint.")] = Path("runs/demo"),
) -> None:
    """Train POAD on Tomato Salad with the pocket model."""
    print(f"Training POAD on {ENV_ID}: {steps} steps with the pocket model (0.9 M parameters).")
    untrained = POAD("LLMPolicy", ENV_ID, seed=seed)
    recording = EpisodeRecordingCallback(out, ENV_ID, every=640, seed=seed, provenance=describe_machine())
    job = TrainingJob("POAD", ENV_ID, steps, seed, {}, Evaluation(every=640, episodes=30))
    model, training = train(job, [recording], progress_bar=True)
    agents = {
        "random": make_agent("random"),
        "untrained": PolicyAgent.of(untrained),
        "POAD, sampled": PolicyAgent.of(model),
        "POAD, greedy": PolicyAgent.of(model, deterministic=True),
        "oracle": make_agent("oracle"),
    }
    results = {name: summarize(play(ENV_ID, agent, episodes)) for name, agent in agents.items()}
    rows = []
    for name, result in results.items():
        varies = result.return_interval[0] < result.return_interval[1]
        interval, success = (
            "[{:.3f}, {:.3f}]".format(*result.return_interval),
            "[{:.0%}, {:.0%}]".format(*result.success_interval),
        )
        rows.append(
            (
                name, f"{result.mean_return:.3f}", interval if varies else "-", f"{result.success_rate:.0%}",
                success if varies else "-", f"{result.mean_actions:.1f}", f"{result.mean_moves:.1f}",
            )
        )  # fmt: skip
    scores = Table(
        f"{ENV_ID}: {episodes} episodes, return discounted 0.99 per move",
        ("agent", "mean return", "95% interval", "success", "95% interval", "actions", "moves"),
        rows,
        "- : greedy and oracle play the same episode every time. POAD discounts 0.95 per action, not 0.99 per "
        "move, so its best plan may take a few moves more than the oracle's.",
    )
    show_table(scores.head, scores.rows, title=scores.title, caption=scores.remark)
    means = np.array([summary.mean_return for summary in training.summaries])
    low, high = np.array([summary.return_interval for summary in training.summaries]).T
    curve = Curve(np.array(training.steps, dtype=float), means, low, high, means[None])
    figure = plot_curves(
        {"POAD": curve},
        title="POAD on Tomato Salad, pocket model; 95% intervals of the mean",
        ylabel="return, discounted 0.99 per move",
        references={name: results[name].mean_return for name in ("oracle", "random")},
    )
    written = [write_picture(out / "learning_curve.png", figure), out / "episode.gif", out / "poad.zip"]

    def greedy(env: Any, text: str, actions: Sequence[str] | None) -> str:
        action: str = env.action_space.decode(model.predict(text, deterministic=True, admissible_actions=actions)[0])
        return action

    record_gif(ENV_ID, greedy, out / "episode.gif")
    model.save(out / "poad.zip")
    written.append(write_json(out / "curve.json", {name: values.tolist() for name, values in curve._asdict().items()}))
    written.append(write_report(report_of_demo(out, [scores]), out / "report.html"))
    print(f"Training took {training.train_seconds:.0f} s (without the evaluations along the way).")
    for path in written:
        print(f"  {path}")


def report_of_demo(folder: Path, tables: Sequence[Table]) -> Report:
    """Return the report of the demo: its learning curve, and the episodes recorded along the way.

    Args:
        folder: Folder with the recorded episodes and the curve.
        tables: Scores of the agents that were compared.
    """
    run, recorded = read_run(folder / "episodes.jsonl")
    curve = json.loads((folder / "curve.json").read_text(encoding="utf-8"))
    title = "return of 30 episodes, discounted 0.99 per move, with the 95% interval of their mean"
    line = LearningCurve(ENV_ID, "POAD", title, *(curve[name] for name in ("steps", "values", "low", "high")))
    about = (
        "POAD learns to make a tomato salad with the pocket model, 0.9 million parameters. Open an episode to see each "
        "step with the credit of each token; the same situations were recorded at several times of the training.",
    )
    return Report(
        "POAD on Tomato Salad",
        [run],
        curves=[line],
        episodes=recorded,
        about=about,
        tables=tables,
    )
