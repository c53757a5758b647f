"""`RemoteDistribution`: free actions that another engine generates with the policy's weights."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import torch

from poad_sb3.credit.mismatch import CleanMismatch, measure_mismatch
from poad_sb3.distributions.base import TokenPath
from poad_sb3.distributions.free import FreeDistribution, generate
from poad_sb3.errors import ModelError
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.settings.sampling import SamplingSettings

__all__ = ["RemoteDistribution"]

_CALIBRATION = 64
"""Number of responses of the policy's own model that the clean mismatch is measured on."""


class RemoteDistribution(FreeDistribution):
    """Ordinary sampling by another engine; greedy decoding and scores by the policy's own model.

    Args:
        lm: Language model with an adapter.
        sampling: Sampling settings of the actions.
        option: Name of the setting that asks for the engine.

    Raises:
        ModelError: If there is no adapter to send, or several ranks.
    """

    samples_elsewhere = True

    def __init__(self, lm: LanguageModel, sampling: SamplingSettings, option: str) -> None:
        super().__init__(lm, sampling)
        if not hasattr(lm.network, "peft_config") or lm.ranks.size > 1:
            raise ModelError(
                f"Expected an adapter and one rank with {option}; got {lm.ranks.size} ranks and lora="
                f"{'an adapter' if hasattr(lm.network, 'peft_config') else None}. Fix: leave {option} out."
            )
        self._sent: tuple[tuple[int, int], ...] = ()
        self._version = 0
        self._clean: CleanMismatch | None = None

    def send_weights(self) -> None:
        """Give the engine the present weights of the adapter, unless it has them."""
        trained = [one for one in self.lm.network.parameters() if one.requires_grad]
        weights = tuple((one.data_ptr(), one._version) for one in trained)
        if weights != self._sent:
            self._send_weights(self._version + 1)
            self._sent, self._version = weights, self._version + 1

    @abstractmethod
    def _send_weights(self, version: int) -> None:
        """Give the engine the weights of the adapter.

        Args:
            version: Number of this upload, from 1.
        """

    @torch.no_grad()
    def clean_mismatch(self, paths: Sequence[TokenPath]) -> CleanMismatch:
        """Measure the mismatch of the policy's own decoding, once: 64 responses to the prompts of some paths."""
        if self._clean is None:
            prompts = [paths[number % len(paths)].prompt for number in range(_CALIBRATION)]
            uniforms = np.random.default_rng(0).random((len(prompts), self._sampling.max_new_tokens))
            own = generate(self.lm, prompts, self._sampling, uniforms)
            lengths = [len(one.path.decisions) for one in own]
            scored = torch.empty(sum(lengths))
            for part in self.evaluate([one.path for one in own]):
                scored[part.units.cpu()] = part.log_prob.float().cpu()
            self._clean = CleanMismatch.of(
                measure_mismatch(np.concatenate([one.log_probs for one in own]), scored, lengths)
            )
        return self._clean
