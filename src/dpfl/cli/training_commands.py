"""Commands that calibrate noise and train: `dpfl calibrate` and `dpfl train`.

Both call the experiment that a sweep names; its contract is in dpfl.experiments.protocol.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from dpfl.cli.app import DEFAULT_CONFIG, ConfigOption, PaperOption, app, results_folder, write_table
from dpfl.errors import InputError
from dpfl.experiments import protocol
from dpfl.files import record_path
from dpfl.grid import configuration, expansion
from dpfl.grid.sweep import Folders
from dpfl.progress import progress_bar
from dpfl.provenance.record import StageRecorder
from dpfl.provenance.run_identity import noise_identity, noise_of, run_identity


@app.command(epilog="Example: dpfl calibrate --paper bhaskar2025")
def calibrate(paper: PaperOption, config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Calibrate the noise of every private run of a paper, with its epsilon by a second accountant."""
    from dpfl.data.loading import load_description
    from dpfl.engine.memory_budget import on_cpu

    resolved = configuration.read(config)
    sweeps = [sweep for sweep in expansion.expand(resolved) if sweep.paper == paper]
    families = {sweep.family: sweep for sweep in sweeps}
    if not families:
        raise InputError(f"nothing of paper {paper} is trained at scale {resolved['scale']}")
    modules = tuple(sorted({protocol.module_name(sweep.experiment) for sweep in families.values()}))
    stage = StageRecorder("account", modules, {"paper": paper, "scale": resolved["scale"]})
    stage.identity = noise_identity(sweeps)
    folders = {s.dataset: Folders.of(Path(resolved["data"]["folder"]), s.dataset) for s in families.values()}
    stage.reads([config, *(folder.arrays / "description.json" for folder in folders.values())])
    descriptions = {dataset: load_description(folder.arrays) for dataset, folder in folders.items()}
    tables = []
    with progress_bar(f"noise of {paper}", unit="families") as progress:
        for done, (family, sweep) in enumerate(families.items()):
            progress(done, len(families))
            experiment = protocol.load(sweep.experiment)
            rows = experiment.calibrate(on_cpu(sweep), descriptions[sweep.dataset])
            tables.append(rows.assign(family=family))
    output = results_folder(resolved) / "accounting" / f"{paper}.csv"
    write_table(pd.concat(tables), output)
    stage.write(record_path(output), [output])


@app.command(epilog="Example: dpfl train --paper bhaskar2025 --sweep digits_scatter_linear_k10_seed0")
def train(
    paper: PaperOption,
    sweep: Annotated[str, typer.Option("--sweep", help="name of the sweep; `dpfl status` lists them")],
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Train one sweep and write its run table, a row a run; continues from its checkpoint where there is one."""
    from dpfl.engine.memory_budget import with_memory
    from dpfl.pipeline.cost import estimate
    from dpfl.pipeline.devices import own_gpu
    from dpfl.reporting.results import read_csv

    resolved = configuration.read(config)
    job = expansion.find(resolved, paper, sweep)
    experiment, code = protocol.load(job.experiment), protocol.module_name(job.experiment)
    stage = StageRecorder("train", (code,), job.settings, job.seeds, job.resources["device"], job.resources["threads"])
    folders = Folders.of(Path(resolved["data"]["folder"]), job.dataset)
    noise = results_folder(resolved) / "accounting" / f"{paper}.csv"
    needed = [folders.arrays, folders.features] if job.needs_features else [folders.arrays]
    stage.reads(
        [noise, *(path for folder in needed for path in (folder / "description.json", *sorted(folder.glob("*.npy"))))]
    )
    stage.identity = {**run_identity(job), **noise_of(job, noise)}
    calibration = read_csv(noise).query("family == @job.family").drop(columns="family").reset_index(drop=True)
    # A checkpoint of other settings, code, data or device has another name, so it is never resumed.
    read = [[entry["path"], entry["sha256"]] for entry in stage.inputs if entry["path"] != os.path.relpath(noise)]
    made_from = json.dumps([job.digest(), stage.identity, read, job.resources["device"]])
    name = f"{sweep}-{hashlib.sha256(made_from.encode()).hexdigest()[:32]}.pt"
    checkpoint = Path("checkpoints") / resolved["scale"] / paper / name
    with own_gpu(bool(estimate(job).gpus)), progress_bar(f"{paper} {sweep}", unit="steps") as progress:
        table = experiment.train(with_memory(job), folders, calibration, checkpoint, progress)
    output = expansion.run_table(results_folder(resolved), paper, sweep)
    write_table(table, output)
    stage.write(record_path(output), [output])
    checkpoint.unlink(missing_ok=True)
