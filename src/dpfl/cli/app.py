"""Define the application and the options that commands share."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from dpfl import __version__
from dpfl.errors import InputError

PIPELINE = find_spec("torch") is not None
"""False where the accountants alone are installed (`pip install .`, without its extra `pipeline`)."""
ALONE = "Only the accountants are installed; pip install '.[pipeline]', or make env, brings the commands that train."


DAILY, CHECKING, STAGES = "Every day", "Privacy and checking", "Stages, which the workflow calls"
"""Panels of the help."""


class Commands(TyperGroup):
    """The commands that are installed; one that is not is refused with how to get it. Help leaves the stages out."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help with the commands of the panels that are shown."""
        every, shown = self.commands, (DAILY, CHECKING, *((STAGES,) if STAGES in ctx.meta else ()))
        panels = {name: getattr(command, "rich_help_panel", None) for name, command in every.items()}
        self.commands = {name: every[name] for panel in shown for name in every if panels[name] == panel}
        try:
            super().format_help(ctx, formatter)
        finally:
            self.commands = every

    ran = False
    """True once a command was chosen."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        Commands.ran = True
        return super().invoke(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command by its name; raises InputError where it may be one of the pipeline's, not installed here."""
        command = super().get_command(ctx, cmd_name)
        if command is None and not PIPELINE:
            raise InputError(f"no command {cmd_name!r}. {ALONE}")
        return command


class StageCommand(TyperCommand):
    """A command that writes data or results: no run may be at work in the folder, unless it called the command."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command and keep runs out of the folder meanwhile; raises InputError if one is at work here."""
        from dpfl.pipeline.lock import beside_no_run

        with beside_no_run():
            return super().invoke(ctx)


app = typer.Typer(
    cls=Commands,
    help="Reproduce papers on private federated learning: run the stages, and ask about the results.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    """Print the version and end, before a command is missed."""
    if asked:
        print(f"dpfl {__version__}")
        raise typer.Exit


def _print_stages(ctx: typer.Context, asked: bool) -> None:
    """Print the help of the stages and end."""
    if asked:
        ctx.meta[STAGES] = True
        print(ctx.get_help())
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", help="print the version", is_eager=True, callback=_print_version)
    ] = False,
    _stages: Annotated[
        bool, typer.Option("--stages", help="show the stages too", is_eager=True, callback=_print_stages)
    ] = False,
    directory: Annotated[Path | None, typer.Option("--directory", help="run as if started in this folder")] = None,
) -> None:
    """Define what every command shares."""
    if directory is None:
        return
    if not directory.is_dir():
        raise InputError(f"--directory {directory} is not a folder: name a project's folder, with its config.yaml")
    os.chdir(directory)


ConfigOption = Annotated[Path, typer.Option("--config", help="configuration file")]
PaperOption = Annotated[str, typer.Option("--paper", help="key of the paper, as bhaskar2025")]
DatasetOption = Annotated[str, typer.Option("--dataset", help="key of the dataset, as mnist")]
DEFAULT_CONFIG = Path("config.yaml")
