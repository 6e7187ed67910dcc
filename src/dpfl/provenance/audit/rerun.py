"""Train randomly drawn runs again, alone, and compare them with their run tables."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from dpfl.data.loading import load_description
from dpfl.engine.memory_budget import with_memory
from dpfl.errors import InputError
from dpfl.experiments import protocol
from dpfl.files import record_path
from dpfl.grid.expansion import run_table
from dpfl.grid.sweep import Folders, Sweep
from dpfl.provenance.audit.findings import Audit, Finding
from dpfl.provenance.audit.recompute import agree
from dpfl.provenance.audit.rerun_tolerance import Tolerance, difference, platform_here, platform_of, tolerance_of
from dpfl.provenance.cell_trace import Row, read_rows, same
from dpfl.provenance.record_format import read_record
from dpfl.provenance.source_digest import source_digest

MOST_SECONDS = 900
"""Runs that took longer, for each seed of their sweep, are not drawn."""
_GPU_SECONDS = 30
"""The same for a run that a GPU made and a CPU has to make again."""
_NOISE_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Rerun:
    """One run of a sweep, its row in the run table, and the record of that table."""

    sweep: Sweep
    cell: dict[str, Any]
    row: Row
    path: Path
    record: dict[str, Any]

    @property
    def device(self) -> str:
        """Device to train it on again: the one that its record names, else the CPU."""
        return self.record["machine"]["device"] if _has(self.record["machine"]["device"]) else "cpu"

    @property
    def tolerance(self) -> Tolerance:
        """By how much its metrics may differ."""
        return tolerance_of(self.sweep.experiment)

    @property
    def caveats(self) -> str:
        """What differs from the recorded run: code, versions or device."""
        source, machine = self.record["source"], self.record["machine"]
        caveats = ["by other code than made it"] if source["digest"] != source_digest(*source["modules"]) else []
        before, after = platform_of(self.record["software"], machine["device"]), platform_here(self.device)
        caveats += [f"across a change of platform: {each}" for each in difference(before, after)]
        return f" ({'; '.join(caveats)})" if caveats else ""

    @property
    def name(self) -> str:
        """Paper, sweep, cell and seed."""
        cell = ", ".join(f"{name}={value}" for name, value in self.cell.items())
        return f"{self.sweep.paper}/{self.sweep.name} ({cell}, seed {self.row['seed']})"


def check_reruns(
    report: Audit, root: Path, config: Mapping[str, Any], sweeps: list[Sweep], count: int, seed: int
) -> None:
    """Train `count` runs again, drawn by `seed` from all that can be trained here, and add the differences.

    Each is trained alone, so that an influence of its stack would show. Metrics agree within the tolerance of the
    experiment (rerun_tolerance); noise within 1e-6. Where torch, Python or the device is another than the record's, the
    answer says so. Runs whose data are not here, or that take too long, are noted.
    """
    data = root / config["data"]["folder"]
    possible: list[Rerun] = []
    skipped: dict[str, int] = {}
    for run in _runs(root, Path(root / "results" / config["scale"]), sweeps):
        if reason := _hindrance(run, data):
            skipped[reason] = skipped.get(reason, 0) + 1
        else:
            possible.append(run)
    drawn = random.Random(seed).sample(possible, min(count, len(possible)))
    for run in drawn:
        try:
            noise, again = _train_again(run, data)
            problems = list(_compare(run, noise, again))
        except InputError as error:
            problems = [f"cannot be trained again: {error}"]
        report.count("runs trained again")
        name = run.name + run.caveats
        for problem in problems:
            place = str(run.path.relative_to(root))
            report.findings.append(Finding(place, f"{name}: {problem}", (run.path, record_path(run.path))))
        if not problems:
            none = replace(run.tolerance, largest=0.0)
            exact = all(none.holds(float(run.row[each]), float(again[each])) for each in _metrics(run.row, again))
            how = "the same to the last digit" if exact else f"the same within {run.tolerance.words}"
            report.notes.append(f"trained again, {how}: {name}")
    for reason, number in skipped.items():
        report.notes.append(f"could not be trained again here: {number} runs ({reason})")


def _runs(root: Path, folder: Path, sweeps: list[Sweep]) -> Iterator[Rerun]:
    """Yield every existing run, in the grid's order."""
    for sweep in sweeps:
        path = run_table(folder, sweep.paper, sweep.name)
        if not (path.exists() and record_path(path).exists()):
            continue
        rows, record = read_rows(path), read_record(record_path(path))
        for cell in sweep.cells:
            for row in rows:
                if all(name not in row or same(row[name], str(value)) for name, value in _scalars(cell)):
                    yield Rerun(sweep, cell, row, path, record)


def _hindrance(run: Rerun, data: Path) -> str:
    """Return the reason why a run cannot be trained again here, empty where there is none."""
    folders = Folders.of(data, run.sweep.dataset)
    needed = [folders.arrays, folders.features] if run.sweep.needs_features else [folders.arrays]
    if not all((folder / "description.json").exists() for folder in needed):
        return f"the data of {run.sweep.dataset} are not on this machine"
    made_on = run.record["machine"]["device"]
    most = MOST_SECONDS if made_on == run.device else _GPU_SECONDS
    if run.record["seconds"] / len(run.sweep.seeds) > most:
        return f"a seed took more than {most} s{'' if made_on == run.device else f' on {made_on}'}"
    return ""


def _train_again(run: Rerun, data: Path) -> tuple[pd.Series, pd.Series]:
    """Return the calibration's row and the run table's row, made again."""
    code = protocol.load(run.sweep.experiment)
    there = replace(run.sweep, resources={**run.sweep.resources, "device": run.device})
    family = replace(with_memory(there), cells=(run.cell,))
    alone = replace(family, seeds=(int(run.row["seed"]),))
    folders = Folders.of(data, alone.dataset)
    # The noise is the family's: it may look at the first seed's partition.
    noise = code.calibrate(family, load_description(folders.arrays))
    return noise.iloc[0], code.train(alone, folders, noise, None, lambda done, total: None).iloc[0]


def _compare(run: Rerun, noise: pd.Series, again: pd.Series) -> Iterator[str]:
    """Yield the differences between a run and its repetition."""
    calibrated, stated = float(noise["noise_multiplier"]), float(run.row["noise_multiplier"])
    if not agree(calibrated, stated, _NOISE_TOLERANCE):
        yield f"noise multiplier {stated:.8g}, calibrated again it is {calibrated:.8g}"
    if run.row["status"] != again["status"]:
        yield f"status {run.row['status']}, trained again {again['status']}"
    tolerance = run.tolerance
    for name in _metrics(run.row, again):
        if not tolerance.holds(float(run.row[name]), float(again[name])):
            yield f"{name} {run.row[name]}, trained again {float(again[name]):.8g} ({tolerance.words})"


def _metrics(row: Row, again: pd.Series) -> list[str]:
    """Return the metrics of both runs: the columns after the status, without those of privacy."""
    names = list(row)
    after = [name for name in names[names.index("status") + 1 :] if name in again]
    return [name for name in after if _is_number(row[name]) and not name.startswith(("privacy_", "noise_"))]


@cache
def _has(device: str) -> bool:
    """Return whether this machine has a device."""
    if device == "cpu":
        return True
    import torch

    return torch.cuda.is_available()


def _scalars(cell: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a cell that are numbers or texts."""
    return ((name, value) for name, value in cell.items() if isinstance(value, str | int | float))


def _is_number(text: str) -> bool:
    """Return whether a cell holds a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
