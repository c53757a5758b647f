"""Exports: their use in plain peft and transformers, no side effects on the policy, and failures."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from peft import PeftModel
from poad_runs import Run
from safetensors.torch import load_file
from tiny_architectures import MODELS, save
from toy import Collector, LampEnv, children_after, everything, make_agent, randomise, save_small_model, weights_of
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from zoo import ZOO
from zoo import save as save_zoo

from poad_sb3 import BADQ, POAD
from poad_sb3.distributions import sampling_check
from poad_sb3.errors import ExportError
from poad_sb3.export.export import export_policy
from poad_sb3.language_model.packing import TokenRow
from poad_sb3.pocket import POCKET_FOLDER
from poad_sb3.prompts import Question

export_adapter = export_policy
export_merged = partial(export_policy, merge=True)
TEXT = "The lamp is green. You have 2 moves left."
ACTIONS = ["press the red button", "press the green button", "press the blue button", "press the red lever", "wait"]
LAMP_WORDS = "<unk> The lamp is red green blue . You have 1 2 3 moves left press the button lever wait <end>"
TRAINING: dict[str, Any] = {"n_steps": 16, "batch_size": 8, "n_epochs": 2, "learning_rate": 5e-3}
SMALL = {"critic_arch": (8,)}
ADAPTER_FILES = {
    "README.md", "adapter_config.json", "adapter_model.safetensors", "generation_config.json",
    "poad_prompt.json", "tokenizer.json", "tokenizer_config.json",
}  # fmt: skip
MERGED_FILES = {
    "README.md", "config.json", "generation_config.json", "model.safetensors", "poad_prompt.json",
    "tokenizer.json",
    "tokenizer_config.json",
}  # fmt: skip


@pytest.fixture(scope="module")
def trained() -> POAD:
    """An agent after a few updates. Leave it as it is."""
    return make_agent(**TRAINING).learn(64)


@pytest.fixture(scope="module")
def small_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model in a folder, with a head of its own. Leave it as it is."""
    return Path(save_small_model(tmp_path_factory.mktemp("small") / "base", words=LAMP_WORDS.split(), scale=1.5))


def untrained(folder: Path | str, **policy: Any) -> POAD:
    """An agent on a model from a folder, whose adapter does something."""
    agent = make_agent(Collector, policy_kwargs={**SMALL, "model": str(folder), **policy})
    randomise(agent.policy, scale=0.5)
    return agent


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def plain_probabilities(model: Any, folder: Path) -> dict[str, float]:
    """Probability of every action, by whole sequences through a model and a tokenizer independent of this package."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompt = tokenizer.encode(TEXT, add_special_tokens=False, split_special_tokens=True)
    if tokenizer.bos_token_id is not None:
        prompt = [tokenizer.bos_token_id, *prompt]
    sequences = [
        (*tokenizer.encode(f" {action}", add_special_tokens=False, split_special_tokens=True), tokenizer.eos_token_id)
        for action in ACTIONS
    ]
    probabilities = {}
    for action, ids in zip(ACTIONS, sequences, strict=True):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([[*prompt, *ids]]), use_cache=False).logits[0].float()
        total = 0.0
        for position, token in enumerate(ids):
            children = children_after(ids[:position], sequences)
            row = torch.log_softmax(logits[len(prompt) - 1 + position], -1)[children]
            total += float((row - torch.logsumexp(row, 0))[children.index(token)])
        probabilities[action] = torch.tensor(total).exp().item()
    return probabilities


def loaded(exported: Path) -> Any:
    """The model, by the lines of the model card."""
    (code,) = re.findall(r"```python\n(.*?)```", (exported / "README.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code.replace("path/of/this/folder", str(exported)), names)
    return names["model"].eval()


def assert_same(ours: Mapping[str, float], theirs: Mapping[str, float], within: float) -> None:
    assert ours.keys() == theirs.keys()
    assert max(abs(ours[action] - theirs[action]) for action in ours) < within
    assert max(ours.values()) < 0.99
    assert sum(ours.values()) == pytest.approx(1, abs=1e-5)


# ---------------------------------------------------------------------- use by others


def test_an_adapter_acts_the_same_in_plain_peft(trained: POAD, tmp_path: Path) -> None:
    exported = export_adapter(trained, tmp_path / "deep" / "adapter")
    ours = trained.policy.action_probabilities(TEXT, ACTIONS)
    base = AutoModelForCausalLM.from_pretrained(POCKET_FOLDER)
    before = plain_probabilities(base, exported)
    assert_same(ours, plain_probabilities(PeftModel.from_pretrained(base, exported).eval(), exported), 1e-5)
    assert_same(ours, plain_probabilities(loaded(exported), exported), 1e-5)
    assert max(abs(ours[action] - before[action]) for action in ours) > 0.02, "the training has changed something"
    assert set(contents(exported)) == ADAPTER_FILES
    config = json.loads((exported / "adapter_config.json").read_text())
    assert (config["base_model_name_or_path"], config["revision"]) == (str(POCKET_FOLDER), None)
    assert (config["inference_mode"], config["target_modules"]) == (True, ["q_proj", "v_proj"])


def test_a_merged_model_acts_the_same_in_plain_transformers(trained: POAD, tmp_path: Path) -> None:
    exported = export_merged(trained, tmp_path / "merged")
    ours = trained.policy.action_probabilities(TEXT, ACTIONS)
    theirs = loaded(exported)
    assert_same(ours, plain_probabilities(theirs, exported), 1e-4)
    assert set(contents(exported)) == MERGED_FILES
    assert theirs.get_input_embeddings().weight is theirs.get_output_embeddings().weight, "tied as before"
    assert "lm_head.weight" not in load_file(exported / "model.safetensors")
    assert theirs.dtype == torch.float32
    assert not any(str(POCKET_FOLDER).encode() in data for data in contents(exported).values()), "of its base"
    assert trained.policy.lm.fingerprint in (exported / "README.md").read_text()


@pytest.mark.parametrize("merge", [False, True])
def test_a_model_of_a_relative_folder(
    merge: bool, small_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small_folder.parent)
    agent = make_agent(**TRAINING, policy_kwargs={**SMALL, "model": "base"}).learn(32)
    exported = export_policy(agent, tmp_path / "out", merge=merge)
    monkeypatch.chdir(tmp_path)
    ours = agent.policy.action_probabilities(TEXT, ACTIONS)
    assert_same(ours, plain_probabilities(loaded(exported), exported), 1e-4 if merge else 1e-5)
    with pytest.raises(ExportError, match=r"Expected the folder of the base model, 'base'.*Fix: export from the dir"):
        export_policy(agent, "elsewhere", merge=merge)


@pytest.mark.parametrize(("name", "merge"), [("gpt2", True), ("gemma2, window 8, cap 3", False)])
def test_other_architectures(name: str, merge: bool, tmp_path: Path) -> None:
    kind, settings, _ = MODELS[name]
    agent = untrained(tmp_path / "base", lora=save(tmp_path / "base", kind, settings))
    exported = export_policy(agent, tmp_path / "out", merge=merge)
    ours = agent.policy.action_probabilities(TEXT, ACTIONS)
    assert_same(ours, plain_probabilities(loaded(exported), exported), 1e-4)


@pytest.mark.parametrize(
    ("lora", "merge"),
    [
        ({"use_dora": True}, True),
        ({"modules_to_save": ["lm_head"]}, True),
        ({"target_modules": ["embed_tokens", "q_proj"]}, False),
    ],
    ids=["dora", "head", "embeddings"],
)
def test_other_adapters(lora: dict[str, Any], merge: bool, small_folder: Path, tmp_path: Path) -> None:
    agent = untrained(small_folder, lora=lora)
    exported = export_policy(agent, tmp_path / "out", merge=merge)
    ours = agent.policy.action_probabilities(TEXT, ACTIONS)
    assert_same(ours, plain_probabilities(loaded(exported), exported), 1e-4)


def test_full_fine_tuning_is_exported_merged(small_folder: Path, tmp_path: Path) -> None:
    agent = untrained(small_folder)
    network = agent.policy.lm.network = agent.policy.lm.network.merge_and_unload()
    network.config.architectures = ["AsItWas"]
    with pytest.raises(ExportError, match=r"Expected a policy with a LoRA adapter.*Fix: pass merge=True \(poad export"):
        export_adapter(agent, tmp_path / "adapter")
    exported = export_merged(agent, tmp_path / "whole")
    theirs = loaded(exported).state_dict()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in network.state_dict().items())
    assert network.config.architectures == ["AsItWas"], "the live model, its config included"
    assert agent.policy.lm.network is network


@pytest.mark.parametrize(
    "lora",
    [
        {"target_modules": "all-linear"},
        {"target_modules": ["q_proj"], "trainable_token_indices": [1, 2]},
    ],
    ids=["every layer", "tokens"],
)
def test_merges_a_base_in_bfloat16_without_its_rounding(tmp_path: Path, lora: dict[str, Any]) -> None:
    """With large weights, activations in bfloat16 round apart by more than any bound; the merge is right."""
    folder = save_small_model(tmp_path / "base", words=LAMP_WORDS.split(), scale=12)
    agent = untrained(folder, dtype="bfloat16", lora=lora)
    randomise(agent.policy, scale=5)
    agent.policy.lm.base.config._attn_implementation = "flash_attention_2"  # which needs a GPU
    theirs = loaded(export_merged(agent, tmp_path / "out"))
    expected = agent.policy.lm.network.float().merge_and_unload().state_dict()
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(tensor, expected[name].bfloat16()), name
    stored = load_file(tmp_path / "out" / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.bfloat16}


def test_a_base_of_the_hub_is_named_with_what_was_loaded(small_folder: Path, tmp_path: Path) -> None:
    agent = untrained(small_folder)
    agent.policy.lm.network.config._commit_hash = "c0ffee"
    for revision, name in ((None, "c0ffee"), ("v1", "v1")):
        agent.policy.lm.source = replace(agent.policy.lm.source, model="user/base", revision=revision)
        exported = export_adapter(agent, tmp_path / name)
        config = json.loads((exported / "adapter_config.json").read_text())
        assert (config["base_model_name_or_path"], config["revision"]) == ("user/base", name)


@pytest.mark.parametrize("merge", [False, True])
def test_generate_writes_as_the_policy_does(merge: bool, small_folder: Path, tmp_path: Path) -> None:
    """Settings that instruct models come with would write other actions, also without sampling."""
    kwargs = {**SMALL, "model": str(small_folder)}
    agent = make_agent(policy_kwargs=kwargs, action_sampling="free", temperature=0.8, top_k=3, max_new_tokens=9)
    lm = agent.policy.lm
    lm.base.generation_config.update(repetition_penalty=5.0, top_p=0.1, eos_token_id=3)
    exported = export_policy(agent, tmp_path / "out", merge=merge)
    config = GenerationConfig.from_pretrained(exported)
    assert (config.do_sample, config.temperature, config.top_k, config.top_p) == (True, 0.8, 3, 1.0)
    assert (config.eos_token_id, config.max_new_tokens) == (sorted(lm.prompter.end_tokens), 9)
    prompt = torch.tensor([lm.prompt_ids(TEXT)])
    (greedy,) = agent.policy.act([Question(TEXT, None)], deterministic=True)
    written = loaded(exported).generate(input_ids=prompt, do_sample=False, top_k=None, temperature=1.0)
    assert lm.prompter.action_text(tuple(written[0, prompt.shape[1] :].tolist())) == greedy.text


def test_the_card_tells_of_thoughts(tmp_path: Path) -> None:
    agent = make_agent(policy_kwargs=SMALL, action_sampling="think", max_thought_tokens=7, temperature=0.5)
    exported = export_policy(agent, tmp_path / "out", merge=True)
    card = (exported / "README.md").read_text()
    assert "`<think>` behind the prompt, then at most 7 tokens (temperature 0.5" in card
    assert "The probability of an admissible action is the product" in card
    assert "0.5. Where any text is an action, actions are sampled token by token" in card
    generation = GenerationConfig.from_pretrained(exported)
    assert (generation.temperature, generation.max_new_tokens) == (0.5, 128 + 7)


@pytest.mark.parametrize(("name", "lora"), [("qwen2", {}), ("gemma2", None)])
def test_a_chat_model_is_exported_with_its_chat(tmp_path: Path, name: str, lora: dict[str, Any] | None) -> None:
    """By the tokenizer's own template, and merged or whole: the loaded model gives the same text."""
    save_zoo(tmp_path / name, name)
    kwargs = {**SMALL, "model": str(tmp_path / name), "lora": lora}
    agent = make_agent(policy_kwargs=kwargs, learning_rate=1e-3, n_steps=8, batch_size=8).learn(8)
    lm = agent.policy.lm
    exported = export_policy(agent, tmp_path / "out", merge=lora is None)
    model, tokenizer = loaded(exported), AutoTokenizer.from_pretrained(exported)
    template = json.loads((exported / "poad_prompt.json").read_text())
    system = [{"role": "system", "content": template["system"]}] if ZOO[name].supports_system else []
    first = TEXT if system else f"{template['system']}\n\n{TEXT}"
    text = tokenizer.apply_chat_template(
        [*system, {"role": "user", "content": first}], tokenize=False, add_generation_prompt=True
    )
    prompt = tokenizer.encode(text, add_special_tokens=False)
    assert tuple(prompt) == lm.prompt_ids(TEXT)
    ids = lm.action_ids(ACTIONS[0])
    with torch.no_grad():
        theirs = model(input_ids=torch.tensor([[*prompt, *ids]]), use_cache=False).logits[0, len(prompt) - 1 : -1]
        row = TokenRow((*prompt, *ids[:-1]), None, tuple(range(len(prompt) - 1, len(prompt) + len(ids) - 1)))
        ours = lm.vocabulary_logits(lm.hidden_states([row]))
    torch.testing.assert_close(ours.log_softmax(-1), theirs.log_softmax(-1), rtol=0, atol=1e-5)


# ---------------------------------------------------------------------- the live model


@pytest.mark.matrix
def test_training_goes_on_as_if_nothing_had_been_exported(tmp_path: Path) -> None:
    agents = [make_agent(**TRAINING).learn(32) for _ in range(2)]
    before, weights = agents[0].policy.action_probabilities(TEXT, ACTIONS), weights_of(agents[0].policy)
    config = agents[0].policy.lm.network.peft_config["default"].to_dict()
    for merge in (False, True):
        export_policy(agents[0], tmp_path / str(merge), merge=merge)
        agents[0].policy._predict_scores.clear()
        assert agents[0].policy.action_probabilities(TEXT, ACTIONS) == before
        after = weights_of(agents[0].policy)
        assert weights.keys() == after.keys()
        assert all(torch.equal(weights[name], after[name]) for name in weights)
        assert agents[0].policy.lm.network.peft_config["default"].to_dict() == config
    for agent in agents:
        agent.learn(32, reset_num_timesteps=False)
    assert everything(agents[0]) == everything(agents[1])
    assert agents[0].policy.action_probabilities(TEXT, ACTIONS) != before


# ---------------------------------------------------------------------- refusals


def test_refuses_to_export_badq(tmp_path: Path) -> None:
    agent = BADQ("LLMPolicy", LampEnv(), seed=0, policy_kwargs=SMALL)
    for source in (agent, agent.policy):
        with pytest.raises(
            ExportError, match=r"got one of BADQ, which trains Q-values.*Fix: export an agent of an on-policy"
        ):
            export_policy(source, tmp_path / "out", merge=True)
    assert not list(tmp_path.iterdir())


def test_quantised_bases_are_not_merged_into(small_folder: Path, tmp_path: Path) -> None:
    agent = untrained(small_folder)
    base = agent.policy.lm.network.get_base_model()
    base.hf_quantizer = object()
    with pytest.raises(ExportError, match=r"got a quantised one.*Fix: export the adapter.*merge_and_unload\(\)"):
        export_merged(agent, tmp_path / "out")
    export_adapter(agent, tmp_path / "adapter")
    del base.hf_quantizer
    base.config.quantization_config = {"quant_method": "bitsandbytes"}
    with pytest.raises(ExportError, match="got a quantised one"):
        export_merged(agent, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.filterwarnings("ignore:.*tie_word_embeddings.*", "ignore:.*lora_bias=True.*")
def test_refuses_adapters_that_cannot_be_merged(small_folder: Path, tmp_path: Path) -> None:
    tied = make_agent(policy_kwargs={**SMALL, "lora": {"target_modules": ["embed_tokens"]}})
    with pytest.raises(ExportError, match=r"also uses as its head; got one on them.*Fix: export the adapter"):
        export_merged(tied, tmp_path / "out")
    agent = untrained(small_folder)
    next(iter(agent.policy.adapter_parameters())).data.fill_(float("nan"))
    for refused in (agent, untrained(small_folder, lora={"lora_bias": True})):
        with pytest.raises(
            ExportError, match=r"Expected an adapter that can be merged.*Fix: if its weights are no lon"
        ):
            export_merged(refused, tmp_path / "out")
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------- the folder


def test_equal_exports_have_equal_bytes(trained: POAD, tmp_path: Path) -> None:
    for merge in (False, True):
        first = contents(export_policy(trained, tmp_path / f"first {merge}", merge=merge))
        assert first == contents(export_policy(trained, tmp_path / f"second {merge}", merge=merge))
    trained.save(tmp_path / "agent.zip")
    loaded_again = contents(export_policy(POAD.load(tmp_path / "agent.zip"), tmp_path / "third", merge=True))
    assert loaded_again == first


def test_only_a_new_or_empty_folder_is_written_to(trained: POAD, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    export_adapter(trained, out)
    (tmp_path / "file").write_text("here")
    for target in (out, tmp_path, tmp_path / "file"):
        with pytest.raises(ExportError, match=r"Expected a new or empty folder; .* Fix: remove it or name another"):
            export_merged(trained, target)
    with pytest.raises(ExportError, match=r"Expected to write the folder /sys/out; got (PermissionError|OSError)"):
        export_adapter(trained, Path("/sys/out"))
    assert set(contents(out)) == ADAPTER_FILES
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "out"]


def no_room(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("merge", [False, True])
def test_a_failed_export_leaves_nothing(
    merge: bool, trained: POAD, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "rename", no_room)
    with pytest.raises(ExportError, match="No space left on device"):
        export_policy(trained, tmp_path / "new", merge=merge)
    assert not list(tmp_path.iterdir())


def test_a_merged_model_that_differs_is_refused(trained: POAD, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    merged_copy = sampling_check.merged_copy
    monkeypatch.setattr("poad_sb3.export.export.merged_copy", lambda lm: (merged_copy(lm)[0], 0.01))
    with pytest.raises(ExportError, match="Expected a merged model with the policy's log-probabilities"):
        export_merged(trained, tmp_path / "out")
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------- the command


@pytest.fixture(scope="module")
def checkpoint(trained: POAD, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint in no run's folder. Leave it as it is."""
    path = tmp_path_factory.mktemp("agent") / "agent.zip"
    trained.save(path)
    return path


def test_the_command_on_a_run(run: Run, checkpoint: Path) -> None:
    Path("cook").mkdir()
    Path("cook/latest.zip").write_bytes(checkpoint.read_bytes())
    assert ": 0.1 MB" in run("export", "cook", "out")
    assert "Expected a new or empty folder" in run("export", "cook", "out", code=1)
    assert ": 3.7 MB" in run("export", "cook", "whole", "--merge")
    assert Path("cook/latest.zip").read_bytes() == checkpoint.read_bytes()


def test_the_command_finds_a_model_that_has_moved(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)  # a folder that is gone might be an id
    save_small_model(Path("base"), words=LAMP_WORDS.split())
    make_agent(policy_kwargs={**SMALL, "model": "base", "lora": {"r": 2}}).save("agent.zip")
    Path("base").rename("moved")
    assert "'base'" in run("export", "agent.zip", "out", code=1)
    run("export", "agent.zip", "out", "--set", "policy_kwargs.model=moved")
    config = json.loads(Path("out/adapter_config.json").read_text())
    assert (config["base_model_name_or_path"], config["r"]) == (str(Path("moved").resolve()), 2)
    output = run("export", "agent.zip", "other", "--set", "policy_kwargs.model=pocket", code=1)
    assert "shapes" in output or "Expected the base model the checkpoint was written with" in output or "size" in output
    assert not Path("other").exists()


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("nowhere", "out"), "There is no checkpoint nowhere"),
        (("cut.zip", "out"), "is truncated or corrupt"),
        (("agent.zip", "agent.zip"), "Expected a new or empty folder"),
    ],
)
def test_refusals_of_the_command(run: Run, checkpoint: Path, arguments: tuple[str, ...], match: str) -> None:
    Path("agent.zip").write_bytes(checkpoint.read_bytes())
    Path("cut.zip").write_bytes(checkpoint.read_bytes()[:1000])
    assert match in run("export", *arguments, code=1)
    assert not Path("out").exists()
