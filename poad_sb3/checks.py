"""What the arguments of an on-policy algorithm may be, alone and together."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

from poad_sb3.choosers import AUTO, ActionSampling, member
from poad_sb3.rollouts import Bootstrap, CreditLevel
from poad_sb3.sampling import TokenSampling
from poad_sb3.schedules import SCHEDULED, schedule_of

__all__ = ["check_arguments"]


def check_arguments(algorithm: Any) -> None:  # noqa: ANN401 - an LLMOnPolicyAlgorithm, whose module needs this one
    """Refuse arguments out of range, of the wrong type, or that exclude each other.

    Args:
        algorithm: An `LLMOnPolicyAlgorithm`, its arguments set as attributes.

    Raises:
        ValueError: For a number out of range, an unknown word, or a combination that makes no sense.
        TypeError: For a flag that is no bool.
    """
    _check_words(algorithm)
    _check_sampling(algorithm)
    _check_flags(algorithm)
    for name in SCHEDULED:
        if name != "clip_range_vf" or algorithm.clip_range_vf is not None:
            schedule_of(name, getattr(algorithm, name))
    _check_numbers(algorithm)


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)


def _check_numbers(algorithm: Any) -> None:  # noqa: ANN401 - as above
    for name in ("gamma", "gae_lambda", "gamma_token", "gae_lambda_token"):
        value = getattr(algorithm, name)
        if not _is_number(value) or not 0.0 <= value <= 1.0:
            raise ValueError(f"Expected {name} between 0 and 1; got {value!r}.")
    for name in ("n_steps", "batch_size", "n_epochs", "n_critic_epochs", "max_new_tokens"):
        value = getattr(algorithm, name)
        if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
            raise ValueError(f"Expected {name} to be a positive integer; got {value!r}.")
    for name in ("ent_coef", "vf_coef", "kl_coef", "max_grad_norm", "min_advantage_std"):
        _check_weight(name, getattr(algorithm, name), may_be_zero=name.endswith("_coef"))
    if algorithm.target_kl is not None:
        _check_weight("target_kl", algorithm.target_kl, may_be_zero=False)


def _check_weight(name: str, value: Any, *, may_be_zero: bool) -> None:  # noqa: ANN401 - checked here
    if not _is_number(value) or value < 0 or (value == 0 and not may_be_zero):
        at_least = "non-negative" if may_be_zero else "positive"
        raise ValueError(f"Expected {name} to be a {at_least} number; got {value!r}.")


def _check_flags(algorithm: Any) -> None:  # noqa: ANN401 - as above
    for name in ("normalize_advantage", "normalize_value", "smdp_discount", "paper_mode"):
        if not isinstance(getattr(algorithm, name), bool):
            raise TypeError(f"Expected {name} to be True or False; got {getattr(algorithm, name)!r}.")


def _check_sampling(algorithm: Any) -> None:  # noqa: ANN401 - as above
    TokenSampling(algorithm.temperature, algorithm.top_k, algorithm.top_p).check()
    stop = algorithm.stop
    if isinstance(stop, str) or not isinstance(stop, Sequence) or not all(isinstance(one, str) and one for one in stop):
        raise TypeError(f"Expected stop to be texts, none of them empty; got {stop!r}. Fix: stop=[...].")


def _check_words(algorithm: Any) -> None:  # noqa: ANN401 - as above
    member(CreditLevel, "credit_level", algorithm.credit_level)
    member(Bootstrap, "bootstrap", algorithm.bootstrap)
    ways = [AUTO, *map(str, ActionSampling)]
    if algorithm.action_sampling not in ways:
        raise ValueError(f"Expected action_sampling to be one of {ways}; got {algorithm.action_sampling!r}.")
    if algorithm.credit_level == CreditLevel.ACTION and (algorithm.paper_mode or algorithm.kl_coef):
        raise ValueError(
            "Expected no paper_mode and no kl_coef with credit for whole actions: both are about tokens; got "
            f"paper_mode={algorithm.paper_mode}, kl_coef={algorithm.kl_coef}. Fix: credit_level='token'."
        )
    if algorithm.credit_level == CreditLevel.ACTION and algorithm.action_sampling == ActionSampling.FREE:
        raise ValueError(
            "Expected admissible actions to choose from with credit for whole actions; got action_sampling="
            "'free'. Fix: 'candidates' or 'trie'; an open action space needs token credit (POAD, NTPO, ARCHER)."
        )
    if algorithm.kl_coef and (algorithm.policy_kwargs or {}).get("critic_trunk", "frozen") != "frozen":
        raise ValueError(
            "Expected kl_coef with critic_trunk='frozen': what the base model says is made of the same features; got "
            f"{algorithm.kl_coef}. Fix: leave one of them out."
        )
    if algorithm.kl_coef and algorithm.action_sampling == ActionSampling.CANDIDATES and not algorithm.paper_mode:
        raise ValueError(
            "Expected kl_coef with action_sampling='trie' or 'free': the base model's distribution over whole "
            f"candidates is not among the cached features; got {algorithm.kl_coef}. Fix: leave one of them out."
        )
