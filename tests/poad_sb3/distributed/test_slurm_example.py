"""The script for Slurm, run with stand-ins of Slurm's commands."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "examples" / "slurm" / "train.sbatch"


def dry_run(folder: Path, *, srun_code: int) -> tuple[list[str], list[str]]:
    """Return the words that the script gives to srun, and the jobs it requeues."""
    (folder / "srun").write_text(f'#!/bin/bash\nprintf "%s\\n" "$@" > {folder}/words\nexit {srun_code}\n')
    (folder / "scontrol").write_text(
        f'#!/bin/bash\nif [ "$1" = show ]; then printf "node7\\nnode8\\n"; else echo "$2" > {folder}/requeued; fi\n'
    )
    for name in ("srun", "scontrol"):
        (folder / name).chmod(0o755)
    slurm = {"SLURM_JOB_NODELIST": "node[7-8]", "SLURM_NNODES": "2", "SLURM_GPUS_ON_NODE": "4", "SLURM_JOB_ID": "11"}
    slurm["SLURM_CPUS_PER_TASK"] = "16"
    done = subprocess.run(
        ["bash", str(SCRIPT), "MultiKey-v0", "--out", "runs/two words"],
        env={**os.environ, **slurm, "PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 0, done.stderr
    requeued = folder / "requeued"
    return (
        (folder / "words").read_text().splitlines(),
        requeued.read_text().split() if requeued.exists() else [],
    )


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_a_rank_is_started_for_each_gpu(tmp_path: Path) -> None:
    words, requeued = dry_run(tmp_path, srun_code=0)
    assert words == [
        *("--cpus-per-task=16", "--kill-on-bad-exit=1", "torchrun", "--nnodes=2", "--nproc-per-node=4"),
        *("--rdzv-backend=c10d", "--rdzv-endpoint=node7:20011", "--rdzv-id=11", "-m", "poad_sb3.cli", "train"),
        *("MultiKey-v0", "--out", "runs/two words", "--resume", "--n-procs", "8", "--set", "micro_batches=8"),
    ]
    assert requeued == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_a_lost_rank_puts_the_job_back_into_the_queue(tmp_path: Path) -> None:
    assert dry_run(tmp_path, srun_code=1)[1] == ["11"]
