"""Are the published values means of ten runs, or single runs? A test by how they scatter, and one by constant models.

Scatter. In a column of ScatterNet + linear (one dataset, one budget, six splits) the published value less ours is taken
to be an offset, or a straight line, or a parabola over the splits, which other settings may cause, plus noise: that of
our mean over n runs, and that of a mean of m runs of the paper. How much is left after the curve is taken out says what
m is. Ours as drawn keep the covariance that splits of a seed have; the paper's splits are taken as independent.

Constant models. A model that gives one answer to everything has the share of one class as its accuracy. On MNIST these
shares differ, and the mean of ten of them is rarely one of them again.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpfl.papers.bhaskar2025.paper_runs import PUBLISHED_RUNS, published_cells
from dpfl.papers.bhaskar2025.published_cells import ROUNDING_PCT, chosen_runs
from dpfl.randomness import generator
from dpfl.reporting.results import Results

MODEL = "scatter_linear"
DEGREES = (0, 1, 2)  # of the curve over the splits that settings may shift a column by
LEAST_RUNS = 5  # of a column, below which its scatter between seeds is not known well enough
DRAWS = 1000
AVERAGED = np.geomspace(0.05, 200, 60)  # numbers of averaged runs m between which the interval is looked for
TAIL = 0.025  # on either side of the interval
MNIST_LABELS = (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009)  # of its 10 000 test images
SCATTER, CONSTANT = "scatter", "constant"
ALL = "all"
_COLUMNS = [
    "test", "dataset", "model", "epsilon", "local_epochs", "splits", "curve", "runs", "columns", "statistic_ten",
    "statistic_single", "probability_ten", "probability_single", "averaged_low", "averaged_high", "largest_step_ten",
    "largest_step_single", "published_accuracy_pct", "constant_runs", "same_runs",
]  # fmt: skip


def single_runs(results: Results) -> pd.DataFrame:
    """Return a row for each test.

    Columns: test ("scatter" or "constant"), dataset ("all" for the columns together), model, epsilon (nan for all),
    local_epochs (of a constant cell; 0 for columns), splits (of a column: six, or five without (20, 1), where models
    collapse; 0 for constants), curve (degree of what is taken out of a column; -1 for constants),
    runs (of ours, the fewest), columns (taken together), statistic_ten and statistic_single (weighted sum of squares
    that is left, and its expectation is near its degrees of freedom where the reading holds), probability_ten and
    probability_single (of at least as much; for constants: that the published value is a share of one class),
    averaged_low and averaged_high (95 % interval of the number m of runs that a published value averages; the ends of
    `AVERAGED` where it goes beyond), largest_step_ten and largest_step_single (between adjacent splits, published less
    ours, in standard errors; nan for sums), published_accuracy_pct, constant_runs and same_runs (of a constant cell:
    what is printed, how many of our runs are constant, how many of these have the printed accuracy; else nan, 0, 0).
    """
    runs, _ = chosen_runs(results)
    runs = runs[~runs["stand_in"].eq(True)]
    columns = _columns(runs)
    rows = [_scatter_row(*key, [column], 1) for key, column in columns.items()]
    together = list(columns.values())
    without_last = [Column.of(each.ours[:, :-1], each.printed[:-1], place) for place, each in enumerate(together)]
    for group, degree in product((together, without_last) if columns else (), DEGREES):
        rows.append(_scatter_row(ALL, math.nan, group, degree))
    return pd.DataFrame([*rows, *_constant_rows(runs)], columns=_COLUMNS)


def _columns(runs: pd.DataFrame) -> dict[tuple[str, float], Column]:
    """Return the columns of ten clients of which `LEAST_RUNS` seeds ran all splits, by dataset and budget."""
    found: dict[tuple[str, float], Column] = {}
    printed = published_cells().query("table < 5 and model == @MODEL")
    runs = runs[(runs["model"] == MODEL) & runs["clients"].isin(printed["clients"])]
    for (dataset, epsilon), column in printed.groupby(["dataset", "epsilon"], sort=False):
        own = runs[(runs["dataset"] == dataset) & (runs["epsilon"] == epsilon)]
        wide = own.pivot(index="seed", columns="local_epochs", values="accuracy_pct")
        wide = wide.reindex(columns=column["local_epochs"]).dropna()
        if len(wide) >= LEAST_RUNS:
            published = column["published_accuracy_pct"].to_numpy(float)
            found[dataset, epsilon] = Column.of(wide.to_numpy(float), published, len(found))
    return found


@dataclass(frozen=True)
class Column:
    """One column: our accuracies (seeds, splits), the published ones (splits,), and `DRAWS` of what chance makes.

    `means` and `variances` of our seeds and `noise` of one run of the paper are (draws, splits).
    """

    ours: NDArray[np.float64]
    printed: NDArray[np.float64]
    means: NDArray[np.float64]
    variances: NDArray[np.float64]
    noise: NDArray[np.float64]

    @classmethod
    def of(cls, ours: NDArray[np.float64], printed: NDArray[np.float64], number: int) -> Column:
        """Return a column with its draws, which `number` tells from those of other columns.

        Ours are normal with the covariance of our splits between seeds, the paper's splits independent.
        """
        seeds, splits = ours.shape
        rng = generator(number, "noise")
        deviations = (ours - ours.mean(axis=0)) / math.sqrt(seeds - 1)
        own = rng.standard_normal((DRAWS, seeds, seeds)) @ deviations
        noise = rng.standard_normal((DRAWS, splits)) * ours.std(axis=0, ddof=1)
        return cls(ours, printed, own.mean(axis=1), own.var(axis=1, ddof=1), noise)

    def left_over(self, degree: int, averaged: float) -> tuple[float, NDArray[np.float64]]:
        """Return the weighted sum of squares that the best polynomial leaves, as seen and in each draw."""
        mean, variance = self.ours.mean(axis=0), self.ours.var(axis=0, ddof=1)
        differences = np.vstack([self.printed - mean, self.noise / math.sqrt(averaged) - self.means])
        sums = left_over(differences, np.vstack([variance, self.variances]), len(self.ours), degree, averaged)
        return float(sums[0]), sums[1:]

    def largest_step(self, averaged: float) -> float:
        """Return the largest step between adjacent splits of published less ours, in its standard errors."""
        difference = np.diff(self.printed - self.ours.mean(axis=0))
        own = np.diff(self.ours, axis=1).var(axis=0, ddof=1) / len(self.ours)
        variance = self.ours.var(axis=0, ddof=1)
        return float(np.abs(difference / np.sqrt(own + (variance[1:] + variance[:-1]) / averaged)).max())


def left_over(
    differences: NDArray[np.float64], variances: NDArray[np.float64], seeds: int, degree: int, averaged: float
) -> NDArray[np.float64]:
    """Return the weighted sum of squares (cases,) that the best polynomial of `degree` over the splits leaves.

    `differences` (cases, splits): published less our mean over `seeds`, in points; `variances` (cases, splits) between
    seeds. Weights are one over s² (1/n + 1/m) plus the variance of rounding, m the runs `averaged` by the paper.
    """
    variance = variances * (1 / seeds + 1 / averaged) + ROUNDING_PCT**2 / 3
    curve = np.vander(np.linspace(-1, 1, differences.shape[1]), degree + 1)
    root = 1 / np.sqrt(variance)
    design, target = root[:, :, None] * curve, root * differences
    fitted = np.linalg.solve(np.swapaxes(design, 1, 2) @ design, np.einsum("csd,cs->cd", design, target)[..., None])
    return np.square(target - (design @ fitted)[..., 0]).sum(axis=1)


def scatter(columns: list[Column], degree: int, averaged: float) -> tuple[float, float]:
    """Return the weighted sum of squares that columns leave together, and the chance of at least as much by noise.

    `degree` of the polynomial over the splits that is taken out, `averaged` runs m behind a published value.
    """
    parts = [column.left_over(degree, averaged) for column in columns]
    seen, chance = sum(part[0] for part in parts), np.sum([part[1] for part in parts], axis=0)
    return seen, float((1 + (chance >= seen).sum()) / (1 + DRAWS))


def averaged_interval(columns: list[Column], degree: int) -> tuple[float, float]:
    """Return the 95 % interval of the number of runs that a published value averages: where `scatter` leaves neither
    more nor less than chance does, `TAIL` on either side. The ends of `AVERAGED` stand for anything beyond them; nan
    where no number will do."""
    kept = [float(m) for m in AVERAGED if TAIL <= scatter(columns, degree, m)[1] <= 1 - TAIL]
    return (min(kept), max(kept)) if kept else (math.nan, math.nan)


def _scatter_row(dataset: str, epsilon: float, columns: list[Column], degree: int) -> dict[str, object]:
    """Return the row of some columns tested together."""
    row: dict[str, object] = {
        "test": SCATTER,
        "dataset": dataset,
        "model": MODEL,
        "epsilon": epsilon,
        "local_epochs": 0,
    }
    row |= {
        "splits": len(columns[0].printed),
        "curve": degree,
        "runs": min(len(column.ours) for column in columns),
        "columns": len(columns),
    }
    for name, averaged in (("ten", PUBLISHED_RUNS), ("single", 1)):
        row[f"statistic_{name}"], row[f"probability_{name}"] = scatter(columns, degree, averaged)
        row[f"largest_step_{name}"] = columns[0].largest_step(averaged) if len(columns) == 1 else math.nan
    row["averaged_low"], row["averaged_high"] = averaged_interval(columns, degree)
    return {**row, "published_accuracy_pct": math.nan, "constant_runs": 0, "same_runs": 0}


def _constant_rows(runs: pd.DataFrame) -> list[dict[str, object]]:
    """Return a row for each cell of MNIST whose published value is the share of one class, to the last digit."""
    shares = {round(count / 100, 2) for count in MNIST_LABELS}
    printed = published_cells().query("table == 2")
    rows = []
    for cell in printed[printed["published_accuracy_pct"].isin(shares)].to_dict("records"):
        own = runs.query("dataset == 'mnist' and model == @cell['model'] and clients == @cell['clients']")
        own = own[(own["epsilon"] == cell["epsilon"]) & (own["local_epochs"] == cell["local_epochs"])]
        blank = dict.fromkeys(_COLUMNS, math.nan)
        known = {name: cell[name] for name in ("dataset", "model", "epsilon", "local_epochs", "published_accuracy_pct")}
        printed_pct = cell["published_accuracy_pct"]
        constant, same = (int(own["accuracy_pct"].round(2).isin(among).sum()) for among in (shares, {printed_pct}))
        chances = {"probability_ten": mean_is_a_share(PUBLISHED_RUNS), "probability_single": mean_is_a_share(1)}
        counts = {"splits": 0, "curve": -1, "runs": len(own), "columns": 0, "constant_runs": constant}
        counts["same_runs"] = same
        rows.append({**blank, "test": CONSTANT, **known, **chances, **counts})
    return rows


def mean_is_a_share(runs: int) -> float:
    """Return the probability that the mean accuracy of constant models on MNIST prints as the share of one digit.

    Each of the `runs` models answers with any digit with probability 1/10; printed with two decimals.
    """
    ways = Counter({0: 1})
    for _ in range(runs):
        longer: Counter[int] = Counter()
        for total, number in ways.items():
            for count in MNIST_LABELS:
                longer[total + count] += number
        ways = longer
    hits = sum(number for total, number in ways.items() if round(total / runs) in MNIST_LABELS)
    return hits / len(MNIST_LABELS) ** runs
