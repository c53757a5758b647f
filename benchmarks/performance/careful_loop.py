"""A plain training loop to measure ours against: `benchmarks.performance.throughput` runs it.

It computes the same update as this library, from the same samples, and arrives at the same weights; the throughput
benchmark checks it. It is the algorithm as one would first write it with care: no unused passes, the trunk without its
head for values, `logits_to_keep` for the rest, only the rows of actions gathered, small micro-batches. Every candidate
is still a full sequence, without a cache between passes.

Advantages, returns and old values of the samples are given: only passes through the model and the computations on their
outputs are measured, all but a hundredth of a loop's time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList

from poad_sb3.common.critics import TokenCritic
from poad_sb3.credit.losses import clipped_policy_loss, clipped_value_loss, normalize
from poad_sb3.distributions.action_trie import Decision, TokenIds

_MICRO_ROWS = 16
"""Rows of a micro-batch."""


class Distribution(StrEnum):
    """The distribution that an action is drawn from."""

    TRIE = "trie"
    """At each token, the model's distribution over the tokens that continue some candidate (POAD)."""
    VOCABULARY = "vocabulary"
    """At each token, the model's distribution over the vocabulary (code, and the published ratio of POAD)."""
    CANDIDATES = "candidates"
    """A softmax over whole candidates, of log-probabilities divided by the number of words (TWOSOME)."""


class Workload(NamedTuple):
    """Settings of the training, as the loop needs them.

    Attributes:
        distribution: Distribution of actions.
        generates: Whether actions are written token by token, instead of chosen from a list.
        max_new_tokens: Maximum number of tokens of a written action.
        clip: Clip range of PPO, for ratios and values.
        ent_coef: Weight of the entropy.
        vf_coef: Weight of the value loss.
        max_grad_norm: Maximum gradient norm of policy and critic, each clipped on its own.
        learning_rate: Learning rate of policy and critic.
        temperature: Divisor of the logits, in acting and in the update.
    """

    distribution: Distribution
    generates: bool = False
    max_new_tokens: int = 128
    clip: float = 0.2
    ent_coef: float = 0.02
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    learning_rate: float = 1e-5
    temperature: float = 1.0


class Sample(NamedTuple):
    """An environment step of a rollout. A unit is a token with alternatives, or the whole action.

    Attributes:
        prompt: Token ids of the prompt.
        candidates: Token ids of the admissible actions; the written action alone where any text is allowed.
        divisors: N(a) of each candidate.
        pick: Index of the chosen candidate.
        decisions: Tokens with alternatives of the chosen candidate.
        old_log_prob: Log-probability of each unit at sampling.
        advantages: Advantage of each unit.
        old_values: Value before each token, or before the action, at sampling.
        returns: Return for each of these values.
    """

    prompt: TokenIds
    candidates: tuple[TokenIds, ...]
    divisors: tuple[float, ...]
    pick: int
    decisions: tuple[Decision, ...]
    old_log_prob: Tensor
    advantages: Tensor
    old_values: Tensor
    returns: Tensor

    @property
    def action(self) -> TokenIds:
        """Token ids of the chosen candidate."""
        return self.candidates[self.pick]


class CarefulLoop:
    """Acting and updates of the plain loop.

    Args:
        network: Peft model used by the loop alone.
        critic: Critic used by the loop alone.
        workload: Settings of the training.
    """

    def __init__(self, network: Any, critic: TokenCritic, workload: Workload) -> None:
        self.network, self.critic, self.workload = network, critic, workload
        self.adapter = [parameter for parameter in network.parameters() if parameter.requires_grad]
        rate = workload.learning_rate
        self._optimizer = torch.optim.AdamW(self.adapter, lr=rate, eps=1e-5, weight_decay=0.0)
        self._critic_optimizer = torch.optim.Adam(critic.parameters(), lr=rate, eps=1e-5)

    def rollout_step(self, samples: Sequence[Sample]) -> tuple[Tensor, Tensor]:
        """Act in some environments with given actions.

        Returns:
            Log-probabilities of all units, and all values of `Sample.old_values`.
        """
        with torch.no_grad():
            values = self._values(samples)
            if self.workload.generates:
                return self._scores(samples, self._generate(samples))[0], values
            pairs = [(sample.prompt, row) for sample in samples for row in sample.candidates]
            scored = self._gathered(pairs)
            if self.workload.distribution == Distribution.CANDIDATES:
                return self._scores(samples, scored)[0], values
            first = [sum(len(sample.candidates) for sample in samples[:n]) for n in range(len(samples))]
            chosen = [scored[start + sample.pick] for start, sample in zip(first, samples, strict=True)]
            return self._scores(samples, chosen)[0], values

    @torch.no_grad()
    def last_values(self, prompts: Sequence[TokenIds]) -> Tensor:
        """Return the values of the observations after a rollout."""
        return self.critic(self._features([(prompt, (0,)) for prompt in prompts]))

    def minibatch(self, samples: Sequence[Sample]) -> dict[str, float]:
        """Update critic and policy once; return their gradient norms before clipping."""
        critic_norm = self._critic_step(samples)
        advantages = torch.cat([sample.advantages for sample in samples])
        advantages = torch.split(normalize(advantages, 0.01), [len(sample.advantages) for sample in samples])
        of = {id(sample): scaled for sample, scaled in zip(samples, advantages, strict=True)}
        n_units = sum(len(sample.advantages) for sample in samples)
        self._optimizer.zero_grad()
        for chunk, logits in self._policy_chunks(samples):
            new, entropy = self._scores(chunk, logits)
            old = torch.cat([sample.old_log_prob for sample in chunk])
            loss = clipped_policy_loss(new, old, torch.cat([of[id(sample)] for sample in chunk]), self.workload.clip)
            ((loss - self.workload.ent_coef * entropy).sum() / n_units).backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.adapter, self.workload.max_grad_norm)
        self._optimizer.step()
        return {"policy": float(norm), "critic": critic_norm}

    def _critic_step(self, samples: Sequence[Sample]) -> float:
        values = self._values(samples)
        old, returns = (torch.cat([getattr(sample, name) for sample in samples]) for name in ("old_values", "returns"))
        loss = self.workload.vf_coef * clipped_value_loss(values, old, returns, self.workload.clip).mean()
        self._critic_optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.critic.parameters(), self.workload.max_grad_norm)
        self._critic_optimizer.step()
        return float(norm)

    # ------------------------------------------------------------------ passes through the model

    def _values(self, samples: Sequence[Sample]) -> Tensor:
        pairs = [(sample.prompt, sample.action[: len(sample.old_values)]) for sample in samples]
        chunks = [pairs[start : start + _MICRO_ROWS] for start in range(0, len(pairs), _MICRO_ROWS)]
        return self.critic(torch.cat([self._features(chunk) for chunk in chunks]))

    @torch.no_grad()
    def _features(self, pairs: Sequence[tuple[TokenIds, TokenIds]]) -> Tensor:
        ids, mask, positions = self._padded(pairs)
        with self.network.disable_adapter():
            decoder = self.network.get_base_model().get_decoder()
            hidden = decoder(input_ids=ids, attention_mask=mask, position_ids=positions).last_hidden_state
        return torch.cat([hidden[row, -len(action) :] for row, (_, action) in enumerate(pairs)]).float()

    def _policy_chunks(self, samples: Sequence[Sample]) -> Iterator[tuple[list[Sample], list[Tensor]]]:
        chunk: list[Sample] = []
        for sample in samples:
            chunk.append(sample)
            n_rows = sum(len(self._scored_rows(other)) for other in chunk)
            if n_rows >= _MICRO_ROWS or sample is samples[-1]:
                yield chunk, self._gathered([(s.prompt, row) for s in chunk for row in self._scored_rows(s)])
                chunk = []

    def _gathered(self, pairs: Sequence[tuple[TokenIds, TokenIds]]) -> list[Tensor]:
        """Return the logits before each token of each action.

        Rows end together, so that the last columns hold all of these logits.
        """
        ids, mask, positions = self._padded(pairs)
        longest = max(len(action) for _, action in pairs)
        logits = self.network(
            input_ids=ids, attention_mask=mask, position_ids=positions, logits_to_keep=longest, use_cache=False
        ).logits
        index = [(row, longest - len(a) + offset) for row, (_, a) in enumerate(pairs) for offset in range(len(a))]
        rows, places = torch.tensor(index).unbind(1)
        return list(torch.split(logits[rows, places], [len(action) for _, action in pairs]))

    def _padded(self, pairs: Sequence[tuple[TokenIds, TokenIds]]) -> tuple[Tensor, Tensor, Tensor]:
        """Pad on the left, without the last token: no position after it is read."""
        rows = [(*prompt, *action[:-1]) for prompt, action in pairs]
        longest = max(map(len, rows))
        mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
        ids = torch.tensor([[*[0] * (longest - len(row)), *row] for row in rows])
        return ids, mask, (mask.cumsum(-1) - 1).clamp(min=0)

    # ------------------------------------------------------------------ scored tokens

    def _scored_rows(self, sample: Sample) -> tuple[TokenIds, ...]:
        """Return the actions whose logits an update needs."""
        every = self.workload.distribution == Distribution.CANDIDATES
        return sample.candidates if every else (sample.action,)

    def _scores(self, samples: Sequence[Sample], logits: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return log-probability and entropy of each unit, from the logits of the rows that were scored."""
        by_token = torch.cat(list(logits)).float() / self.workload.temperature
        if self.workload.distribution == Distribution.CANDIDATES:
            return self._candidate_scores(samples, by_token)
        if self.workload.distribution == Distribution.VOCABULARY:
            log_probs = by_token.log_softmax(-1)
            tokens = torch.tensor([token for sample in samples for token in sample.action])
            return log_probs.gather(-1, tokens[:, None])[:, 0], -(log_probs.exp() * log_probs).sum(-1)
        decided = [
            (start + decision.position, decision)
            for start, sample in zip(_starts(samples), samples, strict=True)
            for decision in sample.decisions
        ]
        widest = max(len(decision.children) for _, decision in decided)
        children = torch.tensor(
            [[*decision.children, *[-1] * (widest - len(decision.children))] for _, decision in decided]
        )
        places = torch.tensor([index for index, _ in decided])
        allowed = by_token[places[:, None], children.clamp(min=0)].masked_fill(children < 0, -1e30)
        log_probs = allowed.log_softmax(-1)
        choices = torch.tensor([decision.choice for _, decision in decided])
        return log_probs.gather(-1, choices[:, None])[:, 0], -(log_probs.exp() * log_probs).sum(-1)

    def _candidate_scores(self, samples: Sequence[Sample], by_token: Tensor) -> tuple[Tensor, Tensor]:
        rows = [row for sample in samples for row in sample.candidates]
        tokens = torch.tensor([token for row in rows for token in row])
        token_log_probs = by_token.log_softmax(-1).gather(-1, tokens[:, None])[:, 0]
        sums = torch.stack([part.sum() for part in torch.split(token_log_probs, [len(row) for row in rows])])
        scores = sums / torch.tensor([n for sample in samples for n in sample.divisors])
        log_prob, entropy = [], []
        for sample, part in zip(
            samples, torch.split(scores, [len(sample.candidates) for sample in samples]), strict=True
        ):
            log_probs = part.log_softmax(0)
            log_prob.append(log_probs[sample.pick])
            entropy.append(-(log_probs.exp() * log_probs).sum())
        return torch.stack(log_prob), torch.stack(entropy)

    @torch.no_grad()
    def _generate(self, samples: Sequence[Sample]) -> list[Tensor]:
        """Let transformers write the given actions, and return the logits: its draws are replaced."""
        longest = max(len(sample.prompt) for sample in samples)
        ids = torch.tensor([[*[0] * (longest - len(sample.prompt)), *sample.prompt] for sample in samples])
        mask = torch.tensor([[0] * (longest - len(sample.prompt)) + [1] * len(sample.prompt) for sample in samples])
        forced = LogitsProcessorList([_Forced([sample.action for sample in samples], longest)])
        written = self.network.generate(
            input_ids=ids, attention_mask=mask, max_new_tokens=self.workload.max_new_tokens, do_sample=True, top_k=0,
            top_p=1.0, temperature=1.0, pad_token_id=0, logits_processor=forced,
            output_logits=True, return_dict_in_generate=True,
        )  # fmt: skip
        logits = written.logits
        return [torch.stack(logits[: len(sample.action)])[:, row] for row, sample in enumerate(samples)]


class _Forced(LogitsProcessor):  # type: ignore[misc]  # transformers has no types
    """Only the next token of a given text can be drawn."""

    def __init__(self, actions: Sequence[TokenIds], prompt_length: int) -> None:
        self._actions, self._start = actions, prompt_length

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        position = input_ids.shape[1] - self._start
        tokens = [action[min(position, len(action) - 1)] for action in self._actions]
        index = torch.tensor(tokens)[:, None]
        return torch.full_like(scores, -torch.inf).scatter(-1, index, scores.gather(-1, index))


def _starts(samples: Sequence[Sample]) -> list[int]:
    """Return the start of each action's tokens, with actions laid end to end."""
    lengths = [len(sample.action) for sample in samples]
    return [sum(lengths[:n]) for n in range(len(lengths))]
