"""Exports of a trained agent: a PEFT adapter, or a model with the adapter merged in, to load without this package.

folder = export_policy(model, "salad-adapter")  # its README.md has the Python that loads it
"""

from __future__ import annotations

import copy
import json
import secrets
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils.other import AuxiliaryTrainingWrapper
from safetensors import SafetensorError
from stable_baselines3.common.base_class import BaseAlgorithm
from transformers import GenerationConfig

from poad_sb3.badq.policy import BADQPolicy
from poad_sb3.common.policies import LLMPolicy
from poad_sb3.distributions.sampling_check import EXPORT_TOLERANCE, merged_copy
from poad_sb3.errors import ExportError
from poad_sb3.language_model import smollm2
from poad_sb3.language_model.gguf import is_gguf
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.language_model.loading import local_path, no_progress_bars
from poad_sb3.language_model.lora import is_quantized
from poad_sb3.settings.model import Check
from poad_sb3.settings.sampling import ActionSampling

__all__ = ["export_policy"]

_LONGEST = 300
"""Maximum number of characters of a library's error that are shown."""
_CARD = Path(__file__).with_name("model_card.md")


def export_policy(
    model: BaseAlgorithm | LLMPolicy,
    folder: str | Path,
    *,
    merge: bool = False,
) -> Path:
    """Write a policy's language model for use with transformers (and peft) alone; return its folder, absolute.

    The folder holds a PEFT adapter, or the weights of the base model with the adapter merged in; and the tokenizer, the
    template of prompts and a model card with the code that loads it. The live model stays as it is: merging is done in
    a copy in the CPU's memory, the only copy at any time. A model without an adapter is written without a copy.

    Args:
        model: Policy, or algorithm, whose name and steps are then in the model card.
        folder: Folder to create; an empty one may be there. It comes whole or not at all.
        merge: Whether to merge the adapter into the weights of the base model instead of writing the adapter.

    Raises:
        ExportError: If the policy cannot be exported, or the folder cannot be written or holds something.
            Without `merge`: if the whole model was trained, so that there is no adapter. With `merge`: if the base
            model is quantised, or ties embeddings that were adapted, or if the merged model gives other
            log-probabilities than the policy, unless the policy's `check` is `"warn"`.
    """
    policy = _policy_of(model)
    about, final = _about(model, policy, merge), Path(folder).resolve()
    with _new_folder(final) as scratch:
        if merge:
            _write_merged(policy, scratch)
        else:
            _write_adapter(policy.lm.network, scratch, about)
            _generation_config(policy).save_pretrained(scratch)
        _tokenizer(policy).save_pretrained(scratch)
        (scratch / "poad_prompt.json").write_text(json.dumps(about["prompt"], indent=2) + "\n", "utf-8")
        _model_card(about).save(scratch / "README.md")
    return final


@contextmanager
def _new_folder(final: Path) -> Iterator[Path]:
    """Yield a scratch folder that gets the name at the end; a killed process leaves it as `.NAME.XXXXXXXX.tmp`."""
    if final.is_file() or (final.is_dir() and any(final.iterdir())):
        raise ExportError(f"Expected a new or empty folder; {final} is something else. Fix: remove it or name another.")
    scratch = final.with_name(f".{final.name}.{secrets.token_hex(4)}.tmp")
    try:
        scratch.mkdir(parents=True)
        yield scratch
        for path in scratch.iterdir():
            path.chmod((scratch / "README.md").stat().st_mode)  # safetensors makes files for their owner alone
        if final.is_dir():
            final.rmdir()
        scratch.rename(final)
    except (OSError, SafetensorError) as error:
        raise ExportError(
            f"Expected to write the folder {final}; got {type(error).__name__}: {error}. "
            "Fix: make room or choose another folder."
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


# ---------------------------------------------------------------------- the agent


def _policy_of(model: BaseAlgorithm | LLMPolicy) -> LLMPolicy:
    policy = getattr(model, "policy", None) if isinstance(model, BaseAlgorithm) else model
    if isinstance(policy, BADQPolicy):
        raise ExportError(
            "Expected a policy whose language model was trained; got one of BADQ, which trains Q-values beside it and "
            "leaves its weights as they were. Fix: export an agent of an on-policy method, such as POAD."
        )
    if not isinstance(policy, LLMPolicy):
        raise ExportError(
            f"Expected an LLMPolicy or an algorithm with one; got {type(model).__name__} with {type(policy).__name__}. "
            "Fix: pass the algorithm that was trained."
        )
    return policy


def _about(model: BaseAlgorithm | LLMPolicy, policy: LLMPolicy, merge: bool) -> dict[str, Any]:
    """Return the facts of the model card."""
    lm, settings = policy.lm, policy._get_constructor_parameters()
    commit = getattr(lm.base.config, "_commit_hash", None)
    folder = _base_folder(lm.source.model, commit, merge)
    # A merged model needs no base: only its folder's name is kept, as the path can contain a user name.
    base = lm.source.name if folder is None or merge else folder.as_posix()
    if folder is not None and Path(base).is_dir() and merge:
        base = folder.name
    return {
        "kind": "merged" if merge else "adapter",
        "base": base,
        "is_local": folder is not None,
        "weights": smollm2.DESCRIPTION if lm.source.name == smollm2.NAME else None,
        # Without a given revision, it is the commit whose weights were trained.
        "revision": None if folder else lm.source.revision or commit,
        "fingerprint": lm.fingerprint,
        "dtype": str(lm.base.dtype).removeprefix("torch."),
        "prompt": lm.prompter.template.to_dict(),
        "end_token": (lm.end_token, lm.tokenizer.convert_ids_to_tokens(lm.end_token)),
        "action_sampling": settings["action_sampling"],
        "candidate_normalization": settings["candidate_normalization"],
        "drawn_by": {
            "temperature": float(settings["temperature"]),
            **{name: settings[name] for name in ("top_k", "top_p", "stop", "max_new_tokens")},
            **{name: settings[name] for name in ("max_thought_tokens", "thought_marks")},
        },
        "algorithm": type(model).__name__ if isinstance(model, BaseAlgorithm) else None,
        "num_timesteps": model.num_timesteps if isinstance(model, BaseAlgorithm) else None,
    }


def _base_folder(model: Any, commit: str | None, merge: bool) -> Path | None:
    """Return the base model's folder, absolute; None if its name is an id of the hub, or that of a function."""
    if not isinstance(model, str):
        if merge:
            return None
        raise ExportError(
            "Expected a base model that others can load by its name; got one that a function makes. "
            "Fix: pass merge=True (poad export --merge), which writes the whole model."
        )
    folder = Path(local_path(model)).resolve()
    if is_gguf(str(folder)) and not merge:
        raise ExportError(
            f"Expected a base model that peft can load by its name; got {folder.name}, a GGUF file. "
            "Fix: pass merge=True (poad export --merge), which writes the whole model."
        )
    if folder.exists():  # transformers looks there first, too; a folder in its own cache has a commit
        return folder
    if commit is not None:
        return None
    raise ExportError(
        f"Expected the folder of the base model, {model!r}, in the working directory; there is no {folder}. "
        "Fix: export from the directory in which the policy was made."
    )


def _model_card(about: Mapping[str, Any]) -> ModelCard:
    is_adapter = about["kind"] == "adapter"
    data = ModelCardData(
        library_name="peft" if is_adapter else "transformers",
        pipeline_tag="text-generation",
        base_model=None if about["is_local"] else about["base"],  # a hub takes ids only
        tags=[*(["lora"] if is_adapter else []), "reinforcement-learning", "poad"],
    )
    card: ModelCard = ModelCard.from_template(data, template_path=str(_CARD), **about)
    return card


def _generation_config(policy: LLMPolicy) -> GenerationConfig:
    """Return settings for `generate` to write actions as the policy does; the base model's own may differ."""
    lm, settings = policy.lm, policy._get_constructor_parameters()
    base = getattr(lm.base, "generation_config", None) or GenerationConfig()
    pad = lm.tokenizer.pad_token_id if base.pad_token_id is None else base.pad_token_id
    # The temperature among listed actions suits no free text.
    thinks = settings["action_sampling"] == ActionSampling.THINK
    is_free = thinks or settings["action_sampling"] == ActionSampling.FREE
    return GenerationConfig(
        do_sample=True,
        temperature=float(settings["temperature"]) if is_free else 1.0,
        **{name: settings[name] for name in ("top_k", "top_p")},
        max_new_tokens=settings["max_new_tokens"] + (settings["max_thought_tokens"] if thinks else 0),
        bos_token_id=base.bos_token_id,
        eos_token_id=sorted(lm.prompter.end_tokens),
        pad_token_id=pad,
    )


def _tokenizer(policy: LLMPolicy) -> Any:
    """Return the tokenizer, with the chat template that prompts were made by."""
    tokenizer, used = policy.lm.tokenizer, policy.lm.prompter.layout.changed_template
    if used is None:
        return tokenizer
    tokenizer = copy.copy(tokenizer)
    tokenizer.chat_template = used
    return tokenizer


# ---------------------------------------------------------------------- weights


def _write_adapter(network: Any, folder: Path, about: Mapping[str, Any]) -> None:
    """Write the adapter as peft does, with the base model that it belongs to."""
    if not isinstance(network, PeftModel):
        raise ExportError(
            "Expected a policy with a LoRA adapter; got one that trains the whole model (lora=None). "
            "Fix: pass merge=True (poad export --merge), which writes the model itself."
        )
    # "auto" would ask the hub whether the vocabulary has grown; it never does here.
    network.save_pretrained(str(folder), save_embedding_layers=False)
    config = copy.copy(network.peft_config["default"])
    config.base_model_name_or_path, config.revision, config.inference_mode = about["base"], about["revision"], True
    for name, value in vars(config).items():
        if isinstance(value, set):  # its order is another in every process
            setattr(config, name, sorted(value))
    config.save_pretrained(str(folder))


def _write_merged(policy: LLMPolicy, folder: Path) -> None:
    """Write the merged model as transformers does."""
    merged, difference = _merged(policy.lm)
    if difference >= EXPORT_TOLERANCE:
        message = (
            f"Expected a merged model with the policy's log-probabilities within {EXPORT_TOLERANCE}; those of "
            f"{policy.lm.base.config.model_type} differ by {difference:.2g}. Fix: export the adapter."
        )
        if policy.check is Check.ERROR:
            raise ExportError(message)
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    merged.generation_config = _generation_config(policy)
    with no_progress_bars():
        merged.save_pretrained(folder)


def _merged(lm: LanguageModel) -> tuple[Any, float]:
    """Return a model of transformers with the policy's weights in the base's number format, and the error of merging.

    It shares no mutable state with the live model.
    """
    network = lm.network
    base = network.get_base_model() if isinstance(network, PeftModel) else network
    if is_quantized(base) or getattr(base.config, "quantization_config", None):
        raise ExportError(
            "Expected a base model with weights to merge into; got a quantised one, whose rounding would swallow "
            "the adapter. Fix: export the adapter, and merge it onto the model that is not quantised with "
            "peft.PeftModel.from_pretrained(base, folder).merge_and_unload()."
        )
    if base is network:
        shallow = copy.copy(network)
        shallow.config = copy.deepcopy(network.config)  # saving notes the dtype in it
        return shallow, 0.0
    ends = (base.get_input_embeddings(), base.get_output_embeddings())
    is_tied = base.config.get_text_config().tie_word_embeddings
    if is_tied and any(isinstance(end, BaseTunerLayer | AuxiliaryTrainingWrapper) for end in ends):
        raise ExportError(
            "Expected an adapter beside the embeddings, which this model also uses as its head; got one on them. "
            "Merged into one it would change both. Fix: export the adapter."
        )
    try:
        merged, difference = merged_copy(lm)
    except (ValueError, RuntimeError) as error:
        raise ExportError(
            f"Expected an adapter that can be merged; got {str(error)[:_LONGEST]}. "
            "Fix: if its weights are no longer finite, take an earlier checkpoint; else export the adapter."
        ) from error
    # The names of embeddings with trainable tokens change at merging; they have the base's format like the rest.
    dtypes = {name.replace(".base_layer.", "."): tensor.dtype for name, tensor in base.state_dict().items()}
    for name, tensor in merged.state_dict(keep_vars=True).items():
        if tensor.is_floating_point():
            tensor.data = tensor.data.to(dtypes.get(name, base.dtype))
    return merged, difference
