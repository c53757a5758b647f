"""Rates and clip ranges as functions of the progress remaining."""

from __future__ import annotations

import warnings

from stable_baselines3.common.type_aliases import Schedule
from stable_baselines3.common.utils import FloatSchedule, LinearSchedule

from poad_sb3.settings import PPOSettings
from poad_sb3.settings.fields import linear_start


def schedule_of(name: str, rate: object) -> Schedule:
    """Return a learning rate or clip range as a function of the progress remaining (1 at the start, 0 at the end).

    `"lin_NUMBER"` falls from that number to 0 during training, as RL Baselines3 Zoo writes it. As in SB3, an update has
    the rate at the end of its rollout: the last one has 0.

    Args:
        name: Name of the setting.
        rate: Learning rate or clip range: a number, `"lin_NUMBER"`, or a function.

    Raises:
        ValueError: If it is anything else, or a number is out of range or not finite.
    """
    PPOSettings.kinds()[name].check(name, rate)
    if isinstance(rate, str):
        return FloatSchedule(LinearSchedule(linear_start(rate), 0.0, 1.0))
    return FloatSchedule(rate if callable(rate) else float(rate))  # type: ignore[arg-type]  # checked above


def warn_of_zero_rate(rate: object, now: float) -> None:
    """Warn of a first update that is the last as well, where a falling rate is 0.

    Args:
        rate: Setting `learning_rate`.
        now: Value of the rate at the first update.
    """
    if now == 0 and isinstance(rate, str):
        warnings.warn(
            f"Expected training of several rollouts; learning_rate={rate!r} has fallen to 0 at the first update, which "
            "changes nothing. Fix: train for more steps at once, or give a number.",
            RuntimeWarning,
            stacklevel=3,
        )
