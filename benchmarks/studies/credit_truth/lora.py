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
        named = [(name, parameter) for name, parameter in self.lm.network.named_parameters() if parameter.requires_grad]
        layers = {name: int(name.split(".layers.")[1].split(".")[0]) for name, _ in named}
        last = max(layers.values())
        for name, parameter in named:
            parameter.requires_grad_(layers[name] == last)
        self.parameters = [parameter for name, parameter in named if layers[name] == last]
        self.nodes = self._nodes()

    def _nodes(self) -> list[_Node]:
        timed = self.problem.timed
        trie, numbers = timed.mdp.trie, timed.logit_numbers
        longest = max(map(len, timed.mdp.actions))
        nodes = []
        for observation, (text, actions) in enumerate(self.problem.texts):
            state = int(np.flatnonzero(timed.observations == observation)[0])
            prompt = self.lm.prompt_ids(Question(text, actions), reserve=longest)
            for node, prefix in enumerate(trie.prefixes):
                children = [child for child in trie.children[node] if numbers[state, child] >= 0]
                if children:
                    row = (*prompt, *(int(str(token)) for token in prefix))
                    tokens = tuple(int(str(trie.prefixes[child][-1])) for child in children)
                    logits = tuple(int(numbers[state, child]) for child in children)
                    nodes.append(_Node(TokenRow(row, None, (len(row) - 1,)), tokens, logits))
        return nodes

    def logits(self) -> Tensor:
        """Compute the logits of the problem, float64 `[logits]`."""
        rows = [node.row for node in self.nodes]
        parts: list[Tensor] = [torch.empty(0)] * len(rows)
        weight = self.lm.base.get_output_embeddings().weight
        for chunk in self.lm.chunks(rows):
            hidden = self.lm.hidden_states([rows[index] for index in chunk])
            for index, features in zip(chunk, hidden, strict=True):
                parts[index] = weight[list(self.nodes[index].tokens)] @ features
        flat = torch.cat(parts)
        order = torch.tensor([number for node in self.nodes for number in node.logits])
        return torch.zeros(len(flat), dtype=flat.dtype).index_put((order,), flat)

    def ascend(self, *, gamma: float, rate: float) -> None:
        """Take an exact gradient step of length `rate` in the parameters."""
        logits = self.logits()
        policy = self.problem.timed.policy(logits.detach().numpy())
        gradient = torch.from_numpy(policy_gradients(self.problem.timed, policy, gamma).disc)
        gradients = torch.autograd.grad(logits, self.parameters, gradient)
        norm = torch.sqrt(sum((part**2).sum() for part in gradients))  # type: ignore[arg-type]
        with torch.no_grad():
            for parameter, part in zip(self.parameters, gradients, strict=True):
                parameter += rate * part / norm

    def jacobian(self) -> Floats:
        """Compute the derivatives of the logits, `[logits, parameters]`."""
        logits = self.logits()
        rows = []
        for number in range(len(logits)):
            gradients = torch.autograd.grad(logits[number], self.parameters, retain_graph=True)
            rows.append(torch.cat([part.reshape(-1) for part in gradients]))
        jacobian: Floats = torch.stack(rows).numpy()
        return jacobian


def factor(jacobian: Floats) -> Floats:
    """Return F, `[logits, rank]`, with F F^T = J J^T: the gradients in orthonormal coordinates of the parameters.

    Norms, inner products and cosines of J^T x and F^T x are equal, at a smaller size.
    """
    values, vectors = np.linalg.eigh(jacobian @ jacobian.T)
    kept = values > values[-1] * 1e-13
    factors: Floats = vectors[:, kept] * np.sqrt(values[kept])
    return factors
