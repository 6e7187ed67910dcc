"""Draw docs/relations.svg: how far a clipped sum moves from a data set to its neighbour, for each relation.

The gradients are drawn, clipped by the rule that trains, and summed head to tail; the distances are measured.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from dpfl.accounting.neighbouring import MOVES, Neighbouring
from dpfl.mechanisms import clip_factors
from dpfl.randomness import generator
from dpfl.reporting import style

CLIP_NORM = 1.0
RECORDS, SEED = 5, 3
TITLES = {
    Neighbouring.ZERO_OUT: "zero_out: the record adds 0\nn stays {n}, n is public",
    Neighbouring.ADD_OR_REMOVE: "add_or_remove: the record is gone\nn goes from {n} to {fewer}, n is private",
    Neighbouring.REPLACE_ONE: "replace_one: another record\nn stays {n}, n is public",
}
Array = NDArray[np.float64]


def clipped() -> Array:
    """Return gradients of `RECORDS` records, clipped, the last one at full length upwards; shape (records, 2)."""
    gradients = generator(SEED, "noise").normal([1.4, 0.0], 0.8, size=(RECORDS, 2))
    gradients[-1] = [0.0, 3.0]
    return gradients * clip_factors(np.linalg.norm(gradients, axis=1), CLIP_NORM)[:, None]


def neighbour(relation: Neighbouring, vectors: Array) -> Array:
    """Return what the neighbouring data set adds: the worst case of the relation for the last record."""
    if relation is Neighbouring.ADD_OR_REMOVE:
        return vectors[:-1]
    last = -vectors[-1:] if relation is Neighbouring.REPLACE_ONE else np.zeros((1, 2))
    return np.concatenate([vectors[:-1], last])


def draw_chain(axis: Axes, vectors: Array, colour: str, line: str) -> Array:
    """Draw the vectors head to tail, the last one of RECORDS in colour; return their sum."""
    ends = np.concatenate([np.zeros((1, 2)), np.cumsum(vectors, axis=0)])
    for place, (start, end) in enumerate(itertools.pairwise(ends)):
        own = place == RECORDS - 1
        drawn = {"color": colour, "linestyle": line, "linewidth": 2.0}
        if not own:
            drawn = {"color": "#777777", "linestyle": "-", "linewidth": 1.2}
        if np.any(start != end):
            axis.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, **drawn})
    return ends[-1]


def draw_relation(axis: Axes, relation: Neighbouring) -> None:
    """Draw both data sets' sums and the distance between them. Raises ValueError where it is not the code's own."""
    vectors = clipped()
    other = neighbour(relation, vectors)
    first = draw_chain(axis, vectors, style.BLUE, "-")
    second = draw_chain(axis, other, style.RED, "--")
    moved = float(np.linalg.norm(first - second))
    if not np.isclose(moved, MOVES[relation] * CLIP_NORM):
        raise ValueError(f"{relation}: the sum moves by {moved}, dpfl.accounting.neighbouring says {MOVES[relation]} C")
    axis.plot(*first, color=style.BLUE, marker="o", markersize=9, linestyle="", label="sum of the data set")
    axis.plot(*second, color=style.RED, marker="s", markersize=8, linestyle="", label="sum of its neighbour")
    side = max(first[0], second[0]) + 0.32
    axis.annotate("", (side, first[1]), (side, second[1]), arrowprops={"arrowstyle": "<->", "color": style.BLACK})
    axis.text(side + 0.1, (first[1] + second[1]) / 2, f"{moved:.0f} C", va="center", fontsize=12)
    axis.set_title(TITLES[relation].format(n=len(vectors), fewer=len(vectors) - 1), fontsize=9)
    axis.set(xlim=(-0.2, 3.7), ylim=(-1.6, 1.0), aspect="equal")
    axis.set_axis_off()


def main() -> None:
    """Write the picture beside this file; print how far each sum moves."""
    with style.apply_style():
        figure, axes = style.panels(3, width=10.5, height=3.1)
        figure.get_layout_engine().set(h_pad=0.12)
        for axis, relation in zip(axes, TITLES, strict=True):
            draw_relation(axis, relation)
            print(f"{relation.value}: {MOVES[relation]:g} C")
        axes[0].plot([], [], color="#777777", linestyle="-", label="clipped gradients of the others")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
        style.save(figure, Path(__file__).with_name("relations.svg"), "svg")


if __name__ == "__main__":
    main()
