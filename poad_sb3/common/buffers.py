"""`TokenRolloutBuffer`: sampled actions, per token, without padding in memory."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.buffers import RolloutBuffer
from torch import Tensor

from poad_sb3.common.type_aliases import RolloutAction, TokenRolloutSamples, TokenValues
from poad_sb3.credit.estimators import TokenGAE
from poad_sb3.distributions.action_trie import TokenIds
from poad_sb3.distributions.base import SampledAction, TokenPath


class TokenRolloutBuffer(RolloutBuffer):
    """Rollout storage with ragged tokens and token-level credit.

    SB3's buffer stores dense arrays of fixed shape; this one keeps a list of `SampledAction` for each environment step,
    so memory follows the tokens there are.

    Args:
        buffer_size: Steps per environment; a rollout of whole episodes has as many as they take.
        observation_space: Kept for SB3; observations themselves are stored as token ids.
        action_space: Kept for SB3.
        device: Where minibatches go.
        n_envs: Parallel environments.
        estimator: Computes the advantages, and defines their units.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device | str = "auto",
        n_envs: int = 1,
        *,
        estimator: TokenGAE,
    ) -> None:
        # BaseBuffer.__init__ needs numeric shapes; text has none, so its few attributes are set here.
        self.buffer_size = buffer_size
        self.observation_space = observation_space
        self.action_space = action_space
        self.device = torch.device(device)
        self.n_envs = n_envs
        self.gamma, self.gae_lambda, self.estimator = estimator.gamma, estimator.gae_lambda, estimator
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.steps: list[list[SampledAction]] = []
        self.final_prompts: dict[tuple[int, int], TokenIds] = {}
        self._outcomes: list[tuple[NDArray[Any], ...]] = []
        self.pos, self.full = 0, False
        self._flat: TokenRolloutSamples | None = None
        self._offsets: NDArray[np.int64] = np.zeros(1, dtype=np.int64)

    def add(  # type: ignore[override]  # SB3's signature holds dense observations and actions
        self,
        steps: list[SampledAction],
        rewards: NDArray[np.floating],
        episode_ends: NDArray[np.bool_],
        final_prompts: Mapping[int, TokenIds],
        durations: NDArray[np.floating] | float = 1.0,
        counted: NDArray[np.bool_] | bool = True,
    ) -> None:
        """Store one step of every environment.

        Args:
            steps: The sampled action of each environment.
            rewards: `[n_envs]`.
            episode_ends: Whether the step ended an episode, for any reason, `[n_envs]`.
            final_prompts: For each environment whose episode a time limit cut, the prompt of the true final
                observation, whose value the step bootstraps from.
            durations: Time that each action took, `[n_envs]`; `gamma` discounts by its power.
            counted: Whether the step of each environment belongs to the rollout, `[n_envs]`. False for steps after the
                end of its episode, in a rollout of whole episodes; these are left out of the update.
        """
        counted = np.broadcast_to(counted, self.n_envs).copy()
        self.steps.append(steps)
        kept = (
            np.where(counted, rewards, 0.0),
            np.where(counted, durations, 1.0),
            np.where(counted, episode_ends, True),
        )
        self._outcomes.append((*kept, counted))
        self.final_prompts.update({(self.pos, env): prompt for env, prompt in final_prompts.items() if counted[env]})
        self.pos += 1
        self.full = self.pos == self.buffer_size

    def size(self) -> int:
        """Return the number of steps of each environment that are stored."""
        return self.pos

    def compute_returns_and_advantage(  # type: ignore[override]  # values come from one batched pass at the end
        self, evaluate: Callable[[Sequence[TokenPath]], TokenValues], last_prompts: Sequence[TokenIds]
    ) -> None:
        """Values, token advantages and returns of the full rollout.

        Acting needs no values, so they are computed here, for the whole rollout at once.

        Args:
            evaluate: The policy's `token_values`.
            last_prompts: Prompt after the last step, of each environment.
        """
        rewards, durations, episode_ends, counted = (np.array(rows) for rows in zip(*self._outcomes, strict=True))
        self.rewards, self.durations = rewards.astype(np.float64), durations.astype(np.float64)
        self.episode_ends, self.counted = episode_ends, counted
        self.full = True
        actions = [self.steps[step][env] for step, env in np.argwhere(counted)]
        n_units = [self.estimator.n_units(len(step.path.action)) for step in actions]
        valued = [step.path._replace(action=step.path.action[:n]) for step, n in zip(actions, n_units, strict=True)]
        ends = [TokenPath(prompt, (0,), ()) for prompt in (*last_prompts, *self.final_prompts.values())]
        known = evaluate([*valued, *ends])
        lengths, starts = np.ones(counted.shape, dtype=np.int64), np.zeros(counted.shape, dtype=np.int64)
        lengths[counted], starts[counted] = n_units, known.starts[: len(actions)]
        real = (np.arange(lengths.max()) < lengths[..., None]) & counted[..., None]
        feature_of = (starts[..., None] + np.arange(lengths.max()))[real]
        flat_values = known.values.cpu().numpy()
        values = np.zeros(real.shape, dtype=np.float64)
        values[real] = flat_values[feature_of]
        end_values = flat_values[known.starts[len(actions) :]]
        final_values = np.zeros(lengths.shape, dtype=np.float64)
        for place, value in zip(self.final_prompts, end_values[self.n_envs :], strict=True):
            final_values[place] = value
        advantages = self.estimator.advantages(
            self.rewards, values, lengths, self.episode_ends, end_values[: self.n_envs], final_values, self.durations
        )
        self._offsets = np.concatenate([[0], np.cumsum(n_units)]).astype(np.int64)
        decisions = [[decision.position for decision in step.path.decisions] for step in actions]
        is_decision = [
            self.estimator.is_decision(len(step.path.action), places)
            for step, places in zip(actions, decisions, strict=True)
        ]
        self._flat = TokenRolloutSamples(
            paths=[step.path for step in actions],
            is_decision=self._tensor(np.concatenate(is_decision)),
            old_log_prob=self._tensor(
                np.concatenate([self.estimator.unit_log_probs(step.log_probs) for step in actions])
            ),
            old_values=self._tensor(values[real]),
            advantages=self._tensor(advantages[real]),
            returns=self._tensor((advantages + values)[real]),
            feature_of=self._tensor(feature_of),
            features=known.features.to(self.device),
        )

    def get(self, batch_size: int | None = None, rng: np.random.Generator | None = None) -> Generator[Any, None, None]:
        """Minibatches of whole actions in random order.

        Args:
            batch_size: Actions in a minibatch; None for all at once. The last one may be smaller.
            rng: Source of the order.

        Yields:
            `TokenRolloutSamples`.

        Raises:
            RuntimeError: Before `compute_returns_and_advantage`.
        """
        flat = self.all_samples()
        n_actions = len(flat.paths)
        order = (rng or np.random.default_rng()).permutation(n_actions)
        size = n_actions if batch_size is None else batch_size
        for start in range(0, n_actions, size):
            yield self._minibatch(flat, order[start : start + size])

    def all_samples(self) -> TokenRolloutSamples:
        """Return the whole rollout in order. Minibatches are cut from these tensors: writing to them changes both.

        Raises:
            RuntimeError: Before `compute_returns_and_advantage`.
        """
        if self._flat is None:
            raise RuntimeError("Expected compute_returns_and_advantage() first. Fix: fill the buffer first.")
        return self._flat

    def values_and_returns(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Values at sampling and returns of every token, `[N]` each."""
        flat = self.all_samples()
        return flat.old_values.cpu().numpy(), flat.returns.cpu().numpy()

    def sampled_actions(self) -> Iterator[RolloutAction]:
        """Yield the actions of a full rollout, step by step, and of each step in the order of the environments.

        Raises:
            RuntimeError: Before `compute_returns_and_advantage`, and for a rollout restored from a checkpoint: it has
                the data of the update, but no rewards.
        """
        if self._flat is None or not self.steps:
            raise RuntimeError("Expected a rollout that was collected here. Fix: fill the buffer first.")
        names = ("old_values", "advantages", "returns")
        units = [np.split(getattr(self._flat, name).cpu().numpy(), self._offsets[1:-1]) for name in names]
        for (position, env), *credit in zip(np.argwhere(self.counted).tolist(), *units, strict=True):
            step, reward = self.steps[position][env], float(self.rewards[position, env])
            yield RolloutAction(position, env, step.path, reward, step.log_probs, *credit)

    def get_state(self) -> dict[str, Any]:
        """Return a full rollout as an update needs it, in plain picklable data."""
        flat = self.all_samples()
        arrays = {name: getattr(flat, name).cpu().numpy() for name in TokenRolloutSamples._fields[1:]}
        return {"paths": flat.paths, "offsets": self._offsets, "estimator": type(self.estimator).__name__, **arrays}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the state of `get_state`.

        Raises:
            ValueError: If its advantages are another estimator's.
        """
        estimator = type(self.estimator).__name__
        if state["estimator"] != estimator:
            raise ValueError(
                f"Expected a rollout whose advantages are {estimator}'s; got one of {state['estimator']}. "
                "Fix: load it as it was saved, or learn to the end of its rollout first."
            )
        tensors = {name: torch.from_numpy(state[name]).to(self.device) for name in TokenRolloutSamples._fields[1:]}
        self._flat = TokenRolloutSamples(paths=state["paths"], **tensors)
        self._offsets = state["offsets"]

    def _minibatch(self, flat: TokenRolloutSamples, picks: NDArray[np.integer]) -> TokenRolloutSamples:
        spans = [np.arange(self._offsets[pick], self._offsets[pick + 1]) for pick in picks]
        tokens = torch.from_numpy(np.concatenate(spans)).to(self.device)
        used, feature_of = torch.unique(flat.feature_of[tokens], return_inverse=True)
        return TokenRolloutSamples(
            paths=[flat.paths[pick] for pick in picks],
            is_decision=flat.is_decision[tokens],
            old_log_prob=flat.old_log_prob[tokens],
            old_values=flat.old_values[tokens],
            advantages=flat.advantages[tokens],
            returns=flat.returns[tokens],
            feature_of=feature_of,
            features=flat.features[used],
        )

    def _tensor(self, values: NDArray[Any]) -> Tensor:
        narrow = values.astype(np.float32) if values.dtype.kind == "f" else values
        return torch.from_numpy(narrow).to(self.device)
