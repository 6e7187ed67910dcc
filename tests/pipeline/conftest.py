import os
from pathlib import Path

import pytest

from dpfl.files import record_path
from dpfl.grid.expansion import run_table_path
from dpfl.provenance.record import StageRecorder
from dpfl.provenance.run_identity import run_identity


@pytest.fixture
def finish():
    """A function that writes an empty run table with the record of a training that gave it today."""

    def write(job, results: Path) -> Path:
        table = run_table_path(results, job.paper, job.name)
        table.parent.mkdir(parents=True, exist_ok=True)
        table.touch()
        stage = StageRecorder("train", ("dpfl.randomness",), identity=run_identity(job))
        stage.write(record_path(table), [table])
        return table

    return write


@pytest.fixture
def queue(tmp_path, monkeypatch):
    """The file with the jobs of a squeue and an scancel that stand in for SLURM's, in a folder that something was
    submitted from; while `down` is beside it, squeue does not answer."""
    folder, jobs = tmp_path / "fake", tmp_path / "jobs"
    folder.mkdir()
    jobs.touch()
    for name, body in {
        "squeue": f"[ ! -e '{tmp_path}/down' ] && cat '{jobs}'",
        "scancel": f'for job in "$@"; do sed -i "/^$job|/d" \'{jobs}\'; done',
    }.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    (tmp_path / ".snakemake" / "slurm_logs").mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return jobs
