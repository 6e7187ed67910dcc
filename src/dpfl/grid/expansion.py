"""The training grid: one function expands what the papers list into jobs. Workflow, command line and tests use it."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpfl.catalog import Paper, dataset_entries, load
from dpfl.errors import InputError
from dpfl.files import is_regular
from dpfl.grid.training_job import TrainingJob

_NEEDED = ("experiment", "seeds", "sweep", "cells")
"""Keys that an entry has, of its own or from the grid's base."""
LONGEST_NAME = 180
"""Characters of a job's name: a file system takes 255, of which run tables, checkpoints and records need some."""


def expand(config: Mapping[str, Any]) -> list[TrainingJob]:
    """Return the jobs of a resolved configuration (configuration.resolve), in the order of the papers' grids.

    Raises InputError where `only` has a value that no run of the scale has, or leaves nothing of a grid that is not
    empty, naming the restriction.
    """
    entries = _all_entries(config, config["scale"])
    _require_known(entries, config)
    jobs = [job for paper, entry in entries for job in _entry_jobs(paper, entry, config)]
    twice = [each for each, count in Counter((job.paper, job.name) for job in jobs).items() if count > 1]
    if twice:
        paper, name = twice[0]
        raise InputError(
            f"{paper}/grid.yaml gives the job {name} twice: let its entries differ in a sweep axis or in `part`, and "
            "name no value of an axis twice"
        )
    _require_own_noise(jobs)
    if entries and not jobs:
        only = {axis: values for axis, values in config["only"].items() if values}
        raise InputError(f"only: {only} leaves no run of scale {config['scale']}; {_where_else(config)}")
    return jobs


def _require_own_noise(jobs: list[TrainingJob]) -> None:
    """Raise InputError for two jobs that share a noise calibration and are not alike: seeds alone may differ."""
    known: dict[tuple[str, str], TrainingJob] = {}
    for job in jobs:
        first = known.setdefault((job.paper, job.calibration_key), job)
        if (first.settings, first.cells) != (job.settings, job.cells):
            raise InputError(
                f"{job.paper}/grid.yaml: {first.name} and {job.name} differ in their settings, but would share one "
                "noise: let their entries differ in a sweep axis or in `part`"
            )


def _all_entries(config: Mapping[str, Any], scale: str) -> list[tuple[Paper, dict[str, Any]]]:
    """Return the entries of the papers' grids at a scale, each with its paper."""
    papers = [load(key) for key in config["papers"]]
    return [(paper, entry) for paper in papers for entry in _entries(paper, scale)]


def _where_else(config: Mapping[str, Any]) -> str:
    """Return which scale has runs that `only` lets through, in words."""
    others = {**config, "seeds": None}
    for scale in (each for each in ("quick", "paper", "demo") if each != config["scale"]):
        if any(_entry_jobs(paper, entry, {**others, "scale": scale}) for paper, entry in _all_entries(config, scale)):
            shipped = ", which replaces run tables that are shipped: use a second clone" if scale == "paper" else ""
            return f"scale {scale} has some{shipped}"
    return "no scale has one: widen it"


def find(config: Mapping[str, Any], paper: str, name: str) -> TrainingJob:
    """Return one job by paper and name; raises InputError that names the first of those known."""
    jobs = [job for job in expand(config) if job.paper == paper]
    for job in jobs:
        if job.name == name:
            return job
    if not jobs:
        raise InputError(nothing_of(paper, config))
    known = ", ".join(job.name for job in jobs[:5])
    raise InputError(f"no job {name} of {paper} at scale {config['scale']}; there are {len(jobs)}: {known}")


def nothing_of(paper: str, config: Mapping[str, Any]) -> str:
    """Say that a configuration trains nothing of a paper, and name its papers if this is another one."""
    others = "" if paper in config["papers"] else f"; its papers are {', '.join(config['papers'])}"
    return f"nothing of {paper} is trained at scale {config['scale']}{others}"


def run_table_path(results: Path, paper: str, job: str) -> Path:
    """Return where results/<scale> has the runs of a job: a compressed CSV, for most of its columns repeat."""
    return results / "runs" / paper / f"{job}.csv.gz"


def training_log(results: Path, paper: str, job: str) -> Path:
    """Return where the training of a job writes what it says."""
    return results / "logs" / f"train_{paper}_{job}.log"


def training_benchmark(results: Path, paper: str, job: str) -> Path:
    """Return where the engine writes what the training of a job took."""
    return results / "benchmarks" / f"train_{paper}_{job}.tsv"


def noise_table_path(results: Path, paper: str) -> Path:
    """Return the file of a paper's calibrated noise below results/<scale>."""
    return results / "accounting" / f"{paper}.csv"


def page_path(results: Path, kind: str, paper: str, name: str) -> Path:
    """Return where results/<scale> has the data of a table or figure; `kind` is "tables" or "figures"."""
    return results / kind / f"{paper}_{name}.csv"


def verdicts_path(results: Path, paper: str) -> Path:
    """Return where results/<scale> has the verdicts on a paper's claims."""
    return results / "claims" / f"{paper}.csv"


def not_run(config: Mapping[str, Any], results: Path) -> list[TrainingJob]:
    """Return the jobs of a resolved configuration whose run tables results/<scale> does not have."""
    return [job for job in expand(config) if not is_regular(run_table_path(results, job.paper, job.name))]


def _require_known(entries: list[tuple[Paper, dict[str, Any]]], config: Mapping[str, Any]) -> None:
    """Raise InputError for a value of `only` that no run of the scale has, naming those that there are."""
    if not any(config["only"].values()):
        return
    free = {**config, "only": {}, "seeds": None}
    jobs = [job for paper, entry in entries for job in _entry_jobs(paper, entry, free)]
    for axis, values in config["only"].items():
        known = {row[axis] for job in jobs for row in (job.settings, *job.cells) if axis in row}
        known |= {"none"} if axis == "study" else set()
        if unknown := [value for value in values if value not in known]:
            names = ", ".join(map(str, sorted(known, key=lambda value: (str(type(value)), value)))) or "none"
            scale = config["scale"]
            raise InputError(f"only.{axis} has {unknown[0]!r}, which no run of scale {scale} has; there are {names}")


def _entry_jobs(paper: Paper, entry: Mapping[str, Any], config: Mapping[str, Any]) -> list[TrainingJob]:
    """Return the jobs of one complete entry (`_entries`): the product of its sweep axes, seeds in groups."""
    part = [entry["part"]] if "part" in entry else []
    only = config["only"]
    resources = dict(config["training"])
    precision = resources.pop("precision")  # a setting: it decides the numbers
    del resources["jobs_per_gpu"]  # of the host, not of a job
    seeds = _seeds(entry["seeds"], config["seeds"])
    group = entry["seeds"]["per_job"]
    jobs = []
    for axes in _product(paper, entry["sweep"]):
        listed = {axis: _values(paper, values, axes.get("dataset")) for axis, values in entry["cells"].items()}
        cells = tuple(cell for cell in _product(paper, listed) if _kept(cell, only))
        if twice := [cell for number, cell in enumerate(cells) if cell in cells[:number]]:
            raise InputError(f"{paper.key}/grid.yaml: cells name {twice[0]} twice, and its runs would count twice")
        settings = {**paper.settings, **entry.get("settings", {}), **axes}
        stated = entry.get("settings", {}).keys() | axes.keys()
        if precision is not None and "precision" in settings and "precision" not in stated:
            settings["precision"] = precision
        own = {"study": "none", **settings}  # an entry without a study is of none
        if not cells or not _kept({axis: own[axis] for axis in own.keys() - cells[0]}, only):
            continue
        _require_dataset(paper, settings)
        for chosen in _batched(seeds, group):
            name = "_".join([*(_label(axis, value) for axis, value in axes.items()), *part, _seed_label(chosen)])
            if len(name) > LONGEST_NAME:
                raise InputError(
                    f"{paper.key}/grid.yaml: the file name {name[:40]}... is too long: choose fewer seeds, or "
                    "consecutive ones"
                )
            jobs.append(TrainingJob(paper.key, entry["experiment"], name, settings, cells, chosen, resources))
    return jobs


def _entries(paper: Paper, scale: str) -> list[dict[str, Any]]:
    """Return a scale's entries, complete: one an axis that an entry varies, each with what the grid's `base` says.

    An entry's sweep axes add to those of the base or take their place; of all else it has its own or the base's.
    Raises InputError, naming paper and scale, for a key that is missing.
    """
    base, complete = paper.grid.get("base", {}), []
    for number, entry in enumerate(paper.grid.get(scale, []), 1):
        if missing := [key for key in _NEEDED if key not in entry and key not in base]:
            raise InputError(f"{paper.key}/grid.yaml, {scale}, entry {number} lacks {missing[0]}")
        whole = {**base, **entry}
        study = {"study": [whole["study"]]} if "study" in whole else {}
        sweep = study | base.get("sweep", {}) | entry.get("sweep", {})
        for axis, values in whole.get("vary", {None: None}).items():
            complete.append({**whole, "sweep": sweep if axis is None else sweep | {axis: values}})
    return complete


def _require_dataset(paper: Paper, settings: Mapping[str, Any]) -> None:
    """Raise InputError for a job without a known dataset."""
    if settings.get("dataset") not in dataset_entries():
        known = ", ".join(dataset_entries())
        raise InputError(f"{paper.key}/grid.yaml: dataset is {settings.get('dataset')!r}, should be one of {known}")


def _values(paper: Paper, values: list | str, dataset: str | None) -> list:
    """Return an axis's values; a name is that of one of the grid's lists, which may differ by data set.

    Raises InputError for a name or a data set without a list.
    """
    if not isinstance(values, str):
        return values
    named = paper.grid.get("lists", {}).get(values)
    chosen = named.get(dataset) if isinstance(named, dict) else named
    if chosen is None:
        raise InputError(f"{paper.key}/grid.yaml: no list {values!r} for {dataset}; add it to `lists`")
    return chosen


def _seeds(entry: Mapping[str, Any], chosen: list[int] | None) -> tuple[int, ...]:
    """Return the seeds of an entry: those chosen in the configuration, else 0 to its count.

    An entry that is `capped` answers a question on the side: a configuration can only take seeds from it.
    """
    seeds = range(entry["count"])
    if chosen is None:
        return tuple(seeds)
    return tuple(seed for seed in chosen if seed in seeds or not entry.get("capped", False))


def _product(paper: Paper, axes: Mapping[str, list]) -> list[dict[str, Any]]:
    """Return the product of named axes; an axis named "a,b" lists tuples of values for a and b."""
    rows = []
    for values in itertools.product(*axes.values()):
        row: dict[str, Any] = {}
        for axis, value in zip(axes, values, strict=True):
            names = axis.split(",")
            values_of = value if len(names) > 1 else [value]
            if not isinstance(values_of, list) or len(values_of) != len(names):
                raise InputError(
                    f"{paper.key}/grid.yaml: {axis} has {value!r}, should be a list of {len(names)} values"
                )
            row.update(zip(names, values_of, strict=True))
        rows.append(row)
    return rows


def _kept(row: Mapping[str, Any], only: Mapping[str, list]) -> bool:
    """Return whether every restricted axis that the row has takes a listed value."""
    return all(not only.get(axis) or row[axis] in only[axis] for axis in row)


def _label(axis: str, value: Any) -> str:
    """Return the part of a job's file name that one axis gives."""
    prefix = {"batch_size": "b", "clients": "k", "delta": "delta", "rounds": "r"}.get(axis, "")
    return prefix + re.sub(r"[^A-Za-z0-9]+", "_", str(value))


def _seed_label(seeds: tuple[int, ...]) -> str:
    """Return the part of a job's file name that its seeds give."""
    if len(seeds) == 1:
        return f"seed{seeds[0]}"
    if list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"seeds{seeds[0]}to{seeds[-1]}"
    return "seeds" + "_".join(map(str, seeds))


def _batched(values: tuple[int, ...], size: int) -> list[tuple[int, ...]]:
    """Return `values` in groups of `size`."""
    return [values[start : start + size] for start in range(0, len(values), size)]
