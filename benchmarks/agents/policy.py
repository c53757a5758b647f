"""Language models of this machine: trained ones from checkpoints, fresh ones, and zero-shot ones."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.agents.base import JSON, Agent, AgentError, Decision, TokenCredit, Usage
from benchmarks.agents.texts import Reply, TextAgent
from lang_envs import LangEnv, TextSpace, TokenSequence
from lang_envs.wrappers.admissible import EpisodeContext, admissible_observation, admissible_space

if TYPE_CHECKING:
    from poad_sb3.choosers import Chooser, Chosen
    from poad_sb3.paths import TokenPath
    from poad_sb3.policies import LLMPolicy

__all__ = ["PolicyAgent", "ZeroShotAgent", "checkpoint", "untrained", "zero_shot"]

_REMEMBERED = 4_096
"""Actions in their situations whose values are kept: small tasks come back to the same ones."""
_ZERO_SHOT = ("candidates", "trie", "free")
_MAX_NEW_TOKENS = 128


class PolicyAgent(Agent):
    """An `LLMPolicy`, as it was trained to act.

    Args:
        name: For tables.
        policy: The policy.
        settings: What identifies it.
        deterministic: The most probable action instead of a sample.
        whole_values: Whether the critic knows whole actions only: then every token of one has the value before it.
        writer: How it acts where nothing is listed; None for the policy's own way.
    """

    def __init__(
        self,
        name: str,
        policy: LLMPolicy,
        settings: Mapping[str, JSON],
        *,
        deterministic: bool,
        whole_values: bool = False,
        writer: Chooser | None = None,
    ) -> None:
        from poad_sb3.rows import Memo, ScoreCache

        self.name, self.settings = name, {**settings, "deterministic": deterministic}
        self.policy = policy
        self._deterministic, self._whole_values, self._writer = deterministic, whole_values, writer
        self._scores = ScoreCache(policy.adapter_parameters())
        self._read = Memo(self._read_path, _REMEMBERED)  # nobody changes the weights here
        needs = policy.lm.prompter.template.needs
        self._context, self._has_begun = EpisodeContext(needs.history, needs.fields), False
        self._rng = np.random.default_rng()

    def begin(self, env: LangEnv[Any], seed: int) -> None:
        """See `Agent.begin`."""
        self._rng = np.random.default_rng([seed, 1])  # the environment draws from [seed]
        self._context, self._has_begun = self._context.begun(""), False

    def act(self, observation: str, info: Mapping[str, Any]) -> Decision:
        """See `Agent.act`."""
        self._see(observation)
        actions = info["admissible_actions"]
        chooser = self._writer if self._writer is not None and actions is None else self.policy.chooser
        chosen = self._choose(chooser, observation, actions, info)
        return Decision(chosen.text, self._usage(chosen), self._credit(chosen))

    def _see(self, observation: str) -> None:
        if not self._has_begun:
            self._context, self._has_begun = self._context.begun(observation), True

    def observe(
        self,
        decision: Decision,
        observation: str,
        reward: float,
        terminated: bool,
        truncated: bool,
        info: Mapping[str, Any],
    ) -> None:
        """See `Agent.observe`."""
        self._context = self._context.after(decision.text, observation)

    def _choose(self, chooser: Chooser, text: str, actions: Sequence[str] | None, info: Mapping[str, Any]) -> Chosen:
        from poad_sb3.observations import parse_observation

        packed = self._context.pack(dict(info)) if self._context.is_wanted else None
        questions = parse_observation(admissible_observation(text, actions, packed))[0]
        rngs = None if self._deterministic else [self._rng]
        return chooser.choose(questions, rngs, self._scores)[0]

    def _usage(self, chosen: Chosen) -> Usage:
        return Usage(0, len(chosen.path.prompt), len(chosen.path.action))

    def _credit(self, chosen: Chosen) -> TokenCredit | None:
        if len(chosen.log_probs) != len(chosen.path.action):  # BADQ knows the whole action alone
            return None
        tokens, values = self._read(chosen.path)
        return TokenCredit(tokens, tuple(chosen.log_probs.tolist()), values)

    def _read_path(self, path: TokenPath) -> tuple[tuple[str, ...], tuple[float, ...]]:
        """Text of each token of an action, and value before it."""
        from poad_sb3.generations import token_texts

        return tuple(token_texts(self.policy.lm.tokenizer, path.prompt, path.action)), self._values(path)

    def _values(self, path: TokenPath) -> tuple[float, ...]:
        values: list[float] = self.policy.token_values([path]).values.tolist()
        return tuple(values[:1] * len(values) if self._whole_values else values)


class ZeroShotAgent(PolicyAgent, TextAgent):
    """A language model as it comes, which ranks the admissible actions, or writes freely.

    It writes freely where any text is an action, and where what wraps it asks. What it writes on a task that lists
    actions is understood as any text is; see `TextAgent`.

    Args:
        name: For tables.
        policy: A fresh policy around it, which ranks or writes.
        settings: What identifies it.
        writer: How it writes.
        ranks: Whether it ranks where there is a list.
        deterministic: The most probable action, or tokens, instead of a sample.
    """

    def __init__(
        self,
        name: str,
        policy: LLMPolicy,
        settings: Mapping[str, JSON],
        *,
        writer: Chooser,
        ranks: bool,
        deterministic: bool,
    ) -> None:
        super().__init__(name, policy, settings, deterministic=deterministic, writer=writer)
        self._written_by, self._ranks = writer, ranks
        self._info: Mapping[str, Any] = {}
        self.needs_info = self._context.is_wanted

    def act(self, observation: str, info: Mapping[str, Any]) -> Decision:
        """See `Agent.act`."""
        self._info = info  # for prompts that show fields of it
        if self._ranks and info["admissible_actions"] is not None:
            return PolicyAgent.act(self, observation, info)
        self._see(observation)
        return TextAgent.act(self, observation, info)

    def reply(self, prompt: str) -> Reply:
        """See `TextAgent.reply`."""
        chosen = self._choose(self._written_by, prompt, None, self._info)
        return Reply(chosen.text, self._usage(chosen))

    def _values(self, path: TokenPath) -> tuple[float, ...]:
        return ()  # it has no critic


def checkpoint(
    path: str,
    *,
    deterministic: bool = False,
    device: str = "auto",
    model: str | None = None,
    revision: str | None = None,
) -> PolicyAgent:
    """A saved POAD, NTPO, TWOSOME, GLAM, ARCHER or BADQ: a checkpoint, or the folder of a run.

    Args:
        path: Of either.
        deterministic: The most probable action instead of a sample.
        device: Torch device, or `"auto"`.
        model: Where the base model is now, if it has moved.
        revision: Of it, likewise.

    Raises:
        AgentError: Without a path.
        PoadError: If it cannot be loaded.
    """
    from poad_sb3.loading import find_checkpoint, load_checkpoint
    from poad_sb3.rollouts import CreditLevel

    if not path:
        raise AgentError("Expected the path of a checkpoint or of a run; got none. Fix: checkpoint:PATH.")
    file, _ = find_checkpoint(Path(path))
    moved = {name: value for name, value in (("model", model), ("revision", revision)) if value is not None}
    trained = load_checkpoint(file, device=device, policy_kwargs=moved)
    settings: dict[str, JSON] = {
        "algorithm": type(trained).__name__,
        "steps": trained.num_timesteps,
        "model": trained.policy.lm.source.name,
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
    }
    return PolicyAgent(
        f"checkpoint:{path}",
        trained.policy,
        settings,
        deterministic=deterministic,
        whole_values=getattr(trained, "credit_level", None) == CreditLevel.ACTION,
    )


def untrained(
    model: str = "pocket",
    *,
    acting: str = "trie",
    deterministic: bool = False,
    prompt: Any = "auto",  # noqa: ANN401 - a PromptSpec
    dtype: str = "float32",
    quantization: Any = None,  # noqa: ANN401 - as LLMPolicy takes it
    revision: str | None = None,
    device: str = "auto",
) -> PolicyAgent:
    """A fresh POAD: what training begins from. Its critic expects 0 everywhere.

    Args:
        model: `"pocket"`, `"pocket-coder"`, a folder, or an id of the Hugging Face hub.
        acting: `"trie"`, `"candidates"` or `"free"`, see `poad_sb3.choosers.ActionSampling`; where nothing is listed it
            writes freely in any case.
        deterministic: The most probable action instead of a sample.
        prompt: See `LLMPolicy`.
        dtype: See `LLMPolicy`.
        quantization: See `LLMPolicy`.
        revision: See `LLMPolicy`.
        device: Torch device, or `"auto"`.

    Raises:
        PoadError: If the model cannot be loaded.
        ValueError: For an unknown way to act.
    """
    from poad_sb3.choosers import FreeChooser
    from poad_sb3.generation import Limits
    from poad_sb3.sampling import TokenSampling

    model = model or "pocket"
    of_model = {"model": model, "revision": revision, "dtype": dtype, "quantization": quantization, "prompt": prompt}
    policy = _fresh(device, action_sampling=acting, **of_model)
    settings: dict[str, JSON] = {**of_model, "acting": acting, "fingerprint": policy.lm.fingerprint}
    writer = FreeChooser(policy.lm, Limits(_MAX_NEW_TOKENS), TokenSampling())
    return PolicyAgent(f"untrained:{model}", policy, settings, deterministic=deterministic, writer=writer)


def zero_shot(
    model: str,
    *,
    acting: str = "candidates",
    normalization: str = "token",
    deterministic: bool = True,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    max_new_tokens: int = _MAX_NEW_TOKENS,
    stop: Sequence[str] = (),
    prompt: Any = "auto",  # noqa: ANN401 - a PromptSpec
    dtype: str = "float32",
    quantization: Any = None,  # noqa: ANN401 - as LLMPolicy takes it
    attn_implementation: str | None = None,
    revision: str | None = None,
    device: str = "auto",
) -> ZeroShotAgent:
    """A language model as it comes, in its own chat template where it has one.

    Args:
        model: `"pocket"`, a folder, or an id of the Hugging Face hub.
        acting: Where actions are listed: `"candidates"` ranks them whole, `"trie"` chooses among them token by token,
            `"free"` writes.
        normalization: What `"candidates"` divides log-probabilities by: `"token"` or `"word"` (their number), `"sum"`
            (1: not by length).
        deterministic: The most probable action, or tokens, instead of a sample.
        temperature: Of sampled writing, as are the next two.
        top_k: See `TokenSampling`.
        top_p: See `TokenSampling`.
        max_new_tokens: Of a written action.
        stop: Texts that end it.
        prompt: See `LLMPolicy`.
        dtype: See `LLMPolicy`.
        quantization: See `LLMPolicy`.
        attn_implementation: See `LLMPolicy`.
        revision: See `LLMPolicy`.
        device: Torch device, or `"auto"`.

    Raises:
        AgentError: Without a model, or for an unknown way to act.
        PoadError: If the model cannot be loaded.
    """
    from poad_sb3.choosers import FreeChooser
    from poad_sb3.generation import Limits
    from poad_sb3.sampling import TokenSampling

    if not model:
        raise AgentError("Expected a model; got none. Fix: hf:FOLDER or hf:ID, such as hf:Qwen/Qwen2.5-0.5B-Instruct.")
    if acting not in _ZERO_SHOT:
        raise AgentError(f"Expected acting to be one of {list(_ZERO_SHOT)}; got {acting!r}.")
    stop = (stop,) if isinstance(stop, str) else tuple(stop)
    of_model: dict[str, Any] = {
        "model": model,
        "revision": revision,
        "dtype": dtype,
        "quantization": quantization,
        "attn_implementation": attn_implementation,
        "prompt": prompt,
        "candidate_normalization": normalization,
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "stop": stop,
    }
    policy = _fresh(device, action_sampling=acting, **of_model)
    writer = FreeChooser(policy.lm, Limits(max_new_tokens, stop), TokenSampling(temperature, top_k, top_p))
    settings: dict[str, JSON] = {**of_model, "acting": acting, "fingerprint": policy.lm.fingerprint}
    ranks = acting != "free"
    return ZeroShotAgent(f"hf:{model}", policy, settings, writer=writer, ranks=ranks, deterministic=deterministic)


def _fresh(device: str, **arguments: Any) -> LLMPolicy:  # noqa: ANN401 - of LLMPolicy
    """A policy that nobody has trained; the spaces are those of no environment, since it says actions as texts."""
    from stable_baselines3.common.utils import get_device

    from poad_sb3 import LLMPolicy

    place = get_device(device)
    policy = LLMPolicy(admissible_space(TextSpace(1)), TokenSequence(), lambda _: 0.0, device=place, **arguments)
    moved: LLMPolicy = policy.to(place)
    return moved
