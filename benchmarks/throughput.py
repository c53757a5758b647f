"""Cost of an environment step in training, ours and two plain loops': `python -m benchmarks.throughput`.

Four workloads: POAD by the trie (the default), POAD with the published ratio (`paper_mode`), TWOSOME, and POAD on code,
on the sizes of `benchmarks.synthetic`; vocabularies of 2,000 and 32,000. `benchmarks.baseline_loop` says what the two
other loops do. All get the same weights, prompts and actions. They are first checked to give the same
log-probabilities, values and gradients, then timed in turns.

Shown are milliseconds per environment step in rollout and update (processor time of one thread on a CPU, wall time on a
GPU), environment steps a second, peak memory above that of the loaded model (a process for each), and token positions
through the model, padding included, beside the fewest that compute the same without sharing anything between samples:

    POAD     score P + sum_k (A_k - 1), values P + A - 1, update E x 2 (P + A - 1)
    TWOSOME  score S = P + sum_k (A_k - 1), value P, update E x 2 S
    code     write P + A - 1, values P + A - 1, update E x 2 (P + A - 1)

with P tokens of prompt, A of the action, A_k of candidate k, E epochs, and 2 for forward and backward. By the trie
fewer will do: nothing behind the last token at which there is a choice is ever run.

    python -m benchmarks.throughput
    python -m benchmarks.throughput --device cuda --model-size 7b --dtype bfloat16 --workload code

Writes results/throughput.json (on a CPU), or results/throughput_DEVICE_SIZE.json.
"""

from __future__ import annotations

import argparse
import copy
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from stable_baselines3.common.callbacks import CallbackList
from stable_baselines3.common.vec_env import DummyVecEnv

from benchmarks.baseline_loop import BaselineLoop, CompetentLoop, Distribution, ReferenceLoop, Sample, Workload
from benchmarks.environment import RESULTS, describe_machine
from benchmarks.synthetic import MODELS, SyntheticTask, TaskSizes, make_model
from poad_sb3 import POAD, TWOSOME, generation
from poad_sb3.on_policy import LLMOnPolicyAlgorithm

LOOPS: dict[str, type[BaselineLoop]] = {"reference": ReferenceLoop, "competent": CompetentLoop}


class Setting(NamedTuple):
    """A workload, for our algorithm and for the loops.

    Attributes:
        algorithm: Ours.
        arguments: Of its constructor.
        sizes: Of the task.
        workload: For the loops.
        n_steps: Of a rollout, in each of 4 environments.
        batch_size: Samples of a minibatch.
        n_epochs: Of policy and critic.
        timed_samples: Samples of a minibatch that the reference is timed on: its time is linear in them here.
    """

    algorithm: type[LLMOnPolicyAlgorithm]
    arguments: dict[str, Any]
    sizes: TaskSizes
    workload: Workload
    n_steps: int = 16
    batch_size: int = 64
    n_epochs: int = 5
    timed_samples: int = 64


_CODE = TaskSizes(candidates=None, action=(72, 128))
SETTINGS = {
    "poad": Setting(POAD, {}, TaskSizes(), Workload(Distribution.TRIE)),
    "poad-published": Setting(
        POAD,
        {"action_sampling": "candidates", "paper_mode": True},
        TaskSizes(),
        Workload(Distribution.VOCABULARY),
    ),
    "twosome": Setting(
        TWOSOME, {}, TaskSizes(), Workload(Distribution.CANDIDATES, samples_at_once=8), timed_samples=16
    ),
    "code": Setting(
        POAD,
        {"action_sampling": "free", "max_new_tokens": 128},
        _CODE,
        Workload(Distribution.VOCABULARY, generates=True),
        n_steps=8,
        batch_size=8,
        n_epochs=1,
        timed_samples=8,
    ),
}
_N_ENVS = 4


class Options(NamedTuple):
    """What a run is about; see the command line."""

    vocabulary: int
    model_size: str = "6m"
    dtype: str = "float32"
    device: str = "cpu"
    seed: int = 0


class Cost(NamedTuple):
    """Of an environment step: milliseconds, and token positions through the model."""

    rollout_ms: float
    update_ms: float
    forward: float
    backward: float

    @property
    def total_ms(self) -> float:
        """Rollout and update."""
        return self.rollout_ms + self.update_ms


class PositionCounter:
    """Token positions through the first layer of a model, padding included.

    Args:
        base: A transformers model.
    """

    def __init__(self, base: Any) -> None:  # noqa: ANN401 - transformers has no types
        self.forward = self.backward = 0
        base.get_decoder().layers[0].register_forward_pre_hook(self._count, with_kwargs=True)

    def _count(self, module: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        hidden = args[0] if args else kwargs["hidden_states"]
        n = hidden.shape[0] * hidden.shape[1]
        self.forward += n
        self.backward += n * torch.is_grad_enabled()

    def take(self) -> tuple[int, int]:
        """What was counted since the last call."""
        counted, self.forward, self.backward = (self.forward, self.backward), 0, 0
        return counted


# ---------------------------------------------------------------------- ours


class OurLoop:
    """The library's own training, of which rollout and update can be run alone.

    Args:
        setting: The workload.
        options: Of the run.
        n_envs: Environments.
        changes: Arguments of the algorithm, over those of the setting.
    """

    def __init__(self, setting: Setting, options: Options, n_envs: int = _N_ENVS, **changes: Any) -> None:  # noqa: ANN401
        make = partial(make_model, options.model_size, options.vocabulary, options.dtype, options.device)
        sizes = {"n_steps": setting.n_steps, "batch_size": setting.batch_size, "n_epochs": setting.n_epochs}
        arguments = {**sizes, "n_critic_epochs": setting.n_epochs, **setting.arguments, **changes}
        of_policy = {"model": make, "dtype": options.dtype, **arguments.pop("policy_kwargs", {})}
        rate = setting.workload.learning_rate
        self.setting = setting
        self.model = setting.algorithm(
            "LLMPolicy", DummyVecEnv([partial(SyntheticTask, setting.sizes)] * n_envs), learning_rate=rate,
            critic_learning_rate=rate, target_kl=None, seed=options.seed, device=options.device,
            policy_kwargs=of_policy, **arguments,
        )  # fmt: skip
        _randomise(self.model)
        self.counter = PositionCounter(self.model.policy.lm.base)
        _, self._callback = self.model._setup_learn(10**9, CallbackList([]))
        self._script = np.random.default_rng(options.seed + 1)

    def rollout(self) -> None:
        """Fill the buffer."""
        model = self.model
        assert model.env is not None
        with _scripted(self._action) if self.setting.workload.generates else nullcontext():
            model.collect_rollouts(model.env, self._callback, model.rollout_buffer, model.n_steps)

    def update(self) -> None:
        """All epochs on the rollout."""
        self.model.train()

    def _action(self) -> list[int]:
        shortest, longest = self.setting.sizes.action
        words = self._script.integers(10, 800, self._script.integers(shortest - 1, longest))
        return [*map(int, words), self.model.policy.lm.end_token]

    def samples(self) -> list[Sample]:
        """The rollout, as the other loops want it."""
        buffer, listed = self.model.rollout_buffer, self._listed()
        flat, found = buffer.everything(), []
        for number, path in enumerate(flat.paths):
            units = slice(int(buffer._offsets[number]), int(buffer._offsets[number + 1]))
            chosen = flat.is_decision[units]
            candidates, divisors = listed.get(path.prompt, ((path.action,), (1.0,)))
            of_policy = (flat.old_log_prob[units][chosen], flat.advantages[units][chosen])
            of_critic = (flat.old_values[units], flat.returns[units])
            pick = candidates.index(path.action)
            found.append(Sample(path.prompt, candidates, divisors, pick, path.decisions, *of_policy, *of_critic))
        return found

    def _listed(self) -> dict[tuple[int, ...], tuple[tuple[tuple[int, ...], ...], tuple[float, ...]]]:
        """Candidates and their N(a) after each prompt that lists some."""
        assert self.model.env is not None
        lm = self.model.policy.lm
        return {
            lm.prompt_ids(text): (tuple(map(lm.action_ids, actions)), tuple(float(len(one.split())) for one in actions))
            for shown in self.model.env.get_attr("shown")
            for text, actions in shown.items()
            if actions
        }


def _randomise(model: LLMOnPolicyAlgorithm) -> None:
    """A fresh adapter changes nothing and a fresh critic says 0: passes that differ could not be told apart."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.policy.named_parameters():
            if "lora_B" in name or (name.startswith("critic.") and not parameter.any()):
                parameter.copy_(0.05 * torch.randn(parameter.shape, generator=generator))


@contextmanager
def _scripted(write: Callable[[], list[int]]) -> Iterator[None]:
    """Let what is written be given, when it has been drawn: texts of a random model would have any length."""
    scripts: dict[tuple[int, ...], list[int]] = {}

    def take(batch: Any, waiting: Sequence[int], support: Any, uniforms: Any) -> None:  # noqa: ANN401 - private
        drawn = generation_draw(support, uniforms)
        tokens = []
        for index in waiting:
            script = scripts.setdefault(batch._prompts[index], write() if not batch._tokens[index] else [])
            tokens.append(script[len(batch._tokens[index])])
        given = torch.tensor(tokens, device=drawn.tokens.device)
        forced = drawn._replace(tokens=given, log_probs=support.log_probs.gather(-1, given[:, None])[:, 0])
        with patch.object(generation, "draw", lambda *_: forced):
            original(batch, waiting, support, uniforms)

    original, generation_draw = generation._Batch._take, generation.draw
    with patch.object(generation._Batch, "_take", take):
        yield


# ---------------------------------------------------------------------- theirs


def make_loop(name: str, ours: OurLoop) -> BaselineLoop:
    """A loop with weights of its own, equal to ours as they are now."""
    policy = ours.model.policy
    return LOOPS[name](copy.deepcopy(policy.lm.network), copy.deepcopy(policy.critic), ours.setting.workload)


def act(loop: BaselineLoop, samples: Sequence[Sample]) -> tuple[torch.Tensor, torch.Tensor]:
    """A rollout of one of the other loops, the actions being given."""
    parts = [loop.rollout_step(samples[start : start + _N_ENVS]) for start in range(0, len(samples), _N_ENVS)]
    loop.last_values([one.prompt for one in samples[-_N_ENVS:]])
    return torch.cat([log_probs for log_probs, _ in parts]), torch.cat([values for _, values in parts])


# ---------------------------------------------------------------------- checks


class Agreement(NamedTuple):
    """Largest differences from ours; gradients and weights relative to their size."""

    log_prob: float
    value: float
    policy_grad_norm: float
    critic_grad_norm: float
    adapter_step: float


def check(name: str, workload: str, options: Options) -> Agreement:
    """Two epochs on the same eight samples, by one of the loops and by ours."""
    ours = OurLoop(SETTINGS[workload], options, n_steps=2, batch_size=8, n_epochs=2, n_critic_epochs=2)
    ours.rollout()
    samples, loop = ours.samples(), make_loop(name, ours)
    before = torch.nn.utils.parameters_to_vector(loop.adapter).detach().clone()
    log_probs, values = act(loop, samples)
    ours.update()
    steps = [loop.minibatch(samples) for _ in range(2)]
    logged = ours.model.logger.name_to_value
    moved = torch.nn.utils.parameters_to_vector(ours.model.policy.adapter_parameters()) - before
    theirs = torch.nn.utils.parameters_to_vector(loop.adapter) - before
    norms = {
        kind: np.mean([getattr(step, f"{kind}_grad_norm") for step in steps]) / logged[f"train/{kind}_grad_norm"] - 1
        for kind in ("policy", "critic")
    }
    return Agreement(
        log_prob=float((log_probs - torch.cat([one.old_log_prob for one in samples])).abs().max()),
        value=float((values - torch.cat([one.old_values for one in samples])).abs().max()),
        policy_grad_norm=float(abs(norms["policy"])),
        critic_grad_norm=float(abs(norms["critic"])),
        adapter_step=float((moved - theirs).detach().norm() / moved.detach().norm()),
    )


# ---------------------------------------------------------------------- measuring


def fewest_positions(samples: Sequence[Sample], setting: Setting) -> float:
    """Token positions of the mathematics, a sample; see the module."""
    total = 0
    for one in samples:
        prompt, chosen = len(one.prompt), len(one.prompt) + len(one.action) - 1
        scored = prompt + sum(len(row) - 1 for row in one.candidates)
        if setting.workload.distribution == Distribution.CANDIDATES:
            total += scored + prompt + 2 * setting.n_epochs * scored
        else:
            total += scored + chosen + 2 * setting.n_epochs * chosen
    return total / len(samples)


class Meter:
    """Costs of the parts of a loop."""

    def __init__(self, counter: PositionCounter, device: str) -> None:
        self._counter, self._cuda = counter, torch.device(device).type == "cuda"

    def __call__(self, part: Callable[[], Any]) -> tuple[float, int, int, Any]:
        """Milliseconds, positions forward and backward, and what `part` returns."""
        self._counter.take()
        start = self._now()
        result = part()
        return 1e3 * (self._now() - start), *self._counter.take(), result

    def _now(self) -> float:
        if self._cuda:
            torch.cuda.synchronize()
            return time.perf_counter()
        return time.process_time()


def measure(workload: str, options: Options, runs: int, names: Sequence[str]) -> tuple[dict[str, list[Cost]], float]:
    """Costs of all loops, run in turns; and the fewest positions that an environment step needs."""
    setting = SETTINGS[workload]
    ours = OurLoop(setting, options)
    loops = {name: make_loop(name, ours) for name in names}
    counters = {name: PositionCounter(loop.network.get_base_model()) for name, loop in loops.items()}
    costs: dict[str, list[Cost]] = {"ours": [], **{name: [] for name in names}}
    fewest = []
    for _ in range(runs):
        meter = Meter(ours.counter, options.device)
        rollout = meter(ours.rollout)
        samples = ours.samples()
        fewest.append(fewest_positions(samples, setting))
        costs["ours"].append(_cost(rollout, meter(ours.update), len(samples), len(samples)))
        for name, loop in loops.items():
            costs[name].append(_cost_of(loop, Meter(counters[name], options.device), setting, samples))
    return costs, float(np.mean(fewest))


def _cost_of(loop: BaselineLoop, meter: Meter, setting: Setting, samples: Sequence[Sample]) -> Cost:
    """Of a loop whose epochs and minibatches are all alike: one is timed, and counted as often as there are."""
    acting = samples[: 4 * _N_ENVS]
    timed = samples[: setting.timed_samples]
    rollout = meter(lambda: act(loop, acting))
    update = meter(lambda: loop.minibatch(timed))
    return _cost(rollout, tuple(setting.n_epochs * number for number in update[:3]), len(acting), len(timed))


def _cost(rollout: Sequence[Any], update: Sequence[Any], n_acting: int, n_updated: int) -> Cost:
    forward, backward = (rollout[part] / n_acting + update[part] / n_updated for part in (1, 2))
    return Cost(rollout[0] / n_acting, update[0] / n_updated, forward, backward)


def peaks(workload: str, options: Options, names: Sequence[str]) -> dict[str, int]:
    """Bytes at the peak above those of the loaded model, of a rollout and an update in a process for each loop."""
    ours = OurLoop(SETTINGS[workload], options)
    ours.rollout()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "samples.pt"
        torch.save([tuple(one) for one in ours.samples()], file)
        del ours
        return {name: _peak_of(name, workload, options, file) for name in ("ours", *names)}


def _peak_of(name: str, workload: str, options: Options, file: Path) -> int:
    command = [sys.executable, "-m", "benchmarks.throughput", "--peak-of", name, "--samples", str(file)]
    command += ["--workload", workload]
    for field, value in options._asdict().items():
        command += [f"--{field.replace('_', '-')}", str(value)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


def own_peak(name: str, workload: str, options: Options, file: Path) -> int:
    """What `peaks` asks a process for."""
    setting, cuda = SETTINGS[workload], torch.device(options.device).type == "cuda"
    ours = OurLoop(setting, options)
    policy = ours.model.policy
    samples = [Sample(*one) for one in torch.load(file, weights_only=False)]
    before = torch.cuda.memory_allocated() if cuda else _resident("VmRSS")
    if name == "ours":
        ours.rollout()
        ours.update()
    else:
        loop = LOOPS[name](policy.lm.network, policy.critic, setting.workload)
        act(loop, samples[: 4 * _N_ENVS])
        loop.minibatch(samples[: setting.timed_samples])
    return (torch.cuda.max_memory_allocated() if cuda else _resident("VmHWM")) - before


def _resident(field: str) -> int:
    """Bytes of this process, now or at the highest; `ru_maxrss` would begin with that of the parent."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(field)))


# ---------------------------------------------------------------------- results


def summary(costs: dict[str, list[Cost]], fewest: float, peak: dict[str, int]) -> dict[str, dict[str, float]]:
    """Medians, and ratios to ours: of times the median of those of each turn."""
    found = {}
    for name, runs in costs.items():
        middle = {field: median(getattr(run, field) for run in runs) for field in Cost._fields}
        total = median(run.total_ms for run in runs)
        positions = middle["forward"] + middle["backward"]
        found[name] = {
            **{field: round(value, 2) for field, value in middle.items()},
            "total_ms": round(total, 2),
            "env_steps_per_second": round(1e3 / total, 3),
            "over_fewest": round(positions / fewest, 3),
            "peak_mib": round(peak[name] / 2**20, 1),
            "slower_than_ours": round(
                median(other.total_ms / own.total_ms for other, own in zip(runs, costs["ours"], strict=True)), 2
            ),
            "peak_of_ours": round(peak["ours"] / peak[name], 3),
        }
    return found


def show(console: Console, results: Sequence[dict[str, Any]]) -> None:
    """A table on the terminal."""
    heads = "rollout ms", "update ms", "steps/s", "positions", "over fewest", "peak MiB", "times ours", "our peak"
    table = Table("workload", "vocabulary", "loop", *heads)
    for result in results:
        for name, row in result["loops"].items():
            table.add_row(
                result["workload"], f"{result['vocabulary']:,}", name, f"{row['rollout_ms']:.1f}",
                f"{row['update_ms']:.1f}", f"{row['env_steps_per_second']:.2f}",
                f"{row['forward']:.0f} + {row['backward']:.0f}", f"{row['over_fewest']:.2f}", f"{row['peak_mib']:.0f}",
                f"{row['slower_than_ours']:.2f}", f"{row['peak_of_ours']:.2f}",
            )  # fmt: skip
    console.print(table)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Cost of an environment step in training, ours and plain loops'.")
    parser.add_argument("--workload", action="append", choices=[*SETTINGS])
    parser.add_argument("--vocabulary", action="append", type=int)
    parser.add_argument("--loop", action="append", choices=[*LOOPS], help="to compare with; both by default")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--model-size", default="6m", choices=[*MODELS])
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--peak-of", help=argparse.SUPPRESS)
    parser.add_argument("--samples", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Command line."""
    given = _parse()
    torch.set_num_threads(given.threads)
    console, results = Console(width=160), []
    names = given.loop or [*LOOPS]
    for vocabulary in given.vocabulary or [2_000, 32_000]:
        options = Options(vocabulary, given.model_size, given.dtype, given.device, given.seed)
        for workload in given.workload or SETTINGS:
            if given.peak_of is not None:
                print(own_peak(given.peak_of, workload, options, given.samples))
                return
            result = one_result(workload, options, given.runs, names)
            results.append(result)
            show(console, [result])
    show(console, results)
    place = "" if given.device == "cpu" and given.model_size == "6m" else f"_{given.device}_{given.model_size}"
    out = given.out or RESULTS / f"throughput{place}.json"
    machine = {**describe_machine(), "threads": given.threads, "gpu": _gpu(given.device)}
    out.write_text(json.dumps({**machine, "results": results}, indent=1) + "\n")


def one_result(workload: str, options: Options, runs: int, names: Sequence[str]) -> dict[str, Any]:
    """Everything about one workload."""
    agreement = {name: check(name, workload, options)._asdict() for name in names}
    costs, fewest = measure(workload, options, runs, names)
    loops = summary(costs, fewest, peaks(workload, options, names))
    return {"workload": workload, **options._asdict(), "fewest": fewest, "agreement": agreement, "loops": loops}


def _gpu(device: str) -> str | None:
    return torch.cuda.get_device_name() if torch.device(device).type == "cuda" else None


if __name__ == "__main__":
    main()
