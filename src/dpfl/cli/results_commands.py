"""Ask about results that are there: compare two of them, draw learning curves. Nothing is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dpfl.cli.app import DAILY, app
from dpfl.errors import InputError
from dpfl.files import replacing

SourceOption = Annotated[str, typer.Option("--results", help="demo, quick, paper, a results folder or a crate")]
_SHOWN = 20


@app.command(epilog="Example: dpfl compare results/demo other/results/demo", rich_help_panel=DAILY)
def compare(
    first: Annotated[str, typer.Argument(help="scale, results folder, crate, or a configuration and its runs")],
    second: Annotated[str, typer.Argument(help="what is compared with it, of the same kinds")],
    metric: Annotated[str | None, typer.Option("--metric", help="as test_loss; else one for each experiment")] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="write every cell to this file")] = None,
) -> None:
    """Compare two results cell by cell: which differ, by how much, and whether by more than chance.

    Cells are matched by their settings and compared seed by seed. Two results of the same laws have a cell "outside
    chance" in at most 5 % of comparisons, whatever the number of cells. It takes three seeds to judge a cell, and a
    change of many steps of its metric (of an accuracy: 100 % / test records). Exits with 1 if a cell differs by more
    than chance.
    """
    from dpfl.reporting.comparison import Difference
    from dpfl.reporting.results import write_csv
    from dpfl.results import compare as compared

    cells = compared(first, second, metric)
    if csv:
        with replacing(csv) as temporary:
            write_csv(cells, temporary)
    for where, names in cells.attrs["compared"].items():
        print(f"{where}: cells are matched without {', '.join(names)}, which differs in all runs")
    outside = cells[cells["verdict"] == Difference.OUTSIDE]
    for row in outside.sort_values("holm_p_value").head(_SHOWN).to_dict("records"):
        print(
            f"{row['paper']} {row['experiment']}, {row['cell']}: {row['metric']} {row['mean_first']:.6g} -> "
            f"{row['mean_second']:.6g} ({row['difference']:+.3g} ± {row['interval']:.2g}, p {row['holm_p_value']:.2g})"
        )
    if len(outside) > _SHOWN:
        print(f"... and {len(outside) - _SHOWN} more (--csv has all)")
    counts = cells["verdict"].value_counts()
    print(f"{len(cells)} cells: " + ", ".join(f"{counts[each]} {each}" for each in Difference if each in counts))
    if len(outside):
        raise typer.Exit(1)


@app.command(
    epilog="Example: dpfl curves bhaskar2025 2 --where model=scatter_linear --results demo", rich_help_panel=DAILY
)
def curves(
    paper: Annotated[str, typer.Argument(help="key of the paper, as bhaskar2025")],
    table: Annotated[str, typer.Argument(help="number or name of a table, or name of a figure")],
    where: Annotated[str, typer.Option("--where", help="column=value,...: rows of the table that are meant")] = "",
    results: SourceOption = "paper",
    out: Annotated[Path | None, typer.Option("--out", help="an .svg, .pdf or .png")] = None,
    tensorboard: Annotated[Path | None, typer.Option("--tensorboard", help="write event files to a new folder")] = None,
) -> None:
    """Draw accuracy by round of the runs behind each cell of a table."""
    from dpfl.reporting.learning_curves import write, write_events
    from dpfl.results import curves as learning_curves

    data = learning_curves(paper, table, results, **_conditions(where))
    if tensorboard:
        print(f"{write_events(data, tensorboard)} runs written to {tensorboard}; tensorboard --logdir shows them")
        return
    path = out or Path(f"{paper}_{table}_curves.svg")
    write(data, f"{paper}, {table}, {results}", path)
    print(f"{data['cell'].nunique()} cells drawn to {path}")


def _conditions(text: str) -> dict[str, Any]:
    """Return the conditions of --where, numbers as numbers; raises InputError for other words."""
    from dpfl.provenance.trace import conditions, value_of

    if not text:
        return {}
    wanted = conditions(text)
    if taken := sorted({"name", "paper", "source"} & wanted.keys()):
        raise InputError(f"--where has {taken[0]}, which no row differs in: name settings, as model=cnn_tanh")
    truths = {"true": True, "false": False}
    values = {column: value_of(value) for column, value in wanted.items()}
    return {column: truths.get(value, value) if isinstance(value, str) else value for column, value in values.items()}
