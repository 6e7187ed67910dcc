"""The noise of the experiments without a trusted server, and the privacy statement of what it protects."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from dpfl.accounting import isrl_dp
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import SAMPLERS, Sampler, Sampling
from dpfl.accounting.statements.mechanism import ClippedMeanGaussian, Gaussian, Mechanism
from dpfl.accounting.statements.privacy_statement import PrivacyStatement
from dpfl.engine.federated_rounds import Clipping

EPSILON_TOLERANCE = 1e-3
"""Relative gap that the tight noise may leave below its target."""
MOST_SECANTS = 40


class NoiseRule(StrEnum):
    """Rules for the noise that an epsilon asks for."""

    ADVANCED_COMPOSITION = "advanced_composition"
    """lowy2021 Theorem 2.1."""
    MOMENTS = "moments"
    """The authors' later script."""
    TIGHT = "tight"
    """The least that an accountant of the mechanism allows."""


@dataclass(frozen=True)
class ClientMessages:
    """Messages of one client: `releases` noisy ones, each the mean of `message_records` clipped gradients.

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

    @property
    def mechanism(self) -> Mechanism:
        """Mechanism that hides a record in a message."""
        turns = self.clipping is Clipping.MEAN and self.message_records > 1
        return ClippedMeanGaussian() if turns else Gaussian()

    @property
    def sampler(self) -> Sampler:
        """Sampler of a message's records."""
        return SAMPLERS[self.sampling](self.message_records, self.records)

    def stated(self, noise_multiplier: float, note: str = "") -> PrivacyStatement:
        """Return the statement for this noise; its clip norm is 1, for the noise is proportional to it."""
        return PrivacyStatement.of(
            self.mechanism,
            self.sampler,
            neighbouring=Neighbouring.REPLACE_ONE,
            records=self.records,
            clip_norm=1.0,
            noise_multiplier=noise_multiplier,
            steps=self.releases,
            delta=self.delta,
            note=note,
        )


@cache
def noise_multiplier(noise: NoiseRule, messages: ClientMessages, epsilon: float) -> float:
    """Return the noise's standard deviation over the norm bound of one record's share of a message, for `epsilon`.

    TIGHT spends between (1 - EPSILON_TOLERANCE) epsilon and epsilon by its accountant; the published formulas are
    those of dpfl.accounting.isrl_dp for `releases` rounds. Raises ValueError where a formula has no answer.
    """
    if noise is NoiseRule.TIGHT:
        return _tight(messages, epsilon)
    run = {"rounds": messages.releases, "records": messages.records, "lipschitz": 1.0}
    run |= {"epsilon": epsilon, "delta": messages.delta}
    if noise is NoiseRule.MOMENTS:
        variance = isrl_dp.moments_variance(**run)
    else:
        variance = isrl_dp.advanced_composition_variance(**run, batch_share=messages.batch_share)
    return math.sqrt(variance) * messages.share


def statement(
    noise: NoiseRule,
    messages: ClientMessages,
    epsilon: float,
    unaccounted: str,
    calibrated_for: ClientMessages | None = None,
) -> PrivacyStatement:
    """Return the statement of the noise for `epsilon`, inf for no noise.

    `unaccounted` says what the statement leaves out. `calibrated_for`: the messages that the noise is calibrated for,
    where those that are sent are others.
    """
    if math.isinf(epsilon):
        return messages.stated(0.0)
    counted = calibrated_for or messages
    note = f"{_note(noise, messages, epsilon, counted.records)}; {unaccounted}"
    return messages.stated(noise_multiplier(noise, counted, epsilon), note)


@cache
def _proven(messages: ClientMessages, noise_multiplier: float) -> float:
    """Return an upper bound of the epsilon of a client's messages."""
    return messages.stated(noise_multiplier).guarantee.upper


def _note(noise: NoiseRule, messages: ClientMessages, epsilon: float, counted: int) -> str:
    """Return the relation of the statement to the epsilon asked for."""
    if noise is NoiseRule.TIGHT:
        source = f"noise calibrated to spend epsilon {epsilon:g} by this accountant"
    else:
        source = f"noise as published ({noise}) for epsilon {epsilon:g}"
    if counted != messages.records:
        source += f", for n = {counted} records as the authors' script counts them, of which {messages.records} train"
    if messages.clipping is Clipping.MEAN and messages.message_records > 1:
        source += "; the batch's mean is clipped, so one record can turn it around: this does not protect"
    return source


def _tight(messages: ClientMessages, epsilon: float) -> float:
    """Search by the secant rule, on logarithmic scales, until what is spent lies below epsilon within the tolerance."""

    def excess(log_multiplier: float) -> float:
        return math.log(_proven(messages, math.exp(log_multiplier)) / epsilon) + EPSILON_TOLERANCE / 2

    # Where the steps are many and each is seldom drawn, they add up to a Gaussian of this mean.
    rate = messages.message_records / messages.records
    mean = 2 * rate * math.sqrt(messages.releases) * math.sqrt(2 * math.log(1 / messages.delta)) / epsilon
    first, second = math.log(mean + 0.7), math.log(mean + 0.7) + 0.1
    value = excess(first)
    for _ in range(MOST_SECANTS):
        latest = excess(second)
        if abs(latest) <= EPSILON_TOLERANCE / 2:
            return math.exp(second)
        slope = min((latest - value) / (second - first), -0.5)  # what is spent falls at least like a square root
        first, value, second = second, latest, second - max(-1.0, min(1.0, latest / slope))
    raise ValueError(f"epsilon {epsilon:g}: no noise found that spends it, within {EPSILON_TOLERANCE:g} below")
