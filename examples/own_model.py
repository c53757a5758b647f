"""Train a transformers model of your own. Here a tiny random one, saved to a folder first. About 15 seconds.

python examples/own_model.py [STEPS]

With a model of the hub the script is three lines:

    POAD("LLMPolicy", ENV_ID, learning_rate=1e-4,
         policy_kwargs=dict(model="Qwen/Qwen2.5-0.5B-Instruct", dtype="bfloat16", gradient_checkpointing=True))

`poad doctor MODEL` checks a model and prints the memory for training it (docs/guide/models.md).
"""

import sys

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from poad_sb3 import POAD
from poad_sb3.pocket import POCKET_FOLDER

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 512
ENV_ID = "Overcooked-TomatoSalad-v0"

tokenizer = AutoTokenizer.from_pretrained(POCKET_FOLDER)
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=len(tokenizer),
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=512,
)
LlamaForCausalLM(config).save_pretrained("runs/tiny-llama")
tokenizer.save_pretrained("runs/tiny-llama")

# lora=None trains all weights, since a random model has nothing to adapt. The default is LoRA of rank 8.
model = POAD(
    "LLMPolicy",
    ENV_ID,
    learning_rate=3e-4,
    policy_kwargs=dict(model="runs/tiny-llama", lora=None),
    seed=0,
    verbose=1,
)
model.learn(STEPS)
model.save("runs/tiny.zip")  # the base model is verified by a fingerprint when this is loaded
print("base model:", POAD.load("runs/tiny.zip").policy.lm.source.name)
