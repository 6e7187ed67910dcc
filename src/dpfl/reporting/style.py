"""Style of all figures: colour-blind-safe colours, light and dark, quiet axes, the same bytes from the same data."""

from __future__ import annotations

import hashlib
import itertools
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import matplotlib.pyplot as plt
from matplotlib.container import ErrorbarContainer
from matplotlib.text import Text
from matplotlib.ticker import LogLocator, NullLocator
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
WHITE, SOFT, GREY, PALE, BROWN = "#FFFFFF", "#444444", "#777777", "#BBBBBB", "#8C510A"
"""The ground, the words of a footer, lines in the background, a region without a finding, a fifth of a kind."""
ON_LIGHT, ON_DARK = "#010101", "#FEFEFE"
"""Words on a coloured tile: the tile keeps its colour in a dark picture, and so do they."""
COLOURS = (BLUE, RED, GREEN, ORANGE, PURPLE, SKY, BLACK)
DARK = {
    BLACK: "#E6E7E9", WHITE: "#16181B", SOFT: "#A9ADB4", GREY: "#9AA0A8", PALE: "#5B6068", BROWN: "#C98B45",
    BLUE: "#4A9FE0", SKY: "#A5DCFF", GREEN: "#2BC79B", RED: "#F2762E", ORANGE: "#F5B73D", PURPLE: "#D79BBD",
}  # fmt: skip
"""Colour in a dark picture by the one in a light picture; a colour that is not here is the same in both."""
WIDTH = 9.0
"""Inches of a wide figure."""
SMALL = 8.6
"""Points of the smallest letters: 11 pixels in a window of 880, where a wide figure has 838."""
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
    size = (width or min(3.6 * columns + 0.6, WIDTH), height * rows)
    return plt.subplots(rows, columns, figsize=size, layout="constrained", **subplots)


_FOOTER_LETTER = 0.069
"""Inches of a letter of a footer, on average."""


def footer(figure: Figure, text: str) -> None:
    """Write small lines below the axes, as wide as the figure: what the bars mean, how many runs, which stand-in."""
    figure.supxlabel(_wrapped(figure, text, _FOOTER_LETTER), fontsize=SMALL, color=SOFT, x=0.01, ha="left")


_MESSAGE_LETTER = 0.092
"""Inches of a letter of a message, on average."""
_MESSAGE_LINE = 0.2
"""Inches of a line of a message; the figure becomes as much higher."""
_MESSAGE = {"size": 11, "weight": "bold"}


def headline(figure: Figure, message: str) -> None:
    """Write what a figure shows above everything else in it, as the title of its legend if it has one; "" writes none.

    The legend moves to the left, where the message begins.
    """
    text = _wrapped(figure, message, _MESSAGE_LETTER)
    figure.set_figheight(figure.get_figheight() + _MESSAGE_LINE * len(text.splitlines()))
    if text and figure.legends:
        legend = figure.legends[0]
        legend.set_loc("outside upper left")
        legend.set_alignment("left")
        legend.set_title(text, prop=_MESSAGE)
    elif text:
        figure.suptitle(text, x=0.01, ha="left", **_MESSAGE)


_KEPT = re.compile(r" (?=[=<%±])|(?<=[=<±]) ")
"""Spaces at which no line ends."""


def _wrapped(figure: Figure, text: str, letter_inches: float) -> str:
    """Return a text in lines as wide as the figure; a number keeps its name and its per cent sign beside it."""
    width = int(figure.get_figwidth() / letter_inches)
    text = _KEPT.sub("\N{NO-BREAK SPACE}", with_greek_symbols(text))
    lines = text.splitlines()
    return "\n".join(part for line in lines for part in textwrap.wrap(line, width, break_on_hyphens=False))


def ticks_at(axis: Axes, values: Iterable[float]) -> None:
    """Label a logarithmic horizontal axis with plain numbers at these values, and nowhere else.

    A tick that is within a tenth of the next has no number: the two would overlap.
    """
    ticks = sorted(set(values))
    is_apart = [following > 1.1 * tick for tick, following in itertools.pairwise(ticks)] + [True] * bool(ticks)
    names = [with_greek_symbols(f"{tick:g}") if apart else "" for tick, apart in zip(ticks, is_apart, strict=True)]
    axis.set_xticks(ticks, names)
    axis.xaxis.set_minor_locator(NullLocator())


def plain_heights(axis: Axes) -> None:
    """Label a logarithmic vertical axis of less than three decades with plain numbers at 1, 2 and 5 of each."""
    low, high = axis.get_ylim()
    if high < 1000 * low:
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter(lambda value, _: with_greek_symbols(f"{value:g}"))
        axis.yaxis.set_minor_locator(NullLocator())


def name_lines(axis: Axes, x: float, names: Iterable[tuple[float, str, str]]) -> None:
    """Write the names of lines right of x, each at its height, apart from each other.

    `names`: (height, name, colour) of each line. The limits and the scale of the axis have to be the final ones.
    """
    scale = axis.yaxis.get_transform()
    low, high = (float(scale.transform(end)) for end in axis.get_ylim())
    panel_inches = axis.get_position().height * axis.figure.get_figheight()
    line, last, above = 1.2 * SMALL / 72 / panel_inches, -1.0, 0.0
    for height, name, colour in sorted(names):
        half = line * (1 + name.count("\n")) / 2
        last = max((float(scale.transform(height)) - low) / (high - low), last + above + half)
        above = half
        place = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "va": "center"}
        axis.annotate(name, (x, last), (8, 0), color=colour, fontsize=SMALL, annotation_clip=False, **place)


def legend(figure: Figure, axes: Iterable[Axes], ncols: int) -> None:
    """Write one legend of several panels above them: each name once, what was measured (with bars) first."""
    handles: dict[str, Any] = {}
    for axis in axes:
        handles |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    names = sorted(handles, key=lambda name: not isinstance(handles[name], ErrorbarContainer))
    if names:
        figure.legend([handles[name] for name in names], names, loc="outside upper center", ncols=ncols)


def mark_not_run(axis: Axes) -> None:
    """Write into a panel that its runs are not part of the configuration."""
    axis.text(0.04, 0.05, "not run", transform=axis.transAxes, fontsize=SMALL, color=BLACK)


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
    """Write the figure; the same data give the same bytes (no date, fixed identifiers).

    An SVG file is light or dark, as the reader's browser prefers; the other formats are light.
    """
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}[format]
    figure.savefig(path, format=format, metadata=metadata, dpi=180)
    if format == "svg":
        svg = _with_short_numbers(path.read_text(encoding="utf-8"))
        path.write_text(_with_dark_colours(_with_steady_names(svg)), encoding="utf-8")
    if format == "png":  # a palette of 256 colours takes a third of the room, and no eye sees it
        with Image.open(path) as drawn:
            palette = drawn.convert("RGB").quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        palette.save(path, format="png", optimize=True)


PREFERS_DARK = "@media (prefers-color-scheme: dark)"
_STYLE_END = "</style>"


def _with_dark_colours(svg: str) -> str:
    """Return a picture of matplotlib with a rule for each colour that is another one in a dark picture.

    What has no colour of its own, as black words, takes that of the picture.
    """
    rules = [f"svg{{fill:{DARK[BLACK]}}}"]
    for light, dark in DARK.items():
        for part in ("fill", "stroke"):
            if (old := f"{part}: {light.lower()}") in svg:
                rules.append(f'[style*="{old}"]{{{part}:{dark}!important}}')
    return svg.replace(_STYLE_END, f"{PREFERS_DARK}{{{''.join(rules)}}}{_STYLE_END}", 1)


_COORDINATES = re.compile(r' (?:d|x|y|width|height)="[^"]*"|translate\([^)]*\)')
_LONG_NUMBER = re.compile(r"\d+\.\d{3,}")


def _with_short_numbers(svg: str) -> str:
    """Return a picture without indents, its coordinates rounded to hundredths of a point, which no eye sees."""
    svg = re.sub(r"\n\s+", "\n", svg)
    return _COORDINATES.sub(lambda found: _LONG_NUMBER.sub(lambda each: f"{float(each[0]):.2f}", found[0]), svg)


_NAMED = re.compile(r'<(?:clipPath id="(p[0-9a-f]{10})">\s*<rect|path id="(m[0-9a-f]{10})") ([^>]*)>')
_NAME = re.compile(r"\b[mp][0-9a-f]{10}\b")


def _with_steady_names(svg: str) -> str:
    """Return a picture whose clips and markers are named after what they are to hundredths of a point.

    matplotlib names them after all digits, and the last ones of a layout differ between two drawings of one CSV.
    """
    names = {
        clip or marker: (clip or marker)[0] + hashlib.sha256(content.encode()).hexdigest()[:10]
        for clip, marker, content in _NAMED.findall(svg)
    }
    return _NAME.sub(lambda found: names.get(found[0], found[0]), svg)
