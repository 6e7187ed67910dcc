"""What people ask of results: where a number comes from, whether all of it is intact, and a crate to hand on."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpfl.cli.app import app

if TYPE_CHECKING:
    from dpfl.provenance.audit.findings import Audit

_WHOLE_LINES = 2000
_UNUSABLE = (ValueError, KeyError, IndexError, AttributeError, TypeError, ArithmeticError)
"""What recomputing raises on files that hashes have found to be damaged."""
Scale = Annotated[Path, typer.Argument(help="results/<scale>")]
Reruns = Annotated[int, typer.Option("--rerun", min=0, help="train so many runs again, drawn at random")]
RerunSeed = Annotated[int, typer.Option("--seed", help="which runs --rerun draws")]


@app.command(
    epilog="Example: dpfl trace results/paper/tables/bhaskar2025_table_2.csv --where model=scatter_linear,epsilon=2.93"
)
def trace(
    path: Annotated[Path, typer.Argument(help="a file that the pipeline wrote")],
    where: Annotated[
        list[str] | None, typer.Option("--where", help="column=value,...: the rows of the file's data that are meant")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the trace as JSON")] = False,
    picture: Annotated[Path | None, typer.Option("--picture", help="draw the trace to this .svg or .png")] = None,
) -> None:
    """Show what a file, a cell or a point was made from: runs, noise, features, raw data and their licence."""
    from dpfl.provenance import cell_trace
    from dpfl.provenance import trace as records

    top, rows = (
        cell_trace.trace_cells(path, cell_trace.conditions(",".join(where))) if where else (records.trace(path), [])
    )
    root, _ = records.project_of(path)
    if picture:
        from dpfl.provenance.trace_view import draw

        draw(top, picture)
    from dpfl.provenance import trace_view

    if as_json:
        print(json.dumps({"rows": rows, **trace_view.plain(top, root)}, indent=1, ensure_ascii=False))
    else:
        from rich.console import Console

        # Lines are wrapped for a terminal only: a file or a pipe gets them whole.
        console = Console(highlight=False, width=None if sys.stdout.isatty() else _WHOLE_LINES)
        console.print(trace_view.tree(top, root, rows))


@app.command(epilog="Example: dpfl audit results/demo --rerun 5")
def audit(
    folder: Scale,
    files_only: Annotated[bool, typer.Option("--files-only", help="compare hashes, recompute nothing")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="draw no picture again, and leave out what took long")] = False,
    rerun: Reruns = 0,
    seed: RerunSeed = 0,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="delete what is damaged; make makes it anew")] = False,
) -> None:
    """Hash every file again, recompute every table, figure, verdict and epsilon; exit 1 with a list of what differs."""
    from dpfl.provenance.audit.file_hashes import audit as check

    seen = check(folder)
    if not files_only:
        from dpfl.provenance.audit.verify_results import verify_results

        try:
            verify_results(seen, folder, quick=quick, rerun=rerun, seed=seed)
        except _UNUSABLE as error:
            if not seen.findings:
                raise
            seen.notes.append(f"not all could be recomputed from damaged files: {' '.join(str(error).split())}")
    _tell(seen)
    if rebuild:
        removed = {path for finding in seen.findings for path in finding.remove if path.exists()}
        for path in sorted(removed):
            path.unlink()
        print(f"{len(removed)} files deleted; run make again to have them made anew")
    if seen.findings:
        raise typer.Exit(1)


def _tell(seen: Audit) -> None:
    """Print the findings, a line each, then what could not be checked, then what was."""
    for finding in seen.findings:
        print(f"{finding.path} {finding.problem}")
    for note in seen.notes:
        print(note)
    if seen.absent:
        print(f"not on this machine, so not checked: {len(seen.absent)} files, as {seen.absent[0]}")
    if seen.not_made:
        print(f"not made here, so not checked: {len(seen.not_made)} files, as {seen.not_made[0]} (make pages)")
    for kind, count in seen.checked.items():
        print(f"{count} {kind} checked")
    print(f"{len(seen.hashes)} files checked, {len(seen.findings)} findings")


@app.command(epilog="Example: dpfl crate results/demo")
def crate(folder: Scale) -> None:
    """Write results/<scale>.crate.zip, a Workflow Run RO-Crate of everything that a record names."""
    from dpfl.provenance.crate import write

    path, made = write(folder)
    print(f"{path} {'written' if made else 'is up to date'}")
