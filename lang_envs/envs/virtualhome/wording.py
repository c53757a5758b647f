"""The words of the home: phrases of commands and sentences of observations, as rows.

A *phrasing* is a full set of sentences. Phrasing 0 has the published command phrases; the others mean the same in
other words, for tests of generalisation. Placeholders in braces are roles of a sentence, filled by a noun phrase with
its article.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lang_envs.envs.virtualhome.rules import Command, Fixture, Use, Verb

_PREPOSITIONS = {Use.CONTAINER: "in", Use.SURFACE: "on"}


class Phrasing(NamedTuple):
    """One complete set of sentences.

    Attributes:
        commands: Phrase of each verb.
        sentences: Sentence for each kind of statement, by key.
    """

    commands: Mapping[Verb, str]
    sentences: Mapping[str, str]


def _commands(text: str) -> dict[Verb, str]:
    return dict(zip(Verb, (line.strip() for line in text.strip().split("/")), strict=True))


def _sentences(text: str) -> dict[str, str]:
    lines = (line.split(":", maxsplit=1) for line in text.strip().splitlines())
    return {key.strip(): sentence.strip() for key, sentence in lines}


# Order: that of `Verb`.
PHRASINGS: tuple[Phrasing, ...] = (
    Phrasing(
        _commands(
            "walk to {target} / walk to {target} / grab {target} / put {target} {into} {destination} / "
            "put back {target} / open {target} / close {target} / turn on {target} / turn off {target} / "
            "sit on {target} / stand up from {target}"
        ),
        _sentences("""
            rooms: The home has a kitchen, a bathroom, a bedroom and a living room, and you are in {place}.
            idle: There is nothing of use here.
            notice: You notice {things}.
            also: You also notice {things}.
            hold: You hold {things}.
            empty: Your hands are empty.
            near: You are close to {things}.
            reach: You are close to {things}, still to be grabbed.
            far: You are not close to {any}.
            open: You find {things} open.
            closed: You find {things} closed.
            on: You find {things} turned on.
            off: You find {things} turned off.
            placed: You see {things} {into} {place}.
            shut in: You remember {things} inside {place}.
            seated: You have sat down on {things}.
            facing: You face {things}.
            goal food-preparation: Your task is to heat up {pancake} in {microwave}.
            goal entertainment: Your task is to enjoy {chips} and {milk} while watching {TV}.
            cue: For that, you
        """),
    ),
    Phrasing(
        _commands(
            "go to {target} / go to {target} / pick up {target} / place {target} {into} {destination} / "
            "return {target} / pull open {target} / shut {target} / switch on {target} / switch off {target} / "
            "take a seat on {target} / get up from {target}"
        ),
        _sentences("""
            rooms: Kitchen, bathroom, bedroom and living room make up this flat. At present you stay in {place}.
            idle: Nothing useful is in this room.
            notice: In front of your eyes: {things}.
            also: Besides, there: {things}.
            hold: You are carrying {things}.
            empty: You are carrying nothing.
            near: Near you: {things}.
            reach: Near you, but not yet picked up: {things}.
            far: Not near you: {things}.
            open: Wide open: {things}.
            closed: Shut: {things}.
            on: Switched on: {things}.
            off: Switched off: {things}.
            placed: Placed {into} {place}: {things}.
            shut in: Shut away inside {place}: {things}.
            seated: You took a seat on {things}.
            facing: Your face is turned to {things}.
            goal food-preparation: You were asked to warm {pancake} in {microwave}.
            goal entertainment: You were asked to watch {TV} and have {chips} and {milk} with it.
            cue: So now you
        """),
    ),
    Phrasing(
        _commands(
            "head for {target} / approach {target} / take {target} / leave {target} {into} {destination} / "
            "restore {target} / unlatch {target} / latch {target} / start {target} / stop {target} / "
            "settle on {target} / rise from {target}"
        ),
        _sentences("""
            rooms: A kitchen, a bathroom, a bedroom, a living room: that is the whole house. Your place is {place}.
            idle: This room offers nothing to work with.
            notice: Here you can see {things}.
            also: Here you can see {things} as well.
            hold: In your hands: {things}.
            empty: In your hands: nothing.
            near: Within an arm's length: {things}.
            reach: Within an arm's length and free to take: {things}.
            far: Beyond an arm's length: {things}.
            open: Unlatched: {things}.
            closed: Latched: {things}.
            on: Running: {things}.
            off: Stopped: {things}.
            placed: Left {into} {place}: {things}.
            shut in: Hidden in {place}: {things}.
            seated: You settled on {things}.
            facing: You look toward {things}.
            goal food-preparation: Somebody wants {pancake} hot, out of {microwave}.
            goal entertainment: It is time for {TV}, and for {chips} and {milk} beside it.
            cue: Therefore you
        """),
    ),
)


class Wording:
    """A phrasing, and the noun of every role.

    Args:
        nouns: Noun of each role that is not called by its role.
        phrasing: Position in `PHRASINGS`.
    """

    def __init__(self, nouns: Mapping[str, str], phrasing: int) -> None:
        self.nouns = nouns
        self.phrasing = PHRASINGS[phrasing]

    def the(self, role: str) -> str:
        """Return the noun of a role, with its article."""
        return f"the {self.nouns.get(role, role)}"

    def say(self, key: str, roles: Sequence[str] = (), place: str = "", holder: Fixture | None = None) -> str:
        """Return a sentence.

        Args:
            key: Key of the sentence.
            roles: Subjects of the sentence; the empty string if there is none.
            place: Room or furniture in it.
            holder: Furniture that things are in or on, instead of `place`.
        """
        names = [self.the(role) for role in roles]
        return self.phrasing.sentences[key].format(
            things=_join(names, "and"),
            any=_join(names, "or"),
            place=self.the(holder.name if holder else place),
            into=_PREPOSITIONS.get(holder.use, "") if holder else "on",
        )

    def goal(self, task: str, roles: Sequence[str]) -> str:
        """Return the sentence that states the task."""
        return self.phrasing.sentences[f"goal {task}"].format(**{role: self.the(role) for role in roles})

    def phrase(self, command: Command, holder: Fixture | None) -> str:
        """Return the phrase of a command; `holder` is the furniture that something is put into or onto."""
        return self.phrasing.commands[command.verb].format(
            target=self.the(command.target),
            destination=self.the(command.destination),
            into=_PREPOSITIONS[holder.use] if holder else "",
        )


def _join(names: Sequence[str], conjunction: str) -> str:
    return f" {conjunction} ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
