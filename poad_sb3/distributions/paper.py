"""`PaperDistribution`: samples whole candidates and optimises token probabilities, as the published code does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from poad_sb3.distributions.action_trie import Decision
from poad_sb3.distributions.base import DecisionRow, SampledAction, ScoreCache, TokenChoice, TokenPath
from poad_sb3.distributions.candidates import CandidateDistribution, mixture_edges
from poad_sb3.distributions.trie import TokenizedQuestion, scores_by_row
from poad_sb3.prompts import Question

__all__ = ["PaperDistribution"]


class PaperDistribution(CandidateDistribution):
    """TWOSOME's softmax to sample from, and the full-vocabulary probability of each token to optimise.

    The two differ, so it learns off-policy; it is here to reproduce the published code. Scored tokens have temperature
    1. The scores of a row hold, after those of its decisions, the log-probabilities of all tokens of its candidates.
    """

    def token_choices(
        self, question: Question, path: TokenPath, cache: ScoreCache, *, most: int = 8
    ) -> list[TokenChoice]:
        """Return nothing: the stored log-probabilities are not those of the choices."""
        return []

    def _path(self, tokenized: TokenizedQuestion, pick: int) -> TokenPath:
        action = tokenized.trie.sequences[pick]
        return TokenPath(tokenized.prompt, action, tuple(Decision(at, (), token) for at, token in enumerate(action)))

    def _row_scores(self, rows: Sequence[DecisionRow]) -> Iterable[NDArray[np.float32]]:
        hidden = self.lm.hidden_states([row.row for row in rows])
        token_log_probs = self.lm.child_log_probs(hidden, [ids for row in rows for ids in row.children])
        edges = mixture_edges([row.mixture for row in rows if row.mixture is not None], token_log_probs)
        n_tokens = np.cumsum([sum(map(len, row.children)) for row in rows[:-1]], dtype=np.int64)
        tokens = np.split(token_log_probs.cpu().numpy(), n_tokens)
        return map(np.concatenate, zip(scores_by_row(rows, edges), tokens, strict=True))

    def _sampled(
        self, text: str, tokenized: TokenizedQuestion, scores: NDArray[np.float32], pick: int
    ) -> SampledAction:
        path = self._path(tokenized, pick)
        if (mixture := tokenized.row.mixture) is not None:
            n_edges = len(mixture.below)
            return SampledAction(text, path, scores[n_edges:][list(mixture.token_edges[pick])])
        log_probs = torch.zeros(len(path.action), device=self.lm.base.device)
        for scored in self.evaluate([path]):  # the only action: without a score so far
            log_probs[scored.units] = scored.log_prob.detach()
        return SampledAction(text, path, self.lm.ranks.union(log_probs)[0].cpu().numpy())
