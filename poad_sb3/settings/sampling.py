"""Settings of the sampling of actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from poad_sb3.settings.fields import Choice, Count, Flag, Free, Number, Settings, Texts, setting


class ActionSampling(StrEnum):
    """Method of sampling an action."""

    TRIE = "trie"
    """Token by token, among the children of the trie of admissible actions."""
    CANDIDATES = "candidates"
    """Whole admissible actions from a softmax over them (TWOSOME), by its token conditionals along the trie."""
    FREE = "free"
    """Token by token, among the whole vocabulary."""
    THINK = "think"
    """A free thought, then an action: on the trie where actions are listed, free where any text is an action."""


AUTO = "auto"
"""Automatic `action_sampling`: the trie where actions are listed, free where any text is an action."""


class Normalization(StrEnum):
    """N(a), TWOSOME's divisor of the log-probability of a candidate."""

    SUM = "sum"
    """1: the model's own probability (GLAM)."""
    TOKEN = "token"
    """Number of tokens, end token included."""
    WORD = "word"
    """Number of words, as in the papers."""

    def of(self, text: str, ids: Sequence[int]) -> float:
        """Return N of an action."""
        sizes = {Normalization.SUM: 1, Normalization.TOKEN: len(ids), Normalization.WORD: max(1, len(text.split()))}
        return float(sizes[self])


@dataclass(frozen=True)
class SamplingSettings(Settings):
    """Sampling of actions: arguments of the algorithms.

    Raises:
        ValueError: If a value is out of range; for `paper_mode` without candidates; or for `generation_endpoint`
            without sampling from the whole vocabulary.
    """

    action_sampling: str = setting(
        AUTO,
        Choice(words=(AUTO, *ActionSampling)),
        "trie, candidates (TWOSOME), free, or think (a free thought, then an action on the trie or in free text); auto "
        "takes the trie where the environment lists admissible actions, and free where any text is an action",
    )
    candidate_normalization: str = setting(
        Normalization.WORD,
        Choice(words=tuple(Normalization)),
        "divisor of a candidate's log-probability: sum (1), token or word (their number)",
    )
    paper_mode: bool = setting(
        False,
        Flag(),
        "sample from candidates but optimise full-vocabulary token probabilities, as the published code does: "
        "off-policy, to reproduce it",
    )
    max_new_tokens: int = setting(128, Count(), "tokens of a free action at most, end token included")
    temperature: float = setting(
        1.0,
        Number(zero=False),
        "of sampling, in acting and update alike: divides the logits of tokens, or the scores of candidates",
    )
    top_k: int = setting(0, Count(least=0), "free sampling among the k most probable tokens; 0 for all")
    top_p: float = setting(
        1.0, Number(zero=False, share=True), "of these, the fewest that have this probability together; 1 for all"
    )
    stop: Sequence[str] = setting((), Texts(), "texts that end a free action, beside the model's end tokens")
    max_thought_tokens: int = setting(32, Count(), "tokens of a thought at most, its end mark included if it writes it")
    thought_marks: Sequence[str] = setting(
        ("<think>", "</think>"),
        Texts(),
        "marks that open and end a thought; the second is added where it is not written",
    )
    keep_thoughts: bool = setting(
        False,
        Flag(),
        "continue the previous prompt of the episode and its sampled tokens, so that earlier thoughts stay in the "
        "prompt; a past that does not fit is dropped",
    )

    generation_endpoint: str | None = setting(
        None,
        Free(),
        "URL of a server of token completions (vLLM, such as http://127.0.0.1:8000/v1) that generates free actions in "
        "place of the policy's own model",
    )
    generation_requests: int = setting(16, Count(), "requests that generation_endpoint gets at a time")

    @property
    def restricts_tokens(self) -> bool:
        """Whether `top_k` or `top_p` excludes tokens."""
        return self.top_k > 0 or self.top_p < 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.paper_mode and self.action_sampling not in (AUTO, ActionSampling.CANDIDATES):
            raise ValueError(
                f"Expected paper_mode with action_sampling='candidates', which the papers sample from; got "
                f"{str(self.action_sampling)!r}. Fix: leave one of them out."
            )
        if len(self.thought_marks) != 2:
            raise ValueError(
                f"Expected thought_marks to be two texts; got {self.thought_marks!r}. Fix: ('<think>', '</think>')."
            )
        url = self.generation_endpoint
        if url is None:
            return
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            raise ValueError(
                f"Expected generation_endpoint to be a URL that begins with http:// or https://; got {url!r}. "
                "Fix: generation_endpoint='http://127.0.0.1:8000/v1'."
            )
        if self.action_sampling not in (AUTO, ActionSampling.FREE) or self.restricts_tokens:
            raise ValueError(
                "Expected action_sampling='free', top_k=0 and top_p=1 with generation_endpoint, since a server writes "
                f"free text and returns no supports; got {str(self.action_sampling)!r}, {self.top_k} and {self.top_p}. "
                "Fix: action_sampling='free' without top_k and top_p, or no generation_endpoint (no --engine)."
            )
