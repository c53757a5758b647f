"""Train the pocket model from nothing: `python -m poad_sb3.pocket.train` (a few minutes on two cores).

Writes a Hugging Face model folder (weights, tokenizer, model card). Everything is seeded; on one machine with one
version of torch two runs give the same weights.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch.nn.functional import cross_entropy
from tqdm import tqdm
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from lang_envs import TRAINING_IDS
from poad_sb3.pocket import POCKET_FOLDER
from poad_sb3.pocket.corpus import Line, household_sentences, random_play

__all__ = ["PocketConfig", "train"]

BOS, EOS, PAD = "<s>", "</s>", "<pad>"


@dataclass(frozen=True)
class PocketConfig:
    """Size and training of the pocket model.

    Attributes:
        seed: Seed of corpus, initial weights and batches.
        n_play: Lines of random play in the corpus.
        n_sentences: Lines of household sentences in the corpus.
        vocab_size: Tokens of the byte-level BPE vocabulary, special tokens included.
        hidden_size: Width.
        n_layers: Transformer blocks.
        n_heads: Attention heads.
        intermediate_size: Width of the feed-forward layers.
        batch_size: Lines of a batch.
        n_batches: Optimiser steps.
        learning_rate: Peak rate of AdamW; linear warm-up over 5%, then cosine to a tenth.
    """

    seed: int = 20260
    n_play: int = 24_000
    n_sentences: int = 6_000
    vocab_size: int = 1024
    hidden_size: int = 128
    n_layers: int = 4
    n_heads: int = 4
    intermediate_size: int = 352
    batch_size: int = 32
    n_batches: int = 800
    learning_rate: float = 3e-3


def make_tokenizer(lines: list[Line], vocab_size: int) -> PreTrainedTokenizerFast:
    """Byte-level BPE over the corpus: every text has tokens, and tokens give back the text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
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


def make_corpus(config: PocketConfig) -> list[Line]:
    """All lines, in the order they were generated."""
    rng = np.random.default_rng(config.seed)
    return [*random_play(config.n_play, rng), *household_sentences(config.n_sentences, rng)]


def make_model(config: PocketConfig, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """An untrained Llama of the configured size."""
    torch.manual_seed(config.seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.n_layers,
            num_attention_heads=config.n_heads,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def encode_line(tokenizer: PreTrainedTokenizerFast, line: Line) -> list[int]:
    """Ids as at play: start token, prompt, then the action with its leading space, end token."""
    ids = [tokenizer.bos_token_id, *tokenizer.encode(line.prompt, add_special_tokens=False)]
    if line.action:
        ids += tokenizer.encode(f" {line.action}", add_special_tokens=False)
    return [*ids, tokenizer.eos_token_id]


def train(config: PocketConfig, folder: Path) -> dict[str, Any]:
    """Make corpus, tokenizer and model, train, and write the folder.

    Returns:
        Final training loss (mean of the last 50 batches, nats per token) and sizes, as in the model card.
    """
    lines = make_corpus(config)
    tokenizer = make_tokenizer(lines, config.vocab_size)
    model = make_model(config, tokenizer)
    encoded = [encode_line(tokenizer, line) for line in lines]
    losses = _fit(model, encoded, config)
    facts = {
        "final_loss": round(float(np.mean(losses[-50:])), 4),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "corpus_lines": len(lines),
        "corpus_tokens": sum(map(len, encoded)),
        "training_ids": list(TRAINING_IDS),
        "torch": torch.__version__,
        **asdict(config),
    }
    _write(folder, model, tokenizer, facts)
    return facts


def _fit(model: LlamaForCausalLM, encoded: list[list[int]], config: PocketConfig) -> list[float]:
    rng = np.random.default_rng(config.seed + 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=0.1)
    warm_up = max(1, config.n_batches // 20)

    def rate(step: int) -> float:
        cosine = 0.5 * (1 + np.cos(np.pi * step / config.n_batches))
        return float(min(1.0, (step + 1) / warm_up) * (0.1 + 0.9 * cosine))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    losses = []
    for _ in tqdm(range(config.n_batches), desc="pocket model", unit="batch", disable=None):
        picks = rng.integers(len(encoded), size=config.batch_size)
        rows = [torch.tensor(encoded[pick]) for pick in picks]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-100)
        # Right padding behind a causal mask changes nothing in front of it, so no attention mask is needed.
        logits = model(input_ids=ids.clamp(min=0)).logits
        loss = cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
    return losses


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
    """Command line."""
    parser = argparse.ArgumentParser(description="Train the pocket model.")
    parser.add_argument("--out", type=Path, default=POCKET_FOLDER, help="folder to write")
    parser.add_argument("--batches", type=int, default=PocketConfig.n_batches, help="optimiser steps")
    arguments = parser.parse_args()
    facts = train(PocketConfig(n_batches=arguments.batches), arguments.out)
    tqdm.write(json.dumps(facts, indent=2))


if __name__ == "__main__":
    main()
