"""Divide short sweeps among batches: each is one job of a cluster, which trains its sweeps side by side."""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dpfl.files import write_atomically
from dpfl.grid.sweep import Sweep
from dpfl.pipeline.cost import ATTEMPTS, JOB_SECONDS, MEMORY_MARGIN, Cost, JobLimits, UnitCost, beside, estimate


@dataclass(frozen=True)
class Batch(JobLimits):
    """Sweeps of one paper and dataset that one job trains, as many at the same time as it has `cores`."""

    label: str
    sweeps: tuple[Sweep, ...]
    cores: int
    seconds: float
    memory_mb: float

    @property
    def rule(self) -> str:
        """The name of the rule that trains the batch."""
        return f"train_{self.label}"

    @property
    def paper(self) -> str:
        """The key of the sweeps' paper."""
        return self.sweeps[0].paper


def divide(
    sweeps: Iterable[Sweep], cores: int, memory_mb: float = math.inf, units: Mapping[str, UnitCost] | None = None
) -> tuple[list[Batch], list[Sweep]]:
    """Return batches of the short sweeps, and the sweeps that are trained alone.

    `cores`: of a batch, and so the sweeps that it trains at the same time; with one there are no batches. A batch has
    sweeps of one paper and dataset, work of about JOB_SECONDS a core, and takes at most `memory_mb`. `units` replaces
    the shipped unit costs.
    """
    alone: list[Sweep] = []
    short: dict[tuple[str, str], list[Sweep]] = {}
    costs = {}
    for sweep in sweeps:
        cost = costs[id(sweep)] = estimate(sweep, units)
        fits = cores > 1 and cost.is_short and cost.limit_mb(ATTEMPTS) <= memory_mb
        (short.setdefault((sweep.paper, sweep.dataset), []) if fits else alone).append(sweep)
    batches = []
    for (paper, dataset), members in short.items():
        members.sort(key=lambda sweep: (-costs[id(sweep)].seconds, sweep.name))
        chunks = _chunks([costs[id(sweep)].seconds for sweep in members], cores * JOB_SECONDS)
        for number, chunk in enumerate(chunks):
            taken = members[chunk.start : chunk.stop]
            if len(taken) == 1:
                alone += taken
            else:
                needed = [costs[id(sweep)] for sweep in taken]
                batches.append(_batch(f"{paper}_{dataset}_{number}", taken, needed, cores, memory_mb))
    return batches, alone


def _batch(label: str, sweeps: list[Sweep], costs: list[Cost], cores: int, memory_mb: float) -> Batch:
    """Return a batch that has as many cores as its memory allows, at most `cores` and one for each sweep."""
    largest = sorted((cost.memory_mb for cost in costs), reverse=True)
    room = memory_mb / (MEMORY_MARGIN * largest[0])
    at_once = int(min(cores, len(sweeps), room))
    seconds = makespan([beside(cost.seconds, at_once) for cost in costs], at_once)
    return Batch(label, tuple(sweeps), at_once, seconds, sum(largest[:at_once]))


def _chunks(seconds: list[float], limit: float) -> list[range]:
    """Return ranges of neighbours whose sums are about equal, each of at most about `limit`."""
    count = max(1, math.ceil(sum(seconds) / limit))
    ends, total, cuts = sum(seconds) / count, 0.0, [0]
    for index, each in enumerate(seconds):
        if total >= ends * len(cuts) - 1e-9 and len(cuts) < count:
            cuts.append(index)
        total += each
    return [range(start, stop) for start, stop in zip(cuts, [*cuts[1:], len(seconds)], strict=True) if stop > start]


def makespan(seconds: Iterable[float], at_once: int) -> float:
    """Return the seconds until all jobs are done, `at_once` in parallel, the longest first."""
    ends = [0.0] * at_once
    for each in sorted(seconds, reverse=True):
        heapq.heappush(ends, heapq.heappop(ends) + each)
    return max(ends)


def write(batches: Iterable[Batch], cores: Mapping[tuple[str, str], int], path: Path) -> None:
    """Write the composition of batches, and the `cores` of sweeps that are trained alone, for jobs on other nodes."""
    stated = [[batch.label, [[s.paper, s.name] for s in batch.sweeps], batch.cores] for batch in batches]
    alone = [[*key, count] for key, count in cores.items() if count > 1]
    write_atomically(path, json.dumps({"batches": stated, "cores": alone}, indent=1) + "\n")


def read(path: Path, sweeps: Mapping[tuple[str, str], Sweep]) -> tuple[list[Batch], dict[tuple[str, str], int]]:
    """Return what `write` has written: the batches, without what they need, and the cores of sweeps that have more than
    one; nothing where there is no file."""
    if not path.is_file():
        return [], {}
    stated = json.loads(path.read_text(encoding="utf-8"))
    known = [
        (label, [sweeps[tuple(key)] for key in keys if tuple(key) in sweeps], cores)
        for label, keys, cores in stated["batches"]
    ]
    batches = [Batch(label, tuple(members), cores, 0.0, 0.0) for label, members, cores in known if members]
    return batches, {(paper, name): count for paper, name, count in stated["cores"]}
