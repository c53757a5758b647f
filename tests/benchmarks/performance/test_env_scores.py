"""Exact scores: a closed form, the figures of the originals, and the committed file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from benchmarks.exact.exploring import random_policy
from benchmarks.performance.env_scores import LISTED_IDS, score, score_both
from lang_bench.runner.results import SCORES
from lang_envs import ENV_ROWS, LangEnv
from lang_envs.core import Outcome
from lang_envs.registration import creator

SMALL_IDS = ("Overcooked-TomatoSalad-v0", "VirtualHome-FoodPreparation-v0")


class _Search(NamedTuple):
    lifted: int | None
    elapsed: int


class Cups(LangEnv[_Search]):
    """A key lies under cup 0 of `n_cups`; a try takes `duration` units of time and costs `cost`."""

    metadata = {"render_modes": []}  # noqa: RUF012 - gymnasium's

    def __init__(self, *, n_cups: int = 4, duration: int = 1, limit: int = 12, cost: float = 0.125) -> None:
        super().__init__(max_action_length=16, max_observation_length=16)
        self.n_cups, self.duration, self.limit, self.cost = n_cups, duration, limit, cost
        self.world = _Search(None, 0)

    def _restart(self, options: Mapping[str, Any]) -> None:
        self.world = _Search(None, 0)

    def _describe(self) -> str:
        return f"Not under {self.world.lifted}."

    def _listed_actions(self) -> list[str]:
        return [f"lift {cup}" for cup in range(self.n_cups)]

    def _execute(self, text: str) -> Outcome | None:
        if text not in self._listed_actions():
            return None
        self.world = self.world._replace(lifted=int(text.split()[1]))
        return self._pass(self.duration)

    def _pass_time(self) -> Outcome:
        return self._pass(1)._replace(terminated=False, success=False)

    def _pass(self, duration: int) -> Outcome:
        self.world = self.world._replace(elapsed=self.world.elapsed + duration)
        found = self.world.lifted == 0
        return Outcome(found - self.cost, found, self.world.elapsed >= self.limit and not found, found)

    def _family_info(self, *, acted: bool) -> dict[str, Any]:
        return {"primitive_steps": self.duration if acted else 0}

    def _get_world(self) -> _Search:
        return self.world

    def _set_world(self, world: _Search) -> None:
        self.world = world

    def oracle_action(self) -> str:
        return "lift 0"


class RattlingCups(Cups):
    """A try draws a number."""

    def _execute(self, text: str) -> Outcome | None:
        self.np_random.random()
        return super()._execute(text)


@pytest.mark.parametrize(("n_cups", "duration", "limit"), [(4, 1, 12), (5, 3, 20)])
def test_a_closed_form(n_cups: int, duration: int, limit: int) -> None:
    discounts = (1.0, 0.9)
    got = score(Cups(n_cups=n_cups, duration=duration, limit=limit), random_policy, discounts)
    found, n_tries = 1 / n_cups, -(-limit // duration)
    assert got.success == pytest.approx(1 - (1 - found) ** n_tries)
    assert got.actions == pytest.approx((1 - (1 - found) ** n_tries) / found)
    assert got.duration == pytest.approx(duration * got.actions)
    for discount, value in zip(discounts, got.returns.values(), strict=True):
        going_on = (1 - found) * discount**duration
        assert value == pytest.approx((found - 0.125) * (1 - going_on**n_tries) / (1 - going_on))
    assert got.n_situations == n_cups  # no cup lifted yet, and each wrong cup


def test_a_random_environment_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Expected a deterministic environment; .*'lift 0' drew"):
        score(RattlingCups(), random_policy, (1.0,))


# ---------------------------------------------------------------------- figures

PUBLISHED = {
    "Overcooked-TomatoSalad-v0": (0.4420, 56.33, 165.37, {"1": -0.10802, "0.99": -0.09641}),
    "Overcooked-TomatoLettuceSalad-v0": (0.0102, 64.94, 201.44, {"1": -0.55652, "0.99": -0.22797}),
    "VirtualHome-FoodPreparation-v0": (0.0150036, 49.795, 49.795, {"0.95": 0.00287771, "0.99": 0.0105794}),
    "VirtualHome-Entertainment-v0": (0.00304368, 49.972, 49.972, {"0.95": 0.000432234, "0.99": 0.00204832}),
}
"""Uniformly random play in the originals: success, actions, time, returns; every figure to its last digit."""


@pytest.fixture(scope="module")
def committed() -> dict[str, Any]:
    return json.loads((SCORES / "env_scores.json").read_text(encoding="utf-8"))["scores"]


@pytest.mark.parametrize("env_id", PUBLISHED)
def test_random_play_scores_as_in_the_original(env_id: str, committed: dict[str, Any]) -> None:
    got = committed[env_id]["random"]
    success, actions, duration, returns = PUBLISHED[env_id]
    pairs = [(got["success"], success), (got["actions"], actions), (got["duration"], duration)]
    for found, figure in [*pairs, *((got["returns"][key], value) for key, value in returns.items())]:
        assert found == pytest.approx(figure, rel=0, abs=0.51 * last_digit(figure))


def last_digit(figure: float) -> float:
    return 10.0 ** -len(f"{figure:.9f}".rstrip("0").partition(".")[2])


def test_every_id_has_scores_and_its_oracle_succeeds(committed: dict[str, Any]) -> None:
    assert list(committed) == list(LISTED_IDS)
    for both in committed.values():
        assert both["oracle"]["success"] == 1.0 > both["random"]["success"] > 0


@pytest.mark.parametrize("env_id", SMALL_IDS)
def test_the_committed_scores_are_those_of_this_code(env_id: str, committed: dict[str, Any]) -> None:
    for name, one in score_both(env_id).items():
        assert one.returns == pytest.approx(committed[env_id][name]["returns"])
        rest = {key: value for key, value in committed[env_id][name].items() if key != "returns"}
        assert {key: getattr(one, key) for key in rest} == pytest.approx(rest)


# ---------------------------------------------------------------------- where any text is an action


def test_every_id_is_scored_in_one_way(committed: dict[str, Any]) -> None:
    """Except ids whose table has to be fetched, or is the user's: their scores cannot be measured again without it."""
    coding = json.loads((SCORES / "datasci_scores.json").read_text(encoding="utf-8"))["scores"]
    exact = [row.id for row in ENV_ROWS if hasattr(creator(row.id), "random_success")]  # scores in closed form
    ids = [row.id for row in ENV_ROWS if not row.trial]
    assert [*committed, *coding, *exact] == ids, "see an environment family in docs/development/architecture.md"
