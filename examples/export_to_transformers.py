"""Export a trained agent and use it with transformers alone. About 10 seconds.

python examples/export_to_transformers.py [STEPS]

`merge=False` writes a PEFT adapter instead. From a shell: `poad export RUN FOLDER --merge`.
"""

import shutil
import sys

import gymnasium as gym
from transformers import AutoModelForCausalLM, AutoTokenizer

import lang_envs  # noqa: F401 - registers the ids
from poad_sb3 import POAD
from poad_sb3.export.export import export_policy

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 512
ENV_ID = "Overcooked-TomatoSalad-v0"

model = POAD("LLMPolicy", ENV_ID, seed=0).learn(STEPS)
shutil.rmtree("runs/cook-model", ignore_errors=True)  # of an earlier run
print(export_policy(model, "runs/cook-model", merge=True))  # README.md has the code that loads it

# From here on nothing of poad_sb3 is used.
tokenizer = AutoTokenizer.from_pretrained("runs/cook-model")
agent = AutoModelForCausalLM.from_pretrained("runs/cook-model", dtype="float32")
observation, _ = gym.make(ENV_ID).reset(seed=0)
prompt = tokenizer(str(observation), return_tensors="pt", return_token_type_ids=False)
written = agent.generate(**prompt, max_new_tokens=12, do_sample=False)
print(tokenizer.decode(written[0], skip_special_tokens=True))
