"""Fetch data, unpack them, and compute features: the first stages of the pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpfl.cli.app import DEFAULT_CONFIG, STAGES, ConfigOption, DatasetOption, StageCommand, app
from dpfl.files import record_path
from dpfl.grid import configuration
from dpfl.grid.training_job import Folders
from dpfl.progress import progress_bar
from dpfl.provenance.record import StageRecorder, read_record

data_app = typer.Typer(help="Fetch, verify and unpack the datasets; make the demo's stand-ins.", no_args_is_help=True)
app.add_typer(data_app, name="data", rich_help_panel=STAGES)


@data_app.command(
    "fetch", cls=StageCommand, epilog="Example: dpfl data fetch --dataset mnist --file t10k-labels-idx1-ubyte"
)
def data_fetch(
    dataset: DatasetOption,
    file: Annotated[str, typer.Option("--file", help="file of the dataset, as named in src/dpfl/data/datasets.yaml")],
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Fetch one file from the mirror or its servers and verify every byte; an accepted variant keeps its own name."""
    from dpfl.data import datasets, fetch
    from dpfl.data.fetch import configured

    settings = configuration.read(config)["data"]
    folder = Path(settings["folder"]) / "raw" / dataset
    mirror = configured(settings["mirror"])
    stage = StageRecorder("data fetch", ("dpfl.data.fetch",), {"dataset": dataset, "file": file})
    with progress_bar(f"{dataset}/{file}", unit="bytes") as progress:
        path = fetch.fetch(dataset, file, folder, mirror, settings["timeout_seconds"], progress)
    entry = datasets.load(dataset)
    [source] = [source for source in entry.accepted(file) if source.file == path.name]
    stage.settings |= {"licence": entry.licence, "note": source.note}
    stage.write(record_path(folder / file), [path])


@data_app.command("arrays", cls=StageCommand, epilog="Example: dpfl data arrays --dataset mnist")
def data_arrays(dataset: DatasetOption, config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Unpack the verified files of a dataset into arrays; a stand-in is made instead."""
    from dpfl.data import arrays, datasets

    folder = Path(configuration.read(config)["data"]["folder"])
    out, raw = Folders.of(folder, dataset).arrays, folder / "raw" / dataset
    settings = {"dataset": dataset, "entry": datasets.digest(dataset)}
    stage = StageRecorder("data arrays", datasets.modules(dataset), settings)
    fetched = [read_record(record_path(raw / file)) for file in datasets.load(dataset).official_files]
    stage.reads(Path(output["path"]) for record in fetched for output in record["outputs"])
    arrays.build_arrays(dataset, out, raw)
    stage.write(record_path(out / "description.json"), [out / "description.json", *sorted(out.glob("*.npy"))])


@app.command(cls=StageCommand, epilog="Example: dpfl features --dataset mnist", rich_help_panel=STAGES)
def features(dataset: DatasetOption, config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Compute the scattering features of a dataset once, as arrays that can be memory-mapped."""
    import torch

    from dpfl.features.scattering import build_features

    folders = Folders.of(Path(configuration.read(config)["data"]["folder"]), dataset)
    stage = StageRecorder("features", ("dpfl.features.scattering",), {"dataset": dataset})
    stage.reads(folders.arrays / name for name in ("description.json", "train_x.npy", "test_x.npy"))
    torch.set_num_threads(1)  # divided among two, a product is summed in another order: other bytes, and other runs
    with progress_bar(f"features of {dataset}", unit="images") as progress:
        build_features(folders.arrays, folders.features, progress)
    outputs = [folders.features / name for name in ("description.json", "train_x.npy", "test_x.npy")]
    stage.write(record_path(outputs[0]), outputs)
