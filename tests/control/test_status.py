"""How far a scale is, from what lies on disk."""

import os
import time

import pytest

from dpfl import config, grid
from dpfl.control import status
from dpfl.control.status import Work, standing


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return next(each for each in grid.expand(config.resolve({})) if each.paper == "bhaskar2025")


def put(path, text=""):
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def work(sweep, tmp_path, since=None):
    return standing(sweep, tmp_path / "results" / "demo", since).work


def test_the_five_standings(sweep, tmp_path):
    folder = tmp_path / "results" / "demo"
    assert work(sweep, tmp_path) is Work.WAITS
    put(tmp_path / "checkpoints" / "demo" / "bhaskar2025" / f"{sweep.name}-ab-cd.pt")
    assert work(sweep, tmp_path) is Work.RESUMABLE
    log = put(folder / "logs" / f"train_bhaskar2025_{sweep.name}.log", "x y: 3 of 20 steps, about 2 min left\n")
    assert work(sweep, tmp_path) is Work.RESUMABLE
    assert work(sweep, tmp_path, since=time.time() - 60) is Work.RUNNING
    os.utime(log, (1, 1))
    assert work(sweep, tmp_path, since=time.time() - 60) is Work.RESUMABLE
    put(log, "x y: 3 of 20 steps\ndpfl: the disk is full\n")
    failed = standing(sweep, folder, None)
    assert failed.work is Work.FAILED and failed.words == "dpfl: the disk is full"
    put(folder / "runs" / "bhaskar2025" / f"{sweep.name}.csv.gz")
    assert work(sweep, tmp_path) is Work.DONE


def test_the_time_left_goes_by_sweeps_of_the_same_kind(sweep, tmp_path):
    resolved = config.resolve(
        {"papers": ["bhaskar2025"], "seeds": [0, 1], "only": {"model": ["scatter_linear"], "clients": [10]}}
    )
    first, second, *others = grid.expand(resolved)
    assert first.family == second.family
    folder = tmp_path / "results" / "demo"
    put(folder / "runs" / "bhaskar2025" / f"{first.name}.csv.gz")
    put(folder / "benchmarks" / f"train_bhaskar2025_{first.name}.tsv", "s\th:m:s\n120.5\t0:02:00\n")
    lines = list(status.lines(resolved))
    assert lines[0].startswith(f"bhaskar2025: sweeps 1/{2 + len(others)}, tables 0/")
    assert "no run is at work here" in lines
    assert lines[-1].startswith(f"left, one job at a time: about 2 min, and {len(others)} sweeps of which none")
