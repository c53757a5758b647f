"""`LLMPolicy`: a language model that chooses among admissible actions, with a token-level critic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import Schedule
from torch import Tensor, nn

from lang_envs import EncodingError, TokenSequence
from poad_sb3.agreement import require_agreement
from poad_sb3.candidates import TokenIds
from poad_sb3.choosers import ActionSampling, FreeChooser, make_chooser
from poad_sb3.critic import TokenCritic
from poad_sb3.errors import ObservationError
from poad_sb3.generation import Limits
from poad_sb3.lm import DEFAULT_LORA, Check, CriticTrunk, LanguageModel, TokenRow
from poad_sb3.models.sources import ModelFactory
from poad_sb3.observations import merge_admissible, parse_observation, without_lists
from poad_sb3.paths import TokenPath
from poad_sb3.prompts import PromptSpec
from poad_sb3.rollouts import ActionStep, TokenValues
from poad_sb3.rows import Normalization, ScoreCache, value_row
from poad_sb3.sampling import TokenSampling

__all__ = ["MODEL_SETTINGS", "LLMPolicy"]

MODEL_SETTINGS = (
    "model",
    "revision",
    "lora",
    "dtype",
    "quantization",
    "attn_implementation",
    "prompt",
    "max_tokens_per_forward",
    "check",
)
"""Arguments that say which language model it is and how it reads, for every kind of policy."""


class LLMPolicy(BasePolicy):
    """Policy and critic around one language model.

    *Policy*: by default, at each node of the trie of admissible actions, the model's next-token distribution restricted
    to the node's children; other ways to act are those of `ActionSampling`. *Critic*: an MLP on the hidden states of
    the frozen base model before each action token.

    Args:
        observation_space: `Dict` of `text` and `admissible_actions`, with `context` where the prompt needs it.
        action_space: A `TokenSequence`.
        lr_schedule: Learning rate of the adapter, as SB3 passes it.
        use_sde: Accepted for SB3; must be False.
        model: `"pocket"` or `"pocket-coder"`, a folder, a hub id, or a function that makes model and tokenizer; see
            `LanguageModel`.
        revision: Revision on the hub.
        lora: Changes to the default LoRA settings; None to train all weights.
        dtype: Of the base weights, `"float32"` or `"bfloat16"`.
        quantization: `"8bit"`, `"4bit"` or None; see `LanguageModel`.
        attn_implementation: As transformers calls them.
        gradient_checkpointing: Less memory for a third more time; see `LanguageModel`.
        critic_trunk: `"frozen"` or `"live"`; see `CriticTrunk`.
        prompt: `"auto"`, `"completion"`, `"chat"`, `"fim"`, or one of these with settings; see `prompt_template`.
        critic_arch: Hidden widths of the critic (the paper's by default).
        critic_lr_schedule: Learning rate of the critic; the adapter's if None.
        max_tokens_per_forward: See `LanguageModel`.
        check: `"error"`: refuse an architecture whose update does not reproduce its own sampling; `"warn"`: train it.
        action_sampling: How an action is sampled, see `ActionSampling`.
        candidate_normalization: N(a) of `"candidates"`, see `Normalization`.
        paper_mode: See `CandidateChooser`.
        max_new_tokens: Of a free action, end token included.
        temperature: Of free sampling; see `TokenSampling`.
        top_k: Likewise.
        top_p: Likewise.
        stop: Texts that end a free action.
        device: Where a quantised model is loaded.

    Raises:
        ModelError: If the model cannot be loaded or adapted.
    """

    observation_space: spaces.Dict
    action_space: TokenSequence

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        lr_schedule: Schedule,
        use_sde: bool = False,
        *,
        model: str | ModelFactory = "pocket",
        revision: str | None = None,
        lora: Mapping[str, Any] | None = DEFAULT_LORA,
        dtype: str | torch.dtype = "float32",
        quantization: str | Mapping[str, Any] | None = None,
        attn_implementation: str | None = None,
        gradient_checkpointing: bool = False,
        critic_trunk: CriticTrunk | str = CriticTrunk.FROZEN,
        prompt: PromptSpec = "auto",
        critic_arch: Sequence[int] = (1024, 512),
        critic_lr_schedule: Schedule | None = None,
        max_tokens_per_forward: int = 1024,
        check: Check | str = Check.ERROR,
        action_sampling: ActionSampling | str = ActionSampling.TRIE,
        candidate_normalization: Normalization | str = Normalization.WORD,
        paper_mode: bool = False,
        max_new_tokens: int = 128,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        stop: Sequence[str] = (),
        device: torch.device | str = "cpu",
    ) -> None:
        if use_sde:
            raise ValueError("Expected use_sde=False: token actions have no state-dependent noise. Fix: leave it out.")
        if not isinstance(lora, Mapping | None):
            raise TypeError(f'Expected lora to be a dict or None; got {lora!r:.80}. Fix: lora={{"r": 8}}.')
        super().__init__(observation_space, action_space)
        of_model: dict[str, Any] = {
            "model": model,
            "revision": revision,
            "lora": None if lora is None else dict(lora),
            "dtype": str(dtype).removeprefix("torch."),
            "quantization": quantization,
            "attn_implementation": attn_implementation,
            "gradient_checkpointing": gradient_checkpointing,
            "critic_trunk": str(critic_trunk),
            "prompt": prompt,
            "max_tokens_per_forward": max_tokens_per_forward,
            "check": str(check),
        }
        self._settings = {
            **of_model,
            "critic_arch": tuple(critic_arch),
            "action_sampling": str(action_sampling),
            "candidate_normalization": str(candidate_normalization),
            "paper_mode": paper_mode,
            "max_new_tokens": max_new_tokens,
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "stop": tuple(stop),
        }
        self.lm = LanguageModel(**of_model, device=device)
        self.check = Check(check)
        self.lm.to(device)  # agreement is measured by the kernels that will train
        require_agreement(self.lm, self.check)
        self.critic = TokenCritic(self.lm.hidden_size, critic_arch)
        self.optimizer = torch.optim.AdamW(self.adapter_parameters(), lr=lr_schedule(1), eps=1e-5, weight_decay=0.0)
        critic_schedule = critic_lr_schedule or lr_schedule
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=critic_schedule(1), eps=1e-5)
        self.chooser = make_chooser(
            self.lm,
            action_sampling,
            candidate_normalization,
            paper_mode=paper_mode,
            limits=Limits(max_new_tokens, tuple(stop)),
            drawn_by=TokenSampling(temperature, top_k, top_p),
        )
        # Rollout and prediction keep apart, so that evaluating in mid-training never changes the training.
        self._rollout_scores, self._predict_scores = (
            ScoreCache(self.adapter_parameters()),
            ScoreCache(self.adapter_parameters()),
        )
        self.seed(int(torch.randint(2**62, ())))

    # ------------------------------------------------------------------ what a trainer needs

    def adapter_parameters(self) -> list[nn.Parameter]:
        """The trainable weights of the language model."""
        return [parameter for parameter in self.lm.parameters() if parameter.requires_grad]

    def seed(self, seed: int) -> None:
        """Seed the generators that sample actions: one of each environment for rollouts, one for `predict`."""
        self._rollout_seed = seed
        self.rollout_rngs: list[np.random.Generator] = []
        self.predict_rng = np.random.default_rng([seed, 1])

    def rngs_of(self, n_envs: int) -> list[np.random.Generator]:
        """The rollout generators of the first environments, made when they are first asked for.

        Each has its own, so that what is drawn for it does not depend on which others are acted for, and when.
        """
        for index in range(len(self.rollout_rngs), n_envs):
            self.rollout_rngs.append(np.random.default_rng([self._rollout_seed, 0, index]))
        return self.rollout_rngs[:n_envs]

    def clear_caches(self) -> None:
        """Forget the rollout's scores; called at every rollout boundary, so that resuming finds the same state."""
        self._rollout_scores.clear()

    @torch.no_grad()
    def act(
        self,
        observation: Any,  # noqa: ANN401 - see below
        deterministic: bool = False,
        rngs: Sequence[np.random.Generator] | None = None,
    ) -> list[ActionStep]:
        """Choose an action for each environment, with all that the update needs.

        Args:
            observation: Batch as in `parse_observation`.
            deterministic: The most probable action instead of a sample.
            rngs: What to sample each action with; those of the first environments unless given.
        """
        questions = parse_observation(observation)[0]
        drawn_by = None if deterministic else rngs or self.rngs_of(len(questions))
        chosen = self.chooser.choose(questions, drawn_by, self._rollout_scores)
        return [ActionStep(self._encode(one.text), one.path, one.log_probs) for one in chosen]

    def _encode(self, text: str) -> NDArray[np.int64]:
        """The environment's tokens of an action; a free text that they cannot hold is one that it will not know.

        Raises:
            ObservationError: For an action that the environment lists.
        """
        try:
            return self.action_space.encode(text)
        except EncodingError as error:
            if isinstance(self.chooser, FreeChooser):
                return self.action_space.unfinished()
            raise ObservationError(
                f"Expected admissible actions that the action space holds; got {text[:80]!r} ({error}). "
                "Fix: make the environment with a larger max_action_length."
            ) from error

    @torch.no_grad()
    def token_values(self, paths: Sequence[TokenPath], *, observe: bool = False) -> TokenValues:
        """Features and values before each action token of some paths; equal paths go through the model once.

        Args:
            paths: Prompts and actions.
            observe: Let the critic take these features into its whitening first.
        """
        starts: dict[TokenRow, int] = {}
        total = 0
        for row in (value_row(path) for path in paths):
            if row not in starts:
                starts[row] = total
                total += len(row.reads)
        features = torch.cat(self.lm.trunk_features(list(starts)))
        if observe:
            self.critic.observe(features)
        places = np.array([starts[value_row(path)] for path in paths], dtype=np.int64)
        return TokenValues(features, self.critic(features), places)

    def prompts(self, observation: Any) -> list[TokenIds]:  # noqa: ANN401 - see parse_observation
        """Token ids of the prompt of each observation."""
        return [self.chooser.prompt(question) for question in parse_observation(observation)[0]]

    def predict_values(self, observation: Any) -> Tensor:  # noqa: ANN401 - see parse_observation
        """Value of each observation before any action token, `[n]`."""
        return self.token_values([TokenPath(prompt, (0,), ()) for prompt in self.prompts(observation)]).values

    # ------------------------------------------------------------------ SB3's interface

    def forward(self, observation: Any, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ANN401
        """Actions `[n, max_length]`, state values `[n]` and log-probabilities of the whole actions `[n]`."""
        steps = self.act(observation, deterministic)
        actions = torch.from_numpy(np.stack([step.env_action for step in steps]))
        values = self.predict_values(observation)
        return actions, values, torch.tensor([float(step.log_probs.sum()) for step in steps])

    def predict(
        self,
        observation: Any,  # noqa: ANN401 - checked in parse_observation
        state: tuple[NDArray[Any], ...] | None = None,
        episode_start: NDArray[np.bool_] | None = None,
        deterministic: bool = False,
        admissible_actions: Sequence[str] | Sequence[Sequence[str]] | None = None,
    ) -> tuple[NDArray[np.int64], tuple[NDArray[Any], ...] | None]:
        """Choose environment actions.

        Args:
            observation: One or a batch of: `TextObservation`s, as `lang_envs` environments return; mappings of `text`
                and `admissible_actions`; or `str` together with `admissible_actions`.
            state: Passed through; the policy has no memory.
            episode_start: Ignored, for the same reason.
            deterministic: The most probable admissible action instead of a sample.
            admissible_actions: The list beside a `str`, or one list for each of several; it replaces the list that an
                observation carries. A policy that samples freely needs none.

        Returns:
            Action tokens `[max_length]` (or `[n, max_length]`), and `state`.

        Raises:
            ObservationError: If the admissible actions are missing or malformed.
        """
        if isinstance(self.chooser, FreeChooser) and admissible_actions is None:
            observation = without_lists(observation)
        observation = merge_admissible(observation, admissible_actions)
        return super().predict(observation, state, episode_start, deterministic)

    def obs_to_tensor(self, observation: Any) -> tuple[Any, bool]:  # noqa: ANN401 - text has no tensor
        """The observation itself, and whether it is a batch."""
        return parse_observation(observation)

    def is_vectorized_observation(self, observation: Any) -> bool:  # noqa: ANN401 - signature of SB3
        """Whether the observation is a batch."""
        return parse_observation(observation)[1]

    def action_probabilities(
        self,
        observation: Any,  # noqa: ANN401 - checked in parse_observation
        admissible_actions: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """Probability of every admissible action of one observation.

        Args:
            observation: A `str` with `admissible_actions`, or a mapping as `AdmissibleObservation` makes it, alone.
            admissible_actions: The list beside a `str`.
        """
        question = parse_observation(merge_admissible(observation, admissible_actions))[0][0]
        return self.chooser.probabilities(question, self._predict_scores)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]  # noqa: ANN401
        """Adapter and critic. The base model is not among them; it is named, and checked by fingerprint."""
        trainable = {name for name, parameter in self.named_parameters() if parameter.requires_grad}
        full = super().state_dict(*args, **kwargs)
        return {name: tensor for name, tensor in full.items() if name in trainable or name.startswith("critic.")}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:  # noqa: ANN401
        """Load adapter and critic; on an error nothing has changed.

        Raises:
            RuntimeError: If a shape does not fit or, with `strict`, a name.
        """
        own = self.state_dict()
        unmatched = set(own) ^ set(state_dict) if strict else set()
        misshapen = {name for name in set(own) & set(state_dict) if own[name].shape != state_dict[name].shape}
        wrong = sorted(unmatched | misshapen)
        if wrong:
            raise RuntimeError(
                f"Expected the trainable tensors of this policy; {len(wrong)} differ, first {wrong[0]!r}. "
                "Fix: make the policy with the model, lora and critic_arch it was saved with."
            )
        return super().load_state_dict(state_dict, strict=False, assign=assign)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            "lr_schedule": self._dummy_schedule,
            **self._settings,
        }

    def _predict(self, observation: Any, deterministic: bool = False) -> Tensor:  # noqa: ANN401 - list of Question
        rngs = None if deterministic else [self.predict_rng] * len(observation)
        with torch.no_grad():
            chosen = self.chooser.choose(observation, rngs, self._predict_scores)
        return torch.from_numpy(np.stack([self._encode(one.text) for one in chosen]))
