"""Columns of every run table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from dpfl.errors import InputError
from dpfl.grid.sweep import Sweep


def run_columns(description: dict[str, Any]) -> dict[str, str]:
    """Return the columns that say which data a run read."""
    return {"stand_in_for": description["stand_in_for"] or "", "data_note": description["note"]}


def _key(cell: Mapping[str, Any]) -> tuple[str, float]:
    """What tells a sweep's cells apart."""
    return cell["algorithm"], cell["epsilon"]


def _table(sweep: Sweep, description: Mapping[str, Any], noise: Mapping, rows: Mapping) -> pd.DataFrame:
    """Return the run table."""
    run = {"paper": sweep.paper, "sweep": sweep.name, "experiment": sweep.algorithm, "dataset": sweep.dataset}
    run |= {"stand_in_for": description["stand_in_for"] or "", "data_note": description["note"]}
    settings = {
        key: json.dumps(value) if isinstance(value, dict | list | tuple) else value
        for key, value in sweep.settings.items()
    }
    table = []
    for cell in sweep.cells:
        own = noise[_key(cell)]
        privacy = {key: own[key] for key in own.index if key.startswith("privacy_")}
        added = {"batch_size": int(own["batch_size"]), "noise_multiplier": own["noise_multiplier"]}
        for seed in sweep.seeds:
            chosen = rows[*_key(cell), seed]
            spent = {**privacy, "privacy_clip_norm": chosen["clip_norm"]}
            table.append({**run, **settings, **cell, **added, "seed": seed, **chosen, **spent})
    return pd.DataFrame(table)


def _calibrated(calibration: pd.DataFrame, cell: Mapping[str, Any]) -> pd.Series:
    """Return the calibration's row of a cell; raises InputError where there is none, or more than one."""
    fits = np.ones(len(calibration), dtype=bool)
    for key, value in cell.items():
        fits &= (calibration[key] == _scalar(value)).to_numpy() if key in calibration else False
    if fits.sum() != 1:
        raise InputError(f"the calibration has {fits.sum()} rows for {dict(cell)}, not one; run `dpfl calibrate` again")
    return calibration[fits].iloc[0]


def _scalar(value: Any) -> Any:
    """Return a cell's value as a table holds it: lists as their JSON text."""
    return json.dumps(value) if isinstance(value, list) else value
