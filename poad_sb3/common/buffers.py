"""`TokenRolloutBuffer`: sampled actions, per token, without padding in memory."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.utils import get_device
from torch import Tensor

from poad_sb3.common.critics import Critic, TokenCritic
from poad_sb3.common.rollout_types import RolloutAction, TokenRolloutSamples, TokenValues
from poad_sb3.credit.estimators import GAE, Estimator, Rollout
from poad_sb3.credit.returns import episode_numbers
from poad_sb3.distributions.action_trie import TokenIds
from poad_sb3.distributions.base import NOT_ENCODED, SampledAction, TokenPath


class TokenRolloutBuffer(RolloutBuffer):
    """Rollout storage with ragged tokens and token-level credit.

    SB3's buffer stores dense arrays of fixed shape; this one keeps a list of `SampledAction` for each environment step,
    so memory follows the tokens there are.

    Args:
        buffer_size: Number of steps of each environment; a rollout of whole episodes has as many as they take.
        observation_space: Accepted for SB3; observations themselves are stored as token ids.
        action_space: Accepted for SB3.
        device: Torch device of minibatches.
        n_envs: Number of parallel environments.
        estimator: Estimator of the advantages.
        critic: Kind of critic, whose reads and targets are those of the rollout.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device | str = "auto",
        n_envs: int = 1,
        *,
        estimator: Estimator,
        critic: type[Critic] = TokenCritic,
    ) -> None:
        # BaseBuffer.__init__ needs numeric shapes; text has none, so its few attributes are set here.
        self.buffer_size = buffer_size
        self.observation_space = observation_space
        self.action_space = action_space
        self.device = get_device(device)
        self.n_envs = n_envs
        self.gamma, self.gae_lambda, self.estimator = estimator.gamma, estimator.gae_lambda, estimator
        self.critic = critic
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.steps: list[list[SampledAction]] = []
        self.final_prompts: dict[tuple[int, int], TokenIds] = {}
        self._states: dict[Hashable, int] = {}
        self._outcomes: list[tuple[NDArray[Any], ...]] = []
        self.pos, self.full = 0, False
        self.n_too_long = 0  # counted texts that the action space cannot hold
        self._flat: TokenRolloutSamples | None = None
        self._has_all_features = False
        self._offsets: NDArray[np.int64] = np.zeros(1, dtype=np.int64)

    def add(  # type: ignore[override]  # SB3's signature holds dense observations and actions
        self,
        steps: list[SampledAction],
        rewards: NDArray[np.floating],
        episode_ends: NDArray[np.bool_],
        final_prompts: Mapping[int, TokenIds],
        durations: NDArray[np.floating] | float = 1.0,
        counted: NDArray[np.bool_] | bool = True,
        groups: Sequence[int] | None = None,
        states: Sequence[Hashable] | None = None,
    ) -> None:
        """Store one step of every environment.

        Args:
            steps: Sampled action of each environment.
            rewards: Reward of each environment, `[n_envs]`.
            episode_ends: Whether the step ended an episode, for any reason, `[n_envs]`.
            final_prompts: Prompt of the true final observation, whose value the step bootstraps from, for each
                environment whose episode a time limit cut.
            durations: Time that each action took, `[n_envs]`; `gamma` discounts by its power.
            counted: Whether the step of each environment belongs to the rollout, `[n_envs]`. False for steps after the
                end of its episode, in a rollout of whole episodes; these are left out of the update.
            groups: Group of the episode of each environment; the same for all unless given.
            states: State that each action was chosen in; the same for all unless given.
        """
        counted = np.broadcast_to(counted, self.n_envs).copy()
        self.steps.append([step._replace(env_action=NOT_ENCODED) for step in steps])  # only the environment needs it
        kept = (
            np.where(counted, rewards, 0.0),
            np.where(counted, durations, 1.0),
            np.where(counted, episode_ends, True),
        )
        try:
            numbers = [self._states.setdefault(state, len(self._states)) for state in states or [None] * self.n_envs]
        except TypeError as error:
            raise TypeError(
                f"Expected state_key to return hashable values; got {states!r:.80}. Fix: a text or a number."
            ) from error
        self._outcomes.append((*kept, counted, np.array(groups or [0] * self.n_envs), np.array(numbers)))
        self.final_prompts.update({(self.pos, env): prompt for env, prompt in final_prompts.items() if counted[env]})
        self.pos += 1
        self.full = self.pos == self.buffer_size

    def size(self) -> int:
        """Return the number of steps of each environment that are stored."""
        return self.pos

    def compute_returns_and_advantage(  # type: ignore[override]  # values come from one batched pass at the end
        self,
        evaluate: Callable[..., TokenValues],
        last_prompts: Sequence[TokenIds],
        *,
        all_features: bool = False,
        drop_truncated: bool = False,
    ) -> None:
        """Compute values, token advantages and returns of the full rollout.

        Acting needs no values, so they are computed here, for the whole rollout at once.

        Args:
            evaluate: The policy's `token_values`; not called if no token needs a value or a feature.
            last_prompts: Prompt after the last step, of each environment.
            all_features: Whether to compute the features of all tokens, also of those without a value.
            drop_truncated: Whether to leave truncated episodes out of the policy's update.
        """
        columns = (np.array(rows) for rows in zip(*self._outcomes, strict=True))
        rewards, durations, self.episode_ends, self.counted, groups, states = columns
        self.rewards, self.durations = rewards.astype(np.float64), durations.astype(np.float64)
        self.full = True
        actions = [self.steps[step][env] for step, env in np.argwhere(self.counted)]
        paths = [action.path for action in actions]
        n_tokens = np.array([len(path.action) for path in paths])
        n_values = np.array([self.estimator.n_values(n) for n in n_tokens])
        self._has_all_features = all_features or (self.critic.reads_prefixes and bool((n_values == n_tokens).all()))
        self._offsets = np.concatenate([[0], np.cumsum(n_tokens)]).astype(np.int64)
        # Of each token: step and environment of its action, position in it, and row of its features.
        step, env = (np.repeat(index, n_tokens) for index in np.nonzero(self.counted))
        position = np.concatenate([np.arange(n) for n in n_tokens])
        token_values, last_values, final_values = self._evaluate(evaluate, paths, n_values, last_prompts, all_features)
        self._values = token_values.values
        learned = np.concatenate([self.critic.learned_reads(path, n) for path, n in zip(paths, n_values, strict=True)])
        has_target = learned >= 0
        read = np.where(has_target, learned, position if self._has_all_features else 0)
        feature_of = np.repeat(token_values.starts, n_tokens) + read
        old_outputs = np.zeros(len(position))
        old_outputs[has_target] = token_values.outputs.cpu().numpy()[feature_of[has_target]]

        is_decision = np.zeros(len(position), dtype=bool)
        for path, start in zip(paths, self._offsets, strict=False):
            is_decision[[start + decision.position for decision in path.decisions]] = True
        values = np.zeros((*self.counted.shape, int(n_values.max(initial=0))))
        decisions = np.zeros((*self.counted.shape, int(n_tokens.max())), dtype=bool)
        decisions[step, env, position] = is_decision
        has_value = position < np.repeat(n_values, n_tokens)
        values[step[has_value], env[has_value], position[has_value]] = np.concatenate(self._values)
        lengths = np.ones(self.counted.shape, dtype=np.int64)
        lengths[self.counted] = n_tokens
        thought_lengths = np.zeros_like(lengths)
        thought_lengths[self.counted] = [path.n_thought for path in paths]
        rollout = Rollout(
            rewards=self.rewards,
            lengths=lengths,
            episode_ends=self.episode_ends,
            counted=self.counted,
            values=values,
            last_values=last_values,
            final_values=final_values,
            durations=self.durations,
            groups=groups,
            states=states,
            decisions=decisions,
            thought_lengths=thought_lengths,
        )
        by_unit = self.estimator.advantages(rollout)
        advantages = by_unit[step, env, np.minimum(position, by_unit.shape[-1] - 1)]
        targets = np.zeros(len(position))
        if self.estimator.has_critic:
            if not isinstance(self.estimator, GAE):
                raise TypeError(
                    "Expected an estimator with a critic to derive from GAE, whose returns the critic learns; got "
                    f"{type(self.estimator).__name__}. Fix: class {type(self.estimator).__name__}(GAE)."
                )
            of_prefixes = self.critic.targets(self.estimator, rollout, by_unit)
            targets[has_target] = of_prefixes[step[has_target], env[has_target], position[has_target]]

        numbers = episode_numbers(self.episode_ends)
        truncated = {int(numbers[at]) for at in self.final_prompts}
        self.truncated_share = len(truncated) / max(1, len(np.unique(numbers[self.counted & self._is_whole()])))
        if drop_truncated:  # without decisions an action is neither scored nor a unit of the loss
            is_kept = ~np.isin(numbers[self.counted], [*truncated])
            paths = [path if kept else path._replace(decisions=()) for path, kept in zip(paths, is_kept, strict=True)]
            is_decision &= np.repeat(is_kept, n_tokens)
        self._flat = TokenRolloutSamples(
            paths=[path._replace(leaves=None) for path in paths],  # only values need them
            is_decision=self._tensor(is_decision),
            has_target=self._tensor(has_target),
            old_log_prob=self._tensor(np.concatenate([action.log_probs for action in actions])),
            old_outputs=self._tensor(old_outputs),
            advantages=self._tensor(advantages),
            targets=self._tensor(targets),
            episodes=self._tensor(np.unique(numbers[self.counted], return_inverse=True)[1]),
            feature_of=self._tensor(feature_of),
            features=token_values.features.to(self.device),
            is_state=token_values.is_state.to(self.device),
        )

    def _evaluate(
        self,
        evaluate: Callable[..., TokenValues],
        paths: Sequence[TokenPath],
        n_values: NDArray[np.integer],
        last_prompts: Sequence[TokenIds],
        all_features: bool,
    ) -> tuple[TokenValues, NDArray[np.float64], NDArray[np.float64]]:
        """Evaluate the first tokens of all actions, and the observations after them, in one batched pass.

        Returns:
            Features and values of the tokens; the value after the last step, `[n_envs]`; and that of each true final
            observation, 0 elsewhere, `[steps, n_envs]`.
        """
        last_values, final_values = np.zeros(self.n_envs), np.zeros(self.counted.shape)
        n = len(paths)
        if not n_values.any() and not all_features:
            nothing, starts = torch.zeros(0), np.zeros(n, dtype=np.int64)
            no_values = [np.zeros(0, dtype=np.float32)] * n
            return TokenValues(torch.zeros(0, 0), nothing.bool(), nothing, starts, no_values), last_values, final_values
        ends = [TokenPath(prompt, (0,), ()) for prompt in (*last_prompts, *self.final_prompts.values())]
        token_values = evaluate([*paths, *ends], [*n_values.tolist(), *[1] * len(ends)], all_features=all_features)
        if self.estimator.has_critic:
            end_values = [values[0] for values in token_values.values[n:]]
            last_values[:] = end_values[: self.n_envs]
            for at, value in zip(self.final_prompts, end_values[self.n_envs :], strict=True):
                final_values[at] = value
        of_paths = token_values._replace(starts=token_values.starts[:n], values=token_values.values[:n])
        return of_paths, last_values, final_values

    def get(
        self,
        batch_size: int | None = None,
        rng: np.random.Generator | None = None,
        *,
        whole_episodes: bool = False,
    ) -> Generator[Any, None, None]:
        """Yield minibatches of whole actions in random order.

        Args:
            batch_size: Number of actions in a minibatch; None for all at once. The last one may be smaller.
            rng: Random generator of the order.
            whole_episodes: Whether to keep the actions of an episode together; a minibatch is then the fewest episodes
                in random order that have `batch_size` actions.

        Yields:
            A `TokenRolloutSamples` for each minibatch.

        Raises:
            RuntimeError: If `compute_returns_and_advantage` has not been called.
        """
        flat = self.all_samples()
        n_actions = len(flat.paths)
        rng, size = rng or np.random.default_rng(), n_actions if batch_size is None else batch_size
        if whole_episodes:
            episodes = flat.episodes.cpu().numpy()
            waiting: list[int] = []
            for episode in rng.permutation(int(episodes.max()) + 1):
                waiting += np.flatnonzero(episodes == episode).tolist()
                if len(waiting) >= size:
                    yield self._minibatch(flat, np.array(waiting))
                    waiting = []
            if waiting:
                yield self._minibatch(flat, np.array(waiting))
            return
        order = rng.permutation(n_actions)
        for start in range(0, n_actions, size):
            yield self._minibatch(flat, order[start : start + size])

    def all_samples(self) -> TokenRolloutSamples:
        """Return the whole rollout in order. Minibatches are cut from these tensors: writing to them changes both.

        Raises:
            RuntimeError: If `compute_returns_and_advantage` has not been called.
        """
        if self._flat is None:
            raise RuntimeError("Expected compute_returns_and_advantage() first. Fix: fill the buffer first.")
        return self._flat

    def sampled_actions(self) -> Iterator[RolloutAction]:
        """Yield the actions of a full rollout, step by step, and of each step in the order of the environments.

        Raises:
            RuntimeError: If `compute_returns_and_advantage` has not been called, or the rollout was restored from a
                checkpoint: it has the data of the update, but no rewards.
        """
        if self._flat is None or not self.steps:
            raise RuntimeError("Expected a rollout that was collected here. Fix: fill the buffer first.")
        advantages = np.split(self._flat.advantages.cpu().numpy(), self._offsets[1:-1])
        places = np.argwhere(self.counted).tolist()
        for (step, env), values, of_tokens in zip(places, self._values, advantages, strict=True):
            action, reward = self.steps[step][env], float(self.rewards[step, env])
            credit = (values, of_tokens, of_tokens[: len(values)] + values)
            yield RolloutAction(step, env, action.path, reward, action.log_probs, *credit)

    def get_state(self) -> dict[str, Any]:
        """Return a full rollout as an update needs it, in plain picklable data."""
        flat = self.all_samples()
        arrays = {name: getattr(flat, name).cpu().numpy() for name in TokenRolloutSamples._fields[1:]}
        properties = {"estimator": self.estimator.described, "has_all_features": self._has_all_features}
        return {"paths": flat.paths, "offsets": self._offsets, **properties, **arrays}

    def set_state(self, state: dict[str, Any], *, all_features: bool = False) -> None:
        """Restore the state of `get_state`.

        Args:
            state: State of a full rollout.
            all_features: Whether the update needs the features of all tokens.

        Raises:
            ValueError: If the rollout is of another version or estimator, or features are missing.
        """
        if missing := {"paths", *TokenRolloutSamples._fields[1:]} - set(state):
            raise ValueError(
                f"Expected a rollout with {', '.join(sorted(missing))}; this one was saved by another version. "
                "Fix: load it with that version and learn to the end of its rollout first."
            )
        self._has_all_features = state.get("has_all_features", True)
        if all_features and not self._has_all_features:
            raise ValueError(
                "Expected a rollout with the features of all tokens, for kl_coef; got one without. "
                "Fix: load it with kl_coef=0 and learn to the end of its rollout first."
            )
        estimator = self.estimator.described
        if state["estimator"] != estimator:
            raise ValueError(
                f"Expected a rollout with advantages by {estimator}; got one by {state['estimator']}. "
                "Fix: load it as it was saved, or learn to the end of its rollout first."
            )
        tensors = {name: torch.from_numpy(state[name]).to(self.device) for name in TokenRolloutSamples._fields[1:]}
        self._flat = TokenRolloutSamples(paths=state["paths"], **tensors)
        self._offsets = state["offsets"]

    def _is_whole(self) -> NDArray[np.bool_]:
        """Return whether each step's episode has ended within the rollout, `[steps, envs]`."""
        return np.flip(np.maximum.accumulate(np.flip(self.episode_ends, 0), 0), 0)

    def _minibatch(self, flat: TokenRolloutSamples, picks: NDArray[np.integer]) -> TokenRolloutSamples:
        spans = [np.arange(self._offsets[pick], self._offsets[pick + 1]) for pick in picks]
        tokens = torch.from_numpy(np.concatenate(spans)).to(self.device)
        used, feature_of = torch.unique(flat.feature_of[tokens], return_inverse=True)
        return TokenRolloutSamples(
            paths=[flat.paths[pick] for pick in picks],
            is_decision=flat.is_decision[tokens],
            has_target=flat.has_target[tokens],
            old_log_prob=flat.old_log_prob[tokens],
            old_outputs=flat.old_outputs[tokens],
            advantages=flat.advantages[tokens],
            targets=flat.targets[tokens],
            episodes=flat.episodes[torch.from_numpy(picks).to(self.device)],
            feature_of=feature_of,
            features=flat.features[used] if len(flat.features) else flat.features,
            is_state=flat.is_state[used] if len(flat.features) else flat.is_state,
        )

    def _tensor(self, values: NDArray[Any]) -> Tensor:
        narrow = values.astype(np.float32) if values.dtype.kind == "f" else values
        return torch.from_numpy(narrow).to(self.device)
