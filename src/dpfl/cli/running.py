"""Running the workflow, and how far it is."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from dpfl import config as configuration
from dpfl.cli.options import DEFAULT_CONFIG, ConfigOption, app


@app.command(epilog="Example: dpfl run --scale demo")
def run(
    scale: Annotated[str, typer.Option("--scale", help="demo, quick or paper")] = "demo",
    config: Annotated[Path | None, typer.Option("--config", help="your own settings, laid over config.yaml")] = None,
    profile: Annotated[str, typer.Option("--profile", help="a folder of workflow/profiles")] = "default",
    paranoid: Annotated[bool, typer.Option("--paranoid", help="hash every input, however old it looks")] = False,
    more: Annotated[list[str] | None, typer.Argument(help="options for Snakemake, after --")] = None,
) -> None:
    """Run the workflow to its end, one run at a time; continue where an earlier run stopped, however it stopped."""
    from dpfl.control.run import run as run_workflow

    overlay = ["--configfile", str(config)] if config else []
    arguments = ["--profile", f"workflow/profiles/{profile}", *overlay, "--config", f"scale={scale}", *(more or [])]
    named = {
        "CONFIG": config,
        "PROFILE": profile if profile != "default" else None,
        "PARANOID": 1 if paranoid else None,
    }
    again = shlex.join(["make", scale, *(f"{name}={value}" for name, value in named.items() if value)])
    raise typer.Exit(run_workflow(arguments, again=again, paranoid=paranoid))


@app.command(epilog="Example: dpfl status --config results/demo/config.yaml")
def status(config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Show what is done of each stage; which sweeps run, wait, failed or can be resumed; and the time left."""
    from dpfl.control.status import lines

    for line in lines(configuration.read(config)):
        print(line)
