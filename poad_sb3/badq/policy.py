"""`BADQPolicy`: token Q-values on the frozen trunk, and acting by them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.type_aliases import Schedule
from torch import Tensor, nn

from poad_sb3.badq.targets import Backup, HardBackup, SoftBackup, SoftReference
from poad_sb3.badq.tree import QuestionTree, question_tree
from poad_sb3.common.policies import TextPolicy
from poad_sb3.credit.losses import segment_log_softmax
from poad_sb3.distributions import ActionDistribution
from poad_sb3.distributions.action_trie import sample_index
from poad_sb3.distributions.base import SampledAction, ScoreCache, TokenPath
from poad_sb3.distributions.sampling_check import require_agreement
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.language_model.value_network import FeatureWhitening, ValueNetwork
from poad_sb3.prompts import Question
from poad_sb3.settings import ModelSettings, unknown_setting
from poad_sb3.settings.fields import Choice, Count, Counts
from poad_sb3.settings.model import Check
from poad_sb3.vec_env.text_observations import parse_observation

MODEL_SETTINGS = (
    "model",
    "revision",
    "dtype",
    "quantization",
    "attn_implementation",
    "prompt",
    "max_tokens_per_forward",
    "check",
)
"""Fields of `ModelSettings` that apply to a frozen model."""


class KnownQuestion(NamedTuple):
    """A question with the frozen model's features of it.

    Attributes:
        tree: Tree of its decisions.
        features: Hidden state at the token of each edge, `[edges, hidden]`.
        log_reference: log pi_ref of each edge among those of its node, `[edges]`.
        node_of: Node of each edge, int64 `[edges]`.
    """

    tree: QuestionTree
    features: Tensor
    log_reference: Tensor
    node_of: Tensor


class QHeads(nn.Module):
    """Q(o, w_<=j) of features at token j: the head that learns and its delayed copy, behind one whitening.

    Args:
        width: Hidden size of the language model.
        arch: Widths of the hidden layers.
    """

    def __init__(self, width: int, arch: Sequence[int]) -> None:
        super().__init__()
        self.online = ValueNetwork(width, arch)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.target.whitening = self.online.whitening

    def forward(self, features: Tensor) -> Tensor:
        """Compute Q of features `[n, width]`, `[n]`."""
        values: Tensor = self.online(features)
        return values

    @torch.no_grad()
    def follow(self, tau: float) -> None:
        """Move the copy by a share `tau` of its distance; 1 makes it equal."""
        for target, online in zip(self.target.parameters(), self.online.parameters(), strict=True):
            target.lerp_(online, tau)


class QDistribution(ActionDistribution):
    """Action distribution along the trie, given by Q-values.

    Args:
        lm: Frozen language model.
        heads: Heads that give Q.
        backup: Backup whose policy is used.
        reference: Reference policy pi_ref of the soft backup.
        cache_size: Number of questions whose features are kept.
    """

    def __init__(
        self, lm: LanguageModel, heads: QHeads, backup: Backup, reference: SoftReference, cache_size: int
    ) -> None:
        super().__init__(lm)
        self.heads, self.backup, self._reference = heads, backup, reference
        self.known = lru_cache(cache_size)(self._know)

    def _know(self, question: Question) -> KnownQuestion:
        """Run one forward pass of the frozen model, for this question alone: a batch could change the last bits."""
        tree = question_tree(self.lm, question)
        features = self.lm.trunk_features([tree.row])[0]
        n_edges = len(tree.following)
        node_of = torch.tensor(tree.node_of, device=features.device)
        if self._reference == SoftReference.BASE:
            weights = self.lm.child_logits(features[n_edges:], tree.children, reference=True)
        else:
            weights = torch.tensor(tree.below, device=features.device).float().log()
        log_reference = segment_log_softmax(weights, node_of, len(tree.children))
        return KnownQuestion(tree, features[:n_edges].clone(), log_reference, node_of)

    @torch.no_grad()
    def action_log_probs(self, question: Question) -> NDArray[np.float64]:
        """Compute the log-probability of every action, `[n_actions]`."""
        tree, features, log_reference, node_of = self.known(question)
        q = self.heads(features)
        if not torch.isfinite(q).all():
            raise FloatingPointError(
                "Expected finite Q-values; got NaN or infinity. "
                "Fix: the head diverged; lower the learning rate and continue from a checkpoint."
            )
        edges = self.backup.log_policy(q, log_reference, node_of, len(tree.children)).cpu().double().numpy()
        return np.array([edges[list(path)].sum() for path in tree.paths])

    def pick(self, question: Question, rng: np.random.Generator | None, exploration_rate: float = 0.0) -> int:
        """Return the number of the chosen action.

        Args:
            question: Question to answer.
            rng: Random generator for sampling; None for the most probable action.
            exploration_rate: Probability of drawing an action uniformly instead.
        """
        if rng is not None and rng.random() < exploration_rate:
            return int(rng.integers(len(self.known(question).tree.paths)))
        return _pick(self.action_log_probs(question), rng)

    def sample(
        self, questions: Sequence[Question], rngs: Sequence[np.random.Generator], cache: ScoreCache
    ) -> list[SampledAction]:
        """See `ActionDistribution.sample`."""
        return self._choose(questions, rngs)

    def mode(self, questions: Sequence[Question], cache: ScoreCache) -> list[SampledAction]:
        """See `ActionDistribution.mode`."""
        return self._choose(questions, [None] * len(questions))

    def _choose(self, questions: Sequence[Question], rngs: Sequence[np.random.Generator | None]) -> list[SampledAction]:
        chosen = []
        for question, rng in zip(questions, rngs, strict=True):
            log_probs = self.action_log_probs(question)
            pick = _pick(log_probs, rng)
            text = (question.actions or ())[pick]
            tree = self.known(question).tree
            path = TokenPath(tree.prompt, tree.sequences[pick], ())
            chosen.append(SampledAction(text, path, log_probs[[pick]].astype(np.float32)))
        return chosen

    def lists_are_scored(self, question: Question) -> bool:
        """See `ActionDistribution.lists_are_scored`."""
        return True

    def probabilities(self, question: Question, cache: ScoreCache) -> dict[str, float]:
        """See `ActionDistribution.probabilities`; without exploration."""
        return dict(zip(question.actions or (), np.exp(self.action_log_probs(question)).tolist(), strict=True))


def _pick(log_probs: NDArray[np.float64], rng: np.random.Generator | None) -> int:
    return int(log_probs.argmax()) if rng is None else sample_index(log_probs, rng)


class BADQPolicy(TextPolicy):
    """A frozen language model with a head for token Q-values.

    Acting walks the trie of admissible actions: by the largest Q, or (`soft`) by
    pi(w | s) proportional to pi_ref(w | s) exp(Q(s, w) / beta).

    Args:
        observation_space: Observation space, see `TextPolicy`.
        action_space: Action space, see `TextPolicy`.
        lr_schedule: Learning-rate schedule of the head.
        use_sde: Accepted for SB3; must be False.
        critic_arch: Widths of the hidden layers of the head.
        cache_size: Number of questions whose features are kept; each takes hidden size x edges x 4 bytes.
        soft: Whether to use soft values and the soft policy (sBAD).
        beta: Temperature of sBAD.
        reference: Reference policy pi_ref of sBAD, see `SoftReference`.
        double_q: Whether to use double Q-learning, see `HardBackup`.
        device: Torch device for loading a quantised model.
        **settings: Fields of `ModelSettings` that apply to a frozen model.

    Raises:
        ModelError: If the model cannot be loaded or adapted.
        ValueError: If `cache_size` or `reference` is out of range.
        TypeError: If `critic_arch` is no sequence of positive integers.
    """

    settings_taken = MODEL_SETTINGS
    critic: QHeads
    distribution: QDistribution

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        lr_schedule: Schedule,
        use_sde: bool = False,
        *,
        critic_arch: Sequence[int] = (256, 256),
        cache_size: int = 4096,
        soft: bool = False,
        beta: float = 0.05,
        reference: SoftReference | str = SoftReference.BASE,
        double_q: bool = True,
        device: torch.device | str = "cpu",
        **settings: Any,
    ) -> None:
        Counts().check("critic_arch", critic_arch)
        Count().check("cache_size", cache_size)
        Choice(words=tuple(SoftReference)).check("reference", reference)
        for name in settings:
            if name not in MODEL_SETTINGS:
                raise unknown_setting(name, MODEL_SETTINGS, " of BADQPolicy")
        super().__init__(observation_space, action_space, use_sde)
        self._settings = {
            **{name: default for name, default in ModelSettings.defaults().items() if name in MODEL_SETTINGS},
            **settings,
            "critic_arch": tuple(critic_arch),
            "cache_size": cache_size,
            "soft": soft,
            "beta": beta,
            "reference": str(reference),
            "double_q": double_q,
        }
        self.lm = LanguageModel(**settings, device=device, is_trained=False)
        self.lm.to(device)
        require_agreement(self.lm, Check(self._settings["check"]))
        self.critic = QHeads(self.lm.hidden_size, critic_arch)
        self.critic_optimizer = torch.optim.Adam(self.critic.online.parameters(), lr=lr_schedule(1), eps=1e-5)
        backup: Backup = SoftBackup(beta) if soft else HardBackup(double=double_q)
        self.distribution = QDistribution(self.lm, self.critic, backup, SoftReference(reference), cache_size)
        self.seed(int(torch.randint(2**62, ())))

    @torch.no_grad()
    def explore(self, questions: Sequence[Question], exploration_rate: float) -> tuple[NDArray[np.int64], list[int]]:
        """Choose the actions of a training step.

        Args:
            questions: Question of each environment.
            exploration_rate: Probability of drawing an action uniformly.

        Returns:
            Environment actions `[n, max_length]`, and their numbers among the admissible ones.
        """
        rngs = self.rngs_of(len(questions))
        picks = [
            self.distribution.pick(question, rng, exploration_rate)
            for question, rng in zip(questions, rngs, strict=True)
        ]
        texts = [(question.actions or ())[pick] for question, pick in zip(questions, picks, strict=True)]
        return self._encode(texts, questions), picks

    def fit_whitening(self, questions: Sequence[Question]) -> None:
        """Whiten the features of these questions, replacing the previous whitening.

        Each question counts once. Weighted by visits, an agent that is stuck in one situation would turn the features
        of the remaining ones into outliers, and unlearn them.
        """
        fitted = FeatureWhitening(self.lm.hidden_size).to(self.device)
        fitted.observe(torch.cat([self.distribution.known(question).features for question in questions]))
        assert self.critic.online.whitening is not None
        self.critic.online.whitening.load_state_dict(fitted.state_dict())

    @torch.no_grad()
    def predict_values(self, observation: Any) -> Tensor:
        """Compute V of each observation by the present head, `[n]`."""
        values = []
        for question in parse_observation(observation)[0]:
            tree, features, log_reference, node_of = self.distribution.known(question)
            q = self.critic(features)
            values.append(self.distribution.backup.values(q, q, log_reference, node_of, len(tree.children))[:1])
        return torch.cat(values)
