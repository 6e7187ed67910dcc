"""Commands that calibrate noise and train: `dpfl calibrate` and `dpfl train`.

Both call the experiment that a job names; its contract is in dpfl.experiments.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from dpfl import gpu
from dpfl.cli.app import DEFAULT_CONFIG, STAGES, ConfigOption, PaperOption, StageCommand, app
from dpfl.errors import InputError
from dpfl.files import record_path
from dpfl.grid import configuration, expansion
from dpfl.grid.training_job import Folders, TrainingJob, on_cpu, with_memory
from dpfl.progress import progress_bar
from dpfl.provenance.record import StageRecorder


@app.command(cls=StageCommand, epilog="Example: dpfl calibrate --paper bhaskar2025", rich_help_panel=STAGES)
def calibrate(paper: PaperOption, config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Calibrate the noise of every private run of a paper, with its epsilon by a second accountant."""
    import pandas as pd

    from dpfl import experiments
    from dpfl.data.loading import load_description
    from dpfl.provenance.run_identity import calibration_code, noise_identity
    from dpfl.reporting.results import write_table

    resolved = configuration.read(config)
    jobs = [job for job in expansion.expand(resolved) if job.paper == paper]
    by_key = {job.calibration_key: job for job in jobs}
    if not by_key:
        raise InputError(expansion.nothing_of(paper, resolved))
    modules = tuple(sorted({calibration_code(job.experiment) for job in by_key.values()}))
    stage = StageRecorder("account", modules, {"paper": paper, "scale": resolved["scale"]})
    stage.identity = noise_identity(jobs)
    folders = {s.dataset: Folders.of(Path(resolved["data"]["folder"]), s.dataset) for s in by_key.values()}
    stage.reads([config, *(folder.arrays / "description.json" for folder in folders.values())])
    descriptions = {dataset: load_description(folder.arrays) for dataset, folder in folders.items()}
    tables = []
    with progress_bar(f"noise of {paper}", unit="calibrations") as progress:
        for done, (key, job) in enumerate(by_key.items()):
            progress(done, len(by_key))
            experiment = experiments.load(job.experiment)
            experiments.require_known(job)
            try:
                rows = experiment.calibrate(on_cpu(job), descriptions[job.dataset])
            except InputError as error:  # experiments know settings, not whose
                raise InputError(f"{paper}/{key}, {error}") from None
            experiments.require_calibrated(job, rows)
            tables.append(rows.assign(calibration_key=key))
        progress(len(by_key), len(by_key))
    output = expansion.noise_table_path(configuration.results_folder(resolved), paper)
    write_table(pd.concat(tables), output)
    stage.write(record_path(output), [output])


@app.command(
    cls=StageCommand,
    epilog="Example: dpfl train --paper bhaskar2025 --job digits_scatter_linear_k10_seed0",
    rich_help_panel=STAGES,
)
def train(
    paper: PaperOption,
    job: Annotated[str, typer.Option("--job", help="name of the job; `dpfl status` lists those that wait")],
    cores: Annotated[int, typer.Option("--cores", min=1, help="processes that train clients at the same time")] = 1,
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Train one job and write its run table, one row for each run; continues from its checkpoint if there is one.

    More cores are of use to federated averaging on a CPU only, and change no byte.
    """
    from dpfl.pipeline.cost import estimate
    from dpfl.pipeline.devices import own_gpu

    resolved = configuration.read(config)
    found = expansion.find(resolved, paper, job)
    if not estimate(found).gpus:
        found = replace(found, resources={**found.resources, "device": "cpu"})  # so say its record and checkpoint
    jobs_per_gpu = resolved["training"]["jobs_per_gpu"]
    with own_gpu(found.resources["device"] == "cuda", jobs_per_gpu):  # waited for before the stage's clock starts
        _train(resolved, found, cores)


def _train(resolved: dict[str, Any], job: TrainingJob, cores: int) -> None:
    """Train one job on its device."""
    from dpfl import experiments
    from dpfl.pipeline.client_division import clients_on
    from dpfl.pipeline.cost import can_divide
    from dpfl.pipeline.process_cleanup import newest, requeue_before_limit
    from dpfl.provenance.run_identity import noise_of, run_identity, training_code
    from dpfl.reporting.results import read_csv, write_table

    if job.resources["device"] == "cuda":
        gpu.prepare()
    experiment, code = experiments.load(job.experiment), training_code(job.experiment)
    experiments.require_known(job)
    stage = StageRecorder("train", (code,), job.settings, job.seeds, job.resources["device"], job.resources["threads"])
    folders = Folders.of(Path(resolved["data"]["folder"]), job.dataset)
    noise = expansion.noise_table_path(configuration.results_folder(resolved), job.paper)
    needed = [folders.arrays, folders.features] if job.needs_features else [folders.arrays]
    stage.reads(
        [noise, *(path for folder in needed for path in (folder / "description.json", *sorted(folder.glob("*.npy"))))]
    )
    stage.identity = {**run_identity(job), **noise_of(job, noise)}
    calibration = (
        read_csv(noise)
        .query("calibration_key == @job.calibration_key")
        .drop(columns="calibration_key")
        .reset_index(drop=True)
    )
    checkpoint = Path("checkpoints") / resolved["scale"] / job.paper / _checkpoint_name(job, stage, noise)
    before = newest(checkpoint.parent, checkpoint.name)
    requeue_before_limit(lambda: newest(checkpoint.parent, checkpoint.name) > before)
    processes = cores if can_divide(job) else 1
    shown = progress_bar(f"{job.paper} {job.name}", unit="steps")
    with clients_on(processes), shown as progress:
        table = experiment.train(
            with_memory(job, resolved["training"]["jobs_per_gpu"]), folders, calibration, checkpoint, progress
        )
    experiments.require_trained(job, table)
    output = expansion.run_table_path(configuration.results_folder(resolved), job.paper, job.name)
    write_table(table, output)
    stage.write(record_path(output), [output])
    checkpoint.unlink(missing_ok=True)


def _checkpoint_name(job: TrainingJob, stage: StageRecorder, noise: Path) -> str:
    """Return a file name that no run of other settings, code, data or device has, so that none resumes from it."""
    read = [[entry["path"], entry["sha256"]] for entry in stage.inputs if entry["path"] != os.path.relpath(noise)]
    made_from = json.dumps([job.digest(), stage.identity, read, job.resources["device"]])
    return f"{job.name}-{hashlib.sha256(made_from.encode()).hexdigest()[:32]}.pt"


@app.command(
    "train-batch",
    cls=StageCommand,
    epilog="Example: dpfl train-batch lowy2021/synthetic_shuffle_seed0 lowy2021/synthetic_one_pass_seed0",
    rich_help_panel=STAGES,
)
def train_batch(
    jobs: Annotated[list[str], typer.Argument(help="PAPER/JOB, the longest first")],
    cores: Annotated[int, typer.Option("--cores", min=1, help="jobs that are trained at the same time")] = 1,
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Train several jobs side by side and report each; what is finished is not trained again. Exit 1 if one fails."""
    from dpfl.pipeline.job_batches import BatchTraining
    from dpfl.pipeline.process_cleanup import newest, requeue_before_limit

    resolved = configuration.read(config)
    known = {f"{job.paper}/{job.name}": job for job in expansion.expand(resolved)}
    if unknown := [name for name in jobs if name not in known]:
        raise InputError(
            f"no job {unknown[0]} at scale {resolved['scale']}; there are {len(known)}: {', '.join(list(known)[:5])}"
        )
    chosen = [known[name] for name in jobs]
    training = BatchTraining.of(chosen, configuration.results_folder(resolved), config, cores)
    folder = Path("checkpoints") / resolved["scale"]

    def latest() -> float:
        return max(newest(folder / job.paper, f"{job.name}-*.pt") for job in chosen)

    before = latest()
    requeue_before_limit(lambda: bool(training.trained) or latest() > before)
    training.run()
    if training.failed:
        raise typer.Exit(1)
