"""Compare the noise of runs, and what they state of it, with the calibration of today."""

from __future__ import annotations

from pathlib import Path

from dpfl.errors import InputError
from dpfl.files import has_bytes, is_regular, record_path
from dpfl.grid.expansion import noise_table
from dpfl.grid.sweep import Sweep
from dpfl.provenance.audit.second_accountant import PRIVACY
from dpfl.provenance.cell_trace import NOISE, Row, read_rows, run_key, same, same_noise, value_of
from dpfl.provenance.record_format import read_record

_STATED_NOISE = (*NOISE, f"{PRIVACY}noise_multiplier")
_PROVEN = (f"{PRIVACY}epsilon_proven", f"{PRIVACY}epsilon_contraction")
_REFUTED = f"{PRIVACY}epsilon_refuted"
_HOW = (*(f"{PRIVACY}{name}" for name in ("proven_by", "refuted_by", "note")), _REFUTED)
_ROUNDING = 1e-3
"""Relative difference of two versions' epsilons for one proof."""
_CHOSEN_LATER = f"{PRIVACY}clip_norm"


class NoiseCheck:
    """Compares run tables below results/<scale> with their papers' noise, and counts those from before it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.papers: dict[str, dict[str, list[Row]] | None] = {}
        self.earlier = self.refuting_more = 0

    def problems(self, path: Path, sweep: Sweep, runs: list[Row]) -> list[str]:
        """Return what is wrong with the noise and statements of the runs of a sweep's table at `path`.

        Nothing where the paper's noise was changed since it was written: that is a finding of its own, and says nothing
        against its runs.
        """
        table = noise_table(self.folder, sweep.paper)
        if sweep.paper not in self.papers:
            self.papers[sweep.paper] = None if _differs(table, table, "outputs") else _by_family(table)
        families = self.papers[sweep.paper]
        if families is None:
            return []
        noise = families.get(sweep.family, [])
        is_earlier = _differs(path, table, "inputs")
        self.earlier += is_earlier
        self.refuting_more += is_earlier and refutes_more(runs, noise)
        return against_noise(runs, noise, earlier=is_earlier)

    def notes(self) -> list[str]:
        """Return how many tables state what an earlier calibration proved, and refuted."""
        proven = "run tables state what was proven when they were trained: their noise was calibrated again since"
        refuted = "of them state an epsilon to be refuted that is above what is refuted now"
        counts = ((self.earlier, proven), (self.refuting_more, refuted))
        return [f"{count} {words}" for count, words in counts if count]


def _by_family(path: Path) -> dict[str, list[Row]]:
    """Return the rows of a paper's noise calibration by family of sweeps; none where the file is missing."""
    families: dict[str, list[Row]] = {}
    for row in read_rows(path) if is_regular(path) else []:
        families.setdefault(row["family"], []).append(row)
    return families


def _differs(table: Path, path: Path, part: str) -> bool:
    """Return whether `path` is another file than the record of `table` states among its `part`: inputs or outputs."""
    try:
        entries = read_record(record_path(table))[part]
    except InputError:
        return False
    name = f"/{path.parent.name}/{path.name}"
    stated = [entry for entry in entries if entry["path"].endswith(name)]
    return bool(stated) and is_regular(path) and not any(has_bytes(path, entry) for entry in stated)


def against_noise(runs: list[Row], noise: list[Row], *, earlier: bool = False) -> list[str]:
    """Return the noise and statements of runs that differ from the calibration's; of runs from before it (`earlier`),
    other noise and what they state to be proven beyond it."""
    problems: dict[str, None] = {}
    for run, row in _with_noise(runs, noise):
        if row is None:
            problems["a run has no row in the noise calibration"] = None
            continue
        for name in set(run) & set(row):
            stated = name.startswith(PRIVACY) or name in NOISE
            agrees = same(run[name], row[name]) or (earlier and _follows(name, run[name], row[name]))
            if stated and name != _CHOSEN_LATER and not agrees:
                problems[f"{name} of seed {run.get('seed')} is {run[name]}, calibrated was {row[name]}"] = None
    return list(problems)


def refutes_more(runs: list[Row], noise: list[Row]) -> bool:
    """Return whether runs state an epsilon to be refuted that is above what the calibration of today refutes.

    A lower end may fall with a mended accountant. Whether what a run states is wrong, the second accountant says.
    """
    return any(
        float(run[_REFUTED] or "nan") > float(row[_REFUTED] or "nan") * (1 + _ROUNDING)
        for run, row in _with_noise(runs, noise)
        if row is not None and _REFUTED in run and _REFUTED in row
    )


def _with_noise(runs: list[Row], noise: list[Row]) -> list[tuple[Row, Row | None]]:
    """Return every run with its row of the calibration; with None where it has none."""
    by_keys: dict[tuple[str, ...], dict[tuple[object, ...], list[Row]]] = {}
    for row in noise if runs else []:
        keys = tuple(sorted(_keys(runs[0], row)))
        by_keys.setdefault(keys, {}).setdefault(tuple(value_of(row[name]) for name in keys), []).append(row)
    paired = []
    for run in runs:
        named = (rows.get(tuple(value_of(run[name]) for name in keys)) for keys, rows in by_keys.items())
        paired.append((run, _of_the_noise(run, next((each for each in named if each), []))))
    return paired


def _of_the_noise(run: Row, rows: list[Row]) -> Row | None:
    """Return the row that has the run's noise, of a cell's rows; the first where none has; None where there is none."""
    names = [name for name in _STATED_NOISE if name in run]
    having = (row for row in rows if all(same_noise(run[name], row[name]) for name in names if name in row))
    return next(having, rows[0] if rows else None)


def _follows(name: str, earlier: str, now: str) -> bool:
    """Return whether what an earlier calibration states is that of now, or was proven and follows from it.

    What it states to be refuted may be more, and is counted (`refutes_more`).
    """
    if name in _STATED_NOISE:
        return same_noise(earlier, now)
    if name in _PROVEN:
        return not float(earlier) < float(now) * (1 - _ROUNDING)
    return name in _HOW


def _keys(run: Row, row: Row) -> set[str]:
    """Return the columns that match a run with its calibration."""
    known = set(run_key(run)) & set(row) - {*_STATED_NOISE, "seed"}
    return distinguishing({name: row[name] for name in known if not name.startswith(PRIVACY)})


def distinguishing(values: Row) -> set[str]:
    """Return the columns that distinguish cells: those with a value, without the target epsilon where noise is
    given."""
    known = {name for name, value in values.items() if value not in ("", "nan")}
    return known - {"epsilon"} if "sigma" in known else known
