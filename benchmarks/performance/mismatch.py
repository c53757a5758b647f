"""Mismatch of sampled and re-scored log-probabilities: the clean one, and faults that the gate of the update catches.

A tiny Llama with random weights and a nearly flat distribution in bfloat16 samples responses of 32 to 40 tokens by its
cache, and scores them by the passes of an update. Bounds come from the responses of one seed; batches of 64 responses
are drawn from those of another, clean or with one of these faults:

* noise: normal noise of five times the clean standard deviation on the sampled log-probabilities;
* cut support: tokens from the 50 most probable, with their log-probabilities among these;
* re-tokenized word: in one response, two neighbouring tokens become two different ones with the same text; all tokens
  from there on are scored after these;
* raw cut support: tokens from the 50 most probable, with log-probabilities of the whole vocabulary (those of the
  learner, with the rounding of clean responses).

The smallest noise that is caught in 95 % of the batches is sought in steps of a tenth of the clean deviation. Writes
mismatch.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoTokenizer, LlamaConfig

from benchmarks.performance.real_size import make_model
from benchmarks.performance.synthetic import random_model
from benchmarks.performance.timing import one_thread
from benchmarks.reports.tables import show_table
from benchmarks.runner.files import write_result
from benchmarks.runner.options import Count
from poad_sb3.credit.mismatch import MARGIN, CleanMismatch, Mismatch, gate, measure_mismatch
from poad_sb3.distributions.action_trie import Decision
from poad_sb3.distributions.base import SampledAction, TokenPath
from poad_sb3.distributions.free import FreeDistribution, generate
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.pocket import POCKET_FOLDER
from poad_sb3.settings.sampling import SamplingSettings

CALIBRATION_SEED, TEST_SEED = 0, 1
RESPONSES, BATCH = 1024, 64
SHORTEST, LONGEST = 32, 40
TOP_K = 50
NOISE = 5.0
KINDS = ("clean", "noise", "cut support", "re-tokenized word", "raw cut support")


class Responses(NamedTuple):
    """Responses with log-probabilities, as an engine reports them and as the learner scores them.

    Attributes:
        paths: Prompts and responses.
        sampled: Log-probabilities of each response's tokens, as the engine reports them.
        scored: Log-probabilities of the same tokens, as the learner scores them.
    """

    paths: list[TokenPath]
    sampled: list[NDArray[np.float64]]
    scored: list[NDArray[np.float64]]

    def mismatch(self) -> Mismatch:
        """Return the mismatch of all of them."""
        return measure_mismatch(np.concatenate(self.sampled), np.concatenate(self.scored), [*map(len, self.sampled)])


class Pools(NamedTuple):
    """Responses of one seed, of which batches are drawn."""

    clean: Responses
    cut: Responses
    raw: Responses
    retokenized: Responses


# ---------------------------------------------------------------------- model and responses


def flat_model(dtype: str = "bfloat16") -> tuple[Any, Any]:
    """Return a tiny Llama with random weights, whose next token is nearly uniform, as `model=` of a policy takes it."""
    tokenizer = AutoTokenizer.from_pretrained(POCKET_FOLDER)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0,
        initializer_range=0.1, tie_word_embeddings=False,
    )  # fmt: skip
    return random_model(config, dtype), tokenizer


def sampled_responses(
    lm: LanguageModel, seed: int, n: int = RESPONSES, *, top_k: int = 0, shortest: int = SHORTEST
) -> list[SampledAction]:
    """Return `n` responses of at least `shortest` tokens to prompts of 8 to 24 random tokens."""
    rng = np.random.default_rng(seed)
    sampling = SamplingSettings(max_new_tokens=LONGEST, top_k=top_k)
    responses: list[SampledAction] = []
    while len(responses) < n:
        prompts = [tuple(rng.integers(3, len(lm.tokenizer), rng.integers(8, 25)).tolist()) for _ in range(256)]
        written = generate(lm, prompts, sampling, rng.random((len(prompts), LONGEST)))
        responses += [action for action in written if len(action.path.action) >= shortest]
    return responses[:n]


@torch.no_grad()
def scored_by_learner(lm: LanguageModel, paths: Sequence[TokenPath]) -> list[NDArray[np.float64]]:
    """Return the log-probabilities of each path's tokens by the passes of an update."""
    lengths = [len(path.decisions) for path in paths]
    log_probs = torch.empty(sum(lengths), dtype=torch.float64)
    for part in FreeDistribution(lm, SamplingSettings()).evaluate(paths):
        log_probs[part.units] = part.log_prob.double()
    return np.split(log_probs.numpy(), np.cumsum(lengths)[:-1])


def clean_responses(lm: LanguageModel, seed: int, n: int = RESPONSES, shortest: int = SHORTEST) -> Responses:
    """Return responses without a fault."""
    written = sampled_responses(lm, seed, n, shortest=shortest)
    paths = [action.path for action in written]
    return Responses(paths, [action.log_probs.astype(float) for action in written], scored_by_learner(lm, paths))


def open_path(path: TokenPath, action: Sequence[int]) -> TokenPath:
    """Return a path with another action, every token of it a choice among the whole vocabulary."""
    decisions = tuple(Decision(position, (), token) for position, token in enumerate(action))
    return path._replace(action=tuple(action), decisions=decisions)


def retokenized(lm: LanguageModel, ids: Sequence[int], rng: np.random.Generator) -> list[int] | None:
    """Return ids of the same text and number, two neighbours of them changed; None if no neighbours allow it."""
    special = {*lm.tokenizer.all_special_tokens}
    words = {word: token for word, token in lm.tokenizer.get_vocab().items() if word not in special}
    names = lm.tokenizer.convert_ids_to_tokens(list(ids))
    for index in rng.permutation(len(ids) - 1).tolist():
        text, length = names[index] + names[index + 1], len(names[index])
        cuts = [at for at in range(1, len(text)) if at != length and text[:at] in words and text[at:] in words]
        if cuts and special.isdisjoint(names[index : index + 2]):
            cut = cuts[rng.integers(len(cuts))]
            return [*ids[:index], words[text[:cut]], words[text[cut:]], *ids[index + 2 :]]
    return None


def make_pools(lm: LanguageModel, seed: int, n: int = RESPONSES) -> Pools:
    """Sample responses of one seed, without a fault and with each."""
    clean = clean_responses(lm, seed, n)
    cut = sampled_responses(lm, seed + 1000, n, top_k=TOP_K)
    paths = [open_path(response.path, response.path.action) for response in cut]
    whole = scored_by_learner(lm, paths)
    errors = [a - b for a, b in zip(clean.sampled, clean.scored, strict=True)]
    raw = [scores + np.resize(error, len(scores)) for scores, error in zip(whole, errors, strict=True)]
    rng = np.random.default_rng(seed + 2000)
    changed = [retokenized(lm, path.action, rng) for path in clean.paths]
    picks = [index for index, ids in enumerate(changed) if ids is not None]
    changed_paths = [open_path(clean.paths[index], changed[index] or ()) for index in picks]
    return Pools(
        clean,
        Responses(paths, [response.log_probs.astype(float) for response in cut], whole),
        Responses(paths, raw, whole),
        Responses(changed_paths, [clean.sampled[index] for index in picks], scored_by_learner(lm, changed_paths)),
    )


# ---------------------------------------------------------------------- batches


def batches(pools: Pools, kind: str, n: int, noise: float, seed: int = TEST_SEED) -> Iterator[Mismatch]:
    """Yield the mismatch of batches of 64 responses.

    Args:
        pools: Responses that batches are drawn from.
        kind: Kind of fault, one of `KINDS`.
        n: Number of batches.
        noise: Standard deviation of the noise, for `"noise"`.
        seed: Seed of the draws.
    """
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    pool = {"cut support": pools.cut, "raw cut support": pools.raw}.get(kind, pools.clean)
    for _ in range(n):
        picks = rng.choice(len(pool.paths), BATCH, replace=False).tolist()
        sampled, scored = [pool.sampled[index] for index in picks], [pool.scored[index] for index in picks]
        if kind == "re-tokenized word":
            other = int(rng.integers(len(pools.retokenized.paths)))
            sampled[0], scored[0] = pools.retokenized.sampled[other], pools.retokenized.scored[other]
        old = np.concatenate(sampled)
        if kind == "noise":
            old = old + noise * rng.standard_normal(len(old))
        yield measure_mismatch(old, np.concatenate(scored), [*map(len, sampled)])


def share_refused(pools: Pools, clean: CleanMismatch, kind: str, n: int, noise: float = 0.0) -> float:
    """Return the share of batches that the gate refuses; see `batches`."""
    return float(np.mean([not gate(batch_mismatch, clean).passes for batch_mismatch in batches(pools, kind, n, noise)]))


def smallest_noise(pools: Pools, clean: CleanMismatch, n: int, share: float = 0.95) -> float:
    """Return the least noise, in clean deviations, that is caught in a share of the batches."""
    for tenths in range(1, 100):
        if share_refused(pools, clean, "noise", n, tenths / 10 * clean.std) >= share:
            return tenths / 10
    raise AssertionError("Expected noise of ten clean deviations to be caught.")


def clean_mismatches() -> dict[str, Mapping[str, Any]]:
    """Return the clean mismatch of some models, of 256 responses of any length each."""
    models: dict[str, dict[str, Any]] = {
        "flat, bfloat16": {"model": flat_model},
        "flat, float32": {"model": partial(flat_model, "float32")},
        "pocket, bfloat16": {"dtype": "bfloat16"},
        "pocket, float32": {},
        "Qwen2 of 0.05 B, random, bfloat16": {"model": partial(make_model, "0.05b", "bfloat16", "cpu")},
    }
    summaries = {}
    for name, settings in models.items():
        responses = clean_responses(LanguageModel(**settings), CALIBRATION_SEED, 256, shortest=1)
        differences = np.concatenate(responses.sampled) - np.concatenate(responses.scored)
        summaries[name] = {"mean_absolute": float(np.abs(differences).mean()), **responses.mismatch()._asdict()}
    return summaries


def mismatch(n_batches: Count = 1000) -> None:
    """Measure the clean mismatch, and the faults that the gate catches.

    Args:
        n_batches: Number of batches of each kind.
    """
    with one_thread():
        lm = LanguageModel(flat_model)
        calibration = clean_responses(lm, CALIBRATION_SEED).mismatch()
        clean, pools = CleanMismatch.of(calibration), make_pools(lm, TEST_SEED)
        refused = {kind: share_refused(pools, clean, kind, n_batches, NOISE * clean.std) for kind in KINDS}
        models = clean_mismatches()
        result = {
            "seeds": {"calibration": CALIBRATION_SEED, "test": TEST_SEED},
            "batch": {"responses": BATCH, "tokens": [SHORTEST, LONGEST], "batches": n_batches, "pool": RESPONSES},
            "margin": MARGIN,
            "calibration": calibration._asdict(),
            "clean": asdict(clean),
            "bounds": clean.bounds(BATCH, BATCH * SHORTEST),
            "refused": refused,
            "smallest_noise_caught_in_95_percent": smallest_noise(pools, clean, n_batches),
            "mean_log_prob": float(np.concatenate(pools.clean.scored).mean()),
            "least_largest_difference_of_a_retokenized_word": min(
                float(np.abs(old - new).max())
                for old, new in zip(pools.retokenized.sampled, pools.retokenized.scored, strict=True)
            ),
            "models": models,
        }
        write_result("mismatch", result)
    show_table(("batches", "refused"), refused.items())
    show_table(("clean", "std", "largest"), ((name, row["std"], row["largest"]) for name, row in models.items()))
