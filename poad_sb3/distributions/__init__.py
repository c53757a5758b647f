"""Action distributions over tokens: for each kind of action space one object that samples and scores."""

from __future__ import annotations

from poad_sb3.distributions.base import ActionDistribution
from poad_sb3.distributions.candidates import CandidateDistribution
from poad_sb3.distributions.endpoint import EndpointDistribution
from poad_sb3.distributions.free import FreeDistribution
from poad_sb3.distributions.paper import PaperDistribution
from poad_sb3.distributions.think import ThinkDistribution
from poad_sb3.distributions.trie import TrieDistribution
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.settings.sampling import ActionSampling, Normalization, SamplingSettings

__all__ = [
    "ActionDistribution",
    "CandidateDistribution",
    "EndpointDistribution",
    "FreeDistribution",
    "PaperDistribution",
    "ThinkDistribution",
    "TrieDistribution",
    "make_distribution",
]


def make_distribution(lm: LanguageModel, sampling: SamplingSettings) -> ActionDistribution:
    """Create the distribution of `action_sampling`; `"auto"` is the trie."""
    if sampling.action_sampling == ActionSampling.FREE:
        if sampling.generation_endpoint is not None:
            return EndpointDistribution(lm, sampling)
        return FreeDistribution(lm, sampling)
    if sampling.action_sampling == ActionSampling.CANDIDATES:
        normalization = Normalization(sampling.candidate_normalization)
        candidates = PaperDistribution if sampling.paper_mode else CandidateDistribution
        return candidates(lm, normalization, float(sampling.temperature))
    if sampling.action_sampling == ActionSampling.THINK:
        return ThinkDistribution(lm, sampling)
    return TrieDistribution(lm, float(sampling.temperature))
