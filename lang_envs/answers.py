"""Words around an action: the list below an observation, and the action that an answer means."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["parse_action", "show_actions"]

_ASKED = "Answer with one of these actions, word for word, and nothing else:"
_FENCED = re.compile(r"(`{3,16}+)[\w+-]*\n(.*?)\n?\1", re.DOTALL)
_LABEL = re.compile(r"^(?:next |my )?(?:action|answer)\s*:\s*", re.IGNORECASE)
_BULLET = re.compile(r"^(?:[-*>]|\d+[.)])(?=\s|[^\W\d_])\s*")
"""A bullet or number; not the sign or the first digits of a number."""
_NARROW = "`'\"*.!,; "
_STRIPPED = (_NARROW, f"{_NARROW}?()\u201c\u201d\u201e\u2018\u2019\xab\xbb")
"""Characters around an answer that do not count; the wider set where the narrow one finds no action."""


def show_actions(observation: str, actions: Sequence[str] | None, asked: str = _ASKED) -> str:
    """Return the observation with the request for an action and the admissible ones below it.

    Args:
        observation: Text of the observation.
        actions: Admissible actions; where any text is one (None), the observation is returned as it is.
        asked: Request in words.
    """
    if actions is None:
        return observation
    return "\n".join([observation, "", asked, *(f"- {action}" for action in actions)])


def parse_action(text: str, actions: Sequence[str] | None) -> str:
    """Return the admissible action that a text means, such as "Take the bowl." the action `take the bowl`.

    The action itself; else the one action that is the same but for case, spaces, quotation marks, brackets, a fence,
    bullets, numbers and "Action:" before it or a full stop or question mark behind it. Any other text stays as it is:
    an invalid action, counted by the environment.

    Args:
        text: Text of the answer.
        actions: Admissible actions; None where any text is one.
    """
    if actions is None or text in actions:
        return text
    for around in _STRIPPED:
        plain = _plain(text, around)  # once: an answer may be long
        meant = {action for action in actions if plain and _plain(action, around) == plain}
        if meant:
            return meant.pop() if len(meant) == 1 else text
    return text


def _plain(text: str, around: str) -> str:
    fenced = _FENCED.fullmatch(text.strip())
    plain = " ".join((fenced[2] if fenced else text).split()).strip(around)
    plain = _BULLET.sub("", plain, count=1).strip(around)
    labelled = _LABEL.match(plain)
    if labelled:  # "1. Action: ..." or "Action: 1. ..."
        plain = _BULLET.sub("", plain[labelled.end() :].strip(around), count=1).strip(around)
    return plain.casefold()
