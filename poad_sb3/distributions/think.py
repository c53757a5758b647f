"""`ThinkDistribution`: a free thought, then an admissible action on the trie; one sequence of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from poad_sb3.distributions.action_trie import TokenIds, action_log_probs
from poad_sb3.distributions.base import SampledAction, ScoreCache, TokenChoice, TokenPath
from poad_sb3.distributions.free import choices_on_path, generate
from poad_sb3.distributions.trie import TokenizedQuestion, TrieDistribution, branch_row
from poad_sb3.errors import ObservationError
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.prompts import Question
from poad_sb3.settings.sampling import ActionSampling, SamplingSettings

__all__ = ["ThinkDistribution"]


class ThinkDistribution(TrieDistribution):
    """Tokens of the whole vocabulary up to a mark, then the trie of admissible actions.

    pi(thought, action | question) = pi(thought | question) pi(action | question, thought)

    A thought ends with its mark, with an end token, after `max_thought_tokens`, or where mark and action just fit into
    the model's context; where it has not written the mark, the mark follows as forced tokens. The tokens of thought,
    mark and action are the action of the path, so that credit, update and checkpoints know of no thoughts; the
    environment gets the action's text alone.

    Args:
        lm: Language model.
        sampling: Sampling settings: temperature, top-k, top-p and those of thoughts.

    Raises:
        ObservationError: If the tokenizer cannot spell a mark.
    """

    mixes_choices = True

    def __init__(self, lm: LanguageModel, sampling: SamplingSettings) -> None:
        super().__init__(lm, float(sampling.temperature))
        self._max_tokens, (start, self._end) = sampling.max_thought_tokens, sampling.thought_marks
        self._thoughts = replace(
            sampling, action_sampling=ActionSampling.FREE, max_new_tokens=self._max_tokens, stop=(self._end,)
        )
        self._opening, self._closing = (lm.prompter.mark_ids(text) for text in (start, self._end))

    def sample(
        self, questions: Sequence[Question], rngs: Sequence[np.random.Generator], cache: ScoreCache
    ) -> list[SampledAction]:
        """See `ActionDistribution.sample`."""
        uniforms = np.stack([rng.random(self._max_tokens) for rng in rngs])
        return self._act(questions, self._think(questions, uniforms), rngs, cache)

    def mode(self, questions: Sequence[Question], cache: ScoreCache) -> list[SampledAction]:
        """Decode a thought greedily, then choose the most probable action after it."""
        return self._act(questions, self._think(questions, None), [None] * len(questions), cache)

    def path(self, question: Question, text: str) -> TokenPath:
        """Refuse: the thought of an action that was chosen elsewhere is not known.

        Raises:
            ObservationError: Always.
        """
        raise ObservationError(
            "Expected actions with their thoughts; got actions alone, and action_sampling='think'. "
            "Fix: clone with action_sampling='trie'."
        )

    def probabilities(self, question: Question, cache: ScoreCache) -> dict[str, float]:
        """Return the probability of every admissible action after the greedy thought."""
        (tree,) = self._trees([question], self._think([question], None))
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
        longest = max(map(len, self._actions(question.actions).trie.sequences)) if question.actions else 1
        return len(self._closing) + longest

    def _think(self, questions: Sequence[Question], uniforms: NDArray[np.float64] | None) -> list[SampledAction]:
        prompts, reserves = [self.prompt(question) for question in questions], [*map(self.n_behind, questions)]
        return generate(self.lm, prompts, self._thoughts, uniforms, reserves)

    def _act(
        self,
        questions: Sequence[Question],
        thoughts: Sequence[SampledAction],
        rngs: Sequence[np.random.Generator | None],
        cache: ScoreCache,
    ) -> list[SampledAction]:
        """Choose an action after each thought, and join both."""
        chosen = self._choose(questions, self._trees(questions, thoughts), rngs, cache)
        return [_joined(thought, action) for thought, action in zip(thoughts, chosen, strict=True)]

    def _trees(self, questions: Sequence[Question], thoughts: Sequence[SampledAction]) -> list[TokenizedQuestion]:
        """Return the tries of the actions, each behind its question, thought and mark."""
        trees = []
        for question, thought in zip(questions, thoughts, strict=True):
            actions, tokens = self._actions(question.actions), thought.path.action
            closing = () if self._end in self.lm.prompter.action_text(tokens) else self._closing
            prompt = (*thought.path.prompt, *tokens, *closing)
            row = branch_row(prompt, actions.branches)._replace(temperature=self.temperature)
            trees.append(TokenizedQuestion(prompt, actions.trie, row))
        return trees


def _joined(thought: SampledAction, action: SampledAction) -> SampledAction:
    """Return a thought and the action after it as one sampled action."""
    prompt, behind = thought.path.prompt, action.path.prompt
    n = len(behind) - len(prompt)
    moved = tuple(decision._replace(position=n + decision.position) for decision in action.path.decisions)
    path = thought.path._replace(
        action=(*behind[len(prompt) :], *action.path.action), decisions=(*thought.path.decisions, *moved)
    )
    forced = np.zeros(n - len(thought.log_probs), dtype=np.float32)
    return SampledAction(action.text, path, np.concatenate([thought.log_probs, forced, action.log_probs]))
