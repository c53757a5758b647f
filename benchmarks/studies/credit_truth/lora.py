"""The pocket model as the policy of a finite problem; its parameters are the last LoRA matrices.

In float64 on the CPU, but for the normalisation layers (transformers computes them in float32). The logits of a problem
are functions of these parameters, so the gradient of anything is its gradient with respect to the logits, times the
Jacobian of the logits: computed once, by automatic differentiation.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.exact.gradients import Floats, policy_gradients
from benchmarks.studies.credit_truth.problems import Problem
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.language_model.packing import TokenRow
from poad_sb3.prompts import Question

_SEED = 0


class _Node(NamedTuple):
    """A branch point: the row of tokens before it, the next tokens, and the numbers of their logits."""

    row: TokenRow
    tokens: tuple[int, ...]
    logits: tuple[int, ...]


class PocketPolicy:
    """The pocket model with an adapter, whose matrices in the last layer are trained.

    Args:
        problem: Problem with texts, and one logit for each observation, prefix and token.
    """

    def __init__(self, problem: Problem) -> None:
        torch.manual_seed(_SEED)
        self.problem = problem
        self.lm = LanguageModel("pocket").double()
        named = [(name, one) for name, one in self.lm.network.named_parameters() if one.requires_grad]
        layers = {name: int(name.split(".layers.")[1].split(".")[0]) for name, _ in named}
        last = max(layers.values())
        for name, one in named:
            one.requires_grad_(layers[name] == last)
        self.parameters = [one for name, one in named if layers[name] == last]
        self.nodes = self._nodes()

    def _nodes(self) -> list[_Node]:
        timed = self.problem.timed
        trie, numbers = timed.mdp.trie, timed.logit_numbers
        longest = max(map(len, timed.mdp.actions))
        found = []
        for observation, (text, actions) in enumerate(self.problem.texts):
            state = int(np.flatnonzero(timed.observations == observation)[0])
            prompt = self.lm.prompt_ids(Question(text, actions), reserve=longest)
            for node, prefix in enumerate(trie.prefixes):
                children = [one for one in trie.children[node] if numbers[state, one] >= 0]
                if children:
                    row = (*prompt, *(int(str(token)) for token in prefix))
                    tokens = tuple(int(str(trie.prefixes[one][-1])) for one in children)
                    logits = tuple(int(numbers[state, one]) for one in children)
                    found.append(_Node(TokenRow(row, None, (len(row) - 1,)), tokens, logits))
        return found

    def logits(self) -> Tensor:
        """Compute the logits of the problem, float64 `[logits]`."""
        rows = [node.row for node in self.nodes]
        parts: list[Tensor] = [torch.empty(0)] * len(rows)
        weight = self.lm.base.get_output_embeddings().weight
        for chunk in self.lm.chunks(rows):
            hidden = self.lm.hidden_states([rows[index] for index in chunk])
            for index, one in zip(chunk, hidden, strict=True):
                parts[index] = weight[list(self.nodes[index].tokens)] @ one
        flat = torch.cat(parts)
        order = torch.tensor([number for node in self.nodes for number in node.logits])
        return torch.zeros(len(flat), dtype=flat.dtype).index_put((order,), flat)

    def ascend(self, *, gamma: float, rate: float) -> None:
        """Take an exact gradient step of length `rate` in the parameters."""
        logits = self.logits()
        policy = self.problem.timed.policy(logits.detach().numpy())
        gradient = torch.from_numpy(policy_gradients(self.problem.timed, policy, gamma).disc)
        found = torch.autograd.grad(logits, self.parameters, gradient)
        norm = torch.sqrt(sum((one**2).sum() for one in found))  # type: ignore[arg-type]
        with torch.no_grad():
            for parameter, one in zip(self.parameters, found, strict=True):
                parameter += rate * one / norm

    def jacobian(self) -> Floats:
        """Compute the derivatives of the logits, `[logits, parameters]`."""
        logits = self.logits()
        rows = []
        for number in range(len(logits)):
            found = torch.autograd.grad(logits[number], self.parameters, retain_graph=True)
            rows.append(torch.cat([one.reshape(-1) for one in found]))
        jacobian: Floats = torch.stack(rows).numpy()
        return jacobian


def factor(jacobian: Floats) -> Floats:
    """Return F, `[logits, rank]`, with F F^T = J J^T: the gradients in orthonormal coordinates of the parameters.

    Norms, inner products and cosines of J^T x and F^T x are equal, at a smaller size.
    """
    values, vectors = np.linalg.eigh(jacobian @ jacobian.T)
    kept = values > values[-1] * 1e-13
    found: Floats = vectors[:, kept] * np.sqrt(values[kept])
    return found
