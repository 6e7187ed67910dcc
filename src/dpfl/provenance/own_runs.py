"""Read runs of one's own data and model, as `dpfl fedavg` leaves them: one folder for each run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfl.errors import InputError
from dpfl.files import parse_json, read_bytes, record_path
from dpfl.provenance.record import LONGEST_RECORD
from dpfl.reporting.results import ORIGIN, read_csv

if TYPE_CHECKING:
    import pandas as pd

PAPER, EXPERIMENT = "own", "fedavg"
"""What stands for the paper and experiment of a run of one's own."""
_RUNS = "runs.csv"
_SECRET = "secret"


def folders(source: Path) -> list[Path]:
    """Return the folders of finished runs: `source` itself, or those directly in it; [] if there is none."""
    return [source] if (source / _RUNS).is_file() else sorted(each.parent for each in source.glob(f"*/{_RUNS}"))


def read(sources: Sequence[Sequence[Path]]) -> list[list[pd.DataFrame]]:
    """Return the run tables of each source, given by the folders of its runs: each table has one row, with `origin`.

    Settings stand before the column seed, as dpfl.grid.run_table has them; noise_multiplier is among them, missing if
    the noise was calibrated. Seeds are text. A secret seed is "secret <folder>": no other run shares its draws. If two
    data files of one name, or two sources of one model, differ by the hashes in the runs' records, the second is called
    "my.npz (2)". Raises InputError for a run whose record is missing, or of another command.
    """
    known: dict[tuple[str, str], list[str]] = {}
    return [[_run(folder, known) for folder in source] for source in sources]


def _run(folder: Path, known: dict[tuple[str, str], list[str]]) -> pd.DataFrame:
    """Return the run table of a folder; `known` has the hashes that each name has stood for."""
    table, given = read_csv(folder / _RUNS), _recorded(record_path(folder / _RUNS))
    hashes = {"dataset": given["data_sha256"], "model": given["model_source_sha256"]}
    if missing := [name for name in (*hashes, "seed") if name not in table]:
        raise InputError(f"{folder / _RUNS} is not a table of dpfl fedavg: it has no column {missing[0]}")
    table["seed"] = table["seed"].astype(str).replace(_SECRET, f"{_SECRET} {folder}")
    for name, found in hashes.items():
        table[name] = [_named(known.setdefault((name, each), []), each, found) for each in table[name]]
    table = table.drop(columns="noise_multiplier", errors="ignore")
    table.insert(table.columns.get_loc("seed"), "noise_multiplier", given["noise_multiplier"])
    return table.assign(paper=PAPER, experiment=EXPERIMENT, **{ORIGIN: str(folder)})


def _named(hashes: list[str], name: str, found: str) -> str:
    """Return a name, with a number if it stood for another hash before."""
    if found not in hashes:
        hashes.append(found)
    number = hashes.index(found) + 1
    return name if number == 1 else f"{name} ({number})"


def _recorded(path: Path) -> dict[str, Any]:
    """Return the hashes and the noise in the record of a run, nan for noise that was calibrated.

    `read_record` would refuse it if the run lies outside the working folder.
    """
    if not path.exists():
        raise InputError(f"{path} is not there: copy the whole folder, or let dpfl fedavg go on to the end of the run")
    content = read_bytes(path, LONGEST_RECORD)
    try:
        given = parse_json(content)["settings"]
        noise = given["noise_multiplier"]
        hashes = {name: str(given[name]) for name in ("data_sha256", "model_source_sha256")}
        return hashes | {"noise_multiplier": math.nan if noise is None else float(noise)}
    except (LookupError, TypeError, ValueError):
        raise InputError(f"{path} is not a record of dpfl fedavg") from None
