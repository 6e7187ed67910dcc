"""Lower confidence bounds on epsilon from the error rates of a test between two neighbouring data sets.

A mechanism that is (epsilon, delta)-DP allows no test a true positive rate above e^epsilon FPR + delta
(wasserman2010; kairouz2015). Error rates are counted over independent trainings, so they have exact binomial
confidence bounds, and the inequality turns these into a bound on epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import ndtri
from scipy.stats import beta, nct

from dpfl.accounting.arguments import integer, real, reals

Claims = Sequence[tuple[float, float]]
"""Points (epsilon, delta), each claimed to hold."""
_LARGEST_MU = 1e3


@dataclass(frozen=True)
class TestErrors:
    """Counts of a test between two worlds P and Q, over independent trainings in each.

    `true_positives` of `positives` trainings in P and `false_positives` of `negatives` trainings in Q are called P.
    The test is fixed before these trainings are seen. Raises ValueError naming the count out of range.
    """

    __test__ = False  # no test class, whatever pytest thinks of its name

    true_positives: int
    positives: int
    false_positives: int
    negatives: int

    def __post_init__(self) -> None:
        for found, among in (("true_positives", "positives"), ("false_positives", "negatives")):
            if integer(found, getattr(self, found)) > integer(among, getattr(self, among), at_least=1):
                raise ValueError(f"{found}: {getattr(self, found)} of {getattr(self, among)} {among}")

    def rates(self, confidence: float) -> tuple[float, float]:
        """Return a lower bound on the true and an upper bound on the false positive rate, jointly at `confidence`."""
        miss = (1 - real("confidence", confidence, above=0, below=1)) / 2
        lower, _ = binomial_bounds(self.true_positives, self.positives, miss)
        _, upper = binomial_bounds(self.false_positives, self.negatives, miss)
        return float(lower), float(upper)


def binomial_bounds(successes: ArrayLike, trials: ArrayLike, miss: float) -> tuple[NDArray, NDArray]:
    """Return lower and upper Clopper-Pearson bounds on a probability, each wrong with probability `miss` at most.

    `successes` out of `trials` broadcast. Source: clopper1934.
    """
    successes, trials = np.broadcast_arrays(reals("successes", successes), reals("trials", trials))
    with np.errstate(invalid="ignore"):
        lower = beta.ppf(miss, successes, trials - successes + 1)
        upper = beta.isf(miss, successes + 1, trials - successes)
    return np.where(successes > 0, lower, 0.0), np.where(successes < trials, upper, 1.0)


def log_likelihood_excess(true_positive_rate: ArrayLike, false_positive_rate: ArrayLike, claims: Claims) -> NDArray:
    """Return the largest ln((TPR - delta) / FPR) - epsilon over the claims (epsilon, delta); -inf where TPR <= delta.

    Above 0 the rates contradict a claim. With the one point (0, delta) it is the epsilon that the rates prove.
    """
    rate = np.asarray(true_positive_rate, dtype=np.float64)[..., None]
    epsilon, delta = np.asarray(claims, dtype=np.float64).T
    with np.errstate(divide="ignore", invalid="ignore"):
        margins = np.log(np.maximum(rate - delta, 0)) - np.log(np.asarray(false_positive_rate))[..., None] - epsilon
    return np.max(margins, axis=-1)


def epsilon_lower_bound(errors: TestErrors, *, delta: float, confidence: float = 0.95) -> float:
    """Return an epsilon that the errors refute: with probability `confidence` or more the true one is above it.

    0 where they refute none. `delta` in [0, 1). Guarantee: for every mechanism that is (epsilon, delta)-DP, no
    assumption on the law of what it releases. Raises ValueError naming the argument.
    """
    delta = real("delta", delta, at_least=0, below=1)
    return max(0.0, float(log_likelihood_excess(*errors.rates(confidence), [(0.0, delta)])))


def mu_lower_bound(errors: TestErrors, *, confidence: float = 0.95) -> float:
    """Return the mu that the errors refute for mechanisms that are Gaussian-DP: Phi^-1(TPR) - Phi^-1(FPR), at least 0.

    Guarantee: with probability `confidence` or more no mu-GDP statement with a smaller mu holds. To read an epsilon at
    a small delta off it (dpfl.accounting.gaussian_dp.epsilon) assumes that the mechanism's trade-off curve is Gaussian,
    as it is for full batches, and nearly so for many small steps. Source: nasr2023, section 4.
    """
    lower, upper = errors.rates(confidence)
    if lower in (0.0, 1.0) or upper in (0.0, 1.0):
        return 0.0
    return max(0.0, float(ndtri(lower) - ndtri(upper)))


def gaussian_fit_mu(scores_in: ArrayLike, scores_out: ArrayLike, *, confidence: float = 0.95) -> float:
    """Return a lower bound on mu = (mean in - mean out) / standard deviation of scores, at `confidence`; at least 0.

    scores_in (n,), scores_out (m,): of independent trainings in each world. Exact where both are normal with one
    variance (noncentral t), else a fit: unlike `epsilon_lower_bound` it proves nothing for other laws.
    Raises ValueError naming the argument.
    """
    inside, outside = reals("scores_in", scores_in), reals("scores_out", scores_out)
    level = real("confidence", confidence, above=0, below=1)
    if inside.ndim != 1 or outside.ndim != 1 or min(len(inside), len(outside)) < 2:
        raise ValueError(f"scores_in, scores_out: two or more numbers each, not {inside.shape}, {outside.shape}")
    degrees = len(inside) + len(outside) - 2
    variance = (inside.var() * len(inside) + outside.var() * len(outside)) / degrees
    difference = inside.mean() - outside.mean()
    if variance == 0 or difference <= 0:
        return _LARGEST_MU if difference > 0 else 0.0
    root = np.sqrt(1 / len(inside) + 1 / len(outside))
    statistic = min(difference / np.sqrt(variance), _LARGEST_MU) / root

    def excess(mu: float) -> float:
        return float(nct.cdf(statistic, degrees, mu / root)) - level

    if excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, statistic * root, xtol=1e-9))


def refuted_noise(
    errors: TestErrors, claims_at: Callable[[float], Claims], *, least: float, most: float, confidence: float = 0.95
) -> float:
    """Return the smallest noise that the errors refute, within 0.1 %: what a mechanism of the family adds is less.

    `claims_at` maps a noise, between `least` and `most`, to what is proven of the family's member with it; more noise
    claims less. The member's epsilon at any delta is then a lower bound on the mechanism's, as tight as the test, if
    the mechanism is of the family: f-DP auditing with the curve of the mechanism (nasr2023, section 5).
    inf where even `most` is not refuted. Raises ValueError naming the argument.
    """
    low, high = real("least", least, above=0), real("most", most, above=least)
    rates = errors.rates(confidence)

    def refutes(noise: float) -> bool:
        return bool(log_likelihood_excess(*rates, claims_at(noise)) > 0)

    if not refutes(high):
        return math.inf
    if refutes(low):
        return low
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if refutes(middle) else (middle, high)
    return high
