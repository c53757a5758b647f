"""Conversion of a prompt setting (a kind, settings by name, or a template) to a template."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from lang_envs.text import nearest
from poad_sb3.errors import ModelError
from poad_sb3.prompts.templates import ChatPrompt, CompletionPrompt, ContextSpec, FillInMiddlePrompt, PromptTemplate

PromptSpec = str | Mapping[str, Any] | PromptTemplate
"""Prompt setting: `"auto"`, a kind, a mapping with a kind and settings, or a template."""

_KINDS: Mapping[str, type[PromptTemplate]] = {
    kind.kind: kind for kind in (CompletionPrompt, ChatPrompt, FillInMiddlePrompt)
}


def prompt_template(spec: PromptSpec, tokenizer: Any) -> PromptTemplate:
    """Return the template of a prompt setting.

    Args:
        spec: Prompt setting, see `PromptSpec`; `"auto"` is `"chat"` where the tokenizer has a chat template, else
            `"completion"`.
        tokenizer: Tokenizer of the model.

    Raises:
        ModelError: If there is no such template.
    """
    if isinstance(spec, Mapping) and spec.get("kind", "auto") == "auto":
        return template_of({**spec, "kind": _own_kind(tokenizer)})
    return template_of(_own_kind(tokenizer) if spec == "auto" else spec)


def _own_kind(tokenizer: Any) -> str:
    return "chat" if getattr(tokenizer, "chat_template", None) else "completion"


def template_of(spec: PromptSpec) -> PromptTemplate:
    """Return the template of a kind, or of the output of `PromptTemplate.to_dict`.

    Raises:
        ModelError: If there is no such kind, or the kind has no such setting.
    """
    if isinstance(spec, PromptTemplate):
        return spec
    settings: dict[str, Any] = dict(spec) if isinstance(spec, Mapping) else {"kind": spec}
    name = settings.pop("kind", None)
    if not isinstance(name, str) or name not in _KINDS:
        raise ModelError(f"Expected prompt to be 'auto' or one of {sorted(_KINDS)}; got {name!r}.")
    names = [field.name for field in fields(_KINDS[name])]
    for given in settings:
        if given not in names:
            raise ModelError(f"Expected settings of the {name} prompt; got {given!r}. {nearest(str(given), names)}")
    kind: Any = _KINDS[name]
    template: PromptTemplate = kind(
        **{key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
    )
    return template


def context_spec_of(spec: PromptSpec) -> ContextSpec:
    """Return the fields that the template needs beside the observation; no tokenizer is loaded."""
    if isinstance(spec, Mapping) and spec.get("kind", "auto") == "auto":
        return ContextSpec(history=spec.get("history", 0))
    return ContextSpec() if spec == "auto" else template_of(spec).context_spec
