"""The figure of what provable batches cost: under the same noise, each sampler's epsilon and accuracy."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpfl.accounting.samplers import Sampling
from dpfl.papers.bhaskar2025.figure_parts import runs_text
from dpfl.papers.bhaskar2025.sampling_study import EVERY_SPLIT, SAMPLERS
from dpfl.reporting import style
from dpfl.reporting.bounds import at_least, at_most
from dpfl.reporting.notes import data_name, model_name

_LOOKS = {
    Sampling.SHUFFLED.value: (style.RED, "s"),
    Sampling.POISSON.value: (style.BLUE, "o"),
    Sampling.BALLS_IN_BINS.value: (style.GREEN, "^"),
}


def draw_sampling(cells: pd.DataFrame) -> Figure:
    """Draw one row per dataset, model and budget: what is known of epsilon, and accuracy over shuffled epochs."""
    rows = list(cells.groupby(["ran_on", "model", "epsilon"], sort=False))
    figure, axes = style.panels(2, len(rows), width=9, height=2.5, squeeze=False, sharex="col")
    for (left, right), ((ran_on, model, epsilon), group) in zip(axes, rows, strict=True):
        _epsilons(left, group)
        low, high = _limits(cells)
        style.ticks_at(left, [tick for tick in (0.5, 1, 2, 5, 10, 20, 50) if low <= tick <= high])
        left.set_title(f"{data_name(ran_on)}\n{model_name(model)}, ε = {epsilon:g} claimed", fontsize=9)
        _differences(right, group)
        right.set_title("accuracy at this noise", fontsize=9)
    axes[0][0].set_xlim(*_limits(cells))
    figure.legend(*axes[0][1].get_legend_handles_labels(), loc="outside upper right", ncols=2, fontsize=8)
    axes[-1][0].set_xlabel("ε: from what is exceeded to what is proven")
    axes[-1][1].set_xlabel("accuracy less that of shuffled epochs (points)")
    style.footer(figure, _footer(cells))
    return figure


def _epsilons(axis: Axes, cells: pd.DataFrame) -> None:
    """Draw for each sampler the span in which its epsilon lies, and the claim."""
    claimed = cells["epsilon"].iloc[0]
    axis.axvline(claimed, color=style.BLACK, linestyle="--", linewidth=1)
    for height, sampling in enumerate(reversed(SAMPLERS)):
        row, (colour, marker) = cells[cells["sampling"] == sampling].iloc[0], _LOOKS[sampling]
        ends = [row["epsilon_refuted"], row["epsilon_proven"]]
        axis.plot(ends, [height] * 2, color=colour, marker=marker, linestyle="-", linewidth=3)
        proven = "not proven" if math.isinf(ends[1]) else f"proven {at_most(ends[1])}"
        words = f"at least {at_least(ends[0])}, {proven}" if ends[1] > 1.05 * ends[0] else proven
        # beside the claim, never across it
        far = claimed < ends[0] and 4 * claimed < ends[1] < math.inf
        at, side = (ends[1], "right") if far else (ends[0], "left" if ends[0] > claimed else "right")
        axis.annotate(words, (at, height), (0, 8), textcoords="offset points", ha=side, color=colour, fontsize=8)
    axis.set_yticks(range(len(SAMPLERS)), labels=list(reversed(SAMPLERS.values())))
    axis.set_ylim(-0.5, len(SAMPLERS) - 0.3)
    axis.set_xscale("log")


def _limits(cells: pd.DataFrame) -> tuple[float, float]:
    """Return the ends of the axis of epsilons: left of the least there is room for its name."""
    finite = cells[["epsilon", "epsilon_refuted", "epsilon_proven"]].to_numpy(float)
    finite = finite[(finite > 0) & (finite < math.inf)]
    return finite.min() / 3, 1.3 * finite.max()


def _differences(axis: Axes, cells: pd.DataFrame) -> None:
    """Draw the paired differences to shuffled epochs, by split and over all splits, with their intervals."""
    splits = list(dict.fromkeys(cells["split"]))[::-1]
    for shift, sampling in ((0.13, Sampling.POISSON.value), (-0.13, Sampling.BALLS_IN_BINS.value)):
        line, (colour, marker) = cells[cells["sampling"] == sampling], _LOOKS[sampling]
        heights = [splits.index(split) + shift for split in line["split"]]
        half = line["over_shuffled_interval_pct"]
        look = {"color": colour, "marker": marker, "linestyle": "none", "label": SAMPLERS[sampling]}
        axis.errorbar(line["over_shuffled_pct"], heights, xerr=half, **look)
    axis.axvline(0, color=_LOOKS[Sampling.SHUFFLED.value][0], linewidth=1.2)
    axis.set_yticks(range(len(splits)), labels=["mean" if split == EVERY_SPLIT else split for split in splits])
    axis.set_ylabel("(E, R)")


def _beside_zero(cells: pd.DataFrame) -> str:
    """Say how many of the intervals that are drawn leave out 0."""
    compared = cells[(cells["sampling"] != Sampling.SHUFFLED.value) & cells["over_shuffled_interval_pct"].notna()]
    without = compared["over_shuffled_pct"].abs() > compared["over_shuffled_interval_pct"]
    return f"each on its own; {int(without.sum())} of {len(compared)} leave out 0"


def _footer(cells: pd.DataFrame) -> str:
    """Say what the marks and bars mean, and on what data they are."""
    stand_in = " Stand-in data." if cells["stand_in"].any() else ""
    bars = (
        f"bars: 95 % interval of the difference, {_beside_zero(cells)}"
        if cells["runs"].max() > 1
        else "no bars for one run"
    )
    return (
        f"ε against an observer of every step, one record replaced by nothing, δ = {cells['delta'].iloc[0]:g}; dashed: "
        f"the claim. Accuracy: {runs_text(cells)} a sampler on the same seeds; {bars}; 0: shuffled epochs.{stand_in}"
    )
