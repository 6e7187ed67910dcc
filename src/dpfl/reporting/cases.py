"""Cases of a claim: one number each with its uncertainty, what the claim says it should be, and its tests."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pandas as pd
from scipy import special, stats

from dpfl.reporting.statistics import LEVEL as BAR_LEVEL

LEVEL = 0.95
"""Of every interval in the evidence, whatever level the paper's own bars have: 1 - ALPHA, so that an interval excludes
a threshold exactly where the two-sided p-value is below ALPHA."""
ALPHA = 0.05
"""Chance of a wrong decision on a case, and (by Holm) of any wrong counterexample in all the cases of a claim."""


class ClaimKind(StrEnum):
    """Kind of statement that a claim makes about the number of a case."""

    DIFFERENCE = "difference"
    """The number is above its target."""
    NOT_WORSE = "not worse"
    """The number is above its target less the margin."""
    BOUND = "bound"
    """The number is at most its target; the margin is what rounding may add."""
    EQUIVALENCE = "equivalence"
    """The number is within the margin of its target (two one-sided tests)."""
    RATE = "rate"
    """As equivalence; the number is an exponent, a factor or a ratio of growth."""
    FORMULA = "formula"
    """As equivalence; the number is computed by another route than the target, the margin is numerical."""


@dataclass(frozen=True)
class Case:
    """One case of a claim.

    `estimate` with its standard `error` (0 for a computed number, nan for a single run) comes from `n` runs (0 where
    it is computed), tested by Student's t with `freedom` degrees of freedom. `target` is what the claim compares it
    with; `margin` and `kind` are the claim's where they are None. `published`: the same number by the paper's print.
    `stand_in` names the data that stand in for the published ones.
    """

    case: str
    estimate: float
    error: float = 0.0
    n: int = 0
    freedom: float = math.inf
    target: float = 0.0
    margin: float | None = None
    kind: ClaimKind | None = None
    published: float = math.nan
    stand_in: str = ""

    def interval(self) -> tuple[float, float]:
        """Return the two ends of the interval of `estimate` at LEVEL, nan for a single run."""
        half = float(stats.t.ppf(0.5 + LEVEL / 2, self.freedom)) * self.error if self.error else self.error
        return self.estimate - half, self.estimate + half

    def p_outside(self, low: float, high: float) -> float:
        """Return the p-value against `low <= number <= high` being false: small where the number is inside.

        Two-sided at each end, the larger of both (two one-sided tests). 0 or 1 for a computed number, nan for a
        single run, and for runs that all gave the same: their scatter is not known.
        """
        if self._is_untestable():
            return math.nan
        if not self.error:
            return float(not low <= self.estimate <= high)
        return max(self._two_sided(self.estimate - low), self._two_sided(high - self.estimate))

    def p_inside(self, low: float, high: float) -> float:
        """Return the p-value against `low <= number <= high`: small where it is outside; else as `p_outside`."""
        if self._is_untestable():
            return math.nan
        if not self.error:
            return float(low <= self.estimate <= high)
        return min(self._two_sided(low - self.estimate), self._two_sided(self.estimate - high))

    def _is_untestable(self) -> bool:
        """Return whether there is no number, or no scatter that a test could measure it by."""
        return math.isnan(self.estimate) or math.isnan(self.error) or (self.n > 0 and not self.error)

    def _two_sided(self, distance: float) -> float:
        """Return the two-sided p-value of a distance in the direction that is tested; 1 in the other direction."""
        score = -distance / self.error
        below = special.stdtr(self.freedom, score) if math.isfinite(self.freedom) else special.ndtr(score)
        return min(1.0, 2 * float(below))


def from_interval(
    case: str, n: int, estimate: float, half_width: float, *, level: float, **facts: float | str | ClaimKind | None
) -> Case:
    """Return the case of a mean of `n` runs with the half-width of its interval by Student's t at `level`.

    `facts` are further fields of `Case`. Below two runs the error is nan.
    """
    freedom = n - 1
    error = float(half_width / stats.t.ppf(0.5 + level / 2, freedom)) if n >= 2 else math.nan
    return Case(case, float(estimate), error, int(n), freedom, **facts)


def interval_cases(
    rows: pd.DataFrame,
    named: str,
    estimate: pd.Series,
    half_width: pd.Series,
    *,
    runs: str = "runs",
    level: float = BAR_LEVEL,
    target: pd.Series | float = 0.0,
) -> list[Case]:
    """Return the case of every row: the mean of as many runs as its column `runs` says, with its interval at `level`.

    `named` is the format of a case's name, from the row's columns. A row with a `stand_in_for` is of stand-in data.
    """
    numbers = zip(estimate, half_width, np.broadcast_to(target, len(rows)), strict=True)
    return [
        from_interval(
            named.format(**row), row[runs], value, half, level=level, target=wanted,
            stand_in=row["dataset"] if row.get("stand_in_for") else "",
        )
        for row, (value, half, wanted) in zip(rows.to_dict("records"), numbers, strict=True)
    ]  # fmt: skip


def from_values(case: str, values: Iterable[float], **facts: float | str | ClaimKind | None) -> Case:
    """Return the case of the mean of values, one a run; missing ones (nan) are left out."""
    known = np.asarray(list(values), dtype=np.float64)
    known = known[~np.isnan(known)]
    n = len(known)
    error = float(known.std(ddof=1)) / math.sqrt(n) if n >= 2 else math.nan
    return Case(case, float(known.mean()) if n else math.nan, error, n, n - 1, **facts)


def difference(case: str, first: Case, second: Case, **facts: float | str | ClaimKind | None) -> Case:
    """Return the case of the first number minus the second, from separate runs (Welch's t-test)."""
    squares = first.error**2, second.error**2
    error = math.sqrt(sum(squares))
    parts = [
        square**2 / each.freedom for square, each in zip(squares, (first, second), strict=True) if each.freedom > 0
    ]
    freedom = error**4 / sum(parts) if sum(parts) > 0 else math.inf
    return Case(case, first.estimate - second.estimate, error, min(first.n, second.n), freedom, **facts)
