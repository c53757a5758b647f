"""`poad train --dry-run`: the estimate against the memory of a training, and its output."""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch
from poad_runs import ENV_ID, SMALL, invoke
from toy import LampEnv

from benchmarks.performance.memory import LiveBytes
from poad_sb3 import POAD, TWOSOME
from poad_sb3.cli import dry_run, train
from poad_sb3.distributions.base import decision_row
from poad_sb3.errors import ModelError
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.language_model.packing import Packed, pack
from poad_sb3.memory.common_models import common_size
from poad_sb3.memory.dry_run import Expected, Rows, expect, largest_pass, remedy
from poad_sb3.memory.estimate import Workload
from poad_sb3.memory.outline import OutlineModel, OutlinePolicy
from poad_sb3.pocket import POCKET_FOLDER
from poad_sb3.settings import ModelSettings

# Free texts of an untrained model are longer than the action space of the lamps holds.
pytestmark = pytest.mark.filterwarnings("ignore:Expected texts that the action space holds:RuntimeWarning")
DRY = ("train", ENV_ID, "--dry-run", *SMALL)
GB = 10**9
FREE = {"action_sampling": "free", "max_new_tokens": 24}
WAYS: dict[str, dict[str, Any]] = {
    "trie": {},
    "candidates": {"action_sampling": "candidates"},
    "paper mode": {"action_sampling": "candidates", "paper_mode": True},
    "free": FREE,
    "all weights": {"policy_kwargs": {"lora": None, "critic_trunk": "live"}},
    "bfloat16": {"policy_kwargs": {"dtype": "bfloat16", "lora": {"r": 4, "target_modules": "all-linear"}}},
    "smaller passes": {"policy_kwargs": {"max_tokens_per_forward": 100, "gradient_checkpointing": True}},
    "history": {"policy_kwargs": {"prompt": {"kind": "completion", "history": 2}, "critic_arch": [8]}},
}


def expected_of(algorithm: Any) -> Expected:
    return expect(algorithm, algorithm.env.reset())


# ---------------------------------------------------------------------- without weights


@pytest.mark.matrix_after(3)
@pytest.mark.parametrize("name", WAYS)
def test_without_weights_as_with_them(name: str) -> None:
    outline, real = (POAD(policy, LampEnv(), seed=0, **WAYS[name]) for policy in (OutlinePolicy, "LLMPolicy"))
    assert expected_of(outline) == expected_of(real)
    assert {one.device.type for one in outline.policy.lm.parameters()} == {"meta"}


@pytest.mark.parametrize("name", ["gpt2", "qwen2", "gemma2"])
def test_other_architectures(name: str, zoo_folder: Callable[[str], Path]) -> None:
    every = {"model": str(zoo_folder(name)), "lora": {"target_modules": "all-linear"}}
    outline, real = (POAD(policy, LampEnv(), seed=0, policy_kwargs=every) for policy in (OutlinePolicy, "LLMPolicy"))
    found = expected_of(outline)
    assert found == expected_of(real)
    assert found.needed.trained == 16 * sum(one.numel() for one in real.policy.adapter_parameters())
    assert found.size.adapted == found.size.matrices, "all-linear"
    assert found.needed.weights == bytes_of(one for one in real.policy.lm.parameters() if not one.requires_grad)


def test_a_function_that_makes_a_model() -> None:
    def make() -> tuple[Any, Any]:
        lm = LanguageModel(lora=None, critic_trunk="live")
        return lm.base, lm.tokenizer

    kwargs = {"model": make}
    assert expected_of(POAD(OutlinePolicy, LampEnv(), policy_kwargs=kwargs)).needed.weights == 4 * 913_280


def test_what_cannot_be_loaded_is_refused_likewise(tmp_path: Path) -> None:
    for folder in (tmp_path / "nowhere", tmp_path):
        said = []
        for policy in (OutlinePolicy, "LLMPolicy"):
            with pytest.raises(ModelError, match=r"Expected model='pocket'|Expected a folder") as caught:
                POAD(policy, LampEnv(), policy_kwargs={"model": str(folder)})
            said.append(str(caught.value)[:60])
        assert said[0] == said[1]
    shutil.copytree(POCKET_FOLDER, tmp_path / "bare", ignore=shutil.ignore_patterns("*.safetensors"))
    with pytest.raises(ModelError, match=r"Expected weights in .*bare; there are none\. Fix: complete the folder"):
        POAD(OutlinePolicy, LampEnv(), policy_kwargs={"model": str(tmp_path / "bare")})
    with pytest.raises(ModelError, match=r"Expected a tokenizer with an end-of-sequence token"):
        POAD(OutlinePolicy, LampEnv(), policy_kwargs={"model": without_end(tmp_path / "endless")})


def without_end(folder: Path) -> str:
    shutil.copytree(POCKET_FOLDER, folder)
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (folder / name).is_file():
            settings = json.loads((folder / name).read_text())
            settings.pop("eos_token", None)
            (folder / name).write_text(json.dumps(settings))
    return str(folder)


def test_weights_that_are_not_counted_here() -> None:
    algorithm = POAD(OutlinePolicy, LampEnv())
    algorithm.policy.lm.base.config.quantization_config = {"quant_method": "gptq", "bits": 4}
    with pytest.raises(ValueError, match=r"got 'gptq', which is not counted here\. Fix"):
        expected_of(algorithm)


@pytest.mark.parametrize("bits", ["8bit", "4bit"])
def test_quantised_weights(bits: str) -> None:
    algorithm = POAD(OutlinePolicy, LampEnv(), policy_kwargs={"dtype": "bfloat16"})
    plain = expected_of(algorithm)
    algorithm.policy.lm.base.config.quantization_config = {"quant_method": "bitsandbytes", f"load_in_{bits}": True}
    found = expected_of(algorithm)
    assert (found.settings.quantization, found.settings.dtype) == (bits, "torch.bfloat16")
    assert found.needed.weights < plain.needed.weights


@pytest.mark.matrix_after(2)
@pytest.mark.parametrize("name", ["trie", "candidates", "paper mode", "free"])
def test_rows_are_those_of_an_update(name: str) -> None:
    """Each action of the first prompt, as `decision_row` makes it from the sampled action."""
    model = POAD("LLMPolicy", LampEnv(), seed=0, **WAYS[name])
    first = model.env.reset()
    rows = [decision_row(model.policy.act(first)[0].path) for _ in range(20)]
    lengths = {len(row.row.tokens) for row in rows if row is not None}
    shares = {len(row.row.reads) / len(row.row.tokens) for row in rows if row is not None}
    found = expect(model, first).rows
    if name == "paper mode":  # where the longest action is as good as never sampled
        assert max(lengths) < found.row == found.prompt + found.action - 1
        assert max(shares) < found.share == found.action / found.row
    else:
        assert (max(lengths), max(shares)) == (found.row, found.share)
    assert found.prompt == len(model.policy.prompts(first)[0])


# ---------------------------------------------------------------------- against a training


def trained(n_steps: int = 64, max_tokens: int = 512, checkpointing: bool = False, **settings: Any) -> Any:
    kwargs = {"max_tokens_per_forward": max_tokens, "gradient_checkpointing": checkpointing}
    model = POAD(
        "LLMPolicy", LampEnv(moves=30), seed=0, n_steps=n_steps, batch_size=n_steps, n_epochs=1, n_critic_epochs=1,
        target_kl=None, policy_kwargs=kwargs, **settings,
    )  # fmt: skip
    return model.learn(n_steps)


def bytes_of(tensors: Any) -> int:
    return sum(one.numel() * one.element_size() for one in tensors)


def moments(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [state[name] for state in optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]


@pytest.mark.matrix_after(1)
@pytest.mark.parametrize("way", [{}, FREE], ids=["trie", "free"])
def test_what_is_held_between_passes(way: dict[str, Any]) -> None:
    model = trained(**way)
    expected = expect(model, model._last_obs)
    needed, workload = expected.needed, expected.workload
    policy, adapter = model.policy, model.policy.adapter_parameters()
    assert needed.weights == bytes_of(one for one in policy.lm.parameters() if not one.requires_grad)
    gradients = [one.grad for one in adapter]
    assert needed.trained == bytes_of([*adapter, *gradients, *moments(policy.optimizer)])
    critic = [*policy.critic.mlp.parameters(), *(one.grad for one in policy.critic.mlp.parameters())]
    critic += [*moments(policy.critic_optimizer), *policy.critic.whitening.buffers()]
    assert needed.critic == bytes_of(critic) - 8, "without two counters"
    flat = model.rollout_buffer.all_samples()
    n_features, n_tokens = len(flat.features), len(flat.returns)
    exact = expected._replace(workload=workload._replace(rollout_tokens=n_features)).needed
    assert exact.features == bytes_of([flat.features])
    stored = [getattr(flat, name) for name in ("is_decision", "old_log_prob", "old_values", "advantages", "returns")]
    assert bytes_of([*stored, flat.feature_of]) == 25 * n_tokens
    assert workload.rollout_tokens >= max(n_features, n_tokens), "lengths are those of the longest action"
    assert workload.host_bytes >= deep_size(model.rollout_buffer.steps, set())


def test_an_action_that_cannot_be_shorter_is_counted_exactly() -> None:
    model = TWOSOME("LLMPolicy", LampEnv(moves=30), seed=0, n_steps=8, batch_size=8)
    model.learn(8)
    assert (
        expect(model, model._last_obs).workload.rollout_tokens
        == int(model.rollout_buffer.all_samples().has_value.sum()) + 1
    )


def deep_size(value: Any, seen: set[int]) -> int:
    if id(value) in seen:
        return 0
    seen.add(id(value))
    inside = value if isinstance(value, list | tuple) else ()
    return sys.getsizeof(value) + sum(deep_size(one, seen) for one in inside)


@pytest.mark.matrix
@pytest.mark.parametrize("max_tokens", [512, 1024])
def test_an_update_holds_what_was_expected(max_tokens: int) -> None:
    """Activations and logits of one pass of a real update, whose rows need not be merged as far as they might."""
    model = trained(max_tokens=max_tokens, micro_batches=1, **FREE)  # else parts may be smaller than a pass
    needed = expect(model, model._last_obs).needed
    with LiveBytes() as live, pytest.warns(RuntimeWarning, match="first ratio"):  # learnt from already
        model.train()
    assert live.peak <= needed.activations + needed.logits <= 1.35 * live.peak


@pytest.mark.matrix_after(1)
@pytest.mark.parametrize("name", ["trie", "candidates", "free"])
@pytest.mark.parametrize("max_tokens", [64, 1024])
def test_merged_rows_are_no_longer_and_decide_no_more(
    monkeypatch: pytest.MonkeyPatch, name: str, max_tokens: int
) -> None:
    """Rows of updates with common prefixes of prompts; with actions as long as the first."""
    model = trained(max_tokens=max_tokens, **WAYS[name])
    expected = expect(model, model._last_obs)
    settings, workload, rows = expected.settings, expected.workload, expected.rows
    passes: list[Packed] = []
    monkeypatch.setattr(
        "poad_sb3.language_model.language_model.pack", lambda *args: passes.append(pack(*args)) or passes[-1]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # learnt from already
        model.train()
    assert max(one.ids.numel() for one in passes) <= workload.tokens(settings)
    assert max(one.ids.shape[1] for one in passes) <= workload.longest_row(settings)
    assert max(len(one.place) for one in passes) <= math.ceil(workload.action_share * workload.tokens(settings))
    if max_tokens == 1024:
        assert max(one.ids.shape[1] for one in passes) > rows.row, "rows were merged"
        assert workload.action_share > rows.share


# ---------------------------------------------------------------------- trainings that fit


def expected_with(name: str, workload: Workload, **settings: Any) -> Expected:
    of_model = ModelSettings(dtype="bfloat16", **settings)
    return Expected(common_size(name, of_model), of_model, workload, Rows(300, 1, 300, 0.1, 4.0))


@pytest.mark.parametrize("name", ["Qwen2.5-0.5B", "Llama-3-8B"])
def test_the_largest_pass_is_the_largest(name: str) -> None:
    expected, usable = expected_with(name, Workload(row_tokens=300)), 40 * GB
    found = largest_pass(expected, usable)
    assert found is not None
    for tokens, fits in ((found, True), (found + 1, False)):
        assert (expected.with_settings(max_tokens_per_forward=tokens).needed.total <= usable) is fits
    least = expected.with_settings(max_tokens_per_forward=1).needed.total
    assert largest_pass(expected, least) == 300
    assert largest_pass(expected, least - 1) is None


def test_remedies() -> None:
    workload = Workload(decode_batch=0, rollout_tokens=1000)
    expected = expected_with("Qwen2.5-3B", workload)
    assert remedy(expected, 9 * GB) == {"gradient_checkpointing": True}
    assert set(remedy(expected.with_settings(max_tokens_per_forward=10**6), 10 * GB) or ()) == {
        "max_tokens_per_forward"
    }
    both = remedy(expected, int(6.6 * GB))
    assert both is not None
    assert expected.with_settings(**both).needed.total <= 6.6 * GB
    assert set(both) == {"gradient_checkpointing", "max_tokens_per_forward"}
    assert remedy(expected, GB // 2) is None


# ---------------------------------------------------------------------- the command


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def with_free(patch: pytest.MonkeyPatch, free: int | None) -> None:
    for module in (dry_run, train):
        patch.setattr(module, "free_memory", lambda device: free)


def test_it_fits_and_nothing_is_written(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_free(monkeypatch, 8 * GB)
    shown = invoke(*DRY)
    parts = (
        "frozen weights",
        "LoRA, rank 8",
        "critic",
        "rollout: features",
        "rollout: tokens",
        "activations",
        "logits",
    )
    assert all(re.search(rf"^ {part} +\d", shown, re.MULTILINE) for part in (*parts, "KV cache", "total"))
    assert "16,384 trained: weights 65.5 kB, gradients 65.5 kB, Adam 131.1 kB" in shown
    assert "It fits: 8.0 GB free on cpu, 10% left alone." in shown
    assert re.search(r"max_tokens_per_forward=\d+, \d+ rows of 38 tokens; a minibatch has 8\.", shown)
    assert "batch_size changes little" in shown
    assert list(here.iterdir()) == []


def test_it_does_not_fit(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_free(monkeypatch, GB // 25)
    shown = invoke(*DRY, code=4)
    assert "It does not fit: 40.0 MB free on cpu" in shown
    fix = re.search(r"^Fix: (--set .*), which learns the same, more slowly\.$", shown, re.MULTILINE)
    assert fix is not None
    assert "It fits" in invoke(*DRY, *fix[1].split()), "the fix is one"
    with_free(monkeypatch, GB // 1000)
    assert "Not even a pass of one row (38 tokens) fits." in invoke(*DRY, code=4)
    assert "Fix: a smaller model" in invoke(*DRY, code=4)
    assert list(here.iterdir()) == []


def test_nobody_knows_what_is_free(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_free(monkeypatch, None)
    assert "How much memory is free on cpu is unknown: compare the total with what you have." in invoke(*DRY)
    facts = json.loads(invoke(*DRY, "--json"))
    assert (facts["free"], facts["fits"], facts["largest_pass"]["rows"], facts["remedy"]) == (None, None, None, None)


def test_json(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_free(monkeypatch, 8 * GB)
    facts = json.loads(invoke(*DRY, "--json"))
    needed = facts["needed"]
    assert facts["fits"] is True
    assert needed["total"] == total_of(needed)
    assert facts["largest_pass"]["rows"] == facts["largest_pass"]["max_tokens_per_forward"] // facts["rows"]["row"]
    assert (facts["settings"]["critic_arch"], facts["model"]["parameters"]) == ([8], 913_280)
    with_free(monkeypatch, GB // 25)
    assert json.loads(invoke(*DRY, "--json", code=4))["remedy"] == {"gradient_checkpointing": True}
    assert "Expected --dry-run beside --json" in invoke("train", ENV_ID, "--json", code=1)


def test_each_of_several_ranks_gathers_gradients(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_free(monkeypatch, 8 * GB)
    alone, of_four = (json.loads(invoke(*DRY, "--json", *more)) for more in ((), ("--n-procs", "4")))
    of_adapter = 4 * alone["model"]["trained"]
    assert (alone["needed"]["sums"], of_four["needed"]["sums"]) == (2 * of_adapter, 5 * of_adapter)
    assert of_four["free"] == alone["free"] // 4
    assert "It fits: 2.0 GB free on cpu for each of 4 ranks" in invoke(*DRY, "--n-procs", "4")
    for n_procs in ("3", "8"):
        assert "power of two that divides micro_batches (4)" in invoke(*DRY, "--n-procs", n_procs, code=1)
    assert "Expected several ranks for fsdp" in invoke(*DRY, "--set", "policy_kwargs.fsdp=true", code=1)


def total_of(needed: dict[str, int]) -> int:
    held = sum(needed[name] for name in ("weights", "trained", "critic", "features", "tokens"))
    update = needed["activations"] + needed["logits"] + needed["sums"]
    return held + max(update, needed["kv_cache"], needed["values"])


def test_free_code_has_a_cache_and_a_preset_its_environments(here: Path) -> None:
    pytest.importorskip("sklearn")
    shown = invoke("train", "DataSciCoding-balance-scale-v0", "--dry-run", "--preset", "paper/datascicoding",
                   "--set", "policy_kwargs.model=pocket")  # fmt: skip
    assert "32 steps x 4 environments, up to 128 tokens an action" in shown
    assert re.search(r"KV cache +22\.6 MB +4 texts x 527 tokens", shown)


@pytest.mark.matrix
def test_the_weights_of_a_large_model_are_not_read(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven billion of them, none of them in a file."""
    shutil.copytree(POCKET_FOLDER, "seven")
    config = json.loads(Path("seven/config.json").read_text())
    config |= {"hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 32, "num_attention_heads": 32}
    config |= {"num_key_value_heads": 32, "head_dim": 128, "vocab_size": 32_000, "tie_word_embeddings": False}
    Path("seven/config.json").write_text(json.dumps(config))
    Path("seven/model.safetensors").write_bytes(b"")
    with_free(monkeypatch, 20 * GB)
    seven = ("--set", "policy_kwargs.model=seven", "--set", "learning_rate=1e-4", "--set", "temperature=4")
    facts = json.loads(invoke(*DRY, "--json", *seven, "--set", "policy_kwargs.dtype=bfloat16", code=4))
    assert facts["model"]["parameters"] == common_size("Llama-2-7B").parameters
    assert facts["needed"]["weights"] == 2 * common_size("Llama-2-7B").parameters
    assert facts["remedy"] == {"gradient_checkpointing": True}
    fixed = ("--set", "policy_kwargs.dtype=bfloat16", "--set", "policy_kwargs.gradient_checkpointing=true")
    assert "It fits" in invoke(*DRY, *seven, *fixed)


REFUSED = [
    (("train", "--dry-run"), "Expected an environment, such as"),
    (("train", "Overcooked-TomatSalad-v0", "--dry-run"), "cannot be made: .*TomatoSalad"),
    ((*DRY, "--set", "gama=1"), "Did you mean gamma"),
    ((*DRY, "--set", "device=cpux"), "Expected a device that torch can use here; got 'cpux'"),
    ((*DRY, "--set", "paper_mode=true"), "Expected paper_mode with action_sampling='candidates'"),
    ((*DRY, "--set", "policy_kwargs.dtype=float16"), "Expected dtype to be one of"),
    ((*DRY, "--set", "policy_kwargs.model=/no/where"), "there is no /no/where"),
    ((*DRY, "--set", "policy_kwargs.lora.target_modules=[\"x\"]"), "target_modules that this architecture has"),
    ((*DRY, "--set", "policy_kwargs.max_tokens_per_forward=0"), "max_tokens_per_forward to be a positive"),
    ((*DRY, "--set", "policy_kwargs.critic_trunk=x"), "Expected critic_trunk to be one of"),
    ((*DRY, "--warm-start", "nowhere.zip"), "There is no checkpoint"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "match"), REFUSED, ids=lambda value: str(value)[-40:])
def test_what_a_training_refuses_is_refused(here: Path, arguments: tuple[str, ...], match: str) -> None:
    assert re.search(match, invoke(*arguments, code=1))
    assert re.search(match, invoke(*(one for one in arguments if one != "--dry-run"), code=1)), "by a training too"
    assert list(here.iterdir()) == []


def test_an_argument_without_effect_in_this_environment_is_refused(here: Path) -> None:
    shown = invoke(*DRY, "--set", "top_k=5", code=1)
    assert "top_k has none: action_sampling is 'trie'" in shown


def test_an_open_action_space_is_refused_before_anything_is_loaded(here: Path) -> None:
    pytest.importorskip("sklearn")
    said = invoke("train", "DataSciCoding-balance-scale-v0", "--dry-run", "--set", "action_sampling=trie", code=1)
    assert "Expected action_sampling='free', since any text is an action" in said


def test_an_environment_that_fails(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, *, seed: int | None = None, options: Any = None) -> None:
        raise ConnectionError("the simulator is gone")

    monkeypatch.setattr(gym.make(ENV_ID).unwrapped.__class__, "reset", broken)
    assert "cannot be estimated: the simulator is gone" in invoke(*DRY, code=1)


def test_a_training_says_it_in_a_line(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_free(monkeypatch, 8 * GB)
    total = json.loads(invoke(*DRY, "--json"))["needed"]["total"]
    steps = ("--steps", "16", "--out", "run", "--record-episodes", "0")
    shown = invoke("train", ENV_ID, *SMALL, *steps)
    assert f"memory: {total / 1e6:.1f} MB needed, 8.0 GB free on cpu (--dry-run says more)" in shown
    assert "warning" not in shown
    with_free(monkeypatch, GB // 25)
    shown = invoke("train", "--resume", "--out", "run", "--steps", "32")
    assert re.search(r"poad: warning: \d+\.\d MB may be needed, 36\.0 MB may be taken on cpu \(10% .*\)\. Fix: ", shown)
    assert "32 steps" in shown, "it is tried all the same"
    before = {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()}
    assert "does not fit" in invoke("train", "--resume", "--out", "run", "--dry-run", code=4)
    assert "holds a run already" in invoke("train", ENV_ID, "--out", "run", "--dry-run", code=1)
    assert before == {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()}


def test_a_training_on_a_device_that_does_not_say_what_is_free(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_free(monkeypatch, None)
    shown = invoke("train", ENV_ID, *SMALL, "--steps", "16", "--out", "run")
    assert "needed, free memory unknown on cpu" in shown


def test_a_training_of_what_is_not_counted_goes_on(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any) -> None:
        raise KeyError("hidden_size\nand more")

    monkeypatch.setattr("poad_sb3.cli.memory.expect", unknown)
    shown = invoke("train", ENV_ID, *SMALL, "--steps", "16", "--out", "run")
    assert "memory: not estimated (" in shown
    assert "16 steps" in shown


def test_an_outline_is_no_model() -> None:
    algorithm = POAD(OutlinePolicy, LampEnv(), seed=0)
    assert isinstance(algorithm.policy.lm, OutlineModel)
    assert algorithm.policy.to("cpu") is algorithm.policy
    assert algorithm.policy.lm.prompt_ids("The lamp is red.") == LanguageModel().prompt_ids("The lamp is red.")


def test_the_share_of_decisions_grows_with_the_rows_that_are_merged() -> None:
    """A pass of 100 tokens may hold the 3 decisions of each row of the minibatch, and their common beginning once."""
    shares = []
    for n in (2, 16, 64):
        short = {"max_tokens_per_forward": 100, "critic_arch": (8,)}
        model = POAD("LLMPolicy", LampEnv(), seed=0, n_steps=64, batch_size=n, policy_kwargs=short)
        expected = expected_of(model)
        assert expected.rows.share * expected.rows.row == pytest.approx(3)
        shares.append(expected.workload.action_share)
    assert shares == pytest.approx([3 / 26, 0.48, 1.0])
