"""Show the policy the last steps of the episode, in a prompt of your own layout. About 10 seconds.

python examples/own_prompt.py [STEPS]
"""

import sys

import gymnasium as gym
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

from lang_envs.wrappers import AdmissibleObservation
from poad_sb3 import POAD
from poad_sb3.vec_env.text_observations import parse_observation

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 128
ENV_ID = "Overcooked-TomatoSalad-v0"

# For an instruct model: {"kind": "chat", "system": "You are a cook. ...", "history": 2}. The tokenizer's own chat
# template is used then. All settings: docs/guide/prompts.md.
PROMPT = {"kind": "completion", "history": 2, "separator": " "}

model = POAD("LLMPolicy", ENV_ID, policy_kwargs=dict(prompt=PROMPT), seed=0, verbose=1).learn(STEPS)

# A wrapper records the history of an environment for evaluation.
env = Monitor(AdmissibleObservation(gym.make(ENV_ID), history=PROMPT["history"]))
mean, _ = evaluate_policy(model, env, n_eval_episodes=2, deterministic=False)
print(f"mean return {mean:.2f}")

observation, _ = env.reset(seed=0)
for _ in range(2):
    action, _ = model.predict(observation)
    observation, *_ = env.step(action)
(question,), _ = parse_observation(observation)
lm = model.policy.lm
print(lm.tokenizer.decode(lm.prompter.prompt_ids(question)))
