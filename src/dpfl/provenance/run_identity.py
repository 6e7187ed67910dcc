"""Decide which stages are finished: by what their records say they were made from, wherever the files come from.

A run table is finished where its record names the job, the data, the training code, the noise and versions that count
as those of today. The accountants' code is not among them: it reaches a run by its noise. Times of files, Snakemake's
own notes, the device, the folder and the machine do not count. The same holds for a paper's noise. A page is finished
where it was made from today's inputs, by today's code and paper.yaml. Plan, dry run, run and status all ask here.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from dpfl.catalog import dataset_entries
from dpfl.data import datasets
from dpfl.errors import InputError
from dpfl.experiments import module_name
from dpfl.files import file_sha256, has_bytes, is_regular, record_path
from dpfl.grid.expansion import noise_table_path, run_table_path
from dpfl.provenance.record import gives_these_numbers, published_digest, read_record
from dpfl.provenance.source_digest import is_current, source_digest
from dpfl.provenance.trace import NOISE, same_noise, value_of
from dpfl.reporting.results import read_csv

if TYPE_CHECKING:
    from dpfl.grid.training_job import TrainingJob

_DECIDES_NO_NUMBER = ("title", "licence", "licence_url", "mirror_folder", "files")


def run_identity(job: TrainingJob) -> dict[str, str]:
    """Return what decides a job's run table, versions and noise apart: settings, cells and seeds; data; code."""
    made = (*datasets.modules(job.dataset), *(("dpfl.features.scattering",) if job.needs_features else ()))
    return {
        "job": job.digest(),
        "dataset": _data_digest(job.dataset),
        "data_code": source_digest(*made),
        "code": source_digest(training_code(job.experiment), calibrated=True),
    }


def training_code(experiment: str) -> str:
    """Return the function that trains, as source_digest takes it: what only calibrates decides no number of a run."""
    return f"{module_name(experiment)}:train"


def calibration_code(experiment: str) -> str:
    """Return the function that calibrates, as source_digest takes it."""
    return f"{module_name(experiment)}:calibrate"


def noise_of(job: TrainingJob, table: Path) -> dict[str, str]:
    """Return a hash of the noise that a paper's table has for the job's cells, whatever is proven of it; {} where
    there is none yet."""
    rows = _noise_rows(job, table)
    return {} if rows.empty else {"noise": _digest(rows.astype(str).to_dict("split", index=False))}


def _noise_rows(job: TrainingJob, table: Path) -> pd.DataFrame:
    """Return the rows of a paper's noise for the job's cells, without bounds on epsilon for it, columns in order."""
    rows = _noise_table(table, os.stat(table).st_mtime_ns) if is_regular(table) else pd.DataFrame()
    if "calibration_key" not in rows:  # none, or damaged: a stage that reads it says so
        return pd.DataFrame()
    return rows.loc[
        rows["calibration_key"] == job.calibration_key, sorted(name for name in rows if not name.startswith("privacy_"))
    ]


@lru_cache(maxsize=16)
def _noise_table(table: Path, _time: int) -> pd.DataFrame:
    """Return a paper's noise, read once for all of its jobs; empty where it cannot be read."""
    try:
        return read_csv(table)
    except InputError:
        return pd.DataFrame()


def noise_identity(jobs: Iterable[TrainingJob]) -> dict[str, str]:
    """Return what decides the noise of a paper's jobs, versions apart: its code, and for each calibration key its
    settings, cells and data (not its seeds)."""
    jobs = list(jobs)
    codes = sorted({calibration_code(job.experiment) for job in jobs})
    by_key = {s.calibration_key: _digest([s.settings, s.cells, _data_digest(s.dataset)]) for s in jobs}
    return {"code": source_digest(*codes), **by_key}


def is_finished(job: TrainingJob, results: Path) -> bool:
    """Return whether results/<scale> has the run table that training this job today, with its noise, would give."""
    table = run_table_path(results, job.paper, job.name)
    if not is_regular(table):
        return False
    identity, calibrated = run_identity(job), noise_table_path(results, job.paper)
    if _states(table, {**identity, **noise_of(job, calibrated)}):
        return True
    return _states(table, identity) and _has_noise(table, _noise_rows(job, calibrated))


def _has_noise(runs: Path, noise: pd.DataFrame) -> bool:
    """Return whether the runs of a table have these rows of noise, as near as a search for it ends.

    The hash of the same noise is another one where a configuration leaves other jobs of the paper out: those give its
    table further columns, empty for the others; other versions of pandas spell numbers otherwise; and a sharper
    accountant or another processor finds the same noise with other last digits.
    """
    try:
        table = read_csv(runs)
    except InputError:
        return False
    names = [name for name in noise if name in table and noise[name].notna().any()]
    names = [name for name in names if not (name == "epsilon" and "sigma" in names)]  # no target where noise is given
    try:
        used, calibrated = _by_cell(table[names]), _by_cell(noise[names])
    except ValueError:  # a damaged table has text for a noise: a stage that reads it says so
        return False
    return (
        "noise_multiplier" in names
        and used.keys() == calibrated.keys()
        and all(
            len(used[cell]) == len(calibrated[cell]) and all(map(_is_same_noise, used[cell], calibrated[cell]))
            for cell in used
        )
    )


def _by_cell(table: pd.DataFrame) -> dict[tuple[object, ...], list[tuple[float, ...]]]:
    """Return the different noises of each cell of a table, in order; cells by the values of what is not noise."""
    noises: dict[tuple[object, ...], set[tuple[float, ...]]] = {}
    found = [name for name in table if name in NOISE]
    cells, rows = (part.itertuples(index=False) for part in (table.drop(columns=found), table[found]))
    for cell, noise in zip(cells, rows, strict=True):
        noises.setdefault(tuple(value_of(str(value)) for value in cell), set()).add(tuple(map(float, noise)))
    return {cell: sorted(each) for cell, each in noises.items()}


def _is_same_noise(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Return whether two rows' noises are the same, each within the tolerance of a search."""
    return all(map(same_noise, map(str, one), map(str, other)))


def is_trained_here(record: Mapping[str, Any]) -> bool:
    """Return whether the code that its record states to have trained a run is the code of this process.

    Accountants count by the noise that they gave, which is hashed by value, not by their code.
    """
    stated = record.get("identity")
    try:
        code = source_digest(*record["source"]["modules"], calibrated=True)
    except ModuleNotFoundError:
        return False
    return isinstance(stated, dict) and stated.get("code") == code


def is_calibrated(jobs: Iterable[TrainingJob], table: Path) -> bool:
    """Return whether `table` has the noise that calibrating a paper's jobs today would give, of others or not.

    A table that is not what its record says has none: its noise would make finished runs count as open.
    """
    return _states(table, noise_identity(jobs)) and _is_as_recorded(table)


def _is_as_recorded(table: Path) -> bool:
    """Return whether a table has the bytes that its record, which is readable, states."""
    written = {Path(each["path"]).name: each for each in read_record(record_path(table))["outputs"]}
    return table.name in written and has_bytes(table, written[table.name])


def is_page_current(csv: Path, paper: str, inputs: Iterable[Path]) -> bool:
    """Return whether the record of a page's CSV states these inputs, code and paper as they are, and its files are so.

    Derived pages (`DERIVED`) may be absent: they are made from the rest.
    """
    from dpfl.reporting.pages import DERIVED  # with matplotlib, which a plan does without

    try:
        record = read_record(record_path(csv))
    except InputError:
        return False
    stated = {each["path"]: each["sha256"] for each in record["inputs"]}
    source, outputs = record["source"], [(Path(each["path"]), each) for each in record["outputs"]]
    return (
        source.get("published") == published_digest(paper)
        and stated == {os.path.relpath(path): file_sha256(path) for path in inputs}
        and is_current(source)
        and all(has_bytes(csv.with_name(path.name), each) for path, each in outputs if path.suffix not in DERIVED)
    )


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
