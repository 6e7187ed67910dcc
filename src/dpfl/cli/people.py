"""What people ask of results: where a file comes from, whether all of it is intact."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpfl import config as configuration
from dpfl.cli.options import DEFAULT_CONFIG, ConfigOption, app


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
def audit(
    folder: Annotated[Path, typer.Argument(help="results/<scale>")],
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="delete what is damaged; make makes it anew")
    ] = False,
) -> None:
    """Hash again every file that has a record, raw data and checkpoints too; exit 1 with a list of what differs."""
    from dpfl.provenance.audit import audit as check

    seen = check(folder)
    for finding in seen.findings:
        print(f"{finding.path} {finding.problem}")
    if seen.absent:
        print(f"not on this machine, so not checked: {len(seen.absent)} files, as {seen.absent[0]}")
    print(f"{len(seen.hashes)} files checked, {len(seen.findings)} findings")
    if rebuild:
        removed = {path for finding in seen.findings for path in finding.remove if path.exists()}
        for path in sorted(removed):
            path.unlink()
        print(f"{len(removed)} files deleted; run make again to have them made anew")
    if seen.findings:
        raise typer.Exit(1)
