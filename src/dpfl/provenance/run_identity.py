"""Decide which stages are finished: by what their records say they were made from, wherever the files come from.

A run table is finished where its record names the sweep, the data, the training code, the noise and versions that count
as those of today. The accountants' code is not among them: it reaches a run by its noise. Times of files, Snakemake's
own notes, the device, the folder and the machine do not count. The same holds for a paper's noise. Plan, dry run, run
and status all ask here.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from dpfl.catalog import dataset_entries
from dpfl.data import datasets
from dpfl.errors import InputError
from dpfl.experiments.protocol import module_name
from dpfl.files import is_regular, record_path
from dpfl.grid.expansion import run_table
from dpfl.grid.sweep import Sweep
from dpfl.provenance.environment import gives_these_numbers
from dpfl.provenance.record_format import read_record
from dpfl.provenance.source_digest import source_digest
from dpfl.reporting.results import read_csv

_DECIDES_NO_NUMBER = ("title", "licence", "licence_url", "mirror_folder", "files")


def run_identity(sweep: Sweep) -> dict[str, str]:
    """Return what decides a sweep's run table, versions and noise apart: settings, cells and seeds; data; code."""
    made = ("dpfl.data.arrays", *(("dpfl.features.scattering",) if sweep.needs_features else ()))
    return {
        "sweep": sweep.digest(),
        "dataset": _data_digest(sweep.dataset),
        "data_code": source_digest(*made),
        "code": source_digest(module_name(sweep.experiment), calibrated=True),
    }


def noise_of(sweep: Sweep, table: Path) -> dict[str, str]:
    """Return a hash of the noise that a paper's table has for the sweep's cells, whatever is proven of it; {} where
    there is no table yet."""
    if not is_regular(table):
        return {}
    rows = _noise_table(table, os.stat(table).st_mtime_ns)
    rows = rows[rows["family"] == sweep.family]
    drawn = [name for name in rows if not name.startswith("privacy_")]
    return {"noise": _digest(rows[sorted(drawn)].astype(str).to_dict("split", index=False))}


@lru_cache(maxsize=16)
def _noise_table(table: Path, _time: int) -> pd.DataFrame:
    """Return a paper's noise, read once for all of its sweeps."""
    return read_csv(table)


def noise_identity(sweeps: Iterable[Sweep]) -> dict[str, str]:
    """Return what decides the noise of a paper's sweeps, versions apart: its code, and for each family of sweeps its
    settings, cells and data (not its seeds)."""
    sweeps = list(sweeps)
    codes = sorted({module_name(sweep.experiment) for sweep in sweeps})
    families = {s.family: _digest([s.settings, s.cells, _data_digest(s.dataset)]) for s in sweeps}
    return {"code": source_digest(*codes), **families}


def is_finished(sweep: Sweep, results: Path) -> bool:
    """Return whether results/<scale> has the run table that training this sweep today, with its noise, would give."""
    table = run_table(results, sweep.paper, sweep.name)
    if not is_regular(table):
        return False
    return _states(table, {**run_identity(sweep), **noise_of(sweep, results / "accounting" / f"{sweep.paper}.csv")})


def is_calibrated(sweeps: Iterable[Sweep], table: Path) -> bool:
    """Return whether `table` has the noise that calibrating a paper's sweeps today would give, of others or not."""
    return _states(table, noise_identity(sweeps))


def _states(table: Path, identity: Mapping[str, str]) -> bool:
    """Return whether a table and its record are there, and the record states this identity and versions that count."""
    if not is_regular(table):
        return False
    try:
        record = read_record(record_path(table))
    except InputError:
        return False
    stated = record.get("identity")
    is_same = isinstance(stated, dict) and identity.items() <= stated.items()
    return is_same and gives_these_numbers(record["software"])


def _data_digest(name: str) -> str:
    """Return a hash of what decides a data set's arrays: its entry without titles, licences and addresses."""
    entry = {key: value for key, value in dataset_entries()[name].items() if key not in _DECIDES_NO_NUMBER}
    data = datasets.load(name)
    return _digest([entry, [[each.file, each.sha256] for each in data.files if not each.variant_of]])


def _digest(facts: Any) -> str:
    """Return a hash of plain values, in the order that they have."""
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
