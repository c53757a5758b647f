"""An algorithm whose model has a shape and a tokenizer, but no weights: what a training would be, made in no time.

`POAD(OutlinePolicy, env, ...)` goes through all that `POAD("LLMPolicy", env, ...)` goes through, but for the weights.
It cannot act.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import Schedule
from torch import nn

from poad_sb3.choosers import make_chooser, member
from poad_sb3.generation import Limits
from poad_sb3.lm import CriticTrunk, LanguageModel
from poad_sb3.models.adapters import adapt
from poad_sb3.models.outline import outline
from poad_sb3.models.sources import ModelSource, context_length
from poad_sb3.policies import MODEL_SETTINGS, LLMPolicy
from poad_sb3.prompts import Prompter, prompt_template
from poad_sb3.sampling import TokenSampling

__all__ = ["OutlineModel", "OutlinePolicy"]


class OutlineModel(LanguageModel):
    """A `LanguageModel` on torch's meta device: it tokenises, and knows what is trained of it.

    Args:
        settings: Arguments of `LanguageModel`, all of them.
        device: Where a quantised base would be.

    Raises:
        ModelError: If config or tokenizer cannot be loaded as asked, or the adapter does not fit.
    """

    def __init__(self, settings: dict[str, Any], device: torch.device | str) -> None:
        nn.Module.__init__(self)
        self.max_tokens_per_forward = settings["max_tokens_per_forward"]
        self.critic_trunk = member(CriticTrunk, "critic_trunk", str(settings["critic_trunk"]))
        names = ("model", "revision", "dtype", "quantization", "attn_implementation")
        source = {name: settings[name] for name in names}
        source["dtype"] = str(source["dtype"]).removeprefix("torch.")
        self.source = ModelSource(**source, device=device)
        base, self.tokenizer = outline(self.source)
        self.fingerprint = ""
        self.max_length = context_length(base.config.get_text_config(), self.source.name)
        template = prompt_template(settings["prompt"], self.tokenizer)
        self.prompter = Prompter(self.tokenizer, template, self.max_length)
        self.network = adapt(base, settings["lora"])
        self.hidden_size = base.config.get_text_config().hidden_size


class OutlinePolicy(LLMPolicy):
    """An `LLMPolicy` around an `OutlineModel`; its arguments are those of `LLMPolicy`."""

    @functools.wraps(LLMPolicy.__init__)  # type: ignore[misc]  # SB3 reads the names of arguments from the signature
    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        lr_schedule: Schedule,
        **settings: Any,  # noqa: ANN401 - of LLMPolicy
    ) -> None:
        BasePolicy.__init__(self, observation_space, action_space)
        defaults = {name: one.default for name, one in inspect.signature(LLMPolicy).parameters.items()}
        settings = {**defaults, **settings}
        of_model = {name: settings[name] for name in (*MODEL_SETTINGS, "critic_trunk")}
        self.lm = OutlineModel(of_model, settings["device"])
        self.chooser = make_chooser(
            self.lm,
            settings["action_sampling"],
            settings["candidate_normalization"],
            paper_mode=settings["paper_mode"],
            limits=Limits(settings["max_new_tokens"], tuple(settings["stop"])),
            drawn_by=TokenSampling(settings["temperature"], settings["top_k"], settings["top_p"]),
        )

    def to(self, *args: Any, **kwargs: Any) -> OutlinePolicy:  # noqa: ANN401 - of nn.Module
        """Stay where it is: there is nothing to move."""
        return self
