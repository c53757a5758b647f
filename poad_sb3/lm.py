"""`LanguageModel`: the only place that touches transformers and peft.

It answers two questions about *token rows* (a prompt, and what follows it): what are the hidden states at given
positions, with the LoRA adapter on or off; and what are the logits of a few child tokens there. No tensor of
`[batch, tokens, vocabulary]` is ever made, and the language-model head sees only the rows that are asked for.
"""

from __future__ import annotations

import hashlib
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from poad_sb3.errors import ModelError, ObservationError
from poad_sb3.model_check import TokenRow, adjust_logits, check_model
from poad_sb3.pocket import POCKET_FOLDER

__all__ = ["DEFAULT_LORA", "LanguageModel", "TokenRow"]

TokenIds = tuple[int, ...]

DEFAULT_LORA: Mapping[str, Any] = {
    "r": 8,
    "lora_alpha": 16,
    "lora_dropout": 0.0,
    "bias": "none",
    "target_modules": ["q_proj", "v_proj"],
}
"""The paper's adapter."""

_FINGERPRINT_ELEMENTS = 1 << 18


class LanguageModel(nn.Module):
    """A causal language model with a LoRA adapter, and its tokenizer.

    Args:
        model: `"pocket"`, a folder, or an id of the Hugging Face hub.
        revision: Commit, tag or branch on the hub.
        lora: Arguments of `peft.LoraConfig` that replace those of `DEFAULT_LORA`. Dropout must stay 0: rollout
            and update must see the same distribution.
        max_tokens_per_forward: Bound on rows x padded length of one pass; memory follows it, results do not.

    Raises:
        ModelError: If the model cannot be loaded, has no end token, or the adapter does not fit it.
    """

    def __init__(
        self,
        model: str = "pocket",
        *,
        revision: str | None = None,
        lora: Mapping[str, Any] | None = None,
        max_tokens_per_forward: int = 4096,
    ) -> None:
        super().__init__()
        if max_tokens_per_forward < 1:
            raise ModelError(f"Expected max_tokens_per_forward >= 1; got {max_tokens_per_forward}. Fix: try 4096.")
        self.max_tokens_per_forward = max_tokens_per_forward
        base, self.tokenizer = _load(model, revision)
        self.fingerprint = _fingerprint(base, self.tokenizer)
        config = base.config.get_text_config()
        self.max_length = int(getattr(config, "max_position_embeddings", None) or sys.maxsize)
        self.network = _adapt(base, lora)
        self.network.eval()
        self.packs_trees = True  # until the check says otherwise
        self.hidden_size, self.packs_trees = check_model(self.network, self.hidden_states, self.child_logits, model)

    # ------------------------------------------------------------------ text and tokens

    def prompt_ids(self, text: str) -> TokenIds:
        """Token ids of a prompt, with the start token where the tokenizer has one.

        Raises:
            ObservationError: If there is no token: the first action token would have nothing to follow.
        """
        ids = self._text_ids(text)
        if self.tokenizer.bos_token_id is not None:
            ids = (int(self.tokenizer.bos_token_id), *ids)
        if not ids:
            raise ObservationError(
                f"Expected an observation of at least one token; got {text!r}, and this tokenizer has no start token. "
                "Fix: let the environment describe its state in words."
            )
        return ids

    def action_ids(self, text: str) -> TokenIds:
        """Token ids of an action that continues a prompt: a space, the text, the end token.

        Prompt and action are tokenised apart and their ids joined, so what is sampled is what is scored.
        """
        return (*self._text_ids(f" {text}"), self.end_token)

    @property
    def end_token(self) -> int:
        """Id of the token that ends an action."""
        return int(self.tokenizer.eos_token_id)

    def action_text(self, ids: TokenIds) -> str:
        """The text of an action's tokens, without the space before it and the end token."""
        kept = ids[:-1] if ids and ids[-1] == self.end_token else ids
        text: str = self.tokenizer.decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text.removeprefix(" ")

    def _text_ids(self, text: str) -> TokenIds:
        # Text from an environment is text: a "</s>" in it must not become the end token.
        return tuple(self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))

    # ------------------------------------------------------------------ passes

    def chunks(self, rows: Sequence[TokenRow]) -> Iterator[list[int]]:
        """Indices of rows that go through the model together: similar lengths, bounded padded size."""
        order = sorted(range(len(rows)), key=lambda index: len(rows[index].tokens), reverse=True)
        start = 0
        while start < len(order):
            longest = len(rows[order[start]].tokens)
            count = max(1, self.max_tokens_per_forward // longest)
            yield order[start : start + count]
            start += count

    def hidden_states(self, rows: Sequence[TokenRow], *, adapter: bool) -> Tensor:
        """Last hidden states at the positions that the rows read, one pass.

        Args:
            rows: One chunk; `chunks` makes them.
            adapter: Whether the LoRA adapter takes part; without it the base model is frozen.

        Returns:
            `[total reads, hidden_size]` in the order of the rows and their reads.
        """
        if not self.packs_trees and any(row.parents for row in rows):
            return self._hidden_states_unpacked(rows, adapter=adapter)
        ids, positions, mask = self._pack(rows)
        with nullcontext() if adapter else self.network.disable_adapter():
            decoder = self.network.get_base_model().get_decoder()
            output = decoder(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False)
        batch = [number for number, row in enumerate(rows) for _ in row.reads]
        place = [read for row in rows for read in row.reads]
        hidden: Tensor = output.last_hidden_state[batch, place]
        return hidden

    def _hidden_states_unpacked(self, rows: Sequence[TokenRow], *, adapter: bool) -> Tensor:
        """The same, with every read as an ordinary sequence of its own: for models that see more than the mask."""
        plain = [_path_to(row, read) for row in rows for read in row.reads]
        parts: list[Tensor] = [torch.empty(0)] * len(plain)
        for chunk in self.chunks(plain):
            hidden = self.hidden_states([plain[index] for index in chunk], adapter=adapter)
            for index, part in zip(chunk, hidden, strict=True):
                parts[index] = part
        return torch.stack(parts)

    def child_logits(self, hidden: Tensor, children: Sequence[TokenIds]) -> Tensor:
        """Logits of the child tokens of each hidden state.

        Args:
            hidden: `[n, hidden_size]`.
            children: Token ids wanted of each of the n.

        Returns:
            Float32, flat, `[sum of the numbers of children]`.
        """
        base = self.network.get_base_model()
        logits = adjust_logits(base.get_output_embeddings()(hidden).float(), base.config.get_text_config())
        return _pick(logits, children)

    def vocabulary_log_probs(self, hidden: Tensor) -> Tensor:
        """Log-probabilities of the whole vocabulary after each hidden state, float32, `[n, vocabulary]`."""
        base = self.network.get_base_model()
        logits = adjust_logits(base.get_output_embeddings()(hidden).float(), base.config.get_text_config())
        log_probs: Tensor = torch.log_softmax(logits, dim=-1)
        return log_probs

    def child_log_probs(self, hidden: Tensor, children: Sequence[TokenIds]) -> Tensor:
        """As `child_logits`, normalised over the whole vocabulary."""
        return _pick(self.vocabulary_log_probs(hidden), children)

    @torch.no_grad()
    def generate(
        self, prompts: Sequence[TokenIds], max_new_tokens: int, choose: Callable[[Tensor], list[int]]
    ) -> tuple[list[TokenIds], list[list[float]]]:
        """Continue prompts token by token until the end token.

        Args:
            prompts: Token ids.
            max_new_tokens: Bound on the tokens of a continuation, end token included.
            choose: From log-probabilities `[n, vocabulary]` to a token for each row.

        Returns:
            Continuations (with the end token, unless the bound came first), and log-probabilities of their tokens.
        """
        tokens: list[list[int]] = [[] for _ in prompts]
        log_probs: list[list[float]] = [[] for _ in prompts]
        waiting = list(range(len(prompts)))
        for _ in range(max_new_tokens):
            rows = [TokenRow((*prompts[i], *tokens[i]), None, (len(prompts[i]) + len(tokens[i]) - 1,)) for i in waiting]
            for chunk in self.chunks(rows):
                known = self.vocabulary_log_probs(self.hidden_states([rows[place] for place in chunk], adapter=True))
                for place, token, row in zip(chunk, choose(known), known, strict=True):
                    tokens[waiting[place]].append(token)
                    log_probs[waiting[place]].append(float(row[token]))
            waiting = [i for i in waiting if tokens[i][-1] != self.end_token]
            if not waiting:
                break
        return [tuple(one) for one in tokens], log_probs

    @torch.no_grad()
    def frozen_features(self, rows: Sequence[TokenRow]) -> list[Tensor]:
        """Hidden states of the base model (adapter off), float32, `[reads, hidden_size]` for each row."""
        features: list[Tensor] = [torch.empty(0)] * len(rows)
        for chunk in self.chunks(rows):
            hidden = self.hidden_states([rows[index] for index in chunk], adapter=False).float()
            parts = torch.split(hidden, [len(rows[index].reads) for index in chunk])
            for index, part in zip(chunk, parts, strict=True):
                features[index] = part
        return features

    def _pack(self, rows: Sequence[TokenRow]) -> tuple[Tensor, Tensor, Tensor | None]:
        """Right-padded ids and positions, and a mask where one is needed.

        Behind a causal mask right padding cannot be seen from any real position, so ordinary rows need none.
        """
        device = self.network.device
        longest = max(len(row.tokens) for row in rows)
        depths = [_depths(row, longest) for row in rows]
        deepest = max(map(max, depths)) + 1
        if deepest > self.max_length:
            raise ModelError(
                f"Expected at most {self.max_length} tokens of prompt and action (the model's limit); got {deepest}. "
                "Fix: shorten the observation, or use a model with a longer context."
            )
        ids = torch.tensor([[*row.tokens, *[0] * (longest - len(row.tokens))] for row in rows], device=device)
        positions = torch.tensor(depths, device=device)
        if all(row.parents is None for row in rows):
            return ids, positions, None
        seen = torch.stack([_ancestors(row, longest) for row in rows]).to(device)
        dtype = self.network.dtype
        mask = torch.zeros(seen.shape, dtype=dtype, device=device).masked_fill(~seen, torch.finfo(dtype).min)
        return ids, positions, mask[:, None]


def _pick(table: Tensor, children: Sequence[TokenIds]) -> Tensor:
    """Entries of some tokens in each row of `[n, vocabulary]`, flat."""
    row = [number for number, tokens in enumerate(children) for _ in tokens]
    token = [token for tokens in children for token in tokens]
    picked: Tensor = table[row, token]
    return picked


def _depths(row: TokenRow, longest: int) -> list[int]:
    if row.parents is None:
        return [*range(len(row.tokens)), *[0] * (longest - len(row.tokens))]
    depths: list[int] = []
    for parent in row.parents:
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
    return depths + [0] * (longest - len(depths))


def _path_to(row: TokenRow, read: int) -> TokenRow:
    """An ordinary row that ends at one read of a branching one."""
    tokens: list[int] = []
    place = read
    while place >= 0:
        tokens.append(row.tokens[place])
        place = place - 1 if row.parents is None else row.parents[place]
    return TokenRow(tuple(reversed(tokens)), None, (len(tokens) - 1,))


def _ancestors(row: TokenRow, longest: int) -> Tensor:
    """Boolean `[longest, longest]`: which positions each position attends to (itself and what it follows)."""
    if row.parents is None:
        return torch.ones(longest, longest, dtype=torch.bool).tril()
    seen = torch.eye(longest, dtype=torch.bool)
    for position, parent in enumerate(row.parents):
        if parent >= 0:
            seen[position] |= seen[parent]
    return seen


def _load(model: str, revision: str | None) -> tuple[Any, Any]:
    if not isinstance(model, str):
        raise ModelError(
            f"Expected model as a str; got {type(model).__name__}. Fix: pass str(path); checkpoints keep it as text."
        )
    source = str(POCKET_FOLDER) if model == "pocket" else model
    try:
        with _no_progress_bars():
            base, report = AutoModelForCausalLM.from_pretrained(
                source, revision=revision, dtype=torch.float32, output_loading_info=True
            )
            tokenizer = AutoTokenizer.from_pretrained(source, revision=revision)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, SafetensorError) as error:
        raise ModelError(
            f"Expected model='pocket', a folder with a Hugging Face model, or an id of the hub; got {model!r}, which "
            f"could not be loaded ({type(error).__name__}: {str(error)[:300]}). "
            "Fix: check the spelling; without a network, download the folder elsewhere and pass its path."
        ) from error
    if report["missing_keys"]:
        raise ModelError(
            f"Expected all weights of {type(base).__name__} in {model!r}; {len(report['missing_keys'])} are missing, "
            f"first {min(report['missing_keys'])!r}, and would be random. Fix: complete the folder."
        )
    if tokenizer.eos_token_id is None:
        raise ModelError(
            f"Expected a tokenizer with an end-of-sequence token; that of {model!r} has none. "
            "Fix: set eos_token in its tokenizer_config.json."
        )
    return base, tokenizer


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    """Loading a small model is instant; its progress bar would only break into ours."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()


def _adapt(base: Any, lora: Mapping[str, Any] | None) -> Any:  # noqa: ANN401 - transformers and peft have no types
    settings = {**DEFAULT_LORA, **(lora or {})}
    if settings["lora_dropout"]:
        raise ModelError(
            f"Expected lora_dropout 0; got {settings['lora_dropout']}. Fix: leave it out. Dropout would make the "
            "update see another distribution than the one that was sampled from (|log ratio| 0.03 before any step)."
        )
    try:
        with warnings.catch_warnings():
            # peft 0.21 reads an attribute that transformers 5 deprecates; users can do nothing about it.
            warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", category=FutureWarning)
            return get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", **settings))
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"Expected arguments of peft.LoraConfig that fit {type(base).__name__}; got {settings} "
            f"({str(error)[:300]}). Fix: name target_modules that this architecture has."
        ) from error


def _fingerprint(base: Any, tokenizer: Any) -> str:  # noqa: ANN401 - as above
    """Digest of the base weights and the vocabulary.

    Of each tensor at most 262,144 evenly spaced elements are read: all of the pocket model, and of a large one enough
    that no fine-tuning passes for the original, in seconds.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(base.state_dict().items()):
        flat = tensor.detach().flatten()
        sample = flat[:: max(1, -(-flat.numel() // _FINGERPRINT_ELEMENTS))]
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        digest.update(sample.to("cpu", torch.float32).numpy().tobytes())
    digest.update(json.dumps(sorted(tokenizer.get_vocab().items())).encode())
    return digest.hexdigest()
