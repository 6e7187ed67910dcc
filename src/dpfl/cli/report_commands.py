"""The stages that make what people read: tables, figures, verdicts, the report."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from dpfl.cli.app import DEFAULT_CONFIG, ConfigOption, PaperOption, app, results_folder
from dpfl.errors import InputError
from dpfl.files import record_path
from dpfl.grid import configuration, expansion
from dpfl.provenance.record import StageRecorder


def _render(kind: str, make: Callable[..., list[Path]], paper: str, name: str | None, config: Path) -> None:
    """Write one table or figure of a paper, or all of them, each with its record."""
    from dpfl.catalog import load
    from dpfl.reporting.results import Results

    known = getattr(load(paper), kind)
    if name is not None and name not in known:
        raise InputError(f"{paper} has no {kind[:-1]} {name}; it has {', '.join(known) or 'none'}")
    resolved = configuration.read(config)
    folder = results_folder(resolved)
    # The sweeps of this configuration that have been trained: nothing that an earlier configuration left behind.
    sweeps = [sweep.name for sweep in expansion.expand(resolved) if sweep.paper == paper]
    runs = tuple(path for path in (expansion.run_table(folder, paper, sweep) for sweep in sweeps) if path.exists())
    results = Results(folder, {paper: runs})
    for each in known if name is None else [name]:
        stage = StageRecorder(
            kind, (f"dpfl.papers.{paper}.{kind}", f"dpfl.reporting.{kind}"), {"paper": paper, "name": each}
        )
        stage.reads(runs)
        outputs = make(paper, each, results, folder / kind)
        stage.write(record_path(outputs[0]), outputs)


@app.command(epilog="Example: dpfl tables --paper bhaskar2025")
def tables(
    paper: PaperOption,
    name: Annotated[str | None, typer.Option("--name", help="one table alone, as table_2")] = None,
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Write a paper's tables as CSV, Markdown, LaTeX and HTML."""
    from dpfl.reporting.tables import make

    _render("tables", make, paper, name, config)


@app.command(epilog="Example: dpfl figures --paper lowy2021")
def figures(
    paper: PaperOption,
    name: Annotated[str | None, typer.Option("--name", help="one figure alone, as figure_2")] = None,
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Write the data of a paper's figures as CSV, and draw them from that as SVG, PDF and PNG."""
    from dpfl.reporting.figures import make

    _render("figures", make, paper, name, config)


@app.command(epilog="Example: dpfl claims --paper lowy2021")
def claims(paper: PaperOption, config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Compute a verdict on every claim of a paper from its tables and figures' data."""
    from dpfl.reporting.claims import evaluate, write
    from dpfl.reporting.results import Results

    folder = results_folder(configuration.read(config))
    stage = StageRecorder("claims", (f"dpfl.papers.{paper}.claims", "dpfl.reporting.claims"), {"paper": paper})
    stage.reads(file for kind in ("tables", "figures") for file in sorted((folder / kind).glob(f"{paper}_*.csv")))
    outputs = write(paper, evaluate(paper, Results(folder)), folder / "claims")
    stage.write(record_path(outputs[0]), outputs)


@app.command(epilog="Example: dpfl pages --config results/paper/config.yaml")
def pages(config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Write report.html, and the LaTeX, HTML, SVG and PDF files of finished tables, figures and claims."""
    from dpfl.reporting.pages import derive
    from dpfl.reporting.report_page.contents import contents
    from dpfl.reporting.report_page.render import write

    resolved = configuration.read(config)
    folder = results_folder(resolved)
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        paths = list(chain.from_iterable(pool.map(partial(derive, folder), resolved["papers"])))
    if not paths:
        raise InputError(f"no finished page in {folder}: run make first")
    page, short = write(folder, contents(folder, resolved))
    print(f"{len(paths)} files written in {folder}; read {page}, or {short} on a code host")


@app.command(epilog="Example: dpfl report --config results/demo/config.yaml")
def report(config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Make results/<scale>/report.html with every table, figure and verdict, README.md and the engine's own report."""
    from dpfl.reporting.engine_report import build
    from dpfl.reporting.report_page.contents import contents
    from dpfl.reporting.report_page.render import write
    from dpfl.reporting.report_page.short_lines import verdict_lines

    resolved = configuration.read(config)
    folder = results_folder(resolved)
    build(folder, config)
    found = contents(folder, resolved)
    path, _ = write(folder, found)
    for line in verdict_lines(found):
        print(line)
    print(f"Read {path}")
