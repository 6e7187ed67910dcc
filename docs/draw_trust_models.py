"""Draw docs/trust_models.svg: what each party sees in clear under each trust model, and the noise that this costs.

Noise: one pass over 6000 records in rounds of 20, which 5 silos of 4 records or 20 clients of one record send, at
epsilon 1 and delta 1e-5 for replace_one: noise_std of a round's mean gradient over the clip norm, by the accountants.
"""

from __future__ import annotations

import math
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from dpfl.accounting import shuffling
from dpfl.accounting.contraction.federated import FederatedRelease, release_sigma, round_sigma
from dpfl.convex.logistic_task import CURVATURE, LIPSCHITZ
from dpfl.reporting import style

EPSILON, DELTA = 1.0, 1e-5
RECORDS, ROUND, SILOS, DIMENSION = 6000, 20, 5, 10
CONVEX = {
    "eta": 1.0,
    "lipschitz": LIPSCHITZ,
    "radius": 1.0,
    "smoothness": CURVATURE + 0.03,
    "strong_convexity": 0.03,
}
"""Regularised logistic regression on records of norm at most 1, for the last model only."""
STAGES = (
    "a record", "sum of\na silo", "messages\nin order", "messages\nshuffled",
    "sum of\na step", "model of\na round", "last\nmodel",
)  # fmt: skip
CLEAR, INSIDE, OPEN = "clear", "inside", "open"
SEEN = {
    "local: nobody trusted": (OPEN,) * 7,
    "silo (ISRL)": (CLEAR, *(OPEN,) * 6),
    "shuffler": (CLEAR, CLEAR, INSIDE, *(OPEN,) * 4),
    "aggregator, every step": (*(CLEAR,) * 4, *(OPEN,) * 3),
    "aggregator, round ends": (*(CLEAR,) * 4, INSIDE, OPEN, OPEN),
    "aggregator, last model": (*(CLEAR,) * 4, INSIDE, INSIDE, OPEN),
}
STATES = {
    CLEAR: ("#D55E00", "", "no noise: holder or trusted party only"),
    INSIDE: ("#F0E442", "//", "some noise: trusted party only"),
    OPEN: ("#CFE8F7", "", "private: anyone may see it"),
}
"""Colour, hatch and meaning; in grey the two light ones differ by their hatch."""


def noise() -> tuple[float, ...]:
    """Return the noise_std of a round's mean gradient over the clip norm, in the order of SEEN."""
    budget = {"epsilon": EPSILON, "delta": DELTA}
    message = shuffling.local_noise_multiplier(**budget, rounds=1)
    mixed = shuffling.noise_multiplier(
        target_epsilon=EPSILON, delta=DELTA, clients=ROUND, records=1, rounds=1, dimension=DIMENSION
    )
    summed = round_sigma(EPSILON, DELTA, m=ROUND, lipschitz=1.0) / math.sqrt(ROUND)
    release = FederatedRelease(n=RECORDS, m=ROUND, first_stop=RECORDS // ROUND, **CONVEX)
    last = release_sigma(EPSILON, DELTA, release) / math.sqrt(ROUND)
    return (
        message / math.sqrt(ROUND),
        message * math.sqrt(SILOS) / ROUND,
        mixed / math.sqrt(ROUND),
        summed,
        summed,
        last,
    )


def draw_seen(axis: Axes) -> None:
    """Draw who may see what: a row a trust model, a column a stage from a record to the last model."""
    for row, stages in enumerate(SEEN.values()):
        for column, state in enumerate(stages):
            colour, hatch, _ = STATES[state]
            axis.bar(column, 0.86, 0.9, row - 0.43, color=colour, hatch=hatch, edgecolor=style.BLACK, linewidth=0.6)
    axis.set_xticks(range(len(STAGES)), STAGES, fontsize=8)
    axis.set_yticks(range(len(SEEN)), SEEN)
    axis.xaxis.tick_top()
    axis.tick_params(length=0)
    axis.set(xlim=(-0.5, len(STAGES) - 0.5), ylim=(len(SEEN) - 0.5, -0.5))
    axis.spines[:].set_visible(False)
    axis.grid(visible=False)


def draw_noise(axis: Axes, deviations: tuple[float, ...]) -> None:
    """Draw the noise of each trust model as a point on a logarithmic axis, with its number."""
    rows = range(len(deviations))
    axis.plot(deviations, rows, color=style.BLUE, marker="o", markersize=6, linestyle="")
    for row, deviation in zip(rows, deviations, strict=True):
        axis.annotate(f"{deviation:.3g}", (deviation, row), xytext=(8, -3), textcoords="offset points")
    axis.set(xscale="log", xlim=(0.1, 6), ylim=(len(SEEN) - 0.5, -0.5), xlabel="noise_std / C of a round's mean")
    style.ticks_at(axis, (0.1, 0.3, 1, 3))
    axis.set_yticks(rows, [""] * len(deviations))
    axis.grid(visible=False, axis="y")


def main() -> None:
    """Write the picture beside this file; print the noise of each trust model."""
    deviations = noise()
    with style.apply_style():
        figure, (left, right) = style.panels(2, width=10.5, height=3.9, width_ratios=[2.2, 1])
        draw_seen(left)
        draw_noise(right, deviations)
        keys = [
            Patch(facecolor=colour, hatch=hatch, edgecolor=style.BLACK, label=meaning)
            for colour, hatch, meaning in STATES.values()
        ]
        figure.legend(handles=keys, loc="outside lower left", ncols=3)
        style.save(figure, Path(__file__).with_name("trust_models.svg"), "svg")
    for name, deviation in zip(SEEN, deviations, strict=True):
        print(f"| {name} | {deviation:.3g} |")


if __name__ == "__main__":
    main()
