"""Run notebooks from their first cell to their last, and write their outputs back: `make notebooks`.

python notebooks/execute.py [FILE ...]
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FILES = [Path(name) for name in sys.argv[1:]] or sorted(Path(__file__).parent.glob("*.ipynb"))
os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"  # tqdm asks for ipywidgets, which no cell needs

for file in FILES:
    notebook, started = nbformat.read(file, as_version=4), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:  # for the runs/ that the cells write
        NotebookClient(
            notebook,
            resources={"metadata": {"path": folder}},
            record_timing=False,  # times in every cell would differ after each run
            coalesce_streams=True,
        ).execute()
    notebook.metadata.language_info = {"name": "python"}  # without the version of this machine
    nbformat.write(notebook, file)
    print(f"{file.name}: {time.perf_counter() - started:.0f} s, {file.stat().st_size / 1000:.0f} kB", flush=True)
