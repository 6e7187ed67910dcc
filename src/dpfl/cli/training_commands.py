"""Commands that calibrate noise and train: `dpfl calibrate` and `dpfl train`.

Both call the experiment that a sweep names; its contract is in dpfl.experiments.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from dpfl import experiments, gpu
from dpfl.cli.app import DEFAULT_CONFIG, ConfigOption, PaperOption, app, results_folder
from dpfl.errors import InputError
from dpfl.files import record_path
from dpfl.grid import configuration, expansion
from dpfl.grid.sweep import Folders, Sweep
from dpfl.progress import progress_bar
from dpfl.provenance.record import StageRecorder
from dpfl.provenance.run_identity import calibration_code, noise_identity, noise_of, run_identity, training_code


@app.command(epilog="Example: dpfl calibrate --paper bhaskar2025")
def calibrate(paper: PaperOption, config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Calibrate the noise of every private run of a paper, with its epsilon by a second accountant."""
    from dpfl.data.loading import load_description
    from dpfl.engine.memory_budget import on_cpu
    from dpfl.reporting.results import write_table

    resolved = configuration.read(config)
    sweeps = [sweep for sweep in expansion.expand(resolved) if sweep.paper == paper]
    families = {sweep.family: sweep for sweep in sweeps}
    if not families:
        raise InputError(f"nothing of paper {paper} is trained at scale {resolved['scale']}")
    modules = tuple(sorted({calibration_code(sweep.experiment) for sweep in families.values()}))
    stage = StageRecorder("account", modules, {"paper": paper, "scale": resolved["scale"]})
    stage.identity = noise_identity(sweeps)
    folders = {s.dataset: Folders.of(Path(resolved["data"]["folder"]), s.dataset) for s in families.values()}
    stage.reads([config, *(folder.arrays / "description.json" for folder in folders.values())])
    descriptions = {dataset: load_description(folder.arrays) for dataset, folder in folders.items()}
    tables = []
    with progress_bar(f"noise of {paper}", unit="families") as progress:
        for done, (family, sweep) in enumerate(families.items()):
            progress(done, len(families))
            experiment = experiments.load(sweep.experiment)
            experiments.require_known(sweep)
            try:
                rows = experiment.calibrate(on_cpu(sweep), descriptions[sweep.dataset])
            except InputError as error:  # experiments know settings, not whose
                raise InputError(f"{paper}/{family}, {error}") from None
            experiments.require_calibrated(sweep, rows)
            tables.append(rows.assign(family=family))
        progress(len(families), len(families))
    output = expansion.noise_table(results_folder(resolved), paper)
    write_table(pd.concat(tables), output)
    stage.write(record_path(output), [output])


@app.command(epilog="Example: dpfl train --paper bhaskar2025 --sweep digits_scatter_linear_k10_seed0")
def train(
    paper: PaperOption,
    sweep: Annotated[str, typer.Option("--sweep", help="name of the sweep; `dpfl status` lists them")],
    cores: Annotated[int, typer.Option("--cores", min=1, help="processes that train clients at the same time")] = 1,
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Train one sweep and write its run table, a row a run; continues from its checkpoint where there is one.

    More cores are of use to federated averaging on a CPU only, and change no byte.
    """
    from dpfl.pipeline.cost import estimate
    from dpfl.pipeline.devices import own_gpu

    resolved = configuration.read(config)
    job = expansion.find(resolved, paper, sweep)
    if not estimate(job).gpus:
        job = replace(job, resources={**job.resources, "device": "cpu"})  # as its record and its checkpoint shall say
    with own_gpu(job.resources["device"] == "cuda"):  # waited for before the stage's clock starts
        _train(resolved, job, cores)


def _train(resolved: dict[str, Any], job: Sweep, cores: int) -> None:
    """Train one sweep on its device."""
    from dpfl.engine.memory_budget import with_memory
    from dpfl.pipeline.client_division import clients_on
    from dpfl.pipeline.cost import can_divide
    from dpfl.pipeline.process_cleanup import newest, requeue_before_limit
    from dpfl.reporting.results import read_csv, write_table

    if job.resources["device"] == "cuda":
        gpu.prepare()
    experiment, code = experiments.load(job.experiment), training_code(job.experiment)
    experiments.require_known(job)
    stage = StageRecorder("train", (code,), job.settings, job.seeds, job.resources["device"], job.resources["threads"])
    folders = Folders.of(Path(resolved["data"]["folder"]), job.dataset)
    noise = expansion.noise_table(results_folder(resolved), job.paper)
    needed = [folders.arrays, folders.features] if job.needs_features else [folders.arrays]
    stage.reads(
        [noise, *(path for folder in needed for path in (folder / "description.json", *sorted(folder.glob("*.npy"))))]
    )
    stage.identity = {**run_identity(job), **noise_of(job, noise)}
    calibration = read_csv(noise).query("family == @job.family").drop(columns="family").reset_index(drop=True)
    checkpoint = Path("checkpoints") / resolved["scale"] / job.paper / _checkpoint_name(job, stage, noise)
    before = newest(checkpoint.parent, checkpoint.name)
    requeue_before_limit(lambda: newest(checkpoint.parent, checkpoint.name) > before)
    processes = cores if can_divide(job) else 1
    shown = progress_bar(f"{job.paper} {job.name}", unit="steps")
    with clients_on(processes), shown as progress:
        table = experiment.train(with_memory(job), folders, calibration, checkpoint, progress)
    experiments.require_trained(job, table)
    output = expansion.run_table(results_folder(resolved), job.paper, job.name)
    write_table(table, output)
    stage.write(record_path(output), [output])
    checkpoint.unlink(missing_ok=True)


def _checkpoint_name(job: Sweep, stage: StageRecorder, noise: Path) -> str:
    """Return a file name that no run of other settings, code, data or device has, so that none resumes from it."""
    read = [[entry["path"], entry["sha256"]] for entry in stage.inputs if entry["path"] != os.path.relpath(noise)]
    made_from = json.dumps([job.digest(), stage.identity, read, job.resources["device"]])
    return f"{job.name}-{hashlib.sha256(made_from.encode()).hexdigest()[:32]}.pt"


@app.command(
    "train-batch", epilog="Example: dpfl train-batch lowy2021/synthetic_shuffle_seed0 lowy2021/synthetic_one_pass_seed0"
)
def train_batch(
    sweeps: Annotated[list[str], typer.Argument(help="PAPER/SWEEP, the longest first")],
    cores: Annotated[int, typer.Option("--cores", min=1, help="sweeps that are trained at the same time")] = 1,
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Train several sweeps side by side and report each; what is finished is not trained again. Exit 1 if one fails."""
    from dpfl.pipeline.batches import BatchTraining
    from dpfl.pipeline.process_cleanup import newest, requeue_before_limit

    resolved = configuration.read(config)
    known = {f"{sweep.paper}/{sweep.name}": sweep for sweep in expansion.expand(resolved)}
    if unknown := [name for name in sweeps if name not in known]:
        raise InputError(f"no sweep {unknown[0]} at scale {resolved['scale']}; `dpfl status` lists them")
    chosen = [known[name] for name in sweeps]
    training = BatchTraining.of(chosen, results_folder(resolved), config, cores)
    folder = Path("checkpoints") / resolved["scale"]

    def latest() -> float:
        return max(newest(folder / sweep.paper, f"{sweep.name}-*.pt") for sweep in chosen)

    before = latest()
    requeue_before_limit(lambda: bool(training.trained) or latest() > before)
    training.run()
    if training.failed:
        raise typer.Exit(1)
