"""Measure agents on the tasks of `lang_envs`, by the command `lang-bench` or from Python.

```python
from pathlib import Path

from lang_bench import Plan, load, measure

done = measure(Plan("random", ("KeyToken-v0",), episodes=20, seeds=3), Path("runs/random.jsonl"))
print(load([done.path])[0].scores("success").mean())
```
"""

from lang_bench.agents import Agent, Decision, make_agent
from lang_bench.runner.plan import Plan
from lang_bench.runner.players import Workers
from lang_bench.runner.results import Cell, load
from lang_bench.runner.session import measure
from lang_envs.cli import run_app

__all__ = ["Agent", "Cell", "Decision", "Plan", "Workers", "load", "main", "make_agent", "measure"]


def main() -> None:
    """Run the command `lang-bench`."""
    run_app("lang_bench.app", "lang-bench", "bench")
