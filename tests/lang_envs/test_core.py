"""The requirements of `LangEnv` on its subclasses."""

from typing import Any

import pytest

from lang_envs import LangEnv, LangEnvsError, Outcome, StateError


class Door(LangEnv[bool]):
    """The smallest environment: open the door."""

    text: Any = "The door is closed. You"

    def __init__(self) -> None:
        super().__init__(max_action_length=16, max_observation_length=40)
        self.open = False

    def _restart(self, options: Any) -> None:
        self.open = False

    def _describe(self) -> str:
        return self.text

    def _listed_actions(self) -> list[str]:
        return ["open it", "wait"]

    def _execute(self, text: str) -> Outcome | None:
        if text not in self.admissible_actions():
            return None
        self.open = text == "open it"
        return Outcome(float(self.open), self.open, False, self.open)

    def _pass_time(self) -> Outcome:
        return Outcome(0.0, False, False, False)

    def _family_info(self, *, acted: bool) -> dict[str, Any]:
        return {}

    def _get_world(self) -> bool:
        return self.open

    def _set_world(self, world: bool) -> None:
        self.open = world


def test_a_missing_method_is_named_at_once() -> None:
    class Half(LangEnv[bool]):
        def _describe(self) -> str:
            return "x"

    with pytest.raises(TypeError, match="abstract"):
        Half(max_action_length=8, max_observation_length=8)


@pytest.mark.parametrize(("text", "got"), [(None, "None"), ("x" * 41, "41 characters")])
def test_a_description_that_is_no_observation_is_refused(text: Any, got: str) -> None:
    env = Door()
    env.text = text
    with pytest.raises(LangEnvsError, match=f"Expected Door to describe itself in a str of at most 40.*got {got}.*Fix"):
        env.reset()


@pytest.mark.parametrize(
    ("method", "got"),
    [
        ("_execute", (1.0, True, False, True)),
        ("_execute", Outcome(float("nan"), False, False, False)),
        ("_pass_time", None),
    ],
)
def test_an_outcome_that_is_none_names_the_method(monkeypatch: pytest.MonkeyPatch, method: str, got: Any) -> None:
    monkeypatch.setattr(Door, method, lambda *_: got)
    env = Door()
    env.reset(seed=0)
    with pytest.raises(LangEnvsError, match=rf"Expected Door\.{method} to return an Outcome with a finite reward"):
        env.step_text("open it" if method == "_execute" else "sing")


def test_a_world_in_attributes_alone_has_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Door, "_get_world", LangEnv._get_world)
    env = Door()
    before = env.get_state()
    env.reset(seed=0)
    with pytest.raises(StateError, match=r"Expected Door to keep its world in self\._world; got None\. Fix: "):
        env.get_state()
    assert before["world"] is None
