"""Train runs again, alone, drawn at random or chosen, and compare them with their run tables."""

from __future__ import annotations

import csv
import io
import math
import platform
import random
import secrets
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import metadata
from itertools import takewhile
from pathlib import Path
from typing import Any

import pandas as pd

from dpfl import experiments, gpu
from dpfl.data.loading import load_description
from dpfl.errors import InputError
from dpfl.files import is_regular, record_path
from dpfl.grid.expansion import run_table_path
from dpfl.grid.training_job import Folders, TrainingJob, with_memory
from dpfl.provenance.audit.findings import Audit, Finding
from dpfl.provenance.record import read_record
from dpfl.provenance.run_identity import is_trained_here
from dpfl.provenance.trace import Row, number_in, read_rows, same, same_noise
from dpfl.reporting.results import write_csv

Values = Mapping[str, Any]
"""A row of a table that was made again, by column in the table's order."""

# State the tolerated differences between a run trained again and the run that was recorded.


@dataclass(frozen=True)
class Tolerance:
    """The largest difference of a metric that is not a finding; `unit` is "points" (of accuracy) or "relative"."""

    largest: float
    unit: str

    @property
    def words(self) -> str:
        """The tolerance as text."""
        return f"{self.largest:g} {self.unit}"

    def holds(self, recorded: float, repeated: float) -> bool:
        """Return whether two values agree; nan agrees with nan. Relative to `recorded`, absolute below 1."""
        if recorded != recorded or repeated != repeated:
            return recorded != recorded and repeated != repeated
        if recorded == repeated:
            return True
        scale = 1.0 if self.unit == "points" else max(1.0, abs(recorded))
        return abs(recorded - repeated) <= self.largest * scale


FLOAT32 = Tolerance(1.0, "points")
FLOAT32_SUMS = Tolerance(1e-5, "relative")
FLOAT64 = Tolerance(1e-9, "relative")
"""On one machine the same bytes come out. Another instruction set or thread count changes the order of sums: at most
6e-15 in float64 and 0.9 points of accuracy in float32 on the demo's runs. Training without noise can be chaotic: of
ScatterNet + linear, whose features are long for a learning rate of 0.3, one epoch makes 4e-2 of a relative 3e-8
(CIFAR-10: 2 points), and CNN + ReLU can die of one rounding (74 points). An attack on an image model has no accuracy:
its metrics are counts of guesses and sums of what canaries' weights showed, which moved by a relative 3e-8."""


def tolerance_of(experiment: str, settings: Mapping[str, Any]) -> Tolerance:
    """Return the tolerance of a job's metrics. Image models have a setting `precision`; all others use float64."""
    if experiment == "fedavg_images":
        return FLOAT32
    return FLOAT32_SUMS if "precision" in settings else FLOAT64


def platform_of(software: Mapping[str, str], host: Mapping[str, Any]) -> dict[str, str]:
    """Return what of a record's software and host may change a result: versions without their last number, and the
    device, with the model of a GPU, on which the noise depends."""
    versions = {name: ".".join(software[name].partition("+")[0].split(".")[:2]) for name in ("torch", "python")}
    model = f" ({host['gpu']})" if "gpu" in host else ""
    return versions | {"device": f"{host['device']}{model}"}


def platform_here(device: str) -> dict[str, str]:
    """Return the same of this process."""
    host = {"device": device, **(gpu.facts() if device == "cuda" else {})}
    return platform_of({"torch": metadata.version("torch"), "python": platform.python_version()}, host)


def difference(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the differences of two platforms, in words: "torch 2.13 to 2.11"."""
    return [f"{name} {before[name]} to {after[name]}" for name in before if before[name] != after[name]]


MOST_SECONDS = 900
"""Runs that took longer, for each seed of their job, are not drawn."""
_GPU_SECONDS = 30
"""The same for a run that a GPU made and a CPU has to make again."""
PUBLISHED_WEIGHT = 4
"""How much more often a family of published cells is drawn than one of a study."""


@dataclass(frozen=True)
class Rerun:
    """One run of a job, its row in the run table, and the record of that table."""

    job: TrainingJob
    cell: dict[str, Any]
    row: Row
    path: Path
    record: dict[str, Any]

    @property
    def device(self) -> str:
        """Device to train it on again: the one that its record names, else the CPU."""
        return self.record["host"]["device"] if _has(self.record["host"]["device"]) else "cpu"

    @property
    def tolerance(self) -> Tolerance:
        """Tolerated difference of its metrics."""
        return tolerance_of(self.job.experiment, self.job.settings)

    @property
    def may_amplify_rounding(self) -> bool:
        """Return whether it trained without noise, in float32 and beside other cells of its job (`FLOAT64`)."""
        silent = float(self.row["noise_multiplier"]) == 0
        return silent and self.tolerance is FLOAT32 and len(self.job.cells) > 1

    @property
    def caveats(self) -> str:
        """Differences from the recorded run: code, versions or device."""
        caveats = [] if is_trained_here(self.record) else ["by other code than made it"]
        before, after = platform_of(self.record["software"], self.record["host"]), platform_here(self.device)
        caveats += [f"across a change of platform: {each}" for each in difference(before, after)]
        return f" ({'; '.join(caveats)})" if caveats else ""

    @property
    def name(self) -> str:
        """Paper, job, cell and seed."""
        cell = ", ".join(f"{name}={value}" for name, value in self.cell.items())
        return f"{self.job.paper}/{self.job.name} ({cell}, seed {self.row['seed']})"


@dataclass(frozen=True)
class Choice:
    """Runs to train again: `count` drawn at random by `seed`, and runs of one job ("paper/job") that meet
    all conditions `where`, by column of the run table. Without a seed a fresh one is drawn."""

    count: int = 0
    seed: int | None = None
    cell: str | None = None
    where: Mapping[str, str] = field(default_factory=dict)


def check_reruns(report: Audit, root: Path, config: Mapping[str, Any], jobs: list[TrainingJob], choice: Choice) -> None:
    """Train runs again, chosen by the auditor or drawn from all that can be trained here, and add the differences.

    Each is trained alone, so that an influence of its stack would show. Metrics agree within the tolerance of the
    experiment (`tolerance_of`); noise within 1e-6. One without noise, in float32, that differs is trained once more
    with all cells of its job, as it was recorded: such training can amplify the rounding of a sum. Where that gives
    the recorded metrics, a note has both. Where torch, Python or the device is another than the record's, the answer
    says so. Fewer retrained than asked is a finding, with the command that makes missing data.
    Raises InputError where the chosen cell has no run.
    """
    data = root / config["data"]["folder"]
    runs = list(runs_of(root / "results" / config["scale"], jobs))
    named = [run for run in runs if _is_named(run, choice)] if choice.cell else []
    if choice.cell and not named:
        here = sorted({f"{run.job.paper}/{run.job.name}" for run in runs})
        few = ", ".join(here[:5]) or "none"
        raise InputError(
            f"no run of {choice.cell} here meets {dict(choice.where)}; there are runs of {len(here)} jobs: {few}"
        )
    wanted = [run for run in named if _is_here(run, data)]
    skipped = Counter(_missing_data(run) for run in named if not _is_here(run, data))
    if choice.count:
        seed = secrets.randbelow(2**32) if choice.seed is None else choice.seed
        reasons = [_hindrance(run, data) for run in runs]
        skipped += Counter(filter(None, reasons))
        possible = [run for run, reason in zip(runs, reasons, strict=True) if not reason and run not in wanted]
        wanted += drawn(possible, choice.count, random.Random(seed))
        report.notes.append(f"runs were drawn at random, published cells most often: --seed {seed} draws the same")
    for run in wanted:
        _check_one(report, root, run, data)
    for reason, number in skipped.items():
        report.notes.append(f"runs that could not be trained again here: {number} ({reason})")
    if len(wanted) < (asked := choice.count + len(named)):
        absent = [run.job for run in runs if not _is_here(run, data)]
        problem = f"could be trained again in {len(wanted)} of {asked} runs that were asked for"
        report.findings.append(Finding(f"results/{config['scale']}", problem + _command(config, absent)))


def drawn(possible: list[Rerun], count: int, generator: random.Random) -> list[Rerun]:
    """Return `count` runs drawn without replacement. Every family of jobs has one weight, however many runs it has:
    `PUBLISHED_WEIGHT` where its cells are published ones, 1 where they are a study of this project."""
    sizes = Counter((run.job.paper, run.job.calibration_key) for run in possible)

    def key(run: Rerun) -> float:
        weight = PUBLISHED_WEIGHT if run.job.settings.get("study") in (None, "none") else 1
        return math.log(1.0 - generator.random()) * sizes[run.job.paper, run.job.calibration_key] / weight

    return [run for _, run in sorted(((key(run), run) for run in possible), key=lambda pair: -pair[0])[:count]]


def _check_one(report: Audit, root: Path, run: Rerun, data: Path) -> None:
    """Train one run again and add how it differs, or that it does not."""
    alone: list[str] = []
    try:
        again, problems = _repeated(run, data, (run.cell,))
        if problems and run.may_amplify_rounding:
            alone = problems
            again, problems = _repeated(run, data, run.job.cells)
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
        where = f" with the cells of its job; alone, {'; '.join(alone)}" if alone else ""
        report.notes.append(f"trained again, {how}: {name}{where}")


def _is_named(run: Rerun, choice: Choice) -> bool:
    """Return whether a run is of the chosen cell; raises InputError for a column that its run table does not have."""
    if f"{run.job.paper}/{run.job.name}" != choice.cell:
        return False
    if unknown := set(choice.where) - set(run.row):
        raise InputError(f"{run.path.name} has no column {sorted(unknown)[0]}; it has {', '.join(run.row)}")
    return all(same(run.row[name], value) for name, value in choice.where.items())


def _command(config: Mapping[str, Any], jobs: list[TrainingJob]) -> str:
    """Return the command that fetches and makes the data of jobs, empty if there are none."""
    folders = {"arrays": {job.dataset for job in jobs}}
    folders["features"] = {job.dataset for job in jobs if job.needs_features}
    data = Path(config["data"]["folder"])
    files = [str(data / kind / name / "description.json") for kind, names in folders.items() for name in sorted(names)]
    if not files:
        return ""
    options = ["--profile", "workflow/profiles/default", "--configfile", f"results/{config['scale']}/config.yaml"]
    return f"; the missing data are made by: {shlex.join(['snakemake', *options, '--', *files])}"


def runs_of(folder: Path, jobs: list[TrainingJob]) -> Iterator[Rerun]:
    """Yield every existing run below results/<scale>, in the grid's order.

    A run table has the rows of a seed in the order of the cells; one that lacks rows is a finding of another check.
    """
    for job in jobs:
        path = run_table_path(folder, job.paper, job.name)
        if not (is_regular(path) and is_regular(record_path(path))):
            continue
        rows, record = read_rows(path), read_record(record_path(path))
        by_seed = [[row for row in rows if row["seed"] == str(seed)] for seed in job.seeds]
        whole = [own for own in by_seed if len(own) == len(job.cells)]
        for place, cell in enumerate(job.cells):
            for own in whole:
                yield Rerun(job, cell, own[place], path, record)


def _is_here(run: Rerun, data: Path) -> bool:
    """Return whether the data that a run needs are on this machine."""
    folders = Folders.of(data, run.job.dataset)
    needed = [folders.arrays, folders.features] if run.job.needs_features else [folders.arrays]
    return all((folder / "description.json").exists() for folder in needed)


def _missing_data(run: Rerun) -> str:
    """Return that a run's data are missing, in words."""
    return f"the data of {run.job.dataset} are not on this machine"


def _hindrance(run: Rerun, data: Path) -> str:
    """Return the reason why a run is not drawn here, empty if there is none."""
    if not _is_here(run, data):
        return _missing_data(run)
    made_on = run.record["host"]["device"]
    most = MOST_SECONDS if made_on == run.device else _GPU_SECONDS
    if run.record["seconds"] / len(run.job.seeds) > most:
        return f"a seed took more than {most} s{'' if made_on == run.device else f' on {made_on}'}"
    return ""


def _repeated(run: Rerun, data: Path, cells: tuple[dict[str, Any], ...]) -> tuple[Values, list[str]]:
    """Return the row of a run that was trained again with `cells`, and how it differs."""
    noise, again = _train_again(run, data, cells)
    return again, list(_compare(run, noise, again))


def _train_again(run: Rerun, data: Path, cells: tuple[dict[str, Any], ...]) -> tuple[Values, Values]:
    """Return the calibration's row and the run table's row, made again with the `cells` of its job, its own too."""
    code = experiments.load(run.job.experiment)
    if run.device == "cuda":
        gpu.prepare()
    there = replace(run.job, resources={**run.job.resources, "device": run.device})
    family = replace(with_memory(there), cells=cells)
    one_seed = replace(family, seeds=(int(run.row["seed"]),))
    folders = Folders.of(data, one_seed.dataset)
    # The noise is the family's: it may look at the first seed's partition.
    noise = code.calibrate(family, load_description(folders.arrays))
    table, place = code.train(one_seed, folders, noise, None, lambda done, total: None), cells.index(run.cell)
    return noise.iloc[place].to_dict(), table.iloc[place].to_dict()


def _compare(run: Rerun, noise: Values, again: Values) -> Iterator[str]:
    """Yield the differences between a run and its repetition: what it says that it is, its noise, its metrics."""
    for name, value in _labels(again):
        if name in run.row and not same(run.row[name], value):
            yield f"{name} {run.row[name]}, trained again it is {value}"
    calibrated, stated = str(noise["noise_multiplier"]), run.row["noise_multiplier"]
    if not same_noise(calibrated, stated):
        yield f"noise multiplier {float(stated):.8g}, calibrated again it is {float(calibrated):.8g}"
    if run.row["status"] != again["status"]:
        yield f"status {run.row['status']}, trained again {again['status']}"
    tolerance = run.tolerance
    for name in _metrics(run.row, again):
        if not tolerance.holds(float(run.row[name]), float(again[name])):
            yield f"{name} {run.row[name]}, trained again {float(again[name]):.8g} ({tolerance.words})"


def _labels(again: Values) -> Iterator[tuple[str, str]]:
    """Yield the columns of a run before its status, which say what was run, as a run table spells them."""
    said = {name: again[name] for name in takewhile(lambda name: name != "status", again)}
    text = io.StringIO()
    write_csv(pd.DataFrame([said]), text)
    yield from next(csv.DictReader(text.getvalue().splitlines())).items()


def _metrics(row: Row, again: Values) -> list[str]:
    """Return the metrics of both runs: the columns after the status, without those of privacy."""
    names = list(row)
    after = [name for name in names[names.index("status") + 1 :] if name in again]
    return [name for name in after if number_in(row[name]) is not None and not name.startswith(("privacy_", "noise_"))]


@cache
def _has(device: str) -> bool:
    if device == "cpu":
        return True
    import torch

    return torch.cuda.is_available()
