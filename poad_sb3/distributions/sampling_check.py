"""Measure on a few tokens how well a model's update reproduces its own sampling.

Some architectures differ without an error: they route a token by its batch, choose the attended positions by an index,
or share layers that an adapter changes. Three figures show whether that matters: the error of the first ratio of an
update, that of log-probabilities against the model's own forward pass, and that of a merged export.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from peft import PeftModel
from torch import Tensor

from poad_sb3.distributed.sharding import like
from poad_sb3.distributions.action_trie import ActionTrie, TokenIds, build_trie, path_log_probs
from poad_sb3.distributions.base import TokenPath
from poad_sb3.distributions.free import generate
from poad_sb3.distributions.trie import TrieDistribution, branch_row
from poad_sb3.errors import ModelError
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.language_model.loading import ModelFactory
from poad_sb3.language_model.lora import float32_copy, merge
from poad_sb3.language_model.packing import TokenRow
from poad_sb3.language_model.self_check import probe_length
from poad_sb3.settings.model import Check
from poad_sb3.settings.sampling import SamplingSettings

__all__ = [
    "EXPORT_TOLERANCE",
    "RATIO_TOLERANCE",
    "ROUNDED_TOLERANCE",
    "Agreement",
    "ModelReport",
    "examine",
    "examine_model",
    "log_prob_error",
    "measure_agreement",
    "merged_copy",
    "perturbed",
    "probe_log_probs",
    "require_agreement",
]

Sampled = tuple[TokenPath, NDArray[np.float32]]
"""A sampled action, and the log-probabilities of its decisions as the rollout stores them."""

RATIO_TOLERANCE, ROUNDED_TOLERANCE = 1e-4, 0.5
"""Tolerances of the first ratio of an update: in float32, and in 16 bits or less, where batches of another shape round
apart."""
EXPORT_TOLERANCE = 1e-3
"""Tolerance of log-probabilities of a merged model, in float32 whatever the base: in every layer adapter and base are
summed in another order."""

_WRITTEN = 4
"""Number of tokens of a free action of the probe."""


class Agreement(NamedTuple):
    """Errors of a model against its own sampling and forward pass.

    Attributes:
        ratio: Largest |ratio - 1| before any step, of actions along a trie and of free ones.
        log_prob: Largest difference of a log-probability from the model's own forward pass over the tokens before.
    """

    ratio: float
    log_prob: float

    def agrees(self, is_full_precision: bool) -> bool:
        """Return whether both errors are within rounding.

        Args:
            is_full_precision: Whether the base is float32 and not quantised.
        """
        return max(self) < (RATIO_TOLERANCE if is_full_precision else ROUNDED_TOLERANCE)


def require_agreement(lm: LanguageModel, check: Check) -> None:
    """Refuse a model whose update does not reproduce its own sampling.

    Packed rows, batches and caches are given up first, where plain passes agree.

    Args:
        lm: Language model, as loaded.
        check: Response to a model that does not agree.

    Raises:
        ModelError: If the model does not agree, unless `check` is `"warn"`.
    """
    agreement = _settled(lm)
    if agreement.agrees(lm.is_full_precision):
        return
    tolerance = RATIO_TOLERANCE if lm.is_full_precision else ROUNDED_TOLERANCE
    message = (
        f"Expected an architecture whose update reproduces its own sampling within {tolerance}; {lm.source.name!r} "
        f"({lm.base.config.model_type}) has a ratio error of {agreement.ratio:.2g} before any step, and its "
        f"log-probabilities differ by {agreement.log_prob:.2g} from its own forward pass. Fix: another "
        "architecture, or policy_kwargs=dict(check='warn') to train all the same."
    )
    if check is Check.ERROR:
        raise ModelError(message)
    warnings.warn(message, RuntimeWarning, stacklevel=3)


def _settled(lm: LanguageModel) -> Agreement:
    """Measure a model, by plain passes if it does not agree otherwise."""
    agreement = measure_agreement(lm)
    if agreement.agrees(lm.is_full_precision) or lm.plain_passes:
        return agreement
    lm.use_plain_passes()
    plain = measure_agreement(lm)
    if plain.agrees(lm.is_full_precision):
        warnings.warn(
            f"Passes of several texts do not reproduce the sampling of {lm.source.name!r} (ratio error "
            f"{agreement.ratio:.2g}, log-probabilities differ by {agreement.log_prob:.2g}), so each takes one of its "
            "own, which is slow.",
            RuntimeWarning,
            stacklevel=3,
        )
    return plain


def measure_agreement(lm: LanguageModel) -> Agreement:
    """Measure a model with its adapter changed as training might change it; the adapter is restored."""
    with perturbed(lm.network):
        return Agreement(_ratio_error(lm), _log_prob_error(lm))


def merged_copy(lm: LanguageModel) -> tuple[Any, float]:
    """Return a copy of the model in float32 with the adapter merged, and the largest change of a log-probability.

    In 16 bits the change would be that of rounding: of activations, which is another for merged weights.

    Args:
        lm: Language model with an adapter; it stays as it is.

    Raises:
        ValueError: If peft cannot merge the adapter.
        RuntimeError: If peft cannot merge the adapter.
    """
    copied = float32_copy(lm.network)
    before = probe_log_probs(lm, copied.get_base_model())
    merged = merge(copied)
    return merged, log_prob_error(before, probe_log_probs(lm, merged))


@torch.no_grad()
def probe_log_probs(lm: LanguageModel, base: Any) -> list[Tensor]:
    """Return the log-probabilities of the next token after each prompt of the probe.

    Args:
        lm: Language model whose prompts are probed.
        base: Transformers model to score them by.
    """
    return [_reference_log_probs(base, prompt) for prompt in _prompts(lm)[0]]


def log_prob_error(scored: Sequence[Tensor], reference: Sequence[Tensor]) -> float:
    """Return the largest difference of a log-probability; infinity where one is no finite number."""
    return max(_difference(*pair) for pair in zip(scored, reference, strict=True))


class ModelReport(NamedTuple):
    """Results of the examination of one model.

    Attributes:
        architecture: Name of the architecture, `model_type` of its config.
        ratio: Error of the first ratio, see `Agreement`; after packed rows, batches and caches were given up, if
            necessary.
        log_prob: Error of log-probabilities, see `Agreement`, under the same passes.
        export: Largest difference of a log-probability with the adapter merged; None if it cannot be merged.
        export_problem: Reason why the adapter cannot be merged; empty if it can.
        passes: Kind of forward passes: `"trees"`, `"rows"` or `"one by one"`, and whether with a cache.
        verdict: Verdict: `"agrees"`, `"export differs"` or `"refused"`.
    """

    architecture: str
    ratio: float
    log_prob: float
    export: float | None
    export_problem: str
    passes: str
    verdict: str


def examine_model(model: str | ModelFactory) -> ModelReport:
    """Load a model with the default adapter, and measure it.

    Args:
        model: Name of the model or function that makes it, as in `policy_kwargs["model"]`.

    Raises:
        ModelError: If the model cannot be loaded or run.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # its figures are in the report
        return examine(LanguageModel(model, check=Check.WARN))


def examine(lm: LanguageModel) -> ModelReport:
    """Measure a loaded model.

    Args:
        lm: Language model with an adapter.

    Raises:
        ModelError: If the model cannot be run.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # its figures are in the report
        agreement = _settled(lm)
    export, problem = None, ""
    try:
        with perturbed(lm.network):
            _, export = merged_copy(lm)
    except (ValueError, RuntimeError, NotImplementedError) as error:
        problem = f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
    verdict = "agrees" if export is not None and export < EXPORT_TOLERANCE else "export differs"
    return ModelReport(
        architecture=lm.base.config.model_type,
        ratio=agreement.ratio,
        log_prob=agreement.log_prob,
        export=export,
        export_problem=problem,
        passes=("one by one" if lm.plain_passes else "trees" if lm.packs_trees else "rows")
        + (", cache" if lm.caches else ""),
        verdict=verdict if agreement.agrees(lm.is_full_precision) else "refused",
    )


@contextmanager
@torch.no_grad()
def perturbed(network: Any) -> Iterator[None]:
    """Perturb an adapter (it starts as the identity), and restore it; a model without one is left alone."""
    trained = (
        [parameter for parameter in network.parameters() if parameter.requires_grad]
        if isinstance(network, PeftModel)
        else []
    )
    kept = [parameter.detach().clone() for parameter in trained]
    generator = torch.Generator().manual_seed(0)
    try:
        for parameter in trained:
            parameter.add_(
                like(
                    (0.05 * torch.randn(parameter.shape, generator=generator)).to(parameter.device, parameter.dtype),
                    parameter,
                )
            )
        yield
    finally:
        for parameter, before in zip(trained, kept, strict=True):
            parameter.copy_(before)


def _ratio_error(lm: LanguageModel) -> float:
    """Return the largest error of the first ratio: sampled by the passes of a rollout, scored by those of an update."""
    prompts, pool = _prompts(lm)
    worst = 0.0
    for sampled in (_along_trie(lm, prompts, _trie(pool, lm.end_token)), _free(lm, prompts)):
        # Minibatches combine rows that were sampled in different batches.
        for batch in (sampled[::2], sampled[1::2][::-1]):
            old = torch.from_numpy(np.concatenate([log_probs for _, log_probs in batch]))
            ratio = (_scored(lm, [path for path, _ in batch], len(old)) - old).exp()
            worst = max(worst, _difference(ratio, torch.ones_like(ratio)))
    return worst


@torch.no_grad()
def _log_prob_error(lm: LanguageModel) -> float:
    """Return the largest difference of a log-probability after a prompt from the model's own forward pass."""
    prompts, _ = _prompts(lm)
    rows = [TokenRow(prompt, None, (len(prompt) - 1,)) for prompt in prompts]
    worst = 0.0
    for chunk in lm.chunks(rows):
        log_probs = lm.vocabulary_logits(lm.hidden_states([rows[index] for index in chunk])).log_softmax(-1)
        worst = max(
            worst,
            *(
                _difference(log_prob, _reference_log_probs(lm.base, prompts[at]))
                for log_prob, at in zip(log_probs, chunk, strict=True)
            ),
        )
    return worst


@torch.no_grad()
def _reference_log_probs(base: Any, tokens: TokenIds) -> Tensor:
    """Compute the log-probabilities of the next token by the architecture's own forward pass."""
    logits: Tensor = base(input_ids=torch.tensor([tokens], device=base.device), use_cache=False).logits
    return logits[0, -1].float().log_softmax(0)


def _difference(scored: Tensor, reference: Tensor) -> float:
    difference = float((scored.cpu() - reference.cpu()).abs().max())
    return difference if np.isfinite(difference) else np.inf  # the greater of a number and NaN can be the number


# ---------------------------------------------------------------------- the probe


def _prompts(lm: LanguageModel) -> tuple[list[TokenIds], list[int]]:
    """Return prompts of several lengths, two with a common beginning, and the tokens in them."""
    vocabulary = lm.base.config.get_text_config().vocab_size
    special = {*lm.tokenizer.all_special_ids, lm.end_token}
    pool = [token for token in range(min(vocabulary, 1024)) if token not in special]
    longest = min(probe_length(lm.base), lm.max_length - _WRITTEN)
    tokens = np.random.default_rng(0).choice(pool, longest).tolist()
    return [tuple(tokens[:n]) for n in (longest, longest // 2, 5)] + [tuple(tokens[3:12])], pool


def _trie(pool: Sequence[int], end: int) -> ActionTrie:
    first, last = pool[0], pool[-1]
    return build_trie(((first, first, last, end), (first, first, end), (first, last, end), (last, end)))


@torch.no_grad()
def _along_trie(lm: LanguageModel, prompts: Sequence[TokenIds], trie: ActionTrie) -> list[Sampled]:
    """Return every action of a trie behind each prompt, with the log-probabilities of sampling along its path."""
    rows = [branch_row(prompt, trie.branches) for prompt in prompts]
    sampled = []
    for chunk in lm.chunks([row.row for row in rows]):
        edges = TrieDistribution(lm).edges([rows[index] for index in chunk]).log_probs.cpu().numpy()
        for index, scores in zip(chunk, np.split(edges, len(chunk)), strict=True):
            for pick, sequence in enumerate(trie.sequences):
                path = TokenPath(prompts[index], sequence, trie.decisions[pick])
                places = [decision.position for decision in path.decisions]
                sampled.append((path, path_log_probs(trie, scores, pick)[places]))
    return sampled


def _free(lm: LanguageModel, prompts: Sequence[TokenIds]) -> list[Sampled]:
    """Return a free action behind each prompt, with the log-probabilities of sampling it."""
    uniforms = np.random.default_rng(1).random((len(prompts), _WRITTEN))
    written = generate(lm, prompts, SamplingSettings(max_new_tokens=_WRITTEN), uniforms)
    return [(action.path, action.log_probs) for action in written]


def _scored(lm: LanguageModel, paths: Sequence[TokenPath], n_units: int) -> Tensor:
    new = torch.empty(n_units)
    with torch.enable_grad():
        for part in TrieDistribution(lm).evaluate(paths):
            new[part.units.cpu()] = part.log_prob.detach().float().cpu()
    return new
