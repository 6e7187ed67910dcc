"""The stages that make what people read: tables, figures, verdicts, the report."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from dpfl.catalog import load, recipe_code
from dpfl.cli.app import DAILY, DEFAULT_CONFIG, STAGES, ConfigOption, PaperOption, StageCommand, app
from dpfl.errors import InputError
from dpfl.files import is_regular, read_bytes, record_path, write_atomically
from dpfl.grid import configuration, expansion
from dpfl.pipeline import unchanged
from dpfl.provenance.record import StageRecorder

README = Path("README.md")


def _render(kind: str, paper: str, name: str | None, config: Path, *, anew: bool = True) -> list[Path]:
    """Write one table or figure of a paper (`kind`), or all of them, each with its record; return their CSV files.

    Without `anew` pages that are finished are left as they are.
    """
    from dpfl.provenance.run_identity import is_page_current
    from dpfl.reporting import figures, tables
    from dpfl.reporting.results import Results

    make = {"tables": tables.make, "figures": figures.make}[kind]
    known = getattr(load(paper), kind)
    if name is not None and name not in known:
        raise InputError(f"{paper} has no {kind[:-1]} {name}; it has {', '.join(known) or 'none'}")
    resolved = _resolved(config, paper)
    folder = configuration.results_folder(resolved)
    # The jobs of this configuration that have been trained: nothing that an earlier configuration left behind.
    jobs = [job.name for job in expansion.expand(resolved) if job.paper == paper]
    runs = tuple(path for path in (expansion.run_table_path(folder, paper, job) for job in jobs) if path.exists())
    if anew and name is None and jobs and not runs:
        raise InputError(f"no run table of {paper} in {folder}: dpfl run with the same --config first")
    results, made = Results(folder, {paper: runs}), []
    for each in known if name is None else [name]:
        if not anew and is_page_current(expansion.page_path(folder, kind, paper, each), paper, runs):
            continue
        modules = (*recipe_code(paper, kind), f"dpfl.reporting.{kind}")
        stage = StageRecorder(kind, modules, {"paper": paper, "name": each})
        stage.reads(runs)
        outputs = make(paper, each, results, folder / kind)
        stage.write(record_path(outputs[0]), outputs)
        made.append(outputs[0])
    return made


def _resolved(config: Path, paper: str) -> dict[str, Any]:
    """Return a configuration that has the paper; raises InputError for another: it would make pages without runs."""
    resolved = configuration.read(config)
    if paper not in resolved["papers"]:
        raise InputError(f"papers: {config} does not have {paper}; it has {', '.join(resolved['papers'])}")
    return resolved


def _judge(paper: str, config: Path, *, anew: bool = True) -> list[Path]:
    """Write the verdicts on a paper's claims with their record; return their CSV file, none where it was finished."""
    from dpfl.provenance.run_identity import is_page_current
    from dpfl.reporting.claims import evaluate, write
    from dpfl.reporting.results import Results

    facts, folder = load(paper), configuration.results_folder(_resolved(config, paper))
    listed = [
        expansion.page_path(folder, kind, paper, name)
        for kind in ("tables", "figures")
        for name in getattr(facts, kind)
    ]
    pages = sorted(page for page in listed if page.exists())
    if not anew and is_page_current(expansion.verdicts_path(folder, paper), paper, pages):
        return []
    stage = StageRecorder("claims", (f"dpfl.papers.{paper}.claims", "dpfl.reporting.claims"), {"paper": paper})
    stage.reads(pages)
    outputs = write(paper, evaluate(paper, Results(folder)), folder / "claims")
    stage.write(record_path(outputs[0]), outputs)
    return outputs[:1]


def _finish(paper: str, config: Path) -> tuple[int, int]:
    """Make the pages of a paper that are not finished, and the derived files of the others; return how many of each."""
    from dpfl.reporting.pages import derive

    made = [csv for kind in ("tables", "figures") for csv in _render(kind, paper, None, config, anew=False)]
    made += _judge(paper, config, anew=bool(made))  # verdicts are never older than what they are read from
    return len(made), len(derive(configuration.results_folder(configuration.read(config)), paper, made))


@app.command(cls=StageCommand, epilog="Example: dpfl tables --paper bhaskar2025", rich_help_panel=STAGES)
def tables(
    paper: PaperOption,
    name: Annotated[str | None, typer.Option("--name", help="one table alone, as table_2")] = None,
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Write a paper's tables as CSV, Markdown, LaTeX and HTML."""
    _render("tables", paper, name, config)


@app.command(cls=StageCommand, epilog="Example: dpfl figures --paper lowy2021", rich_help_panel=STAGES)
def figures(
    paper: PaperOption,
    name: Annotated[str | None, typer.Option("--name", help="one figure alone, as figure_2")] = None,
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Write the data of a paper's figures as CSV, and draw them from that as SVG, PDF and PNG."""
    _render("figures", paper, name, config)


@app.command(cls=StageCommand, epilog="Example: dpfl claims --paper lowy2021", rich_help_panel=STAGES)
def claims(paper: PaperOption, config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Compute a verdict on every claim of a paper from its tables and figures' data."""
    _judge(paper, config)


@app.command(epilog="Example: dpfl pages --config results/paper/config.yaml", rich_help_panel=DAILY)
def pages(config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Make every page from the run tables that are there, without training: what was not run is marked where its number
    would stand. Finished pages stay, damaged ones are made again; so are their LaTeX, HTML, SVG and PDF files, the
    manifest and report.html. workflow.html goes: it shows older pages, and `dpfl report` makes it.
    """
    from dpfl.pipeline.lock import only_run
    from dpfl.provenance.audit.files import remove_damaged_pages
    from dpfl.provenance.audit.verify_results import at_once
    from dpfl.provenance.trace import require_no_linked_folder
    from dpfl.reporting.engine_report import PAGE
    from dpfl.reporting.report_page import project_readme
    from dpfl.reporting.report_page.contents import contents
    from dpfl.reporting.report_page.render import write

    resolved = configuration.read(config)
    folder = configuration.results_folder(resolved)
    _require_runs(folder, trains=bool(expansion.expand(resolved)))
    require_no_linked_folder(folder)
    with only_run(what="dpfl pages"):
        remove_damaged_pages(folder)
        # A process for each paper: a stage reads the records of a folder once (StageRecorder), and they change here.
        work = [partial(_finish, paper, config) for paper in resolved["papers"]]
        made, derived = map(sum, zip(*at_once(work, each_anew=True), strict=True))
        findings = _sealed(folder)
        if (engine_page := folder / PAGE).is_file() or engine_page.is_symlink():
            engine_page.unlink()
        page = contents(folder, resolved)
        full, short = write(folder, page)
    if is_regular(README) and _is_whole(resolved, project_readme.SCALE):
        write_atomically(README, project_readme.updated(read_bytes(README).decode("utf-8"), page))
    elif is_regular(README) and resolved["scale"] == project_readme.SCALE:
        print(f"{README} is as it was: {config} has not all papers and jobs of scale {project_readme.SCALE}")
    print(f"{made} pages remade, {derived} derived files written. Read {full}, or {short} on a code host")
    if findings:
        raise typer.Exit(1)


def _is_whole(resolved: Mapping[str, Any], scale: str) -> bool:
    """Return whether a configuration has all runs of `scale`: README.md speaks of no part of it."""
    if resolved["scale"] != scale:
        return False
    whole = expansion.expand(configuration.resolve({"scale": scale}))
    return {(s.paper, s.digest()) for s in expansion.expand(resolved)} == {(s.paper, s.digest()) for s in whole}


def _require_runs(folder: Path, *, trains: bool) -> None:
    """Raise InputError if there is nothing to make pages from, or where a run table that the manifest lists is gone.

    A table that was deleted must not become one that was never run. `trains`: whether the configuration has any job;
    papers of formulas alone have none.
    """
    from dpfl.provenance import manifest

    if trains and not any(folder.glob("runs/*/*.csv.gz")):
        raise InputError(f"no run table in {folder}: dpfl run with the same --config first")
    if not (folder / manifest.MANIFEST).exists():
        return
    for name in manifest.read(folder):
        table = folder / name.removesuffix(".record.json")
        if name.startswith("runs/") and not table.exists():
            raise InputError(
                f"{table} is gone, though {manifest.MANIFEST} lists it: put it back; if it is to count as not run, "
                f"delete {folder / manifest.MANIFEST}"
            )


def _sealed(folder: Path) -> int:
    """Check the files' hashes as the last step of a run does, and write the manifest; return the number of findings."""
    from dpfl.provenance import manifest
    from dpfl.provenance.audit.files import ENDED, audit

    found = audit(folder, sealed=False)
    write_atomically(folder / ENDED, "\n".join(found.lines()) + "\n")
    for line in found.lines():
        print(line)
    if not found.findings:
        manifest.write(folder)
    return len(found.findings)


@app.command(cls=StageCommand, epilog="Example: dpfl report --config results/demo/config.yaml", rich_help_panel=DAILY)
def report(config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Make results/<scale>/report.html with every table, figure and verdict, README.md and the engine's own report."""
    resolved = configuration.read(config)
    scale = resolved["scale"]
    states = [unchanged.code_state(resolved), unchanged.results_state(scale), unchanged.data_state(resolved)]
    if (said := unchanged.said_when_done("report", scale, states)) is None:
        said, written = _report(configuration.results_folder(resolved), config, resolved)
        unchanged.note("report", scale, states, written, said)
    print(*said, sep="\n")


def _report(folder: Path, config: Path, resolved: dict[str, Any]) -> tuple[list[str], list[Path]]:
    """Make the report of results/<scale>; return what it says in short, and the files."""
    from dpfl.provenance.trace import require_no_linked_folder
    from dpfl.reporting.engine_report import build
    from dpfl.reporting.report_page.contents import contents
    from dpfl.reporting.report_page.render import verdict_lines, write

    require_no_linked_folder(folder)
    engine_page = build(folder, config)
    page = contents(folder, resolved)
    written = write(folder, page)
    return [*verdict_lines(page), page.about, f"Read {written[0]}"], [engine_page, *written]
