"""The noise of the experiments without a trusted server, and the privacy statement of what it protects."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from dpfl.accounting import isrl_dp
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.privacy_statement import PrivacyStatement
from dpfl.accounting.samplers import Sampling
from dpfl.engine.federated_rounds import Clipping

UNACCOUNTED = "standardisation, blocks and the choice of step size and clip norm are not accounted for"
EPSILON_TOLERANCE = 1e-3
"""How far below its target the tight noise may stay, relative."""
MOST_SECANTS = 40


class NoiseRule(StrEnum):
    """Which noise is added for an epsilon."""

    ADVANCED_COMPOSITION = "advanced_composition"
    """lowy2021 Theorem 2.1."""
    MOMENTS = "moments"
    """The authors' later script."""
    TIGHT = "tight"
    """The least that an accountant of the mechanism allows."""


@dataclass(frozen=True)
class Mechanism:
    """What one client releases: `releases` noisy messages, each the mean of `message_records` clipped gradients.

    `batch_share` is K/n of the experiment, which the advanced-composition formula reads in local SGD too.
    """

    message_records: int
    records: int
    releases: int
    delta: float
    sampling: Sampling
    clipping: Clipping
    batch_share: float

    @property
    def share(self) -> float:
        """One record's share of a message: what its clipped part is divided by."""
        return 1.0 if self.clipping is Clipping.MEAN else float(self.message_records)

    def spent(self, noise_multiplier: float) -> float:
        """Return an upper bound of the epsilon spent; noise_multiplier is noise over one record's norm bound."""
        counts = {"batch_size": self.message_records, "records": self.records}
        counts |= {"steps": self.releases, "delta": self.delta}
        if self.clipping is Clipping.MEAN and self.message_records > 1:
            return isrl_dp.clipped_mean_epsilon(sigma_over_lipschitz=noise_multiplier, **counts)
        return float(isrl_dp.epsilon(noise_multiplier=noise_multiplier, sampling=self.sampling, **counts))


@cache
def noise_multiplier(noise: NoiseRule, mechanism: Mechanism, epsilon: float) -> float:
    """Return the noise's standard deviation over the norm bound of one record's share of a message, for `epsilon`.

    TIGHT spends between (1 - EPSILON_TOLERANCE) epsilon and epsilon by `Mechanism.spent`; the published formulas are
    those of dpfl.accounting.isrl_dp for `releases` rounds. Raises ValueError where a formula has no answer.
    """
    if noise is NoiseRule.TIGHT:
        return _tight(mechanism, epsilon)
    run = {"rounds": mechanism.releases, "records": mechanism.records, "lipschitz": 1.0}
    run |= {"epsilon": epsilon, "delta": mechanism.delta}
    if noise is NoiseRule.MOMENTS:
        variance = isrl_dp.moments_variance(**run)
    else:
        variance = isrl_dp.advanced_composition_variance(**run, batch_share=mechanism.batch_share)
    return math.sqrt(variance) * mechanism.share


def statement(noise: NoiseRule, mechanism: Mechanism, epsilon: float) -> PrivacyStatement:
    """Return the statement for `epsilon`, inf for no noise; its clip norm is 1, for the noise is proportional to it."""
    shared = {
        "sampling": mechanism.sampling,
        "neighbouring": Neighbouring.REPLACE_ONE,
        "records": mechanism.records,
        "sample_rate": min(1.0, mechanism.message_records / mechanism.records),
        "steps": mechanism.releases,
        "delta": mechanism.delta,
    }
    if math.isinf(epsilon):
        return PrivacyStatement.not_private(**shared)
    multiplier = noise_multiplier(noise, mechanism, epsilon)
    return PrivacyStatement(
        mechanism="subsampled Gaussian, per client",
        clip_norm=1.0,
        noise_multiplier=multiplier,
        epsilon_rdp=math.nan,
        epsilon_pld=_spent(mechanism, multiplier),
        note=_note(noise, mechanism, epsilon),
        **shared,
    )


_spent = cache(Mechanism.spent)


def _note(noise: NoiseRule, mechanism: Mechanism, epsilon: float) -> str:
    """How the statement relates to what was asked for."""
    if noise is NoiseRule.TIGHT:
        source = f"noise calibrated to spend epsilon {epsilon:g} by this accountant"
    else:
        source = f"noise as published ({noise}) for epsilon {epsilon:g}"
    if mechanism.clipping is Clipping.MEAN and mechanism.message_records > 1:
        source += "; the batch's mean is clipped, so one record can turn it around: this does not protect"
    return f"{source}; epsilon_pld is an upper bound; {UNACCOUNTED}"


def _tight(mechanism: Mechanism, epsilon: float) -> float:
    """Search by the secant rule, on logarithmic scales, until what is spent lies below epsilon within the tolerance."""

    def excess(log_multiplier: float) -> float:
        return math.log(_spent(mechanism, math.exp(log_multiplier)) / epsilon) + EPSILON_TOLERANCE / 2

    # Where the steps are many and each is seldom drawn, they add up to a Gaussian of this mean.
    rate = mechanism.message_records / mechanism.records
    mean = 2 * rate * math.sqrt(mechanism.releases) * math.sqrt(2 * math.log(1 / mechanism.delta)) / epsilon
    first, second = math.log(mean + 0.7), math.log(mean + 0.7) + 0.1
    value = excess(first)
    for _ in range(MOST_SECANTS):
        latest = excess(second)
        if abs(latest) <= EPSILON_TOLERANCE / 2:
            return math.exp(second)
        slope = min((latest - value) / (second - first), -0.5)  # what is spent falls at least like a square root
        first, value, second = second, latest, second - max(-1.0, min(1.0, latest / slope))
    raise ValueError(f"epsilon {epsilon:g}: no noise found that spends it, within {EPSILON_TOLERANCE:g} below")
