"""The model card of an export: what it is, how to load it, what it is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from huggingface_hub import ModelCard, ModelCardData


def model_card(about: Mapping[str, Any]) -> ModelCard:
    """Return the model card; the same for the same export.

    Args:
        about: The facts of the manifest: kind, base model, prompt, way to act, algorithm.
    """
    is_adapter = about["kind"] == "adapter"
    data = ModelCardData(
        library_name="peft" if is_adapter else "transformers",
        pipeline_tag="text-generation",
        base_model=None if about["is_local"] else about["base"],  # a hub takes ids only
        tags=[*(["lora"] if is_adapter else []), "reinforcement-learning", "poad"],
    )
    acting = _ACTING[about["action_sampling"]]
    text = _CARD.format(
        opening=_OPENING[about["kind"]],
        table=_table(about),
        code=_code(about),
        prompt=_PROMPTS[about["prompt"]["kind"]] + _history(about),
        acting=acting.format(normalization=about["candidate_normalization"], **about["drawn_by"]),
    )
    return ModelCard(f"---\n{data.to_yaml()}\n---\n\n{text}")


def _history(about: Mapping[str, Any]) -> str:
    """Say how earlier steps are shown, if they are."""
    n = about["prompt"].get("history", 0)
    end = f" An action ends with token {about['end_token'][0]}, `{about['end_token'][1]}`."
    if not n:
        return end
    return (
        f" The latest {n} steps of an episode come first, as lines of observation and action or as earlier turns; "
        'where some do not fit, "(k earlier steps are left out.)" stands in the middle.' + end
    )


def _table(about: Mapping[str, Any]) -> str:
    steps = "" if about["num_timesteps"] is None else f", {about['num_timesteps']} environment steps"
    where = ", a folder of the machine that trained it" if about["is_local"] else ""
    rows = {
        "Base model": f"`{about['base']}`{where}",
        "Revision": f"`{about['revision']}`" if about["revision"] else "none",
        "Fingerprint of the base": f"`{about['fingerprint']}`",
        "Weights": about["dtype"],
        "Trained by": f"{about['algorithm'] or 'an algorithm'} of poad_sb3{steps}",
        "Licence": "that of the base model, unless its author says otherwise",
    }
    return "\n".join(f"| {name} | {value} |" for name, value in rows.items())


def _code(about: Mapping[str, Any]) -> str:
    here = '"path/of/this/folder"'
    tokenizer = f"tokenizer = AutoTokenizer.from_pretrained({here})"
    imports = "from transformers import AutoModelForCausalLM, AutoTokenizer"
    if about["kind"] == "merged":
        return f"{imports}\n\nmodel = AutoModelForCausalLM.from_pretrained({here})\n{tokenizer}"
    revision = f', revision="{about["revision"]}"' if about["revision"] else ""
    base = f'base = AutoModelForCausalLM.from_pretrained("{about["base"]}"{revision}, dtype="{about["dtype"]}")'
    model = f"model = PeftModel.from_pretrained(base, {here})"
    return f"from peft import PeftModel\n{imports}\n\n{base}\n{model}\n{tokenizer}"


_OPENING = {
    "adapter": """# A LoRA adapter for a language-model agent

A PEFT adapter, no whole model. It belongs onto the base model below and no other; what it makes of others is noise.""",
    "merged": """# A language model trained as an agent

A whole model: the weights of the base model below, changed by training. It needs no adapter.""",
}
_PROMPTS = {
    "completion": "A prompt is the start token, if the tokenizer has one of its own, and the text of the observation; "
    "an action is the separator (a space), its text and the end token.",
    "chat": "A prompt is `tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, "
    "**arguments)`, encoded with `add_special_tokens=False`: the instructions (`system` in `poad_prompt.json`, before "
    "the first message where the template knows no such role), then the observation as a message of the user; "
    "`arguments` are in that file too. An action is the assistant's answer, up to the token that ends a turn.",
    "fim": "A prompt is what stands before and behind a hole, with the tokenizer's marks for it; an action fills it.",
}
_ACTING = {
    "trie": "The probability of an admissible action is the product of those of its tokens, each among the tokens "
    "that continue some admissible action.",
    "candidates": "The probability of an admissible action is a softmax over the log-probabilities of whole actions, "
    "each divided by the action's length (`{normalization}`).",
    "free": "Actions are sampled token by token until an end token: temperature {temperature}, top_k {top_k} (0: all), "
    "top_p {top_p}, stop texts {stop}, at most {max_new_tokens} tokens.",
}
_CARD = """{opening}

| | |
|---|---|
{table}

## Load it

```python
{code}
```

## What it does

It was trained by reinforcement learning to act in a text environment: given an observation, it says what to do.
{prompt} Prompt and action are tokenised apart and their ids joined. The template is in `poad_prompt.json`.
{acting}

## What it is not

It is no assistant and follows no instructions. Nothing is known of it outside the environment that it was trained in.
A program that executes what it says should check it first.
"""
