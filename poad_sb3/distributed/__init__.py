"""Trainings in several processes: ranks that divide the passes through the model, and environments on Ray."""

from poad_sb3.distributed.ranks import Ranks, current_ranks, end_ranks, start_ranks

__all__ = ["Ranks", "current_ranks", "end_ranks", "start_ranks"]
