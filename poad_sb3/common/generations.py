"""`Generation`: one sampled action token by token, as numbers, as Markdown and in the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.columns import Columns
from rich.console import Console
from rich.text import Text

from lang_envs.text import markdown_text, printable, terminal_text

__all__ = ["Generation", "TokenEntry", "decode", "markdown", "print_generations", "token_texts"]

_CONTEXT = 8
"""Number of prompt tokens before an action when it is decoded, so that its first token keeps its space."""
_UNFINISHED = "\ufffd"
_VISIBLE = str.maketrans({" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"})


class TokenEntry(NamedTuple):
    """One token of an action.

    Attributes:
        text: Text that the token adds; its name in the vocabulary if it adds none, as part of a letter.
        probability: Probability under the distribution sampled from; 1 where forced.
        forced: Whether there was no other token.
        value: Value before the token; None with credit for whole actions, and without a critic.
        advantage: Advantage of the token; None with credit for whole actions.
        ret: Return of the token, the target of its value, called `return` in the file; None as for `value`.
    """

    text: str
    probability: float
    forced: bool
    value: float | None
    advantage: float | None
    ret: float | None


class Generation(NamedTuple):
    """One action of a rollout to show.

    Attributes:
        step: Number of environment steps of the training, this one included.
        env: Index of the environment.
        prompt: End of the prompt.
        action: Text of the action.
        reward: Reward of the step.
        value: Value before the action; None with credit for tokens, and without a critic.
        advantage: Advantage of the action; None with credit for tokens.
        ret: Return of the action, the target of its value, called `return` in the file; None as for `value`.
        tokens: Tokens of the action.
    """

    step: int
    env: int
    prompt: str
    action: str
    reward: float
    value: float | None
    advantage: float | None
    ret: float | None
    tokens: tuple[TokenEntry, ...]


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


# ------------------------------------------------------------------ TensorBoard


def markdown(sample: Generation) -> str:
    """Return a heading, the prompt as a quotation, and a table with a row for each token."""
    rows: list[tuple[str, ...]] = [("token", "p", "V", "A", "return"), ("---",) * 5]
    for token in sample.tokens:
        probability = "forced" if token.forced else f"{token.probability:.3g}"
        credit = (_number(value) for value in (token.value, token.advantage, token.ret))
        rows.append((_cell(token.text), probability, *credit))
    whole = (
        ""
        if sample.advantage is None
        else f", V {_number(sample.value) or 'none'}, A {_number(sample.advantage)}, "
        f"return {_number(sample.ret) or 'none'}"
    )
    title = (
        f"**step {sample.step}, environment {sample.env}, reward {_number(sample.reward)}{whole}**: "
        f"{markdown_text(sample.action)}"
    )
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{title}\n\n> {markdown_text(sample.prompt)}\n\n{table}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:z.3g}"


def _cell(text: str) -> str:
    """Escape a token for a table cell: spaces and line ends visible, Markdown and HTML escaped."""
    return markdown_text(text.translate(_VISIBLE))


# ------------------------------------------------------------------ the terminal


def print_generations(shown: Sequence[Generation]) -> None:
    """Print actions with their tokens coloured by advantage, and the figures of each token below it."""
    console = Console(highlight=False)
    scale = max((abs(a) for sample in shown for a in _advantages(sample) if math.isfinite(a)), default=0.0) or 1.0
    for sample in shown:
        whole = "" if sample.value is None else f"  V {sample.value:z.2f}"
        whole += "" if sample.advantage is None else f"  A {sample.advantage:+z.2f}"
        console.rule(
            f"step {sample.step}  env {sample.env}  reward {sample.reward:.3g}{whole}", align="left", style="dim"
        )
        console.print(Text(terminal_text(sample.prompt), style="dim"))
        console.print(Columns([_block(sample, token, scale) for token in sample.tokens], padding=(0, 1)))


def _advantages(sample: Generation) -> list[float]:
    return [value for value in (sample.advantage, *(token.advantage for token in sample.tokens)) if value is not None]


def _block(sample: Generation, token: TokenEntry, scale: float) -> Text:
    """Return a token, and below it its probability and value."""
    advantage = sample.advantage if token.advantage is None else token.advantage
    weight = "" if token.forced else "bold "
    lines = [(f"{printable(token.text.translate(_VISIBLE))}\n", weight + _colour(advantage or 0.0, scale))]
    lines.append(("forced" if token.forced else f"p {token.probability:.2f}", "dim"))
    if token.value is not None:
        lines.append((f"\nV {token.value:z.2f}", "dim"))
    if token.advantage is not None:
        lines.append((f"\nA {token.advantage:+z.2f}", "dim"))
    return Text.assemble(*lines)


def _colour(advantage: float, scale: float) -> str:
    """Return the colour of an advantage: grey at 0, blue or orange at the largest of the table.

    Colour-blind readers can distinguish blue from orange.
    """
    share = min(abs(advantage) / scale, 1.0) if math.isfinite(advantage) else 0.0
    end = (60, 150, 255) if advantage > 0 else (255, 140, 40)
    return f"rgb({','.join(str(round(150 + share * (channel - 150))) for channel in end)})"
