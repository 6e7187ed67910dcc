"""The figure of what honesty costs: under the same noise, what each sampler's epsilon is and what accuracy it gives."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpfl.accounting.samplers import Sampling
from dpfl.papers.bhaskar2025.figure_parts import runs_text
from dpfl.papers.bhaskar2025.sampling_study import EVERY_SPLIT, SAMPLERS
from dpfl.reporting import style
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
        left.set_title(f"{data_name(ran_on)}\n{model_name(model)}, ε = {epsilon:g} claimed", fontsize=9)
        _differences(right, group)
        right.set_title("accuracy at this noise", fontsize=9)
    axes[0][1].legend(fontsize=7.5, loc="best")
    axes[-1][0].set_xlabel("ε: from what is refuted to what is proven")
    axes[-1][1].set_xlabel("points over shuffled epochs")
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
        least, most = (f"{end:#.3g}".rstrip(".") for end in ends)
        proven = "not proven" if math.isinf(ends[1]) else f"proven {most}"
        words = f"at least {least}, {proven}" if ends[1] > 1.05 * ends[0] else proven
        beyond = ends[0] > claimed
        at, side = (
            (min(ends[1], 2 * ends[0]) if math.isinf(ends[1]) else ends[1], "right") if beyond else (ends[0], "left")
        )
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
        axis.annotate(
            words, (at, height), (0, 8), textcoords="offset points", ha=side, color=colour, fontsize=8, bbox=box
        )
    axis.set_yticks(range(len(SAMPLERS)), labels=list(reversed(SAMPLERS.values())))
    axis.set_ylim(-0.5, len(SAMPLERS) - 0.3)
    axis.set_xscale("log")
    finite = cells[["epsilon", "epsilon_refuted", "epsilon_proven"]].to_numpy(float)
    finite = finite[(finite > 0) & (finite < math.inf)]
    style.ticks_at(axis, [tick for tick in (0.5, 1, 2, 5, 10, 20, 50) if finite.min() / 2 <= tick <= 2 * finite.max()])


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


def _footer(cells: pd.DataFrame) -> str:
    """Say what the marks and bars mean, and on what data they are."""
    stand_in = " Stand-in data." if cells["stand_in"].any() else ""
    bars = "bars: 95 % interval of the difference" if cells["runs"].max() > 1 else "no bars for one run"
    return (
        f"ε against an observer of every step, one record replaced by nothing, δ = {cells['delta'].iloc[0]:g}; dashed: "
        f"the claim. Accuracy: {runs_text(cells)} a sampler on the same seeds; {bars}; 0: shuffled epochs.{stand_in}"
    )
