"""Trace a number, audit the results, and pack them as a crate."""

from __future__ import annotations

import json
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpfl.cli.app import CHECKING, StageCommand, app
from dpfl.errors import InputError, printable
from dpfl.pipeline import unchanged

if TYPE_CHECKING:
    from dpfl.provenance.audit.findings import Audit
    from dpfl.provenance.audit.rerun import Choice

_LINE_WIDTH = 2000
_UNUSABLE = (ValueError, LookupError, AttributeError, TypeError, ArithmeticError, OSError, RecursionError)
"""What recomputing raises on files that hold other things than ours."""
Scale = Annotated[Path, typer.Argument(help="results/<scale>")]
Reruns = Annotated[int, typer.Option("--rerun", min=0, help="train so many runs again, drawn at random")]
RerunSeed = Annotated[int | None, typer.Option("--seed", min=0, help="draw what an earlier --rerun drew")]
RerunCell = Annotated[
    str | None, typer.Option("--rerun-cell", metavar="PAPER/JOB", help="train the runs of a job again")
]
Signature = Annotated[Path | None, typer.Option("--signature", help="a release's statement, next to its .sig")]
Signers = Annotated[Path | None, typer.Option("--signers", help="the keys you trust (ssh-keygen, ALLOWED SIGNERS)")]
RerunWhere = Annotated[str | None, typer.Option("--where", help="column=value,...: which runs of --rerun-cell")]


@app.command(
    epilog="Example: dpfl trace results/paper/tables/bhaskar2025_table_2.csv --where model=scatter_linear,epsilon=2.93",
    rich_help_panel=CHECKING,
)
def trace(
    path: Annotated[Path, typer.Argument(help="a file that the pipeline wrote")],
    where: Annotated[
        list[str] | None, typer.Option("--where", help="column=value,...: the rows of the file's data that are meant")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the trace as JSON")] = False,
    picture: Annotated[Path | None, typer.Option("--picture", help="draw the trace to this .svg or .png")] = None,
) -> None:
    """Show the sources of a file, a cell or a point: runs, noise, features, raw data and their licence."""
    from dpfl.provenance import trace as traces

    top, rows = traces.trace_cells(path, traces.conditions(",".join(where))) if where else (traces.trace(path), [])
    root, _ = traces.project_of(path)
    if picture:
        traces.draw(top, picture)
    if as_json:
        # In ASCII: a recorded text may hold what steers a terminal, or half a character.
        said = {"rows": rows, "runs_recorded": traces.is_recorded(rows)} if rows else {"rows": rows}
        print(json.dumps({**said, **traces.as_json(top, root)}, indent=1))
    else:
        from rich.console import Console

        # Lines are wrapped for a terminal only, never in a file or a pipe.
        console = Console(highlight=False, width=None if sys.stdout.isatty() else _LINE_WIDTH)
        console.print(traces.tree(top, root, rows))


@app.command(epilog="Example: dpfl audit results/demo --rerun 5", rich_help_panel=CHECKING)
def audit(
    folder: Scale,
    files_only: Annotated[bool, typer.Option("--files-only", help="compare hashes, recompute nothing")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="draw no picture again, and leave out what took long")] = False,
    rerun: Reruns = 0,
    seed: RerunSeed = None,
    rerun_cell: RerunCell = None,
    where: RerunWhere = None,
    seal: Annotated[bool, typer.Option("--seal", help="write manifest.json where nothing is found")] = False,
    signature: Signature = None,
    signers: Signers = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="delete damaged files and what they gave")] = False,
) -> None:
    """Hash every file again, recompute every table, figure, verdict and epsilon; exit 1 with the findings."""
    from dpfl.pipeline.lock import beside_no_run, only_run
    from dpfl.provenance.audit.files import audit as check
    from dpfl.provenance.audit.release import check_signature

    if not (folder / "config.yaml").is_file() and (below := sorted(folder.glob("*/config.yaml"))):
        raise InputError(f"{folder} holds the results of several scales: name one of them, as {below[0].parent}")
    _require_effect(files_only, quick, rerun, seed, rerun_cell, where, seal, signature, signers)
    folder = _spelled(folder)
    project, changes = folder.parents[1], rebuild and folder.is_dir()
    with only_run(project, "dpfl audit") if changes else beside_no_run(project) if seal else nullcontext():
        report = check(folder, sealed=not seal)
        if signature and signers:
            check_signature(report, folder, signature, signers)
        if not files_only:
            _recompute(report, folder, quick, _choice(rerun, seed, rerun_cell, where))
        for line in report.lines():
            print(line)
        if seal and not report.findings:
            _seal(folder)
        if rebuild:
            _rebuild(report, folder)
    if report.findings:
        raise typer.Exit(1)


def _spelled(folder: Path) -> Path:
    """Return results/<scale> from here where its project is here or below, else from the root; raises InputError."""
    from dpfl.provenance.trace import scale_folder

    place = scale_folder(folder)
    return place.relative_to(Path.cwd()) if place.parents[1].is_relative_to(Path.cwd()) else place


def _rebuild(report: Audit, folder: Path) -> None:
    """Delete damaged files and what was made from them, and say what is left to the user."""
    from dpfl.provenance.audit.findings import remove_damaged
    from dpfl.provenance.trace import data_folders, readable_records

    removed, outside = remove_damaged(
        report, folder.absolute().parents[1], readable_records(folder, data_folders(folder))
    )
    print(f"{removed} files deleted; run make to have them made again")
    for path in outside:
        print(
            f"not deleted, as it lies outside the project: {printable(str(path.resolve()))}; delete it yourself first"
        )


def _require_effect(
    files_only: bool,
    quick: bool,
    rerun: int,
    seed: int | None,
    cell: str | None,
    where: str | None,
    seal: bool,
    signature: Path | None,
    signers: Path | None,
) -> None:
    """Raise InputError for an option that would have no effect: what was asked for would not have been checked."""
    faults = {
        "--files-only recomputes nothing: leave it out, or leave out --quick": files_only and quick,
        "--files-only recomputes nothing: leave it out, or leave out --rerun": files_only and rerun,
        "--files-only recomputes nothing: leave it out, or leave out --rerun-cell": files_only and cell is not None,
        "--seed needs --rerun: the number of runs to draw": seed is not None and not rerun,
        "--where needs --rerun-cell: the job whose runs are meant": where is not None and cell is None,
        "--signature needs --signers: the keys that you trust": signature and not signers,
        "--seal replaces the manifest that was signed: audit with --signature first": seal and signature,
        "--signers needs --signature: the statement that they signed": signers and not signature,
    }
    for message, is_fault in faults.items():
        if is_fault:
            raise InputError(message)


def _recompute(report: Audit, folder: Path, quick: bool, rerun: Choice | None) -> None:
    """Add what recomputing finds. Where files are damaged, a note says that not all could be recomputed; if none is
    by its hash, what stopped it is a finding."""
    from dpfl.provenance.audit.findings import Finding, one_line
    from dpfl.provenance.audit.verify_results import verify_results

    try:
        verify_results(report, folder, quick=quick, rerun=rerun)
    except _UNUSABLE as error:
        if report.findings:
            report.notes.append(f"not all could be recomputed from damaged files: {one_line(error)}")
        elif isinstance(error, InputError):
            raise
        else:
            report.findings.append(Finding(str(folder), f"holds what no stage of ours writes: {one_line(error)}"))


def _seal(folder: Path) -> None:
    """Write the manifest; name on standard error the records that the one before, if any, did not list so."""
    from dpfl.provenance import manifest

    before = manifest.read(folder) if (folder / manifest.MANIFEST).exists() else None
    path = manifest.write(folder)
    listed = manifest.read(folder)
    print(f"{path} lists {len(listed)} records")
    if before is not None and (names := sorted({name for name, _ in before.items() ^ listed.items()})):
        some = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        print(f"dpfl: {len(names)} records were added, changed or removed since the last time: {some}", file=sys.stderr)


def _choice(count: int, seed: int | None, cell: str | None, where: str | None) -> Choice | None:
    """Return which runs are to be trained again, None if none are."""
    if not count and cell is None:
        return None
    from dpfl.provenance.audit.rerun import Choice
    from dpfl.provenance.trace import conditions

    return Choice(count, seed, cell, {} if where is None else conditions(where))


@app.command(cls=StageCommand, epilog="Example: dpfl crate results/demo", rich_help_panel=CHECKING)
def crate(folder: Scale) -> None:
    """Write results/<scale>.crate.zip, a Workflow Run RO-Crate of everything that a record names."""
    own = Path(os.path.relpath(folder))
    states = [unchanged.code_state(), unchanged.results_state(own.name)] if own.parent == Path("results") else [""]
    if (said := unchanged.said_when_done("crate", own.name, states)) is None:
        from dpfl.provenance.crate import write

        path, made = write(folder)
        said = [f"{path} {'written' if made else 'is up to date'}"]
        unchanged.note("crate", own.name, states, [path], [f"{path} is up to date"])
    print(*said, sep="\n")


@app.command(
    cls=StageCommand, epilog="Example: dpfl release results/paper --key ~/.ssh/id_ed25519", rich_help_panel=CHECKING
)
def release(folder: Scale, key: Annotated[Path, typer.Option("--key", help="the SSH key to sign with")]) -> None:
    """Write results/<scale>.release.json with the manifest's hash, signed; dpfl audit --signature checks it."""
    from dpfl.provenance.audit.release import sign, signature_of

    path = sign(_spelled(folder), key)
    print(f"{path} and {signature_of(path)} written")
