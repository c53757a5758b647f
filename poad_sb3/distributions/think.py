"""`ThinkDistribution`: a free thought, then an action on the trie or in free text; one sequence of tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from poad_sb3.distributions.action_trie import Decision, TokenIds, action_log_probs
from poad_sb3.distributions.base import SampledAction, ScoreCache, TokenChoice, TokenPath
from poad_sb3.distributions.free import FreeDistribution, OnEnd, choices_on_path, generate, require_whole_vocabulary
from poad_sb3.distributions.trie import TokenizedQuestion, TrieDistribution, branch_row, scores_by_row
from poad_sb3.errors import ObservationError
from poad_sb3.language_model.decoding import Decoding
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.prompts import Question
from poad_sb3.settings.sampling import ActionSampling, SamplingSettings

__all__ = ["ThinkDistribution"]


class ThinkDistribution(TrieDistribution):
    """Tokens of the whole vocabulary up to a mark, then the trie of admissible actions, or free text without a list.

    pi(thought, action | question) = pi(thought | question) pi(action | question, thought)

    A thought ends with its mark, with an end token, after `max_thought_tokens`, or where mark and action just fit into
    the model's context; where it has not written the mark, the mark follows as forced tokens. The tokens of thought,
    mark and action are the action of the path, and `TokenPath.n_thought` says which of them are the thought; the
    environment gets the action's text alone.

    Args:
        lm: Language model.
        sampling: Sampling settings: temperature, top-k, top-p, and those of thoughts and of free actions.

    Raises:
        ObservationError: If the tokenizer cannot spell a mark.
    """

    mixes_choices = True

    def __init__(self, lm: LanguageModel, sampling: SamplingSettings) -> None:
        super().__init__(lm, float(sampling.temperature))
        self._free, self._sampling = FreeDistribution(lm, sampling), sampling
        self._max_tokens, (start, self._end) = sampling.max_thought_tokens, sampling.thought_marks
        self._thoughts = replace(
            sampling, action_sampling=ActionSampling.FREE, max_new_tokens=self._max_tokens, stop=(self._end,)
        )
        self._opening, self._closing = (lm.prompter.mark_ids(text) for text in (start, self._end))
        self.keeps_thoughts = sampling.keep_thoughts
        if self.keeps_thoughts:
            lm.prompter.layout.next_turn("")  # a layout that cannot go on is refused now

    def sample(
        self, questions: Sequence[Question], rngs: Sequence[np.random.Generator], cache: ScoreCache
    ) -> list[SampledAction]:
        """See `ActionDistribution.sample`."""
        return self._act(questions, rngs, cache)

    def mode(self, questions: Sequence[Question], cache: ScoreCache) -> list[SampledAction]:
        """Decode a thought greedily, then choose the most probable action after it."""
        return self._act(questions, [None] * len(questions), cache)

    def path(self, question: Question, text: str) -> TokenPath:
        """Return the tokens of a thought, its mark and an action, `"thought</think>action"`.

        The mark counts as written by the model, and as forced behind an end token of the model and where it does not
        fit into `max_thought_tokens`.

        Raises:
            ObservationError: If the mark is missing, the thought is too long or could not be sampled, or the action is
                not admissible.
        """
        thought, mark, action = text.partition(self._end)
        if not mark:
            instead = "free" if question.actions is None else "trie"
            raise ObservationError(
                f"Expected a thought before the action, 'thought{self._end}action'; got {text[:80]!r}, and "
                "action_sampling='think'. Fix: put thought and mark into the step's note, or clone with "
                f"action_sampling={instead!r}."
            )
        require_whole_vocabulary(self._thoughts)
        written, has_end = self._written(thought)
        tokens = (*written, *self._closing)
        n_decisions = len(tokens) if len(tokens) <= self._max_tokens and not has_end else len(written)
        if n_decisions > self._max_tokens:
            raise ObservationError(
                f"Expected thoughts of at most max_thought_tokens={self._max_tokens} tokens; got one of "
                f"{n_decisions}, {thought[:60]!r}. Fix: a larger max_thought_tokens."
            )
        decisions = tuple(Decision(position, (), token) for position, token in enumerate(tokens[:n_decisions]))
        thought_path = TokenPath(self.prompt(question), tokens, decisions, temperature=self.temperature)
        after = self._free.path(question, action) if question.actions is None else super().path(question, action)
        return _joined_path(thought_path, tokens, after)

    def _written(self, thought: str) -> tuple[TokenIds, bool]:
        """Return the tokens of a thought's text before its mark, and whether the last is an end token of the model."""
        text = thought.rstrip()
        for end in self.lm.prompter.end_tokens:
            plain = text.removesuffix(self.lm.tokenizer.convert_ids_to_tokens(end))
            if plain != text:
                return (*self._written(plain)[0], end), True
        return (self.lm.action_ids(thought)[:-1] if thought else ()), False

    def probabilities(self, question: Question, cache: ScoreCache) -> dict[str, float]:
        """Return the probability of every admissible action after the greedy thought.

        Raises:
            ObservationError: If any text is an action.
        """
        if question.actions is None:
            return self._free.probabilities(question, cache)
        _, (tree,) = self._think([question], None, cache)
        log_probs = action_log_probs(tree.trie, self._scores_of([tree.row], cache)[0])
        return dict(zip(question.actions or (), np.exp(log_probs).tolist(), strict=True))

    def token_choices(
        self, question: Question, path: TokenPath, cache: ScoreCache, *, most: int = 8
    ) -> list[TokenChoice]:
        """See `ActionDistribution.token_choices`; one more pass over prompt, thought and action."""
        return choices_on_path(self.lm, path, most)

    def lists_are_scored(self, question: Question) -> bool:
        """Return False: an action's probability is known after the sampled thought alone."""
        return False

    def prompt(self, question: Question) -> TokenIds:
        """Return the token ids of the prompt and of the mark that opens a thought."""
        reserve = len(self._opening) + self._max_tokens + self.n_behind(question)
        return (*self.lm.prompt_ids(question, reserve=reserve), *self._opening)

    def n_behind(self, question: Question) -> int:
        """Return the number of tokens that may follow a thought: its mark and the longest action."""
        if question.actions is None:
            return len(self._closing) + self._sampling.max_new_tokens
        longest = max(map(len, self._actions(question.actions).trie.sequences)) if question.actions else 1
        return len(self._closing) + longest

    def _write(
        self, questions: Sequence[Question], uniforms: NDArray[np.float64] | None, on_end: OnEnd | None = None
    ) -> list[SampledAction]:
        """Decode thoughts, with room behind each for its mark and an action; see `generate`."""
        prompts, reserves = [self.prompt(question) for question in questions], [*map(self.n_behind, questions)]
        return generate(self.lm, prompts, self._thoughts, uniforms, reserves, on_end)

    def _think(
        self, questions: Sequence[Question], uniforms: NDArray[np.float64] | None, cache: ScoreCache
    ) -> tuple[list[SampledAction], list[TokenizedQuestion]]:
        """Decode thoughts; return them and the tries behind them, with the scores in `cache` where keys are shared."""
        scores: dict[int, NDArray[np.float32]] = {}

        def score(decoding: Decoding, ended: Sequence[int], thoughts: Mapping[int, SampledAction]) -> None:
            trees = self._trees([questions[number] for number in thoughts], [*thoughts.values()])
            wanted = [
                (row, number, tree.row)
                for row, number, tree in zip(ended, thoughts, trees, strict=True)
                if tree.row.children and not self._is_large(tree) and self._has_room(tree)
            ]
            count = max(1, self.lm.max_tokens_per_forward // max(len(tree.row.row.tokens) for tree in trees))
            for start in range(0, len(wanted), count):
                places, numbers, rows = zip(*wanted[start : start + count], strict=True)
                edges = self.edges_at(decoding.read(places, [row.row for row in rows]), rows)
                scores.update(zip(numbers, scores_by_row(rows, edges), strict=True))

        on_end = score if self.lm.shares_keys else None
        thoughts = self._write(questions, uniforms, on_end)
        trees = self._trees(questions, thoughts)
        if on_end is not None:
            merged = self.lm.ranks.merge(scores)
            cache.current().update((trees[number].row, log_probs) for number, log_probs in merged.items())
        return thoughts, trees

    def _has_room(self, tree: TokenizedQuestion) -> bool:
        """Return whether the context holds every action up to its end token; `_scores_of` refuses where it does not."""
        # The end token of an action is never read.
        return len(tree.prompt) + max(map(len, tree.trie.sequences)) <= self.lm.max_length + 1

    def _act(
        self, questions: Sequence[Question], rngs: Sequence[np.random.Generator | None], cache: ScoreCache
    ) -> list[SampledAction]:
        """Write thoughts, choose or write an action after each, and join both; greedily without generators."""
        uniforms = _uniforms(rngs, self._max_tokens)
        if all(question.actions is None for question in questions):
            thoughts = self._write(questions, uniforms)
            prompts = [self._prompt_after(thought) for thought in thoughts]
            chosen = generate(self.lm, prompts, self._sampling, _uniforms(rngs, self._sampling.max_new_tokens))
        else:
            thoughts, trees = self._think(questions, uniforms, cache)
            chosen = self._choose(questions, trees, rngs, cache)
        return [_joined(thought, action) for thought, action in zip(thoughts, chosen, strict=True)]

    def _prompt_after(self, thought: SampledAction) -> TokenIds:
        """Return the token ids of a prompt, of a thought and of the mark that ends it."""
        tokens = thought.path.action
        closing = () if self._end in self.lm.prompter.action_text(tokens) else self._closing
        return (*thought.path.prompt, *tokens, *closing)

    def _trees(self, questions: Sequence[Question], thoughts: Sequence[SampledAction]) -> list[TokenizedQuestion]:
        """Return the tries of the actions, each behind its question, thought and mark."""
        trees = []
        for question, thought in zip(questions, thoughts, strict=True):
            actions, prompt = self._actions(question.actions), self._prompt_after(thought)
            row = branch_row(prompt, actions.branches)._replace(temperature=self.temperature)
            trees.append(TokenizedQuestion(prompt, actions.trie, row))
        return trees


def _uniforms(rngs: Sequence[np.random.Generator | None], n: int) -> NDArray[np.float64] | None:
    """Return n random numbers of each generator; None without generators."""
    drawn = [rng.random(n) for rng in rngs if rng is not None]
    return np.stack(drawn) if drawn else None


def _joined(thought: SampledAction, action: SampledAction) -> SampledAction:
    """Return a thought and the action after it as one sampled action."""
    tokens = action.path.prompt[len(thought.path.prompt) :]
    forced = np.zeros(len(tokens) - len(thought.log_probs), dtype=np.float32)
    log_probs = np.concatenate([thought.log_probs, forced, action.log_probs])
    return SampledAction(action.text, _joined_path(thought.path, tokens, action.path), log_probs)


def _joined_path(thought: TokenPath, tokens: TokenIds, action: TokenPath) -> TokenPath:
    """Return the path of a thought, whose tokens with the mark are given, and of the action after it."""
    n = len(tokens)
    moved = tuple(decision._replace(position=n + decision.position) for decision in action.decisions)
    return thought._replace(action=(*tokens, *action.action), decisions=(*thought.decisions, *moved), n_thought=n)
