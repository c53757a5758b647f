"""The library's own training on `synthetic` or on a registered task; rollout and update can be run alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.callbacks import CallbackList
from stable_baselines3.common.vec_env import DummyVecEnv

from benchmarks.performance.careful_loop import Distribution, Sample, Workload
from benchmarks.performance.synthetic import SyntheticTask, TaskSizes, make_model
from poad_sb3 import POAD, TWOSOME
from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
from poad_sb3.distributions import free


class Setting(NamedTuple):
    """A workload, for our algorithm and for the plain loop.

    Attributes:
        algorithm: Algorithm of this library.
        arguments: Arguments of its constructor.
        sizes: Sizes of the task.
        workload: Workload of the plain loop.
        n_steps: Steps of each environment in a rollout.
        batch_size: Samples of a minibatch.
        n_epochs: Epochs of policy and critic.
        timed_samples: Samples of a minibatch for timing the plain loop: its time is linear in them here.
        n_envs: Number of environments.
        make_env: Function that makes an environment with listed actions, instead of the synthetic task.
        model: `model` of the policy instead of random weights.
    """

    algorithm: type[LLMOnPolicyAlgorithm]
    arguments: dict[str, Any]
    sizes: TaskSizes
    workload: Workload
    n_steps: int = 16
    batch_size: int = 64
    n_epochs: int = 5
    timed_samples: int = 64
    n_envs: int = 4
    make_env: Callable[[], gym.Env[Any, Any]] | None = None
    model: str | None = None


_CODE = TaskSizes(candidates=None, action=(72, 128))
SETTINGS = {
    "poad": Setting(POAD, {}, TaskSizes(), Workload(Distribution.TRIE)),
    "poad-published": Setting(
        POAD,
        {"action_sampling": "candidates", "paper_mode": True},
        TaskSizes(),
        Workload(Distribution.VOCABULARY),
    ),
    "twosome": Setting(TWOSOME, {}, TaskSizes(), Workload(Distribution.CANDIDATES), timed_samples=16),
    "code": Setting(
        POAD,
        {"action_sampling": "free", "max_new_tokens": 128},
        _CODE,
        Workload(Distribution.VOCABULARY, generates=True),
        n_steps=8,
        batch_size=8,
        n_epochs=1,
        timed_samples=8,
    ),
}
SETTINGS["code-16"] = SETTINGS["code"]._replace(n_envs=16, n_steps=2)
SETTINGS["smollm2"] = Setting(
    POAD,
    {"temperature": 4.0},  # at 1 it stays in few states, whose scores are cached
    TaskSizes(),
    Workload(Distribution.TRIE, temperature=4.0),
    n_steps=32,
    timed_samples=16,
    n_envs=8,
    make_env=partial(gym.make, "Overcooked-TomatoSalad-v0"),
    model="smollm2",
)


class PositionCounter:
    """Token positions that enter a model, padding included.

    Args:
        base: A transformers model.
    """

    def __init__(self, base: Any) -> None:
        self.forward = self.backward = 0
        base.get_input_embeddings().register_forward_pre_hook(self._count)

    def _count(self, module: object, args: tuple[torch.Tensor, ...]) -> None:
        n = args[0].numel()
        self.forward += n
        self.backward += n * torch.is_grad_enabled()

    def take(self) -> tuple[int, int]:
        """Return the positions counted since the last call, forward and backward."""
        counted, self.forward, self.backward = (self.forward, self.backward), 0, 0
        return counted


class ShownActions(gym.Wrapper[Any, Any, Any, Any]):
    """Remember the actions listed with each observation.

    Args:
        env: Environment; where any text is an action, no actions are remembered.

    Attributes:
        shown: Actions listed with each observation so far.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.shown: dict[str, tuple[str, ...]] = {}

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(**kwargs)
        self.shown[str(observation)] = tuple(info["admissible_actions"] or ())
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, *result, info = super().step(action)
        self.shown[str(observation)] = tuple(info["admissible_actions"] or ())
        return observation, *result, info


class OurLoop:
    """The library's own training; rollout and update can be run alone.

    Args:
        setting: Workload to run.
        vocabulary: Rows of embedding and head of a model with random weights.
        n_envs: Number of environments; that of the setting if None.
        changes: Arguments of the algorithm that replace those of the setting.
    """

    def __init__(self, setting: Setting, vocabulary: int = 2_000, n_envs: int | None = None, **changes: Any) -> None:
        sizes = {"n_steps": setting.n_steps, "batch_size": setting.batch_size, "n_epochs": setting.n_epochs}
        arguments = {**sizes, "n_critic_epochs": setting.n_epochs, **setting.arguments, **changes}
        of_policy = {"model": setting.model or partial(make_model, "6m", vocabulary)}
        rate = setting.workload.learning_rate
        self.setting = setting
        make_env = setting.make_env or partial(SyntheticTask, setting.sizes)
        envs = DummyVecEnv([lambda: ShownActions(make_env())] * (n_envs or setting.n_envs))
        self.model = setting.algorithm(
            "LLMPolicy", envs, learning_rate=rate, critic_learning_rate=rate, target_kl=None, seed=0,
            device="cpu", policy_kwargs=of_policy, **arguments,
        )  # fmt: skip
        _randomise(self.model)
        _, self._callback = self.model._setup_learn(10**9, CallbackList([]))
        self._script = np.random.default_rng(1)

    def rollout(self) -> None:
        """Fill the buffer."""
        model = self.model
        assert model.env is not None
        is_scripted = self.setting.workload.generates and self.setting.make_env is None
        with _scripted(self._action) if is_scripted else nullcontext():
            model.collect_rollouts(model.env, self._callback, model.rollout_buffer, model.n_steps)

    def update(self) -> None:
        """Run all epochs on the rollout."""
        self.model.train()

    def _action(self) -> list[int]:
        shortest, longest = self.setting.sizes.action
        words = self._script.integers(10, 800, self._script.integers(shortest - 1, longest))
        return [*map(int, words), self.model.policy.lm.end_token]

    def samples(self) -> list[Sample]:
        """Return the rollout in the form of the plain loop."""
        buffer, listed = self.model.rollout_buffer, {} if self.setting.workload.generates else self._listed()
        flat, samples = buffer.all_samples(), []
        for number, path in enumerate(flat.paths):
            units = slice(int(buffer._offsets[number]), int(buffer._offsets[number + 1]))
            chosen = flat.is_decision[units]
            candidates, divisors = listed.get(path.prompt, ((path.action,), (1.0,)))
            learned = flat.has_target[units]
            old_log_prob, advantages = flat.old_log_prob[units][chosen], flat.advantages[units][chosen]
            if self.setting.workload.distribution == Distribution.CANDIDATES:
                old_log_prob, advantages = old_log_prob.sum()[None], advantages[:1]  # those of the whole action
            of_policy, of_critic = (
                (old_log_prob, advantages),
                (flat.old_outputs[units][learned], flat.targets[units][learned]),
            )
            pick = candidates.index(path.action)
            samples.append(Sample(path.prompt, candidates, divisors, pick, path.decisions, *of_policy, *of_critic))
        return samples

    def _listed(self) -> dict[tuple[int, ...], tuple[tuple[tuple[int, ...], ...], tuple[float, ...]]]:
        """Return the candidates and their N(a) after each prompt that lists some."""
        assert self.model.env is not None
        lm = self.model.policy.lm
        return {
            lm.prompt_ids(text): (
                tuple(map(lm.action_ids, actions)),
                tuple(float(len(action.split())) for action in actions),
            )
            for shown in self.model.env.get_attr("shown")
            for text, actions in shown.items()
            if actions
        }


def _randomise(model: LLMOnPolicyAlgorithm) -> None:
    """Randomise adapter and critic: a fresh adapter is the identity, a fresh critic is 0, and errors would not show."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.policy.named_parameters():
            if "lora_B" in name or (name.startswith("critic.") and not parameter.any()):
                parameter.copy_(0.05 * torch.randn(parameter.shape, generator=generator))


@contextmanager
def _scripted(write: Callable[[], list[int]]) -> Iterator[None]:
    """Replace sampled texts by given ones after the draw: texts of a random model would have any length."""
    scripts: dict[tuple[int, ...], list[int]] = {}

    def take(batch: Any, waiting: Sequence[int], support: Any, uniforms: Any) -> None:
        drawn, _ = generation_draw(support, uniforms)
        tokens = []
        for index in waiting:
            script = scripts.setdefault(batch._prompts[index], write() if not batch._tokens[index] else [])
            tokens.append(script[len(batch._tokens[index])])
        given = torch.tensor(tokens, device=drawn.device)
        forced = given, support.log_probs.gather(-1, given[:, None])[:, 0]
        with patch.object(free, "draw", lambda *_: forced):
            original(batch, waiting, support, uniforms)

    original, generation_draw = free._Batch._take, free.draw
    with patch.object(free._Batch, "_take", take):
        yield
