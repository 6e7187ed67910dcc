"""Counts of what was run: jobs of the training grid, and run tables that no commit accounts for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfl.files import parse_json, read_bytes, record_path
from dpfl.grid import expansion
from dpfl.reporting.display_names import data_name, in_words, model_name

if TYPE_CHECKING:
    from dpfl.grid.training_job import TrainingJob

# Counts of the training grid's jobs: how many were run, of how many, and which were not.


@dataclass(frozen=True)
class JobCounts:
    """Jobs of a part of the grid: `run` of `total`; `groups` has the jobs of each data set, model and study."""

    run: int
    total: int
    groups: tuple[tuple[str, int, int], ...] = ()

    @property
    def not_run(self) -> int:
        """Number of jobs that were not run."""
        return self.total - self.run

    @property
    def open_groups(self) -> list[tuple[str, int, int]]:
        """The groups (label, run, total) of which a part, or all, was not run."""
        return [group for group in self.groups if group[1] < group[2]]

    def sentence(self) -> str:
        """Say how many jobs were run, as "245 of 460 jobs were run."; "" for a part of the grid without jobs."""
        if not self.total:
            return ""
        if self.not_run:
            return f"{self.run} of {self.total} jobs were run."
        return f"All {self.total} jobs were run." if self.total > 1 else "The one job was run."


def job_counts(folder: Path, config: Mapping[str, Any]) -> dict[str, JobCounts]:
    """Return the counts of each paper of a configuration, by its key; a job was run where its run table is there."""
    missing = {(job.paper, job.name) for job in expansion.not_run(config, folder)}
    jobs = expansion.expand(config)
    return {key: _counts([each for each in jobs if each.paper == key], missing) for key in config["papers"]}


def total(counts: Iterable[JobCounts]) -> JobCounts:
    """Return the sums of several counts, without their groups."""
    known = list(counts)
    return JobCounts(sum(each.run for each in known), sum(each.total for each in known))


def _counts(jobs: list[TrainingJob], missing: Collection[tuple[str, str]]) -> JobCounts:
    """Return the counts of one paper's jobs."""
    groups: dict[str, list[bool]] = {}
    for job in jobs:
        groups.setdefault(_label(job), []).append((job.paper, job.name) not in missing)
    of_groups = tuple((label, sum(run), len(run)) for label, run in groups.items())
    return JobCounts(sum(run for _, run, _ in of_groups), len(jobs), of_groups)


def _label(job: TrainingJob) -> str:
    """Return the name of a job's group: data set, model, study."""
    parts = [model_name(job.settings.get("model", "")), in_words(job.settings.get("study") or "")]
    return ", ".join([data_name(job.dataset), *filter(None, parts)])


# Run tables that no commit accounts for, counted from the records next to them.


def untraced_runs(folder: Path, paper: str) -> str:
    """Return how many run tables of a paper in results/<scale> no commit accounts for, in sentences; "" for none.

    Those are the ones whose record names no commit, or a source tree with changes, or that have no readable record.
    The sentences say whether the digest of their training code is also that of runs from unchanged trees.
    """
    known = [_source(record_path(table)) for table in sorted((folder / "runs" / paper).glob("*.csv.gz"))]
    clean = {code for has_commit, code in known if has_commit}
    others = [code for has_commit, code in known if not has_commit]
    if not others:
        return ""
    said = f"{len(others)} of {len(known)} run tables were made from a changed source tree or name no commit."
    if all(code and code in clean for code in others):
        return f"{said} The digest of their training code is that of runs from an unchanged tree."
    return f"{said} Their training code is not that of the other runs, or cannot be compared."


def _source(record: Path) -> tuple[bool, str]:
    """Return whether a record names the commit of an unchanged tree, and the digest of its training code, "" if none.

    A record that cannot be read has neither.
    """
    try:
        source = parse_json(read_bytes(record))["source"]
        return bool(source["commit"]) and not source.get("dirty"), str(source.get("digest", ""))
    except (ValueError, LookupError, TypeError, AttributeError):
        return False, ""
