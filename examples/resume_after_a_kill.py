"""Train with checkpoints; kill it at any time and start it again. About 15 seconds.

python examples/resume_after_a_kill.py [STEPS]

The resumed run ends with the same weights, bit for bit, as one that was never interrupted (docs/guide/checkpoints.md).
`poad train ENV --resume --out FOLDER` does the same from a shell.
"""

import sys
from pathlib import Path

from poad_sb3 import POAD
from poad_sb3.common.callbacks import LatestCheckpointCallback

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 1_024
ENV_ID = "Overcooked-TomatoSalad-v0"
LATEST = Path("runs/resumable/latest.zip")

if LATEST.exists():
    model = POAD.load(LATEST, ENV_ID)
    print(f"resuming at step {model.num_timesteps}")
else:
    model = POAD("LLMPolicy", ENV_ID, seed=0)

# The checkpoint is replaced in one step: killed at any moment, a whole one is there.
checkpoints = LatestCheckpointCallback(LATEST, every=256)
model.learn(STEPS - model.num_timesteps, callback=checkpoints, reset_num_timesteps=False)
model.save(LATEST)
print(f"done: {model.num_timesteps} steps")
