"""Whether the update reproduces the sampling, by architecture: figures, errors, warnings, exports."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from toy import make_agent, randomise
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from benchmarks.performance.architectures import build
from poad_sb3 import POAD, ModelError
from poad_sb3.distributions.sampling_check import RATIO_TOLERANCE, examine_model, measure_agreement
from poad_sb3.errors import ExportError
from poad_sb3.export.export import export_policy
from poad_sb3.language_model.language_model import LanguageModel
from poad_sb3.pocket import POCKET_FOLDER
from poad_sb3.settings.model import Check

pytestmark = pytest.mark.usefixtures("every_check")

SMALL = {"critic_arch": (8,)}
REFUSED = r"Expected an architecture whose update reproduces its own sampling within 0\.0001; .* \(llama\) has a ratio "


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The folder of a tiny random model of an architecture. Leave it as it is."""
    root = tmp_path_factory.mktemp("architectures")

    @cache
    def make(kind: str) -> str:
        build(kind, root / kind)
        return str(root / kind)

    return make


def unsteady() -> tuple[Any, Any]:
    """A model whose scores differ with gradients on; no choice of passes can mend that."""
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(POCKET_FOLDER)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=256,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight.mul_(20)
    model.model.norm.register_forward_hook(lambda _, __, out: 1.3 * out if torch.is_grad_enabled() else out)
    return model, tokenizer


# ------------------------------------------------------------------ differences that are removed


@pytest.mark.matrix
@pytest.mark.parametrize(("kind", "sampling"), [("doge", "trie"), ("deepseek_v32", "free")])
def test_sparse_attention_needs_plain_passes(tiny: Callable[[str], str], kind: str, sampling: str) -> None:
    """The attended ones of equally ranked tokens depend on the number beside them."""
    kwargs = {**SMALL, "model": tiny(kind)}
    acting = {"action_sampling": sampling, **({"max_new_tokens": 4} if sampling == "free" else {})}
    with pytest.warns(RuntimeWarning, match="so each takes one of its own, which is slow"):
        model = make_agent(n_envs=2, n_steps=8, n_epochs=2, target_kl=None, policy_kwargs=kwargs, **acting)
    assert model.policy.lm.plain_passes
    randomise(model.policy)
    model.learn(16)
    assert model.logger.name_to_value["train/first_ratio_error"] < RATIO_TOLERANCE


def test_experts_routed_by_batch_need_plain_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Doge's experts are routed by the whole batch."""
    experts = {"is_moe": True, "num_experts": 16, "num_experts_per_tok": 2}
    monkeypatch.setitem(build.__globals__["SPECIAL"], "doge", experts)
    build("doge", tmp_path)
    agreement = examine_model(str(tmp_path))
    assert (agreement.passes, agreement.verdict) == ("one by one", "agrees")
    assert agreement.ratio < RATIO_TOLERANCE


@pytest.mark.matrix
def test_layers_on_a_tied_weight_have_one_adapter(tiny: Callable[[str], str], tmp_path: Path) -> None:
    """Zamba2: two adapters on one weight could not be merged into it."""
    agent = make_agent(policy_kwargs={**SMALL, "model": tiny("zamba2")})
    randomise(agent.policy, scale=0.5)
    ids = torch.tensor([[7, 9, 30, 12, 5]])
    with torch.no_grad():
        ours = agent.policy.lm.base(input_ids=ids, use_cache=False).logits.log_softmax(-1)
        folder = export_policy(agent, tmp_path / "merged", merge=True)
        theirs = AutoModelForCausalLM.from_pretrained(folder)(input_ids=ids, use_cache=False).logits.log_softmax(-1)
        before = AutoModelForCausalLM.from_pretrained(tiny("zamba2"))(input_ids=ids, use_cache=False).logits
    torch.testing.assert_close(theirs, ours, atol=1e-4, rtol=0)
    assert float((before.log_softmax(-1) - ours).abs().max()) > 0.01, "the adapter does something"


@pytest.mark.parametrize("kind", ["mamba", pytest.param("recurrent_gemma", marks=pytest.mark.matrix)])
def test_other_architectures_agree(tiny: Callable[[str], str], kind: str) -> None:
    assert examine_model(tiny(kind)).verdict == "agrees"


# ------------------------------------------------------------------ refusals


def test_refuses_models_whose_update_differs_from_sampling() -> None:
    with pytest.raises(ModelError, match=REFUSED + r"error of [0-9.e+-]+ before any step.*check='warn'"):
        make_agent(policy_kwargs={**SMALL, "model": unsteady})


def test_the_refusal_can_be_a_warning_also_after_load(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match=REFUSED):
        agent = make_agent(policy_kwargs={**SMALL, "model": unsteady, "check": "warn"})
    agent.save(tmp_path / "saved.zip")
    with pytest.warns(RuntimeWarning, match=REFUSED):
        again = POAD.load(tmp_path / "saved.zip")
    assert again.policy_kwargs["check"] == "warn"


def test_a_merged_model_that_differs_is_refused(tiny: Callable[[str], str], tmp_path: Path) -> None:
    """Mamba reads the weight of dt_proj past its adapter; after a merge the adapter acts."""
    kwargs = {**SMALL, "model": tiny("mamba"), "lora": {"target_modules": ["dt_proj"]}}
    agent = make_agent(policy_kwargs={**kwargs, "check": "warn"})
    randomise(agent.policy, scale=0.5)
    with pytest.warns(RuntimeWarning, match="those of mamba differ by"):
        export_policy(agent, tmp_path / "warned", merge=True)
    agent.policy.check = Check.ERROR
    with pytest.raises(
        ExportError, match=r"log-probabilities within 0\.001; those of mamba differ by [0-9.e+-]+\. Fix"
    ):
        export_policy(agent, tmp_path / "refused", merge=True)
    assert [path.name for path in tmp_path.iterdir()] == ["warned"]


# ------------------------------------------------------------------ measuring


def test_measuring_changes_neither_weights_nor_generators() -> None:
    lm = LanguageModel()
    before = {name: tensor.clone() for name, tensor in lm.state_dict().items()}
    state = torch.get_rng_state()
    assert measure_agreement(lm).agrees(is_full_precision=True)
    assert all(torch.equal(tensor, before[name]) for name, tensor in lm.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)


def test_alibi_models_are_not_packed(tmp_path: Path) -> None:
    """ALiBi weighs distances in the row: with packed rows MPT would sample from another distribution."""
    build("mpt", tmp_path / "mpt")
    for dtype in ("float32", "bfloat16"):
        assert not LanguageModel(str(tmp_path / "mpt"), dtype=dtype).packs_trees
