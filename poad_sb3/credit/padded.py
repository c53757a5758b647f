"""Advantages in the padded layout `[batch, positions]` of verl, SkyRL and TRL, for numpy arrays and torch tensors.

A row holds one episode: the tokens of its actions, and between them tokens of observations (and padding anywhere). All
functions take

* `rewards` `[batch, positions]`: the reward of an action on any of its tokens, or spread over them as a sum;
* `mask` `[batch, positions]`: nonzero at action tokens (verl's `response_mask`, SkyRL's `loss_mask`);
* `turn_ids` `[batch, positions]` or None: the number of the action at each action token, on consecutive tokens. By
  default every run of action tokens is an action; give the numbers where actions follow each other without an
  observation between;
* with a critic, `values` `[batch, positions]`: the value of the prefix *before* each token, and `bootstrap` `[batch]`:
  the value of the true final observation of an episode that a time limit cut, 0 for the rest (None: 0 for all);
* without one, `groups` `[batch]`: the group of each episode, any hashable (verl's `uid`).

They return advantages of the kind, device and dtype of `rewards`, 0 wherever the mask is; every token of an action gets
the advantage of the action where the method has one for it. They are computed in float64 by the functions of
`poad_sb3.credit.advantages`, `returns` and `baselines`, without gradient. Entries outside the mask may hold NaN. A row
without action tokens (an aborted or masked response) takes no part: it gets 0, and the other rows what they would get
without it; its state keys are ignored.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from poad_sb3.credit import baselines, returns
from poad_sb3.credit.advantages import (
    Bools,
    Floats,
    bilevel_gae,
    next_action_values,
    next_state_values,
    token_gae,
)

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "action_gae",
    "anchor_leave_one_out",
    "archer",
    "bad",
    "bilevel",
    "dr_grpo",
    "gigpo",
    "grpo",
    "ntpo",
    "rebn",
    "reinforce_plus_plus",
    "returns_to_go",
    "rloo",
    "step_leave_one_out",
]

Array = TypeVar("Array", NDArray[Any], "Tensor")
Keys = Sequence[Sequence[Hashable]]


# ---------------------------------------------------------------------- with a critic


def bad(
    rewards: Array,
    values: Array,
    mask: Array,
    turn_ids: Array | None = None,
    *,
    gamma: float,
    gae_lambda: float,
    gae_lambda_token: float = 1.0,
    bootstrap: Array | None = None,
) -> Array:
    """Compute token advantages under the Bellman backup with Action Decomposition (`advantages.token_gae`)."""
    turns = Turns.of(rewards, mask, turn_ids, values, bootstrap)
    return turns.of_tokens(_token_gae(turns, "first", gamma, gae_lambda, 1.0, gae_lambda_token))


def ntpo(
    rewards: Array,
    values: Array,
    mask: Array,
    turn_ids: Array | None = None,
    *,
    gamma: float,
    gae_lambda: float,
    gae_lambda_token: float = 1.0,
    bootstrap: Array | None = None,
) -> Array:
    """Compute naive token advantages, discounted once a token.

    With `gae_lambda_token = gae_lambda` and no bootstrap this is verl's GAE before its whitening.
    """
    turns = Turns.of(rewards, mask, turn_ids, values, bootstrap)
    return turns.of_tokens(_token_gae(turns, "first", gamma, gae_lambda, gamma, gae_lambda_token))


def archer(
    rewards: Array,
    values: Array,
    mask: Array,
    turn_ids: Array | None = None,
    *,
    gamma: float,
    gae_lambda: float,
    gae_lambda_token: float = 1.0,
    gamma_token: float | None = None,
    bootstrap: Array | None = None,
) -> Array:
    """Compute ARCHER's token advantages, which bootstrap from the value before the last token of the next action.

    `gamma_token=None` takes `gamma`.
    """
    turns = Turns.of(rewards, mask, turn_ids, values, bootstrap)
    inside = gamma if gamma_token is None else gamma_token
    return turns.of_tokens(_token_gae(turns, "last", gamma, gae_lambda, inside, gae_lambda_token))


def bilevel(
    rewards: Array,
    values: Array,
    mask: Array,
    turn_ids: Array | None = None,
    *,
    gamma: float,
    gae_lambda: float,
    gae_lambda_token: float = 1.0,
    gamma_token: float = 1.0,
    anchor: Literal["first", "last"] = "first",
    bootstrap: Array | None = None,
) -> Array:
    """Compute bi-level GAE (`advantages.bilevel_gae`), corrected; `anchor="last"` is VAGEN's form."""
    turns = Turns.of(rewards, mask, turn_ids, values, bootstrap)
    return turns.of_tokens(
        bilevel_gae(
            turns.rewards,
            turns.values,
            turns.lengths,
            turns.next_values(anchor),
            turns.ends,
            gamma=gamma,
            gae_lambda=gae_lambda,
            gamma_token=gamma_token,
            gae_lambda_token=gae_lambda_token,
            anchor=anchor,
        )
    )


def action_gae(
    rewards: Array,
    values: Array,
    mask: Array,
    turn_ids: Array | None = None,
    *,
    gamma: float,
    gae_lambda: float,
    bootstrap: Array | None = None,
) -> Array:
    """Compute GAE over whole actions from the value before their first token (turn-level PPO)."""
    turns = Turns.of(rewards, mask, turn_ids, values, bootstrap)
    return turns.of_actions(
        token_gae(
            turns.rewards,
            turns.values[..., :1],
            np.ones_like(turns.lengths),
            turns.next_values(),
            turns.ends,
            gamma=gamma,
            gae_lambda=gae_lambda,
            gamma_token=1.0,
            gae_lambda_token=1.0,
        )
    )


def _token_gae(
    turns: Turns[Any], bootstrap_from: str, gamma: float, gae_lambda: float, gamma_token: float, gae_lambda_token: float
) -> Floats:
    return token_gae(
        turns.rewards,
        turns.values,
        turns.lengths,
        turns.next_values(bootstrap_from),
        turns.ends,
        gamma=gamma,
        gae_lambda=gae_lambda,
        gamma_token=gamma_token,
        gae_lambda_token=gae_lambda_token,
    )


# ---------------------------------------------------------------------- without a critic


def returns_to_go(rewards: Array, mask: Array, turn_ids: Array | None = None, *, gamma: float) -> Array:
    """Compute the discounted return to go of each action, without a baseline."""
    turns = Turns.of(rewards, mask, turn_ids)
    return turns.of_actions(turns.returns(gamma))


def reinforce_plus_plus(
    rewards: Array, mask: Array, turn_ids: Array | None = None, *, gamma: float, eps: float = 1e-8
) -> Array:
    """Compute REINFORCE++ (arXiv 2501.03262): returns discounted once a token, whitened over all action tokens."""
    turns = Turns.of(rewards, mask, turn_ids)
    tokens = returns.token_returns(turns.rewards, turns.lengths, turns.ends, gamma=gamma, gamma_token=gamma)
    tokens[turns.real] = baselines.whitened(tokens[turns.real], eps)
    return turns.of_tokens(tokens)


def rebn(
    rewards: Array, mask: Array, turn_ids: Array | None = None, *, gamma: float, eps: float = 1e-8, ddof: int = 1
) -> Array:
    """Compute return batch normalization (GEM, arXiv 2510.01051): returns to go, normalised over all actions."""
    turns = Turns.of(rewards, mask, turn_ids)
    group = np.zeros(len(turns.rows), dtype=np.int64)
    return turns.of_actions(baselines.centred(turns.returns(gamma), group, eps=eps, ddof=ddof))


def grpo(rewards: Array, mask: Array, groups: Iterable[Hashable], *, eps: float = 1e-6) -> Array:
    """Compute GRPO (arXiv 2402.03300): returns of episodes, centred and divided by the deviation of their group."""
    turns = Turns.of(rewards, mask)
    return turns.of_episodes(baselines.centred(turns.totals(), turns.groups(groups), eps=eps))


def dr_grpo(rewards: Array, mask: Array, groups: Iterable[Hashable]) -> Array:
    """Compute Dr. GRPO (arXiv 2503.20783): returns of episodes less the mean of their group."""
    turns = Turns.of(rewards, mask)
    return turns.of_episodes(baselines.centred(turns.totals(), turns.groups(groups)))


def rloo(rewards: Array, mask: Array, groups: Iterable[Hashable]) -> Array:
    """Compute RLOO (arXiv 2402.14740): returns of episodes less the mean of the remaining ones in their group."""
    turns = Turns.of(rewards, mask)
    return turns.of_episodes(baselines.centred(turns.totals(), turns.groups(groups), leave_one_out=True))


def gigpo(
    rewards: Array,
    mask: Array,
    groups: Iterable[Hashable],
    state_keys: Keys,
    turn_ids: Array | None = None,
    *,
    gamma: float,
    omega: float = 1.0,
    eps: float | None = None,
) -> Array:
    """Compute GiGPO (arXiv 2505.10978): Dr. GRPO plus omega times the return to go less that of the same state.

    Args:
        rewards: Rewards, see the module's docstring.
        mask: Mask of action tokens, see the module's docstring.
        groups: Group of each episode, see the module's docstring.
        state_keys: Keys of the states of each row's actions (the texts of the observations, as published).
        turn_ids: Number of the action at each token, see the module's docstring.
        gamma: Discount between actions in the step part; the episode part has none.
        omega: Weight of the step part.
        eps: Number added to the deviation of a cell before dividing by it (1e-6 in the first version); None: no
            division.
    """
    turns = Turns.of(rewards, mask, turn_ids)
    members = turns.groups(groups)
    episode = baselines.centred(turns.totals(), members, eps=eps)[turns.rows]
    step = baselines.centred(turns.returns(gamma), turns.states(members, state_keys), eps=eps)
    return turns.of_actions(episode + omega * step)


def anchor_leave_one_out(
    rewards: Array,
    mask: Array,
    groups: Iterable[Hashable],
    state_keys: Keys,
    turn_ids: Array | None = None,
    *,
    gamma: float,
) -> Array:
    """Compute returns to go less those of other episodes at the same state (`baselines.state_leave_one_out`)."""
    turns = Turns.of(rewards, mask, turn_ids)
    cells = turns.states(turns.groups(groups), state_keys)
    return turns.of_actions(baselines.state_leave_one_out(turns.returns(gamma), cells, turns.rows))


def step_leave_one_out(
    rewards: Array, mask: Array, groups: Iterable[Hashable], turn_ids: Array | None = None, *, gamma: float
) -> Array:
    """Compute returns to go less those of other episodes at the same step (`baselines.step_leave_one_out`)."""
    turns = Turns.of(rewards, mask, turn_ids)
    members = turns.groups(groups)[turns.rows]
    return turns.of_actions(baselines.step_leave_one_out(turns.returns(gamma), members, turns.rows, turns.steps))


# ---------------------------------------------------------------------- layout


@dataclass(frozen=True)
class Turns(Generic[Array]):
    """The actions of a padded batch, row after row, in the layout `[steps, envs, tokens]` of one environment.

    Attributes:
        like: Rewards as given: results have their kind, device and dtype.
        mask: Whether a position holds an action token, `[batch, positions]`.
        active: Whether a row has action tokens, `[batch]`; inactive rows take no part.
        rows: Row of each action, counted among the active ones, `[steps]`.
        steps: Position of each action in its row, `[steps]`.
        rewards: Reward of each action, `[steps, 1]`.
        values: Value before each token, `[steps, 1, tokens]`, 0 in the padding and without a critic.
        lengths: Number of tokens of each action, `[steps, 1]`.
        ends: Whether the action is the last of its row, `[steps, 1]`.
        final_values: Value at the end of the row, `[steps, 1]`.
    """

    like: Array
    mask: Bools
    active: Bools
    rows: NDArray[np.int64]
    steps: NDArray[np.int64]
    rewards: Floats
    values: Floats
    lengths: NDArray[np.int64]
    ends: Bools
    final_values: Floats

    @classmethod
    def of(
        cls, rewards: Array, mask: Any, turn_ids: Any = None, values: Any = None, bootstrap: Any = None
    ) -> Turns[Array]:
        """Find the actions of a batch.

        Raises:
            ValueError: If shapes do not fit, the tokens of an action are apart, or a reward stands outside the mask.
        """
        named = {"rewards": rewards, "mask": mask, "turn_ids": turn_ids, "values": values}
        arrays = {name: _numpy(array) for name, array in named.items() if array is not None}
        shapes = {name: array.shape for name, array in arrays.items()}
        if len(set(shapes.values())) > 1 or arrays["rewards"].ndim != 2:
            raise ValueError(f"Expected arrays of one shape [batch, positions]; got {shapes}.")
        chosen = arrays["mask"] != 0
        paid = arrays["rewards"]
        lost = np.argwhere(~chosen & np.isfinite(paid) & (paid != 0))
        if len(lost):
            raise ValueError(
                f"Expected rewards on action tokens only; got {paid[tuple(lost[0])]} at row {lost[0][0]}, position "
                f"{lost[0][1]}. Fix: move it to the last token of its action; where the row has none, set it to 0."
            )

        row, position = np.nonzero(chosen)
        new = np.ones(len(row), dtype=bool)
        new[1:] = (row[1:] != row[:-1]) | (position[1:] != position[:-1] + 1)
        if turn_ids is not None:
            ids = arrays["turn_ids"][chosen]
            new[1:] |= ids[1:] != ids[:-1]
            numbers = list(zip(row[new].tolist(), ids[new].tolist(), strict=True))
            if len(set(numbers)) < len(numbers):
                repeated = next(pair for at, pair in enumerate(numbers) if pair in numbers[:at])
                raise ValueError(
                    f"Expected the tokens of a turn to be consecutive; row {repeated[0]} has turn {repeated[1]:g} in "
                    "more than one run of action tokens. Fix: number the turns of a row one after the other."
                )
        start = np.flatnonzero(new)
        lengths = np.diff(start, append=len(row))
        active = chosen.any(axis=1)
        rows = np.cumsum(active)[row[start]] - 1
        ends = np.ones(len(rows), dtype=bool)
        ends[:-1] = rows[1:] != rows[:-1]
        real = np.arange(lengths.max(initial=1)) < lengths[:, None]
        inside = np.zeros(real.shape)
        if values is not None:
            inside[real] = arrays["values"][chosen]
        finals = np.zeros(len(chosen)) if bootstrap is None else _numpy(bootstrap)
        if finals.shape != (len(chosen),):
            raise ValueError(f"Expected a bootstrap value for each of {len(chosen)} rows; got shape {finals.shape}.")
        return cls(
            like=rewards,
            mask=chosen,
            active=active,
            rows=rows,
            steps=np.arange(len(rows)) - np.searchsorted(rows, rows),
            rewards=np.add.reduceat(paid[chosen], start)[:, None],
            values=inside[:, None],
            lengths=lengths[:, None],
            ends=ends[:, None],
            final_values=finals[active][rows][:, None],
        )

    @property
    def real(self) -> Bools:
        """Whether a token is not padding, `[steps, 1, tokens]`."""
        real: Bools = np.arange(self.values.shape[-1]) < self.lengths[..., None]
        return real

    def next_values(self, anchor: str = "first") -> Floats:
        """Compute the value after each action: before the first or the last token of the next one, `[steps, 1]`."""
        unknown = np.zeros(1)  # the last action ends a row
        if anchor == "last":
            return next_action_values(self.values, self.lengths, unknown, self.ends, self.final_values)
        return next_state_values(self.values[..., 0], unknown, self.ends, self.final_values)

    def returns(self, gamma: float) -> Floats:
        """Compute the return to go of each action, `[steps]`."""
        return returns.returns_to_go(self.rewards, self.ends, gamma=gamma)[:, 0]

    def totals(self) -> Floats:
        """Compute the undiscounted return of each active row."""
        return returns.episode_returns(self.rewards[:, 0], self.rows)

    def groups(self, groups: Iterable[Hashable]) -> NDArray[np.int64]:
        """Return the number of the group of each active row."""
        numbers = baselines.cell_numbers(groups.tolist() if hasattr(groups, "tolist") else groups)
        if numbers.shape != (len(self.mask),):
            raise ValueError(f"Expected a group for each of {len(self.mask)} rows; got {len(numbers)}.")
        return numbers[self.active]

    def states(self, groups: NDArray[np.int64], state_keys: Keys) -> NDArray[np.int64]:
        """Return the number of the pair of group and state of each action, `[steps]`."""
        expected, got = np.zeros(len(self.mask), dtype=int), [len(keys) for keys in state_keys]
        expected[self.active] = np.bincount(self.rows)
        if len(got) != len(expected) or (self.active & (expected != got)).any():
            raise ValueError(f"Expected a state key for each action, {expected.tolist()} by row; got {got}.")
        flat = [key for keys, active in zip(state_keys, self.active, strict=True) if active for key in keys]
        return baselines.cell_numbers(zip(groups[self.rows].tolist(), flat, strict=True))

    def of_tokens(self, advantages: Floats) -> Array:
        """Lay out advantages of tokens, `[steps, 1, tokens]`, as a batch `[batch, positions]`."""
        return self._laid_out(advantages[self.real])

    def of_actions(self, advantages: Floats) -> Array:
        """Lay out advantages of actions, one for each of `steps`."""
        return self._laid_out(np.repeat(advantages.ravel(), self.lengths.ravel()))

    def of_episodes(self, advantages: Floats) -> Array:
        """Lay out advantages of episodes, one for each active row."""
        return self.of_actions(advantages[self.rows])

    def _laid_out(self, flat: Floats) -> Array:
        result = np.zeros(self.mask.shape)
        result[self.mask] = flat
        like: Any = self.like
        if hasattr(like, "new_tensor"):
            import torch

            dtype = like.dtype if like.is_floating_point() else torch.float64
            return cast(Array, like.new_tensor(result, dtype=dtype))
        dtype = np.asarray(like).dtype
        return cast(Array, result.astype(dtype if np.issubdtype(dtype, np.floating) else np.float64))


def _numpy(array: Any) -> Floats:
    """Copy an array or a tensor of any device and dtype to numpy's float64."""
    if hasattr(array, "detach"):
        array = array.detach().cpu().double().numpy()
    return np.asarray(array, dtype=np.float64)
