"""Language models of this machine: trained ones from checkpoints, and zero-shot ones."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from lang_bench.agents.base import JSON, Agent, AgentError, Decision, TokenCredit, Usage
from lang_bench.agents.texts import Reply, TextAgent
from lang_envs import LangEnv, TextSpace, TokenSequence
from lang_envs.wrappers.admissible import admissible_space

if TYPE_CHECKING:
    from poad_sb3.common.on_policy_algorithm import LLMOnPolicyAlgorithm
    from poad_sb3.common.policies import LLMPolicy, TextPolicy
    from poad_sb3.distributions import ActionDistribution
    from poad_sb3.distributions.base import SampledAction, TokenPath
    from poad_sb3.prompts import Question

    _Choice = tuple[ActionDistribution, Question, Sequence[str] | None, SampledAction]


_REMEMBERED = 4_096
"""Number of actions (with their prompts) whose values are kept; small tasks revisit the same ones."""
_ZERO_SHOT = ("candidates", "trie", "free", "think")


class PolicyAgent(Agent):
    """An `LLMPolicy`, as it was trained to act.

    Args:
        name: Name in tables.
        policy: Policy that acts.
        settings: Values that identify the agent.
        deterministic: Whether to choose the most probable action instead of sampling.
        whole_values: Whether the critic values whole actions only; every token then has the value before the action.
        critics: Policies by name whose critics value the same actions, in recorded steps.
    """

    def __init__(
        self,
        name: str,
        policy: TextPolicy,
        settings: Mapping[str, JSON],
        *,
        deterministic: bool,
        whole_values: bool = False,
        critics: Mapping[str, LLMPolicy] = MappingProxyType({}),
    ) -> None:
        from poad_sb3.distributions.base import ScoreCache
        from poad_sb3.vec_env.text_observations import episode_context

        self.name, self.settings = name, {**settings, "deterministic": deterministic}
        self.policy = policy
        self._deterministic, self._whole_values, self._critics = deterministic, whole_values, critics
        self._scores = ScoreCache([parameter for parameter in policy.parameters() if parameter.requires_grad])
        self.read = lru_cache(_REMEMBERED)(self._read_path)  # the weights stay the same here
        self._context, self._has_begun = episode_context(policy.lm.prompter.template.context_spec), False
        self._rng = np.random.default_rng()
        self._chosen: _Choice | None = None
        self._past: tuple[int, ...] = ()

    @classmethod
    def of(cls, model: LLMOnPolicyAlgorithm, *, deterministic: bool = False) -> Self:
        """Let a model act as it is now; its chance comes from the seed of the episode alone."""
        whole = model.credit_level == "action"
        return cls(type(model).__name__, model.policy, {}, deterministic=deterministic, whole_values=whole)

    def begin(self, env: LangEnv[Any], seed: int) -> None:
        self._rng = np.random.default_rng([seed, 1])  # the environment draws from [seed]
        self._context, self._has_begun, self._chosen = self._context.begun(""), False, None
        self._past = ()

    def act(self, observation: str, info: Mapping[str, Any]) -> Decision:
        """See `Agent.act`."""
        self._see(observation)
        actions = info["admissible_actions"]
        question = self._question(observation, actions, info)
        chosen = self._choose(self.policy.distribution, question)
        self._past = self.policy.past_after(chosen.path)
        self._chosen = self.policy.distribution, question, actions, chosen
        credit = None
        if self.records_steps and len(chosen.log_probs) == len(chosen.path.action):  # BADQ knows the whole action alone
            tokens, values = self.read(chosen.path)
            credit = TokenCredit(tokens, tuple(chosen.log_probs.tolist()), values)
        return Decision(chosen.text, self._usage(chosen), credit, self.policy.thought_of(chosen))

    def step_fields(self) -> Mapping[str, JSON]:
        """See `Agent.step_fields`."""
        from poad_sb3.common.token_fields import token_fields

        if self._chosen is None:
            return {}
        judged = {name: self._values_by(policy, self._chosen) for name, policy in self._critics.items()}
        return {**token_fields(*self._chosen, self._scores), **({"critic_values": judged} if judged else {})}

    def _values_by(self, critic: LLMPolicy, chosen: _Choice) -> list[float]:
        """Return the values before the tokens of an action by the critic of another policy."""
        from poad_sb3.distributions.base import Leaves

        _, question, actions, sampled = chosen
        path = sampled.path
        if critic.critic is not None and critic.critic.reads_leaves and actions is not None:
            by_text = self.policy.action_probabilities(question.text, actions)
            leaves = Leaves(tuple(map(critic.lm.action_ids, actions)), tuple(by_text[action] for action in actions))
            path = path._replace(leaves=leaves)
        values: list[float] = critic.token_values([path]).values[0].tolist()
        return values if len(values) == len(path.action) else values[:1] * len(path.action)

    def final_value(self, observation: str, info: Mapping[str, Any]) -> float | None:
        """See `Agent.final_value`."""
        from poad_sb3.distributions.base import TokenPath

        question = self._question(observation, info["admissible_actions"], info)
        values = self._values(TokenPath(self.policy.distribution.prompt(question), (0,), ()))
        return values[0] if values else None

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

    def _question(self, text: str, actions: Sequence[str] | None, info: Mapping[str, Any]) -> Question:
        from poad_sb3.vec_env.text_observations import question_of

        return question_of(text, actions, info, self._context)._replace(past=self._past)

    def _choose(self, distribution: ActionDistribution, question: Question) -> SampledAction:
        if self._deterministic:
            return distribution.mode([question], self._scores)[0]
        return distribution.sample([question], [self._rng], self._scores)[0]

    def _usage(self, chosen: SampledAction) -> Usage:
        return Usage(0, len(chosen.path.prompt), len(chosen.path.action))

    def _read_path(self, path: TokenPath) -> tuple[tuple[str, ...], tuple[float, ...]]:
        """Return the text of each token of an action, and the value before it."""
        from poad_sb3.common.token_fields import token_texts

        return tuple(token_texts(self.policy.lm.tokenizer, path.prompt, path.action)), self._values(path)

    def _values(self, path: TokenPath) -> tuple[float, ...]:
        policy = cast("LLMPolicy", self.policy)
        if not hasattr(policy, "token_values") or policy.critic is None:
            return ()
        values: list[float] = policy.token_values([path]).values[0].tolist()
        return tuple(values[:1] * len(values) if self._whole_values else values)


class ZeroShotAgent(PolicyAgent, TextAgent):
    """A language model without training: it ranks the admissible actions, or writes freely.

    It writes freely where any text is an action, and where a wrapper requests text. A text that it writes on a task
    with listed actions is matched as any text is; see `TextAgent`.

    Args:
        name: Name in tables.
        policy: Untrained policy around the language model; it ranks or writes.
        settings: Values that identify the agent.
        writer: Action distribution for free text.
        ranks: Whether to rank the admissible actions where they are listed.
        deterministic: Whether to choose the most probable action, or tokens, instead of sampling.
    """

    def __init__(
        self,
        name: str,
        policy: TextPolicy,
        settings: Mapping[str, JSON],
        *,
        writer: ActionDistribution,
        ranks: bool,
        deterministic: bool,
    ) -> None:
        super().__init__(name, policy, settings, deterministic=deterministic)
        self._writer, self._ranks = writer, ranks
        self._info: Mapping[str, Any] = {}
        self.needs_info = self._context.is_wanted

    def act(self, observation: str, info: Mapping[str, Any]) -> Decision:
        """See `Agent.act`."""
        self._info = info  # for prompts that show fields of it
        if self._ranks and info["admissible_actions"] is not None:
            return PolicyAgent.act(self, observation, info)
        self._see(observation)
        self._chosen = None  # the text may be matched to another action than the tokens
        return TextAgent.act(self, observation, info)

    def reply(self, prompt: str) -> Reply:
        """See `TextAgent.reply`."""
        chosen = self._choose(self._writer, self._question(prompt, None, self._info))
        return Reply(chosen.text, self._usage(chosen), self.policy.thought_of(chosen))

    def final_value(self, observation: str, info: Mapping[str, Any]) -> None:
        """Return None: it has no critic."""

    def _values(self, path: TokenPath) -> tuple[float, ...]:
        return ()


def checkpoint(
    path: str,
    *,
    deterministic: bool = False,
    device: str = "auto",
    model: str | None = None,
    revision: str | None = None,
    critics: str = "",
) -> PolicyAgent:
    """Return a saved POAD, NTPO, TWOSOME, GLAM, ARCHER or BADQ: a checkpoint, or the folder of a run.

    Args:
        path: Path of the checkpoint or run folder.
        deterministic: Whether to choose the most probable action instead of sampling.
        device: Torch device, or `"auto"`.
        model: Present location of the base model, if it has moved.
        revision: Revision of the base model there, if it has moved.
        critics: Paths of further checkpoints or runs of the same base model, with commas between: recorded steps have
            the credit by each of their critics.

    Raises:
        AgentError: If the path is empty, or a further checkpoint has no critic or another base model.
        PoadError: If the checkpoint cannot be loaded.
    """
    from poad_sb3.runs.loading import find_checkpoint, load_checkpoint

    if not path:
        raise AgentError("Expected the path of a checkpoint or of a run; got none. Fix: checkpoint:PATH.")
    file, _ = find_checkpoint(Path(path))
    moved = {name: value for name, value in (("model", model), ("revision", revision)) if value is not None}
    trained = load_checkpoint(file, device=device, policy_kwargs=moved)
    judges = {}
    for other in filter(None, critics.split(",")):
        judge: Any = load_checkpoint(find_checkpoint(Path(other))[0], device=device, policy_kwargs=moved).policy
        has_values = hasattr(judge, "token_values") and judge.critic is not None
        if not has_values or judge.lm.fingerprint != trained.policy.lm.fingerprint:
            raise AgentError(
                f"Expected critics of trainings on the same base model; {other} has none, or another model. "
                "Fix: another checkpoint."
            )
        if judge.critic.reads_leaves and getattr(trained.policy.distribution, "mixes_choices", False):
            raise AgentError(
                f"Expected critics of paths with thoughts; that of {other} averages over listed actions alone. "
                "Fix: a checkpoint with another critic."
            )
        judges[other] = judge
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
        whole_values=getattr(trained, "credit_level", None) == "action",
        critics=judges,
    )


def zoo(row: str, *, deterministic: bool = False, device: str = "auto") -> PolicyAgent:
    """Return an agent of the zoo, shipped or trained here. Its critic is not in the zoo, so that it has no values.

    Args:
        row: Name as in `poad zoo list`, or as much of it from the left as is unique.
        deterministic: Whether to choose the most probable action instead of sampling.
        device: Torch device, or `"auto"`.

    Raises:
        CheckpointError: If there is no such agent, or its file is damaged.
    """
    import poad_sb3
    from poad_sb3.zoo.adapters import load_adapter
    from poad_sb3.zoo.rows import find_agent

    trained_row, file = find_agent(row)
    trained: Any = load_adapter(getattr(poad_sb3, trained_row.method), file, trained_row.sha256, device=device)
    trained.policy.critic = None
    settings: dict[str, JSON] = {"row": trained_row.name, "steps": trained_row.steps, "sha256": trained_row.sha256}
    return PolicyAgent(f"zoo:{trained_row.name}", trained.policy, settings, deterministic=deterministic)


def zero_shot(
    model: str,
    *,
    action_sampling: str = "candidates",
    normalization: str = "token",
    deterministic: bool = True,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    max_new_tokens: int = 128,
    max_thought_tokens: int = 32,
    stop: Sequence[str] = (),
    prompt: Any = "auto",
    dtype: str = "float32",
    quantization: Any = None,
    attn_implementation: str | None = None,
    revision: str | None = None,
    device: str = "auto",
) -> ZeroShotAgent:
    """Return a language model as it comes, in its own chat template where it has one.

    Args:
        model: `"pocket"`, `"smollm2"`, a folder, a GGUF file, or an id of the Hugging Face hub.
        action_sampling: Action distribution where actions are listed: `"candidates"` ranks them whole, `"trie"`
            chooses among them token by token, `"think"` does so behind a thought, `"free"` writes.
        normalization: Divisor of log-probabilities with `"candidates"`: `"token"` or `"word"` (number of tokens or of
            words), `"sum"` (1: not normalized by length).
        deterministic: Whether to choose the most probable action, or tokens, instead of sampling.
        temperature: Sampling temperature; like `top_k` and `top_p`, for `deterministic=False` only.
        top_k: See `SamplingSettings`.
        top_p: See `SamplingSettings`.
        max_new_tokens: Maximum number of tokens of a written action.
        max_thought_tokens: Maximum number of tokens of a thought.
        stop: Texts that end a written action.
        prompt: See `LLMPolicy`.
        dtype: See `LLMPolicy`.
        quantization: See `LLMPolicy`.
        attn_implementation: See `LLMPolicy`.
        revision: See `LLMPolicy`.
        device: Torch device, or `"auto"`.

    Raises:
        AgentError: If there is no model, or `action_sampling` is unknown.
        PoadError: If the model cannot be loaded.
    """
    if not model:
        raise AgentError(
            "Expected a model; got none. Fix: hf:smollm2, hf:FOLDER or hf:ID, such as hf:Qwen/Qwen2.5-0.5B-Instruct."
        )
    if action_sampling not in _ZERO_SHOT:
        raise AgentError(f"Expected action_sampling to be one of {list(_ZERO_SHOT)}; got {action_sampling!r}.")
    if deterministic and (temperature, top_k, top_p) != (1.0, 0, 1.0):
        raise AgentError(
            "Expected deterministic=false with temperature, top_k or top_p, which are about samples; got true. "
            "Fix: --agent-set deterministic=false, or leave them out."
        )
    if normalization != "token" and action_sampling != "candidates":
        raise AgentError(
            f"Expected action_sampling='candidates' with normalization; got {action_sampling!r}. Fix: leave one out."
        )
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
    if action_sampling == "think":
        of_model["max_thought_tokens"] = max_thought_tokens
    from stable_baselines3.common.utils import get_device

    from poad_sb3 import LLMPolicy
    from poad_sb3.distributions.free import FreeDistribution
    from poad_sb3.settings.sampling import SamplingSettings

    # Actions are texts, so the policy's spaces belong to no environment.
    target, spaces = get_device(device), (admissible_space(TextSpace(1)), TokenSequence())
    policy = LLMPolicy(*spaces, lambda _: 0.0, device=target, action_sampling=action_sampling, **of_model).to(target)
    settings = {**of_model, "action_sampling": action_sampling, "fingerprint": policy.lm.fingerprint}
    sampling = {name: of_model[name] for name in ("max_new_tokens", "stop", "temperature", "top_k", "top_p")}
    thinks = action_sampling == "think"
    writer = policy.distribution if thinks else FreeDistribution(policy.lm, SamplingSettings(**sampling))
    ranks = action_sampling != "free"
    return ZeroShotAgent(f"hf:{model}", policy, settings, writer=writer, ranks=ranks, deterministic=deterministic)
