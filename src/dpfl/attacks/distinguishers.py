"""Statistics that tell two worlds apart from what an observer of every step sees; each is larger in world P.

Observations have shape (trials, epochs, steps), in clip norms before division, and are relative to what a batch of
mates sums to: a step holds noise of standard deviation sigma, plus a shift where it draws the record in question,
p in world P and q in world Q (dpfl.attacks.worst_pair).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp
from scipy.stats import binom

from dpfl.accounting.arguments import integer, real
from dpfl.accounting.samplers import Sampling
from dpfl.randomness import generator

Array = NDArray[np.float64]
Statistic = Callable[[Array], Array]
"""Maps observations (trials, epochs, steps) to scores (trials,)."""
_ONCE_AN_EPOCH = (Sampling.SHUFFLED, Sampling.BALLS_IN_BINS)
_EXACT = 1e-15
"""Closest approach that counts: differences below it are rounding."""
_RAREST = 1e-15
_LEAST_NOISE = 1e-3


@dataclass(frozen=True)
class StepLaw:
    """How often a step draws the record, and what it then sees.

    counts[j] is the probability that a step draws it j times (POISSON, FIXED: 0 or 1). The steps of an epoch that are
    SHUFFLED or BALLS_IN_BINS are not independent: exactly one of them draws it.
    """

    sampling: Sampling
    counts: tuple[float, ...]
    shifts: tuple[float, float]
    noise_multiplier: float

    @classmethod
    def of(
        cls,
        sampling: Sampling,
        sample_rate: float,
        shifts: tuple[float, float],
        noise_multiplier: float,
        draws: int = 1,
    ) -> StepLaw:
        """Return the law where each of a step's `draws` draws is the record with probability `sample_rate`, in (0, 1].

        One draw, but for WITH_REPLACEMENT, where a batch of K is K draws at rate 1/n; counts of probability below 1e-15
        are left out. Statistics of a training without noise assume a little. Raises ValueError naming the argument.
        """
        rate = real("sample_rate", sample_rate, above=0, at_most=1)
        sigma = max(real("noise_multiplier", noise_multiplier, at_least=0), _LEAST_NOISE)
        counts = binom.pmf(np.arange(integer("draws", draws, at_least=1) + 1), draws, rate)
        last = int(np.flatnonzero(counts > _RAREST)[-1])
        return cls(sampling, tuple(counts[: last + 1].tolist()), shifts, sigma)


def log_likelihood_ratio(seen: Array, law: StepLaw) -> Array:
    """Return ln(density in P / density in Q) of all that is seen: by Neyman and Pearson no test beats it.

    Independent steps: the sum over steps of the ratios of their mixtures. Else the sum over epochs: an epoch is a
    mixture over the step that draws the record, all steps alike.
    """
    p, q = law.shifts
    return _log_density(seen, law, p) - _log_density(seen, law, q)


def _log_density(seen: Array, law: StepLaw, shift: float) -> Array:
    """Return the log density relative to that of noise alone."""
    sigma = law.noise_multiplier
    if law.sampling in _ONCE_AN_EPOCH:
        gains = (shift * seen - shift**2 / 2) / sigma**2
        return (logsumexp(gains, axis=-1) - np.log(seen.shape[-1])).sum(axis=-1)
    total = np.full(seen.shape, -np.inf)
    for count, probability in enumerate(law.counts):
        if probability > 0:
            gain = (count * shift * seen - (count * shift) ** 2 / 2) / sigma**2
            total = np.logaddexp(total, np.log(probability) + gain)
    return total.sum(axis=(-2, -1))


def epoch_maxima(seen: Array, law: StepLaw) -> Array:
    """Return the log likelihood ratio of the largest step of every epoch, summed over epochs.

    Where one of T steps draws the record the largest has the distribution function Phi((x - shift)/sigma)
    Phi(x/sigma)^(T-1). Source: the statistic of Chua et al. 2024, arXiv 2403.17673.
    """
    largest, steps, sigma = seen.max(axis=-1), seen.shape[-1], law.noise_multiplier
    p, q = (_log_density_of_maximum(largest / sigma, shift / sigma, steps) for shift in law.shifts)
    return (p - q).sum(axis=-1)


def _log_density_of_maximum(x: Array, shift: float, steps: int) -> Array:
    """Return the log density of the largest of `steps` standard normals, one of them shifted."""
    moved = -((x - shift) ** 2) / 2
    if steps == 1:
        return moved
    others = np.log(steps - 1) - x**2 / 2 - log_ndtr(x) + log_ndtr(x - shift)
    return np.logaddexp(moved, others) + (steps - 1) * log_ndtr(x)


def repeated_batches(seen: Array, law: StepLaw) -> Array:
    """Return the log likelihood ratio where all epochs draw the same batches: that of the mean over epochs."""
    return _averaged(seen, law, axis=1)


def repeated_batch(seen: Array, law: StepLaw) -> Array:
    """Return the log likelihood ratio where all steps of an epoch draw one batch: that of the mean over steps."""
    return _averaged(seen, law, axis=2)


def _averaged(seen: Array, law: StepLaw, axis: int) -> Array:
    """Return the ratio of the mean along an axis, which has less noise, and the shifts of one step."""
    quieter = replace(law, noise_multiplier=law.noise_multiplier / np.sqrt(seen.shape[axis]))
    return log_likelihood_ratio(seen.mean(axis=axis, keepdims=True), quieter)


def total(seen: Array) -> Array:
    """Return the sum over all steps: best where every step draws the record."""
    return seen.sum(axis=(-2, -1))


def energy(seen: Array) -> Array:
    """Return minus the sum of squares: best where the scale of a message differs between the worlds."""
    return -np.square(seen).sum(axis=(-2, -1))


def repeated_noise(seen: Array, law: StepLaw) -> Array:
    """Return how close the difference of any two messages of a trial comes to what the record adds: -ln distance.

    Where two steps have the same noise their difference is free of it, so it is the record's contribution to rounding;
    else the closest of K messages stay about sigma/K^2 away.
    """
    flat = seen.reshape(len(seen), -1)
    both = np.concatenate([flat, flat + law.shifts[0]], axis=1)
    order = np.argsort(both, axis=1)
    moved = order >= flat.shape[1]
    gaps = np.diff(np.take_along_axis(both, order, axis=1), axis=1)
    closest = np.where(moved[:, 1:] != moved[:, :-1], gaps, np.inf).min(axis=1)
    return -np.log(np.maximum(closest, _EXACT))


def simulate(law: StepLaw, shape: tuple[int, int, int], *, world: int, seed: int) -> Array:
    """Return observations of shape (trials, epochs, steps) drawn from the law, of world P (0) or Q (1)."""
    draw = generator(seed, "participants", client=world)
    noise = law.noise_multiplier * draw.standard_normal(shape)
    if law.sampling in _ONCE_AN_EPOCH:
        drawn = np.arange(shape[2]) == draw.integers(shape[2], size=(*shape[:2], 1))
    else:
        drawn = draw.choice(len(law.counts), size=shape, p=np.array(law.counts) / sum(law.counts))
    return noise + law.shifts[world] * drawn


def best_statistics(law: StepLaw) -> dict[str, Statistic]:
    """Return by name what is best where the law holds: the likelihood ratio, and for epochs that of their maxima."""
    named: dict[str, Statistic] = {"log_likelihood_ratio": partial(log_likelihood_ratio, law=law)}
    if law.sampling in _ONCE_AN_EPOCH:
        named["epoch_maxima"] = partial(epoch_maxima, law=law)
    return named


def statistics(law: StepLaw) -> dict[str, Statistic]:
    """Return every statistic by name: those that are best for the law, and those that faults give away."""
    with_law = (epoch_maxima, repeated_batches, repeated_batch, repeated_noise)
    named: dict[str, Statistic] = {each.__name__: partial(each, law=law) for each in with_law}
    return best_statistics(law) | named | {each.__name__: each for each in (total, energy)}
