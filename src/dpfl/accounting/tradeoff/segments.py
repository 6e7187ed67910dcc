"""Privacy of a DP-SGD run whose noise changes between segments of rounds, or is not Gaussian: fixed-size batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from scipy.optimize import brentq

from dpfl.accounting.arguments import integer, real
from dpfl.accounting.tradeoff.arsinh import arsinh_tails
from dpfl.accounting.tradeoff.privacy_loss import (
    LEAST_DELTA,
    PrivacyLoss,
    Tails,
    connected_dots,
    gaussian_tails,
    largest_loss,
    loss_std,
    subsampled_tails,
)

INTERVAL = 5e-4
"""Widest grid of the privacy loss: finer where a round's loss spreads over less than `CELLS` of its cells."""
CELLS = 20
"""A grid adds up to a quarter of its squared width to the variance of each loss: under 1e-3 of epsilon so."""
LEFT_OUT = 1e-4
"""Share of delta that the loss grid's ends may leave out; it is counted as lost."""
LONGEST_LOSS = 60.0
"""Largest loss on a grid of `INTERVAL`: where the losses reach farther, privacy is weak and the grid is coarser."""
ARSINH_DELTA = 1e-3
"""Largest delta up to which arsinh noise was tried against moves over several axes."""
SIGMA_TOLERANCE = 1e-4
SIGMAS = (0.2, 1000.0)


@dataclass(frozen=True)
class Segment:
    """`rounds` >= 0 rounds with one noise law: sigma > 0 in units of a round's sensitivity, p in (0, 1] the share of
    records in a batch.

    `arsinh_scale` > 0: a over sigma of the noise a arsinh(N/a); infinite for Gaussian noise.
    Raises ValueError naming the first field out of range.
    Source: vandijk2023 sections 4.2 and 5.2.
    """

    rounds: int
    sigma: float
    p: float
    arsinh_scale: float = np.inf

    def __post_init__(self) -> None:
        integer("rounds", self.rounds)
        real("sigma", self.sigma, above=0)
        real("p", self.p, above=0, at_most=1)
        real("arsinh_scale", self.arsinh_scale, above=0, infinite=True)

    def tails(self) -> Tails:
        """Return the law of one round's loss under C_p; arsinh noise is moved along one axis."""
        if np.isinf(self.arsinh_scale):
            return subsampled_tails(gaussian_tails(1 / self.sigma), self.p)
        return subsampled_tails(arsinh_tails(self.arsinh_scale * self.sigma, self.sigma), self.p)


def segments_epsilon(segments: Sequence[Segment], delta: float) -> float:
    """Return the epsilon at `delta` of a run of segments, one record replaced, batches of fixed size.

    Every round is C_p of its noise, as adversary A0 sees it, and the rounds compose: an upper bound by connecting the
    dots of the losses, above what they spend by less than 2e-3 of it where no round loses more than `LONGEST_LOSS`.
    `delta` in [`LEAST_DELTA`, 1), at least one round in all; below it rounding in the composition, some 1e-15 of mass,
    may hide losses: use `accounting.guarantee`. Arsinh noise is accounted for the full move of the sum along one axis,
    with delta up to `ARSINH_DELTA` and arsinh_scale of 1 and more: a move spread evenly over more axes spent less in
    every case tried there and more in some above that delta, and a shorter move may spend more below that scale.
    Raises ValueError naming the argument. Guarantee: (epsilon, `delta`)-DP with one record replaced, for arsinh noise
    as far as it was tried. Source: vandijk2023, sections 4.4 and 5.2.
    """
    failure = real("delta", delta, at_least=LEAST_DELTA, below=1)
    runs = [segment for segment in segments if segment.rounds]
    if any(np.isfinite(segment.arsinh_scale) for segment in runs):
        real("arsinh_scale", min(segment.arsinh_scale for segment in runs), at_least=1, infinite=True)
        real("delta with arsinh noise", delta, at_most=ARSINH_DELTA)
    if not runs:
        raise ValueError("segments must have at least one round in all, got none")
    left_out = LEFT_OUT * failure
    tails = [segment.tails() for segment in runs]
    total = sum(segment.rounds for segment in runs)
    reaches = [largest_loss(each, left_out / total) for each in tails]
    smallest_std = min(map(loss_std, tails, reaches))
    step = max(min(INTERVAL, smallest_std / CELLS), INTERVAL * max(reaches) / LONGEST_LOSS)
    composed: PrivacyLossDistribution | None = None
    for segment, law, reach in zip(runs, tails, reaches, strict=True):
        with np.errstate(over="ignore"):  # as in privacy_loss.composed
            part = connected_dots(law, step, reach).self_compose(segment.rounds, tail_mass_truncation=left_out)
        loss = PrivacyLossDistribution(part)
        composed = loss if composed is None else composed.compose(loss, tail_mass_truncation=left_out)
    return float(PrivacyLoss.of(composed).epsilon(failure))


def segments_sigma(run: Callable[[float], Sequence[Segment]], target_epsilon: float, delta: float) -> float:
    """Return the least sigma for which the segments `run(sigma)` spend at most `target_epsilon`, within 1e-4 of it.

    `target_epsilon` > 0, `delta` as for `segments_epsilon`; `run` must give less epsilon for more sigma. Guarantee:
    that of `segments_epsilon`, (target_epsilon, delta)-DP with one record replaced. Raises ValueError naming the
    argument, target_epsilon also where no sigma from 0.2 to 1000 meets it. Source: `segments_epsilon` solved for sigma.
    """
    target = real("target_epsilon", target_epsilon, above=0)

    @cache
    def excess(log_sigma: float) -> float:
        return segments_epsilon(run(float(np.exp(log_sigma))), delta) / target - 1

    low, high = 0.0, 0.7
    while excess(high) > 0 and high < np.log(SIGMAS[1]):
        low, high = high, high + 0.7
    while low > np.log(SIGMAS[0]) and excess(low) < 0:
        low, high = low - 0.7, low
    if excess(high) > 0 or excess(low) < 0:
        raise ValueError(f"target_epsilon {target} is met by no sigma from {SIGMAS[0]} to {SIGMAS[1]}")
    result = brentq(excess, low, high, xtol=SIGMA_TOLERANCE)
    return float(np.exp(result if excess(result) <= 0 else result + SIGMA_TOLERANCE))
