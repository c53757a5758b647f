"""TRL's GRPOTrainer trains SmolLM2 on a task through a tool: `python examples/trl_grpo.py STEPS ID`.

The untrained model makes no tool call, so that it is first taught the oracle's episodes, as conversations with calls.
Needs `trl` and `datasets` beside the extras `llm` and `gguf`; about three minutes on two cores.
"""

import sys
import tempfile
from pathlib import Path

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen2_5_chat_template

from lang_envs.bridges import text_env
from lang_envs.bridges.trl import Task, environment_factory, rows
from poad_sb3.language_model import smollm2

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 2
TASK = sys.argv[2] if len(sys.argv) > 2 else "Overcooked-TomatoSalad-v0"
(ROW,) = rows(1)


def conversation(seed):
    """Return the oracle's episode as messages with tool calls."""
    task = Task(text_env(TASK, seed=seed))
    messages = [{"role": "user", "content": ROW["prompt"][0]["content"] + task.reset(seed=seed)}]
    while not task.env.is_over:
        command = task.env.oracle_action()
        call = {"type": "function", "function": {"name": "act", "arguments": {"command": command}}}
        messages += [
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "name": "act", "content": task.act(command)},
        ]
    return messages


def clone(model, tokenizer, n_episodes):
    """Teach the model to call the tool, by likelihood of the oracle's episodes."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tools = [Task(text_env(TASK)).act]
    for seed in range(n_episodes):
        text = tokenizer.apply_chat_template(conversation(seed), tools=tools, tokenize=False)
        tokens = tokenizer(text, return_tensors="pt").input_ids
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"episode {seed}: {loss.item():.3f} nats a token", flush=True)


def train(max_steps, out, n_oracle_episodes=6):
    """Clone, then train; return the trainer and the tasks that were played."""
    folder = smollm2.fetch()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = qwen2_5_chat_template
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    clone(model, tokenizer, n_oracle_episodes)
    tasks, make = [], environment_factory(TASK)

    def factory():
        tasks.append(make())
        return tasks[-1]

    settings = GRPOConfig(
        output_dir=str(out),
        max_steps=max_steps,
        num_generations=2,
        per_device_train_batch_size=2,
        max_completion_length=600,  # of a rollout, with what the tool answers
        gradient_checkpointing=False,
        bf16=False,  # True by default; processors without avx512_bf16 then take several times as long
        logging_steps=1,
        use_cpu=not torch.cuda.is_available(),
        report_to="none",
        save_strategy="no",
    )
    trainer = GRPOTrainer(
        model=model,
        args=settings,
        train_dataset=Dataset.from_list(rows(64)),
        processing_class=tokenizer,
        environment_factory=factory,
    )
    trainer.train()
    return trainer, tasks


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        trainer, tasks = train(STEPS, Path(scratch))
    print(f"{sum(len(task.env.rewards) for task in tasks)} environment steps in the last rollouts")
