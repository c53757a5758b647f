"""`LanguageModel`: token rows in, hidden states and logits out.

*Token rows* are prompts with their continuations. The model computes their hidden states at given positions, with the
trained weights or with those before training, and the logits of given tokens there. No tensor of `[batch, tokens,
vocabulary]` is ever made, and the language-model head runs only at the rows that need it.

In a training, only the package `poad_sb3.language_model` calls transformers and peft.
"""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, TypeVar

import torch
from peft import PeftModel
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from transformers import PreTrainedModel

from poad_sb3.distributed.ranks import Ranks, current_ranks
from poad_sb3.distributed.sharding import shard
from poad_sb3.errors import ModelError, RankError
from poad_sb3.language_model.decoding import CachedDecoding, Decoding, PlainDecoding
from poad_sb3.language_model.fingerprint import fingerprint
from poad_sb3.language_model.forward import decoder_of, decoder_pass, parts_of, passes_of
from poad_sb3.language_model.gradient_checkpointing import enable_checkpointing, recomputing, spare_linear4bit
from poad_sb3.language_model.lm_head import (
    Picks,
    adjust_logits,
    all_logits,
    can_gather,
    gathered_logits,
    n_slices,
    vocabulary_statistics,
)
from poad_sb3.language_model.loading import ModelFactory, ModelSource, context_length, load
from poad_sb3.language_model.lora import adapt, is_quantized
from poad_sb3.language_model.packing import Group, TokenIds, TokenRow, groups_of, pack, path_to
from poad_sb3.language_model.self_check import (
    check_checkpointing,
    check_model,
    check_reference,
    is_full_precision,
    plain_hidden,
    probe_row,
)
from poad_sb3.prompts import Prompter, Question, prompt_template
from poad_sb3.settings import ModelSettings, split_settings
from poad_sb3.settings.model import CriticTrunk

T = TypeVar("T")
LEAST_TOKENS, LEAST_TEXTS = 512, 8
"""Minimum numbers of tokens of passes, and of texts decoded together, that are worth their own part; see `parts_of`."""
_LEAST_PASS, _LARGEST_PASS = 1024, 8192
"""Numbers of tokens of a pass that are chosen where the settings leave it open."""
CACHED_PER_FORWARD = 8
"""Number of tokens whose keys and values are held while decoding, for each of `max_tokens_per_forward`: a decoding
step costs little more for many texts than for one, and without gradients a token takes little memory."""
_MAX_GATHERED = 2**24
"""Maximum size of gathered rows of the head, in numbers (64 MiB); up to it they are gathered although all logits
would take less."""
_SAVED = 50
"""Numbers of the model's width that autograd saves in each layer for a token: 14 to 52 for SmolLM2 and Qwen2 of three
sizes, more in bfloat16 and with an adapter on all matrices."""


def pass_tokens(base: PreTrainedModel, device: torch.device | str, *, trains_all: bool = False) -> int:
    """Return the number of tokens of a pass for a device, where the settings have none.

    On CUDA a power of two whose activations take at most half of the memory beside the weights. A GPU waits for its
    next kernel in small passes; on a CPU larger ones only take more memory. The device's total memory counts, not the
    free part of the moment: an equal number makes equal passes when a training resumes.

    Args:
        base: Base model.
        device: Device that it trains on.
        trains_all: Whether all weights are trained: gradients, moments of Adam and the critic's copy take as much
            memory as four further models.
    """
    n_tokens = _LEAST_PASS
    if torch.device(device).type == "cuda":
        config = base.config.get_text_config()
        of_token = _SAVED * config.num_hidden_layers * config.hidden_size * base.dtype.itemsize
        weights = base.get_memory_footprint() * (5 if trains_all else 1)
        room = (torch.cuda.get_device_properties(device).total_memory - weights) / 2
        while n_tokens < _LARGEST_PASS and 2 * n_tokens * of_token <= room:
            n_tokens *= 2
    return n_tokens


class LanguageModel(nn.Module):
    """A causal language model, its trained parameters, and its tokenizer.

    Args:
        model: Name of an embedded model (`"pocket"`, `"pocket-char"`, `"pocket-coder"`), `"smollm2"`, a folder, a GGUF
            file, an id of the Hugging Face hub, or a function that makes model and tokenizer.
        device: Torch device of the base; `fsdp` moves it later.
        is_trained: Whether to train an adapter, or all weights if `lora` is None; False for a frozen model.
        micro_batches: Number of parts that passes are split into; see `PPOSettings.micro_batches`.
        **settings: Other fields of `ModelSettings`; their default, range and help are documented there.

    Raises:
        ModelError: If the model cannot be loaded as asked, the package's scores differ from its own, it has no end
            token, or the adapter does not fit it.
    """

    def __init__(
        self,
        model: str | ModelFactory = "pocket",
        *,
        device: torch.device | str = "cpu",
        is_trained: bool = True,
        micro_batches: int = 1,
        **settings: Any,
    ) -> None:
        super().__init__()
        self.micro_batches = micro_batches
        (given,) = split_settings({"model": model, **settings}, ModelSettings)
        self.settings = chosen = ModelSettings(**given)
        lora = chosen.lora
        if not isinstance(lora, Mapping | None):
            raise TypeError(f'Expected lora to be a dict or None; got {lora!r:.80}. Fix: lora={{"r": 8}}.')
        self.is_trained = is_trained
        self.critic_trunk = CriticTrunk(chosen.critic_trunk)
        self.source = ModelSource(
            model,
            chosen.revision,
            str(chosen.dtype).removeprefix("torch."),
            chosen.quantization,
            chosen.attn_implementation,
            device,
        )
        base, self.tokenizer = load(self.source)
        self.fingerprint = fingerprint(base, self.tokenizer)
        trains_all = is_trained and lora is None
        self.max_tokens_per_forward = chosen.max_tokens_per_forward or pass_tokens(base, device, trains_all=trains_all)
        if not (chosen.fsdp or is_quantized(base)):
            base.to(device)  # the checks below are to see the kernels that will train
        self.max_length = context_length(base.config.get_text_config(), self.source.name)
        template = prompt_template(chosen.prompt, self.tokenizer)
        self.prompter = Prompter(self.tokenizer, template, self.max_length, _other_ends(base))
        needs_copy = trains_all and self.critic_trunk == CriticTrunk.FROZEN
        self.ref_model = copy.deepcopy(base).requires_grad_(False).eval() if needs_copy else None
        spare_linear4bit(base.eval())
        compares = is_trained and lora is not None and self.critic_trunk == CriticTrunk.FROZEN
        before = plain_hidden(base) if compares else None
        self.network = adapt(base, lora) if is_trained else base.requires_grad_(False)
        super().train(False)
        spare_linear4bit(self)
        self.is_full_precision = is_full_precision(base)
        # Assumed until check_model has run: tree masks work, and rows are not merged.
        self.plain_passes, self.packs_trees, self.hidden_size = False, True, 0
        self._recomputes: list[nn.Module] = []
        properties = check_model(self.base, self.hidden_states, self.vocabulary_logits, self.source.name)
        self.hidden_size, self.plain_passes, self.packs_trees, self.caches = properties
        if before is not None:
            reference = partial(self.hidden_states, reference=True)
            trained = [parameter for parameter in self.network.parameters() if parameter.requires_grad]
            check_reference(reference, before, trained, self.source.name, self.base)
        if chosen.gradient_checkpointing:
            self._enable_checkpointing()

    @property
    def is_sharded(self) -> bool:
        """Whether the weights are sharded among the ranks: `fully_shard` changes the class of a module."""
        return isinstance(self, FSDPModule)

    def shard(self, device: torch.device | str) -> None:
        """Divide the weights among the ranks, for the device that passes run on; see `ModelSettings.fsdp`.

        Raises:
            ModelError: If there is one rank only, ranks would share a GPU, the weights are quantised, or the model has
                no list of layers.
        """
        if self.ranks.size == 1:
            raise ModelError(
                "Expected several ranks for fsdp=True; got one. Fix: poad train --n-procs, or leave fsdp out."
            )
        if is_quantized(self.base):
            raise ModelError(
                f"Expected weights that are not quantised for fsdp=True, since packed ones cannot be sharded; got "
                f"{self.source.name!r}. Fix: a base in float32 or bfloat16, or leave fsdp out."
            )
        n_here, n_gpus = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.cuda.device_count()
        if torch.device(device).type == "cuda" and n_here > n_gpus:
            raise ModelError(
                f"Expected a GPU for each rank with fsdp=True; got {n_gpus} for {n_here} ranks of this machine. "
                f"Fix: --n-procs {n_gpus}, or leave fsdp out."
            )
        models = [self.base] if self.ref_model is None else [self.base, self.ref_model]
        layers = [layer for model in models for layer in getattr(decoder_of(model), "layers", ())]
        if not layers:
            raise ModelError(
                "Expected a decoder with a list `layers` for fsdp=True; this one has none. Fix: leave it out."
            )
        shard(self, layers, device)

    def use_parts(self) -> None:
        """Free whole weights that a pass has left behind, before the parameters are read or changed.

        FSDP2 keeps those of the root module for the next pass.
        """
        if isinstance(self, FSDPModule):
            FSDPModule.reshard(self)

    @property
    def n_weights(self) -> int:
        """Number of weights of the model, the adapter's included."""
        return sum(parameter.numel() for parameter in self.base.parameters())

    @property
    def base(self) -> Any:
        """Transformers model; an adapter is inside its layers."""
        return self.network.get_base_model() if isinstance(self.network, PeftModel) else self.network

    @property
    def ranks(self) -> Ranks:
        """Processes that passes may be split among."""
        return current_ranks()

    def use_plain_passes(self) -> None:
        """Disable merged rows, batches and caches: every position that is read gets a plain pass of its own."""
        self.plain_passes = True
        self.packs_trees = self.caches = False

    # ------------------------------------------------------------------ text and tokens

    def prompt_ids(self, question: Question | str, reserve: int = 1) -> TokenIds:
        """Return the token ids of a prompt; see `Prompter.prompt_ids`. A bare text is a question without history."""
        as_question = Question(question, None) if isinstance(question, str) else question
        return self.prompter.prompt_ids(as_question, reserve)

    def action_ids(self, text: str) -> TokenIds:
        """Return the token ids of an action that continues a prompt; see `Prompter.action_ids`."""
        return self.prompter.action_ids(text)

    @property
    def end_token(self) -> int:
        """Id of the token that ends an action."""
        return self.prompter.end_token

    # ------------------------------------------------------------------ passes

    def forward(self, run: Callable[..., Tensor], *args: Any) -> Tensor:
        """Run one part of the model: a pass of the decoder or of the head.

        Every pass over the weights enters through this module, so that its forward hooks (those of FSDP2 gather sharded
        weights) see all of them.

        Raises:
            RankError: If the weights are sharded and rank 0 runs the pass alone, as for a callback.
        """
        if self.is_sharded and self.ranks.rank_zero_only:
            raise RankError(
                "Expected passes of a model with fsdp=True on all ranks; a callback makes one on rank 0 alone. "
                "Fix: evaluate checkpoints in a process of its own, and record no episodes."
            )
        return run(*args)

    def parts(self, rows: Sequence[TokenRow]) -> list[list[list[int]]]:
        """Group indices of rows by micro-batch, and in it by pass: rows that begin alike, of similar lengths."""
        groups = sorted(self._groups(rows), key=lambda group: group.size, reverse=True)
        limit = 1 if self.plain_passes else self.max_tokens_per_forward
        return [
            [
                [index for group in batch for index in group.rows]
                for batch in passes_of([groups[at] for at in part], limit)
            ]
            for part in parts_of([group.size for group in groups], self.micro_batches, LEAST_TOKENS)
        ]

    def chunks(self, rows: Sequence[TokenRow]) -> Iterator[list[int]]:
        """Group indices of rows by pass."""
        for part in self.parts(rows):
            yield from part

    def own_chunks(self, rows: Sequence[TokenRow]) -> Iterator[tuple[int | None, list[int]]]:
        """Yield the passes that this rank makes, with the number of their micro-batch.

        Ranks that share the weights (FSDP2) make the same number of passes: None stands for one that does not count.
        """
        parts = self.parts(rows)
        chunks = [
            (n, chunk) for n, part in enumerate(parts) if self.ranks.owns(n, self.micro_batches) for chunk in part
        ]
        yield from chunks
        if self.is_sharded and self.ranks.is_data_parallel:
            n_passes = Counter(self.ranks.owner(n, self.micro_batches) for n, part in enumerate(parts) for _ in part)
            shortest = min((chunk for part in parts for chunk in part), key=len)
            yield from [(None, shortest)] * (max(n_passes.values()) - len(chunks))

    def data_parallel(self, rows: Sequence[TokenRow], run: Callable[[list[int]], Iterable[T]]) -> list[T]:
        """Return a result for each row, from passes that are split among the ranks.

        Args:
            rows: Rows of the passes.
            run: Function that makes a pass of some rows and returns the result of each, picklable.
        """
        if not rows:
            return []
        computed: dict[int, T] = {}
        for part, chunk in self.own_chunks(rows):
            results = run(chunk)
            if part is not None:
                computed.update(zip(chunk, results, strict=True))
        merged = self.ranks.merge(computed)
        return [merged[index] for index in range(len(rows))]

    def _groups(self, rows: Sequence[TokenRow]) -> list[Group]:
        return groups_of(rows, self.hidden_size if self.packs_trees else 0, self.max_tokens_per_forward)

    def hidden_states(self, rows: Sequence[TokenRow], *, reference: bool = False) -> Tensor:
        """Compute the last hidden states at the positions that the rows read. Common prefixes of rows are run once.

        Args:
            rows: Rows of one chunk; `chunks` makes them.
            reference: Whether to use the reference model, the model before training.

        Returns:
            Hidden states, `[total reads, hidden_size]`, in the order of the rows and their reads.
        """
        if (self.plain_passes and not _is_one_read(rows)) or (
            not self.packs_trees and any(row.parents for row in rows)
        ):
            return self._hidden_states_unpacked(rows, reference=reference)
        parts: list[Tensor] = [torch.empty(0)] * len(rows)
        # A chunk is one pass, but where its rows could be merged further than among all rows, and padding grew.
        for groups in passes_of(self._groups(rows), self.max_tokens_per_forward):
            packed, indices = pack(rows, groups), sorted(index for group in groups for index in group.rows)
            self._require_room(packed.deepest)
            with self._model(reference) as model, self._recomputing(reference):
                hidden: Tensor = self(decoder_pass, model, packed)
            if len(indices) == len(rows):
                return hidden
            for index, part in zip(
                indices, torch.split(hidden, [len(rows[index].reads) for index in indices]), strict=True
            ):
                parts[index] = part
        return torch.cat(parts)

    def _hidden_states_unpacked(self, rows: Sequence[TokenRow], *, reference: bool) -> Tensor:
        """Compute hidden states with every read as an ordinary sequence, for models that see more than the mask."""
        plain = [path_to(row, read) for row in rows for read in row.reads]
        if not plain:
            return torch.empty(0, self.hidden_size, dtype=self.base.dtype, device=self.base.device)
        parts: list[Tensor] = [torch.empty(0)] * len(plain)
        for chunk in self.chunks(plain):
            hidden = self.hidden_states([plain[index] for index in chunk], reference=reference)
            for index, part in zip(chunk, hidden, strict=True):
                parts[index] = part
        return torch.stack(parts)

    def vocabulary_logits(self, hidden: Tensor, *, reference: bool = False) -> Tensor:
        """Compute the logits of the whole vocabulary after each hidden state, float32, `[n, vocabulary]`."""
        with self._model(reference) as model:
            head, config = model.get_output_embeddings(), model.config.get_text_config()
            return adjust_logits(self(all_logits, head, hidden), config)

    def child_logits(self, hidden: Tensor, children: Sequence[TokenIds], *, reference: bool = False) -> Tensor:
        """Compute the logits of the child tokens of each hidden state, up to a constant of each.

        Args:
            hidden: Hidden states, `[n, hidden_size]`.
            children: Token ids of the children of each hidden state.
            reference: Whether to use the reference model, see `hidden_states`.

        Returns:
            Logits, float32, flat, `[sum of the numbers of children]`.
        """
        picks = Picks.of(children, hidden.device)
        with self._model(reference) as model:
            config, head = model.config.get_text_config(), model.get_output_embeddings()
            # A row of the head for each child: beyond all logits where many tokens are kept, as by top_p alone.
            gathered, whole = len(picks.tokens) * hidden.shape[-1], len(hidden) * config.vocab_size
            if can_gather(head) and (self.is_sharded or gathered <= max(whole, _MAX_GATHERED)):
                return adjust_logits(self(gathered_logits, head, hidden, picks), config)
        logits_of = partial(self.vocabulary_logits, reference=reference)
        n_slices_min = self._least_slices(len(hidden))
        return vocabulary_statistics(logits_of, config.vocab_size, hidden, picks, least_slices=n_slices_min)[0]

    def statistics(
        self,
        hidden: Tensor,
        picks: Picks,
        temperatures: Tensor | None = None,
        base_features: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute log-probabilities of tokens under the whole vocabulary, entropies, and divergences from the base.

        Args:
            hidden: Hidden states, `[n, hidden_size]`.
            picks: Tokens to score.
            temperatures: Temperatures that divide the logits, `[n]`; 1 by default.
            base_features: Frozen hidden states at the same places, `[n, hidden_size]`, if divergences are wanted.

        Returns:
            See `vocabulary_statistics`.
        """

        @torch.no_grad()
        def base(rows: slice) -> Tensor:
            assert base_features is not None
            logits = self.vocabulary_logits(base_features[rows], reference=True)
            return (logits if temperatures is None else logits / temperatures[rows, None]).log_softmax(-1)

        vocabulary = self.base.config.get_text_config().vocab_size
        reference = None if base_features is None else base
        logits_of, n_slices_min = self.vocabulary_logits, self._least_slices(len(hidden))
        return vocabulary_statistics(logits_of, vocabulary, hidden, picks, temperatures, reference, n_slices_min)

    def _least_slices(self, n_rows: int) -> int:
        """Return the largest number of head passes among the ranks that share the weights; 0 for a single rank."""
        if not (self.is_sharded and self.ranks.is_data_parallel):
            return 0
        count = n_slices(n_rows, self.base.config.get_text_config().vocab_size)
        return int(max(tensor.item() for tensor in self.ranks.gather_tensors(torch.tensor(float(count)))))

    def child_log_probs(self, hidden: Tensor, children: Sequence[TokenIds]) -> Tensor:
        """Compute `child_logits` normalised over the whole vocabulary."""
        return self.statistics(hidden, Picks.of(children, hidden.device))[0]

    @torch.no_grad()
    def trunk_features(self, rows: Sequence[TokenRow]) -> list[Tensor]:
        """Compute hidden states for the critic, float32, `[reads, hidden_size]` for each row; see `CriticTrunk`."""
        reference = self.critic_trunk == CriticTrunk.FROZEN

        def run(chunk: list[int]) -> Sequence[Tensor]:
            hidden = self.hidden_states([rows[index] for index in chunk], reference=reference).float()
            sizes = [len(rows[at].reads) for at in chunk]
            if not self.ranks.is_data_parallel:
                return torch.split(hidden, sizes)
            # A part that is pickled takes along the whole tensor that it is a view of.
            return [features.clone() for features in torch.split(hidden.to("cpu"), sizes)]

        return [features.to(self.base.device) for features in self.data_parallel(rows, run)]

    def decode_batches(self, prompts: Sequence[TokenIds], n_new: int) -> Iterator[list[int]]:
        """Yield indices of prompts of similar lengths that this rank continues: as many as their cache may hold.

        Args:
            prompts: Token ids of the prompts.
            n_new: Maximum number of tokens that each may get.
        """
        order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]), reverse=True)
        for number, part in enumerate(parts_of([1] * len(order), self.micro_batches, LEAST_TEXTS)):
            start = 0
            # Ranks that share the weights write all texts together: their passes must be as many.
            while start < len(part) and (self.is_sharded or self.ranks.owns(number, self.micro_batches)):
                longest = len(prompts[order[part[start]]]) + n_new
                count = max(1, CACHED_PER_FORWARD * self.max_tokens_per_forward // longest)
                yield [order[at] for at in part[start : start + count]]
                start += count

    @property
    def shares_keys(self) -> bool:
        """Whether trees can be read behind texts that are being continued, on their keys and values."""
        return self.caches and self.packs_trees and not self.is_sharded  # sharded weights: as many passes on all ranks

    def start_decoding(self, prompts: Sequence[TokenIds]) -> Decoding:
        """Start to continue prompts token by token, with a cache where the model has one that can be trusted."""
        self._require_room(max(map(len, prompts)))
        if not self.caches:
            return PlainDecoding(self.hidden_states, prompts)
        return CachedDecoding(self.base, prompts, takes_bias=self.packs_trees, enter=self)

    # ------------------------------------------------------------------ modes

    def train(self, mode: bool = True) -> LanguageModel:
        """Stay in evaluation mode: rollout and update must see the same distribution, without a base's dropout."""
        return self

    @contextmanager
    def _model(self, reference: bool) -> Iterator[Any]:
        """Yield the transformers model, or the reference model: the one before training."""
        if not reference or not self.is_trained:
            yield self.base
        elif self.ref_model is not None:
            yield self.ref_model
        elif isinstance(self.network, PeftModel):
            with self.network.disable_adapter():
                yield self.base
        else:
            raise ModelError(
                "Expected a model with a reference copy; got lora=None with critic_trunk='live'. "
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

    def _recomputing(self, reference: bool) -> AbstractContextManager[None]:
        return recomputing(self._recomputes if torch.is_grad_enabled() and not reference else [])

    def _require_room(self, n_tokens: int) -> None:
        if n_tokens > self.max_length:
            raise ModelError(
                f"Expected at most {self.max_length} tokens of prompt and action (the model's limit); got {n_tokens}. "
                "Fix: shorten the observation, or use a model with a longer context."
            )


def _is_one_read(rows: Sequence[TokenRow]) -> bool:
    """Return whether rows are a single sequence that is read at its end."""
    return len(rows) == 1 and rows[0].parents is None and rows[0].reads == (len(rows[0].tokens) - 1,)


def _other_ends(base: Any) -> list[int]:
    """Return the end tokens of the model's own generation settings; a chat model may have several."""
    ends = getattr(getattr(base, "generation_config", None), "eos_token_id", None)
    return [] if ends is None else list(ends) if isinstance(ends, list | tuple) else [int(ends)]
