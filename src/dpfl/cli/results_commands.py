"""Ask about results that are there: compare two of them, draw learning curves. Nothing is trained."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from dpfl.cli.app import DAILY, app
from dpfl.errors import InputError

_SHOWN = 20


@app.command(epilog="Example: dpfl compare results/demo other/results/demo", rich_help_panel=DAILY)
def compare(
    first: Annotated[
        str, typer.Argument(help="scale, results folder, crate, a configuration and its runs, or runs of dpfl fedavg")
    ],
    second: Annotated[str, typer.Argument(help="what is compared with it, of the same kinds")],
    metric: Annotated[str | None, typer.Option("--metric", help="as test_loss; else one for each experiment")] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="write every cell to this file")] = None,
) -> None:
    """Compare two results cell by cell: which differ, by how much, and whether by more than chance.

    Cells are matched by their settings and compared seed by seed. Two results of the same laws have a cell "outside
    chance" in at most 5 % of comparisons, whatever the number of cells. It takes three seeds to judge a cell, and a
    change of many steps of its metric (of an accuracy: 100 % / test records). Exits with 1 if a cell differs by more
    than chance. Runs of dpfl fedavg are named by a folder that has their folders.
    """
    from dpfl.provenance.trace import require_own
    from dpfl.reporting.comparison import FEWEST_SEEDS, Difference
    from dpfl.reporting.results import write_table
    from dpfl.results import compare as compared

    if csv:
        if not csv.name.endswith((".csv", ".csv.gz")):
            raise InputError(f"--csv {csv} must end in .csv or .csv.gz")
        require_own(csv, "--csv")
    cells = compared(first, second, metric)
    if csv:
        write_table(cells, csv)
    for where, names in cells.attrs["compared"].items():
        print(f"{where}: cells are matched without {', '.join(names)}, which differs in all runs")
    outside = cells[cells["verdict"].isin([Difference.OUTSIDE, Difference.NO_NUMBER])]
    for row in (cells if len(cells) <= _SHOWN else outside.sort_values("holm_p_value").head(_SHOWN)).to_dict("records"):
        print(f"{row['paper']} {row['experiment']}, {row['cell']}: {_change(row)}")
    if len(outside) > _SHOWN:
        print(f"... and {len(outside) - _SHOWN} more that differ (--csv has all)")
    counts = cells["verdict"].value_counts()
    print(
        f"{len(cells)} cell{'s' if len(cells) > 1 else ''}: "
        + ", ".join(f"{counts[each]} {each}" for each in Difference if each in counts)
    )
    if (cells[["runs_first", "runs_second"]].min(axis="columns").between(1, FEWEST_SEEDS - 1)).any():
        print(f"A cell is judged only if both have {FEWEST_SEEDS} runs of it or more.")
    if len(outside):
        raise typer.Exit(1)


def _change(row: Mapping[str, Any]) -> str:
    """Return what has become of a cell: the verdict, and means, difference and runs if two sources differ in it."""
    from dpfl.reporting.comparison import Difference

    if row["verdict"] == Difference.IDENTICAL or not (row["runs_first"] and row["runs_second"]):
        return row["verdict"]
    judged = "" if math.isnan(row["p_value"]) else f" ± {row['interval']:.2g}, p {row['holm_p_value']:.2g}"
    return (
        f"{row['metric']} {row['mean_first']:.6g} -> {row['mean_second']:.6g} ({row['difference']:+.3g}{judged}; "
        f"{row['runs_first']} and {row['runs_second']} runs): {row['verdict']}"
    )


@app.command(
    epilog="Example: dpfl curves bhaskar2025 2 --where model=scatter_linear --results demo", rich_help_panel=DAILY
)
def curves(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="PAPER TABLE | FOLDER",
            help="a paper and its table or figure, as bhaskar2025 2; or folders with runs of dpfl fedavg",
        ),
    ],
    where: Annotated[str, typer.Option("--where", help="column=value,...: the rows or runs that are meant")] = "",
    results: Annotated[
        str | None, typer.Option("--results", help="demo, quick, paper, a results folder or a crate; else paper")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="an .svg, .pdf or .png")] = None,
    tensorboard: Annotated[Path | None, typer.Option("--tensorboard", help="write event files to a new folder")] = None,
) -> None:
    """Draw accuracy by round of the runs behind each cell of a table, or of your own runs."""
    from dpfl.provenance.trace import require_own
    from dpfl.reporting.learning_curves import write, write_events
    from dpfl.results import curves as learning_curves
    from dpfl.results import own_curves

    if tensorboard and out:
        raise InputError("--out is for a drawing, and --tensorboard writes none: leave one out")
    if Path(what[0]).is_dir():
        if results:
            raise InputError("--results is for the table of a paper, not for folders of your own runs")
        data, title, name = own_curves(*what, **_conditions(where)), ", ".join(what), Path(what[0]).resolve().name
    elif len(what) == 2:
        paper, table, source = *what, results or "paper"
        data = learning_curves(paper, table, source, **_conditions(where))
        title, name = f"{paper}, {table}, {source}", f"{paper}_{table}"
    else:
        raise InputError(f"{what[0]} is not a folder: name a paper and a table of it, or folders with your own runs")
    if tensorboard:
        print(f"{write_events(data, tensorboard)} runs written to {tensorboard}; tensorboard --logdir shows them")
        return
    path = out or Path(f"{name}_curves.svg")
    require_own(path, "--out")
    write(data, title, path)
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
