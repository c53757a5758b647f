"""Two plain training loops to measure ours against: `benchmarks.performance.throughput` runs them.

They compute the same update as this library, from the same samples, and arrive at the same weights; the throughput
benchmark checks it.

* `ReferenceLoop` computes the passes of the public reference implementation, one by one as it was profiled: every
  candidate encoded together with its prompt; one pass each for values, for the policy and for the frozen reference
  policy, with an unused result; logits of the whole vocabulary at all positions, sliced row by row; the critic on
  all positions, and its frozen trunk run again in every epoch; code padded to the longest there may be.
* `CompetentLoop` is the same algorithm as one would first write it with care: no unused passes, the trunk without its
  head for values, `logits_to_keep` for the rest, only the rows of actions gathered, small micro-batches. Every
  candidate is still a full sequence, without a cache between passes.

Both get the advantages, returns and old values of the samples ready-made: only passes through the model and the
computations on their outputs are measured, all but a hundredth of a loop's time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
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
"""Rows of a micro-batch of the competent loop."""


class Distribution(StrEnum):
    """The distribution that an action is drawn from."""

    TRIE = "trie"
    """At each token, the model's distribution over the tokens that continue some candidate (POAD)."""
    VOCABULARY = "vocabulary"
    """At each token, the model's distribution over the vocabulary (code, and the published ratio of POAD)."""
    CANDIDATES = "candidates"
    """A softmax over whole candidates, of log-probabilities divided by the number of words (TWOSOME)."""


class Workload(NamedTuple):
    """Settings of the training, as the loops need them.

    Attributes:
        distribution: Distribution of actions.
        generates: Whether actions are written token by token, instead of chosen from a list.
        max_new_tokens: Maximum number of tokens of a written action.
        samples_at_once: Samples of a pass of the reference's update.
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
    samples_at_once: int = 64
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


class Step(NamedTuple):
    """Figures of one minibatch.

    Attributes:
        policy_grad_norm: Gradient norm of the policy before clipping.
        critic_grad_norm: Gradient norm of the critic before clipping.
        log_prob: Log-probability of every unit, in order.
    """

    policy_grad_norm: float
    critic_grad_norm: float
    log_prob: Tensor


class BaselineLoop(ABC):
    """The common part of both loops: how log-probabilities are made of logits, the losses, the optimisers.

    Args:
        network: Peft model used by this loop alone.
        critic: Critic used by this loop alone.
        workload: Settings of the training.
    """

    def __init__(self, network: Any, critic: TokenCritic, workload: Workload) -> None:
        self.network, self.critic, self.workload = network, critic, workload
        self.adapter = [parameter for parameter in network.parameters() if parameter.requires_grad]
        rate = workload.learning_rate
        self._optimizer = torch.optim.AdamW(self.adapter, lr=rate, eps=1e-5, weight_decay=0.0)
        self._critic_optimizer = torch.optim.Adam(critic.parameters(), lr=rate, eps=1e-5)

    @property
    def _device(self) -> torch.device:
        return self.adapter[0].device

    @abstractmethod
    def rollout_step(self, samples: Sequence[Sample]) -> tuple[Tensor, Tensor]:
        """Act in some environments with given actions.

        Returns:
            Log-probabilities of all units, and all values of `Sample.old_values`.
        """

    @abstractmethod
    def last_values(self, prompts: Sequence[TokenIds]) -> Tensor:
        """Return the values of the observations after a rollout."""

    @abstractmethod
    def _policy_chunks(self, samples: Sequence[Sample]) -> Iterator[tuple[list[Sample], list[Tensor]]]:
        """Yield samples that go through the model together, and `[tokens, vocabulary]` logits of each row scored."""

    @abstractmethod
    def _values(self, samples: Sequence[Sample]) -> Tensor:
        """Return the values, with gradient; trunk features have none."""

    def minibatch(self, samples: Sequence[Sample]) -> Step:
        """Update critic and policy once."""
        critic_norm = self._critic_step(samples)
        advantages = torch.cat([sample.advantages for sample in samples])
        advantages = torch.split(normalize(advantages, 0.01), [len(sample.advantages) for sample in samples])
        of = {id(sample): scaled for sample, scaled in zip(samples, advantages, strict=True)}
        n_units = sum(len(sample.advantages) for sample in samples)
        self._optimizer.zero_grad()
        log_probs = {}
        for chunk, logits in self._policy_chunks(samples):
            new, entropy = self._scores(chunk, logits)
            old = torch.cat([sample.old_log_prob for sample in chunk])
            loss = clipped_policy_loss(new, old, torch.cat([of[id(sample)] for sample in chunk]), self.workload.clip)
            ((loss - self.workload.ent_coef * entropy).sum() / n_units).backward()  # type: ignore[no-untyped-call]
            parts = torch.split(new.detach(), [len(sample.old_log_prob) for sample in chunk])
            log_probs |= {id(sample): part for sample, part in zip(chunk, parts, strict=True)}
        norm = torch.nn.utils.clip_grad_norm_(self.adapter, self.workload.max_grad_norm)
        self._optimizer.step()
        return Step(float(norm), critic_norm, torch.cat([log_probs[id(sample)] for sample in samples]))

    def _critic_step(self, samples: Sequence[Sample]) -> float:
        values = self._values(samples)
        old, returns = (torch.cat([getattr(sample, name) for sample in samples]) for name in ("old_values", "returns"))
        loss = self.workload.vf_coef * clipped_value_loss(values, old, returns, self.workload.clip).mean()
        self._critic_optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.critic.parameters(), self.workload.max_grad_norm)
        self._critic_optimizer.step()
        return float(norm)

    # ------------------------------------------------------------------ scored tokens

    def _scored_rows(self, sample: Sample, *, acting: bool = False) -> tuple[TokenIds, ...]:
        """Return the actions whose logits are needed."""
        every = self.workload.distribution == Distribution.CANDIDATES or acting
        return sample.candidates if every else (sample.action,)

    def _n_values(self, sample: Sample) -> int:
        """Return the number of tokens with a value before them."""
        return len(sample.old_values)

    def _scores(self, samples: Sequence[Sample], logits: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return log-probability and entropy of each unit, from the logits of the rows that were scored."""
        by_token = torch.cat(list(logits)).float() / self.workload.temperature
        if self.workload.distribution == Distribution.CANDIDATES:
            return self._candidate_scores(samples, by_token)
        if self.workload.distribution == Distribution.VOCABULARY:
            log_probs = by_token.log_softmax(-1)
            tokens = self._tensor([token for sample in samples for token in sample.action])
            return log_probs.gather(-1, tokens[:, None])[:, 0], -(log_probs.exp() * log_probs).sum(-1)
        decided = [
            (start + decision.position, decision)
            for start, sample in zip(_starts(samples), samples, strict=True)
            for decision in sample.decisions
        ]
        widest = max(len(decision.children) for _, decision in decided)
        children = self._tensor(
            [[*decision.children, *[-1] * (widest - len(decision.children))] for _, decision in decided]
        )
        places = self._tensor([index for index, _ in decided])
        allowed = by_token[places[:, None], children.clamp(min=0)].masked_fill(children < 0, -1e30)
        log_probs = allowed.log_softmax(-1)
        choices = self._tensor([decision.choice for _, decision in decided])
        return log_probs.gather(-1, choices[:, None])[:, 0], -(log_probs.exp() * log_probs).sum(-1)

    def _candidate_scores(self, samples: Sequence[Sample], by_token: Tensor) -> tuple[Tensor, Tensor]:
        rows = [row for sample in samples for row in sample.candidates]
        tokens = self._tensor([token for row in rows for token in row])
        token_log_probs = by_token.log_softmax(-1).gather(-1, tokens[:, None])[:, 0]
        sums = torch.stack([part.sum() for part in torch.split(token_log_probs, [len(row) for row in rows])])
        scores = sums / torch.tensor([n for sample in samples for n in sample.divisors], device=self._device)
        log_prob, entropy = [], []
        for sample, part in zip(
            samples, torch.split(scores, [len(sample.candidates) for sample in samples]), strict=True
        ):
            log_probs = part.log_softmax(0)
            log_prob.append(log_probs[sample.pick])
            entropy.append(-(log_probs.exp() * log_probs).sum())
        return torch.stack(log_prob), torch.stack(entropy)

    def _tensor(self, numbers: Sequence[Any]) -> Tensor:
        return torch.tensor(numbers, device=self._device)

    @torch.no_grad()
    def _generate(self, samples: Sequence[Sample], **options: Any) -> Any:
        """Let transformers write the given actions: it samples from its distribution, and the draw is replaced."""
        longest = max(len(sample.prompt) for sample in samples)
        ids = self._tensor([[*[0] * (longest - len(sample.prompt)), *sample.prompt] for sample in samples])
        mask = self._tensor([[0] * (longest - len(sample.prompt)) + [1] * len(sample.prompt) for sample in samples])
        forced = LogitsProcessorList([_Forced([sample.action for sample in samples], longest)])
        return self.network.generate(
            input_ids=ids, attention_mask=mask, max_new_tokens=self.workload.max_new_tokens, do_sample=True, top_k=0,
            top_p=1.0, temperature=1.0, pad_token_id=0, logits_processor=forced, **options,
        )  # fmt: skip


class _Forced(LogitsProcessor):  # type: ignore[misc]  # transformers has no types
    """Only the next token of a given text can be drawn."""

    def __init__(self, actions: Sequence[TokenIds], prompt_length: int) -> None:
        self._actions, self._start = actions, prompt_length

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        position = input_ids.shape[1] - self._start
        tokens = [action[min(position, len(action) - 1)] for action in self._actions]
        index = torch.tensor(tokens, device=scores.device)[:, None]
        return torch.full_like(scores, -torch.inf).scatter(-1, index, scores.gather(-1, index))


class ReferenceLoop(BaselineLoop):
    """See the module."""

    def rollout_step(self, samples: Sequence[Sample]) -> tuple[Tensor, Tensor]:
        """See `BaselineLoop.rollout_step`."""
        with torch.no_grad():
            rows = [(sample, row) for sample in samples for row in self._scored_rows(sample, acting=True)]
            if self.workload.generates:
                self._generate(samples)
            else:
                scored = self._sliced([(sample.prompt, row) for sample, row in rows])
                torch.cat(scored).log_softmax(-1)  # the distribution over candidates
            values = self._values(samples)
            if self.workload.distribution == Distribution.CANDIDATES:
                return self._scores(samples, scored)[0], values
            chosen = [(sample.prompt, sample.action) for sample in samples]
            with self.network.disable_adapter():
                self._sliced(chosen)  # the reference policy, unused
            return self._scores(samples, self._sliced(chosen))[0], values

    @torch.no_grad()
    def last_values(self, prompts: Sequence[TokenIds]) -> Tensor:
        """See `BaselineLoop.last_values`."""
        return self._values_of([(prompt, ()) for prompt in prompts], [1] * len(prompts))

    def _values(self, samples: Sequence[Sample]) -> Tensor:
        whole = self.workload.distribution == Distribution.CANDIDATES
        pairs = [(sample.prompt, () if whole else sample.action) for sample in samples]
        return self._values_of(pairs, [self._n_values(sample) for sample in samples])

    def _values_of(self, pairs: Sequence[tuple[TokenIds, TokenIds]], counts: Sequence[int]) -> Tensor:
        ids, mask = self._padded(pairs)
        with torch.no_grad(), self.network.disable_adapter():
            hidden = self.network(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states[-1]
        by_position = self.critic(hidden.float().flatten(0, 1)).view(ids.shape)
        return torch.cat(
            [
                by_position[row, len(prompt) - 1 : len(prompt) - 1 + count]
                for row, ((prompt, _), count) in enumerate(zip(pairs, counts, strict=True))
            ]
        )

    def _policy_chunks(self, samples: Sequence[Sample]) -> Iterator[tuple[list[Sample], list[Tensor]]]:
        for start in range(0, len(samples), self.workload.samples_at_once):
            chunk = list(samples[start : start + self.workload.samples_at_once])
            pairs = [(sample.prompt, row) for sample in chunk for row in self._scored_rows(sample)]
            if self.workload.distribution != Distribution.CANDIDATES:
                with torch.no_grad(), self.network.disable_adapter():
                    self._sliced(pairs)  # the reference policy, unused
            yield chunk, self._sliced(pairs)

    def _sliced(self, pairs: Sequence[tuple[TokenIds, TokenIds]]) -> list[Tensor]:
        """Return the logits before each token of each action, one row after the other."""
        ids, mask = self._padded(pairs)
        logits = self.network(input_ids=ids, attention_mask=mask).logits
        return [logits[row, len(p) - 1 : len(p) - 1 + len(a)] for row, (p, a) in enumerate(pairs)]

    def _padded(self, pairs: Sequence[tuple[TokenIds, TokenIds]]) -> tuple[Tensor, Tensor]:
        rows = [(*prompt, *action) for prompt, action in pairs]
        longest = max(map(len, rows))
        if self.workload.generates:
            longest = max(len(prompt) for prompt, _ in pairs) + self.workload.max_new_tokens
        return self._tensor([[*row, *[0] * (longest - len(row))] for row in rows]), self._tensor(
            [[1] * len(row) + [0] * (longest - len(row)) for row in rows]
        )


class CompetentLoop(BaselineLoop):
    """See the module."""

    def rollout_step(self, samples: Sequence[Sample]) -> tuple[Tensor, Tensor]:
        """See `BaselineLoop.rollout_step`."""
        with torch.no_grad():
            values = self._values(samples)
            if self.workload.generates:
                written = self._generate(samples, output_logits=True, return_dict_in_generate=True).logits
                logits = [torch.stack(written[: len(sample.action)])[:, row] for row, sample in enumerate(samples)]
                return self._scores(samples, logits)[0], values
            pairs = [(sample.prompt, row) for sample in samples for row in sample.candidates]
            scored = self._gathered(pairs)
            if self.workload.distribution == Distribution.CANDIDATES:
                return self._scores(samples, scored)[0], values
            first = [sum(len(sample.candidates) for sample in samples[:n]) for n in range(len(samples))]
            chosen = [scored[start + sample.pick] for start, sample in zip(first, samples, strict=True)]
            return self._scores(samples, chosen)[0], values

    @torch.no_grad()
    def last_values(self, prompts: Sequence[TokenIds]) -> Tensor:
        """See `BaselineLoop.last_values`."""
        return self.critic(self._features([(prompt, (0,)) for prompt in prompts]))

    def _values(self, samples: Sequence[Sample]) -> Tensor:
        pairs = [(sample.prompt, sample.action[: self._n_values(sample)]) for sample in samples]
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
        rows, places = self._tensor(index).unbind(1)
        return list(torch.split(logits[rows, places], [len(action) for _, action in pairs]))

    def _padded(self, pairs: Sequence[tuple[TokenIds, TokenIds]]) -> tuple[Tensor, Tensor, Tensor]:
        """Pad on the left, without the last token: no position after it is read."""
        rows = [(*prompt, *action[:-1]) for prompt, action in pairs]
        longest = max(map(len, rows))
        mask = self._tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
        ids = self._tensor([[*[0] * (longest - len(row)), *row] for row in rows])
        return ids, mask, (mask.cumsum(-1) - 1).clamp(min=0)


def _starts(samples: Sequence[Sample]) -> list[int]:
    """Return the start of each action's tokens, with actions laid end to end."""
    lengths = [len(sample.action) for sample in samples]
    return [sum(lengths[:n]) for n in range(len(lengths))]
