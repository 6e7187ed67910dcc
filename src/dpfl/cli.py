"""`dpfl`: the stages of the pipeline as commands. The workflow calls nothing else."""

from __future__ import annotations

import importlib
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
import yaml

from dpfl import config as configuration
from dpfl import grid
from dpfl.errors import InputError
from dpfl.files import replacing, write_atomically
from dpfl.progress import progress_bar
from dpfl.provenance.record import Stage, read_record, record_path

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
data_app = typer.Typer(help="Fetch, verify and unpack the datasets; make the demo's stand-ins.", no_args_is_help=True)
app.add_typer(data_app, name="data")

ConfigOption = Annotated[Path, typer.Option("--config", help="configuration file")]
PaperOption = Annotated[str, typer.Option("--paper", help="key of the paper, as bhaskar2025")]
DatasetOption = Annotated[str, typer.Option("--dataset", help="key of the dataset, as mnist")]
DEFAULT_CONFIG = Path("config.yaml")


def main() -> None:
    """Run the command line: 0 success, 1 a check found something, 2 unusable input; one line an error."""
    # A scheduler's SIGTERM ends a stage as Ctrl-C does: temporary files are removed on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        app()
    except InputError as error:
        print(f"dpfl: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("dpfl: interrupted; run the same command again to continue", file=sys.stderr)
        sys.exit(130)


def _results(config: dict[str, Any]) -> Path:
    """Return the results folder of the configuration's scale."""
    return Path("results") / config["scale"]


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
    stage.write(record_path(folder / file), inputs=[], outputs=[path])


@data_app.command("arrays", epilog="Example: dpfl data arrays --dataset mnist")
def data_arrays(dataset: DatasetOption, config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Unpack the verified files of a dataset into arrays; a stand-in is made instead."""
    from dpfl.data import sources

    folder = Path(configuration.read(config)["data"]["folder"])
    out = grid.Folders.of(folder, dataset).arrays
    stage = Stage("data arrays", ("dpfl.data.arrays", "dpfl.data.stand_ins"), {"dataset": dataset})
    inputs: list[Path] = []
    if sources.is_published(dataset):
        from dpfl.data.arrays import build_arrays

        raw = folder / "raw" / dataset
        fetched = [read_record(record_path(raw / file)) for file in sources.official_files(dataset)]
        inputs = [Path(output["path"]) for record in fetched for output in record["outputs"]]
        build_arrays(dataset, raw, out)
    else:
        from dpfl.data.stand_ins import build_stand_in

        build_stand_in(dataset, out)
    stage.write(
        record_path(out / "about.json"), inputs=inputs, outputs=[out / "about.json", *sorted(out.glob("*.npy"))]
    )


@app.command(epilog="Example: dpfl features --dataset mnist")
def features(dataset: DatasetOption, config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Compute the scattering features of a dataset once, as arrays that can be memory-mapped."""
    from dpfl.features.scattering import build_features

    folders = grid.Folders.of(Path(configuration.read(config)["data"]["folder"]), dataset)
    stage = Stage("features", ("dpfl.features.scattering",), {"dataset": dataset})
    with progress_bar(f"features of {dataset}", unit="images") as progress:
        build_features(folders.arrays, folders.features, progress)
    inputs = [folders.arrays / name for name in ("about.json", "train_x.npy", "test_x.npy")]
    outputs = [folders.features / name for name in ("about.json", "train_x.npy", "test_x.npy")]
    stage.write(record_path(outputs[0]), inputs=inputs, outputs=outputs)


@app.command(epilog="Example: dpfl account --paper bhaskar2025")
def account(paper: PaperOption, config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Calibrate the noise of every private run of a paper, with its epsilon by a second accountant beside it."""
    from dpfl.data.read import load_about

    resolved = configuration.read(config)
    families = {sweep.family: sweep for sweep in grid.expand(resolved) if sweep.paper == paper}
    if not families:
        raise InputError(f"nothing of paper {paper} is trained at scale {resolved['scale']}")
    modules = tuple(sorted({f"dpfl.federated.{sweep.algorithm}" for sweep in families.values()}))
    stage = Stage("account", modules, {"paper": paper, "scale": resolved["scale"]})
    folders = {s.dataset: grid.Folders.of(Path(resolved["data"]["folder"]), s.dataset) for s in families.values()}
    abouts = {dataset: load_about(folder.arrays) for dataset, folder in folders.items()}
    tables = []
    with progress_bar(f"noise of {paper}", unit="families") as progress:
        for done, (family, sweep) in enumerate(families.items()):
            progress(done, len(families))
            rows = importlib.import_module(f"dpfl.federated.{sweep.algorithm}").calibrate(sweep, abouts[sweep.dataset])
            tables.append(rows.assign(family=family))
    output = _results(resolved) / "accounting" / f"{paper}.csv"
    _write_table(pd.concat(tables), output)
    inputs = [folder.arrays / "about.json" for folder in folders.values()]
    stage.write(record_path(output), inputs=[config, *inputs], outputs=[output])


@app.command(epilog="Example: dpfl train --paper bhaskar2025 --sweep digits_scatter_linear_k10_seed0")
def train(
    paper: PaperOption,
    sweep: Annotated[str, typer.Option("--sweep", help="name of the sweep; `dpfl status` lists them")],
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Train one sweep and write its run table, a row a run; continues from its checkpoint where there is one."""
    from dpfl.provenance.source import source_digest
    from dpfl.reporting.results import read_csv

    resolved = configuration.read(config)
    job = grid.find(resolved, paper, sweep)
    code = f"dpfl.federated.{job.algorithm}"
    stage = Stage("train", (code,), job.settings, job.seeds, job.machine["device"], job.machine["threads"])
    folders = grid.Folders.of(Path(resolved["data"]["folder"]), job.dataset)
    noise = _results(resolved) / "accounting" / f"{paper}.csv"
    calibration = read_csv(noise).query("family == @job.family").drop(columns="family").reset_index(drop=True)
    checkpoint = Path("checkpoints") / resolved["scale"] / paper / f"{sweep}-{job.digest()}-{source_digest(code)}.pt"
    with progress_bar(f"{paper} {sweep}", unit="steps") as progress:
        table = importlib.import_module(code).train(job, folders, calibration, checkpoint, progress)
    output = _results(resolved) / "runs" / paper / f"{sweep}.csv"
    _write_table(table, output)
    inputs = [noise, folders.arrays / "about.json", *sorted(folders.arrays.glob("*.npy"))]
    if job.needs_features:
        inputs += sorted(folders.features.glob("*.npy"))
    stage.write(record_path(output), inputs=inputs, outputs=[output])
    checkpoint.unlink(missing_ok=True)


def _render(kind: str, make: Callable[..., list[Path]], paper: str, name: str, config: Path) -> None:
    """Write one table or figure of a paper and its record."""
    from dpfl.papers import load
    from dpfl.reporting.results import Results

    known = getattr(load(paper), kind)
    if name not in known:
        raise InputError(f"{paper} has no {kind[:-1]} {name}; it has {', '.join(known) or 'none'}")
    resolved = configuration.read(config)
    folder = _results(resolved)
    stage = Stage(kind, (f"dpfl.papers.{paper}.{kind}", f"dpfl.reporting.{kind}"), {"paper": paper, "name": name})
    # The sweeps of this configuration that have been trained: nothing that an earlier configuration left behind.
    names = [sweep.name for sweep in grid.expand(resolved) if sweep.paper == paper]
    runs = tuple(path for path in (folder / "runs" / paper / f"{name}.csv" for name in names) if path.exists())
    outputs = make(paper, name, Results(folder, {paper: runs}), folder / kind)
    stage.write(record_path(outputs[0]), inputs=runs, outputs=outputs)


@app.command(epilog="Example: dpfl tables --paper bhaskar2025 --name table_2")
def tables(
    paper: PaperOption,
    name: Annotated[str, typer.Option("--name", help="name of the table, as table_2")],
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Write one table as CSV, Markdown, LaTeX and HTML."""
    from dpfl.reporting.tables import make

    _render("tables", make, paper, name, config)


@app.command(epilog="Example: dpfl figures --paper lowy2021 --name figure_2")
def figures(
    paper: PaperOption,
    name: Annotated[str, typer.Option("--name", help="name of the figure, as figure_2")],
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Write one figure's data as CSV, and draw it from that as SVG, PDF and PNG."""
    from dpfl.reporting.figures import make

    _render("figures", make, paper, name, config)


@app.command(epilog="Example: dpfl claims --paper lowy2021")
def claims(paper: PaperOption, config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Compute a verdict on every claim of a paper from its tables and figures' data."""
    from dpfl.reporting.claims import evaluate, write
    from dpfl.reporting.results import Results

    folder = _results(configuration.read(config))
    stage = Stage("claims", (f"dpfl.papers.{paper}.claims", "dpfl.reporting.claims"), {"paper": paper})
    outputs = write(paper, evaluate(paper, Results(folder)), folder / "claims")
    inputs = [file for kind in ("tables", "figures") for file in sorted((folder / kind).glob(f"{paper}_*.csv"))]
    stage.write(record_path(outputs[0]), inputs=inputs, outputs=outputs)


@app.command(epilog="Example: dpfl report --config results/demo/config.yaml")
def report(config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Make results/<scale>/report.html with every table, figure and verdict, if any of them is newer than it."""
    from dpfl.reporting.report import build

    path, made = build(_results(configuration.read(config)), config)
    print(f"{path} {'written' if made else 'is up to date'}")


@app.command(epilog="Example: dpfl status --config results/demo/config.yaml")
def status(config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Show what is done of each stage, and which sweeps wait or can be resumed."""
    from dpfl.papers import load

    resolved = configuration.read(config)
    folder = _results(resolved)
    for paper in resolved["papers"]:
        sweeps = [sweep for sweep in grid.expand(resolved) if sweep.paper == paper]
        open_sweeps = [sweep for sweep in sweeps if not (folder / "runs" / paper / f"{sweep.name}.csv").exists()]
        parts = [f"sweeps {len(sweeps) - len(open_sweeps)}/{len(sweeps)}"]
        for kind in ("tables", "figures"):
            known = getattr(load(paper), kind)
            parts.append(
                f"{kind} {sum((folder / kind / f'{paper}_{name}.csv').exists() for name in known)}/{len(known)}"
            )
        parts.append("claims done" if (folder / "claims" / f"{paper}.csv").exists() else "claims open")
        print(f"{paper}: {', '.join(parts)}")
        for sweep in open_sweeps:
            kept = any((Path("checkpoints") / resolved["scale"] / paper).glob(f"{sweep.name}-*.pt"))
            print(f"  {sweep.name}: {'resumable' if kept else 'waits'}")


@app.command(epilog="Example: dpfl trace results/demo/tables/bhaskar2025_table_2.csv")
def trace(
    path: Annotated[Path, typer.Argument(help="a file that the pipeline wrote")],
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Show what a file was made from, stage by stage, back to the raw data."""
    from dpfl.provenance.trace import trace as steps

    folders = [Path("results"), Path(configuration.read(config)["data"]["folder"])]
    for step in steps(path, folders):
        made = "no record" if step.record is None else f"{step.record['stage']}, {step.record['seconds']} s"
        print(f"{'  ' * step.depth}{step.path}  ({made})")


@app.command(epilog="Example: dpfl audit results/demo")
def audit(folder: Annotated[Path, typer.Argument(help="results/<scale>")]) -> None:
    """Recompute the hash of every file that has a record; exit 1 with a list where one differs or is missing."""
    from dpfl.provenance.trace import audit as check

    checked, findings = check(folder)
    for finding in findings:
        print(f"{finding.path} {finding.problem}")
    print(f"{checked} files checked, {len(findings)} findings")
    if findings:
        raise typer.Exit(1)


@app.command("config", epilog="""Example: dpfl config --json '{"scale": "demo"}' --output resolved.yaml""")
def config_command(
    text: Annotated[str, typer.Option("--json", help="the configuration as JSON")],
    output: Annotated[Path, typer.Option("--output", help="where to write it")],
) -> None:
    """Check a configuration and write it out completed with every default."""
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"--json is not JSON: {error}") from None
    resolved = configuration.resolve(given)
    write_atomically(output, yaml.safe_dump(resolved, sort_keys=False))


def _write_table(table: pd.DataFrame, path: Path) -> None:
    """Write a table of the pipeline, whole or not at all."""
    from dpfl.reporting.results import write_csv

    with replacing(path) as temporary:
        write_csv(table, temporary)
