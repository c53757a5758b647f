"""A tiny third-party environment that keeps the contract, and helpers of several test files."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import hypothesis
import numpy as np
import pytest
import torch
from scipy import stats
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from lang_envs import LangEnv, LangEnvsError
from lang_envs.core import Outcome
from lang_envs.wrappers.admissible import admissible_observation
from poad_sb3 import (
    ARCHER,
    GLAM,
    GRPO,
    NTPO,
    POAD,
    RLOO,
    TWOSOME,
    BiLevelPPO,
    DrGRPO,
    GiGPO,
    LLMPolicy,
    ReBN,
    REINFORCEPlusPlus,
    TurnPPO,
)
from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
from poad_sb3.common.ppo_update import update
from poad_sb3.prompts import Question
from poad_sb3.settings import PPOSettings
from poad_sb3.vec_env.text_observations import parse_observation

COLOURS = ("red", "green", "blue")

properties = hypothesis.settings(deadline=None, derandomize=True, database=None, max_examples=60)


class LampEnv(LangEnv[tuple[str, int]]):
    """A lamp shows a colour. Pressing the button of that colour pays 1, anything else costs 0.1.

    Args:
        moves: Moves in an episode.
        truncates: Whether the last move runs into a time limit instead of ending the task.
        forced: Colours with waiting as the only admissible action.
    """

    def __init__(self, *, moves: int = 3, truncates: bool = False, forced: Sequence[str] = ()) -> None:
        super().__init__(max_action_length=64, max_observation_length=256)
        self.moves, self.truncates, self.forced = moves, truncates, tuple(forced)
        self.colour, self.left = COLOURS[0], moves

    def _restart(self, options: Mapping[str, Any]) -> None:
        self.left = self.moves
        self._switch()

    def _switch(self) -> None:
        self.colour = COLOURS[self.np_random.integers(len(COLOURS))]

    def _describe(self) -> str:
        return f"The lamp is {self.colour}. You have {self.left} moves left."

    def _listed_actions(self) -> list[str]:
        """Waiting is not listed while the lamp is red, so prompts differ in the number of their actions."""
        if self.colour in self.forced:
            return ["wait"]
        presses = [f"press the {colour} button" for colour in COLOURS]
        return [*presses, "press the red lever", *(["wait"] if self.colour != "red" else [])]

    def _execute(self, text: str) -> Outcome | None:
        if text not in self.admissible_actions():
            return None
        return self._move(1.0 if text == f"press the {self.colour} button" else -0.1)

    def _pass_time(self) -> Outcome:
        return self._move(-0.1)

    def _move(self, reward: float) -> Outcome:
        self.left -= 1
        self._switch()
        over = self.left == 0
        return Outcome(reward, over and not self.truncates, over and self.truncates, over and not self.truncates)

    def _family_info(self, *, acted: bool) -> dict[str, Any]:
        return {"colour": self.colour, "acted": acted}

    def _get_world(self) -> tuple[str, int]:
        return self.colour, self.left

    def _set_world(self, world: tuple[str, int]) -> None:
        colour, left = world
        if colour not in COLOURS or not 0 <= left <= self.moves:
            raise LangEnvsError(f"Expected a colour and the moves left; got {world}.")
        self.colour, self.left = world

    def _configuration(self) -> dict[str, Any]:
        return {"moves": self.moves, "truncates": self.truncates, "forced": self.forced}


class EndsAtItsLimit(LampEnv):
    """The task ends with the step that its time limit cuts off."""

    def _move(self, reward: float) -> Outcome:
        outcome = super()._move(reward)
        return outcome._replace(truncated=outcome.terminated)


class OpenLampEnv(LampEnv):
    """Any text is an action."""

    metadata: ClassVar[dict[str, Any]] = {**LampEnv.metadata, "actions": "text"}

    def _listed_actions(self) -> None:  # type: ignore[override]
        return None

    def _execute(self, text: str) -> Outcome:
        return self._pass_time()


class Collector(POAD):
    """POAD without its update: `learn` fills the rollout buffer and leaves the rest to the test."""

    def train(self) -> None:
        """Train without effect."""


def make_agent(
    kind: type[POAD] = POAD,
    *,
    lamp: type[LampEnv] = LampEnv,
    n_envs: int = 1,
    env: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> POAD:
    """An agent on lamps, by default with a small critic and rollouts of 16 steps."""
    make = partial(lamp, **(env or {}))
    lamps = make() if n_envs == 1 else DummyVecEnv([make] * n_envs)
    kwargs = {"n_steps": 16, "seed": 0, "policy_kwargs": {"critic_arch": (32, 16)}, **kwargs}
    return kind("LLMPolicy", lamps, **kwargs)


def first_gradient(model: POAD, bound: int, batch_size: int) -> dict[str, torch.Tensor]:
    """Gradient of the first policy step, without the step."""
    policy = copy.deepcopy(model.policy)
    policy.lm.max_tokens_per_forward = bound
    caught: dict[str, torch.Tensor] = {}

    def catch(*_: Any, **__: Any) -> None:
        if not caught:
            caught.update({n: p.grad.clone() for n, p in policy.lm.named_parameters() if p.grad is not None})

    policy.optimizer.step = catch
    policy.optimizer = copy.copy(policy.optimizer)
    policy.optimizer.step = catch  # type: ignore[method-assign]
    settings = PPOSettings(n_epochs=1, n_critic_epochs=1, batch_size=batch_size, max_grad_norm=1e9, target_kl=None)
    update(policy, model.rollout_buffer, settings, np.random.default_rng(0))
    return caught


class SaveAt(BaseCallback):
    """Saves the model at a step, also in the middle of a rollout."""

    def __init__(self, step: int, path: Path) -> None:
        super().__init__()
        self.step, self.path = step, path

    def _on_step(self) -> bool:
        if self.num_timesteps == self.step:
            self.model.save(self.path)
        return True


def randomise(module: torch.nn.Module, seed: int = 0, scale: float = 0.1) -> None:
    """Randomise weights: a fresh adapter is the identity (its B is 0), and a fresh critic is 0."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "lora_B" in name or ("critic" in name and not parameter.any()):
                parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))


def batch_of(questions: Sequence[tuple[str, Sequence[str] | None]]) -> dict[str, np.ndarray]:
    """A batched observation of texts and their admissible actions."""
    single = [admissible_observation(text, actions) for text, actions in questions]
    return {key: np.array([observation[key] for observation in single], dtype=object) for key in single[0]}


def rows(names: Iterable[str], n: int) -> list[Any]:
    """Rows of a product: `make test` runs the first n, `make test-matrix` the others."""
    first, others = [*names][:n], [*names][n:]
    return [*first, *(pytest.param(name, marks=pytest.mark.matrix) for name in others)]


# ------------------------------------------------------------------ any method

CANDIDATES = {"action_sampling": "candidates"}
FREE = {"action_sampling": "free", "max_new_tokens": 5}
PAPER = {**CANDIDATES, "paper_mode": True}

METHODS: dict[str, tuple[type[LLMOnPolicyAlgorithm], dict[str, Any]]] = {
    "POAD": (POAD, {}),
    "NTPO": (NTPO, {}),
    "ARCHER": (ARCHER, {}),
    "TWOSOME": (TWOSOME, {}),
    "GLAM": (GLAM, {}),
    "TWOSOME, trie": (TWOSOME, {"action_sampling": "trie"}),
    "TWOSOME, token": (TWOSOME, {"candidate_normalization": "token"}),
    "POAD, candidates": (POAD, CANDIDATES),
    "NTPO, candidates, token": (NTPO, {**CANDIDATES, "candidate_normalization": "token"}),
    "ARCHER, candidates, sum": (ARCHER, {**CANDIDATES, "candidate_normalization": "sum"}),
    "POAD, free": (POAD, FREE),
    "NTPO, free": (NTPO, FREE),
    "ARCHER, free": (ARCHER, FREE),
    "POAD, think": (POAD, {"action_sampling": "think", "max_thought_tokens": 3}),
    "POAD, paper": (POAD, PAPER),
    "NTPO, paper": (NTPO, PAPER),
    "TurnPPO": (TurnPPO, {}),
    "TurnPPO, free": (TurnPPO, FREE),
    "BiLevelPPO": (BiLevelPPO, {}),
    "GRPO": (GRPO, {"group_size": 2}),
    "DrGRPO, candidates": (DrGRPO, {"group_size": 2, **CANDIDATES}),
    "RLOO": (RLOO, {"group_size": 2}),
    "RLOO, free": (RLOO, {"group_size": 2, **FREE}),
    "GiGPO": (GiGPO, {"group_size": 4}),
    "REINFORCEPlusPlus": (REINFORCEPlusPlus, {}),
    "ReBN": (ReBN, {}),
}
"""Every class, and every way to act that it has."""

ONE_STEP = PPOSettings(
    n_epochs=1,
    n_critic_epochs=1,
    batch_size=10**6,
    clip_range=0.2,
    clip_range_vf=0.2,
    ent_coef=0.05,
    vf_coef=0.5,
    max_grad_norm=1e9,  # gradients stay as they are, to be compared
    target_kl=None,
    normalize_advantage=True,
    min_advantage_std=1e-6,
)


class TimedLampEnv(LampEnv):
    """A lamp whose buttons take two seconds, and whose waiting takes three."""

    def _family_info(self, *, acted: bool) -> dict[str, Any]:
        return {**super()._family_info(acted=acted), "primitive_steps": self.seconds if acted else 0}

    def _move(self, reward: float) -> Outcome:
        self.seconds = 2 if reward > 0 else 3
        return super()._move(reward)


class TableEnv(LampEnv):
    """Actions so alike that even a softmax over whole ones is certain of none, with choices at two of their words."""

    def _listed_actions(self) -> list[str]:
        if self.colour in self.forced:
            return ["wait"]
        return [f"put the {food} on the {dish}" for food in ("tomato", "onion") for dish in ("board", "plate")]

    def _execute(self, text: str) -> Outcome | None:
        if text not in self.admissible_actions():
            return None
        wanted = {"red": "tomato", "green": "onion", "blue": "plate"}[self.colour]
        return self._move(1.0 if wanted in text else -0.1)


def make_method(
    name: str, *, lamp: type[LampEnv] = LampEnv, n_envs: int = 1, env: Mapping[str, Any] | None = None, **kwargs: Any
) -> LLMOnPolicyAlgorithm:
    """One of `METHODS` on lamps, with a small critic."""
    kind, acting = METHODS[name]
    lamps = DummyVecEnv([partial(lamp, **(env or {}))] * n_envs)
    small = {"n_steps": 16, "batch_size": 8, "n_epochs": 2, "seed": 0, "policy_kwargs": {"critic_arch": (32, 16)}}
    return kind("LLMPolicy", lamps, **{**small, **acting, **kwargs})


def collect(name: str, **kwargs: Any) -> tuple[LLMOnPolicyAlgorithm, list[Question]]:
    """One of `METHODS` with a full buffer and no update yet, and its questions, in the order of the buffer.

    Its weights are random, so that adapter and critic have a say.
    """
    agent = make_method(name, **kwargs)
    randomise(agent.policy)
    questions: list[Question] = []
    act = agent.policy.act

    def act_and_note(observation: Any, *args: Any, **kwargs: Any) -> Any:
        questions.extend(parse_observation(observation)[0])
        return act(observation, *args, **kwargs)

    agent.policy.act = act_and_note  # type: ignore[method-assign]
    agent.train = lambda: None  # type: ignore[method-assign]
    agent.learn(agent.n_steps * agent.n_envs)
    del agent.policy.act, agent.train
    return agent, questions


def run_update(agent: LLMOnPolicyAlgorithm, settings: PPOSettings = ONE_STEP) -> dict[str, float]:
    """One update on the content of the buffer, with the agent's own level of credit and unit of values."""
    of_agent = {name: getattr(agent, name) for name in ("normalize_value", "kl_coef")}
    return update(agent.policy, agent.rollout_buffer, replace(settings, **of_agent), np.random.default_rng(0))


def hold_still(agent: LLMOnPolicyAlgorithm, *, move_by: float = 0.0) -> None:
    """Learning rates of 0: an update leaves gradients to compare, and weights as they are.

    Args:
        agent: Whose rates.
        move_by: Scale of noise on the adapter, so that ratios are not 1.
    """
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in agent.policy.adapter_parameters():
            parameter.add_(move_by * torch.randn(parameter.shape, generator=generator).to(parameter.device))
    for optimizer in (agent.policy.optimizer, agent.policy.critic_optimizer):
        if optimizer is not None:
            optimizer.param_groups[0]["lr"] = 0.0


def weights_of(policy: LLMPolicy) -> dict[str, torch.Tensor]:
    """Everything, the frozen base model included."""
    return {name: parameter.detach().clone() for name, parameter in policy.named_parameters()}


def moved(policy: LLMPolicy, before: Mapping[str, torch.Tensor]) -> set[str]:
    """Names of the changed weights."""
    return {name for name, parameter in policy.named_parameters() if not torch.equal(parameter, before[name])}


def everything(agent: LLMOnPolicyAlgorithm) -> list[Any]:
    """All that training goes on from, as one comparable value."""
    parameters = agent.get_parameters()
    kept: list[Any] = [(name, tensor.cpu().numpy().tobytes()) for name, tensor in parameters["policy"].items()]
    for name in sorted(set(parameters) - {"policy"}):
        for state in parameters[name]["state"].values():
            kept += [torch.as_tensor(value).cpu().numpy().tobytes() for value in state.values()]
    assert agent.env is not None
    kept += [repr(state) for state in agent.env.env_method("get_state")]
    generators = (*agent.policy.rollout_rngs, agent.policy.predict_rng, agent._shuffle_rng)
    return [
        *kept,
        *(repr(generator.bit_generator.state) for generator in generators),
        agent.num_timesteps,
        agent._n_updates,
    ]


def adapter_gradient(policy: LLMPolicy) -> torch.Tensor:
    """Gradient of the adapter, flat; 0 where there is none."""
    return torch.cat(
        [
            (torch.zeros_like(parameter) if parameter.grad is None else parameter.grad).flatten().clone()
            for parameter in policy.adapter_parameters()
        ]
    )


def gradient_by_autograd(policy: LLMPolicy, loss: torch.Tensor) -> torch.Tensor:
    """Gradient of a loss with respect to the adapter, flat."""
    return torch.cat([part.flatten() for part in torch.autograd.grad(loss, policy.adapter_parameters())])


def assert_same_gradient(ours: torch.Tensor, expected: torch.Tensor) -> None:
    """To float32's accuracy, summed in another order; and there is something to compare."""
    assert expected.abs().max() > 1e-3
    assert (ours - expected).norm() / expected.norm() < 2e-4


def assert_same_frequencies(counts: Sequence[int], probabilities: Sequence[float]) -> None:
    """Chi-square; actions expected fewer than five times are pooled."""
    total = sum(counts)
    observed, expected = np.array(counts, dtype=float), total * np.array(probabilities, dtype=float)
    assert abs(expected.sum() - total) < 1e-3 * total, "probabilities of everything that can happen"
    rare = expected < 5
    observed, expected = (np.append(some[~rare], some[rare].sum()) for some in (observed, expected))
    if expected[-1] < 1e-6:
        assert observed[-1] == 0
        observed, expected = observed[:-1], expected[:-1]
    assert len(expected) > 1
    assert stats.chisquare(observed, expected * total / expected.sum()).pvalue > 1e-3


# ------------------------------------------------------------------ brute force: whole sequences, one at a time


def all_log_probs(
    policy: LLMPolicy, prompt: Sequence[int], action: Sequence[int], *, adapter: bool = True
) -> torch.Tensor:
    """Log-probabilities of the whole vocabulary before each action token, `[n, vocabulary]`; batch of one, no cache."""
    network, ids = policy.lm.network, torch.tensor([[*prompt, *action]])
    if adapter:
        logits = network(input_ids=ids, use_cache=False).logits[0]
    else:
        with network.disable_adapter():
            logits = network(input_ids=ids, use_cache=False).logits[0]
    return torch.log_softmax(logits[len(prompt) - 1 : -1], -1)


def divisor(normalization: str, text: str, ids: Sequence[int]) -> int:
    """N(a)."""
    return {"sum": 1, "token": len(ids), "word": len(text.split()) or 1}[normalization]


def whole_log_probs(
    policy: LLMPolicy, text: str, actions: Sequence[str], normalization: str, *, adapter: bool = True
) -> torch.Tensor:
    """TWOSOME's log mu of every action, `[n_actions]`, with gradient."""
    prompt, scores = policy.lm.prompt_ids(text), []
    for action in actions:
        ids = policy.lm.action_ids(action)
        log_probs = all_log_probs(policy, prompt, ids, adapter=adapter)
        scores.append(log_probs[range(len(ids)), ids].sum() / divisor(normalization, action, ids))
    return torch.log_softmax(torch.stack(scores), 0)


def children_after(prefix: tuple[int, ...], sequences: Sequence[tuple[int, ...]]) -> list[int]:
    """Tokens that continue a prefix, ascending."""
    n = len(prefix)
    return sorted({ids[n] for ids in sequences if len(ids) > n and ids[:n] == prefix})


def conditionals(
    log_mu: torch.Tensor, sequences: Sequence[tuple[int, ...]], prefix: tuple[int, ...]
) -> tuple[list[int], torch.Tensor]:
    """Children of a prefix and their log-probabilities, by summing mu over the actions below each."""

    def mass(start: tuple[int, ...]) -> torch.Tensor:
        return torch.logsumexp(log_mu[[k for k, ids in enumerate(sequences) if ids[: len(start)] == start]], 0)

    children = children_after(prefix, sequences)
    return children, torch.stack([mass((*prefix, child)) for child in children]) - mass(prefix)


# ------------------------------------------------------------------ a model with a vocabulary to enumerate

WORDS = ("wait", "<unk>", "press", "red", "<end>", "it")
"""Token 0 is a word and not padding; the end is neither 1 nor 2 nor last; there is no start token."""


def save_small_model(folder: Path, *, words: Sequence[str] = WORDS, scale: float = 3.0) -> str:
    """A random model of a few words, far from uniform."""
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<end>")
    shutil.rmtree(folder, ignore_errors=True)
    fast.save_pretrained(folder)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        config = LlamaConfig(
            vocab_size=len(words),
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=48,
            eos_token_id=words.index("<end>"),
            pad_token_id=None,
            bos_token_id=None,
        )
        model = LlamaForCausalLM(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(scale)
        model.save_pretrained(folder)
    return str(folder)
