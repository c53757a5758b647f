"""Let a model write scikit-learn code for a CSV file of your own. About 15 seconds. Needs the extra `data`.

python examples/own_table.py [ATTEMPTS]
"""

import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pandas as pd

import lang_envs  # noqa: F401 - registers the ids
from lang_envs.wrappers import TextAction
from poad_sb3 import POAD
from poad_sb3.common.callbacks import BestCodeCallback

ATTEMPTS = int(sys.argv[1]) if len(sys.argv) > 1 else 32

rng = np.random.default_rng(0)
patients = pd.DataFrame({"age": rng.integers(20, 80, 300), "weight": rng.normal(70, 12, 300).round(1)})
patients["ill"] = patients["age"] + patients["weight"] + rng.normal(0, 10, 300) > 125
Path("runs").mkdir(exist_ok=True)
patients.to_csv("runs/patients.csv", index=False)

env = gym.make("DataSciCoding-v0", table="runs/patients.csv", target="ill", description="Every row is a patient.")

# Any text is an action: the body of a function that fits a model. It runs in the sandbox, and the reward is the AUC.
by_hand = TextAction(env)
prompt, _ = by_hand.reset(seed=0)
print(prompt)
body = "from sklearn.naive_bayes import GaussianNB\nmodel = GaussianNB().fit(x_train, y_train)"
_, reward, *_, info = by_hand.step(body)
print(f"by hand: {info['status']}, AUC {reward:.3f}")

best = BestCodeCallback("runs/patients")
POAD("LLMPolicy", env, n_steps=16, n_epochs=1, seed=0).learn(
    ATTEMPTS, callback=best
)  # the embedded pocket coder writes
if best.best is not None:
    print(f"best of {ATTEMPTS}: AUC {best.best['reward']:.3f}, kept in runs/patients/best_code.py\n{best.best['code']}")
env.close()
