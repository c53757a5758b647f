"""Registration with verl and SkyRL: against stand-ins with their signatures, and the packages where installed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from poad_sb3.credit import padded, published, registries

REWARDS = torch.tensor([[0.0, 1.0, 0.0, 0.0, 2.0], [0.0, 0.0, 0.0, 4.0, 0.0], [0.0, 0.5, 0.0, 0.0, 0.0]])
VALUES = torch.tensor([[0.1, 0.2, 9.0, 0.3, 0.4], [0.5, 0.6, 9.0, 0.7, 9.0], [0.3, 0.1, 9.0, 9.0, 9.0]])
ACTIONS = torch.tensor([[1, 1, 0, 1, 1], [1, 1, 0, 1, 0], [1, 1, 0, 0, 0]])
RESPONSE = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0], [1, 1, 0, 0, 0]])
"""SkyRL's mask: 1 on observation tokens as well."""
UIDS = ["x", "x", "y"]


class Config(dict[str, Any]):
    """As verl's `AlgoConfig` and omegaconf's `DictConfig`: fields, and `get`."""


def verl_standin() -> ModuleType:
    """A registry with the signatures of `verl.trainer.ppo.core_algos` (verl 0.9.1)."""
    core = ModuleType("verl.trainer.ppo.core_algos")
    table: dict[str, Callable[..., Any]] = {}

    def register_adv_est(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def decorator(function: Callable[..., Any]) -> Callable[..., Any]:
            if name in table and table[name] != function:
                raise ValueError(f"{name} has been registered")
            table[name] = function
            return function

        return decorator

    core.register_adv_est = register_adv_est  # type: ignore[attr-defined]
    core.get_adv_estimator_fn = table.__getitem__  # type: ignore[attr-defined]
    return core


def skyrl_standin() -> ModuleType:
    """A registry with the signatures of `skyrl.backends.skyrl_train.utils.ppo_utils` (SkyRL 0.3.0)."""
    utils = ModuleType("skyrl.backends.skyrl_train.utils.ppo_utils")
    table: dict[str, Callable[..., Any]] = {}

    class AdvantageEstimatorRegistry:
        @classmethod
        def register(cls, name: str, func: Callable[..., Any]) -> None:
            if name in table:
                raise ValueError(f"advantage estimator '{name}' already registered")
            table[name] = func

        @classmethod
        def unregister(cls, name: str) -> None:
            del table[name]

    def compute_advantages_and_returns(
        token_level_rewards: Any, response_mask: Any, index: Any, adv_estimator: str, config: Any, values: Any = None,
        grpo_norm_by_std: bool = True, gamma: float = 1.0, lambd: float = 1.0, **kwargs: Any,
    ) -> Any:  # fmt: skip
        return table[adv_estimator](
            token_level_rewards=token_level_rewards, response_mask=response_mask, index=index, values=values,
            grpo_norm_by_std=grpo_norm_by_std, gamma=gamma, lambd=lambd, config=config, **kwargs,
        )  # fmt: skip

    utils.AdvantageEstimatorRegistry = AdvantageEstimatorRegistry  # type: ignore[attr-defined]
    utils.compute_advantages_and_returns = compute_advantages_and_returns  # type: ignore[attr-defined]
    return utils


def installed(name: str) -> ModuleType:
    """The module of the real package, or a skip that says why it is not tested."""
    try:
        return importlib.import_module(name)
    except Exception as error:
        pytest.skip(f"{name.split('.')[0]} cannot be imported here: {type(error).__name__}: {str(error)[:80]}")


@pytest.fixture(params=["stand-in", "package"])
def verl(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    if request.param == "package":
        return installed(registries._VERL)
    core = verl_standin()
    monkeypatch.setitem(sys.modules, core.__name__, core)
    return core


@pytest.fixture(params=["stand-in", "package"])
def skyrl(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    if request.param == "package":
        return installed(registries._SKYRL)
    utils = skyrl_standin()
    monkeypatch.setitem(sys.modules, utils.__name__, utils)
    return utils


@pytest.fixture
def registered_with_skyrl(skyrl: ModuleType) -> Iterator[tuple[ModuleType, list[str]]]:
    names = registries.register_with_skyrl(single_turn=True, gae_lambda_token=0.5)
    yield skyrl, names
    for name in names:
        skyrl.AdvantageEstimatorRegistry.unregister(name)


def test_verl_calls_the_estimators_without_a_critic(verl: ModuleType) -> None:
    names = registries.register_with_verl()
    assert registries.register_with_verl() == names, "a second registration changes nothing"
    assert {"poad_rloo", "poad_rebn", "poad_step_leave_one_out"} <= set(names)
    assert not {"poad_bad", "poad_gigpo"} & set(names), "the registry passes neither values nor states"
    for name in names:
        advantages, returns = verl.get_adv_estimator_fn(name)(
            token_level_rewards=REWARDS,
            response_mask=ACTIONS,
            config=Config(gamma=0.9),
            index=np.array(UIDS, dtype=object),
        )
        short = name.removeprefix("poad_")
        groups = (UIDS,) if short in ("rloo", "grpo", "dr_grpo", "step_leave_one_out") else ()
        discount = {} if short in ("rloo", "grpo", "dr_grpo") else {"gamma": 0.9}
        torch.testing.assert_close(advantages, getattr(padded, short)(REWARDS, ACTIONS, *groups, **discount))
        assert returns is advantages
        assert advantages.abs().max() > 0


def test_verl_without_groups_or_configuration(verl: ModuleType) -> None:
    registries.register_with_verl()
    with pytest.raises(ValueError, match=r"^Expected the group of each row for poad_rloo; got no index\.$"):
        verl.get_adv_estimator_fn("poad_rloo")(token_level_rewards=REWARDS, response_mask=ACTIONS, config=None)
    undiscounted, _ = verl.get_adv_estimator_fn("poad_returns_to_go")(
        token_level_rewards=REWARDS, response_mask=ACTIONS, config=None
    )
    torch.testing.assert_close(undiscounted, padded.returns_to_go(REWARDS, ACTIONS, gamma=1.0))


def test_verls_own_configuration_has_the_discount() -> None:
    installed(registries._VERL)
    from omegaconf import OmegaConf
    from verl.trainer.config import AlgoConfig

    for config in (AlgoConfig(gamma=0.5), OmegaConf.create({"gamma": 0.5})):
        advantages, _ = registries._FOR_VERL["returns_to_go"](
            token_level_rewards=REWARDS, response_mask=ACTIONS, config=config
        )
        torch.testing.assert_close(advantages, padded.returns_to_go(REWARDS, ACTIONS, gamma=0.5))


def test_verls_gae_is_the_stream_that_skips_observations() -> None:
    core = installed(registries._VERL)
    ours = published.stream_gae(
        REWARDS.double().numpy(),
        VALUES.double().numpy(),
        ACTIONS.numpy(),
        gamma=0.9,
        gae_lambda=0.8,
        observations="skip",
    )
    theirs, _ = core.compute_gae_advantage_return(REWARDS.double(), VALUES.double(), ACTIONS.double(), 0.9, 0.8)
    trained = ACTIONS.bool()
    np.testing.assert_allclose(theirs[trained], published.whitened(ours, ACTIONS.numpy())[trained], atol=1e-12)


def test_skyrls_gae_is_the_stream_through_observations() -> None:
    utils = installed(registries._SKYRL)
    ours = published.stream_gae(
        REWARDS.double().numpy(),
        VALUES.double().numpy(),
        RESPONSE.numpy(),
        gamma=0.9,
        gae_lambda=0.8,
        observations="through",
    )
    theirs, _ = utils.compute_gae_advantage_return(REWARDS.double(), VALUES.double(), RESPONSE.double(), 0.9, 0.8)
    real = RESPONSE.bool()
    np.testing.assert_allclose(theirs[real], published.whitened(ours, RESPONSE.numpy())[real], atol=1e-6)


def test_skyrl_calls_estimators_of_episodes(skyrl: ModuleType) -> None:
    names = registries.register_with_skyrl()
    try:
        assert names == ["poad_dr_grpo", "poad_grpo", "poad_rloo"]
        for name in names:
            advantages, _ = skyrl.compute_advantages_and_returns(
                REWARDS, RESPONSE, UIDS, name, SimpleNamespace(), values=None, gamma=0.9, lambd=0.8
            )
            expected = getattr(padded, name.removeprefix("poad_"))(REWARDS, ACTIONS, UIDS)
            trained = ACTIONS.bool()
            torch.testing.assert_close(advantages[trained], expected[trained])
    finally:
        for name in names:
            skyrl.AdvantageEstimatorRegistry.unregister(name)


def test_skyrl_passes_values_for_rows_of_one_action(registered_with_skyrl: tuple[ModuleType, list[str]]) -> None:
    skyrl, names = registered_with_skyrl
    assert {"poad_bad", "poad_bilevel", "poad_rebn"} <= set(names)
    values = VALUES.masked_fill(RESPONSE == 0, torch.nan)
    for name in names:
        advantages, returns = skyrl.compute_advantages_and_returns(
            REWARDS, RESPONSE, UIDS, name, SimpleNamespace(), values=values, gamma=0.9, lambd=0.8
        )
        assert advantages.shape == returns.shape == REWARDS.shape
        assert torch.isfinite(advantages).all()
        assert torch.isfinite(returns).all()
    advantages, returns = skyrl.compute_advantages_and_returns(
        REWARDS, RESPONSE, UIDS, "poad_bad", SimpleNamespace(), values=values, gamma=0.9, lambd=0.8
    )
    expected = padded.bad(REWARDS, VALUES, RESPONSE, gamma=0.9, gae_lambda=0.8, gae_lambda_token=0.5)
    torch.testing.assert_close(advantages, expected)
    real = RESPONSE.bool()
    torch.testing.assert_close(returns[real], (expected + VALUES)[real])
    with pytest.raises(ValueError, match=r"^Expected values for poad_ntpo; got None\. Fix: configure a critic\.$"):
        skyrl.compute_advantages_and_returns(REWARDS, RESPONSE, UIDS, "poad_ntpo", SimpleNamespace())


@pytest.mark.parametrize(
    ("register", "package"),
    [(registries.register_with_verl, "verl"), (registries.register_with_skyrl, "skyrl[skyrl-train]")],
)
def test_an_absent_package_is_named(
    register: Callable[[], list[str]], package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> ModuleType:
        root = name.split(".")[0]
        raise ModuleNotFoundError(f"No module named {root!r}", name=root)

    monkeypatch.setattr(registries.importlib, "import_module", absent)
    with pytest.raises(
        ModuleNotFoundError, match=r"^Expected the package .*; it is not installed\. Fix: pip install "
    ) as error:
        register()
    assert package in str(error.value)


def test_an_error_inside_a_package_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> ModuleType:
        raise ModuleNotFoundError("No module named 'flash_attn'", name="flash_attn")

    monkeypatch.setattr(registries.importlib, "import_module", broken)
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'flash_attn'$"):
        registries.register_with_verl()
