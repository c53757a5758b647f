"""Names and types of the constructors' arguments, for editors and type checkers.

Written from the settings by `python tests/poad_sb3/test_arguments.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypedDict

__all__ = ["Arguments"]


class Arguments(TypedDict, total=False):
    """Arguments of the on-policy algorithms beside `policy` and `env`; described at the fields of the settings."""

    learning_rate: Any
    critic_learning_rate: Any
    n_steps: int
    batch_size: int
    n_epochs: int
    n_critic_epochs: int
    gamma: float
    gae_lambda: float
    gamma_token: float | None
    gae_lambda_token: float
    clip_range: Any
    clip_range_vf: Any
    ent_coef: float
    vf_coef: float
    max_grad_norm: float
    target_kl: float | None
    normalize_advantage: bool
    min_advantage_std: float
    smdp_discount: bool
    normalize_value: bool
    n_episodes: int | None
    kl_coef: float
    critic_first: bool
    ratio: str | None
    clip_range_high: Any
    dual_clip: float | None
    cispo_cap: float | None
    loss_reduction: str
    micro_batches: int
    estimator: str
    credit_level: str
    bootstrap: str
    baseline: str
    leave_one_out: bool
    advantage_scale: str
    omega: float
    group_size: int
    state_key: Callable[[str], Hashable] | None
    drop_truncated: bool
    action_sampling: str
    candidate_normalization: str
    paper_mode: bool
    max_new_tokens: int
    temperature: float
    top_k: int
    top_p: float
    stop: Sequence[str]
    generation_endpoint: str | None
    generation_requests: int
    stats_window_size: int
    tensorboard_log: str | None
    policy_kwargs: Mapping[str, Any] | None
    verbose: int
    seed: int | None
    device: Any
    _init_setup_model: bool
    _model_preset: bool
