"""Log to the terminal, CSV, TensorBoard and (offline) Weights & Biases. About 10 seconds.

python examples/log_training.py [STEPS]
tensorboard --logdir runs/logged

The metrics are explained in docs/algorithms/poad.md.
"""

import sys

from stable_baselines3.common.logger import configure

from lang_envs import MissingExtraError
from poad_sb3 import POAD
from poad_sb3.common.callbacks import GenerationTableCallback, WandbCallback

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 512

# Four sampled actions of a rollout, token by token: probability, value, advantage. Text page of TensorBoard.
callbacks = [GenerationTableCallback("runs/logged", every=1, n_samples=4)]
try:  # mode="offline" needs no account; `wandb sync` uploads the run later
    callbacks.append(WandbCallback("poad-examples", mode="offline", dir="runs"))
except MissingExtraError as error:
    print(error)  # names the extra, and the command that installs it

model = POAD("LLMPolicy", "Overcooked-TomatoSalad-v0", seed=0)
model.set_logger(configure("runs/logged", ["stdout", "csv", "tensorboard"]))
model.learn(STEPS, callback=callbacks)
model.logger.close()
