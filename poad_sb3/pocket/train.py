"""Train an embedded model from scratch: `python -m poad_sb3.pocket.train [--model NAME]`; it takes minutes.

Writes a Hugging Face model folder (weights, tokenizer, model card). Everything is seeded; on one machine with one
version of torch two runs give the same weights.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch.nn.functional import cross_entropy
from tqdm import tqdm
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from poad_sb3.pocket.configs import CONFIGS, PocketConfig, TrainingConfig
from poad_sb3.pocket.corpus import Example

BOS, EOS, PAD = "<s>", "</s>", "<pad>"


class _Row(NamedTuple):
    """A line in tokens, with the number of first tokens that the loss leaves out."""

    ids: list[int]
    unlearned: int


def make_tokenizer(lines: list[Example], vocab_size: int, word: str | None = None) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE on the corpus: every text has tokens, and tokens give back the text.

    Args:
        lines: Lines of the corpus.
        vocab_size: Maximum number of tokens, special ones included.
        word: Regular expression of the longest texts that become one token; GPT-2's if None.
    """
    tokenizer = Tokenizer(models.BPE())
    words: pre_tokenizers.PreTokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=word is None)
    if word is not None:
        words = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(word), "isolated"), words])
    tokenizer.pre_tokenizer = words
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PAD, BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((f"{line.prompt} {line.action}" for line in lines), trainer)
    start = (BOS, tokenizer.token_to_id(BOS))
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[start])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        clean_up_tokenization_spaces=False,
    )


def make_model(config: TrainingConfig, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Return an untrained Llama of the configured size."""
    torch.manual_seed(config.seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.n_layers,
            num_attention_heads=config.n_heads,
            max_position_embeddings=config.context,
            tie_word_embeddings=True,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def encode_line(tokenizer: PreTrainedTokenizerFast, line: Example) -> list[int]:
    """Return token ids as in play: start token, prompt, then the action with its leading space, end token."""
    ids = [tokenizer.bos_token_id, *tokenizer.encode(line.prompt, add_special_tokens=False)]
    return [*ids, *encode_action(tokenizer, line), tokenizer.eos_token_id]


def encode_action(tokenizer: PreTrainedTokenizerFast, line: Example) -> list[int]:
    """Return the token ids of the action with its leading space; none for a plain sentence."""
    return list(tokenizer.encode(f" {line.action}", add_special_tokens=False)) if line.action else []


def _rows(config: TrainingConfig, tokenizer: PreTrainedTokenizerFast, lines: list[Example]) -> list[_Row]:
    rows = []
    for line in lines:
        ids, n_action = encode_line(tokenizer, line), len(encode_action(tokenizer, line)) + 1
        if config.longest_action is None or n_action <= config.longest_action:
            rows.append(_Row(ids, 0 if config.learns_prompts else len(ids) - n_action))
    return rows


def train(config: TrainingConfig, folder: Path) -> dict[str, Any]:
    """Make corpus, tokenizer and model, train, and write the folder.

    Returns:
        Final training loss (mean of the last 50 batches, nats per token) and sizes, as in the model card.
    """
    lines = config.corpus()
    tokenizer = make_tokenizer(lines, config.vocab_size, config.word)
    model = make_model(config, tokenizer)
    rows = _rows(config, tokenizer, lines)
    losses = _fit(model, rows, config)
    facts = {
        "final_loss": round(float(np.mean(losses[-50:])), 4),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "corpus_lines": len(rows),
        "corpus_tokens": sum(len(row.ids) for row in rows),
        **config.facts(),
        "torch": torch.__version__,
        **asdict(config),
    }
    _write(folder, model, tokenizer, facts)
    return facts


def _fit(model: LlamaForCausalLM, rows: list[_Row], config: TrainingConfig) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=0.1)
    warm_up = max(1, config.n_batches // 20)

    def rate(step: int) -> float:
        cosine = 0.5 * (1 + np.cos(np.pi * step / config.n_batches))
        return float(min(1.0, (step + 1) / warm_up) * (config.last_rate + (1 - config.last_rate) * cosine))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    losses = []
    for batch in tqdm(_batches(rows, config), desc=config.name, total=config.n_batches, unit="batch", disable=None):
        loss = _loss(model, batch)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
    return losses


def _batches(rows: list[_Row], config: TrainingConfig) -> Iterator[list[_Row]]:
    """Yield batches of random rows; in a pool, rows of like length form a batch, and the batches are mixed."""
    rng = np.random.default_rng(config.seed + 1)
    for start in range(0, config.n_batches, config.pool):
        picks = rng.integers(len(rows), size=config.pool * config.batch_size)
        if config.pool == 1:
            yield [rows[pick] for pick in picks]
            continue
        ordered = sorted(picks.tolist(), key=lambda pick: len(rows[pick].ids))
        for batch in rng.permutation(config.pool)[: config.n_batches - start]:
            yield [rows[pick] for pick in ordered[batch * config.batch_size : (batch + 1) * config.batch_size]]


def _loss(model: LlamaForCausalLM, batch: list[_Row]) -> torch.Tensor:
    """Compute the mean negative log-probability of the tokens that are to be learned."""
    ids = torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(row.ids) for row in batch], batch_first=True, padding_value=-100
    )
    targets = ids[:, 1:].clone()
    for target, row in zip(targets, batch, strict=True):
        target[: max(row.unlearned - 1, 0)] = -100
    # Right padding after a causal mask cannot be seen by earlier tokens, so no attention mask is needed. The head, a
    # large part of so small a model, runs only at the positions of the loss.
    hidden = model.model(input_ids=ids.clamp(min=0)).last_hidden_state[:, :-1]
    learned = targets != -100
    return cross_entropy(model.lm_head(hidden[learned]), targets[learned])


def _write(folder: Path, model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, facts: dict[str, Any]) -> None:
    """Write to a temporary folder beside the target, then move file by file."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        model.save_pretrained(scratch)
        tokenizer.save_pretrained(scratch)
        (Path(scratch) / "training.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        (Path(scratch) / "generation_config.json").unlink(missing_ok=True)
        for path in Path(scratch).iterdir():
            path.chmod(0o644)  # safetensors writes files that only their owner can read
            path.replace(folder / path.name)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Train a model that ships with the package.")
    parser.add_argument("--model", choices=CONFIGS, default=PocketConfig.name)
    parser.add_argument("--out", type=Path, help="folder to write; that of the package by default")
    parser.add_argument("--batches", type=int, help="optimiser steps")
    arguments = parser.parse_args()
    kind = CONFIGS[arguments.model]
    config = kind() if arguments.batches is None else kind(n_batches=arguments.batches)
    tqdm.write(json.dumps(train(config, arguments.out or config.folder), indent=2))


if __name__ == "__main__":
    main()
