"""Models of real sizes with random weights, on any device.

For plumbing, speed and memory; models with random weights learn no task. Qwen2-shaped models, with the pocket
model's tokenizer and an embedding as large as the real one's, train by POAD on VirtualHome (trie) and on DataSciCoding
(free code), by the code that trains the pocket model. Shown: environment steps and tokens through the model a second,
operations of the update a second (4 for each token and weight of the base, embedding included: 2 forward, 2 backward,
without the second forward pass of gradient checkpointing), and peak memory beside `poad_sb3.memory.estimate` (on a CPU
that of the whole process so far, interpreter included).

    python -m benchmarks measure real-size --device cuda --size 0.5b --size 1.5b --dtype bfloat16 --dtype float32
    python -m benchmarks measure real-size --device cpu --size 0.05b

Writes real_size_DEVICE.json, after each run.
"""

from __future__ import annotations

import gc
import itertools
from functools import partial
from typing import Annotated, Any

import torch
import typer
from stable_baselines3.common.env_util import make_vec_env
from transformers import AutoTokenizer, Qwen2Config

from benchmarks.files import write_result
from benchmarks.options import one_of
from benchmarks.performance.our_loop import PositionCounter
from benchmarks.performance.synthetic import random_model
from benchmarks.performance.timing import gpu_name, milliseconds, resident_bytes, synchronized
from benchmarks.reports.tables import show_table
from poad_sb3 import POAD
from poad_sb3.language_model.loading import DTYPES
from poad_sb3.memory import ModelSize, Workload, estimate
from poad_sb3.pocket import POCKET_FOLDER
from poad_sb3.settings import ModelSettings

SIZES = {  # hidden, layers, intermediate, heads, kv heads, vocabulary; those of Qwen2 but for the first
    "0.05b": (512, 8, 1376, 8, 2, 32_000),
    "0.5b": (896, 24, 4864, 14, 2, 151_936),
    "1.5b": (1536, 28, 8960, 12, 2, 151_936),
    "7b": (3584, 28, 18944, 28, 4, 152_064),
}
N_STEPS = 2
"""Steps of each environment in a rollout: a few are enough for speed and memory, which do not depend on them."""
TASKS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "VirtualHome": ("VirtualHome-FoodPreparation-v0", 4, {}),
    "DataSciCoding": (
        "DataSciCoding-balance-scale-v0",
        4,
        {"action_sampling": "free", "max_new_tokens": 16, "temperature": 0.7, "top_k": 50},
    ),
}


def make_model(size: str, dtype: str, device: str) -> tuple[Any, Any]:
    """Return a random Qwen2, as `model=` of a policy takes it."""
    hidden, layers, intermediate, heads, kv_heads, vocabulary = SIZES[size]
    config = Qwen2Config(
        vocab_size=vocabulary, hidden_size=hidden, num_hidden_layers=layers, intermediate_size=intermediate,
        num_attention_heads=heads, num_key_value_heads=kv_heads, max_position_embeddings=4096, tie_word_embeddings=True,
    )  # fmt: skip
    return random_model(config, dtype, device), AutoTokenizer.from_pretrained(POCKET_FOLDER)


def train(size: str, dtype: str, task: str, device: str, n_steps: int = N_STEPS) -> dict[str, Any]:
    """Run two rollouts and updates, and time the second; times in seconds, memory in bytes."""
    gc.collect()  # models of earlier runs, kept by cycles of references
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
    update_cost: dict[str, float] = {}

    def update() -> None:
        tokens_before = counter.forward
        update_cost["seconds"] = milliseconds(partial(type(model).train, model), synchronized(device)) / 1e3
        update_cost["tokens"] = counter.forward - tokens_before

    model.train = update  # type: ignore[method-assign]
    learn = partial(model.learn, n_steps * n_envs, reset_num_timesteps=False)
    seconds = milliseconds(learn, synchronized(device)) / 1e3
    peak = torch.cuda.max_memory_allocated() if is_cuda else resident_bytes("VmHWM")
    envs.close()
    base, logged = model.policy.lm.base, model.logger.name_to_value
    of_model = ModelSettings(dtype=dtype, gradient_checkpointing=True)
    workload = Workload() if settings.get("action_sampling", "trie") == "trie" else Workload(children=0.0)
    return {
        "size": size,
        "dtype": dtype,
        "task": task,
        "parameters": base.num_parameters(),
        "env_steps": n_steps * n_envs,
        "seconds": seconds,
        "tokens": counter.forward,
        "update_seconds": update_cost["seconds"],
        "update_teraflops": 4e-12 * base.num_parameters() * update_cost["tokens"] / update_cost["seconds"],
        "peak": peak,
        "estimated": estimate(ModelSize.of(base.config, of_model), of_model, workload).total,
        "first_ratio_error": logged["train/first_ratio_error"],
        "sampling_mismatch": logged.get("train/sampling_mismatch", 0.0),
    }


def real_size(
    device: str = "cpu",
    size: Annotated[list[str] | None, one_of(SIZES, "Repeatable.")] = None,
    dtype: Annotated[list[str] | None, one_of(DTYPES, "Repeatable.")] = None,
    task: Annotated[list[str] | None, one_of(TASKS, "Repeatable.")] = None,
    n_steps: Annotated[int, typer.Option(help="Of each of four environments.")] = N_STEPS,
) -> None:
    """Train models of real sizes with random weights on any device."""
    torch.backends.cuda.matmul.allow_tf32 = False  # float32 is to be float32
    kind, name = torch.device(device).type, gpu_name(device) or device
    runs = []
    for one_size, one_dtype, one_task in itertools.product(
        size or ["0.05b"], dtype or ["float32", "bfloat16"], task or TASKS
    ):
        runs.append(train(one_size, one_dtype, one_task, device, n_steps))
        show_table(list(runs[0]), [runs[-1].values()], width=160)
        path = write_result(f"real_size_{kind}", {"device": name, "runs": runs})  # a later run may not end
    print(path)
