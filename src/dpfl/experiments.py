"""The contract of an experiment: what an entry of the grid names, and what `dpfl calibrate` and `dpfl train` call.

An experiment is a module of one of the packages KINDS; its name is the key `experiment` of a grid entry, the column
`experiment` of its run tables and the first part of its kind of cost. It offers the two functions of `Experiment`.

- A job's `settings` are the paper's, the entry's and the values of the job's axes, `cells` the variants that are
  trained as one stack. The experiment reads both as fields of its models (dpfl.grid.settings.Settings),
  before it computes: what cannot be used raises InputError, one line that names the setting or the cell's key. What an
  entry or a cell sets and no model has is refused (`require_known`), and what paper.yaml sets and nothing reads.
- `calibrate` reads the data set's description only, never its records: it returns a row a cell with the cell's keys,
  `noise_multiplier` (the noise's standard deviation over the norm bound of one record's contribution; 0 without
  privacy) and the columns `privacy_*` of the run's statement. `dpfl calibrate` joins these tables for a paper.
- `train` takes these rows back and returns the run table (dpfl.grid.run_table): one row for each run, cells in the
  job's order and seeds within, each with all that it rests on. Columns: paper, job, experiment, dataset,
  stand_in_for, data_note; the settings and the cell's keys; seed; status ("finished" or "diverged"); the metrics, of
  which the first is a number in every finished run; noise_* and privacy_*. On a CPU the same arguments give
  the same bytes, with or without a checkpoint to resume from; on a GPU its model too decides them, and they repeat as
  far as CUDA's libraries repeat theirs.
- `is_known_bad(job, cell)` is for attacks alone, and need not be there: whether a cell is a control, which states an
  epsilon that is false on purpose. Such rows have True in the column known_bad, and no other row may.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpfl import catalog
from dpfl.errors import InputError
from dpfl.grid.settings import Settings

if TYPE_CHECKING:
    from dpfl.grid.training_job import Folders, TrainingJob
    from dpfl.progress import ProgressCallback

KINDS = ("dpfl.images", "dpfl.convex", "dpfl.asynchronous", "dpfl.attacks")
"""The packages whose modules with `calibrate` and `train` are experiments: kinds of training, and attacks on them."""
STATUSES = ("finished", "diverged")
_STATEMENT = tuple(
    f"privacy_{name}"
    for name in (
        "mechanism", "sampler", "neighbouring", "observer", "clip_norm", "noise_multiplier", "steps", "delta",
        "epsilon_proven", "epsilon_refuted",
    )
)  # fmt: skip
"""What a run's privacy statement has at least: without these nobody can check its epsilon."""
_LABELS = ("dataset", "study", "axis")
"""Keys of jobs that name data and pages, and that no experiment has to read."""
_WHOLE = ("dataset", "study")
"""Those that are a whole job's, never a cell's."""
_WRITTEN = ("paper", "job", "experiment", "seed", "status", "stand_in_for", "data_note")
"""Columns of run tables that say whose run a row is and how it ended: no setting has such a name."""


class Experiment(Protocol):
    """The functions that an experiment offers; the module's docstring says what is trained and why."""

    def calibrate(self, job: TrainingJob, description: Mapping[str, Any]) -> pd.DataFrame:
        """Return one row for each cell of `job`: its keys, its noise and its privacy statement.

        `description` is the data set's (dpfl.data.loading.load_description). Raises InputError for settings or cells
        that cannot be used.
        """
        ...

    def train(
        self,
        job: TrainingJob,
        folders: Folders,
        calibration: pd.DataFrame,
        checkpoint: Path | None,
        progress: ProgressCallback,
    ) -> pd.DataFrame:
        """Return the run table of `job`: a row a (cell, seed).

        `calibration` is what `calibrate` returned for a job with the same calibration key. Long training saves its
        state at `checkpoint` and resumes there. Raises InputError where what is given cannot be used.
        """
        ...


def known_bad(job: TrainingJob) -> list[bool]:
    """Return of every cell whether its experiment states a false epsilon there on purpose, as a control of an attack.

    An experiment that has no such rule has no controls; it is not imported.
    """
    home = homes().get(job.experiment)
    spec = find_spec(home) if home else None
    if not (spec and spec.origin and "is_known_bad" in _functions(Path(spec.origin))):
        return [False] * len(job.cells)
    rule = import_module(spec.name).is_known_bad
    return [bool(rule(job, cell)) for cell in job.cells]


@cache
def _functions(path: Path) -> frozenset[str]:
    """Return the functions that a module defines, from its syntax: importing it would import torch, which is slow.

    Raises InputError for a file that is not Python.
    """
    try:
        tree = ast.parse(path.read_bytes(), path)
    except (SyntaxError, ValueError) as error:  # ValueError: a null byte, in Python 3.11
        raise InputError(f"experiment: {path} is not Python: {error}") from None
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def require_known(job: TrainingJob) -> None:
    """Raise InputError where an entry or a cell sets what no model of its experiment reads: a slip of the pen.

    So is a setting of paper.yaml that neither an experiment of the paper's grid nor one of its own modules reads, an
    experiment that there is not, a setting with the name of a column that says whose run a row is, and a data set or a
    study among the cells.
    """
    if job.experiment not in names():
        known = ", ".join(names())
        raise InputError(f"{job.paper}/grid.yaml: experiment {job.experiment!r} is unknown, should be one of {known}")
    read, of_all = _read_by(job.experiment), catalog.load(job.paper).settings.keys()
    varied = {key for cell in job.cells for key in cell}
    given = {*job.settings, *varied}
    if taken := sorted(given & set(_WRITTEN)):
        raise InputError(
            f"{job.paper}/{job.name}: the setting {taken[0]} has the name of a column that says whose run a row is; "
            "rename it"
        )
    if shared := sorted(varied & set(_WHOLE)):
        raise InputError(f"{job.paper}/{job.name}: cells vary {shared[0]}, which a whole job shares: move it to sweep")
    if unknown := sorted(given - of_all - read):
        raise InputError(
            f"{job.paper}/{job.name}: {job.experiment} reads no setting {unknown[0]}{_hint(unknown[0], read)}"
        )
    if unread := sorted(of_all - read - _read_elsewhere(job.paper)):
        raise InputError(
            f"{job.paper}/paper.yaml: nothing of the paper reads settings.{unread[0]}{_hint(unread[0], read)}"
        )


def _hint(name: str, read: frozenset[str]) -> str:
    """Return the end of a sentence that names the setting closest to `name`, if there is one."""
    near = get_close_matches(name, sorted(read), 1)
    return f"; {near[0]} is a setting" if near else ""


@cache
def _read_by(experiment: str) -> frozenset[str]:
    """Return the names of the settings that an experiment reads, and those of _LABELS."""
    fields = (name for model in _models(module_name(experiment)) for name in model.model_fields)
    return frozenset({*_LABELS, *fields})


@cache
def _read_elsewhere(paper: str) -> frozenset[str]:
    """Return the settings that other experiments of a paper's grid read, and those that its own modules name."""
    grid = catalog.load(paper).grid
    entries = [grid.get("base", {}), *(entry for part in grid.values() if isinstance(part, list) for entry in part)]
    experiments = {entry["experiment"] for entry in entries if "experiment" in entry}
    trees = [ast.parse(path.read_bytes(), path) for path in sorted((catalog.PAPERS / paper).glob("*.py"))]
    texts = {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return frozenset().union(*map(_read_by, experiments), (text for text in texts if isinstance(text, str)))


@cache
def _models(name: str) -> list[type[Settings]]:
    """Return the models of settings in a module of experiments and in those that it uses, directly or not."""
    found, waiting, models = {name}, [name], []
    while waiting:
        for value in vars(import_module(waiting.pop())).values():
            home = value.__name__ if isinstance(value, ModuleType) else str(getattr(value, "__module__", ""))
            if isinstance(value, type) and issubclass(value, Settings):
                models.append(value)
            if home.rpartition(".")[0] in KINDS and home not in found:
                found.add(home)
                waiting.append(home)
    return models


def require_calibrated(job: TrainingJob, rows: pd.DataFrame) -> None:
    """Raise InputError where what an experiment's `calibrate` returned for `job` breaks the contract."""
    _require_rows(job, "calibrate", rows, len(job.cells), [*job.cells[0], "noise_multiplier", *_STATEMENT])
    _require_noise(job, "calibrate", rows)


def require_trained(job: TrainingJob, table: pd.DataFrame) -> None:
    """Raise InputError where what an experiment's `train` returned for `job` breaks the contract."""
    columns = ["paper", "job", "experiment", "dataset", *job.cells[0], "seed", "status", "noise_multiplier"]
    _require_rows(job, "train", table, len(job.cells) * len(job.seeds), [*columns, *_STATEMENT])
    _require_noise(job, "train", table)
    _require_own(job, table)
    if unknown := sorted(set(map(str, table["status"])) - set(STATUSES)):
        raise InputError(f"{_place(job, 'train')} the status {unknown[0]}, should be {' or '.join(STATUSES)}")
    names = [*table.columns, ""]
    main = names[names.index("status") + 1]
    if not main or main in columns or main.startswith("privacy_"):
        raise InputError(f"{_place(job, 'train')} no metric: it stands in the column after status")
    finished = (table["status"] == "finished").to_numpy()
    if row := _first(finished & ~np.isfinite(_numbers(table[main]))):
        stated = table[main].iloc[row - 1]
        raise InputError(
            f"{_place(job, 'train')} the {main} {stated} in row {row}: a finished run's metric, which is the column "
            "after status, should be a number"
        )


def _require_rows(job: TrainingJob, function: str, rows: object, count: int, columns: list[str]) -> None:
    """Raise InputError where `rows` is no table of so many rows with these columns."""
    place = _place(job, function)
    if not isinstance(rows, pd.DataFrame):
        raise InputError(f"{place} a {type(rows).__name__}, should be a DataFrame")
    if len(rows) != count:
        raise InputError(f"{place} {len(rows)} rows, should be {count}")
    if missing := [name for name in columns if name not in rows]:
        raise InputError(f"{place} a table without the column {missing[0]}")


def _require_own(job: TrainingJob, table: pd.DataFrame) -> None:
    """Raise InputError unless each row says whose run it is: the job's, of its cell and its seed, in this order.

    A metric of the same name would take their place, and the pages would then count the run for another cell.
    """
    job_is = {"paper": job.paper, "job": job.name, "experiment": job.experiment, "dataset": job.dataset}
    runs = [(cell, seed) for cell in job.cells for seed in job.seeds]
    for number, (row, (cell, seed)) in enumerate(zip(table.to_dict("records"), runs, strict=True), 1):
        plain = {name: value for name, value in cell.items() if isinstance(value, str | int | float)}
        for name, value in {**job_is, **plain, "seed": seed}.items():
            unused = row[name] != row[name]  # nan, of a setting that this run has no use for
            if row[name] != value and not unused:
                where = f"{_place(job, 'train')} {name} {row[name]} in row {number}"
                raise InputError(f"{where}, should be {value}: a row for each cell and seed, seeds within cells")


def _require_noise(job: TrainingJob, function: str, rows: pd.DataFrame) -> None:
    """Raise InputError unless every row states its noise multiplier, a number of 0 or more, and its mechanism."""
    noise = _numbers(rows["noise_multiplier"])
    if row := _first(~(np.isfinite(noise) & (noise >= 0))):
        stated = rows["noise_multiplier"].iloc[row - 1]
        where = f"{_place(job, function)} the noise_multiplier {stated} in row {row}"
        raise InputError(f"{where}, should be a number of 0 or more")
    if row := _first(rows["privacy_mechanism"].isna().to_numpy()):
        raise InputError(f"{_place(job, function)} no privacy_mechanism in row {row}: every run states its privacy")


def _first(wrong: NDArray[np.bool_]) -> int:
    """Return the number of the first row that is wrong, counted from 1; 0 if none is."""
    return int(np.argmax(wrong)) + 1 if wrong.any() else 0


def _numbers(column: Any) -> NDArray[np.float64]:
    """Return a column's numbers, nan where a cell holds none."""
    return np.asarray(pd.to_numeric(column, errors="coerce"), dtype=np.float64)


def _place(job: TrainingJob, function: str) -> str:
    """Return the start of a line that says what an experiment returned."""
    return f"experiment {job.experiment}: {function} returned for {job.paper}/{job.name}"


@cache
def names() -> tuple[str, ...]:
    """Return the names of all experiments, in alphabetical order."""
    return tuple(sorted(homes()))


@cache
def homes() -> dict[str, str]:
    """Return the module of each experiment: what has the two functions, read without importing it (torch is slow)."""
    found: dict[str, str] = {}
    for kind in KINDS:
        package = import_module(kind)
        for path in sorted(path for folder in package.__path__ for path in Path(folder).glob("*.py")):
            if {"calibrate", "train"} <= _functions(path):
                if path.stem in found:
                    raise InputError(f"experiment: {found[path.stem]} and {kind}.{path.stem} have one name; rename one")
                found[path.stem] = f"{kind}.{path.stem}"
    return found


def module_name(experiment: str) -> str:
    """Return the module of an experiment, for records and source digests; raises InputError for an unknown name."""
    if experiment not in names():
        raise InputError(f"experiment: {experiment!r} is unknown, should be one of {', '.join(names())}")
    return homes()[experiment]


def load(experiment: str) -> Experiment:
    """Return an experiment; raises InputError for an unknown name."""
    return cast("Experiment", import_module(module_name(experiment)))
