"""Train POAD on a kitchen task, save it, load it and evaluate it. About 20 seconds on an idle CPU.

python examples/train_and_evaluate.py [STEPS]
"""

import sys

import gymnasium as gym
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

import lang_envs  # noqa: F401 - registers the ids
from poad_sb3 import POAD

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 2_048  # 5_000 to serve the salad nearly always
N_EPISODES = 50 if len(sys.argv) == 1 else 5  # five say little
ENV_ID = "Overcooked-TomatoSalad-v0"

model = POAD("LLMPolicy", gym.make(ENV_ID), seed=0)
evaluation_env = Monitor(gym.make(ENV_ID))
evaluation_env.reset(seed=1)

# deterministic=False: a greedy policy can repeat one useless action until the time limit.
before, _ = evaluate_policy(model, evaluation_env, n_eval_episodes=N_EPISODES, deterministic=False)
model.learn(STEPS)
model.save("runs/cook.zip")

model = POAD.load("runs/cook.zip")
after, spread = evaluate_policy(model, evaluation_env, n_eval_episodes=N_EPISODES, deterministic=False)
print(f"mean return {before:.2f} before, {after:.2f} +- {spread:.2f} after {STEPS} steps")

observation, info = evaluation_env.reset(seed=2)
action, _ = model.predict(observation)
print(observation)
print("->", evaluation_env.action_space.decode(action))
