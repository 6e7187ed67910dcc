"""Plan a run before it starts: jobs, core-hours, GPU-hours, memory, wall time."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dpfl.errors import InputError
from dpfl.grid import expansion
from dpfl.grid.sweep import Sweep
from dpfl.pipeline.cost import Cost, UnitCost, estimate
from dpfl.pipeline.live_line import RunProgress
from dpfl.pipeline.other_stages import stages
from dpfl.provenance import run_identity

PROFILES = Path("workflow") / "profiles"
QUEUED_SECONDS = 25.0  # of a cluster's job: Snakemake starts three times in it, and is asked about it now and then
STARTED_SECONDS = 0.5  # of a job on this machine: Snakemake's own time for it
GROUPED = 4  # short sweeps that make one cluster job (workflow/profiles/slurm/config.yaml)


@dataclass(frozen=True)
class Machines:
    """Machines of a run: jobs at the same time, and overhead of each."""

    name: str
    at_once: int
    extra_seconds: float
    groups: bool


def machines_of(profile: str, threads: int, device: str, at_once: int | None = None) -> Machines:
    """Return the machines of a profile; raises InputError for an unknown profile.

    On this machine as many jobs go together as it has cores for (one where they need its GPU); on a cluster as many as
    `jobs` of its site.yaml, else of its config.yaml, lets into the queue, as if it had room
    for them all. `at_once` says it instead.
    """
    folder = PROFILES / profile
    if not (folder / "config.yaml").is_file():
        raise InputError(f"no profile {profile} in {PROFILES}")
    site, options = folder / "site.yaml", yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    if "executor" in options:
        queued = (yaml.safe_load(site.read_text(encoding="utf-8")) if site.is_file() else options)["jobs"]
        return Machines(profile, at_once or queued, QUEUED_SECONDS, groups=True)
    local = 1 if device == "cuda" else max(1, (os.cpu_count() or 1) // threads)
    return Machines(profile, at_once or local, STARTED_SECONDS, groups=False)


def lines(config: Mapping[str, Any], where: Machines, units: Mapping[str, UnitCost]) -> Iterator[str]:
    """Yield the plan of the open sweeps: a line for each kind, then the sums.

    A sweep is done when its run table is what training it today would give (provenance.run_identity). Times are those
    of the machine that `units` were measured on, without waiting in a cluster's queue.
    """
    folder = Path("results") / config["scale"]
    sweeps = expansion.expand(config)
    todo = [sweep for sweep in sweeps if not run_identity.is_finished(sweep, folder)]
    costs = [estimate(sweep, units) for sweep in todo]
    threads = int(config["training"]["threads"])
    yield f"scale {config['scale']}, profile {where.name}: {len(todo)} sweeps to train, {len(sweeps) - len(todo)} done"
    yield f"{'kind':<34} {'sweeps':>6} {'hours':>8} {'longest':>9} {'memory':>8}"
    for (paper, kind), group in sorted(_by_kind(todo, costs).items()):
        hours = sum(cost.seconds for cost in group) / 3600
        longest, memory = max(cost.seconds for cost in group), max(cost.memory_mb for cost in group)
        mark = "" if all(cost.known for cost in group) else "  not measured: a guess"
        name = f"{paper} {kind}"
        yield f"{name:<34} {len(group):>6} {hours:>8.2f} {longest / 60:>5.0f} min {memory / 1024:>5.1f} GB{mark}"
    jobs = _jobs(costs, where)
    others = [stage for stage in stages(config, todo) if not stage.is_done]
    for rule in ("arrays", "features", "accounting"):
        if prepared := [stage.seconds for stage in others if stage.rule == rule]:
            yield f"{rule:<34} {len(prepared):>6} {sum(prepared) / 3600:>8.2f} {max(prepared) / 60:>5.0f} min"
    light = [stage.seconds for stage in others]
    trained = sum(cost.seconds for cost in costs) / 3600
    cores = sum(cost.seconds for cost in costs if not cost.gpus) / 3600 * threads + sum(light) / 3600
    yield f"jobs: {len(jobs)} that train, {len(light)} of other stages"
    yield f"core-hours: {cores:.1f}; GPU-hours: {trained if any(cost.gpus for cost in costs) else 0:.1f}"
    yield f"memory: at most {max((cost.memory_mb for cost in costs), default=2000) / 1024:.1f} GB a job"
    wall = _makespan([job + where.extra_seconds for job in [*jobs, *light]], where.at_once)
    yield f"time on the clock, {where.at_once} jobs at once: about {_as_text(wall)}"


def run_progress(config: Mapping[str, Any], where: Machines) -> RunProgress:
    """Return the progress of a run of what is open now, nothing of it done."""
    folder = Path("results") / config["scale"]
    todo = [sweep for sweep in expansion.expand(config) if not run_identity.is_finished(sweep, folder)]
    expected = {f"train {sweep.paper} {sweep.name}": estimate(sweep).seconds for sweep in todo}
    expected |= {stage.name: stage.seconds for stage in stages(config, todo)}
    return RunProgress(expected, where.at_once)


def _by_kind(sweeps: list[Sweep], costs: list[Cost]) -> dict[tuple[str, str], list[Cost]]:
    """Return the costs by paper and kind."""
    costs_by_kind: dict[tuple[str, str], list[Cost]] = {}
    for sweep, cost in zip(sweeps, costs, strict=True):
        costs_by_kind.setdefault((sweep.paper, cost.kind), []).append(cost)
    return costs_by_kind


def _jobs(costs: list[Cost], where: Machines) -> list[float]:
    """Return the seconds of each training job: one sweep, or on a cluster a few short ones in parallel."""
    short = [cost for cost in costs if where.groups and cost.is_short]
    alone = [cost for cost in costs if not (where.groups and cost.is_short)]
    groups = [short[start : start + GROUPED] for start in range(0, len(short), GROUPED)] + [[cost] for cost in alone]
    return [max(cost.seconds for cost in group) for group in groups]


def _makespan(seconds: list[float], at_once: int) -> float:
    """Return the seconds until all jobs are done, `at_once` in parallel, the longest first."""
    ends = [0.0] * at_once
    for each in sorted(seconds, reverse=True):
        heapq.heappush(ends, heapq.heappop(ends) + each)
    return max(ends)


def _as_text(seconds: float) -> str:
    """Return a time in minutes or hours, as text."""
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
