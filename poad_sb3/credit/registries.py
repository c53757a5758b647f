"""Registration of the estimators with verl and SkyRL, whose packages are imported at the call.

Names in their configuration are those of `poad_sb3.credit.padded` with the prefix `poad_`, for example
`algorithm.adv_estimator=poad_rloo`. Registered functions are partial functions of this module: processes that unpickle
them need `poad_sb3`, but neither Stable-Baselines3 nor transformers.
"""

from __future__ import annotations

import importlib
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from poad_sb3.credit import padded

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["register_with_skyrl", "register_with_verl"]

_OF_EPISODES = ("dr_grpo", "grpo", "rloo")
_OF_ACTIONS = ("rebn", "reinforce_plus_plus", "returns_to_go", "step_leave_one_out")
_WITH_CRITIC = ("action_gae", "archer", "bad", "bilevel", "ntpo")
_GROUPED = (*_OF_EPISODES, "step_leave_one_out")

_VERL = "verl.trainer.ppo.core_algos"
_SKYRL = "skyrl.backends.skyrl_train.utils.ppo_utils"


def register_with_verl() -> list[str]:
    """Register the estimators without a critic in verl's registry of advantage estimators.

    The registry passes rewards, the mask of action tokens, the group (`uid`) and the configuration, whose `gamma` is
    taken; it passes neither values nor states, so BAD, NTPO, ARCHER, bi-level GAE, GiGPO and the baselines by state are
    calls of `poad_sb3.credit.padded` (docs/guide/credit_for_other_frameworks.md). Every run of action tokens is an
    action.

    Returns:
        The registered names.

    Raises:
        ModuleNotFoundError: If verl is not installed.
    """
    core = _imported(_VERL, "verl")
    names = (*_OF_EPISODES, *_OF_ACTIONS)
    for name in names:
        core.register_adv_est(f"poad_{name}")(_FOR_VERL[name])
    return [f"poad_{name}" for name in names]


def register_with_skyrl(*, single_turn: bool = False, gae_lambda_token: float = 1.0) -> list[str]:
    """Register estimators in SkyRL's registry of advantage estimators.

    The registry passes `response_mask`, which is 1 on observation tokens as well, in place of `loss_mask`: the actions
    of a row cannot be separated. Estimators of whole episodes do not need them. The others are registered on request
    only, and right where a row holds one action; for several, call `poad_sb3.credit.padded` with `loss_mask`
    (docs/guide/credit_for_other_frameworks.md).

    Args:
        single_turn: Whether to register the estimators of actions and tokens too, those with a critic included.
        gae_lambda_token: GAE lambda inside an action; `gamma` and `gae_lambda` are those of SkyRL's configuration.

    Returns:
        The registered names.

    Raises:
        ModuleNotFoundError: If SkyRL is not installed.
    """
    registry = _imported(_SKYRL, "skyrl[skyrl-train]").AdvantageEstimatorRegistry
    names = (*_OF_EPISODES, *_OF_ACTIONS, *_WITH_CRITIC) if single_turn else _OF_EPISODES
    for name in names:
        registry.register(f"poad_{name}", partial(_skyrl, name, gae_lambda_token))
    return [f"poad_{name}" for name in names]


def _verl(
    name: str, *, token_level_rewards: Tensor, response_mask: Tensor, index: Any = None, config: Any = None, **_: Any
) -> tuple[Tensor, Tensor]:
    gamma = 1.0 if config is None else float(config.get("gamma", 1.0))
    advantages = _without_critic(name, token_level_rewards, response_mask, index, gamma)
    return advantages, advantages


_FOR_VERL = {name: partial(_verl, name) for name in (*_OF_EPISODES, *_OF_ACTIONS)}
"""One object for each name: verl refuses a second function under a name, and takes the same one again."""


def _skyrl(
    name: str,
    gae_lambda_token: float,
    *,
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: Any,
    values: Tensor | None = None,
    gamma: float = 1.0,
    lambd: float = 1.0,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    if name not in _WITH_CRITIC:
        advantages = _without_critic(name, token_level_rewards, response_mask, index, gamma)
        return advantages, advantages
    if values is None:
        raise ValueError(f"Expected values for poad_{name}; got None. Fix: configure a critic.")
    inside = {} if name == "action_gae" else {"gae_lambda_token": gae_lambda_token}
    advantages = getattr(padded, name)(
        token_level_rewards, values, response_mask, gamma=gamma, gae_lambda=lambd, **inside
    )
    return advantages, advantages + values.where(response_mask != 0, 0.0)


def _without_critic(name: str, rewards: Tensor, mask: Tensor, index: Any, gamma: float) -> Tensor:
    if name in _GROUPED and index is None:
        raise ValueError(f"Expected the group of each row for poad_{name}; got no index.")
    groups = (index,) if name in _GROUPED else ()
    discount = {} if name in _OF_EPISODES else {"gamma": gamma}
    result: Tensor = getattr(padded, name)(rewards, mask, *groups, **discount)
    return result


def _imported(module: str, package: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "") not in (module.split(".")[0], module):
            raise
        raise ModuleNotFoundError(
            f'Expected the package {package}; it is not installed. Fix: pip install "{package}".', name=error.name
        ) from error
