"""Draw docs/samplers.svg: the batches that each sampler draws, and the epsilon that they spend.

Left: 12 records, batches of 3, two epochs, drawn by the code that trains. Right: the interval of `guarantee`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from dpfl.accounting import (
    BallsInBins,
    FixedBatches,
    FullBatch,
    Guarantee,
    Poisson,
    ShuffledEpochs,
    WithReplacement,
    guarantee,
)
from dpfl.accounting.samplers import Sampler, Sampling
from dpfl.engine.batches import BatchSampler
from dpfl.randomness import generator
from dpfl.reporting import style
from dpfl.reporting.display_names import at_least, at_most

RUN = {"noise_multiplier": 1.0072, "steps": 1880, "delta": 1e-5}
SAMPLERS: dict[str, tuple[Sampling, Sampler]] = {
    "full batch": (Sampling.FULL, FullBatch()),
    "shuffled epochs": (Sampling.SHUFFLED, ShuffledEpochs(64, 6000)),
    "with replacement": (Sampling.WITH_REPLACEMENT, WithReplacement(64, 6000)),
    "fixed size": (Sampling.FIXED, FixedBatches(64, 6000)),
    "Poisson": (Sampling.POISSON, Poisson(1 / 94)),
    "balls in bins": (Sampling.BALLS_IN_BINS, BallsInBins(94)),
}
RECORDS, BATCH, EPOCHS, SEED = 12, 3, 2, 4


def uses(sampling: Sampling) -> NDArray[np.int64]:
    """Return how often each step uses each record, shape (records, steps)."""
    steps = RECORDS // BATCH * EPOCHS
    if sampling is Sampling.FULL:
        return np.ones((RECORDS, steps), dtype=np.int64)
    if sampling is Sampling.WITH_REPLACEMENT:
        drawn = generator(SEED, "batches").integers(RECORDS, size=(steps, BATCH))
        batches = list(drawn)
    else:
        sampler = BatchSampler(sampling, BATCH, RECORDS)
        batches = [batch for epoch in range(EPOCHS) for batch in sampler.epoch(epoch, seed=SEED, client=0)]
    return np.stack([np.bincount(batch, minlength=RECORDS) for batch in batches], axis=1)


def draw_batches(axis: Axes, name: str, counts: NDArray[np.int64]) -> None:
    """Draw a square for each use of a record, darker and numbered where a step uses it more than once."""
    axis.pcolormesh(counts, cmap="Blues", vmin=0, vmax=2.4, edgecolors="#999999", linewidth=0.4)
    for record, step in zip(*np.nonzero(counts > 1), strict=True):
        axis.text(step + 0.5, record + 0.46, counts[record, step], ha="center", va="center", fontsize=7, color="white")
    axis.axvline(RECORDS // BATCH, color=style.BLACK, linewidth=1.5)
    axis.set_title(name, fontsize=9)
    axis.set(xticks=[2, 6], yticks=[], xticklabels=["epoch 1", "epoch 2"])
    axis.tick_params(length=0)
    axis.grid(visible=False)


def draw_epsilons(axis: Axes, found: dict[str, Guarantee]) -> None:
    """Draw the interval from the epsilon that an attack exceeds to the epsilon that is proven."""
    for row, each in enumerate(found.values()):
        axis.plot([each.lower, each.upper], [row, row], color=style.BLUE, linestyle="-", linewidth=5, alpha=0.45)
        axis.plot(each.lower, row, color=style.RED, marker=">", markersize=7, linestyle="")
        axis.plot(each.upper, row, color=style.BLUE, marker="D", markersize=6, linestyle="")
        least, most = at_least(each.lower), at_most(each.upper)
        same = f"{each.lower:.4g}" == f"{each.upper:.4g}"
        label = most if same else f"{least} to {most}"
        axis.annotate(label, (each.upper, row), xytext=(9, -3), textcoords="offset points")
    axis.set(xscale="log", xlim=(1.8, 9000), ylim=(-0.6, len(found) - 0.4), xlabel="epsilon (zero_out, delta = 1e-5)")
    style.ticks_at(axis, (3, 10, 30, 100, 300, 1000))
    axis.set_yticks(range(len(found)), found)
    axis.grid(visible=False, axis="y")
    axis.plot([], [], color=style.RED, marker=">", linestyle="", label="at least (an attack exceeds it)")
    axis.plot([], [], color=style.BLUE, marker="D", linestyle="", label="proven")
    axis.legend(loc="upper right")


def main() -> None:
    """Write the picture beside this file; print the rows of the table in privacy.md."""
    found = {name: guarantee(sampler, **RUN) for name, (_, sampler) in SAMPLERS.items()}
    with style.apply_style():
        figure, axes = style.plt.subplot_mosaic(
            [[0, 1, 2, "epsilon"], [3, 4, 5, "epsilon"]],
            figsize=(10.5, 4.6),
            layout="constrained",
            width_ratios=[1, 1, 1, 3.4],
        )
        for place, name in enumerate(reversed(SAMPLERS)):
            draw_batches(axes[place], name, uses(SAMPLERS[name][0]))
        for place in (0, 3):
            axes[place].set_ylabel("12 records")
        draw_epsilons(axes["epsilon"], found)
        style.use_greek_symbols(figure)
        style.save(figure, Path(__file__).with_name("samplers.svg"), "svg")
    for name in reversed(SAMPLERS):
        print(f"| {name} | {at_least(found[name].lower)} | {at_most(found[name].upper)} |")


if __name__ == "__main__":
    main()
