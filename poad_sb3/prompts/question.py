"""Questions to a policy."""

from __future__ import annotations

from typing import NamedTuple


class PastStep(NamedTuple):
    """An earlier step of the episode: its observation and its action."""

    observation: str
    action: str


class Context(NamedTuple):
    """Fields beside an observation, as `AdmissibleObservation` packs them.

    Attributes:
        history: Latest steps of the episode, oldest first.
        fields: Names and texts of fields of `info`.
    """

    history: tuple[PastStep, ...] = ()
    fields: tuple[tuple[str, str], ...] = ()


class Question(NamedTuple):
    """An observation, and the actions to choose from.

    Attributes:
        text: Text of the observation.
        actions: Admissible actions; None where any text is allowed.
        context: Fields beside the observation; None if none were packed.
        past: Token ids of the previous prompt and its sampled action, which the prompt continues; empty without.
    """

    text: str
    actions: tuple[str, ...] | None
    context: Context | None = None
    past: tuple[int, ...] = ()
