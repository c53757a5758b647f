"""Write an SB3 callback: log the length of successful episodes, and stop when enough succeed. About 15 seconds.

python examples/own_callback.py [STEPS]
"""

import sys
from collections import deque

from stable_baselines3.common.callbacks import BaseCallback

from poad_sb3 import POAD

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 2_048


class StopAtSuccess(BaseCallback):
    """End the training when `share` of the last `window` episodes succeed; log how many actions these take."""

    def __init__(self, share: float, window: int = 20) -> None:
        super().__init__()
        self.share, self.episodes = share, deque(maxlen=window)  # (success, actions) of each

    def _on_step(self) -> bool:
        for done, info in zip(self.locals["dones"], self.locals["infos"], strict=True):
            if done:
                self.episodes.append((info["success"], info["episode"]["l"]))
        n_successes = sum(success for success, _ in self.episodes)
        return len(self.episodes) < self.episodes.maxlen or n_successes < self.share * len(self.episodes)

    def _on_rollout_end(self) -> None:
        lengths = [length for success, length in self.episodes if success]
        if lengths:
            self.logger.record("rollout/actions_to_success", sum(lengths) / len(lengths))


callback = StopAtSuccess(share=0.9)  # the untrained pocket model succeeds in 60 %
model = POAD("LLMPolicy", "Overcooked-TomatoSalad-v0", seed=0, verbose=1).learn(STEPS, callback=callback)
print(f"stopped after {model.num_timesteps} steps")
