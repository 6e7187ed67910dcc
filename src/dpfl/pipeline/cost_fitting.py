"""Unit costs: measured on this machine (`dpfl plan --measure`), or fitted to finished stages (`dpfl plan --fit`)."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from statistics import geometric_mean, median

import numpy as np
import torch
from scipy.optimize import nnls
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from dpfl import gpu
from dpfl.data.datasets import CLASSES, COLOUR, GREY, feature_shape
from dpfl.engine.networks import ImageModel, build
from dpfl.engine.per_record_gradients import ParameterVector, StackedGradients, cross_entropy, gradient_rule
from dpfl.engine.sgd import SGD, StackedHyperparameters, base_noise
from dpfl.files import write_atomically
from dpfl.grid import configuration, expansion
from dpfl.grid.training_job import GPU_SHARE, TrainingJob
from dpfl.pipeline.cost import BASE_MB, UnitCost, WorkCount, cost_key, read_benchmark, work_of
from dpfl.randomness import generator

# Time the training step of image models on this machine.

KINDS = tuple(f"fedavg_images/{model}/{colour}" for model in ImageModel for colour in ("grey", "colour"))
BATCH = 64
CLIENTS = {"cpu": 1, "cuda": 10}  # in a stack: a GPU trains them together
FEW, MANY = 3, 18  # models of each: one budget without privacy to two with
FIXED_SECONDS = 6.0  # imports, data and a little of everything
MEMORY_BYTES = 2**30


def measure(kinds: Iterable[str], seconds: float, device: str = "cpu") -> dict[str, UnitCost]:
    """Return the unit costs of `kinds` of image models on this machine, within about `seconds` altogether.

    A kind's step is timed on a small and a large stack: what they differ by is the cost of records, the rest that of a
    step. Time is processor time of one thread on a CPU, which a busy machine disturbs least, and time on the clock on a
    GPU. Raises InputError where torch cannot use the device.
    """
    if device == "cuda":
        gpu.prepare()
    kinds = [kind for kind in kinds if kind in KINDS]
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return {kind: _unit(kind, seconds / len(kinds), torch.device(device)) for kind in kinds}
    finally:
        torch.set_num_threads(before)


def slowdown(measured: dict[str, UnitCost], shipped: dict[str, UnitCost]) -> float:
    """Return how many times as long this machine takes as the shipped table's machine, by what both have measured."""
    ratios = [_typical(unit) / _typical(shipped[kind]) for kind, unit in measured.items() if kind in shipped]
    return geometric_mean(ratios) if ratios else 1.0


def stacked_step(kind: str, models: int, device: torch.device) -> Callable[[], None]:
    """Return a training step of a stack of `models`: batch, clipped gradients, noise, momentum."""
    _, model, colour = kind.split("/")
    shape = GREY if colour == "grey" else COLOUR
    reads = feature_shape(shape) if ImageModel(model).reads_features else shape
    drawn = generator(0, "preparation").standard_normal((8 * BATCH, *reads), dtype=np.float32)
    inputs = torch.from_numpy(drawn).to(device)
    labels = (torch.arange(8 * BATCH) % CLASSES).to(device)
    module = build(ImageModel(model), shape, seed=0).to(device)
    layout = ParameterVector.of(module)
    flat = layout.flatten({name: value.detach() for name, value in module.named_parameters()})
    clients = CLIENTS[device.type]
    weights = flat.repeat(clients, models, 1)
    velocity = torch.zeros_like(weights)
    clip_norms = torch.tensor([inf if index % 3 == 0 else 1.0 for index in range(models)], device=device)
    gradients = StackedGradients(gradient_rule(module, cross_entropy, inputs[0]), inputs[0], _memory_bytes(device))
    sgd = SGD(gradients, StackedHyperparameters(clip_norms, torch.ones_like(clip_norms)), 0.01, 0.5)
    address = {"seed": 0, "epoch": 0, "dtype": weights.dtype, "device": weights.device}

    def noise(group: int, step: int) -> torch.Tensor:
        return base_noise(layout.size, client=group, step=step, **address)

    def step() -> None:
        sgd.epoch(weights, velocity, (inputs, labels), [[np.arange(BATCH)]] * clients, [BATCH] * clients, noise)

    return step


def _memory_bytes(device: torch.device) -> float:
    """Return the budget for gradients: on a GPU what training takes there without one of its own."""
    if device.type == "cpu":
        return MEMORY_BYTES
    torch.cuda.empty_cache()  # what an earlier stack held
    return GPU_SHARE * torch.cuda.mem_get_info()[0]


def flops_of_a_record(kind: str) -> tuple[int, float]:
    """Return a model's number of parameters and the operations of one record's plain gradient."""
    _, model, colour = kind.split("/")
    shape = GREY if colour == "grey" else COLOUR
    reads = feature_shape(shape) if ImageModel(model).reads_features else shape
    module = build(ImageModel(model), shape, seed=0)
    with FlopCounterMode(display=False) as counter:
        functional.cross_entropy(module(torch.zeros(BATCH, *reads)), torch.zeros(BATCH, dtype=torch.int64)).backward()
    return sum(each.numel() for each in module.parameters()), counter.get_total_flops() / BATCH


def _unit(kind: str, seconds: float, device: torch.device) -> UnitCost:
    """Time one kind for about `seconds`."""
    parameters, flops = flops_of_a_record(kind)
    batch = BATCH * CLIENTS[device.type]
    few = _time(stacked_step(kind, FEW, device), seconds / 2, device)
    record = few / (batch * FEW)
    if few * MANY / FEW < seconds / 4:  # else records are all that counts
        many = _time(stacked_step(kind, MANY, device), seconds / 2, device)
        record = min(record, max(0.0, (many - few) / (batch * (MANY - FEW))))
    return UnitCost(kind, FIXED_SECONDS, few - FEW * batch * record, record, BASE_MB, parameters, flops)


def _time(step: Callable[[], None], seconds: float, device: torch.device) -> float:
    """Return the median time of a step, after a first one that does not count."""
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    times: list[float] = []
    start = time.perf_counter()
    step()
    while not times or time.perf_counter() - start < seconds:
        if device.type == "cuda":
            torch.cuda.synchronize()
        before = clock()
        step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(clock() - before)
    return median(times)


def _typical(unit: UnitCost) -> float:
    """Return the time of a step of a stack in the middle."""
    return unit.step_seconds + unit.record_seconds * BATCH * 9


# Fit unit costs to the times of finished stages (`dpfl plan --fit`).

COLUMNS = ("kind", "fixed_seconds", "step_seconds", "record_seconds", "memory_mb", "parameters", "flops")
SAMPLED_SECONDS = 60.0  # Snakemake samples processor time too coarsely below
START_SECONDS = 3.0  # of a process that trains, before it trains


@dataclass(frozen=True)
class Measured:
    """A finished job: its kind, its work, the processor seconds and the memory that it took."""

    job: TrainingJob
    work: WorkCount
    seconds: float
    memory_mb: float


def measured(results: Path) -> Iterator[Measured]:
    """Yield the finished jobs below a folder of results that Snakemake has measured, all scales, without GPU jobs:
    unit costs are those of processors."""
    for resolved in sorted(results.glob("*/config.yaml")):
        for job in expansion.expand(configuration.read(resolved)):
            there = expansion.run_table_path(resolved.parent, job.paper, job.name).exists()
            if not there or job.resources["device"] != "cpu":
                continue
            taken = read_benchmark(expansion.training_benchmark(resolved.parent, job.paper, job.name))
            seconds = taken.processor_seconds if taken.seconds > SAMPLED_SECONDS else taken.seconds
            if not math.isnan(seconds + taken.memory_mb):
                yield Measured(job, work_of(job), seconds, taken.memory_mb)


def fit(units: Mapping[str, UnitCost], jobs: list[Measured]) -> dict[str, UnitCost]:
    """Return `units` with the kinds of measured jobs fitted to them.

    Image models keep what their training step was timed at, times the median over jobs of what they took over what
    that predicts: evaluation, data and the like. Other kinds get non-negative least squares.
    """
    by_kind: dict[str, list[Measured]] = defaultdict(list)
    for each in jobs:
        by_kind[cost_key(each.job)].append(each)
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
    """Return a timed kind, slower or faster by what its jobs took beyond the fixed part."""
    ratios = [(each.seconds - unit.fixed_seconds) / (unit.seconds(each.work) - unit.fixed_seconds) for each in group]
    factor = max(0.2, float(np.median(ratios)))
    scaled = {name: getattr(unit, name) * factor for name in ("step_seconds", "record_seconds")}
    return replace(unit, **scaled)


def _least_squares(kind: str, group: list[Measured]) -> UnitCost:
    """Return fixed, step and record costs, none negative, of least error, a job's variance growing as its time.

    A single job takes the start of its process, and the rest by its work, so that more seeds cost more.
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
