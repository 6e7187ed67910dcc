"""Draw learning curves: accuracy by round (or epoch) of each cell of a table, and write them for TensorBoard."""

from __future__ import annotations

import math
import re
import textwrap
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.ticker import MaxNLocator

from dpfl.errors import InputError
from dpfl.files import replacing
from dpfl.reporting import style
from dpfl.reporting.display_names import count_range

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".pdf", ".png")
_MOST_CELLS = 84
_COLUMNS = 6
_TITLE_LETTERS = 34
_NO_NAME = re.compile(r"[^A-Za-z0-9_.=-]+")


def draw(data: pd.DataFrame, title: str) -> Figure:
    """Return a figure with a panel a cell (dpfl.results.curves): each run thin, their mean over the seeds thick.

    Raises InputError for more cells than a page holds.
    """
    cells = list(dict.fromkeys(data["cell"]))
    if len(cells) > _MOST_CELLS:
        raise InputError(f"{len(cells)} cells are more than a page holds ({_MOST_CELLS}): choose some with --where")
    columns = min(_COLUMNS, len(cells))
    rows = math.ceil(len(cells) / columns)
    figure, axes = style.panels(columns, rows, height=2.0 if rows > 1 else 3.0, sharey=True, squeeze=False)
    for axis in axes.flat[len(cells) :]:
        axis.set_axis_off()
    for axis, cell in zip(axes.flat, cells, strict=False):
        own = data[data["cell"] == cell]
        for _, run in own.groupby("origin"):
            axis.plot(run["step"], run["accuracy_pct"], color=style.SKY, linestyle="-", linewidth=0.6)
        mean = own.groupby("step")["accuracy_pct"].mean()
        axis.plot(mean.index, mean, color=style.BLUE, linestyle="-", marker="o" if len(mean) < 3 else None)
        axis.set_title(textwrap.fill(cell, _TITLE_LETTERS), fontsize=6.5)
        axis.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axis.set_xlabel(own["unit"].iloc[0])
    for axis in axes[:, 0]:
        axis.set_ylabel("accuracy, %")
    count = count_range(data.groupby("cell")["origin"].nunique())
    style.footer(figure, f"{title}. Thin: each run; thick: their mean. Runs a cell: {count}.")
    return figure


def write(data: pd.DataFrame, title: str, path: Path) -> None:
    """Draw learning curves to an .svg, .pdf or .png file; raises InputError for another ending."""
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path} ends with {path.suffix or 'nothing'}: choose {', '.join(SUFFIXES)}")
    with style.apply_style():
        figure = draw(data, title)
        style.use_greek_symbols(figure)
        with replacing(path) as temporary:
            style.save(figure, temporary, path.suffix[1:])


def write_events(data: pd.DataFrame, folder: Path) -> int:
    """Write learning curves as TensorBoard's event files, a folder for each run; return the number of runs.

    Raises InputError if TensorBoard's writer is not installed, or if the folder has files already.
    """
    if find_spec("tensorboard") is None:
        raise InputError("TensorBoard's writer is not installed: pip install tensorboard, or leave out --tensorboard")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is there already: name a new folder, or events of two runs would mix")
    from torch.utils.tensorboard import SummaryWriter

    groups = data.groupby(["cell", "seed", "origin"], sort=False)
    taken: Counter[str] = Counter()
    for (cell, seed, _), run in groups:
        name = _NO_NAME.sub("_", f"{cell}_seed{seed}")
        taken[name] += 1
        with SummaryWriter(str(folder / (name if taken[name] == 1 else f"{name}_{taken[name]}"))) as writer:
            for step, accuracy in zip(run["step"], run["accuracy_pct"], strict=True):
                writer.add_scalar("accuracy_pct", accuracy, step)
    return groups.ngroups
