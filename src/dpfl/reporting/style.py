"""Style of all figures: colour-blind-safe colours, quiet axes, the same bytes from the same data."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import matplotlib.pyplot as plt
from matplotlib.text import Text
from matplotlib.ticker import NullLocator
from PIL import Image

from dpfl.reporting.display_names import with_greek_symbols

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

matplotlib.use("agg")

# Okabe and Ito's palette, readable with every common form of colour blindness; black first for references.
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, RED, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
COLOURS = (BLUE, RED, GREEN, ORANGE, PURPLE, SKY, BLACK)
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (7, 3)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

_SETTINGS = {
    "axes.grid": True,
    "axes.prop_cycle": matplotlib.cycler(color=COLOURS) + matplotlib.cycler(linestyle=DASHES),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "errorbar.capsize": 2.5,
    "figure.dpi": 150,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "lines.markersize": 4,
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "dpfl",
}


def apply_style() -> AbstractContextManager[None]:
    """Return the matplotlib context in which figures are drawn and saved."""
    return plt.rc_context(_SETTINGS)


def panels(
    columns: int = 1, rows: int = 1, *, width: float | None = None, height: float = 3.0, **subplots: Any
) -> tuple[Figure, Any]:
    """Return (figure, axes); width and height in inches, height of one row."""
    size = (width or min(3.6 * columns + 0.6, 11), height * rows)
    return plt.subplots(rows, columns, figsize=size, layout="constrained", **subplots)


_FOOTER_LETTER = 0.064
"""Inches of a letter of a footer, on average."""


def footer(figure: Figure, text: str) -> None:
    """Write small lines below the axes, as wide as the figure: what the bars mean, how many runs, which stand-in."""
    width = int(figure.get_figwidth() / _FOOTER_LETTER)
    lines = text.replace(" %", "\N{NO-BREAK SPACE}%").splitlines()
    text = "\n".join(part for line in lines for part in textwrap.wrap(line, width, break_on_hyphens=False))
    figure.supxlabel(text, fontsize=8, color="#444444", x=0.01, ha="left")


def ticks_at(axis: Axes, values: Iterable[float]) -> None:
    """Label a logarithmic horizontal axis with plain numbers at these values, and nowhere else."""
    ticks = sorted(set(values))
    axis.set_xticks(ticks, [with_greek_symbols(f"{tick:g}") for tick in ticks])
    axis.xaxis.set_minor_locator(NullLocator())


def name_lines(axis: Axes, x: float, names: Iterable[tuple[float, str, str]], size: float = 7.5) -> None:
    """Write the names of lines right of x, each at its height on a logarithmic axis, apart from each other.

    `names`: (height, name, colour) of each line. The limits of the axis have to be the final ones.
    """
    low, high = axis.get_ylim()
    last, room = -math.inf, 0.0073 * size * math.log(high / low)
    for height, name, colour in sorted(names):
        last = max(math.log(height), last + room)
        place = {"textcoords": "offset points", "va": "center", "annotation_clip": False}
        axis.annotate(name, (x, math.exp(last)), (8, 0), color=colour, fontsize=size, **place)


def mark_not_run(axis: Axes) -> None:
    """Write into a panel that its runs are not part of the configuration."""
    axis.text(0.04, 0.05, "not run", transform=axis.transAxes, fontsize=8, color=BLACK)


def use_greek_symbols(figure: Figure) -> None:
    """Write Greek letters and powers as symbols in every text of a figure (`with_greek_symbols`)."""
    for text in figure.findobj(Text):
        if text.get_text():
            text.set_text(with_greek_symbols(text.get_text()))


def text_figure(text: str) -> Figure:
    """Return a picture that only shows `text`: the reason why there is nothing to draw."""
    figure, axis = panels(width=6, height=1.2)
    axis.set_axis_off()
    axis.text(0.5, 0.5, text, ha="center", va="center", wrap=True)
    return figure


def save(figure: Figure, path: Path, format: str) -> None:
    """Write the figure; the same data give the same bytes (no date, fixed identifiers)."""
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}[format]
    figure.savefig(path, format=format, metadata=metadata, dpi=180)
    if format == "png":  # a palette of 256 colours takes a third of the room, and no eye sees it
        with Image.open(path) as drawn:
            palette = drawn.convert("RGB").quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        palette.save(path, format="png", optimize=True)
