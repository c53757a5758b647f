"""Importing `lang_envs` is cheap, and dependencies point one way."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import lang_envs

ROOT = Path(lang_envs.__file__).parents[1]
HEAVY = {
    *("torch", "stable_baselines3", "transformers", "sklearn", "openml", "pandas", "PIL", "tokenizers", "peft"),
    *("minigrid", "textworld", "textarena"),
}

MODULES = "import json, sys, lang_envs; print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"


def test_nothing_heavy_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", MODULES], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stderr == ""
    modules = set(json.loads(done.stdout))
    assert "gymnasium" in modules
    assert modules & (HEAVY | {"poad_sb3", "lang_bench", "benchmarks"}) == set()
