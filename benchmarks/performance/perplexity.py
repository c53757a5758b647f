"""Perplexity of texts that no training has seen, by a model before and after it was trained.

Both read the same passages, so that the difference is one of pairs; its 95 % interval is a bootstrap over passages. The
verdict was fixed before the first measurement: the language is *unchanged* on a text if the whole interval of the ratio
of perplexities lies between 1 / 1.05 and 1.05, *changed* if it lies outside, else *not settled*.

    python -m benchmarks measure perplexity --checkpoint runs/tomato --text debian-policy=policy.txt.gz

The first text is one that every Python has: its own language reference (`pydoc_data.topics`). Writes perplexity.json.
"""

from __future__ import annotations

import gzip
import hashlib
import platform
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from pydoc_data import topics
from typing import Annotated, Any

import numpy as np
import torch
import typer

from benchmarks.files import write_result
from benchmarks.reports.tables import show_table
from lang_bench.runner.errors import BenchmarkError
from lang_envs.report.statistics import Floats
from poad_sb3.common.policies import LLMPolicy
from poad_sb3.language_model.packing import TokenRow
from poad_sb3.runs.loading import find_checkpoint, load_checkpoint

BOUND = 1.05
"""Ratio of perplexities up to which the language counts as unchanged."""
LENGTH = 256
"""Number of tokens of a passage."""
_RESAMPLES = 10_000


def read_text(path: Path) -> str:
    """Return the text of a file, compressed by gzip or not.

    Raises:
        BenchmarkError: If it cannot be read.
    """
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise BenchmarkError(
            f"Expected a text in UTF-8; {path} cannot be read ({error}). Fix: another file."
        ) from error


def passages(tokens: Sequence[int], n: int) -> list[tuple[int, ...]]:
    """Return up to n passages of `LENGTH` tokens, spread evenly over a text without overlap."""
    n_whole = len(tokens) // LENGTH
    starts = LENGTH * np.unique(np.linspace(0, n_whole - 1, min(n, n_whole)).astype(int)) if n_whole else []
    return [tuple(tokens[start : start + LENGTH]) for start in starts]


@torch.no_grad()
def mean_losses(policy: LLMPolicy, rows: Sequence[tuple[int, ...]], *, base: bool) -> Floats:
    """Return the mean negative log-likelihood of the tokens of each passage after its first, in nats.

    Args:
        policy: Policy of the trained model.
        rows: Passages as token ids.
        base: Whether to read them with the model before training.
    """
    lm, losses = policy.lm, []
    for row in rows:
        reads = TokenRow(row[:-1], None, tuple(range(len(row) - 1)))
        hidden = lm.hidden_states([reads], reference=base)
        log_probs = lm.vocabulary_logits(hidden, reference=base).log_softmax(-1)
        losses.append(-float(log_probs[range(len(row) - 1), list(row[1:])].mean()))
    return np.array(losses)


def compare(before: Floats, after: Floats, seed: int = 0) -> dict[str, Any]:
    """Compare the losses of the same passages.

    Args:
        before: Mean loss of each passage by the model before training, in nats a token.
        after: Mean loss by the trained model.
        seed: Seed of the bootstrap.
    """
    difference = after - before
    draws = np.random.default_rng(seed).integers(len(difference), size=(_RESAMPLES, len(difference)))
    low, high = np.exp(np.quantile(difference[draws].mean(axis=1), [0.025, 0.975]))
    within, outside = low > 1 / BOUND and high < BOUND, high < 1 / BOUND or low > BOUND
    return {
        "passages": len(difference),
        "before": float(np.exp(before.mean())),
        "after": float(np.exp(after.mean())),
        "ratio": float(np.exp(difference.mean())),
        "interval": [float(low), float(high)],
        "verdict": "unchanged" if within else "changed" if outside else "not settled",
    }


def _texts(given: Sequence[str]) -> Iterator[tuple[str, str]]:
    yield f"Python {platform.python_version()}, pydoc_data.topics", "\n\n".join(topics.topics.values())
    for pair in given:
        name, _, path = pair.partition("=")
        if not path:
            raise BenchmarkError(f"Expected NAME=FILE after --text; got {pair!r}. Fix: --text policy=policy.txt.")
        yield name, read_text(Path(path))


def perplexity(
    checkpoint: Annotated[Path, typer.Option(metavar="PATH", help="A checkpoint, or the folder of a run.")],
    text: Annotated[list[str] | None, typer.Option(metavar="NAME=FILE", help="A further text; repeatable.")] = None,
    n_passages: Annotated[int, typer.Option(min=2, help=f"Passages of {LENGTH} tokens of each text, at most.")] = 48,
    device: Annotated[str, typer.Option(help="Torch device.")] = "auto",
) -> None:
    """Compare the perplexity of texts before and after a training."""
    model = load_checkpoint(find_checkpoint(checkpoint)[0], device=device)
    policy: LLMPolicy = model.policy  # type: ignore[assignment]
    rows: dict[str, Mapping[str, Any]] = {}
    for name, content in _texts(text or ()):
        if name in rows:
            raise BenchmarkError(f"Expected texts with different names; got {name!r} twice. Fix: another name.")
        chosen = passages(policy.lm.tokenizer(content, add_special_tokens=False)["input_ids"], n_passages)
        if len(chosen) < 2:
            raise BenchmarkError(f"Expected a text of at least {2 * LENGTH} tokens; {name} is shorter. Fix: another.")
        losses = [mean_losses(policy, chosen, base=base) for base in (True, False)]
        rows[name] = {**compare(*losses), "sha256": hashlib.sha256(content.encode()).hexdigest()}
    show_table(("text", *next(iter(rows.values()))), [(name, *row.values()) for name, row in rows.items()])
    about = {"model": policy.lm.source.name, "algorithm": type(model).__name__, "steps": model.num_timesteps}
    print(write_result("perplexity", {**about, "bound": BOUND, "texts": rows}))
