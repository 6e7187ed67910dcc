"""Measure how far the same run comes out differently, and write determinism.csv anew.

    python -m dpfl.auditing.spread data

trains, of every algorithm and model in the demo's grid, the first and the last cell of the first sweep with its first
seed: as the grid does, each cell alone, on two threads, and with the instructions of an older processor. `data` holds
the demo's data (make demo fetches nothing).
"""

from __future__ import annotations

import csv
import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd

from dpfl import config, grid
from dpfl.auditing.determinism import TABLE
from dpfl.data.read import load_about
from dpfl.files import replacing
from dpfl.reporting.results import read_csv, write_csv
from dpfl.sweeps import Folders, Sweep

SAFETY = 3.0
"""The tolerance is so many times the largest difference, and never below the floor of its unit."""
FLOORS = {"points": 0.5, "relative": 1e-6}
_AS_EVER = "nothing"
_OLDER = {
    "ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE",
    "OPENBLAS_CORETYPE": "Nehalem",
}  # fmt: skip
_CHANGES = {
    _AS_EVER: {"OMP_NUM_THREADS": "1"},
    "trained alone": {"OMP_NUM_THREADS": "1"},
    "threads 1 to 2": {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE"},
    "older instructions": {"OMP_NUM_THREADS": "1", **_OLDER},
}


def kinds() -> dict[str, Sweep]:
    """Return a small sweep for every algorithm and model of the demo, by "algorithm,model"."""
    found: dict[str, Sweep] = {}
    for sweep in grid.expand(config.resolve({"scale": "demo"})):
        cells = (sweep.cells[0], sweep.cells[-1])
        small = replace(sweep, cells=cells, seeds=sweep.seeds[:1])
        found.setdefault(f"{sweep.algorithm},{sweep.settings.get('model', '')}", small)
    return found


def train(data: Path, changed: str, folder: Path) -> None:
    """Train every kind in this process and write its run table to `folder`; `changed` is one of the changes."""
    for name, sweep in kinds().items():
        folders = Folders.of(data, sweep.dataset)
        code = importlib.import_module(f"dpfl.federated.{sweep.algorithm}")
        threads = 2 if changed == "threads 1 to 2" else 1
        sweep = replace(sweep, machine={"device": "cpu", "threads": threads, "memory_gb": 1})
        noise = code.calibrate(sweep, load_about(folders.arrays))
        parts = [slice(0, 2)] if changed != "trained alone" else [slice(0, 1), slice(1, 2)]
        tables = [
            code.train(
                replace(sweep, cells=sweep.cells[part]), folders, noise.iloc[part].reset_index(drop=True), None, _silent
            )
            for part in parts
        ]
        write_csv(pd.concat(tables, ignore_index=True), folder / f"{name}.csv")


def measure(data: Path) -> list[dict[str, object]]:
    """Return the rows of determinism.csv: every kind under every change, against nothing changed."""
    with tempfile.TemporaryDirectory() as scratch:
        for changed, environment in _CHANGES.items():
            (Path(scratch) / changed).mkdir()
            command = [sys.executable, "-m", "dpfl.auditing.spread", str(data), changed, str(Path(scratch) / changed)]
            subprocess.run(command, env={**os.environ, **environment}, check=True)
        return [row for name in kinds() for row in _rows(Path(scratch), name)]


def _rows(scratch: Path, name: str) -> Iterator[dict[str, object]]:
    """Yield the rows of one kind."""
    algorithm, model = name.split(",")
    unit = "points" if algorithm == "pfl" else "relative"
    usual = read_csv(scratch / _AS_EVER / f"{name}.csv")
    spreads = {
        changed: largest_difference(usual, read_csv(scratch / changed / f"{name}.csv"), unit)
        for changed in _CHANGES
        if changed != _AS_EVER
    }
    tolerance = max(FLOORS[unit], SAFETY * max(spreads.values()))
    for changed, largest in spreads.items():
        row = {"algorithm": algorithm, "model": model, "changed": changed, "runs": len(usual)}
        yield {**row, "largest": f"{largest:.3g}", "tolerance": f"{tolerance:.3g}", "unit": unit}


def largest_difference(usual: pd.DataFrame, other: pd.DataFrame, unit: str) -> float:
    """Return by how much any metric of two run tables differs; relative (absolute below 1), or in its own unit."""
    after = list(usual.columns)[list(usual.columns).index("status") + 1 :]
    numbers = usual[after].select_dtypes("number").columns
    metrics = [name for name in numbers if not name.startswith("privacy_")]
    scale = usual[metrics].abs().clip(lower=1.0) if unit == "relative" else 1.0
    return float(((usual[metrics] - other[metrics]).abs() / scale).max().max())


def _silent(done: int, total: int) -> None:
    """Take a report of progress for granted."""


def main(data: str, changed: str = "", folder: str = "") -> None:
    """Measure everything and write the table; or, in a process of its own, train under one change."""
    if changed:
        train(Path(data), changed, Path(folder))
        return
    rows = measure(Path(data))
    with replacing(TABLE) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
