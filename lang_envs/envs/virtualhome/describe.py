"""The home in words: observation and command phrases. Depends on perceived facts, not on the rules.

Two descriptions. `published` has the information of the published text, with its gaps and ambiguities; equal
facts give equal text, other facts other text. `full` mentions every visible thing once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from lang_envs.envs.virtualhome.rules import AT_START, Fact, Use
from lang_envs.envs.virtualhome.tasks import HomeTask
from lang_envs.envs.virtualhome.wording import Wording

Description = Literal["published", "full"]


def phrases(task: HomeTask, wording: Wording) -> tuple[str, ...]:
    """Return the phrase of every command of the set, in order."""
    return tuple(wording.phrase(command, task.scene.fixture.get(command.destination)) for command in task.commands)


def observation(task: HomeTask, facts: frozenset[Fact], wording: Wording, description: Description) -> str:
    """Return the observation: an unfinished sentence that a command completes."""
    teller = _Teller(task, facts, wording)
    room = next(fact[1] for fact in facts if fact[0] == "in")
    body = teller.everything() if description == "full" else [*_PUBLISHED[task.name](teller), *teller.distractors()]
    roles = (*task.scene.item_index, *task.scene.fixture)
    sentences = [wording.say("rooms", place=room), *body, wording.goal(task.name, roles), wording.say("cue")]
    return " ".join(sentences)


class _Teller:
    """Queries on perceived facts, and the sentences that both descriptions share."""

    def __init__(self, task: HomeTask, facts: frozenset[Fact], wording: Wording) -> None:
        self.task = task
        self.facts = facts
        self.say = wording.say

    def perceived(self, kind: str, names: tuple[str, ...]) -> list[str]:
        """Return the names with a perceived fact `(kind, name)`."""
        return [name for name in names if (kind, name) in self.facts]

    def hands(self, names: tuple[str, ...]) -> list[str]:
        """Return a sentence on the names in hand; an empty text if it holds none of them."""
        held = self.perceived("hold", names)
        if held:
            return [self.say("hold", held)]
        return [] if self.perceived("hold", self.task.distractors) else [self.say("empty")]

    def distractors(self) -> list[str]:
        """Describe the percepts of things that the task does not need."""
        names = self.task.distractors
        held, visible, near = (self.perceived(kind, names) for kind in ("hold", "see", "near"))
        lying, near = [name for name in visible if name not in held], [name for name in near if name not in held]
        groups = (("also", lying), ("near", near), ("hold", held))
        return [self.say(key, things) for key, things in groups if things]

    def everything(self) -> list[str]:
        """Return sentences about everything visible, once."""
        items, fixtures = tuple(self.task.scene.item_index), tuple(self.task.scene.fixture)
        held = self.perceived("hold", items)
        near = [name for name in self.perceived("near", (*items, *fixtures)) if name not in held]
        sentences = self.hands(items)
        for item in self.task.scene.items:
            if ("at", item.name, AT_START) in self.facts:
                sentences.append(self.say("placed", [item.name], place=item.spot))
            sentences += [
                self.say("placed", [item.name], holder=fixture)
                for fixture in self.task.scene.fixtures
                if ("at", item.name, fixture.name) in self.facts
            ]
        for fixture in self.task.scene.fixtures:
            if ("see", fixture.name) in self.facts:
                sentences += self._condition(fixture.name, fixture.use)
        return [*sentences, self.say("near", near)] if near else sentences

    def _condition(self, name: str, use: Use) -> list[str]:
        words = []
        if use is Use.CONTAINER:
            words.append("open" if ("open", name) in self.facts else "closed")
        elif use is Use.SWITCH:
            words.append("on" if ("on", name) in self.facts else "off")
        else:
            words.append("notice")
        words += [key for key in ("seated", "facing") if (key, name) in self.facts]
        return [self.say(key, [name]) for key in words]


def _food_preparation(teller: _Teller) -> list[str]:
    say, facts = teller.say, teller.facts
    pancake, microwave = ("pancake",), ("microwave",)
    if ("in", "kitchen") not in facts:
        return [say("idle"), *teller.hands(pancake)]
    is_visible, held = ("see", "pancake") in facts, ("hold", "pancake") in facts
    near_pancake, near_microwave = ("near", "pancake") in facts, ("near", "microwave") in facts
    box = teller.task.scene.fixture["microwave"]
    sentences = [say("notice", [*pancake, *microwave]) if is_visible else say("shut in", pancake, holder=box)]
    if held:
        sentences += [say("hold", pancake), say("near" if near_microwave else "far", microwave)]
    elif not (near_pancake and near_microwave):  # near both, the published text mentions neither
        near = pancake if near_pancake else microwave
        reach = say("near", near) if near_pancake or near_microwave else say("far", [*pancake, *microwave])
        sentences += [*teller.hands(pancake), reach]
    is_open = is_visible and ("open", "microwave") in facts
    return [*sentences, say("open" if is_open else "closed", microwave)]


_ITEMS = ("chips", "milk")
_FURNITURE = ("coffee table", "TV", "sofa")


def _entertainment(teller: _Teller) -> list[str]:
    if ("in", "kitchen") in teller.facts:
        return _in_kitchen(teller)
    if ("in", "living room") in teller.facts:
        return [teller.say("notice", _FURNITURE), *_in_living_room(teller)]
    return [teller.say("idle"), *teller.hands(_ITEMS)]


def _in_kitchen(teller: _Teller) -> list[str]:
    say, visible, held = teller.say, teller.perceived("see", _ITEMS), teller.perceived("hold", _ITEMS)
    if not visible:
        return [say("idle")]
    free = [name for name in visible if name not in held]
    near = [name for name in teller.perceived("near", _ITEMS) if name in free]
    sentences = [say("notice", visible)]
    if free:
        sentences.append(say("reach", near) if near else say("far", free))
    if held or len(visible) == len(_ITEMS):  # of a single thing in view, the published text leaves empty hands out
        sentences += teller.hands(_ITEMS)
    return sentences


def _in_living_room(teller: _Teller) -> list[str]:
    say, held = teller.say, teller.perceived("hold", _ITEMS)
    near = teller.perceived("near", _FURNITURE)
    if not near:
        return [say("far", _FURNITURE), *teller.hands(_ITEMS)]
    shared = [name for name in _ITEMS if len(held) == 1 and ("at", name, "coffee table") in teller.facts]
    hands = [say("placed", shared, holder=teller.task.scene.fixture["coffee table"])] if shared else []
    hands += [say("hold", held)] if held else []
    if "coffee table" in near:
        sentence = say("far", ["TV"]) if shared else say("near", ["coffee table"])
        return [sentence, *(hands or teller.hands(_ITEMS))]
    # The published text gives the state of the TV only to a person who carries something.
    television = [say("on", ["TV"])] if ("on", "TV") in teller.facts and held else []
    if "TV" in near:
        sentence = say("far", ["sofa"]) if ("on", "TV") in teller.facts else say("near", ["TV"])
    else:
        sentence = say("seated" if ("seated", "sofa") in teller.facts else "near", ["sofa"])
    return [sentence, *television, *hands]


_PUBLISHED: dict[str, Callable[[_Teller], list[str]]] = {
    "food-preparation": _food_preparation,
    "entertainment": _entertainment,
}
