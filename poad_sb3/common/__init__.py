"""Everything the algorithms share: training loop, PPO update, policy, buffers, callbacks and checkpoints."""
