"""Figures stage: data first, as CSV; then the picture, drawn from that CSV alone."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from dpfl.catalog import recipe
from dpfl.errors import InputError
from dpfl.files import replacing
from dpfl.reporting import display_names, style
from dpfl.reporting.results import (
    NotRunError,
    Results,
    compute_or_placeholder,
    own_code,
    read_csv,
    refuse_not_run,
    removed_unless_finished,
    write_table,
)

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".rst", ".svg", ".pdf", ".png")


@dataclass(frozen=True)
class FigureRecipe:
    """Recipe of a figure. `data` returns one tidy table (columns named with units); the others read nothing else.

    The reader's caption is in the paper's paper.yaml; `draw` ends with style.footer where bars, runs or stand-ins have
    to be named. `message` returns what the picture shows in a sentence without a full stop, from the numbers that are
    drawn, so that new runs change it; "" if they show nothing yet. Both never get an empty table, but numbers may be
    nan, all of them if every run diverged. They raise NotRunError where what they show was not run.
    """

    data: Callable[[Results], pd.DataFrame]
    draw: Callable[[pd.DataFrame], Figure]
    message: Callable[[pd.DataFrame], str]


def make(paper: str, name: str, results: Results, folder: Path) -> list[Path]:
    """Write <folder>/<paper>_<name>.csv, the picture as .svg, .pdf and .png and the caption as .rst; return the paths,
    the CSV first."""
    with own_code(paper, f"figure {name}"):
        made: FigureRecipe = recipe(paper, "figures", name)
    csv = folder / f"{paper}_{name}.csv"
    data = compute_or_placeholder(made.data, results, paper, f"figure {name}")
    write_table(data, csv)
    with own_code(paper, f"figure {name}"), removed_unless_finished(csv):
        return [csv, *write_pictures(paper, name, csv)]


def write_pictures(paper: str, name: str, csv: Path, suffixes: Collection[str] = SUFFIXES) -> list[Path]:
    """Write the caption and the pictures with these suffixes, drawn from the figure's CSV alone; return their paths."""
    made: FigureRecipe = recipe(paper, "figures", name)
    paths = [display_names.write("figures", paper, name, csv)] if ".rst" in suffixes else []
    with style.apply_style():
        try:
            data = _refuse_empty(refuse_not_run(read_csv(csv)))
            figure, message = made.draw(data), made.message(data)
            if not isinstance(figure, Figure):
                raise InputError(f"{paper}: figure {name}: draw returned a {type(figure).__name__}, no Figure")
            style.headline(figure, message)
        except NotRunError as reason:
            figure = style.text_figure(str(reason))
        style.use_greek_symbols(figure)
        for suffix in (suffix for suffix in SUFFIXES[1:] if suffix in suffixes):
            path = csv.with_suffix(suffix)
            with replacing(path) as temporary:
                style.save(figure, temporary, suffix[1:])
            paths.append(path)
    plt.close(figure)
    return paths


def _refuse_empty(data: pd.DataFrame) -> pd.DataFrame:
    """Return the data of a figure; raises NotRunError if there are none."""
    if data.empty:
        raise NotRunError("no run of this figure in this configuration")
    return data
