"""Models of real sizes with random weights, on whatever device there is: `python -m benchmarks.real_size`.

Plumbing, speed and memory; nothing is learned by a model that has learned nothing. Qwen2-shaped models, with the pocket
model's tokenizer and an embedding as large as the real one's, train by POAD on VirtualHome (trie) and on DataSciCoding
(free code), by the code that trains the pocket model. Shown: environment steps and tokens through the model a second,
and peak memory beside `poad_sb3.memory.estimate` (on a CPU that of the whole process so far, interpreter included).

    python -m benchmarks.real_size --device cuda --size 0.5b --size 1.5b --dtype bfloat16 --dtype float32
    python -m benchmarks.real_size --device cpu --size 0.05b

Writes results/real_size_DEVICE.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from functools import partial
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from stable_baselines3.common.env_util import make_vec_env
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from benchmarks.environment import RESULTS, describe_machine
from benchmarks.our_loop import PositionCounter
from poad_sb3 import POAD
from poad_sb3.memory import ModelShape, TrainingSettings, estimate
from poad_sb3.models.sources import DTYPES
from poad_sb3.pocket import POCKET_FOLDER

SIZES = {  # hidden, layers, intermediate, heads, kv heads, vocabulary
    "0.05b": (512, 8, 1376, 8, 2, 32_000),
    "0.5b": (896, 24, 4864, 14, 2, 151_936),
    "1.5b": (1536, 28, 8960, 12, 2, 151_936),
}
TASKS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "VirtualHome": ("VirtualHome-FoodPreparation-v0", 4, {}),
    "DataSciCoding": (
        "DataSciCoding-balance-scale-v0",
        4,
        {"action_sampling": "free", "max_new_tokens": 64, "temperature": 0.7, "top_k": 50},
    ),
}


class Run(NamedTuple):
    """What a training did; times in seconds, memory in bytes."""

    size: str
    dtype: str
    task: str
    parameters: int
    env_steps: int
    seconds: float
    tokens: int
    peak: int
    estimated: int
    first_ratio_error: float
    sampling_mismatch: float


def make_model(size: str, dtype: str, device: str) -> tuple[Any, Any]:
    """A random Qwen2, as `model=` of a policy takes it."""
    hidden, layers, intermediate, heads, kv_heads, vocabulary = SIZES[size]
    config = Qwen2Config(
        vocab_size=vocabulary, hidden_size=hidden, num_hidden_layers=layers, intermediate_size=intermediate,
        num_attention_heads=heads, num_key_value_heads=kv_heads, max_position_embeddings=4096, tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device(device):
        model = Qwen2ForCausalLM(config)
    return model.to(DTYPES[dtype]), AutoTokenizer.from_pretrained(POCKET_FOLDER)


def train(size: str, dtype: str, task: str, device: str, n_steps: int) -> Run:
    """Two rollouts and updates; the second is timed."""
    env_id, n_envs, settings = TASKS[task]
    kwargs = {"model": partial(make_model, size, dtype, device), "gradient_checkpointing": True}
    envs = make_vec_env(env_id, n_envs)
    model = POAD(
        "LLMPolicy", envs, n_steps=n_steps, batch_size=n_steps * n_envs, n_epochs=1, learning_rate=1e-4, seed=0,
        device=device, policy_kwargs=kwargs, **settings,
    )  # fmt: skip
    model.learn(n_steps * n_envs)
    counter = PositionCounter(model.policy.lm.base)
    is_cuda = torch.device(device).type == "cuda"
    if is_cuda:
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
    start = time.perf_counter()
    model.learn(n_steps * n_envs, reset_num_timesteps=False)
    if is_cuda:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    peak = torch.cuda.max_memory_allocated() if is_cuda else 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    envs.close()
    base, logged = model.policy.lm.base, model.logger.name_to_value
    arithmetic = TrainingSettings(
        dtype=dtype, gradient_checkpointing=True, action_sampling=settings.get("action_sampling", "trie")
    )
    return Run(
        size=size,
        dtype=dtype,
        task=task,
        parameters=base.num_parameters(),
        env_steps=n_steps * n_envs,
        seconds=seconds,
        tokens=counter.forward,
        peak=peak,
        estimated=estimate(ModelShape.of(base.config), arithmetic).total,
        first_ratio_error=logged["train/first_ratio_error"],
        sampling_mismatch=logged.get("train/sampling_mismatch", 0.0),
    )


def show(runs: list[Run]) -> None:
    """A table on the terminal: environment steps and tokens a second, GB at the peak and estimated, two errors."""
    table = Table("model", "dtype", "task", "steps/s", "tokens/s", "peak", "est.", "ratio", "mism.", box=None)
    for run in runs:
        table.add_row(
            run.size, run.dtype, run.task, f"{run.env_steps / run.seconds:.2f}", f"{run.tokens / run.seconds:.0f}",
            f"{run.peak / 1e9:.2f}", f"{run.estimated / 1e9:.2f}", f"{run.first_ratio_error:.0e}",
            f"{run.sampling_mismatch:.0e}",
        )  # fmt: skip
    Console().print(table)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--size", action="append", choices=sorted(SIZES))
    parser.add_argument("--dtype", action="append", choices=sorted(DTYPES))
    parser.add_argument("--task", action="append", choices=sorted(TASKS))
    parser.add_argument("--n-steps", type=int, default=8, help="of each of four environments")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False  # float32 is to be float32
    runs = [
        train(size, dtype, task, options.device, options.n_steps)
        for size in options.size or ["0.05b"]
        for dtype in options.dtype or ["float32", "bfloat16"]
        for task in options.task or list(TASKS)
    ]
    show(runs)
    device = torch.device(options.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
    found = {**describe_machine(), "device": name, "runs": [run._asdict() for run in runs]}
    path = RESULTS / f"real_size_{device.type}.json"
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
