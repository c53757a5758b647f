"""`TextPolicy`: SB3's policy interface for text; `LLMPolicy`: a trained language model with a token-level critic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import Schedule
from torch import Tensor, nn

from lang_envs import EncodingError, TokenSequence
from poad_sb3.common.critics import CRITICS, Critic, prefix_row
from poad_sb3.common.rollout_types import TokenValues
from poad_sb3.distributed.sharding import like
from poad_sb3.distributions import ActionDistribution, FreeDistribution, make_distribution
from poad_sb3.distributions.action_trie import TokenIds
from poad_sb3.distributions.base import ActionEvaluation, SampledAction, ScoreCache, TokenPath
from poad_sb3.distributions.sampling_check import require_agreement
from poad_sb3.errors import ObservationError
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.language_model.packing import TokenRow, moved
from poad_sb3.prompts import Question
from poad_sb3.settings import CreditSettings, ModelSettings, PPOSettings, SamplingSettings, split_settings
from poad_sb3.settings.credit import CriticKind
from poad_sb3.settings.model import Check
from poad_sb3.vec_env.text_observations import merge_admissible, parse_observation, without_lists


class TextPolicy(BasePolicy):
    """SB3's policy interface on text observations: a language model and a distribution over actions.

    Subclasses set `lm`, `distribution` and `critic`, and `_settings`, their constructor's keyword arguments.

    Args:
        observation_space: `Dict` of `text` and `admissible_actions`, and `context` if the prompt needs it.
        action_space: A `TokenSequence`.
        use_sde: Accepted for SB3; must be False.
    """

    observation_space: spaces.Dict
    action_space: TokenSequence
    settings_taken: ClassVar[tuple[str, ...]] = ()
    """Names of keyword arguments beside those of the constructor's signature."""
    lm: LanguageModel
    distribution: ActionDistribution
    _settings: dict[str, Any]

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], use_sde: bool) -> None:
        if use_sde:
            raise ValueError("Expected use_sde=False: token actions have no state-dependent noise. Fix: leave it out.")
        super().__init__(observation_space, action_space)
        # Rollout and prediction keep apart, so that evaluating in mid-training never changes the training.
        self._rollout_scores, self._predict_scores = ScoreCache([]), ScoreCache([])

    def seed(self, seed: int) -> None:
        """Seed the generators that sample actions: one of each environment for rollouts, one for `predict`."""
        self._rollout_seed = seed
        self.rollout_rngs: list[np.random.Generator] = []
        self.predict_rng = np.random.default_rng([seed, 1])

    def rngs_of(self, n_envs: int) -> list[np.random.Generator]:
        """Return the rollout generators of the first environments, made when they are first asked for.

        Each has its own, so that its draws do not depend on the other environments or on their timing.
        """
        for index in range(len(self.rollout_rngs), n_envs):
            self.rollout_rngs.append(np.random.default_rng([self._rollout_seed, 0, index]))
        return self.rollout_rngs[:n_envs]

    def _encode(self, texts: Sequence[str], questions: Sequence[Question]) -> NDArray[np.int64]:
        """Encode actions in the environment's tokens; a free text that these cannot hold becomes an invalid action.

        Raises:
            ObservationError: If the action space cannot hold an action that the environment lists.
        """
        encoded = []
        for text, question in zip(texts, questions, strict=True):
            try:
                encoded.append(self.action_space.encode(text))
            except EncodingError as error:
                if question.actions is not None and not isinstance(self.distribution, FreeDistribution):
                    raise ObservationError(
                        f"Expected admissible actions that the action space holds; got {text[:80]!r} ({error}). "
                        "Fix: make the environment with a larger max_action_length."
                    ) from error
                encoded.append(self.action_space.unfinished())
        return np.stack(encoded)

    def prompts(self, observation: Any, pasts: Sequence[TokenIds] = ()) -> list[TokenIds]:
        """Return the token ids of the prompt of each observation; see `act`."""
        return [self.distribution.prompt(question) for question in self._questions(observation, pasts)]

    def _questions(self, observation: Any, pasts: Sequence[TokenIds] = ()) -> list[Question]:
        questions = parse_observation(observation)[0]
        if not pasts:
            return questions
        return [question._replace(past=past) for question, past in zip(questions, pasts, strict=True)]

    def past_after(self, path: TokenPath) -> TokenIds:
        """Return the `Question.past` of the observation after an action; empty unless thoughts are kept."""
        return (*path.prompt, *path.action) if self.distribution.keeps_thoughts else ()

    def thought_of(self, action: SampledAction) -> str:
        """Return the text of the thought before an action, with the mark that ends it; empty without one."""
        return self.lm.prompter.action_text(action.path.action[: action.path.n_thought])

    def predict(
        self,
        observation: Any,
        state: tuple[NDArray[Any], ...] | None = None,
        episode_start: NDArray[np.bool_] | None = None,
        deterministic: bool = False,
        admissible_actions: Sequence[str] | Sequence[Sequence[str]] | None = None,
    ) -> tuple[NDArray[np.int64], tuple[NDArray[Any], ...] | None]:
        """Choose environment actions.

        Args:
            observation: One observation or a batch: `TextObservation`s, as `lang_envs` environments return; mappings of
                `text` and `admissible_actions`; or `str` together with `admissible_actions`.
            state: State that the last call returned; with `keep_thoughts` the episodes so far, else passed through.
            episode_start: Whether each episode has just begun, so that its state is left out.
            deterministic: Whether to choose the most probable admissible action instead of sampling.
            admissible_actions: List for a `str` observation, or one list for each of several; it replaces the list that
                an observation carries. A policy that samples freely needs none.

        Returns:
            Action tokens `[max_length]` (or `[n, max_length]`), and the new `state`.

        Raises:
            ObservationError: If the admissible actions are missing or malformed.
        """
        if isinstance(self.distribution, FreeDistribution) and admissible_actions is None:
            observation = without_lists(observation)
        observation = merge_admissible(observation, admissible_actions)
        if not self.distribution.keeps_thoughts:
            return super().predict(observation, state, episode_start, deterministic)
        self.set_training_mode(False)
        questions, is_batch = parse_observation(observation)
        if state is not None:
            begins = np.zeros(len(questions), dtype=bool) if episode_start is None else np.atleast_1d(episode_start)
            if not len(state[0]) == len(begins) == len(questions):
                raise ObservationError(
                    f"Expected state and episode_start of {len(questions)} observations; got {len(state[0])} and "
                    f"{len(begins)}. Fix: state=None for other environments."
                )
            pasts = [() if begin else past for past, begin in zip(state[0], begins, strict=True)]
            questions = self._questions(questions, pasts)
        chosen = self._chosen(questions, deterministic)
        new_pasts = np.empty(len(chosen), dtype=object)  # np.array would stack those of one length
        new_pasts[:] = [self.past_after(action.path) for action in chosen]
        actions = self._encode([action.text for action in chosen], questions)
        return (actions if is_batch else actions[0]), (new_pasts,)

    def obs_to_tensor(self, observation: Any) -> tuple[Any, bool]:
        """Return the observation itself, and whether it is a batch."""
        return parse_observation(observation)

    def is_vectorized_observation(self, observation: Any) -> bool:
        """Return whether the observation is a batch."""
        return parse_observation(observation)[1]

    def action_probabilities(
        self,
        observation: Any,
        admissible_actions: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """Compute the probability of every admissible action of one observation.

        Args:
            observation: A `str` with `admissible_actions`, or a mapping as `AdmissibleObservation` makes it, alone.
            admissible_actions: List for a `str` observation.
        """
        question = parse_observation(merge_admissible(observation, admissible_actions))[0][0]
        return self.distribution.probabilities(question, self._predict_scores)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """Return the state of adapter and critic, without the base model; that is named, and checked by fingerprint."""
        self.lm.use_parts()
        trainable = {name for name, parameter in self.named_parameters() if parameter.requires_grad}
        full = super().state_dict(*args, **kwargs)
        return {name: tensor for name, tensor in full.items() if name in trainable or name.startswith("critic.")}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load adapter and critic; on an error the policy is unchanged.

        Raises:
            RuntimeError: If a shape does not fit or, with `strict`, a name.
        """
        tensors = self.state_dict()
        unmatched = set(tensors) ^ set(state_dict) if strict else set()
        misshapen = {name for name in set(tensors) & set(state_dict) if tensors[name].shape != state_dict[name].shape}
        wrong = sorted(unmatched | misshapen)
        if wrong:
            raise RuntimeError(
                f"Expected the trainable tensors of this policy; {len(wrong)} differ, first {wrong[0]!r}. "
                "Fix: make the policy with the model, lora and critic_arch it was saved with."
            )
        placed = {
            name: like(tensor, tensors[name]) if name in tensors else tensor for name, tensor in state_dict.items()
        }
        return super().load_state_dict(placed, strict=False, assign=assign)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            "lr_schedule": self._dummy_schedule,
            **self._settings,
        }

    def _predict(self, observation: Any, deterministic: bool = False) -> Tensor:
        chosen = self._chosen(observation, deterministic)
        return torch.from_numpy(self._encode([action.text for action in chosen], observation))

    @torch.no_grad()
    def _chosen(self, questions: list[Question], deterministic: bool) -> list[SampledAction]:
        if deterministic:
            return self.distribution.mode(questions, self._predict_scores)
        return self.distribution.sample(questions, [self.predict_rng] * len(questions), self._predict_scores)


class LLMPolicy(TextPolicy):
    """Policy and critic around one language model.

    *Policy*: by default, at each node of the trie of admissible actions, the model's next-token distribution restricted
    to the node's children; for others see `ActionSampling`. *Critic*: an MLP on the hidden states of the frozen base
    model before each action token.

    Args:
        observation_space: `Dict` of `text` and `admissible_actions`, and `context` if the prompt needs it.
        action_space: A `TokenSequence`.
        lr_schedule: Learning-rate schedule of the adapter, as SB3 passes it.
        use_sde: Accepted for SB3; must be False.
        critic_lr_schedule: Learning-rate schedule of the critic; the adapter's if None.
        critic: Kind of the critic, see `CriticKind`; None for none, and no values.
        micro_batches: Number of parts that passes are split into; see `PPOSettings.micro_batches`.
        device: Torch device for loading a quantised model.
        **settings: Fields of `ModelSettings` and `SamplingSettings`; their default, range and help are documented
            there.

    Raises:
        ModelError: If the model cannot be loaded or adapted.
        ValueError: If a setting is out of range.
    """

    settings_taken = tuple(ModelSettings.defaults())

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        lr_schedule: Schedule,
        use_sde: bool = False,
        *,
        critic_lr_schedule: Schedule | None = None,
        critic: str | None = CriticKind.TOKEN,
        micro_batches: int = 1,
        device: torch.device | str = "cpu",
        **settings: Any,
    ) -> None:
        super().__init__(observation_space, action_space, use_sde)
        of_model, of_sampling = split_settings(settings, ModelSettings, SamplingSettings)
        model, sampling = ModelSettings(**of_model), SamplingSettings(**of_sampling)
        if critic is not None:
            CreditSettings.kinds()["critic"].check("critic", critic)
        PPOSettings.kinds()["micro_batches"].check("micro_batches", micro_batches)
        dtype = str(model.dtype).removeprefix("torch.")
        self._settings = {**of_model, **of_sampling, "dtype": dtype, "critic": critic}
        self._settings["micro_batches"] = micro_batches
        self.lm = LanguageModel(**{**of_model, "device": device}, micro_batches=micro_batches)
        self.check = Check(model.check)
        if model.fsdp:
            self.lm.shard(device)
        else:
            self.lm.to(device)  # agreement is measured by the kernels that will train
        require_agreement(self.lm, self.check)
        self.critic: Critic | None = None
        self.critic_optimizer: torch.optim.Adam | None = None
        self.optimizer = torch.optim.AdamW(self.adapter_parameters(), lr=lr_schedule(1), eps=1e-5, weight_decay=0.0)
        if self.lm.is_sharded:
            self.optimizer.register_load_state_dict_pre_hook(_divided)
        if critic is not None:
            self.critic = CRITICS[CriticKind(critic)](
                self.lm.hidden_size, model.critic_arch, whitening=model.critic_whitening, init=model.critic_init
            )
            critic_schedule = critic_lr_schedule or lr_schedule
            self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=critic_schedule(1), eps=1e-5)
        self.distribution: ActionDistribution = make_distribution(self.lm, sampling)
        self.distribution.records_leaves = self.critic is not None and self.critic.reads_leaves
        trained = self.adapter_parameters()
        self._rollout_scores, self._predict_scores = ScoreCache(trained), ScoreCache(trained)
        self.seed(int(torch.randint(2**62, ())))

    def adapter_parameters(self) -> list[nn.Parameter]:
        """Return the trainable weights of the language model."""
        self.lm.use_parts()
        return [parameter for parameter in self.lm.parameters() if parameter.requires_grad]

    def clear_caches(self) -> None:
        """Forget the rollout's scores; called at every rollout boundary, so that resuming finds the same state."""
        self._rollout_scores.clear()

    @torch.no_grad()
    def act(
        self,
        observation: Any,
        deterministic: bool = False,
        rngs: Sequence[np.random.Generator] | None = None,
        pasts: Sequence[TokenIds] = (),
    ) -> list[SampledAction]:
        """Sample an action for each environment, with all that the update needs.

        Args:
            observation: Batch of observations, as in `parse_observation`.
            deterministic: Whether to choose the most probable action instead of sampling.
            rngs: Random generator of each action; by default those of the first environments.
            pasts: `Question.past` of each observation, as `past_after` the action before gives it; none by default.
        """
        questions = self._questions(observation, pasts)
        # Scores that rank 0 alone knows would let it leave out a pass of all ranks.
        cache = self._predict_scores if self.lm.ranks.rank_zero_only else self._rollout_scores
        if deterministic:
            chosen = self.distribution.mode(questions, cache)
        else:
            chosen = self.distribution.sample(questions, rngs or self.rngs_of(len(questions)), cache)
        env_actions = self._encode([action.text for action in chosen], questions)
        return [action._replace(env_action=tokens) for action, tokens in zip(chosen, env_actions, strict=True)]

    def evaluate_actions(
        self, paths: Sequence[TokenPath], *, whole_actions: bool = False, base_features: Tensor | None = None
    ) -> Iterator[ActionEvaluation]:
        """Score sampled actions under the present weights, with gradient; see `ActionDistribution.evaluate`.

        SB3's method of this name returns values too; here the critic has passes and epochs of its own (`token_values`),
        and scores come chunk by chunk, so that memory follows `max_tokens_per_forward`.

        Args:
            paths: Sampled actions, as in `act(observation)[i].path`.
            whole_actions: Whether a unit of credit is a whole action instead of a decision.
            base_features: Frozen-trunk features before each decision, if divergences from the base are wanted.
        """
        return self.distribution.evaluate(paths, whole_actions=whole_actions, base_features=base_features)

    @torch.no_grad()
    def token_values(
        self,
        paths: Sequence[TokenPath],
        n_values: Sequence[int] | None = None,
        *,
        all_features: bool = False,
        observe: bool = False,
    ) -> TokenValues:
        """Compute features and values before action tokens of some paths; equal paths go through the model once.

        Without a critic all values are 0.

        Args:
            paths: Paths of prompts and actions.
            n_values: Number of tokens of each path, from the first on, before which to compute values; None for all.
            all_features: Whether to compute the features before all tokens, whether or not the critic reads them.
            observe: Whether to update the critic's whitening with these features first.
        """
        if n_values is None:
            n_values = [len(path.action) for path in paths]
        if self.critic is None or all_features:
            rows = [prefix_row(path, len(path.action)) for path in paths]
        else:
            rows = [self.critic.row(path, n) for path, n in zip(paths, n_values, strict=True)]
        starts: dict[TokenRow, int] = {}
        total = 0
        for row in rows:
            if row not in starts:
                starts[row] = total
                total += len(row.reads)
        features = torch.cat(self.lm.trunk_features(list(starts)))
        start_of = np.array([starts[row] for row in rows], dtype=np.int64)
        is_state = torch.zeros(len(features), dtype=torch.bool)
        is_state[[*starts.values()]] = True
        is_state = moved(is_state, features.device)
        if self.critic is None:
            values = [np.zeros(n, dtype=np.float32) for n in n_values]
            return TokenValues(features, is_state, features.new_zeros(len(features)), start_of, values)
        if observe:
            self.critic.observe(features, is_state)
        outputs = self.critic.outputs(features, is_state)
        on_host = outputs.cpu().numpy()
        values = [
            self.critic.values(path, n, on_host[start : start + len(row.reads)])
            for path, n, start, row in zip(paths, n_values, start_of, rows, strict=True)
        ]
        return TokenValues(features, is_state, outputs, start_of, values)

    def predict_values(self, observation: Any) -> Tensor:
        """Return the value of each observation before any action token, `[n]`; 0 without a critic."""
        if self.critic is None:
            return torch.zeros(len(parse_observation(observation)[0]), device=self.device)
        token_values = self.token_values([TokenPath(prompt, (0,), ()) for prompt in self.prompts(observation)])
        return torch.from_numpy(np.concatenate(token_values.values)).to(self.device)

    def forward(self, observation: Any, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Return actions `[n, max_length]`, state values `[n]` and log-probabilities of the whole actions `[n]`."""
        steps = self.act(observation, deterministic)
        actions = torch.from_numpy(np.stack([step.env_action for step in steps])).to(self.device)
        log_probs = torch.tensor([float(step.log_probs.sum()) for step in steps], device=self.device)
        return actions, self.predict_values(observation), log_probs


def _divided(optimizer: torch.optim.Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
    """Give the whole moments of a checkpoint the form of the sharded parameters."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state = {
        number: {
            name: like(value, parameters[number]) if isinstance(value, Tensor) else value
            for name, value in moments.items()
        }
        for number, moments in state_dict["state"].items()
    }
    return {**state_dict, "state": state}
