"""`ParityEnv`: is the number of cups in a row even or odd?"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from lang_envs.arguments import check_integer
from lang_envs.core import SharedOptions
from lang_envs.envs.independent.env import IndependentDecisions

OBJECTS = ("jar", "cup")
"""Words of a row; the number of cups is asked for."""
ANSWERS = ("even", "odd")
COUNTS = ("two", "one")
"""Words of a thought: the count of cups so far, which starts again after two. With a space before it, each of these and
of the objects is a token of the pocket model."""
_MAX_OBJECTS = 20


class ParityEnv(IndependentDecisions):
    """A diagnostic task: say of each row of cups and jars whether its number of cups is even or odd.

    After `The row is cup jar jar cup. Rows left: 4. The cups are` the action `even` is right. Each object of a row is a
    cup with probability 1/2, independent of the others; so the answer is independent of any n - 1 of the n objects, and
    a policy that ignores one of them, whichever, returns no more than a guess, 1/2. A model that cannot compute a
    parity in one pass may write it down object by object in a thought: see `oracle_thought`.

    Args:
        n_objects: Number of objects in a row, 1 to 20.
        horizon: Number of rows in an episode.
        max_steps: Time limit; reaching it truncates. Only invalid actions can, as a decision takes one step. By
            default 50, or twice the horizon where that is more.
        invalid_action_reward: Reward added when a text is not one of the listed actions; that costs one step.
        oracle_info: Put `oracle_action` and `oracle_thought` into `info`.
        shuffle_actions: List the actions in an order drawn at every reset.
        tokenizer: Tokenizer of the action space.
        max_action_length: Largest number of action tokens, end token included.
        render_mode: None, `"ansi"` or `"rgb_array"`.

    `info`: `admissible_actions` (`even` and `odd`), `n_cups` (in the row now), `key_correct` (whether the last action
    was right; False at reset and for an invalid action), `success`, `invalid_action`.

    Raises:
        ValueError: If a number is out of range.
    """

    noun, question = "row", "The cups are"

    def __init__(
        self,
        *,
        n_objects: int = 8,
        horizon: int = 4,
        max_steps: int | None = None,
        **options: Unpack[SharedOptions],
    ) -> None:
        super().__init__(**options)
        check_integer("n_objects", n_objects, 1, _MAX_OBJECTS)
        self.n_objects = n_objects
        self._set_up(ANSWERS, horizon, max_steps, (0,) * n_objects)

    @property
    def n_cups(self) -> int:
        """Number of cups in the row now."""
        return sum(self._world.target)

    @property
    def order(self) -> str:
        """Objects of the row now."""
        return " ".join(OBJECTS[is_cup] for is_cup in self._world.target)

    @property
    def legend(self) -> str:
        """Question and answers."""
        return f"Is the number of cups {' or '.join(ANSWERS)}?"

    def key_places(self, text: str) -> list[int]:
        """Return the word of an action, 0; none of a text that is no action."""
        return [0] if text in self._numbers else []

    @property
    def optimal_return(self) -> float:
        """Expected return of an optimal policy."""
        return 1.0

    @property
    def random_return(self) -> float:
        """Expected return of uniformly random play, and of every policy that ignores one of the objects."""
        return 0.5

    @property
    def random_success(self) -> float:
        """Probability that uniformly random play makes every decision right."""
        return float(2**-self.horizon)

    def values(self, odd: NDArray[np.float64], gamma: float = 1.0) -> NDArray[np.float64]:
        """Return the exact values of a policy: r + mean(r) (gamma + ... + gamma^k), k rows to follow, r its reward.

        The mean over `values(odd)[-1]` is the policy's expected return.

        Args:
            odd: Probability of the answer `odd` to each row, shape `(2,) * n_objects`; index 1 is a cup.
            gamma: Discount between decisions.

        Returns:
            Values by the number k of rows to follow and the row, shape `(horizon, 2, ..., 2)`.
        """
        is_odd = np.indices(odd.shape).sum(0) % 2
        rewards = np.where(is_odd, odd, 1 - odd) / self.horizon
        weights = [sum(gamma**i for i in range(1, k + 1)) for k in range(self.horizon)]
        return np.stack([rewards + rewards.mean() * weight for weight in weights])

    def oracle_action(self) -> str:
        """Return the right answer."""
        return ANSWERS[self.n_cups % 2]

    def oracle_thought(self) -> str:
        """Return a thought that counts along: after each object `one` if the cups so far are odd, `two` if even."""
        return " ".join(COUNTS[n % 2] for n in np.cumsum(self._world.target))

    def _draw(self) -> tuple[int, ...]:
        return tuple(self.np_random.integers(2, size=self.n_objects).tolist())

    def _score(self, number: int) -> tuple[float, int, bool]:
        right = number == self.n_cups % 2
        return float(right), int(right), right

    def _family_info(self, *, acted: bool) -> dict[str, Any]:
        thought = {"oracle_thought": None if self.is_over else self.oracle_thought()} if self.oracle_info else {}
        return {"n_cups": self.n_cups, "key_correct": acted and self._world.n_correct == 1, **thought}

    def _configuration(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("n_objects", "horizon", "max_steps")}
