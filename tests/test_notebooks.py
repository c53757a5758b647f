"""Every notebook runs, its cells in order and with a small budget, and is committed with the outputs of a whole run.

No Jupyter is needed; `make notebooks` runs them in full and writes the outputs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from poad_sb3.language_model import smollm2

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
REPOSITORY = "OWNER/REPOSITORY"
"""Name on GitHub in the links to Colab: a placeholder until there is one."""
LARGEST = 150_000
"""Bytes of a notebook."""
SMALL: dict[str, dict[str, Any]] = {
    "data_science": {"N_ROWS": 60, "N_PROGRAMS": 2},
    "measure_an_agent": {"EPISODES": 2, "SEEDS": 2},
    "own_environment": {"LAKE_STEPS": 128, "DOORS_STEPS": 128},
    "real_model": {"STEPS": 256},
    "token_credit": {"STEPS": 128, "EPISODES": 2},
    "train_and_watch": {"STEPS": 128, "EVALUATION_EPISODES": 1},
}
"""Parameters by notebook."""
NEEDS = {"data_science": "pandas", "measure_an_agent": "scipy", "token_credit": "scipy"}
"""A package of the extra that a notebook needs beyond `llm`."""
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells_of(path: Path, kind: str) -> list[dict[str, Any]]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == kind]


def marked(path: Path) -> Any:
    marks = {"measure_an_agent": [], "real_model": [pytest.mark.slow, pytest.mark.timeout(900)]}
    return pytest.param(path, id=path.stem, marks=marks.get(path.stem, [pytest.mark.matrix]))


def test_every_notebook_has_small_parameters() -> None:
    assert [path.stem for path in NOTEBOOKS] == sorted(SMALL)


@pytest.mark.parametrize("path", [marked(path) for path in NOTEBOOKS])
def test_the_cells_run(path: Path, tmp_path: Path) -> None:
    """In a process of their own, whose `__main__` has no file, as in a kernel."""
    pytest.importorskip(NEEDS.get(path.stem, "torch"), reason="its extra is not installed")
    if path.stem == "real_model" and not smollm2.is_complete():
        pytest.skip("SmolLM2 is not here: poad fetch smollm2")
    first, *others = ("".join(cell["source"]) for cell in cells_of(path, "code"))
    small = SMALL[path.stem]
    assert {line.partition(" = ")[0] for line in first.splitlines()} >= set(small)
    program = "\n".join([first, *(f"{name} = {value!r}" for name, value in small.items()), *others])
    environment = {**os.environ, "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-"], input=program, cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "  failed: " not in done.stdout, "a check of the contract failed"


@every_notebook
def test_the_committed_outputs_are_of_a_whole_run(path: Path) -> None:
    """From the first cell to the last. After a change of a cell: `make notebooks`."""
    cells = cells_of(path, "code")
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert any(output["output_type"] == "stream" for output in outputs)
    assert len(pictures) <= 2
    assert path.stat().st_size <= LARGEST


@every_notebook
def test_the_first_cells_are_a_head_and_the_parameters(path: Path) -> None:
    head, parameters, *_ = json.loads(path.read_text(encoding="utf-8"))["cells"]
    text = "".join(head["source"])
    title, time = re.match(r"# (.+)\n\n\*\*(.+?)\*\*", text).groups()
    assert re.search(r"\d minutes? on two (free )?cores", time)
    link = f"(https://colab.research.google.com/github/{REPOSITORY}/blob/main/notebooks/{path.name})"
    assert link in text
    assert parameters["metadata"]["tags"] == ["parameters"]
    page = (ROOT / "docs/notebooks.md").read_text(encoding="utf-8")
    assert f"](../notebooks/{path.name}) | {title}" in page.replace("|  ", "| ")


@every_notebook
def test_the_links_to_files_lead_somewhere(path: Path) -> None:
    text = "\n".join("".join(cell["source"]) for cell in cells_of(path, "markdown"))
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert links
    assert [link for link in links if not (path.parent / link).exists()] == []
