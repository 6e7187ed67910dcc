"""Plan a run before it starts: jobs, core-hours, GPU-hours, memory, wall time."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snakemake.utils import available_cpu_count

from dpfl.catalog import load
from dpfl.data import datasets
from dpfl.errors import InputError
from dpfl.grid import expansion
from dpfl.grid.configuration import load_mapping, results_folder
from dpfl.grid.expansion import noise_table_path, page_path, verdicts_path
from dpfl.pipeline import devices, job_batches, site
from dpfl.pipeline.cost import Cost, UnitCost, beside, cores_of, estimate
from dpfl.pipeline.live_line import RunProgress
from dpfl.progress import duration
from dpfl.provenance import run_identity

if TYPE_CHECKING:
    from dpfl.grid.training_job import TrainingJob
    from dpfl.pipeline.job_batches import Batch

# Patterns by which Snakemake's rules match some names only: short, for they are part of every path of a rule.


def require_no_brace(folder: Path) -> None:
    """Raise InputError where the path of the project or of its data has a brace: Snakemake takes it for a wildcard."""
    if {"{", "}"} & set(str(folder)):
        raise InputError(f"{folder} has a brace in its path, which Snakemake takes for a wildcard: rename the folder")


def any_of(words: Iterable[str]) -> str:
    """Return a pattern for exactly these words; it matches nothing if there are none."""
    known = [re.escape(word) for word in words]
    return "|".join(known) if known else "(?!)"


def names(words: Iterable[str]) -> str:
    """Return a pattern for exactly these names; those that differ behind their last underscore alone, as the seeds of a
    job do, are written once.

    Snakemake reads the pattern each time it fills in a path: with thousands of names it took most of a dry run.
    """
    ends: dict[str, list[str]] = {}
    for word in words:
        beginning, mark, end = word.rpartition("_")
        ends.setdefault(beginning, []).append(mark + end)
    beginnings: dict[tuple[str, ...], list[str]] = {}
    for beginning, known in ends.items():
        beginnings.setdefault(tuple(known), []).append(beginning)
    return "|".join(f"({any_of(some)})({any_of(known)})" for known, some in beginnings.items()) or "(?!)"


# Stages that do not train: the files that each leaves, and the time that it takes.

# Processor seconds, as the demo and scale paper took them on the machine of costs.csv.
ARRAYS_SECONDS, CLAIMS_SECONDS, END_SECONDS = 2.0, 2.5, 12.0  # END: audit, report and crate
FEATURES_SECONDS, IMAGE_SECONDS = 8.0, 0.0018  # a job, and each grey image of 28 x 28
ACCOUNTING_SECONDS, CELL_SECONDS = 4.0, 0.05  # a paper, and each cell whose noise is calibrated
PAGES_SECONDS, PAGE_SECONDS = 3.0, 1.5  # a job that makes a paper's tables or figures, and each of them


@dataclass(frozen=True)
class Stage:
    """A job of the workflow that does not train: its rule, what it is for (a dataset or paper), files and time.

    `follows`: the papers whose training jobs it shows, so that it is made again after them.
    """

    rule: str
    subject: str
    outputs: tuple[Path, ...]
    seconds: float
    follows: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name in the engine's log: the rule and its wildcards."""
        return f"{self.rule} {self.subject}".strip()

    @property
    def is_done(self) -> bool:
        """True where all its files are there."""
        return all(path.exists() for path in self.outputs)


def stages(config: Mapping[str, Any], jobs: Iterable[TrainingJob]) -> list[Stage]:
    """Return the stages around training `jobs`: data, features and noise of these, the pages of all papers."""
    folder, data, known = results_folder(config), Path(config["data"]["folder"]), list(jobs)
    prepared = []
    for name in sorted({job.dataset for job in known}):
        prepared.append(Stage("arrays", name, (data / "arrays" / name / "description.json",), ARRAYS_SECONDS))
    for name in sorted({job.dataset for job in known if job.needs_features}):
        output = data / "features" / name / "description.json"
        prepared.append(Stage("features", name, (output,), _features_seconds(name)))
    cells = {(job.paper, job.calibration_key): len(job.cells) for job in known}
    for key in config["papers"]:
        if count := sum(count for (owner, _), count in cells.items() if owner == key):
            seconds = ACCOUNTING_SECONDS + CELL_SECONDS * count
            prepared.append(Stage("accounting", key, (noise_table_path(folder, key),), seconds))
    return [*prepared, *_pages(folder, config["papers"])]


def open_stages(config: Mapping[str, Any], todo: Iterable[TrainingJob]) -> list[Stage]:
    """Return the stages that a run of the open jobs `todo` has to do: those without files, and those that follow."""
    known = list(todo)
    trained = {job.paper for job in known}
    return [each for each in stages(config, known) if not each.is_done or trained & set(each.follows)]


def _pages(folder: Path, papers: Iterable[str]) -> list[Stage]:
    """Return the stages that come after training."""
    made, judged = [], []
    for key in papers:
        for kind in ("tables", "figures"):
            outputs = tuple(page_path(folder, kind, key, name) for name in getattr(load(key), kind))
            made.append(Stage(f"{kind}_{key}", "", outputs, PAGES_SECONDS + PAGE_SECONDS * len(outputs), (key,)))
        judged.append(Stage("claims", key, (verdicts_path(folder, key),), CLAIMS_SECONDS, (key,)))
    return [*made, *judged, Stage("audit", "", (folder / "audit.txt",), END_SECONDS, tuple(papers))]


def _features_seconds(dataset: str) -> float:
    """Return the time for the scattering features of a dataset."""
    data = datasets.load(dataset)
    images = data.training_records + data.test_records
    return FEATURES_SECONDS + IMAGE_SECONDS * images * math.prod(data.image_shape) / 28**2


PROFILES = Path("workflow") / "profiles"
QUEUED_SECONDS = 25.0  # of a cluster's job: Snakemake starts three times in it, and is asked about it now and then
STARTED_SECONDS = 0.5  # of a job on this machine: Snakemake's own time for it


@dataclass(frozen=True)
class Machines:
    """Machines of a run: jobs at the same time, and overhead of each.

    `side_by_side`: short jobs that one job of the cluster trains at the same time; 1 where each is alone.
    `cores`: of a node, among which a long job may be divided; 1 where a job has one.
    """

    name: str
    at_once: int
    extra_seconds: float
    on_cluster: bool
    side_by_side: int = 1
    longest_seconds: float = math.inf
    memory_mb: float = math.inf
    cores: int = 1

    def jobs(
        self, jobs: Iterable[TrainingJob], units: Mapping[str, UnitCost] | None = None
    ) -> tuple[list[Batch], list[tuple[TrainingJob, Cost]]]:
        """Return the training jobs: batches, and the jobs that are trained alone with the cost of each."""
        batched, alone = job_batches.divide(jobs, self.side_by_side, self.memory_mb, units)
        cores = [cores_of(job, self.cores, self.memory_mb, units) for job in alone]
        return batched, [(job, estimate(job, units, n)) for job, n in zip(alone, cores, strict=True)]

    def seconds(self, cost: Cost | Batch) -> float:
        """Return the time of a training job beside the others.

        On a cluster each has its cores to itself, but jobs of one core may be put on the same node, and share its
        memory; what takes several cores counts with that already.
        """
        if not self.on_cluster:
            return beside(cost.seconds, self.at_once)
        shares = cost.cores == 1 and not (isinstance(cost, Cost) and (cost.gpus or cost.needs_node))
        return beside(cost.seconds, self.cores if shares else 1)


def machines_of(profile: str, threads: int, device: str, jobs_per_gpu: int = 1, at_once: int | None = None) -> Machines:
    """Return the machines of a profile; raises InputError for an unknown profile.

    On this machine as many jobs go together as it has cores for (of those that this process and the profile may use),
    or places on its GPUs, as if it had one where it has none; on a cluster as many as `jobs` of its site.yaml, else of
    its config.yaml, lets into the queue, as if it had room for them all. `at_once` says it instead.
    """
    folder = PROFILES / profile
    if not (folder / "config.yaml").is_file():
        known = ", ".join(sorted(path.parent.name for path in PROFILES.glob("*/config.yaml")))
        raise InputError(f"no profile {profile} in {PROFILES}; there are {known}")
    options = load_mapping(folder / "config.yaml")
    if (folder / "site.yaml").is_file():
        known = site.read(folder / "site.yaml")
        limits = 60.0 * known["longest_minutes"], float(known["memory_mb_per_node"])
        jobs, side_by_side = at_once or known["jobs"], known["side_by_side"]
        return Machines(profile, jobs, QUEUED_SECONDS, True, side_by_side, *limits, known["cores_per_node"])
    if "executor" in options:
        jobs, side_by_side, cores = _counts(folder / "config.yaml", options)
        return Machines(profile, at_once or jobs, QUEUED_SECONDS, True, side_by_side, cores=cores)
    if device == "cuda":
        gpus = resources_of(options).get("gpu", jobs_per_gpu * max(1, len(devices.visible_gpus())))
        local = site.count(folder / "config.yaml", "gpu", gpus)
    else:
        cores = options.get("cores", "all")
        cores = available_cpu_count() if cores == "all" else site.count(folder / "config.yaml", "cores", cores)
        local = max(1, cores // threads)
    return Machines(profile, at_once or local, STARTED_SECONDS, on_cluster=False)


def resources_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the resources of a profile's options, as Snakemake takes them: {mem_mb: 4}, [mem_mb=4] or mem_mb=4."""
    stated = options.get("resources") or {}
    if isinstance(stated, dict):
        return dict(stated)
    words = stated.split() if isinstance(stated, str) else map(str, stated)
    return {name: value for name, _, value in (each.partition("=") for each in words)}


def _counts(path: Path, options: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return jobs in the queue, training jobs side by side and cores of a node, as a cluster's config.yaml has them."""
    if "jobs" not in options:
        raise InputError(f"{path} lacks jobs: how many jobs may be in the queue at the same time")
    counts = {"side_by_side": 1, "cores": 1, **resources_of(options), **options}
    queued, together, cores = (site.count(path, key, counts[key]) for key in ("jobs", "side_by_side", "cores"))
    return queued, together, cores


def lines(config: Mapping[str, Any], where: Machines, units: Mapping[str, UnitCost]) -> Iterator[str]:
    """Yield the plan of the open jobs: a line for each kind, then the sums.

    A job is done when its run table is what training it today would give (provenance.run_identity), a stage around
    the jobs when its files are there and no job before it is open. Times are those of the machine that `units` were
    measured on, without waiting in a cluster's queue.
    """
    folder = results_folder(config)
    jobs = expansion.expand(config)
    todo = [job for job in jobs if not run_identity.is_finished(job, folder)]
    costs = [estimate(job, units) for job in todo]
    threads = int(config["training"]["threads"])
    yield f"scale {config['scale']}, profile {where.name}: {len(todo)} jobs to train, {len(jobs) - len(todo)} done"
    yield f"{'kind':<34} {'jobs':>6} {'hours':>8} {'longest':>9} {'memory':>8}"
    for (paper, kind), group in sorted(_by_kind(todo, costs).items()):
        hours = sum(cost.seconds for cost in group) / 3600
        longest, memory = max(cost.seconds for cost in group), max(cost.memory_mb for cost in group)
        mark = "" if all(cost.known for cost in group) else "  not measured: a guess"
        name = f"{paper} {kind}"
        yield f"{name:<34} {len(group):>6} {hours:>8.2f} {longest / 60:>5.0f} min {memory / 1024:>5.1f} GB{mark}"
    batched, alone = where.jobs(todo, units)
    work = [*batched, *(cost for _, cost in alone)]
    others = open_stages(config, todo)
    for rule in ("arrays", "features", "accounting"):
        if prepared := [stage.seconds for stage in others if stage.rule == rule]:
            yield f"{rule:<34} {len(prepared):>6} {sum(prepared) / 3600:>8.2f} {max(prepared) / 60:>5.0f} min"
    light = [stage.seconds for stage in others]
    gpus = sum(cost.seconds for cost in costs if cost.gpus) / 3600
    cores = sum(cost.seconds for cost in costs if not cost.gpus) / 3600 * threads + sum(light) / 3600
    yield f"jobs: {len(work)} that train, {len(light)} of other stages"
    yield f"core-hours: {cores:.1f}; GPU-hours: {gpus:.1f}"
    yield f"memory: at most {max((each.memory_mb for each in work), default=2000) / 1024:.1f} GB a job"
    yield from _shares_of_nodes([cost for _, cost in alone], where)
    wall = job_batches.makespan(
        [seconds + where.extra_seconds for seconds in (*map(where.seconds, work), *light)], where.at_once
    )
    trained = [*alone, *((job, batch) for batch in batched for job in batch.jobs)]
    path = _critical_path([(job, where.seconds(cost)) for job, cost in trained], others) if todo else {}
    yield f"time on the clock, {where.at_once} jobs at once: about {duration(max(wall, sum(path.values())))}"
    if path:
        text = ", ".join(f"{name} {duration(seconds)}" for name, seconds in path.items())
        yield f"critical path, however many machines: {duration(sum(path.values()))} ({text})"
        yield from _beyond_the_limit(list(map(where.seconds, work)), where)


def _shares_of_nodes(alone: list[Cost], where: Machines) -> Iterator[str]:
    """Yield a line where jobs have several cores, and one where they have a node without using all of its cores."""
    if divided := [cost.cores for cost in alone if cost.cores > 1]:
        yield f"divided: {len(divided)} jobs, among up to {max(divided)} cores each"
    if where.cores > 1 and (whole := sum(cost.needs_node for cost in alone)):
        yield f"on a node of their own, where no neighbour slows them: {whole} jobs of one core"


def _critical_path(trained: list[tuple[TrainingJob, float]], others: list[Stage]) -> dict[str, float]:
    """Return the seconds of each stage of the longest chain that wait for each other, which no machines shorten.

    `trained`: each training job, and the seconds of it or of its batch.
    """
    chains = []
    for job, seconds in trained:
        paper, before = job.paper, [f"arrays {job.dataset}", f"accounting {job.paper}"]
        before += [f"features {job.dataset}"] if job.needs_features else []
        known = {stage.name: stage.seconds for stage in others}
        chain = {name: known[name] for name in before if name in known} | {f"train {paper} {job.name}": seconds}
        pages = max((f"tables_{paper}", f"figures_{paper}"), key=lambda name: known.get(name, 0.0))
        chains.append(chain | {name: known[name] for name in (pages, f"claims {paper}", "audit") if name in known})
    return max(chains, key=lambda chain: sum(chain.values()))


def _beyond_the_limit(times: list[float], where: Machines) -> Iterator[str]:
    """Yield a line where training jobs take longer than a job may."""
    if beyond := [seconds for seconds in times if seconds > where.longest_seconds]:
        pieces = math.ceil(max(beyond) / where.longest_seconds)
        limit = duration(where.longest_seconds)
        yield f"longer than a job may take ({limit}): {len(beyond)}, continued in up to {pieces} pieces"


def run_progress(config: Mapping[str, Any], where: Machines) -> RunProgress:
    """Return the progress of a run of what is open now, nothing of it done.

    Pages are expected even if their files are there: the engine makes them again after any change.
    """
    folder = results_folder(config)
    todo = [job for job in expansion.expand(config) if not run_identity.is_finished(job, folder)]
    batched, alone = where.jobs(todo)
    rules = {0: "train", 1: "train_gpu"}  # by GPUs, as training.smk names them
    expected = {f"{rules[cost.gpus]} {job.paper} {job.name}": where.seconds(cost) for job, cost in alone}
    expected |= {f"{batch.rule} {batch.paper}": where.seconds(batch) for batch in batched}
    expected |= {each.name: each.seconds for each in stages(config, todo) if each.follows or not each.is_done}
    return RunProgress(expected, where.at_once)


def _by_kind(jobs: list[TrainingJob], costs: list[Cost]) -> dict[tuple[str, str], list[Cost]]:
    costs_by_kind: dict[tuple[str, str], list[Cost]] = {}
    for job, cost in zip(jobs, costs, strict=True):
        costs_by_kind.setdefault((job.paper, cost.kind), []).append(cost)
    return costs_by_kind
