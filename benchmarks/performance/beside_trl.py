"""Cost of training by TRL's `GRPOTrainer` and by this library, on the same task from the same start.

SmolLM2-135M trains on Tomato Salad: 8 environments, episodes of at most 16 steps, rollouts of 128 steps and one update
of each. All begin with one adapter, cloned from the oracle. TRL plays through `rollout_func`: a row is one environment
step, with the prompt of that step and the text that was written, and its reward is the return of its episode. Prompts,
texts, LoRA, optimiser, clipping and temperature are the same on both sides; `CONFIG` is TRL's whole configuration.

The careful loop (`benchmarks.performance.careful_loop`) acts and updates on the samples of a training of ours, which
is not timed, those of one environment; shown are all returns of that training. The loop computes full sequences, keeps
nothing from one pass to the next, and writes texts by transformers, as TRL does.

Each side runs in a process of its own with one thread, and they take turns: one rollout and one update at a time. Shown
are seconds of processor time per 1,000 environment steps, the peak of memory above the loaded model, and the return
and the success of the episodes that ended in each turn. Needs `trl` and `datasets` (docs/guide/bridges.md).

    python -m benchmarks measure beside-trl    # half an hour

Writes beside_trl.json and .png.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Annotated, Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
import typer
from matplotlib.figure import Figure
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv

import poad_sb3
from benchmarks.files import RESULTS, write_picture, write_result
from benchmarks.options import one_of
from benchmarks.performance.careful_loop import Distribution, Workload
from benchmarks.performance.our_loop import OurLoop, Setting
from benchmarks.performance.synthetic import TaskSizes
from benchmarks.performance.throughput import act, make_loop
from benchmarks.performance.timing import resident_bytes
from benchmarks.reports.plots import style
from benchmarks.reports.tables import show_records
from lang_envs.wrappers import TextAction
from poad_sb3.bc import BC, oracle_episodes, warm_start
from poad_sb3.export.export import export_policy
from poad_sb3.language_model import smollm2

TASK, MODEL, N_ENVS, N_STEPS, MAX_NEW_TOKENS, SEED = "Overcooked-TomatoSalad-v0", "smollm2", 8, 16, 16, 0
BATCH = N_ENVS * N_STEPS
LEARNING_RATE, CLIP_RANGE, MAX_GRAD_NORM = 5e-4, 0.2, 0.5
LORA = {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"]}
CONFIG: Mapping[str, Any] = {
    "max_steps": 10**6,
    # One update of 128 rows: log-probabilities need not be computed once more before it.
    "generation_batch_size": BATCH,
    "num_generations": BATCH,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": BATCH // 8,
    "num_iterations": 1,
    "max_completion_length": MAX_NEW_TOKENS,
    "temperature": 1.0,
    "learning_rate": LEARNING_RATE,
    "lr_scheduler_type": "constant",
    "weight_decay": 0.0,
    "adam_epsilon": 1e-5,
    "max_grad_norm": MAX_GRAD_NORM,
    "epsilon": CLIP_RANGE,
    "beta": 0.0,
    "loss_type": "dapo",  # the mean over all tokens of the batch
    "gradient_checkpointing": False,  # True by default, which costs a pass more
    "bf16": False,  # True by default, which most processors emulate
    "use_cpu": True,
    "seed": SEED,
    "report_to": "none",
    "save_strategy": "no",
    "logging_strategy": "no",
    "disable_tqdm": True,
}
_OURS: Mapping[str, Any] = {
    "n_steps": N_STEPS,
    "batch_size": BATCH,
    "n_epochs": 1,
    "learning_rate": LEARNING_RATE,
    "clip_range": CLIP_RANGE,
    "max_grad_norm": MAX_GRAD_NORM,
    "ent_coef": 0.0,
    "target_kl": None,
    "seed": SEED,
    "temperature": 1.0,
}
_FREE = {"action_sampling": "free", "max_new_tokens": MAX_NEW_TOKENS}
_GRPO = {"group_size": N_ENVS, "loss_reduction": "mean"}
_POAD = {"n_critic_epochs": 1}


class Side(NamedTuple):
    """A training of this library.

    Attributes:
        algorithm: Name of the algorithm.
        arguments: Arguments beside those that all have.
        shares_prefixes: Whether sequences that begin alike become a tree; without it only equal ones are computed once.
        caches_scores: Whether the scores of a state are kept until the weights change.
        is_careful: Whether the careful loop acts and updates instead.
    """

    algorithm: str
    arguments: Mapping[str, Any]
    shares_prefixes: bool = True
    caches_scores: bool = True
    is_careful: bool = False


TRL = "TRL GRPO, free text"
SIDES: Mapping[str, Side | None] = {
    TRL: None,
    "GRPO, free text": Side("GRPO", {**_GRPO, **_FREE}),
    "GRPO, free text, no shared prefixes": Side("GRPO", {**_GRPO, **_FREE}, shares_prefixes=False),
    "POAD, free text": Side("POAD", {**_POAD, **_FREE}),
    "GRPO, trie": Side("GRPO", _GRPO),
    "GRPO, trie, no cached scores": Side("GRPO", _GRPO, caches_scores=False),
    "GRPO, trie, no cached scores, no shared prefixes": Side("GRPO", _GRPO, shares_prefixes=False, caches_scores=False),
    "POAD, trie": Side("POAD", _POAD),
    "careful loop, free text": Side("POAD", {**_POAD, **_FREE}, is_careful=True),
    "careful loop, trie": Side("POAD", _POAD, is_careful=True),
}


class Turn(NamedTuple):
    """A rollout and its update.

    Attributes:
        seconds: Processor time.
        env_steps: Environment steps.
        returns: Returns of the episodes that ended.
        successes: Whether they reached their goal.
    """

    seconds: float
    env_steps: int
    returns: list[float]
    successes: list[bool]


class Turns:
    """A side's end of the pipe: it waits for its turn, and reports what the last one took."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._started = pipe, 0.0
        self.env_steps, self.returns, self.successes = 0, list[float](), list[bool]()
        self.loaded = 0

    def next(self) -> None:
        """End a turn and wait for the next; at the beginning of every rollout.

        Raises:
            SystemExit: If there is none.
        """
        if self._started:
            turn = Turn(time.process_time() - self._started, self.env_steps, self.returns, self.successes)
            self._pipe.send((turn, resident_bytes("VmHWM") - self.loaded))
        else:
            self._begin_peak()
        self.env_steps, self.returns, self.successes = 0, [], []
        if not self._pipe.recv():
            raise SystemExit
        self._started = time.process_time()

    def _begin_peak(self) -> None:
        ctypes.CDLL(None).malloc_trim(0)  # memory that is free but held would be used again without raising the peak
        Path("/proc/self/clear_refs").write_text("5")
        self.loaded = resident_bytes("VmRSS")

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Leave the time and the memory of a block out of the turn."""
        begun = time.process_time()
        yield
        self._started += time.process_time() - begun
        self._begin_peak()


class EpisodeRecorder(gym.Wrapper[Any, Any, Any, Any]):
    """Record the return and the success of episodes that end.

    Args:
        env: Environment.
        turns: Turns that count them.
    """

    def __init__(self, env: gym.Env[Any, Any], turns: Turns) -> None:
        super().__init__(env)
        self._turns, self._total = turns, 0.0

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self._total = 0.0
        return super().reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        self._total += float(reward)
        if terminated or truncated:
            self._turns.returns.append(self._total)
            self._turns.successes.append(bool(info["success"]))
        return observation, reward, terminated, truncated, info


def make_env(turns: Turns) -> gym.Env[Any, Any]:
    """Return an environment with episodes of at most `N_STEPS` steps."""
    return EpisodeRecorder(gym.make(TASK, max_episode_steps=N_STEPS), turns)


def clone(folder: Path, n_episodes: int, n_epochs: int) -> None:
    """Clone episodes of an oracle that often errs; write a checkpoint for ours and an adapter for TRL."""
    model = poad_sb3.POAD(
        "LLMPolicy", TASK, **{**_OURS, **_POAD, **_FREE}, policy_kwargs={"model": MODEL, "lora": LORA}
    )
    episodes = oracle_episodes(TASK, n_episodes, noise=0.3, seed=SEED)
    BC(model, episodes, batch_size=16, learning_rate=1e-3).train(n_epochs, 0)
    model.save(folder / "start")
    export_policy(model, folder / "adapter")


# ---------------------------------------------------------------------- the sides


class _AtRollouts(BaseCallback):
    """Waits for the next turn where a rollout begins."""

    def __init__(self, turns: Turns, side: Side) -> None:
        super().__init__()
        self.turns, self.side = turns, side

    def _on_rollout_start(self) -> None:
        self.turns.next()

    def _on_step(self) -> bool:
        self.turns.env_steps += int(self.locals["playing"].sum())  # the others wait for the end of a group
        if not self.side.caches_scores:
            self.model.policy.clear_caches()
        return True


def train_ours(side: Side, folder: Path, turns: Turns) -> None:
    """Train by this library, a turn at a time."""
    envs = DummyVecEnv([lambda: make_env(turns)] * N_ENVS)
    model = getattr(poad_sb3, side.algorithm)(
        "LLMPolicy", envs, **{**_OURS, **side.arguments}, policy_kwargs={"model": MODEL, "lora": LORA}
    )
    warm_start(model, folder / "start.zip")
    model.policy.lm.packs_trees &= side.shares_prefixes
    model.learn(10**9, _AtRollouts(turns, side))


def train_carefully(side: Side, folder: Path, turns: Turns) -> None:
    """Act and update by the careful loop on samples of a training of ours, a turn at a time."""
    generates = "max_new_tokens" in side.arguments
    workload = Workload(
        Distribution.VOCABULARY if generates else Distribution.TRIE, generates, MAX_NEW_TOKENS, CLIP_RANGE,
        ent_coef=_OURS["ent_coef"], max_grad_norm=MAX_GRAD_NORM, learning_rate=LEARNING_RATE,
    )  # fmt: skip
    shared = {name: _OURS[name] for name in ("clip_range", "max_grad_norm", "ent_coef", "temperature")}
    arguments = {**shared, **side.arguments}
    setting = Setting(
        poad_sb3.POAD, arguments, TaskSizes(), workload, N_STEPS, BATCH, n_epochs=1, n_envs=N_ENVS,
        make_env=lambda: make_env(turns), model=MODEL,
    )  # fmt: skip
    ours = OurLoop(setting)
    warm_start(ours.model, folder / "start.zip")
    while True:
        turns.next()
        with turns.uncounted():
            ours.rollout()
            samples, loop = ours.samples()[::N_ENVS], make_loop(ours)  # of one environment: it is slow
            ours.update()
        act(loop, samples, N_ENVS)
        loop.last_values([samples[-1].prompt])
        loop.minibatch(samples)
        turns.env_steps = len(samples)
        del loop


def train_trl(folder: Path, turns: Turns) -> None:
    """Train by TRL, a turn at a time."""
    from datasets import Dataset
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    from poad_sb3.prompts import ChatPrompt

    tokenizer = AutoTokenizer.from_pretrained(folder / "adapter", padding_side="left")
    base = AutoModelForCausalLM.from_pretrained(smollm2.fetch(), dtype=torch.float32)
    model = PeftModel.from_pretrained(base, folder / "adapter", is_trainable=True)
    for parameter in model.parameters():  # reads the weights from disk, so that they are not part of the peak
        parameter.detach().sum()
    envs = [TextAction(make_env(turns)) for _ in range(N_ENVS)]

    def prompt_of(observation: str) -> list[int]:
        messages = [{"role": "system", "content": ChatPrompt().system}, {"role": "user", "content": observation}]
        ids: list[int] = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=False, **ChatPrompt().arguments
        )
        return ids

    def write(prompts: list[list[int]]) -> list[list[int]]:
        padded = tokenizer.pad({"input_ids": prompts}, return_tensors="pt")
        with torch.no_grad():
            ids = model.generate(**padded, max_new_tokens=MAX_NEW_TOKENS, do_sample=True, temperature=1.0, top_k=0)
        texts = ids[:, padded["input_ids"].shape[1] :].tolist()
        ends = [text.index(tokenizer.eos_token_id) + 1 if tokenizer.eos_token_id in text else None for text in texts]
        return [text[:end] for text, end in zip(texts, ends, strict=True)]

    def play(_dataset: list[str], _trainer: GRPOTrainer) -> dict[str, Any]:
        turns.next()
        rows: dict[str, Any] = {"prompt_ids": [], "completion_ids": [], "logprobs": None}
        observations = [env.reset()[0] for env in envs]
        totals, ended, episodes, episode_of = [0.0] * N_ENVS, set[int](), list(range(N_ENVS)), list[int]()
        for _ in range(N_STEPS):
            prompts = [prompt_of(observation) for observation in observations]
            texts = write(prompts)
            rows["prompt_ids"] += prompts
            rows["completion_ids"] += texts
            episode_of += episodes
            for number, env in enumerate(envs):
                action = tokenizer.decode(texts[number], skip_special_tokens=True)
                observations[number], reward, terminated, truncated, _ = env.step(action)
                totals[episodes[number]] += float(reward)
                if terminated or truncated:
                    ended.add(episodes[number])
                    observations[number], episodes[number] = env.reset()[0], len(totals)
                    totals.append(0.0)
        turns.env_steps = BATCH
        # A row of an episode that has not ended has no reward, and TRL gives it the advantage 0.
        returns = [totals[episode] if episode in ended else None for episode in episode_of]
        return {**rows, "episode_return": returns}

    def episode_return(episode_return: list[float | None], **_: Any) -> list[float | None]:
        return episode_return

    GRPOTrainer(
        model=model,
        reward_funcs=episode_return,
        args=GRPOConfig(output_dir=str(folder / "trl"), **CONFIG),
        train_dataset=Dataset.from_list([{"prompt": "an episode"}] * 8),
        processing_class=tokenizer,
        rollout_func=play,
    ).train()


def run(name: str, folder: Path, pipe: Connection) -> None:
    """Train a side until there is no further turn; the work of a process."""
    torch.set_num_threads(1)
    turns, side = Turns(pipe), SIDES[name]
    with suppress(SystemExit):
        if side is None:
            train_trl(folder, turns)
        elif side.is_careful:
            train_carefully(side, folder, turns)
        else:
            train_ours(side, folder, turns)


# ---------------------------------------------------------------------- results


def take_turns(names: list[str], folder: Path, n_turns: int, note: Callable[[dict[str, Any]], None]) -> None:
    """Let the sides take turns, and pass the rows to `note` after each round."""
    # By default glibc returns large blocks of memory to the system at once. TRL uses the largest blocks, and by an
    # estimate would spend an eighth of its time on asking for them again.
    os.environ.update({"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(8 << 30)})
    context, pipes, processes = get_context("spawn"), dict[str, Connection](), []
    for name in names:
        pipes[name], child_end = context.Pipe()
        processes.append(context.Process(target=run, args=(name, folder, child_end), daemon=True))
        processes[-1].start()
        child_end.close()
    turns: dict[str, list[Turn]] = {name: [] for name in names}
    peaks: dict[str, int] = {}
    for _ in range(n_turns):
        for name, pipe in pipes.items():
            pipe.send(True)
            turn, peak = pipe.recv()
            peaks[name] = max(peak, peaks.get(name, 0))
            turns[name].append(turn)
        note({name: row(of, turns.get(TRL), peaks[name]) for name, of in turns.items()})
    for pipe in pipes.values():
        pipe.send(False)
    for process in processes:
        process.join(60)


def row(turns: list[Turn], others: list[Turn] | None, peak: int) -> dict[str, Any]:
    """Return the medians of a side, and the curves over its turns."""
    costs = [1e3 * turn.seconds / turn.env_steps for turn in turns]
    ratios = [1e3 * other.seconds / other.env_steps / cost for cost, other in zip(costs, others or (), strict=False)]
    return {
        "core_seconds_per_1000_steps": round(median(costs), 1),
        "times_cheaper_than_trl": round(median(ratios), 2) if ratios else None,
        "peak_mib": round(peak / 2**20),
        "env_steps": [turn.env_steps for turn in turns],
        "core_seconds": [round(turn.seconds, 1) for turn in turns],
        "mean_return": [round(sum(turn.returns) / max(1, len(turn.returns)), 3) for turn in turns],
        "n_success": [sum(turn.successes) for turn in turns],
        "n_episodes": [len(turn.successes) for turn in turns],
    }


@style()
def draw(rows: Mapping[str, Any]) -> Figure:
    """Draw the cost of each side, and its mean return over environment steps."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    names = list(rows)[::-1]
    bars = left.barh(names, [rows[name]["core_seconds_per_1000_steps"] for name in names], color="#2a6f97")
    left.bar_label(bars, fmt="{:,.0f}", padding=3)
    left.set(xlabel="core-seconds per 1,000 environment steps")
    left.margins(x=0.15)
    for name in rows:
        side = SIDES[name]
        if side is None or (side.shares_prefixes and side.caches_scores and not side.is_careful):
            right.plot(np.cumsum(rows[name]["env_steps"]), rows[name]["mean_return"], marker="o", label=name)
    right.set(xlabel="environment steps", ylabel="mean return of the episodes that ended")
    right.legend(fontsize=8)
    return figure


def beside_trl(
    side: Annotated[list[str] | None, one_of(SIDES, "Repeatable; by default all.")] = None,
    turns: Annotated[int, typer.Option(min=1, help="Rollouts and updates of each side.")] = 3,
    episodes: Annotated[int, typer.Option(min=1, help="Oracle episodes to clone first.")] = 20,
    epochs: Annotated[int, typer.Option(min=1, help="Passes of the cloning.")] = 3,
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = RESULTS,
) -> None:
    """Train by TRL and by this library in turns, and compare costs and returns."""
    torch.set_num_threads(1)

    def note(rows: dict[str, Any]) -> None:
        columns = ("core_seconds_per_1000_steps", "times_cheaper_than_trl", "peak_mib", "mean_return", "n_success")
        show_records("side", rows, columns, width=180)
        settings = {"trl": version("trl"), "config": dict(CONFIG), "oracle_episodes": episodes, "epochs": epochs}
        write_result("beside_trl", {**settings, "rows": rows}, out)
        write_picture(out / "beside_trl.png", draw(rows))

    with tempfile.TemporaryDirectory() as scratch:
        clone(Path(scratch), episodes, epochs)
        take_turns(side or list(SIDES), Path(scratch), turns, note)
