"""Run tables: one row for each run, with the data, the settings, the metrics and the guarantee that it rests on."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from dpfl.errors import InputError

if TYPE_CHECKING:
    from dpfl.grid.training_job import TrainingJob

ACCOUNTED = ("noise_", "privacy_")
"""Prefixes of the columns that a run takes over from its calibration."""


def as_columns(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as table columns: lists and mappings as JSON text, None as nan, enums as their text."""
    return {name: _as_column(value) for name, value in settings.items()}


def calibrated(calibration: pd.DataFrame, cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the calibration's row of each cell, given by its columns and in their order.

    Raises InputError where the calibration has other cells.
    """
    rows = calibration.to_dict("records")
    if len(rows) != len(cells):
        raise InputError(f"the calibration has {len(rows)} rows for {len(cells)} cells; run `dpfl calibrate` again")
    for row, cell in zip(rows, map(as_columns, cells), strict=True):
        other = next((name for name, value in cell.items() if not _equal(row.get(name), value)), None)
        if other is not None:
            raise InputError(
                f"the calibration has {other} {row.get(other)}, not {cell[other]}; run `dpfl calibrate` again"
            )
    return rows


def run_table(
    job: TrainingJob,
    description: Mapping[str, Any],
    noise: Sequence[Mapping[str, Any]],
    results: Mapping[tuple[int, int], Mapping[str, Any]],
    settings: Sequence[Mapping[str, Any]] | None = None,
) -> pd.DataFrame:
    """Return the run table: a row a (cell, seed), cells in the job's order and seeds within.

    `noise` has each cell's calibration (`calibrated`), `results` the metrics by cell index and seed ("finished" where
    they name no status), `settings` what each cell's runs are described by; by default the job's settings with
    the cell's keys, but for lists and mappings, which belong to the paper's figures. `description` is the data set's.
    """
    identity = {"paper": job.paper, "job": job.name, "experiment": job.experiment, "dataset": job.dataset}
    identity |= {"stand_in_for": description["stand_in_for"] or "", "data_note": description["note"]}
    single = {name: value for name, value in job.settings.items() if not isinstance(value, dict | list)}
    described = settings or [{**single, **cell} for cell in job.cells]
    rows = []
    for index, (own, calibration) in enumerate(zip(described, noise, strict=True)):
        accounted = {name: value for name, value in calibration.items() if name.startswith(ACCOUNTED)}
        for seed in job.seeds:
            metrics = {"status": "finished", **results[index, seed]}
            rows.append({**identity, **as_columns(own), "seed": seed, **metrics, **accounted})
    return pd.DataFrame(rows)


def _as_column(value: Any) -> Any:
    """Return one value as a table holds it."""
    if value is None:
        return math.nan
    return json.dumps(value) if isinstance(value, dict | list | tuple) else value


def _equal(stated: Any, wanted: Any) -> bool:
    """Return whether a calibration's value is a cell's; nan is nan."""
    return stated == wanted or (stated != stated and wanted != wanted)
