"""Cost of a job in time and memory, by a table of measured unit costs (costs.csv in this folder).

A job's work is counted in two units: steps (a batch of one client or of a stack of models, of any size; on a GPU of
clients that train together) and records (one model's gradient of one record). Time on one core is fixed_seconds +
steps * step_seconds + records * record_seconds of the job's kind. Kinds are fedavg_images/<model>/<grey or colour>,
for which `dpfl plan --measure` times the training step itself, and <experiment>/<dataset>/<study or model> for the
rest, fitted to finished jobs (dpfl.pipeline.cost_fitting). Nothing here imports torch: the workflow asks at every
start.
"""

from __future__ import annotations

import csv
import itertools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from dpfl.data import datasets
from dpfl.data.datasets import feature_shape
from dpfl.errors import InputError
from dpfl.experiments import require_known
from dpfl.grid.training_job import CPU_GB, TrainingJob

# Read the files in which Snakemake says what a job took.


class Benchmark(NamedTuple):
    """Measurements of one job: time on the clock, processor time, which is sampled too rarely for short jobs, and the
    largest resident memory; nan if there is none."""

    seconds: float
    processor_seconds: float
    memory_mb: float


def read_benchmark(path: Path) -> Benchmark:
    """Return what Snakemake measured of a job; nan throughout if there is no such file."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    last = (list(csv.DictReader(text.splitlines(), delimiter="\t")) or [{}])[-1]
    return Benchmark(*(_number(last.get(name) or "") for name in ("s", "cpu_time", "max_rss")))


def _number(text: str) -> float:
    """Return the number that a text says, nan for another word."""
    return float(text) if re.fullmatch(r"\d+(\.\d*)?", text) else math.nan


TABLE = Path(__file__).with_name("costs.csv")
PREDICTION = 1 / 3  # of a gradient: one forward pass of about three passes
GPU_FLOPS = 1.3e13  # a second, sustained: colour CNNs on an H200; used until `dpfl plan --measure` has run on the GPU
GPU_STEP_SECONDS = 1e-2  # likewise: launches of one step's kernels, some 220 of a CNN's
MARGIN = 3.0  # of a time limit over the estimate: nodes differ, and limits are for the unforeseen
MEMORY_MARGIN = 1.25  # of a job's memory over the estimate
ATTEMPTS = 3  # of a job, as the profiles of clusters say; the last has the most time and memory
LEAST_MINUTES = 10
BASE_MB = 700  # Python with torch, and Snakemake around it
SHORT_SECONDS = 300.0  # below it several jobs go into one batch
JOB_SECONDS = 600.0  # that a job of a cluster should take: long enough for a queue, short enough to spread over nodes
SHARED_SPEED = 0.73  # of a process whose neighbours train too: two on two cores took 1.46 of one's speed, for memory
NODE_SECONDS = 1500.0  # above it a job of one core has its node alone: neighbours would hold the entire run up
WORKER_MB = 200  # of a process that trains clients, without its own budget for gradients
UNKNOWN_SECONDS = 3600.0  # an experiment that has not been measured

ON_GPU = ("fedavg_images",)
"""Experiments that train on the device that the configuration names; the others are numpy on a CPU."""

DIVIDED = ("fedavg_images",)
"""Experiments whose clients a job divides among its cores (dpfl.pipeline.client_division)."""


@dataclass(frozen=True)
class WorkCount:
    """Work of a job over all its seeds."""

    steps: float
    records: float


@dataclass(frozen=True)
class UnitCost:
    """A kind's unit costs on one core of the machine that was measured; memory without training's own budget.

    `parameters` and `flops` (of one record's gradient) are those of an image model, else 0.
    """

    kind: str
    fixed_seconds: float
    step_seconds: float
    record_seconds: float
    memory_mb: float
    parameters: int
    flops: float

    def seconds(self, work: WorkCount) -> float:
        """Return the time that `work` takes."""
        return self.fixed_seconds + work.steps * self.step_seconds + work.records * self.record_seconds

    def scaled(self, factor: float) -> UnitCost:
        """Return the unit on a machine that takes `factor` times as long."""
        times = {name: getattr(self, name) * factor for name in ("fixed_seconds", "step_seconds", "record_seconds")}
        return replace(self, **times)


class JobLimits:
    """Limits that a job asks for, from the `seconds` and `memory_mb` that it should take."""

    seconds: float
    memory_mb: float

    def limit_minutes(self, attempt: int) -> int:
        """Return the time limit of the `attempt`-th try (from 1): the estimate with a margin, doubled each time."""
        return math.ceil(max(LEAST_MINUTES, MARGIN * self.seconds / 60) * 2 ** (attempt - 1))

    def limit_mb(self, attempt: int) -> int:
        """Return the memory of the `attempt`-th try: the estimate with a margin, half as much more each time."""
        return math.ceil(MEMORY_MARGIN * self.memory_mb * (1 + 0.5 * (attempt - 1)))


@dataclass(frozen=True)
class Cost(JobLimits):
    """Needs of one job: seconds on its cores (or its GPU), and memory, without any margin."""

    kind: str
    seconds: float
    memory_mb: float
    gpus: int
    known: bool
    cores: int = 1

    @property
    def is_short(self) -> bool:
        """Return whether the job is too short to be alone: on a CPU, and within minutes."""
        return self.known and not self.gpus and self.seconds < SHORT_SECONDS

    @property
    def needs_node(self) -> bool:
        """Return whether the job has its node alone: it trains on one core of it, for long."""
        return self.cores == 1 and not self.gpus and self.seconds > NODE_SECONDS


@cache
def table() -> dict[str, UnitCost]:
    """Return the shipped unit costs by kind."""
    return read(TABLE)


def read(path: Path) -> dict[str, UnitCost]:
    """Return the unit costs in a file, by kind."""
    numbers = {"parameters": int}
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    fields: list[dict[str, Any]] = [
        {name: numbers.get(name, float)(text) for name, text in row.items() if name != "kind"} for row in rows
    ]
    return {row["kind"]: UnitCost(row["kind"], **each) for row, each in zip(rows, fields, strict=True)}


def cost_key(job: TrainingJob) -> str:
    """Return the kind whose unit costs a job has."""
    if job.experiment == "fedavg_images":
        channels, *_ = datasets.load(job.dataset).image_shape
        return f"fedavg_images/{job.settings['model']}/{'colour' if channels == 3 else 'grey'}"
    study = next((job.settings[name] for name in ("study", "model") if job.settings.get(name)), None)
    return "/".join([job.experiment, job.dataset, *([study] if study else [])])


def estimate(job: TrainingJob, units: Mapping[str, UnitCost] | None = None, cores: int = 1) -> Cost:
    """Return what a job needs on the machine that its configuration asks for.

    `units` replaces the shipped table; `cores`: processes among which clients are divided (`cores_of`). Threads shorten
    nothing: the engine's gain from a second one is small. A kind that was never measured is taken for the dearest one
    of its experiment on another dataset, and is not `known`.
    """
    units = table() if units is None else units
    kind, work = cost_key(job), work_of(job, cores)
    unit = units.get(kind)
    gpus = int(job.resources["device"] == "cuda" and job.experiment in ON_GPU)
    if unit is None:
        others = [other for name, other in units.items() if name.startswith(f"{job.experiment}/")]
        dearest = max(others, key=lambda other: other.seconds(work), default=None)
        if dearest is None:
            return Cost(kind, UNKNOWN_SECONDS, 4 * BASE_MB, gpus, known=False)
        if job.experiment == "fedavg_images":
            largest = max(others, key=lambda other: other.parameters)
            memory = _image_memory_mb(job, largest, cores)
            return Cost(kind, dearest.seconds(work), memory, gpus, False, cores)
        return Cost(kind, dearest.seconds(work), max(other.memory_mb for other in others), gpus, known=False)
    if job.experiment != "fedavg_images":
        return Cost(kind, unit.seconds(work), unit.memory_mb, gpus, known=True)
    memory = _image_memory_mb(job, unit, cores)
    if gpus:
        guess = replace(unit, step_seconds=GPU_STEP_SECONDS, record_seconds=unit.flops / GPU_FLOPS)
        measured = units.get(on_gpu(kind))
        return Cost(kind, (measured or guess).seconds(work), memory, gpus, known=measured is not None)
    seconds = unit.fixed_seconds + beside(unit.seconds(work) - unit.fixed_seconds, cores)
    return Cost(kind, seconds, memory, gpus, True, cores)


def on_gpu(kind: str) -> str:
    """Return the kind of a GPU's unit costs, which no shipped table has: `dpfl plan --measure` adds them."""
    return f"{kind} on a GPU"


def beside(seconds: float, at_once: int) -> float:
    """Return what training of `seconds` takes on a processor that trains `at_once` of them at the same time."""
    return seconds / (SHARED_SPEED if at_once > 1 else 1.0)


def cores_of(
    job: TrainingJob, most: int, memory_mb: float = math.inf, units: Mapping[str, UnitCost] | None = None
) -> int:
    """Return how many of at most `most` cores a job takes where it is alone: the fewest with which it takes
    JOB_SECONDS, else the fewest with which it is fastest.

    The memory of a third attempt is at most `memory_mb`.
    """
    if not can_divide(job):
        return 1
    costs = {cores: estimate(job, units, cores) for cores in range(1, min(most, int(job.settings["clients"])) + 1)}
    fit = {cores: cost.seconds for cores, cost in costs.items() if cores == 1 or cost.limit_mb(ATTEMPTS) <= memory_mb}
    enough = max(JOB_SECONDS, min(fit.values()))
    return next(cores for cores, seconds in fit.items() if seconds <= enough)


def can_divide(job: TrainingJob) -> bool:
    """Return whether several processes may train a job's clients: by federated averaging on a CPU, a thread each."""
    return job.experiment in DIVIDED and job.resources["device"] == "cpu" and job.resources["threads"] == 1


def work_of(job: TrainingJob, cores: int = 1) -> WorkCount:
    """Return the work of a job, of the busiest of `cores` processes; of an experiment that is not known here, its
    seeds times its cells. Raises InputError for settings that an experiment cannot have.
    """
    count = _COUNTS.get(job.experiment)
    try:
        if job.experiment in DIVIDED:
            return _fedavg_images(job, cores)
        return WorkCount(0.0, len(job.seeds) * len(job.cells)) if count is None else count(job)
    except (LookupError, TypeError, ValueError) as error:
        require_known(job)
        raise InputError(f"{job.paper}/{job.name}: its settings cannot be planned ({error!r})") from None


def _fedavg_images(job: TrainingJob, cores: int) -> WorkCount:
    """Every batch in every epoch of the busiest process's clients, and what is measured, by one process, on all.

    On a GPU neighbours with equally many steps take each step together.
    """
    settings = job.settings
    data = datasets.load(job.dataset)
    clients = int(settings["clients"])
    share = settings["client_share"] if clients > 1 else 1.0  # a single client has all records
    shares = share if isinstance(share, list) else [share] * clients
    sizes = [int(data.training_records * min(1.0, share)) for share in shares]
    sizes = max((sizes[first::cores] for first in range(cores)), key=sum)
    schedules = [_schedule(cell) for cell in job.cells]
    trained = trained_models(job.cells)
    batches = [math.ceil(size / int(settings["batch_size"])) for size in sizes]
    if job.resources["device"] == "cuda":
        batches = [count for count, _ in itertools.groupby(batches)]
    evaluated = sum(len(schedule) for schedule in schedules) * data.test_records
    steps, seeds = len(trained) * sum(batches), len(job.seeds)
    return WorkCount(seeds * steps, seeds * (sum(trained) * sum(sizes) + PREDICTION * evaluated))


def trained_models(cells: tuple[dict[str, Any], ...]) -> list[int]:
    """Return for each epoch how many models a client trains: cells that still agree are trained once."""
    schedules = [_schedule(cell) for cell in cells]
    ends = [list(itertools.accumulate(schedule)) for schedule in schedules]
    counts = []
    for epoch in range(1, max(last[-1] for last in ends) + 1):
        states = {
            (cell["epsilon"], cell.get("clip"), cell_end[-1], tuple(end for end in cell_end if end < epoch))
            for cell, cell_end in zip(cells, ends, strict=True)
            if epoch <= cell_end[-1]
        }
        counts.append(len(states))
    return counts


def _schedule(cell: Mapping[str, Any]) -> list[int]:
    """Return a cell's local epochs, round by round."""
    epochs = cell["local_epochs"]
    return list(epochs) if isinstance(epochs, list | tuple) else [epochs] * cell["rounds"]


def _image_memory_mb(job: TrainingJob, unit: UnitCost, cores: int) -> float:
    """Prepared inputs, every client's models with momentum, and each process's budget for gradients."""
    data = datasets.load(job.dataset)
    numbers = math.prod(feature_shape(data.image_shape) if job.needs_features else data.image_shape)
    records = data.training_records + data.test_records
    models = int(job.settings["clients"]) * len(job.cells)
    arrays = 4 * (records * numbers + 3 * models * unit.parameters) / 2**20
    is_on_gpu = job.resources["device"] == "cuda"  # whose gradients take none of the host's memory
    budget = 1024 * (0.0 if is_on_gpu else job.resources["memory_gb"] or CPU_GB)
    return BASE_MB + arrays + budget + (cores - 1) * (WORKER_MB + budget)


def _async_dpsgd(job: TrainingJob) -> WorkCount:
    """Every cell's rounds, each cell for itself."""
    training = datasets.load(job.dataset).training_records
    steps = records = 0.0
    for cell in job.cells:
        settings = {**job.settings, **cell}
        factor = int(settings.get("batch_factor", 1))
        passes = int(settings["epochs"]) * (factor if settings.get("scaling") == "rounds" else 1)
        steps += passes * training / (int(settings["batch_size"]) * factor)
        records += passes * training
    return WorkCount(len(job.seeds) * steps, len(job.seeds) * records)


def _pnsgd(job: TrainingJob) -> WorkCount:
    """One pass over the users for each law, order and release; its cells and seeds go together."""
    stacks: dict[tuple, int] = {}
    records = 0
    for cell in job.cells:
        settings = {**job.settings, **cell}
        users = int(settings["users"])
        stacks[users, settings["law"], settings["order"], settings["release"]] = users
        records += users
    return WorkCount(sum(stacks.values()), records * len(job.seeds))


def _trusted_aggregator(job: TrainingJob) -> WorkCount:
    """Rounds of batches; cells with equal draws go together."""
    steps: dict[tuple, float] = {}
    records = 0.0
    for cell in job.cells:
        settings = {**job.settings, **cell}
        taken = int(settings.get("passes", 1)) * int(settings["users"])
        stack = settings["draw"], settings["release"] in ("last", "all"), "new" in settings["draw"] or settings["users"]
        steps[stack] = max(steps.get(stack, 0.0), taken / int(settings["batch_size"]))
        records += taken
    return WorkCount(sum(steps.values()), records * len(job.seeds))


def _ldp(job: TrainingJob) -> WorkCount:
    """Rounds of every algorithm, and the grid of step sizes and clip norms of every cell in each of them."""
    settings = job.settings
    points = sum(settings["step_exponents"][cell["algorithm"]][2] * len(settings["clip_norms"]) for cell in job.cells)
    rounds = int(settings["rounds"]) * int(settings["repetitions"]) * len(job.seeds)
    algorithms = {cell["algorithm"] for cell in job.cells}
    return WorkCount(rounds * len(algorithms), rounds * int(settings["participating"]) * points)


_COUNTS: dict[str, Callable[[TrainingJob], WorkCount]] = {
    "async_dpsgd": _async_dpsgd,
    "pnsgd": _pnsgd,
    "trusted_aggregator": _trusted_aggregator,
    "ldp_regression": _ldp,
    "ldp_classification": _ldp,
}
