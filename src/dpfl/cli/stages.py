"""The stages that make data, features, noise and runs."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from dpfl import config as configuration
from dpfl import grid
from dpfl.cli.options import DEFAULT_CONFIG, ConfigOption, DatasetOption, PaperOption, app, results_folder, write_table
from dpfl.errors import InputError
from dpfl.progress import progress_bar
from dpfl.provenance.record import Stage
from dpfl.provenance.record_file import read_record, record_path
from dpfl.sweeps import Folders

data_app = typer.Typer(help="Fetch, verify and unpack the datasets; make the demo's stand-ins.", no_args_is_help=True)
app.add_typer(data_app, name="data")


@data_app.command("fetch", epilog="Example: dpfl data fetch --dataset mnist --file t10k-labels-idx1-ubyte")
def data_fetch(
    dataset: DatasetOption,
    file: Annotated[str, typer.Option("--file", help="file of the dataset, as named in data/sources.csv")],
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Fetch one file from the mirror or its servers and verify every byte; an accepted variant keeps its own name."""
    from dpfl.data import fetch, sources
    from dpfl.data.mirror import configured

    settings = configuration.read(config)["data"]
    folder = Path(settings["folder"]) / "raw" / dataset
    mirror = configured(settings["mirror"])
    stage = Stage("data fetch", ("dpfl.data.fetch",), {"dataset": dataset, "file": file})
    with progress_bar(f"{dataset}/{file}", unit="bytes") as progress:
        path = fetch.fetch(dataset, file, folder, mirror, settings["timeout_seconds"], progress)
    [source] = [source for source in sources.accepted(dataset, file) if source.file == path.name]
    stage.settings |= {"licence": source.licence, "note": source.note}
    stage.write(record_path(folder / file), [path])


@data_app.command("arrays", epilog="Example: dpfl data arrays --dataset mnist")
def data_arrays(dataset: DatasetOption, config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Unpack the verified files of a dataset into arrays; a stand-in is made instead."""
    from dpfl.data import sources

    folder = Path(configuration.read(config)["data"]["folder"])
    out = Folders.of(folder, dataset).arrays
    makers = ("dpfl.data.arrays", "dpfl.data.stand_ins", "dpfl.data.synthetic_folder")
    stage = Stage("data arrays", makers, {"dataset": dataset})
    if sources.is_published(dataset):
        from dpfl.data.arrays import build_arrays

        raw = folder / "raw" / dataset
        fetched = [read_record(record_path(raw / file)) for file in sources.official_files(dataset)]
        stage.reads(Path(output["path"]) for record in fetched for output in record["outputs"])
        build_arrays(dataset, raw, out)
    elif dataset == "synthetic":
        from dpfl.data.synthetic_folder import build_synthetic

        build_synthetic(out)
    else:
        from dpfl.data.stand_ins import build_stand_in

        build_stand_in(dataset, out)
    stage.write(record_path(out / "about.json"), [out / "about.json", *sorted(out.glob("*.npy"))])


@app.command(epilog="Example: dpfl features --dataset mnist")
def features(dataset: DatasetOption, config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Compute the scattering features of a dataset once, as arrays that can be memory-mapped."""
    from dpfl.features.scattering import build_features

    folders = Folders.of(Path(configuration.read(config)["data"]["folder"]), dataset)
    stage = Stage("features", ("dpfl.features.scattering",), {"dataset": dataset})
    stage.reads(folders.arrays / name for name in ("about.json", "train_x.npy", "test_x.npy"))
    with progress_bar(f"features of {dataset}", unit="images") as progress:
        build_features(folders.arrays, folders.features, progress)
    outputs = [folders.features / name for name in ("about.json", "train_x.npy", "test_x.npy")]
    stage.write(record_path(outputs[0]), outputs)


@app.command(epilog="Example: dpfl account --paper bhaskar2025")
def account(paper: PaperOption, config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Calibrate the noise of every private run of a paper, with its epsilon by a second accountant beside it."""
    from dpfl.control.devices import on_cpu
    from dpfl.data.read import load_about

    resolved = configuration.read(config)
    families = {sweep.family: sweep for sweep in grid.expand(resolved) if sweep.paper == paper}
    if not families:
        raise InputError(f"nothing of paper {paper} is trained at scale {resolved['scale']}")
    modules = tuple(sorted({f"dpfl.federated.{sweep.algorithm}" for sweep in families.values()}))
    stage = Stage("account", modules, {"paper": paper, "scale": resolved["scale"]})
    folders = {s.dataset: Folders.of(Path(resolved["data"]["folder"]), s.dataset) for s in families.values()}
    stage.reads([config, *(folder.arrays / "about.json" for folder in folders.values())])
    abouts = {dataset: load_about(folder.arrays) for dataset, folder in folders.items()}
    tables = []
    with progress_bar(f"noise of {paper}", unit="families") as progress:
        for done, (family, sweep) in enumerate(families.items()):
            progress(done, len(families))
            code = importlib.import_module(f"dpfl.federated.{sweep.algorithm}")
            rows = code.calibrate(on_cpu(sweep), abouts[sweep.dataset])
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
    from dpfl.control.cost import estimate
    from dpfl.control.devices import own_gpu, with_memory
    from dpfl.provenance.source import source_digest
    from dpfl.reporting.results import read_csv

    resolved = configuration.read(config)
    job = grid.find(resolved, paper, sweep)
    code = f"dpfl.federated.{job.algorithm}"
    stage = Stage("train", (code,), job.settings, job.seeds, job.machine["device"], job.machine["threads"])
    folders = Folders.of(Path(resolved["data"]["folder"]), job.dataset)
    noise = results_folder(resolved) / "accounting" / f"{paper}.csv"
    needed = [folders.arrays, folders.features] if job.needs_features else [folders.arrays]
    stage.reads(
        [noise, *(path for folder in needed for path in (folder / "about.json", *sorted(folder.glob("*.npy"))))]
    )
    calibration = read_csv(noise).query("family == @job.family").drop(columns="family").reset_index(drop=True)
    checkpoint = Path("checkpoints") / resolved["scale"] / paper / f"{sweep}-{job.digest()}-{source_digest(code)}.pt"
    with own_gpu(bool(estimate(job).gpus)), progress_bar(f"{paper} {sweep}", unit="steps") as progress:
        table = importlib.import_module(code).train(with_memory(job), folders, calibration, checkpoint, progress)
    output = grid.run_table(results_folder(resolved), paper, sweep)
    write_table(table, output)
    stage.write(record_path(output), [output])
    checkpoint.unlink(missing_ok=True)
