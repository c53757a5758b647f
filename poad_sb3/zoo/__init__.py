"""The zoo: trained agents with their settings and scores, in the manner of RL Baselines3 Zoo.

A folder of agents holds `rows.json`, a row for each environment, model and method, and beside it an adapter for each
row that was trained. `load_from_zoo` and `load_from_hub` of the algorithms return an agent that is ready to act.
"""

from poad_sb3.zoo.rows import SHIPPED, Row, find_agent, find_row, read_rows, trained_folder, write_row

__all__ = ["SHIPPED", "Row", "find_agent", "find_row", "push_to_hub", "read_rows", "trained_folder", "write_row"]


def __getattr__(name: str) -> object:
    if name != "push_to_hub":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from poad_sb3.zoo.hub import push_to_hub  # loads torch

    return push_to_hub
