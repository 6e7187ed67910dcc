"""The figures stage: data first, as CSV; then the picture, drawn from that CSV alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from dpfl.catalog import module
from dpfl.files import replacing
from dpfl.reporting import captions, style
from dpfl.reporting.results import NotRunError, Results, not_run_table, read_csv, refuse_not_run, write_csv

FORMATS = ("svg", "pdf", "png")


@dataclass(frozen=True)
class FigureRecipe:
    """How a figure is made. `data` returns one tidy table (columns named with units); `draw` reads nothing else.

    The reader's caption is in the paper's paper.yaml; `draw` ends with style.footer where bars, runs or stand-ins have
    to be named. `draw` never gets an empty table, and raises NotRunError where what it shows was not run.
    """

    data: Callable[[Results], pd.DataFrame]
    draw: Callable[[pd.DataFrame], Figure]


def make(paper: str, name: str, results: Results, folder: Path) -> list[Path]:
    """Write <folder>/<paper>_<name>.csv, the picture as .svg, .pdf and .png and the caption as .rst; return the paths,
    the CSV first."""
    recipe: FigureRecipe = module(paper, "figures").FIGURES[name]
    csv = folder / f"{paper}_{name}.csv"
    try:
        data = recipe.data(results)
    except NotRunError as reason:
        data = not_run_table(reason)
    with replacing(csv) as temporary:
        write_csv(data, temporary)
    paths = [csv, captions.write("figures", paper, name, csv)]
    with style.apply_style():
        try:
            figure = recipe.draw(_refuse_empty(refuse_not_run(read_csv(csv))))
        except NotRunError as reason:
            figure = style.text_figure(str(reason))
        for format in FORMATS:
            path = csv.with_suffix(f".{format}")
            with replacing(path) as temporary:
                style.save(figure, temporary, format)
            paths.append(path)
    plt.close(figure)
    return paths


def _refuse_empty(data: pd.DataFrame) -> pd.DataFrame:
    """Return the data of a figure; raises NotRunError where there are none."""
    if data.empty:
        raise NotRunError("no run of this figure in this configuration")
    return data
