"""Measure how far the same run comes out differently, and write determinism.csv anew.

    python -m dpfl.auditing.spread data [--other /path/to/another/python]

trains, of every algorithm and model in the demo's grid, the first and the last cell with noise, and those without, of
the first sweep that has them, with its first seed: as the grid does, each cell alone, on two threads, with the
instructions of an older processor, on a GPU where there is one, and by another interpreter with its own Python and
torch where one is given. A change that cannot be made here keeps the rows that it has. `data` holds the demo's data
(make demo fetches nothing).
"""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from dpfl import config, grid
from dpfl.auditing.determinism import TABLE, difference, platform_here, table_rows
from dpfl.control.devices import on_cpu
from dpfl.data.read import load_about
from dpfl.errors import InputError
from dpfl.files import replacing
from dpfl.reporting.results import read_csv, write_csv
from dpfl.sweeps import Folders, Sweep

SAFETY = 3.0
"""The tolerance is so many times the largest difference, and never below the floor of its unit."""
FLOORS = {"points": 0.5, "relative": 1e-6}
_SOURCES = str(Path(__file__).resolve().parents[2])
_OLDER = {
    "ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE",
    "OPENBLAS_CORETYPE": "Nehalem",
}  # fmt: skip


class Kind(NamedTuple):
    """Whose runs have one spread."""

    algorithm: str
    model: str
    private: bool


@dataclass(frozen=True)
class Change:
    """One thing done differently; a fresh Change changes nothing."""

    name: str
    alone: bool = False
    threads: int = 1
    device: str = "cpu"
    python: str = sys.executable
    environment: dict[str, str] = field(default_factory=dict)

    def train(self, data: Path, folder: Path) -> None:
        """Train every kind in a process of its own; the run tables go to `folder`."""
        folder.mkdir()
        command = [self.python, "-m", "dpfl.auditing.spread", str(data), "--into", str(folder)]
        command += ["--device", self.device, "--threads", str(self.threads), *(["--alone"] if self.alone else [])]
        threads = {"OMP_NUM_THREADS": str(self.threads), "OMP_WAIT_POLICY": "PASSIVE"}
        paths = {"PYTHONPATH": _SOURCES}
        subprocess.run(command, env={**os.environ, **paths, **threads, **self.environment}, check=True)


USUAL = Change("nothing")


def changes(other: str | None) -> list[Change]:
    """Return the changes that can be made on this machine."""
    import torch

    made = [
        Change("trained alone", alone=True),
        Change("threads 1 to 2", threads=2),
        Change("older instructions", environment=_OLDER),
    ]
    here = platform_here("cpu")
    if torch.cuda.is_available():
        made.append(Change(", ".join(difference(here, platform_here("cuda"))), device="cuda"))
    if other:
        ask = "import json; from dpfl.auditing.determinism import platform_here as here; print(json.dumps(here('cpu')))"
        told = subprocess.run([other, "-c", ask], env={**os.environ, "PYTHONPATH": _SOURCES}, check=True, text=True,
                              stdout=subprocess.PIPE)  # fmt: skip
        made.append(Change(", ".join(difference(here, json.loads(told.stdout))), python=other))
    return made


def kinds() -> dict[Kind, Sweep]:
    """Return a small sweep for every algorithm and model of the demo, with noise and without."""
    found: dict[Kind, Sweep] = {}
    for sweep in grid.expand(config.resolve({"scale": "demo"})):
        for private in (True, False):
            cells = [cell for cell in sweep.cells if _adds_noise(cell) is private]
            if cells:
                ends = (cells[0], cells[-1]) if len(cells) > 1 else (cells[0],)
                kind = Kind(sweep.algorithm, sweep.settings.get("model", ""), private)
                found.setdefault(kind, replace(sweep, cells=ends, seeds=sweep.seeds[:1]))
    return found


def _adds_noise(cell: Mapping[str, Any]) -> bool:
    """Return whether a cell gives a sigma, or a budget to calibrate one to."""
    sigma = cell.get("sigma")
    return math.isfinite(cell.get("epsilon", math.inf)) if sigma is None else sigma > 0


def train(data: Path, folder: Path, *, device: str, threads: int, alone: bool) -> None:
    """Train every kind in this process and write its run table to `folder`."""
    for kind, sweep in kinds().items():
        folders = Folders.of(data, sweep.dataset)
        code = importlib.import_module(f"dpfl.federated.{sweep.algorithm}")
        sweep = replace(sweep, machine={"device": device, "threads": threads, "memory_gb": 1})
        noise = code.calibrate(on_cpu(sweep), load_about(folders.arrays))
        count = len(sweep.cells)
        parts = [slice(place, place + 1) for place in range(count)] if alone else [slice(0, count)]
        tables = [
            code.train(
                replace(sweep, cells=sweep.cells[part]), folders, noise.iloc[part].reset_index(drop=True), None, _silent
            )
            for part in parts
        ]
        write_csv(pd.concat(tables, ignore_index=True), folder / _file(kind))


def measure(data: Path, other: str | None = None) -> list[dict[str, str]]:
    """Return the rows of determinism.csv: every kind under every change, against nothing changed."""
    made = changes(other)
    with tempfile.TemporaryDirectory() as scratch:
        for change in [USUAL, *made]:
            change.train(data, Path(scratch) / change.name)
        return [row for kind in kinds() for row in _rows(Path(scratch), kind, made)]


def _rows(scratch: Path, kind: Kind, made: list[Change]) -> Iterator[dict[str, str]]:
    """Yield the rows of one kind, those of changes that were not made now from the table."""
    unit = "points" if kind.algorithm == "pfl" else "relative"
    usual = read_csv(scratch / USUAL.name / _file(kind))
    same = {name: str(value) for name, value in kind._asdict().items()}
    rows = []
    for change in made:
        largest = largest_difference(usual, read_csv(scratch / change.name / _file(kind)), unit)
        if math.isinf(largest):
            raise InputError(f"{_file(kind)}: {change.name} turns a number into none; no tolerance covers that")
        rows.append({**same, "changed": change.name, "runs": str(len(usual)), "largest": f"{largest:.3g}"})
    names = {change.name for change in made}
    for row in table_rows():
        if row["changed"] not in names and all(row.get(name) == value for name, value in same.items()):
            rows.append({name: row[name] for name in rows[0]})
    tolerance = max(FLOORS[unit], SAFETY * max(float(row["largest"]) for row in rows))
    for row in rows:
        yield {**row, "tolerance": f"{tolerance:.3g}", "unit": unit}


def _file(kind: Kind) -> str:
    """Name the run table of a kind."""
    return f"{','.join(map(str, kind))}.csv"


def largest_difference(usual: pd.DataFrame, other: pd.DataFrame, unit: str) -> float:
    """Return by how much any metric of two run tables differs; relative (absolute below 1), or in its own unit. It is
    infinite where one has a number and the other none."""
    after = list(usual.columns)[list(usual.columns).index("status") + 1 :]
    numbers = usual[after].select_dtypes("number").columns
    metrics = [name for name in numbers if not name.startswith("privacy_")]
    if not usual[metrics].isna().equals(other[metrics].isna()):
        return math.inf
    scale = usual[metrics].abs().clip(lower=1.0) if unit == "relative" else 1.0
    return float(((usual[metrics] - other[metrics]).abs() / scale).max().max())


def _silent(done: int, total: int) -> None:
    """Take a report of progress for granted."""


def main() -> None:
    """Measure everything and write the table; or, in a process of its own, train under one change."""
    parser = argparse.ArgumentParser(prog="python -m dpfl.auditing.spread", description="Write determinism.csv anew.")
    parser.add_argument("data", type=Path, help="the demo's data folder")
    parser.add_argument("--other", help="another interpreter, with its own Python and torch")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--device", default="cpu", help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.into:
        train(given.data, given.into, device=given.device, threads=given.threads, alone=given.alone)
        return
    rows = measure(given.data, given.other)
    with replacing(TABLE) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
