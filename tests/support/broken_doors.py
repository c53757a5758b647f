"""Environments that each break one point of the contract, with the message of the check that notices it."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import gymnasium as gym
import numpy as np
from third_party import COLOURS, FullDoors

from lang_envs import TokenSequence

__all__ = ["ARGUMENTS", "BREAKS", "Break", "Undrawn"]


class Break(NamedTuple):
    """An environment that breaks one point, and the message of the check that notices it."""

    check: str
    message: str
    environment: type[FullDoors]


BREAKS: list[Break] = []


def breaks(*checks: str, says: str) -> Callable[[type[FullDoors]], type[FullDoors]]:
    """Note the environment as one that these checks catch."""

    def note(environment: type[FullDoors]) -> type[FullDoors]:
        BREAKS.extend(Break(check, says, environment) for check in checks)
        return environment

    return note


# ---------------------------------------------------------------------- spaces, reset and step


@breaks("gymnasium_check_env", says="random number generator to have been generated")
class OwnGenerator(FullDoors):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.generator = np.random.default_rng(seed)
        return super().reset()

    def draw(self, n_doors: int) -> str:
        return COLOURS[self.generator.integers(n_doors)]


@breaks("gymnasium_check_env", says=r"Expected check_env to pass without warnings; got WARN: .*render fps")
class Undeclared(FullDoors):
    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi", "rgb_array"]}


@breaks("spaces", says=r"Expected observation_space to be a lang_envs.TextSpace; got Text\(.*Fix:")
class PlainText(FullDoors):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.observation_space = gym.spaces.Text(64)


class Forgetful(TokenSequence):
    def __eq__(self, other: object) -> bool:
        return self is other


@breaks("spaces", says=r"Expected a copy of action_space equal to it; got .*Fix:")
class UnequalSpaces(FullDoors):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.action_space = Forgetful(max_length=40)


@breaks("observations", says=r"Expected an observation in TextSpace\(64\) after step 1 .*; got 90 characters.*Fix:")
class Verbose(FullDoors):
    def text(self) -> str:
        return "x" * (90 if self.tries else 1)


@breaks("observations", says=r"Expected a str after reset\(\); got str_ ")
class NumpyText(FullDoors):
    def text(self) -> str:
        return np.str_(super().text())


@breaks("rewards_and_flags", says=r"Expected a finite float as reward after step 1 .*; got .*nan")
class NoReward(FullDoors):
    def go(self, text: str | None) -> float:
        super().go(text)
        return float("nan")


@breaks("rewards_and_flags", says=r"Expected Python bools as flags after step 1 .*; got \(np.False_")
class NumpyFlags(FullDoors):
    def step(self, action: Any) -> Any:
        text, reward, terminated, truncated, info = super().step(action)
        return text, reward, np.bool_(terminated), truncated, info


@breaks("rewards_and_flags", says=r"Expected not both flags after step 3")
class BothFlags(FullDoors):
    def step(self, action: Any) -> Any:
        text, reward, terminated, truncated, info = super().step(action)
        return text, reward, terminated, truncated or terminated, info


@breaks("rewards_and_flags", says=r"Expected success to terminate after step 1 ")
class EarlySuccess(FullDoors):
    def info(self, *, invalid: bool = False) -> dict[str, Any]:
        return {**super().info(invalid=invalid), "success": self.room > 0}


@breaks("info_keys", says=r"Expected the keys .*'success'\] after reset\(\); got \['admissible_actions', 'invalid_ac")
class NoSuccess(FullDoors):
    def info(self, *, invalid: bool = False) -> dict[str, Any]:
        return {"admissible_actions": self.listed(), "invalid_action": invalid}


@breaks("info_values", says=r"Expected a bool in info\['invalid_action'\], .*; got 0")
class Numbers(FullDoors):
    def info(self, *, invalid: bool = False) -> dict[str, Any]:
        return {**super().info(invalid=invalid), "invalid_action": int(invalid)}


@breaks("info_values", says=r"Expected a list of distinct str .*; got \('take the red door'")
class TupleOfActions(FullDoors):
    def listed(self) -> Any:
        return tuple(super().listed())


@breaks("info_values", says=r"Expected 'take the dark.* to fit the action space; got .*at most 39 tokens")
class LongActions(FullDoors):
    def listed(self) -> Any:
        return ["take the dark and dusty door that nobody has opened", *super().listed()]


@breaks("info_values", says=r"Expected something to do after step 1 .*; got \[\]")
class NothingToDo(FullDoors):
    def listed(self) -> Any:
        return super().listed() if self.room == 0 else []


@breaks("info_values", says=r"Expected a fresh list after step 1")
@breaks("fresh_data", says=r"Expected info .*; got .* Fix: hand out copies")
class OneList(FullDoors):
    def listed(self) -> Any:
        if not hasattr(self, "actions"):
            self.actions = [f"take the {colour} door" for colour in COLOURS]
        return self.actions


@breaks("admissible_actions_method", says=r"Expected admissible_actions\(\) to be info's")
class Reversed(FullDoors):
    def admissible_actions(self) -> Any:
        return self.listed()[::-1]


@breaks("admissible_actions_method", says=r"Expected a fresh list from admissible_actions\(\).*; got \[\]")
class Remembered(FullDoors):
    def info(self, *, invalid: bool = False) -> dict[str, Any]:
        self.last = self.listed()
        return {**super().info(invalid=invalid), "admissible_actions": self.last}

    def admissible_actions(self) -> Any:
        return self.last


@breaks("spec_as_json", says=r"Expected the spec .* to come back from JSON; got .*Fix: register and pass arguments")
class Painted(FullDoors):
    def __init__(self, colours: Sequence[str] = COLOURS, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.colours = colours


# ---------------------------------------------------------------------- copies and generators


@breaks("same_seed_same_trajectory", says=r"Expected two environments with one seed .*; got .*: .* and ")
class Unseeded(FullDoors):
    def draw(self, n_doors: int) -> str:
        return COLOURS[np.random.default_rng().integers(n_doors)]


@breaks("reset_starts_over", says=r"Expected reset\(seed=11\) to start .*; got first observation: ")
class Counting(FullDoors):
    n_episodes = 0

    def text(self) -> str:
        self.n_episodes += self.tries == 0
        return f"Episode {self.n_episodes}. {super().text()}"


@breaks("copy_by_pickle", "copy_by_deepcopy", says=r"Expected a copy to go on as the original does; got .* of step ")
class HalfACopy(FullDoors):
    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "tries": 0}


@breaks("copy_by_pickle", says=r"Expected no error; got .*[Pp]ickl.*\(copies.py:\d+\)")
class Unpicklable(FullDoors):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.judge = lambda text: text == self.oracle_action()
        return super().reset(seed=seed)


@breaks("state", says=r"Expected the state after \d steps to go on the same; got .* of step ")
class HalfAState(FullDoors):
    def get_state(self) -> dict[str, Any]:
        return {"room": self.room, "generator": self.np_random.bit_generator.state}

    def set_state(self, state: dict[str, Any]) -> None:
        if self.flags is None:
            self.reset()
        self.room, self.np_random.bit_generator.state = state["room"], state["generator"]


@breaks("state", says=r"Expected the state after \d steps to go on the same; got .* of step ")
class NoGenerator(FullDoors):
    def set_state(self, state: dict[str, Any]) -> None:
        self.room, self.tries, self.door, self.flags = state["world"]


@breaks("global_generators", says=r"Expected no global generator to be used; got random\. Fix")
class GlobalRandom(FullDoors):
    def draw(self, n_doors: int) -> str:
        return random.choice(COLOURS[:n_doors])


# ---------------------------------------------------------------------- actions


@breaks("listed_actions", says=r"Expected the listed action 'wait' to be valid; got invalid_action")
class Teasing(FullDoors):
    def listed(self) -> Any:
        return [*super().listed(), "wait"]

    def is_command(self, text: str | None) -> bool:
        return text != "wait" and super().is_command(text)


@breaks("oracle", says=r"Expected the oracle to succeed with seed 0; got terminated=False, truncated=True")
class BadOracle(FullDoors):
    def oracle_action(self) -> str:
        return next(action for action in self.listed() if self.door not in action)


@breaks("oracle", says=r"Expected the oracle's actions to be valid; got 'open sesame'")
class MagicOracle(FullDoors):
    def oracle_action(self) -> str:
        return "open sesame"


@breaks("strange_texts", says=r"Expected no error; got ValueError: .*\(broken_doors.py:\d+\)")
class Picky(FullDoors):
    def go(self, text: str | None) -> float:
        return super().go(self.listed()[self.listed().index(text)] if text is not None else None)


@breaks("strange_texts", says=r"Expected the text 'empty' to have the effect of an unfinished sentence, ")
class Falling(FullDoors):
    """Its first action stands for any unknown text."""

    def go(self, text: str | None) -> float:
        return super().go(text if text is None or text in self.listed() else f"take the {self.door} door")


@breaks("strange_texts", says=r"Expected the text 'empty' to leave the world, so the list \[.*\]; got \[")
class Wandering(FullDoors):
    """Its first action stands for any unknown text and for unfinished sentences."""

    def go(self, text: str | None) -> float:
        return super().go(text if text in self.listed() else f"take the {self.door} door")


@breaks("strange_texts", says=r"Expected it to leave the world, so the oracle's plan \[.*\]; got \[")
class Turning(FullDoors):
    """Any unknown text, unfinished sentences included, opens another door; the list stays."""

    def go(self, text: str | None) -> float:
        if text not in self.listed():
            self.door = next(colour for colour in COLOURS if colour != self.door)
        return super().go(text)


@breaks("strange_texts", says=r"Expected invalid=True after the text 'empty' .*; got False")
class Silent(FullDoors):
    def is_command(self, text: str | None) -> bool:
        return True


@breaks("strange_texts", says=r"Expected terminated=False after the text 'empty' .*; got True")
class Strict(FullDoors):
    """Any unknown text ends the episode, which other actions do not."""

    def go(self, text: str | None) -> float:
        self.failed = text not in self.listed()
        return super().go(text)

    def ends(self) -> tuple[bool, bool]:
        terminated, truncated = super().ends()
        return terminated or self.failed, truncated and not self.failed


@breaks("strange_texts", says=r"Expected the text 'empty' to be valid where nothing is listed; got invalid_action")
class HalfOpen(FullDoors):
    def listed(self) -> Any:
        return None

    def is_command(self, text: str | None) -> bool:
        return bool(text)


@breaks("near_misses", says=r"Expected invalid=True after the text 'TAKE THE RED DOOR' .*; got False")
class CaseBlind(FullDoors):
    def understand(self, action: Any) -> Any:
        text = super().understand(action)
        return None if text is None else text.lower()


@breaks(
    "unfinished_sentences", says=r"Expected invalid=True after 'take the red door', filled up with ' '.*; got False"
)
class Cutting(FullDoors):
    def understand(self, action: Any) -> Any:
        return self.action_space.decode(action).strip()


@breaks("wrong_actions", says=r"Expected ActionError for a float array; got a step")
class Lenient(FullDoors):
    def understand(self, action: Any) -> Any:
        return super().understand(np.resize(np.array(action, dtype=float), 40).astype(int) % 258)


@breaks("wrong_actions", says=r"Expected ActionError for a float array; got TypeError: ")
class Unguarded(FullDoors):
    def understand(self, action: Any) -> Any:
        return bytes(token for token in action if token < 256).decode()


@breaks("wrong_actions", says=r"Expected the state to be the same after wrong actions; got another")
class Charging(FullDoors):
    def understand(self, action: Any) -> Any:
        self.tries += action not in self.action_space
        return super().understand(action)


@breaks("step_before_reset", says=r"Expected ResetNeeded before reset\(\); got AttributeError: ")
class Eager(FullDoors):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.flags = (False, False)


@breaks("step_after_the_end", says=r"Expected \('Room 3.*again after the end; got \('Room 3.* -0.1")
class Endless(FullDoors):
    def step(self, action: Any) -> Any:
        self.flags = (False, False) if self.flags else None
        return super().step(action)


# ---------------------------------------------------------------------- drawings and vectors


@breaks("render_ansi", says=r"Expected a str from render\(\); got None")
@breaks("render_rgb_array", says=r"Expected a uint8 array \(height, width, 3\) from render\(\); got None")
class Undrawn(FullDoors):
    def render(self) -> Any:
        return None


@breaks("render_rgb_array", says=r"Expected every frame to have the shape \(32, 48, 3\); got uint8 \(32, 4\d, 3\)")
class Growing(FullDoors):
    def render(self) -> Any:
        return super().render()[:, self.tries :]


@breaks("render_rgb_array", says=r"Expected a step and its frame within 0.1 s; got 0.1\d s")
class Slow(FullDoors):
    def render(self) -> Any:
        time.sleep(0.11)
        return super().render()


@breaks("rendering_changes_nothing", says=r"Expected rendering to change nothing; got .* of step \d: ")
class Flickering(FullDoors):
    def render(self) -> Any:
        self.door = self.draw(2)
        return super().render()


@breaks("vector_sync", says=r"Expected environment \d of SyncVectorEnv, NextStep to show at step ")
@breaks("vector_sb3_dummy", says=r"Expected environment \d of DummyVecEnv to show at step ")
class Shared(FullDoors):
    """All of them are in the same room."""

    rooms: ClassVar[list[int]] = [0]

    @property
    def room(self) -> int:
        return self.rooms[0]

    @room.setter
    def room(self, room: int) -> None:
        self.rooms[0] = room


@breaks("vector_async", says=r"Expected environment 0 of AsyncVectorEnv, NextStep to show at step 0 .*Worker")
@breaks("vector_sb3_subproc", says=r"Expected environment 0 of SubprocVecEnv to show at step 0 .*Worker")
class Homesick(FullDoors):
    def text(self) -> str:
        return super().text() if multiprocessing.parent_process() is None else "Worker"


ARGUMENTS: dict[type[FullDoors], dict[str, Any]] = {Painted: {"colours": COLOURS}}
"""A tuple; JSON returns it as a list."""
