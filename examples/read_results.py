"""Read the committed results of the studies with pandas: one row per training run. About 2 seconds.

python examples/read_results.py
"""

import json
from pathlib import Path

import pandas as pd

STUDIES = Path(__file__).parents[1] / "data/results/studies"

# `lambda-token.json`: every method on every task, by seed, with the interval over seeds.
study = json.loads((STUDIES / "lambda-token.json").read_text(encoding="utf-8"))
runs = pd.DataFrame(
    {"task": one["task"], "method": method, "seed": seed, "area": area, "last return": final}
    for one in study["comparisons"]
    for method, found in one["methods"].items()
    for seed, area, final in zip(found["seeds"], found["areas"], found["finals"], strict=True)
)
by_method = runs.groupby(["task", "method"])
print(by_method.agg(seeds=("seed", "count"), area=("area", "mean"), last=("last return", "mean")).round(3).to_string())

# `pieces/`: each run in a line, with all of its settings, its curve, the machine and the versions.
lines = [line for path in sorted((STUDIES / "pieces").glob("*.jsonl")) for line in path.read_text().splitlines()]
table = pd.json_normalize([json.loads(line) for line in lines], max_level=1)
method = table["settings.algorithm"].fillna(table["settings.method"])  # the studies of code call it `method`
print(table.groupby(method)["settings.seed"].agg(runs="count", seeds="nunique"))
