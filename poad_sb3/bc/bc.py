"""`BC`: behaviour cloning of recorded episodes, and regression of the critic on their returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import nn

from poad_sb3.common.buffers import TokenRolloutBuffer
from poad_sb3.common.critics import Critic, StateCritic, TokenCritic
from poad_sb3.common.episodes import Episode, questions_of
from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
from poad_sb3.common.ppo_update import optimizer_step
from poad_sb3.common.rollout_types import TokenValues
from poad_sb3.distributions.action_trie import TokenIds
from poad_sb3.distributions.base import SampledAction, TokenPath
from poad_sb3.errors import ObservationError
from poad_sb3.settings.sampling import ActionSampling


class _Transition(NamedTuple):
    path: TokenPath
    reward: float
    duration: float
    is_last: bool


class BC:
    """Behaviour cloning (BC) of recorded episodes with the policy of an algorithm.

    The policy maximises the likelihood of the recorded actions under its own distribution, the one that the algorithm
    samples from. If it thinks, each action has a thought before it: the `note` of its step, with the mark that ends it.

    The critic, if there is one, then learns the discounted returns to go of the recorded rewards, discounted as the
    credit of the algorithm does: with `gamma_token=1` all tokens of an action have one target. It has optimisers of its
    own: those of the algorithm stay fresh, so that `algorithm.save` writes a checkpoint for reinforcement learning to
    start from.

    Args:
        algorithm: Algorithm with the policy to train; of any method.
        episodes: Episodes with recorded steps; see `recorded_episodes` and `oracle_episodes`.
        batch_size: Number of actions in a minibatch; that of the algorithm if None.
        learning_rate: Learning rate of the adapter; the algorithm's initial one if None.
        critic_learning_rate: Learning rate of the critic; the algorithm's initial one if None.
        seed: Seed of the order of the minibatches; that of the algorithm, or 0, if None.

    Raises:
        ObservationError: If there are no steps, a reward is not finite, or the policy could never take a recorded
            action.
    """

    def __init__(
        self,
        algorithm: LLMOnPolicyAlgorithm,
        episodes: Sequence[Episode],
        *,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        critic_learning_rate: float | None = None,
        seed: int | None = None,
    ) -> None:
        self.algorithm, self.policy = algorithm, algorithm.policy
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"Expected batch_size of at least 1; got {batch_size}. Fix: leave it out.")
        self.batch_size = batch_size or int(algorithm.batch_size)
        seed = (algorithm.seed or 0) if seed is None else seed
        self._rng, self._critic_rng = np.random.default_rng([seed, 3]), np.random.default_rng([seed, 4])
        self._transitions = [
            transition for episode in episodes if episode for transition in self._transitions_of(episode)
        ]
        if not self._transitions:
            raise ObservationError(
                f"Expected recorded steps to learn from; got {len(episodes)} episodes without any. "
                "Fix: pass oracle_episodes(env_id, 100), or recorded_episodes(path) of a file with steps."
            )
        rate = algorithm.lr_schedule(1) if learning_rate is None else learning_rate
        self._optimizer = torch.optim.AdamW(self.policy.adapter_parameters(), lr=rate, eps=1e-5, weight_decay=0.0)
        if self.policy.critic is not None:
            rate = algorithm.critic_lr_schedule(1) if critic_learning_rate is None else critic_learning_rate
            self._critic_optimizer = torch.optim.Adam(self.policy.critic.parameters(), lr=rate, eps=1e-5)

    def _transitions_of(self, episode: Episode) -> Iterator[_Transition]:
        smdp, spec = self.algorithm.smdp_discount, self.policy.lm.prompter.template.context_spec
        past: TokenIds = ()
        thinks, end = self.algorithm.action_sampling == ActionSampling.THINK, self.algorithm.thought_marks[1]
        for line, question in zip(episode, questions_of(episode, spec), strict=True):
            try:
                # The token at the end of a mark may have brought letters along, which are no part of the action.
                note = "".join(line.get("note", "").partition(end)[:2]) if thinks else ""
                path = self.policy.distribution.path(question._replace(past=past), note + line["action"])
                past = self.policy.past_after(path)
            except ObservationError as error:
                raise ObservationError(
                    f"Step {line['step']} of episode {line['episode']}, seed {line['seed']}, of {line['env']} cannot "
                    f"be cloned. {error}"
                ) from error
            if not math.isfinite(line["reward"]):
                raise ObservationError(
                    f"Expected finite rewards; got {line['reward']} in step {line['step']} of episode "
                    f"{line['episode']}, seed {line['seed']}, of {line['env']}. Fix: leave the episode out."
                )
            duration = float(line["moves"]) if smdp else 1.0
            yield _Transition(path, float(line["reward"]), duration, line is episode[-1])

    def train(
        self,
        n_epochs: int = 1,
        n_critic_epochs: int | None = None,
        on_epoch_end: Callable[[int, float], bool | None] | None = None,
    ) -> Self:
        """Fit the policy, then the critic.

        Args:
            n_epochs: Number of epochs of the policy.
            n_critic_epochs: Number of epochs of the critic; as many as `n_epochs` if None.
            on_epoch_end: Function called after each epoch of the policy with its number, from 1, and the mean negative
                log-likelihood of an action in it; the policy's training ends if it returns False.
        """
        self.policy.set_training_mode(False)  # a base model's own dropout would change the distribution
        for epoch in range(1, n_epochs + 1):
            order, total = self._rng.permutation(len(self._transitions)), 0.0
            for start in range(0, len(order), self.batch_size):
                picks = order[start : start + self.batch_size]
                total += self._policy_step([self._transitions[pick].path for pick in picks])
            goes_on = None if on_epoch_end is None else on_epoch_end(epoch, total / len(order))
            if goes_on is not None and not goes_on:
                break
        n_critic_epochs = n_epochs if n_critic_epochs is None else n_critic_epochs
        if self.policy.critic is not None and n_critic_epochs:
            self._fit_critic(self.policy.critic, n_critic_epochs)
        return self

    def _policy_step(self, paths: Sequence[TokenPath]) -> float:
        """Take a step of the adapter; return the sum of the negative log-likelihoods of the actions."""
        self._optimizer.zero_grad()
        total, lm = 0.0, self.policy.lm
        n = len(paths) * (lm.ranks.size if lm.is_sharded else 1)  # FSDP adds up the ranks' gradients: equal ones, here
        for part in self.policy.evaluate_actions(paths):
            loss = -part.log_prob.sum()
            (loss / n).backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        self._step(self._optimizer, self.policy.adapter_parameters(), "policy")
        return total

    def _fit_critic(self, critic: Critic, n_epochs: int) -> None:
        buffer = self._rollout(critic)
        if self.algorithm.normalize_value:
            flat = buffer.all_samples()
            critic.observe_returns(flat.targets[flat.has_target])
        for _ in range(n_epochs):
            for batch in buffer.get(self.batch_size, self._critic_rng):
                rows = batch.feature_of[batch.has_target]
                errors = critic.outputs(batch.features, batch.is_state)[rows] - batch.targets[batch.has_target]
                loss = (errors / critic.scale.deviation).square().mean()
                self._critic_optimizer.zero_grad()
                loss.backward()
                self._step(self._critic_optimizer, list(critic.parameters()), "critic")

    def _step(self, optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], name: str) -> None:
        optimizer_step(optimizer, parameters, self.algorithm.max_grad_norm, name)

    def _rollout(self, critic: Critic) -> TokenRolloutBuffer:
        """Return the episodes as one rollout whose returns are those of the rewards alone: values 0, lambdas 1.

        Of a critic with a network of states, that one learns, and sees the features of states alone; advantages of
        prefixes are those of a policy in training.
        """
        kind = TokenCritic if isinstance(critic, TokenCritic) else StateCritic
        credit = self.algorithm.credit.without_traces()
        spaces = self.policy.observation_space, self.policy.action_space
        buffer = TokenRolloutBuffer(len(self._transitions), *spaces, self.policy.device, estimator=credit, critic=kind)
        for transition in self._transitions:
            action = SampledAction("", transition.path, np.zeros(len(transition.path.action), dtype=np.float32))
            buffer.add([action], np.array([transition.reward]), np.array([transition.is_last]), {}, transition.duration)

        def without_values(*args: Any, **kwargs: Any) -> TokenValues:
            token_values = self.policy.token_values(*args, **kwargs)
            features, is_state = token_values.features, token_values.is_state
            if kind is StateCritic:
                features, is_state = features[is_state], is_state[is_state]
            critic.observe(features, is_state)
            zeros = [np.zeros_like(values) for values in token_values.values]
            return token_values._replace(outputs=torch.zeros_like(token_values.outputs), values=zeros)

        buffer.compute_returns_and_advantage(without_values, [self._transitions[-1].path.prompt])
        return buffer
