"""Fit unit costs to the times of finished stages (`dpfl plan --fit`)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

from dpfl.files import write_atomically
from dpfl.grid import configuration, expansion
from dpfl.grid.sweep import Sweep
from dpfl.pipeline.benchmark_files import read_benchmark
from dpfl.pipeline.cost import BASE_MB, UnitCost, WorkCount, cost_key, work_of

COLUMNS = ("kind", "fixed_seconds", "step_seconds", "record_seconds", "memory_mb", "parameters", "flops")
SAMPLED_SECONDS = 60.0  # Snakemake samples processor time too coarsely below
START_SECONDS = 3.0  # of a process that trains, before it trains


@dataclass(frozen=True)
class Measured:
    """A finished sweep: its kind, its work, the processor seconds and the memory that it took."""

    sweep: Sweep
    work: WorkCount
    seconds: float
    memory_mb: float


def measured(results: Path) -> Iterator[Measured]:
    """Yield the finished sweeps below a folder of results that Snakemake has measured, all scales, those of GPUs not:
    unit costs are those of processors."""
    for resolved in sorted(results.glob("*/config.yaml")):
        for sweep in expansion.expand(configuration.read(resolved)):
            there = expansion.run_table(resolved.parent, sweep.paper, sweep.name).exists()
            if not there or sweep.resources["device"] != "cpu":
                continue
            taken = read_benchmark(expansion.training_benchmark(resolved.parent, sweep.paper, sweep.name))
            seconds = taken.processor_seconds if taken.seconds > SAMPLED_SECONDS else taken.seconds
            if not math.isnan(seconds + taken.memory_mb):
                yield Measured(sweep, work_of(sweep), seconds, taken.memory_mb)


def fit(units: Mapping[str, UnitCost], sweeps: list[Measured]) -> dict[str, UnitCost]:
    """Return `units` with the kinds of measured sweeps fitted to them.

    Image models keep what their training step was timed at, times the median over sweeps of what they took over what
    that predicts: evaluation, data and the like. Other kinds get non-negative least squares.
    """
    by_kind: dict[str, list[Measured]] = defaultdict(list)
    for each in sweeps:
        by_kind[cost_key(each.sweep)].append(each)
    fitted = dict(units)
    for kind, group in by_kind.items():
        if kind.startswith("fedavg_images/"):
            fitted[kind] = _stretched(units[kind], group) if kind in units else _least_squares(kind, group)
        else:
            fitted[kind] = _least_squares(kind, group)
    return fitted


def write(units: Mapping[str, UnitCost], path: Path) -> None:
    """Write unit costs, three digits of each."""
    rows = [[unit.kind, *(f"{getattr(unit, name):.4g}" for name in COLUMNS[1:5])] for unit in units.values()]
    ends = [[str(unit.parameters), f"{unit.flops:.0f}"] for unit in units.values()]
    lines = [",".join([*row, *end]) for row, end in zip(rows, ends, strict=True)]
    write_atomically(path, "\n".join([",".join(COLUMNS), *sorted(lines)]) + "\n")


def _stretched(unit: UnitCost, group: list[Measured]) -> UnitCost:
    """Return a timed kind, slower or faster by what its sweeps took beyond the fixed part."""
    ratios = [(each.seconds - unit.fixed_seconds) / (unit.seconds(each.work) - unit.fixed_seconds) for each in group]
    factor = max(0.2, float(np.median(ratios)))
    scaled = {name: getattr(unit, name) * factor for name in ("step_seconds", "record_seconds")}
    return replace(unit, **scaled)


def _least_squares(kind: str, group: list[Measured]) -> UnitCost:
    """Return fixed, step and record costs, none negative, of least error, a sweep's variance growing as its time.

    A single sweep takes the start of its process, and the rest by its work, so that more seeds cost more.
    """
    seconds = np.array([each.seconds for each in group])
    works = np.array([[each.work.steps, each.work.records] for each in group])
    if len(group) == 1:
        fixed = float(min(START_SECONDS, seconds[0]))
        step, record = (seconds[0] - fixed) * (works[0] > 0) / np.maximum(works[0], 1e-300) / max(1, sum(works[0] > 0))
    else:
        design = np.column_stack([np.ones(len(group)), works]) / np.sqrt(seconds)[:, None]
        scale = design.max(axis=0)
        scale[scale == 0] = 1.0
        solution, _ = nnls(design / scale, np.sqrt(seconds))
        fixed, step, record = solution / scale
    # Memory is sampled too, so a short job seems to need less than its imports take.
    return UnitCost(kind, fixed, step, record, max(BASE_MB, *(each.memory_mb for each in group)), 0, 0.0)
