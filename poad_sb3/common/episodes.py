"""Episodes as lists of the lines of their steps: played by an oracle or a policy, or read from results files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.random import Generator

from lang_envs.agents import oracle_agent, random_agent
from lang_envs.arguments import finite_reward
from lang_envs.report.results import read_results
from lang_envs.wrappers import TextAction
from lang_envs.wrappers.admissible import admissible_actions_of
from poad_sb3.common.episode_lines import EPISODES_PER_SEED, reset_seed_of, step_line
from poad_sb3.common.policies import TextPolicy
from poad_sb3.distributions.action_trie import TokenIds
from poad_sb3.distributions.base import ScoreCache
from poad_sb3.errors import ObservationError
from poad_sb3.prompts import Question
from poad_sb3.prompts.templates import ContextSpec
from poad_sb3.vec_env.text_observations import episode_context, question_of

Episode = list[dict[str, Any]]
"""Lines of the steps of one episode, in the format of results files."""

_ORACLE_FIRST = EPISODES_PER_SEED // 2
"""First episode number of an oracle: none is that of an evaluation with the same seed."""


def questions_of(episode: Episode, spec: ContextSpec) -> list[Question]:
    """Return the question before each step, with the context that a prompt needs.

    Raises:
        ObservationError: If the lines lack a field of `info` that the prompt shows.
    """
    missing = sorted(set(spec.fields) - {*episode[0].get("info", {})})
    if missing:
        raise ObservationError(
            f"Expected recorded steps with info[{missing[0]!r}], which the prompt shows; results files have none. "
            "Fix: let oracle_episodes play them, or policy_kwargs={'prompt': 'completion'}."
        )
    context = episode_context(spec).begun(episode[0]["observation"])
    questions = []
    for number, line in enumerate(episode):
        if number:
            context = context.after(episode[number - 1]["action"], line["observation"])
        questions.append(question_of(context.text, line["admissible_actions"], line.get("info", {}), context))
    return questions


def recorded_episodes(path: str | Path) -> list[Episode]:
    """Read the episodes whose steps are in a results file, `NAME.jsonl` beside `NAME.steps.jsonl`.

    Raises:
        ReportError: If the files are damaged.
        ValueError: If no steps were recorded.
    """
    lines = read_results(Path(path)).episodes
    episodes = [line["steps_list"] for line in lines if line["steps_list"]]
    if not episodes:
        raise ValueError(
            f"Expected recorded steps beside {path}; got {len(lines)} episodes without steps. "
            "Fix: record them, with `lang-bench run ... --steps` or `poad train`."
        )
    return episodes


def oracle_episodes(
    env_id: str,
    n_episodes: int,
    *,
    noise: float = 0.3,
    seed: int = 0,
    first: int = _ORACLE_FIRST,
    env_kwargs: Mapping[str, Any] | None = None,
) -> list[Episode]:
    """Play episodes with the oracle of an environment, and a share of uniformly random admissible actions.

    A random one also stands for a command of the oracle that is not listed: VirtualHome knows such commands.

    Args:
        env_id: Id of the environment.
        n_episodes: Number of episodes.
        noise: Probability of a random action in each step.
        seed: Seed of the episodes and the random actions.
        first: Number of the first episode; by default none is that of an evaluation with the same seed.
        env_kwargs: Arguments of `gym.make`.

    Raises:
        ValueError: If `noise` is not a probability, `n_episodes` is negative, or actions are not listed, so that a
            random one would be no sentence.
    """
    if not 0 <= noise <= 1:
        raise ValueError(f"Expected noise to be a probability, 0 to 1; got {noise}.")
    if n_episodes < 0:
        raise ValueError(f"Expected n_episodes of at least 0; got {n_episodes}.")
    oracle = oracle_agent()

    def choose(env: TextAction, question: Question, rng: Generator) -> str:
        if noise and question.actions is None:
            raise ValueError(
                f"Expected noise of 0 in {env_id}, where any text is an action; got {noise:g}. "
                "Fix: noise=0, in the shell --oracle-noise 0."
            )
        is_random, chosen = rng.random() < noise, oracle(env, question.text, question.actions)
        is_listed = question.actions is None or chosen in question.actions
        return chosen if is_listed and not is_random else random_agent(rng)(env, question.text, question.actions)

    def act(episodes: Sequence[EpisodeInPlay], questions: Sequence[Question]) -> list[str]:
        return [choose(each.env, question, each.rng) for each, question in zip(episodes, questions, strict=True)]

    return _play(env_id, n_episodes, act, seed=seed, first=first, env_kwargs=env_kwargs)


@torch.no_grad()
def policy_episodes(
    policy: TextPolicy,
    env_id: str,
    n_episodes: int,
    *,
    deterministic: bool = False,
    seed: int = 0,
    first: int = 0,
    env_kwargs: Mapping[str, Any] | None = None,
) -> list[Episode]:
    """Play episodes with a policy, side by side; the policy's own generators are not used.

    Args:
        policy: Policy that acts.
        env_id: Id of the environment.
        n_episodes: Number of episodes.
        deterministic: Whether to choose the most probable action instead of sampling.
        seed: Seed of the episodes and the samples.
        first: Number of the first episode of the seed; other numbers give other starts and samples.
        env_kwargs: Arguments of `gym.make`.
    """
    policy.set_training_mode(False)
    cache, spec = ScoreCache([]), policy.lm.prompter.template.context_spec

    def act(episodes: Sequence[EpisodeInPlay], questions: Sequence[Question]) -> list[str]:
        if deterministic:
            actions = policy.distribution.mode(questions, cache)
        else:
            actions = policy.distribution.sample(questions, [episode.rng for episode in episodes], cache)
        for episode, action in zip(episodes, actions, strict=True):
            episode.past, episode.note = policy.past_after(action.path), policy.thought_of(action)
        return [action.text for action in actions]

    return _play(env_id, n_episodes, act, seed=seed, first=first, env_kwargs=env_kwargs, spec=spec)


_Act = Callable[[Sequence["EpisodeInPlay"], Sequence[Question]], list[str]]


def _play(
    env_id: str,
    n_episodes: int,
    act: _Act,
    *,
    seed: int,
    first: int,
    env_kwargs: Mapping[str, Any] | None,
    spec: ContextSpec = ContextSpec(),  # noqa: B008 - immutable
) -> list[Episode]:
    with ExitStack() as stack:
        made = (gym.make(env_id, disable_env_checker=True, **(env_kwargs or {})) for _ in range(n_episodes))
        episodes = [
            EpisodeInPlay(number, env_id, seed, stack.enter_context(TextAction(env)), spec)
            for number, env in enumerate(made, start=first)
        ]
        playing = episodes
        while playing:
            questions = [episode.question for episode in playing]
            for episode, action in zip(playing, act(playing, questions), strict=True):
                before = episode.info
                # Fields of prompts, such as the code before and after a gap.
                episode.step(action)["info"] = {name: value for name, value in before.items() if isinstance(value, str)}
            playing = [episode for episode in playing if not episode.is_over]
    return [episode.lines for episode in episodes]


def text_of(observation: Any) -> str:
    """Return the text of an observation; an environment may carry its admissible actions there already."""
    return str(observation["text"] if isinstance(observation, Mapping) else observation)


class EpisodeInPlay:
    """An episode that is being played: its environment, generator and context, and the lines of its steps.

    Args:
        number: Number of the episode.
        env_id: Id of the environment.
        seed: Seed of the episodes.
        env: Environment, not yet reset.
        spec: Fields that prompts show of the episode.
        group_size: Number of consecutive episodes that share a reset seed; each has a random generator of its own.
    """

    def __init__(
        self, number: int, env_id: str, seed: int, env: TextAction, spec: ContextSpec, group_size: int = 1
    ) -> None:
        self.group, member = divmod(number, group_size)
        self.reset_seed = reset_seed_of(env_id, seed, self.group)
        self.key: dict[str, Any] = {"env": env_id, "seed": seed, "episode": number}
        # As an agent of the benchmarks: the environment draws from [reset_seed].
        self.env, self.rng = env, np.random.default_rng([self.reset_seed, 1, member])
        observation, self.info = env.reset(seed=self.reset_seed)
        self.context = episode_context(spec).begun(text_of(observation))
        self.lines: Episode = []
        self.past: TokenIds = ()
        self.note = ""  # of the next step

    @property
    def question(self) -> Question:
        """Question before the next step."""
        question = question_of(self.context.text, admissible_actions_of(self.info), self.info, self.context)
        return question._replace(past=self.past)

    @property
    def is_over(self) -> bool:
        """Whether the last step ended the episode."""
        return bool(self.lines[-1]["terminated"] or self.lines[-1]["truncated"])

    def step(self, action: str) -> dict[str, Any]:
        """Take a step; return its line.

        Raises:
            EncodingError: If the action space cannot hold a listed action.
            RewardError: If the reward is no single finite number.
        """
        before, listed = self.context.text, self.info["admissible_actions"]
        if listed is not None:
            self.env.tokens.encode(action)  # else it would be an invalid action in silence
        observation, reward, terminated, truncated, self.info = self.env.step(action)
        self.context = self.context.after(action, text_of(observation))
        line = step_line(
            self.key,
            len(self.lines),
            observation=before,
            admissible_actions=listed,
            action=action,
            info=self.info,
            reward=finite_reward(reward, self.env.unwrapped),
            terminated=bool(terminated),
            truncated=bool(truncated),
            note=self.note,
        )
        self.lines.append(line)
        return line
