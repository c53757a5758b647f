"""`LanguageModel`: token rows in, hidden states and logits out.

It answers two questions about *token rows* (a prompt, and what follows it): what are the hidden states at given
positions, as the model is trained or as it was; and what are the logits of some tokens there. No tensor of
`[batch, tokens, vocabulary]` is ever made, and the language-model head sees only the rows that are asked for.

Only this module and the package `poad_sb3.models` call transformers and peft.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from enum import StrEnum
from functools import partial
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor, nn

from poad_sb3.errors import ModelError
from poad_sb3.models.adapters import DEFAULT_LORA, adapt, fingerprint, merged
from poad_sb3.models.check import (
    Check,
    adjust_logits,
    agrees_when_trimmed,
    check_checkpointing,
    check_frozen,
    check_model,
    is_exact,
    plain_hidden,
    probe_row,
)
from poad_sb3.models.checkpointing import enable_checkpointing, recomputing, spare_linear4bit
from poad_sb3.models.decoding import CachedDecoding, Decoding, LlamaDecoding, PlainDecoding
from poad_sb3.models.few_rows import multiplying_few_rows
from poad_sb3.models.head import (
    Picks,
    Statistics,
    all_logits,
    can_gather,
    gathered_logits,
    vocabulary_statistics,
)
from poad_sb3.models.last_layer import decoder_of
from poad_sb3.models.packing import Group, TokenIds, TokenRow, groups_of, pack, path_to
from poad_sb3.models.passes import decoder_pass, passes_of
from poad_sb3.models.sources import ModelFactory, ModelSource, context_length, load
from poad_sb3.models.token_pass import can_be_written_out
from poad_sb3.prompts import Prompter, PromptSpec, Question, prompt_template

CACHED_PER_FORWARD = 8
"""Tokens whose keys and values are held while decoding, for each of `max_tokens_per_forward`: a decoding step costs
little more for many texts than for one, and without gradients a token takes little memory."""

__all__ = ["CACHED_PER_FORWARD", "DEFAULT_LORA", "Check", "CriticTrunk", "LanguageModel", "TokenRow"]


class CriticTrunk(StrEnum):
    """Whose hidden states the critic reads."""

    FROZEN = "frozen"
    """Those of the model as it was before training: constant, so that they are computed once per rollout."""
    LIVE = "live"
    """Those of the model as it is, detached."""


class LanguageModel(nn.Module):
    """A causal language model, what is trained of it, and its tokenizer.

    Args:
        model: `"pocket"` or `"pocket-coder"`, a folder, an id of the Hugging Face hub, or a function that makes model
            and tokenizer.
        revision: Commit, tag or branch on the hub.
        lora: Arguments of `peft.LoraConfig` laid over `DEFAULT_LORA`; None to train all weights. Dropout must stay 0:
            rollout and update must see the same distribution.
        dtype: `"float32"` or `"bfloat16"` (or torch's), of the base weights. An adapter is float32 in any case.
        quantization: `"8bit"`, `"4bit"` or arguments of `BitsAndBytesConfig`, for a base that an adapter is trained on.
        attn_implementation: As transformers calls them; its own choice if None.
        gradient_checkpointing: Compute activations again in the backward pass instead of keeping them.
        critic_trunk: See `CriticTrunk`. With `lora=None`, `"frozen"` keeps a second copy of the weights.
        prompt: How a prompt is made of an observation, see `poad_sb3.prompts.prompt_template`.
        max_tokens_per_forward: Bound on rows x padded length of one pass; memory follows it, results do not.
        check: Response to an architecture that is not scored as it scores itself: `"error"` or `"warn"`.
        device: Where a quantised base is loaded.

    Raises:
        ModelError: If the model cannot be loaded as asked, is not scored as it scores itself, has no end token, or the
            adapter does not fit it.
    """

    def __init__(
        self,
        model: str | ModelFactory = "pocket",
        *,
        revision: str | None = None,
        lora: Mapping[str, Any] | None = DEFAULT_LORA,
        dtype: str | torch.dtype = "float32",
        quantization: str | Mapping[str, Any] | None = None,
        attn_implementation: str | None = None,
        gradient_checkpointing: bool = False,
        critic_trunk: CriticTrunk | str = CriticTrunk.FROZEN,
        prompt: PromptSpec = "auto",
        max_tokens_per_forward: int = 1024,
        check: Check | str = Check.ERROR,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__()
        if max_tokens_per_forward < 1:
            raise ModelError(f"Expected max_tokens_per_forward >= 1; got {max_tokens_per_forward}. Fix: try 1024.")
        if critic_trunk not in list(CriticTrunk):
            raise ModelError(f"Expected critic_trunk to be one of {[*map(str, CriticTrunk)]}; got {critic_trunk!r}.")
        if check not in list(Check):
            raise ModelError(f"Expected check to be one of {[*map(str, Check)]}; got {check!r}.")
        self.max_tokens_per_forward = max_tokens_per_forward
        self.critic_trunk = CriticTrunk(critic_trunk)
        self.source = ModelSource(
            model, revision, str(dtype).removeprefix("torch."), quantization, attn_implementation, device
        )
        base, self.tokenizer = load(self.source)
        self.fingerprint = fingerprint(base, self.tokenizer)
        self.max_length = context_length(base.config.get_text_config(), self.source.name)
        template = prompt_template(prompt, self.tokenizer)
        self.prompter = Prompter(self.tokenizer, template, self.max_length, _other_ends(base))
        keeps_copy = lora is None and self.critic_trunk == CriticTrunk.FROZEN
        self.kept = copy.deepcopy(base).requires_grad_(False).eval() if keeps_copy else None
        spare_linear4bit(base.eval())
        as_it_was = plain_hidden(base) if lora is not None and self.critic_trunk == CriticTrunk.FROZEN else None
        self.network = adapt(base, lora)
        self.eval()
        self.is_exact = is_exact(base)
        # Until the check says otherwise: trees are taken as such, and no rows are merged into one.
        self.apart, self.packs_trees, self.trims, self.hidden_size = False, True, False, 0
        self._recomputes: list[nn.Module] = []
        found = check_model(self.base, self.hidden_states, self.vocabulary_logits, self.source.name, Check(check))
        self.hidden_size, self.apart, self.packs_trees, self.caches, self.like_llama = found
        self.trims = self.packs_trees and agrees_when_trimmed(self.base, self.hidden_states, self._trimming)
        if as_it_was is not None:
            frozen = partial(self.hidden_states, frozen=True)
            trained = [one for one in self.network.parameters() if one.requires_grad]
            check_frozen(frozen, as_it_was, trained, self.source.name, self.base)
        if gradient_checkpointing:
            self._enable_checkpointing()

    @property
    def base(self) -> Any:  # noqa: ANN401 - transformers has no types
        """The transformers model; an adapter is inside its layers."""
        return self.network.get_base_model() if isinstance(self.network, PeftModel) else self.network

    def read_apart(self) -> None:
        """Give up merged rows, batches and caches: every position that is read gets a plain pass of its own."""
        self.apart = True
        self.packs_trees = self.caches = self.like_llama = self.trims = False

    # ------------------------------------------------------------------ text and tokens

    def prompt_ids(self, question: Question | str, reserve: int = 1) -> TokenIds:
        """Token ids of a prompt; see `Prompter.prompt_ids`. A bare text is a question without history."""
        asked = Question(question, None) if isinstance(question, str) else question
        return self.prompter.prompt_ids(asked, reserve)

    def action_ids(self, text: str) -> TokenIds:
        """Token ids of an action that continues a prompt; see `Prompter.action_ids`."""
        return self.prompter.action_ids(text)

    @property
    def end_token(self) -> int:
        """Id of the token that ends an action."""
        return self.prompter.end_token

    # ------------------------------------------------------------------ passes

    def chunks(self, rows: Sequence[TokenRow]) -> Iterator[list[int]]:
        """Indices of rows that go through the model together: those that begin alike, of similar lengths."""
        for groups in passes_of(self._groups(rows), 1 if self.apart else self.max_tokens_per_forward):
            yield [index for group in groups for index in group.rows]

    def _groups(self, rows: Sequence[TokenRow]) -> list[Group]:
        return groups_of(rows, self.hidden_size if self.packs_trees else 0, self.max_tokens_per_forward)

    def hidden_states(self, rows: Sequence[TokenRow], *, frozen: bool = False) -> Tensor:
        """Last hidden states at the positions that the rows read. What rows begin with alike is run once.

        Args:
            rows: One chunk; `chunks` makes them.
            frozen: Those of the model as it was before training, instead of as it is.

        Returns:
            `[total reads, hidden_size]` in the order of the rows and their reads.
        """
        if (self.apart and not _is_one_read(rows)) or (not self.packs_trees and any(row.parents for row in rows)):
            return self._hidden_states_unpacked(rows, frozen=frozen)
        parts: list[Tensor] = [torch.empty(0)] * len(rows)
        # A chunk is one pass, but where its rows could be merged further than among all rows, and padding grew.
        for groups in passes_of(self._groups(rows), self.max_tokens_per_forward):
            packed, here = pack(rows, groups), sorted(index for group in groups for index in group.rows)
            self._require_room(packed.deepest)
            with self._as_it_was(frozen) as model, self._recomputing(frozen):
                hidden = decoder_pass(model, packed, trim=self.trims and not self._recomputes)
            if len(here) == len(rows):
                return hidden
            for index, part in zip(here, torch.split(hidden, [len(rows[index].reads) for index in here]), strict=True):
                parts[index] = part
        return torch.cat(parts)

    @contextmanager
    def _trimming(self) -> Iterator[None]:
        self.trims = True
        try:
            yield
        finally:
            self.trims = False

    def _hidden_states_unpacked(self, rows: Sequence[TokenRow], *, frozen: bool) -> Tensor:
        """Hidden states with every read as an ordinary sequence: for models that see more than the mask."""
        plain = [path_to(row, read) for row in rows for read in row.reads]
        parts: list[Tensor] = [torch.empty(0)] * len(plain)
        for chunk in self.chunks(plain):
            hidden = self.hidden_states([plain[index] for index in chunk], frozen=frozen)
            for index, part in zip(chunk, hidden, strict=True):
                parts[index] = part
        return torch.stack(parts)

    def vocabulary_logits(self, hidden: Tensor, *, frozen: bool = False) -> Tensor:
        """Logits of the whole vocabulary after each hidden state, float32, `[n, vocabulary]`."""
        with self._as_it_was(frozen) as model:
            return adjust_logits(all_logits(model.get_output_embeddings(), hidden), model.config.get_text_config())

    def child_logits(self, hidden: Tensor, children: Sequence[TokenIds], *, frozen: bool = False) -> Tensor:
        """Logits of the child tokens of each hidden state, up to a constant of each.

        Args:
            hidden: `[n, hidden_size]`.
            children: Token ids wanted of each of the n.
            frozen: See `hidden_states`.

        Returns:
            Float32, flat, `[sum of the numbers of children]`.
        """
        picks = Picks.of(children, hidden.device)
        with self._as_it_was(frozen) as model:
            config, head = model.config.get_text_config(), model.get_output_embeddings()
            if can_gather(head):
                return adjust_logits(gathered_logits(head, hidden, picks), config)
        asked = partial(self.vocabulary_logits, frozen=frozen)
        return vocabulary_statistics(asked, config.vocab_size, hidden, picks).log_probs

    def statistics(
        self,
        hidden: Tensor,
        picks: Picks,
        temperatures: Tensor | None = None,
        base_features: Tensor | None = None,
    ) -> Statistics:
        """Log-probabilities of tokens under the whole vocabulary, entropies, and divergences from the base model.

        Args:
            hidden: `[n, hidden_size]`.
            picks: The tokens.
            temperatures: Divide the logits, `[n]`; 1 by default.
            base_features: Frozen hidden states at the same places, `[n, hidden_size]`, if divergences are wanted.
        """

        @torch.no_grad()
        def base(rows: slice) -> Tensor:
            assert base_features is not None
            logits = self.vocabulary_logits(base_features[rows], frozen=True)
            return (logits if temperatures is None else logits / temperatures[rows, None]).log_softmax(-1)

        vocabulary = self.base.config.get_text_config().vocab_size
        reference = None if base_features is None else base
        return vocabulary_statistics(self.vocabulary_logits, vocabulary, hidden, picks, temperatures, reference)

    def child_log_probs(self, hidden: Tensor, children: Sequence[TokenIds]) -> Tensor:
        """As `child_logits`, normalised over the whole vocabulary."""
        return self.statistics(hidden, Picks.of(children, hidden.device)).log_probs

    @torch.no_grad()
    def trunk_features(self, rows: Sequence[TokenRow]) -> list[Tensor]:
        """Hidden states for the critic, float32, `[reads, hidden_size]` for each row; see `CriticTrunk`."""
        frozen = self.critic_trunk == CriticTrunk.FROZEN
        features: list[Tensor] = [torch.empty(0)] * len(rows)
        for chunk in self.chunks(rows):
            hidden = self.hidden_states([rows[index] for index in chunk], frozen=frozen).float()
            parts = torch.split(hidden, [len(rows[index].reads) for index in chunk])
            for index, part in zip(chunk, parts, strict=True):
                features[index] = part
        return features

    def decode_batches(self, prompts: Sequence[TokenIds], n_new: int) -> Iterator[list[int]]:
        """Indices of prompts that are continued together, of similar lengths: as many as their cache may hold.

        Args:
            prompts: Token ids.
            n_new: Tokens that each may get.
        """
        order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]), reverse=True)
        start = 0
        while start < len(order):
            longest = len(prompts[order[start]]) + n_new
            count = max(1, CACHED_PER_FORWARD * self.max_tokens_per_forward // longest)
            yield order[start : start + count]
            start += count

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """Where prompts are continued; nothing else may use the model meanwhile."""
        with ExitStack() as changes:
            if self.is_exact:
                changes.enter_context(merged(self.base))
            if self.is_exact and self.base.device.type == "cpu":
                changes.enter_context(multiplying_few_rows(self.base))
            yield

    def start_decoding(self, prompts: Sequence[TokenIds]) -> Decoding:
        """Begin to continue prompts token by token, with a cache where the model has one that can be trusted."""
        self._require_room(max(map(len, prompts)))
        if not self.caches:
            return PlainDecoding(self.hidden_states, prompts)
        if self.like_llama and self.base.device.type == "cpu" and can_be_written_out(decoder_of(self.base)):
            return LlamaDecoding(self.base, prompts)
        return CachedDecoding(self.base, prompts, takes_bias=self.packs_trees)

    # ------------------------------------------------------------------ modes

    def train(self, mode: bool = True) -> LanguageModel:
        """Always evaluation mode: rollout and update must see the same distribution, without a base's dropout."""
        super().train(False)
        spare_linear4bit(self)
        return self

    @contextmanager
    def _as_it_was(self, frozen: bool) -> Iterator[Any]:
        """The transformers model as it is, or as it was before training."""
        if not frozen:
            yield self.base
        elif self.kept is not None:
            yield self.kept
        elif isinstance(self.network, PeftModel):
            with self.network.disable_adapter():
                yield self.base
        else:
            raise ModelError(
                "Expected a model of which a frozen copy is kept; got lora=None with critic_trunk='live'. "
                "Fix: critic_trunk='frozen'."
            )

    def _enable_checkpointing(self) -> None:
        layers = enable_checkpointing(self.base)

        def hidden() -> Tensor:
            return self.hidden_states([probe_row(self.base)])

        def with_it() -> Tensor:
            self._recomputes = layers
            return hidden()

        without = hidden()
        check_checkpointing(with_it, lambda: without, self.source.name)

    def _recomputing(self, frozen: bool) -> AbstractContextManager[None]:
        return recomputing(self._recomputes if torch.is_grad_enabled() and not frozen else [])

    def _require_room(self, n_tokens: int) -> None:
        if n_tokens > self.max_length:
            raise ModelError(
                f"Expected at most {self.max_length} tokens of prompt and action (the model's limit); got {n_tokens}. "
                "Fix: shorten the observation, or use a model with a longer context."
            )


def _is_one_read(rows: Sequence[TokenRow]) -> bool:
    """Whether rows are a single sequence that is read at its end."""
    return len(rows) == 1 and rows[0].parents is None and rows[0].reads == (len(rows[0].tokens) - 1,)


def _other_ends(base: Any) -> list[int]:  # noqa: ANN401 - as above
    """End tokens of the model's own generation settings; a chat model may have several."""
    ends = getattr(getattr(base, "generation_config", None), "eos_token_id", None)
    return [] if ends is None else list(ends) if isinstance(ends, list | tuple) else [int(ends)]
