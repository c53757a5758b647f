"""A trained agent for others: a PEFT adapter, or a model with the adapter merged in, that need nothing of ours to load.

exported = export_policy(model, "salad-adapter")
print(exported.code)  # two lines that load it
"""

from __future__ import annotations

import copy
import hashlib
import json
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import torch
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils import get_peft_model_state_dict
from peft.utils.other import AuxiliaryTrainingWrapper
from safetensors.torch import load_file, save_file
from stable_baselines3.common.base_class import BaseAlgorithm
from torch import Tensor

from poad_sb3.agreement import EXPORT_TOLERANCE, ROUNDED_TOLERANCE, export_error
from poad_sb3.badq.policy import BADQPolicy
from poad_sb3.errors import ExportError
from poad_sb3.export_card import About, Kind, model_card
from poad_sb3.export_folder import new_folder, write_manifest
from poad_sb3.hub import push
from poad_sb3.lm import Check
from poad_sb3.models.adapters import is_quantized, merged_copy
from poad_sb3.models.check import is_exact
from poad_sb3.models.sources import ModelFactory, no_progress_bars
from poad_sb3.pocket import model_path
from poad_sb3.policies import LLMPolicy

__all__ = ["Export", "export_adapter", "export_merged", "export_policy", "push"]

_ADAPTER = "adapter_model.safetensors"


class Export(NamedTuple):
    """What was written.

    Attributes:
        folder: Where, absolute.
        n_tensors: Number of tensors.
        n_bytes: Size of all files.
        code: Two lines of Python that load it.
        local_base: Whether an adapter's base model is a folder of this machine, which others do not have.
    """

    folder: Path
    n_tensors: int
    n_bytes: int
    code: str
    local_base: bool


def export_policy(
    model: BaseAlgorithm | LLMPolicy,
    folder: str | Path,
    *,
    merge: bool = False,
    overwrite: bool = False,
    check: Check | str | None = None,
) -> Export:
    """Write a policy's language model for use with transformers (and peft) alone; see the two kinds below.

    Args:
        model: A policy, or an algorithm, whose name and steps the model card then tells.
        folder: The folder to make. It comes whole or not at all.
        merge: Merge the adapter into the weights of the base model instead of writing the adapter.
        overwrite: Replace an earlier export.
        check: Response to a merged model with other log-probabilities, `"error"` or `"warn"`; the policy's by default.

    Raises:
        ExportError: If it cannot be exported, or the folder cannot be written; nothing has changed then.
    """
    if merge:
        return export_merged(model, folder, overwrite=overwrite, check=check)
    return export_adapter(model, folder, overwrite=overwrite)


def export_adapter(model: BaseAlgorithm | LLMPolicy, folder: str | Path, *, overwrite: bool = False) -> Export:
    """Write a PEFT adapter folder: adapter, tokenizer, model card.

    Raises:
        ExportError: As `export_policy`; and if the whole model was trained, so that there is no adapter.
    """
    policy, about = _about(model, Kind.ADAPTER)
    network = policy.lm.network
    if not isinstance(network, PeftModel):
        raise ExportError(
            "Expected a policy with a LoRA adapter; got one that trains the whole model (lora=None). "
            "Fix: pass merge=True (poad export --merge), which writes the model itself."
        )
    # "auto" would ask the hub whether the vocabulary has grown; it never does here.
    tensors = get_peft_model_state_dict(network, save_embedding_layers=False)
    # Layers that share a weight share an adapter; safetensors wants tensors of their own.
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in sorted(tensors.items())}
    with _new_folder(folder, about, overwrite) as scratch:
        save_file(tensors, scratch / _ADAPTER, metadata={"format": "pt"})
        written = load_file(scratch / _ADAPTER)
        _require_same(_digests(tensors), _digests(written))
        config = _adapter_config(network, about)
        (scratch / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", "utf-8")
        _write_rest(scratch, policy, about)
    return _export(folder, about, len(tensors))


def export_merged(
    model: BaseAlgorithm | LLMPolicy,
    folder: str | Path,
    *,
    overwrite: bool = False,
    check: Check | str | None = None,
) -> Export:
    """Write a model folder whose weights are those of the base model with the adapter merged in.

    The live model stays as it is: the adapter is merged into a copy in the CPU's memory, the only one at any time. A
    model without an adapter is written from where it is.

    Raises:
        ExportError: As `export_policy`; if the base model is quantised, or ties embeddings that were adapted; and if
            the written model gives other log-probabilities than the policy, unless `check` is `"warn"`.
    """
    policy, about = _about(model, Kind.MERGED)
    _require_mergeable(policy.lm.network)
    with _new_folder(folder, about, overwrite) as scratch:
        merged = _merged(policy.lm.network)
        kind, expected = type(merged), _digests(merged.state_dict())
        try:
            with no_progress_bars():
                merged.save_pretrained(scratch)
        except ValueError as error:  # of generation settings that contradict each other, above all
            raise ExportError(
                f"Expected a model that transformers can save; got {str(error)[:300]}. "
                "Fix: mend its generation_config.json, or export the adapter."
            ) from error
        del merged  # before it is loaded again
        with no_progress_bars():
            written = kind.from_pretrained(scratch, dtype="auto")
        _require_same(expected, _digests(written.state_dict()))
        _require_agreement(policy, written, Check(check or policy.check))
        del written
        _write_rest(scratch, policy, about)
    return _export(folder, about, len(expected))


# ---------------------------------------------------------------------- what is exported


def _about(model: BaseAlgorithm | LLMPolicy, kind: Kind) -> tuple[LLMPolicy, About]:
    """The policy, and what the model card says of it."""
    policy = getattr(model, "policy", None) if isinstance(model, BaseAlgorithm) else model
    if isinstance(policy, BADQPolicy):
        raise ExportError(
            "Expected a policy whose language model was trained; got one of BADQ, which trains Q-values beside it and "
            "leaves its weights as they were. Fix: export one of POAD, NTPO, TWOSOME, GLAM or ARCHER."
        )
    if not isinstance(policy, LLMPolicy):
        raise ExportError(
            f"Expected an LLMPolicy or an algorithm with one; got {type(model).__name__} with {type(policy).__name__}. "
            "Fix: pass the algorithm that was trained."
        )
    settings, source = policy._get_constructor_parameters(), policy.lm.source
    commit = getattr(policy.lm.base.config, "_commit_hash", None)
    folder = _local_folder(source.model, commit, kind)
    about = About(
        kind=kind,
        base=str(folder or source.name),
        is_local=folder is not None,
        # Where no revision was asked for, it is the commit whose weights were trained.
        revision=None if folder else source.revision or commit,
        fingerprint=policy.lm.fingerprint,
        dtype=str(policy.lm.base.dtype).removeprefix("torch."),
        prompt=policy.lm.prompter.template.to_dict(),
        end_token=(policy.lm.end_token, policy.lm.tokenizer.convert_ids_to_tokens(policy.lm.end_token)),
        action_sampling=settings["action_sampling"],
        candidate_normalization=settings["candidate_normalization"],
        drawn_by={name: settings[name] for name in ("temperature", "top_k", "top_p", "stop", "max_new_tokens")},
        algorithm=type(model).__name__ if isinstance(model, BaseAlgorithm) else None,
        num_timesteps=model.num_timesteps if isinstance(model, BaseAlgorithm) else None,
    )
    return policy, about


def _local_folder(model: str | ModelFactory, commit: str | None, kind: Kind) -> Path | None:
    """The base model's folder, absolute; None if its name is an id of the hub, or that of a function."""
    if not isinstance(model, str):
        if kind is Kind.MERGED:
            return None
        raise ExportError(
            "Expected a base model that others can load by its name; got one that a function makes. "
            "Fix: pass merge=True (poad export --merge), which writes the whole model."
        )
    folder = Path(model_path(model)).resolve()
    if folder.is_dir():  # transformers looks there first, too; a folder in its own cache has a commit
        return folder
    if commit is not None:
        return None
    raise ExportError(
        f"Expected the folder of the base model, {model!r}, in the working directory; there is no {folder}. "
        "Fix: export from the directory in which the policy was made."
    )


def _adapter_config(network: PeftModel, about: About) -> dict[str, Any]:
    """The adapter's settings as peft reads them; nothing in them depends on the process."""
    live = network.peft_config["default"]
    changed = {"base_model_name_or_path": about.base, "revision": about.revision, "inference_mode": True}
    return {name: _json(value) for name, value in {**live.to_dict(), **changed}.items()}


def _json(value: object) -> object:
    if isinstance(value, set):  # its order is another in every process
        return sorted(value)
    return value.value if isinstance(value, Enum) else value


def _require_mergeable(network: Any) -> None:  # noqa: ANN401 - a model of transformers or peft
    base = network.get_base_model() if isinstance(network, PeftModel) else network
    if is_quantized(base) or getattr(base.config, "quantization_config", None):
        raise ExportError(
            "Expected a base model with weights to merge into; got a quantised one, whose rounding would swallow "
            "the adapter. Fix: export the adapter, and merge it onto the model that is not quantised with "
            "peft.PeftModel.from_pretrained(base, folder).merge_and_unload()."
        )
    ends = (base.get_input_embeddings(), base.get_output_embeddings())
    is_tied = base.config.get_text_config().tie_word_embeddings
    if is_tied and any(isinstance(end, BaseTunerLayer | AuxiliaryTrainingWrapper) for end in ends):
        raise ExportError(
            "Expected an adapter beside the embeddings, which this model also uses as its head; got one on them. "
            "Merged into one it would change both. Fix: export the adapter."
        )


def _merged(network: Any) -> Any:  # noqa: ANN401 - a model of transformers or peft
    """A model of transformers with the policy's weights, in which nothing is the live model's that it may change."""
    if not isinstance(network, PeftModel):
        shallow = copy.copy(network)
        shallow.config = copy.deepcopy(network.config)  # saving notes the dtype in it
        return shallow
    try:
        return merged_copy(network)
    except (ValueError, RuntimeError) as error:
        raise ExportError(
            f"Expected an adapter that can be merged; got {str(error)[:300]}. "
            "Fix: if its weights are no longer finite, take an earlier checkpoint; else export the adapter."
        ) from error


def _require_agreement(policy: LLMPolicy, written: Any, check: Check) -> None:  # noqa: ANN401 - as above
    error = export_error(policy.lm, written)
    tolerance = EXPORT_TOLERANCE if is_exact(policy.lm.base) else ROUNDED_TOLERANCE
    if error < tolerance:
        return
    message = (
        f"Expected a merged model with the policy's log-probabilities within {tolerance}; those of "
        f"{policy.lm.base.config.model_type} differ by {error:.2g}. Fix: export the adapter, or pass check='warn' "
        "(poad export --merge --check warn)."
    )
    if check is Check.ERROR:
        raise ExportError(message)
    warnings.warn(message, RuntimeWarning, stacklevel=3)


# ---------------------------------------------------------------------- what is written


def _new_folder(folder: str | Path, about: About, overwrite: bool) -> AbstractContextManager[Path]:
    if Path(folder).resolve() == Path(about.base).resolve():
        raise ExportError(f"Expected another folder than that of the base model; got {folder}. Fix: choose another.")
    return new_folder(folder, overwrite=overwrite)


def _write_rest(scratch: Path, policy: LLMPolicy, about: About) -> None:
    """All but weights and settings."""
    policy.lm.tokenizer.save_pretrained(scratch)
    (scratch / "poad_prompt.json").write_text(json.dumps(about.prompt, indent=2) + "\n", "utf-8")
    (scratch / "README.md").write_text(model_card(about), "utf-8")
    write_manifest(scratch, about.to_dict())


def _digests(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Digest of each tensor, bit for bit, with its type and shape."""
    digests = {}
    for name, tensor in tensors.items():
        digest = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        digests[name] = digest.hexdigest()
    return digests


def _require_same(live: Mapping[str, str], written: Mapping[str, str]) -> None:
    wrong = sorted(name for name in {*live, *written} if live.get(name) != written.get(name))
    if wrong:
        raise ExportError(
            f"Expected to read back the weights that were written; {len(wrong)} of {len(live)} differ, first "
            f"{wrong[0]!r}. Fix: check the disk; what was there before is as it was."
        )


def _export(folder: str | Path, about: About, n_tensors: int) -> Export:
    final = Path(folder).resolve()
    n_bytes = sum(path.stat().st_size for path in final.rglob("*") if path.is_file())
    is_adapter = about.kind is Kind.ADAPTER
    return Export(final, n_tensors, n_bytes, about.two_lines(str(final)), about.is_local and is_adapter)
