"""`warm_start`: the weights of a checkpoint as the start of another training."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stable_baselines3.common.save_util import load_from_zip_file

from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
from poad_sb3.common.save_util import read_data, read_header, reading
from poad_sb3.errors import CheckpointError
from poad_sb3.settings.credit import CriticKind
from poad_sb3.settings.model import DEFAULT_LORA, ModelSettings
from poad_sb3.settings.sampling import ActionSampling
from poad_sb3.zoo.adapters import digest_of, read_adapter
from poad_sb3.zoo.rows import ADAPTER


def warm_start(algorithm: LLMOnPolicyAlgorithm, path: str | Path) -> None:
    """Load the adapter and the critic of a checkpoint of any method with an adapter; all else stays as it is.

    Optimisers, counters and generators are those of the algorithm. Where either of the two has no critic, only the
    adapter is loaded. So it is, with a warning, where the critic has learned other values than the algorithm needs:
    NTPO discounts at each token, and values that POAD has learned are several times too large for it.

    Args:
        algorithm: Algorithm with the same base model, adapter and prompt.
        path: Path of the checkpoint, or of the `.safetensors` of an agent of the zoo, which has no critic.

    Raises:
        CheckpointError: If base model, adapter, critic or prompt differ; the algorithm is unchanged.
    """
    header, data, weights = _read(Path(path))
    algorithm._check_fingerprint(header["base_fingerprint"], header.get("model"))
    with reading(path):
        policy, given = algorithm.policy, (algorithm.policy_kwargs, data["policy_kwargs"])
        lora, source_lora = map(_adapter, given)
        prompt = json.loads(json.dumps(policy.lm.prompter.template.to_dict()))
        tensors = policy.state_dict()
        has_critic = policy.critic is not None and any(map(_of_critic, weights))
        trunks = [
            arguments.get("critic_trunk", ModelSettings().critic_trunk) if has_critic else None for arguments in given
        ]
        for name, got, wanted in (
            ("policy_kwargs.lora", lora, source_lora),
            ("policy_kwargs.prompt", prompt, header["prompt"]),
            ("policy_kwargs.critic_trunk", *trunks),
        ):
            if got != wanted:
                raise CheckpointError(f"Expected {name} as in {path}, {wanted}; got {got}. Fix: train with the same.")
        if has_critic and (difference := _difference_of_values(vars(algorithm), {"critic": CriticKind.TOKEN, **data})):
            has_critic = False
            warnings.warn(
                f"Only the adapter of {path} is loaded: its critic has learned values with {difference}. "
                f"Fix, for a critic: poad bc --algo {type(algorithm).__name__}, or BC(model, episodes).train(0, 5).",
                stacklevel=2,
            )
    if data["temperature"] != algorithm.temperature:
        warnings.warn(
            f"The adapter of {path} was trained at temperature {data['temperature']}, and acts otherwise at "
            f"{algorithm.temperature}. Fix: temperature={data['temperature']}.",
            stacklevel=2,
        )
    if not has_critic:
        weights = {name: tensor for name, tensor in weights.items() if not _of_critic(name)}
        weights |= {name: tensor for name, tensor in tensors.items() if _of_critic(name)}
    try:
        algorithm.set_parameters({**algorithm.get_parameters(), "policy": weights})
    except RuntimeError as error:
        raise CheckpointError(f"{path} does not fit. {error}") from error


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return what a checkpoint or the file of an adapter says of itself, its settings, and its weights."""
    if path.suffix == ADAPTER:
        about, weights = read_adapter(path, digest_of(path))
        data = {**about["arguments"], "policy_kwargs": about["arguments"].get("policy_kwargs") or {}}
        return {**about, "model": data["policy_kwargs"].get("model")}, data, weights
    header = read_header(path)
    if header["algorithm"] == "BADQ":
        raise CheckpointError(f"Expected a checkpoint with an adapter; {path} is of BADQ, which trains none.")
    with reading(path):
        _, parameters, _ = load_from_zip_file(path, device="cpu", load_data=False)
        return header, read_data(path), dict(parameters["policy"])


def _difference_of_values(arguments_here: Mapping[str, Any], arguments_there: Mapping[str, Any]) -> str | None:
    """Return the first setting by which two algorithms value the same tokens differently; None if there is none.

    A value of a whole action is that before its first token, which a critic of tokens knows too, if no token discounts.
    """
    for name in ("gamma", "smdp_discount"):
        if arguments_here[name] != arguments_there[name]:
            return f"{name} {arguments_there[name]} instead of {arguments_here[name]}"
    levels = [arguments["credit_level"] for arguments in (arguments_here, arguments_there)]
    critics = [CriticKind(arguments["critic"]) for arguments in (arguments_here, arguments_there)]
    of_states = levels[0] == "action" and {*critics} <= {CriticKind.TOKEN, CriticKind.STATE}
    if critics[0] != critics[1] and not of_states:
        return f"critic {critics[1]} instead of {critics[0]}"
    if levels == ["token", "action"]:
        return "credit_level action instead of token"
    for name in ("gamma_token", "gamma_thought"):
        discounts = [_discount(name, arguments) for arguments in (arguments_here, arguments_there)]
        needed = discounts[0] if levels[0] == "token" else 1.0
        if levels[1] == "token" and discounts[1] != needed:
            return f"{name} {discounts[1]:g} instead of {needed:g}"
    return None


def _discount(name: str, arguments: Mapping[str, Any]) -> float:
    """Return the discount after a token of an action, or of a thought: that of actions where there are none."""
    of_token = arguments["gamma"] if arguments["gamma_token"] is None else arguments["gamma_token"]
    of_thought = arguments.get("gamma_thought") if arguments["action_sampling"] == ActionSampling.THINK else None
    return float(of_token if name == "gamma_token" or of_thought is None else of_thought)


def _of_critic(name: str) -> bool:
    return name.startswith("critic.")


def _adapter(policy_kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Return the settings of the adapter; its target modules follow from the names of the weights."""
    lora = policy_kwargs.get("lora", DEFAULT_LORA)
    if lora is None:
        return None
    return {name: value for name, value in {**DEFAULT_LORA, **lora}.items() if name != "target_modules"}
