"""Recorded episodes for other tools: `to_minari` makes a data set of Minari, `to_inspect` a log of Inspect.

Both read a results file of format 1; each imports its package when it is called (extras `minari`, `inspect`).
"""

from __future__ import annotations

import copy
import importlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import gymnasium as gym

from lang_envs.errors import LangEnvsError, MissingExtraError, install_command
from lang_envs.registration import registered
from lang_envs.wrappers import TextAction

__all__ = ["RecordedEpisodes", "to_inspect", "to_minari"]

_EPOCH = "1970-01-01T00:00:00+00:00"
"""Time of a log whose results file has no time: equal results give equal logs."""
_SCORES = ("return", "discounted_return", "success", "steps", "invalid_actions", "best_score")


class RecordedEpisodes(Protocol):
    """A results file as read: its first line, and the line of each episode with its steps in `steps_list`."""

    @property
    def header(self) -> Mapping[str, Any]:
        """First line of the results file."""

    @property
    def episodes(self) -> Sequence[Mapping[str, Any]]:
        """Lines of the episodes; `steps_list` has the lines of the steps, or None."""


def to_minari(results: RecordedEpisodes, dataset_id: str, **arguments: Any) -> Any:
    """Make a Minari data set of recorded steps: texts as observations and actions.

    Args:
        results: Episodes of one environment, with their steps.
        dataset_id: Name and version, such as `"tomato-salad/poad-v0"`. Minari keeps the data set in its own folder
            (`MINARI_DATASETS_PATH`).
        **arguments: Further arguments of `minari.create_dataset_from_buffers`, such as `author`.

    Returns:
        The `MinariDataset`. `infos` of an episode have an entry for each observation: `admissible_actions` (JSON), and
        of the action after it `log_prob` and `value`, NaN where unknown and at the end.

    Raises:
        MissingExtraError: If the package is not installed.
        LangEnvsError: If there are no steps, several environments, or the name has no version or is taken.
    """
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)*-v\d+", dataset_id):
        raise LangEnvsError(
            f"Expected a name with a version for a Minari data set; got {dataset_id!r}. Fix: such as salad/poad-v0."
        )
    collector, minari = _package("minari.data_collector", "minari"), _package("minari", "minari")
    ids = list(dict.fromkeys(record["env"] for record in results.episodes))
    if len(ids) != 1:
        raise LangEnvsError(
            f"Expected episodes of one environment, as a Minari data set has; got {ids}. Fix: a results file for each."
        )
    buffers, observed, acted = [], set[str](), set[str]()
    for number, episode in enumerate(results.episodes):
        steps = _steps(episode)
        texts = [*(step["observation"] for step in steps), steps[-1].get("final_observation", "")]
        actions = [step["action"] for step in steps]
        observed.update(texts)
        acted.update(actions)
        buffers.append(
            collector.EpisodeBuffer(
                id=number,
                seed=int(episode["reset_seed"]),
                observations=texts,
                actions=actions,
                rewards=[step["reward"] for step in steps],
                terminations=[step["terminated"] for step in steps],
                truncations=[step["truncated"] for step in steps],
                infos={
                    "admissible_actions": [*(json.dumps(step["admissible_actions"]) for step in steps), "null"],
                    "log_prob": [
                        *(sum(step["log_probs"]) if step.get("log_probs") else math.nan for step in steps),
                        math.nan,
                    ],
                    "value": [*((step.get("values") or [math.nan])[0] for step in steps), math.nan],
                },
            )
        )
    name = results.header["agent"]["name"]
    given = {"algorithm_name": name, "description": f"Episodes of {name} on {ids[0]}.", **arguments}
    spaces = {"observation_space": _space_of(observed), "action_space": _space_of(acted)}
    if dataset_id in minari.list_local_datasets():
        raise LangEnvsError(f"Expected a new Minari data set; {dataset_id} is there. Fix: another version of the name.")
    return minari.create_dataset_from_buffers(
        dataset_id, buffers, env=_spec_of(ids[0], results.header["env_settings"]), **spaces, **given
    )


def to_inspect(results: RecordedEpisodes, path: Path) -> Path:
    """Write a log that `inspect view` shows: a sample for each episode, its steps as messages.

    Args:
        results: Episodes, with or without their steps.
        path: Path of the log, `NAME.eval` or `NAME.json`.

    Raises:
        MissingExtraError: If the package is not installed.
        LangEnvsError: If there are no episodes.
    """
    log, model = _package("inspect_ai.log", "inspect"), _package("inspect_ai.model", "inspect")
    scorer, header = _package("inspect_ai.scorer", "inspect"), results.header
    if not results.episodes:
        raise LangEnvsError("Expected episodes to export; got none. Fix: play some first.")
    names = [name for name in _SCORES if all(_is_number(record.get(name)) for record in results.episodes)]
    samples, epochs = [], dict[str, int]()
    for episode in results.episodes:
        # Episodes of one situation are its epochs: checkpoints of a training, and members of a group.
        situation = f"{episode['env']}/{episode['reset_seed']}"
        epochs[situation] = epochs.get(situation, 0) + 1
        messages = list[Any]()
        for step in episode["steps_list"] or ():
            messages.append(model.ChatMessageUser(content=_asked(step)))
            metadata = {name: step[name] for name in ("reward", "tokens", "log_probs", "values") if name in step}
            answer = model.ChatMessageAssistant(content=step["action"], model=episode["agent"], metadata=metadata)
            messages.append(answer)
        output = model.ModelOutput.from_content(episode["agent"], messages[-1].content if messages else "")
        sample = log.EvalSample(
            id=situation,
            epoch=epochs[situation],
            input=messages[0].content if messages else situation,
            target="",
            messages=messages,
            output=output,
            scores={name: scorer.Score(value=float(episode[name])) for name in names},
            metadata={name: value for name, value in episode.items() if name != "steps_list"},
        )
        samples.append(sample)
    ids = list(dict.fromkeys(record["env"] for record in results.episodes))
    spec = log.EvalSpec(
        created=header.get("time", _EPOCH),
        task=", ".join(ids),
        dataset=log.EvalDataset(name=", ".join(ids), samples=len(epochs), sample_ids=list(epochs)),
        model=header["agent"]["name"],
        config=log.EvalConfig(epochs=max(epochs.values())),
        metadata=json.loads(json.dumps(header)),
    )
    scores = []
    for name in names:
        mean = sum(float(record[name]) for record in results.episodes) / len(samples)
        metrics = {"mean": log.EvalMetric(name="mean", value=mean)}
        scores.append(log.EvalScore(name=name, scorer=name, metrics=metrics))
    counts = {"total_samples": len(samples), "completed_samples": len(samples)}
    whole = log.EvalLog(status="success", eval=spec, samples=samples, results=log.EvalResults(**counts, scores=scores))
    path.parent.mkdir(parents=True, exist_ok=True)
    log.write_eval_log(whole, str(path))
    return path


def _package(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(
            f"Expected the package of the extra {extra!r}; it is not installed ({error}). "
            f"Fix: {install_command(extra)}."
        ) from error


def _steps(episode: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    steps: Sequence[Mapping[str, Any]] | None = episode["steps_list"]
    if not steps:
        raise LangEnvsError(
            f"Expected the steps of every episode; got none of episode {episode['episode']} of {episode['env']}. "
            "Fix: run with --steps."
        )
    return steps


def _space_of(texts: set[str]) -> gym.spaces.Text:
    """Return the smallest space of text that holds some texts."""
    characters = {letter for text in texts for letter in text} or {" "}
    return gym.spaces.Text(max(1, *map(len, texts)), min_length=0, charset="".join(sorted(characters)))


def _spec_of(env_id: str, settings: Mapping[str, Any]) -> Any:
    """Return how to make the environment that takes texts, without making it; None where it is not registered here."""
    name = registered(env_id)
    if name is None:
        return None
    spec = copy.deepcopy(gym.registry[name])
    spec.kwargs.update(settings)
    spec.disable_env_checker = True
    spec.additional_wrappers += (TextAction.wrapper_spec(),)
    return spec


def _asked(step: Mapping[str, Any]) -> str:
    listed = step["admissible_actions"]
    return (
        step["observation"]
        if listed is None
        else "\n".join([step["observation"], "", *(f"- {action}" for action in listed)])
    )


def _is_number(value: object) -> bool:
    return isinstance(value, bool | int | float)
