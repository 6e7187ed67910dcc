"""Counts of the training grid's sweeps: how many were run, of how many, and which were not."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpfl.grid import expansion
from dpfl.grid.sweep import Sweep
from dpfl.reporting.notes import data_name, model_name


@dataclass(frozen=True)
class SweepCounts:
    """Sweeps of a part of the grid: `run` of `total`; `groups` has those of each data set, model and study."""

    run: int
    total: int
    groups: tuple[tuple[str, int, int], ...] = ()

    @property
    def not_run(self) -> int:
        """Number of sweeps that were not run."""
        return self.total - self.run

    @property
    def open_groups(self) -> list[tuple[str, int, int]]:
        """The groups (label, run, total) of which a part, or all, was not run."""
        return [group for group in self.groups if group[1] < group[2]]

    def sentence(self) -> str:
        """Say how many sweeps were run, as "245 of 460 sweeps run"; "" for a part of the grid without sweeps."""
        if not self.total:
            return ""
        return f"All {self.total} sweeps run." if not self.not_run else f"{self.run} of {self.total} sweeps run."


def sweep_counts(folder: Path, config: Mapping[str, Any]) -> dict[str, SweepCounts]:
    """Return the counts of each paper of a configuration, by its key; a sweep was run where its run table is there."""
    missing = {(sweep.paper, sweep.name) for sweep in expansion.not_run(config, folder)}
    sweeps = expansion.expand(config)
    return {key: _counts([each for each in sweeps if each.paper == key], missing) for key in config["papers"]}


def total(counts: Iterable[SweepCounts]) -> SweepCounts:
    """Return the sums of several counts, without their groups."""
    known = list(counts)
    return SweepCounts(sum(each.run for each in known), sum(each.total for each in known))


def _counts(sweeps: list[Sweep], missing: Collection[tuple[str, str]]) -> SweepCounts:
    """Return the counts of one paper's sweeps."""
    groups: dict[str, list[bool]] = {}
    for sweep in sweeps:
        groups.setdefault(_label(sweep), []).append((sweep.paper, sweep.name) not in missing)
    of_groups = tuple((label, sum(run), len(run)) for label, run in groups.items())
    return SweepCounts(sum(run for _, run, _ in of_groups), len(sweeps), of_groups)


def _label(sweep: Sweep) -> str:
    """Return the name of a sweep's group: data set, model, study."""
    parts = [model_name(sweep.settings.get("model", "")), (sweep.settings.get("study") or "").replace("_", " ")]
    return ", ".join([data_name(sweep.dataset), *filter(None, parts)])
