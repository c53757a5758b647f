"""An algorithm with a tokenizer and the shapes of its model, but no weights: torch's meta device knows shapes only.

`POAD(OutlinePolicy, env, ...)` goes through all that `POAD("LLMPolicy", env, ...)` goes through, but for the weights.
It cannot act.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import Schedule
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from poad_sb3.common.policies import LLMPolicy
from poad_sb3.distributions import make_distribution
from poad_sb3.errors import ModelError
from poad_sb3.language_model import loading
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.language_model.lora import adapt
from poad_sb3.prompts import Prompter, prompt_template
from poad_sb3.settings import ModelSettings, SamplingSettings, split_settings
from poad_sb3.settings.model import CriticTrunk

__all__ = ["OutlineModel", "OutlinePolicy"]


class OutlineModel(LanguageModel):
    """A `LanguageModel` on torch's meta device: it tokenises, and has the shapes of the trained parameters.

    Args:
        settings: Settings of the model.
        device: Device where a quantised base would be.

    Raises:
        ModelError: If config or tokenizer cannot be loaded as asked, or the adapter does not fit.
        MissingExtraError: If the model is to be quantised and bitsandbytes is not installed.
    """

    def __init__(self, settings: ModelSettings, device: torch.device | str) -> None:
        nn.Module.__init__(self)
        self.max_tokens_per_forward = settings.max_tokens_per_forward
        self.critic_trunk = CriticTrunk(settings.critic_trunk)
        dtype = str(settings.dtype).removeprefix("torch.")
        self.source = loading.ModelSource(
            settings.model, settings.revision, dtype, settings.quantization, settings.attn_implementation, device
        )
        base, self.tokenizer = _outline(self.source)
        self.fingerprint = ""
        self.max_length = loading.context_length(base.config.get_text_config(), self.source.name)
        template = prompt_template(settings.prompt, self.tokenizer)
        self.prompter = Prompter(self.tokenizer, template, self.max_length)
        self.network = adapt(base, settings.lora)
        self.hidden_size, self.micro_batches = base.config.get_text_config().hidden_size, 1


class OutlinePolicy(LLMPolicy):
    """An `LLMPolicy` around an `OutlineModel`; its arguments are those of `LLMPolicy`."""

    @functools.wraps(LLMPolicy.__init__)  # type: ignore[misc]  # SB3 reads the names of arguments from the signature
    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        lr_schedule: Schedule,
        **settings: Any,
    ) -> None:
        BasePolicy.__init__(self, observation_space, action_space)
        device = settings.pop("device", "cpu")
        settings.pop("critic_lr_schedule", None)
        settings.pop("has_critic", None)
        settings.pop("micro_batches", None)
        of_model, of_sampling = split_settings(settings, ModelSettings, SamplingSettings)
        self.lm = OutlineModel(ModelSettings(**of_model), device)
        self.distribution = make_distribution(self.lm, SamplingSettings(**of_sampling))

    def to(self, *args: Any, **kwargs: Any) -> OutlinePolicy:
        """Stay on the meta device."""
        return self


def _outline(source: loading.ModelSource) -> tuple[Any, Any]:
    """Return a model without weights, and its tokenizer. From a hub only the config and the tokenizer are fetched.

    The same checks refuse a source as in `loading.load`. A function that makes a model is called as usual, and the
    weights are dropped.
    """
    loading.check_source(source)
    if not isinstance(source.model, str):
        base, tokenizer = loading.from_factory(source)
        return base.to("meta"), tokenizer
    loading.check_folder(source.model)
    where, both = loading.located(source)
    quantization = None if source.quantization is None else loading.quantization_config(source)
    implementation = {} if source.attn_implementation is None else {"attn_implementation": source.attn_implementation}
    try:
        with loading.no_progress_bars(), torch.device("meta"):
            both["revision"] = loading.pinned(where, source.revision)[0]
            loading.refuse_adapter(source, where, both["revision"])
            config = AutoConfig.from_pretrained(where, **both)
            tokenizer = AutoTokenizer.from_pretrained(where, **both)
            base = AutoModelForCausalLM.from_config(config, dtype=loading.DTYPES[source.dtype], **implementation)
    except ModelError:
        raise
    except Exception as error:  # of transformers, its file formats, the hub's client, as in loading
        raise loading.load_error(source, error) from error
    loading.require_end_token(tokenizer, source)
    if quantization is not None:
        base.config.quantization_config = quantization  # as a loaded model says it
    is_folder = Path(where).is_dir() and "gguf_file" not in both
    if is_folder and not any(Path(where).glob("*.safetensors")) and not any(Path(where).glob("*.bin")):
        raise ModelError(f"Expected weights in {where}; there are none. Fix: complete the folder.")
    return base, tokenizer
