"""Fields of results files about the tokens of a sampled action: its alternatives, entropies and prompt."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from poad_sb3.distributions import ActionDistribution
from poad_sb3.distributions.action_trie import TokenIds
from poad_sb3.distributions.base import SampledAction, ScoreCache
from poad_sb3.prompts import Question

__all__ = ["decode", "knows_tokens", "prompt_texts", "token_fields", "token_texts"]

_MAX_ALTERNATIVES = 8
"""Maximum number of tokens that are listed for each decision, the chosen one included."""
_CONTEXT = 8
"""Number of prompt tokens before an action when it is decoded, so that its first token keeps its space."""
_UNFINISHED = "\ufffd"


def token_fields(
    distribution: ActionDistribution,
    question: Question,
    listed: Sequence[str] | None,
    chosen: SampledAction,
    cache: ScoreCache,
) -> dict[str, Any]:
    """Return the optional fields of a step's line about an action that was sampled under the present weights.

    Args:
        distribution: Distribution that the action was sampled from.
        question: The question that the action answers.
        listed: Admissible actions as the environment lists them, possibly with repetitions.
        chosen: Sampled action.
        cache: Cache of the scores used for sampling.

    Returns:
        By token, unless the whole action alone has a probability: `token_options` (number of tokens to choose from, 1
        where forced), `alternatives` (null, or text and log-probability of the most probable tokens, the chosen one
        first) and `entropies`. `prompt_tokens`: their texts. `action_probs`, where all listed actions were scored.
    """
    fields: dict[str, Any] = {}
    if knows_tokens(chosen):
        fields |= _by_token(distribution, question, chosen, cache)
    fields["prompt_tokens"] = prompt_texts(distribution.lm.tokenizer, chosen.path.prompt)
    if listed is not None and distribution.lists_are_scored(question):
        probabilities = distribution.probabilities(question, cache)
        fields["action_probs"] = [probabilities[action] for action in listed]
    return fields


def knows_tokens(chosen: SampledAction) -> bool:
    """Return whether each token of an action has a log-probability; BADQ knows that of the whole action alone."""
    return len(chosen.log_probs) == len(chosen.path.action)


def _by_token(
    distribution: ActionDistribution, question: Question, chosen: SampledAction, cache: ScoreCache
) -> dict[str, Any]:
    lm, (prompt, action) = distribution.lm, chosen.path[:2]
    options = [1] * len(action)
    for decision in chosen.path.decisions:
        options[decision.position] = len(decision.children) or lm.base.config.get_text_config().vocab_size
    alternatives: list[list[tuple[str, float]] | None] = [None] * len(action)
    entropies: list[float | None] = [None if n > 1 else 0.0 for n in options]
    for choice in distribution.token_choices(question, chosen.path, cache, most=_MAX_ALTERNATIVES):
        at = choice.position
        text = partial(_text_after, lm.tokenizer, (*prompt, *action[:at]))
        untaken = [
            (text(token), log_prob)
            for token, log_prob in zip(choice.tokens, choice.log_probs, strict=True)
            if token != action[at]
        ]
        alternatives[at] = [(text(action[at]), float(chosen.log_probs[at])), *untaken[: _MAX_ALTERNATIVES - 1]]
        entropies[at] = choice.entropy
    return {"token_options": options, "alternatives": alternatives, "entropies": entropies}


def _text_after(tokenizer: Any, before: Sequence[int], token: int) -> str:
    return token_texts(tokenizer, before, (token,))[0]


def prompt_texts(tokenizer: Any, prompt: TokenIds) -> list[str]:
    """Return the text of each token of a prompt, special ones included; together they are the prompt."""
    # Behind any other token most texts are the same, so that few tokens are decoded again and again.
    anchor = prompt[-1:]
    anchor_length = len(decode(tokenizer, anchor))
    text_of = {token: decode(tokenizer, (*anchor, token))[anchor_length:] for token in set(prompt[1:])}
    texts = [decode(tokenizer, prompt[:1]), *(text_of[token] for token in prompt[1:])]
    if "".join(texts) == decode(tokenizer, prompt) and all(texts):
        return texts
    return token_texts(tokenizer, (), prompt)  # letters of several tokens


def token_texts(tokenizer: Any, prompt: Sequence[int], action: Sequence[int]) -> list[str]:
    """Return the text that each token of an action adds; together they are the action as it stands behind its prompt.

    Decoded alone, a token may lose its space or be a part of a letter, so that growing beginnings are compared.

    Args:
        tokenizer: Tokenizer of the model.
        prompt: Token ids of the prompt.
        action: Token ids of the action.

    Returns:
        A text for each token; the letter that several tokens write stands at the last of them, and those before it
        have their names in the vocabulary.
    """
    context = list(prompt[-_CONTEXT:])
    decoded, texts = decode(tokenizer, context), []
    for n, token in enumerate(action, 1):
        whole = decode(tokenizer, [*context, *action[:n]])
        finished = whole if n == len(action) else whole.rstrip(_UNFINISHED)
        if len(finished) > len(decoded) and finished.startswith(decoded):
            texts.append(finished[len(decoded) :])
            decoded = finished
        else:
            texts.append(tokenizer.convert_ids_to_tokens(int(token)) or f"<{token}>")  # heads may be padded
    return texts


def decode(tokenizer: Any, ids: Sequence[int]) -> str:
    """Decode tokens, special ones included, without cleaning up spaces."""
    return str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))
