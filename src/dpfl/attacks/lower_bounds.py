"""Lower bounds on epsilon: worst pairs of records, tests between two worlds, and their thresholds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, logsumexp
from scipy.stats import beta, binom

from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.numerics import integer, real, reals
from dpfl.accounting.samplers import Sampling
from dpfl.randomness import generator

# Two neighbouring data sets that differ as much as a sampler lets an observer of every step see.
#
# All gradients are along one direction, in units of the clip norm. Where batch sizes are fixed, the other records (the
# hostile mates) all contribute -1: a step without the record in question then sums to minus its batch size, which is
# public, and the record shows as what it adds to that. Where batch sizes are random, mates would hide it: they are
# silent and contribute nothing. Source: chua2024, for shuffled batches.

_FIXED_SIZE = {Sampling.SHUFFLED, Sampling.FIXED, Sampling.WITH_REPLACEMENT}
_LENGTH = 1e3
"""Length of an attacker's gradient over the clip norm: it is always clipped."""


@dataclass(frozen=True)
class WorstPair:
    """Contributions of records in the worlds P and Q, in clip norms.

    The record in question contributes `canary[0]` in P and `canary[1]` in Q, where None means that Q has no such
    record; every other one contributes `mates`.
    """

    canary: tuple[float, float | None]
    mates: float

    @property
    def shifts(self) -> tuple[float, float]:
        """Gain in P and in Q of a step that draws the record, or its empty slot, over a batch of mates alone."""
        here, there = self.canary
        return here - self.mates, (there or 0.0) - self.mates

    def gradients(self, records: int, trials: int, *, world: int, clip_norm: float) -> NDArray[np.float64]:
        """Return signed gradients along a direction, (trials, records), of P (world 0) or Q (world 1).

        In trial v the record in question is number v. All but zeros are a thousand times longer than `clip_norm`. P has
        `records` records, Q one less where it is removed. Raises ValueError for more trials than records.
        """
        if trials > records:
            raise ValueError(f"trials: {trials} trials need as many records, not {records}")
        contribution = self.canary[world]
        gradients = np.full((trials, records - (contribution is None)), _LENGTH * clip_norm * self.mates)
        if contribution is not None:
            gradients[np.arange(trials), np.arange(trials)] = _LENGTH * clip_norm * contribution
        return gradients


def worst_pair(sampling: Sampling, neighbouring: Neighbouring) -> WorstPair:
    """Return the pair for a sampler and a neighbouring relation."""
    other = {Neighbouring.ZERO_OUT: 0.0, Neighbouring.ADD_OR_REMOVE: None, Neighbouring.REPLACE_ONE: -1.0}
    return WorstPair((1.0, other[neighbouring]), -1.0 if sampling in _FIXED_SIZE else 0.0)


# Statistics that distinguish two worlds from what an observer of every step sees; each is larger in world P.
#
# Observations have shape (trials, epochs, steps), in clip norms before division, and are relative to what a batch of
# mates sums to: a step has noise of standard deviation sigma, plus a shift where it draws the record in question,
# p in world P and q in world Q.

Array = NDArray[np.float64]
Statistic = Callable[[Array], Array]
"""Maps observations (trials, epochs, steps) to scores (trials,)."""
Worlds = tuple[Array, Array]
"""Observations (trials, epochs, steps) of the worlds P and Q."""
_ONCE_AN_EPOCH = (Sampling.SHUFFLED, Sampling.BALLS_IN_BINS)
_EXACT = 1e-15
"""Closest approach that counts: differences below it are rounding."""
_RAREST = 1e-15
_LEAST_NOISE = 1e-3


@dataclass(frozen=True)
class StepLaw:
    """Law of one step: how often it draws the record, and what the observer then sees.

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


def log_likelihood_ratio(observed: Array, law: StepLaw) -> Array:
    """Return ln(density in P / density in Q) of all observations: by Neyman and Pearson no test beats it.

    Independent steps: the sum over steps of the ratios of their mixtures. Else the sum over epochs: an epoch is a
    mixture over the step that draws the record, all steps alike.
    """
    p, q = law.shifts
    return _log_density(observed, law, p) - _log_density(observed, law, q)


def _log_density(observed: Array, law: StepLaw, shift: float) -> Array:
    """Return the log density relative to that of noise alone."""
    sigma = law.noise_multiplier
    if law.sampling in _ONCE_AN_EPOCH:
        gains = (shift * observed - shift**2 / 2) / sigma**2
        return (logsumexp(gains, axis=-1) - np.log(observed.shape[-1])).sum(axis=-1)
    total = np.full(observed.shape, -np.inf)
    for count, probability in enumerate(law.counts):
        if probability > 0:
            gain = (count * shift * observed - (count * shift) ** 2 / 2) / sigma**2
            total = np.logaddexp(total, np.log(probability) + gain)
    return total.sum(axis=(-2, -1))


def epoch_maxima(observed: Array, law: StepLaw) -> Array:
    """Return the log likelihood ratio of the largest step of every epoch, summed over epochs.

    Where one of T steps draws the record the largest has the distribution function Phi((x - shift)/sigma)
    Phi(x/sigma)^(T-1). Source: the statistic of chua2024.
    """
    largest, steps, sigma = observed.max(axis=-1), observed.shape[-1], law.noise_multiplier
    p, q = (_log_density_of_maximum(largest / sigma, shift / sigma, steps) for shift in law.shifts)
    return (p - q).sum(axis=-1)


def _log_density_of_maximum(x: Array, shift: float, steps: int) -> Array:
    """Return the log density of the largest of `steps` standard normals, one of them shifted."""
    moved = -((x - shift) ** 2) / 2
    if steps == 1:
        return moved
    others = np.log(steps - 1) - x**2 / 2 - log_ndtr(x) + log_ndtr(x - shift)
    return np.logaddexp(moved, others) + (steps - 1) * log_ndtr(x)


def repeated_batches(observed: Array, law: StepLaw) -> Array:
    """Return the log likelihood ratio where all epochs draw the same batches: the ratio of the mean over epochs."""
    return _averaged(observed, law, axis=1)


def repeated_batch(observed: Array, law: StepLaw) -> Array:
    """Return the log likelihood ratio where all steps of an epoch draw one batch: the ratio of the mean over steps."""
    return _averaged(observed, law, axis=2)


def _averaged(observed: Array, law: StepLaw, axis: int) -> Array:
    """Return the ratio of the mean along an axis, which has less noise, and the shifts of one step."""
    quieter = replace(law, noise_multiplier=law.noise_multiplier / np.sqrt(observed.shape[axis]))
    return log_likelihood_ratio(observed.mean(axis=axis, keepdims=True), quieter)


def total(observed: Array) -> Array:
    """Return the sum over all steps: best where every step draws the record."""
    return observed.sum(axis=(-2, -1))


def energy(observed: Array) -> Array:
    """Return minus the sum of squares: best where the scale of a message differs between the worlds."""
    return -np.square(observed).sum(axis=(-2, -1))


def repeated_noise(observed: Array, law: StepLaw) -> Array:
    """Return how close the difference of any two messages of a trial comes to what the record adds: -ln distance.

    Where two steps have the same noise their difference is free of it, so it is the record's contribution to rounding;
    else the closest of K messages stay about sigma/K^2 away.
    """
    flat = observed.reshape(len(observed), -1)
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
    """Return by name what is best if the law holds: the likelihood ratio, and for epochs their maxima's."""
    named: dict[str, Statistic] = {"log_likelihood_ratio": partial(log_likelihood_ratio, law=law)}
    if law.sampling in _ONCE_AN_EPOCH:
        named["epoch_maxima"] = partial(epoch_maxima, law=law)
    return named


def statistics(law: StepLaw) -> dict[str, Statistic]:
    """Return every statistic by name: those that are best for the law, and those that expose faults."""
    with_law = (epoch_maxima, repeated_batches, repeated_batch, repeated_noise)
    named: dict[str, Statistic] = {each.__name__: partial(each, law=law) for each in with_law}
    return best_statistics(law) | named | {each.__name__: each for each in (total, energy)}


# Lower confidence bounds on epsilon from the error rates of a test between two neighbouring data sets.
#
# A mechanism that is (epsilon, delta)-DP allows no test a true positive rate above e^epsilon FPR + delta
# (wasserman2010; kairouz2015). Error rates are counted over independent trainings, so they have exact binomial
# confidence bounds, and the inequality turns these into a bound on epsilon.

Claims = Sequence[tuple[float, float]]
"""Points (epsilon, delta), each claimed to hold."""


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


_THRESHOLDS, _ABOVE = 200, 100


# Tests between two worlds: chosen on some trainings, counted on others.
#
# The trainings that are counted have no part in the choice, so one confidence bound holds whatever was tried.


@dataclass(frozen=True)
class Evidence:
    """The test that was strongest by design, and its errors on trainings that had no part in the choice.

    With `reversed` the test calls world Q where the statistic is at most `threshold`, and `errors` count Q as positive;
    else it calls P where the statistic is at least that. `excess` is `log_likelihood_excess` of the bounds of the
    errors: above 0 it refutes the claims at the confidence that was asked for.
    """

    statistic: str
    reversed: bool
    threshold: float
    errors: TestErrors
    excess: float


def strongest_test(
    design: Worlds,
    evaluation: Worlds,
    statistics: Mapping[str, Statistic],
    claims: Claims,
    confidence: float,
) -> Evidence:
    """Return the test that is strongest against `claims` on the trials of `design`, counted on `evaluation`.

    Each is a pair of observations (trials, epochs, steps) from the worlds P and Q; `design` may be simulated. The
    trials of `evaluation` are independent of it. Guarantee: where the claims hold and trials are independent, the
    excess is above 0 with probability 1 - confidence at most. Raises ValueError naming what has no trials or is not
    finite.
    """
    for name, pair in (("design", design), ("evaluation", evaluation)):
        if not all(len(each) and np.isfinite(each).all() for each in pair):
            raise ValueError(f"{name}: trials of finite numbers are needed from both worlds")
    best: tuple[float, str, bool, float] = (-np.inf, next(iter(statistics)), False, np.inf)
    for name, statistic in statistics.items():
        scores = statistic(design[0]), statistic(design[1])
        for backwards in (False, True):
            counted = len(evaluation[backwards]), len(evaluation[not backwards])
            gain, threshold = _best_threshold(*_oriented(*scores, backwards), counted, claims, confidence)
            if gain > best[0]:
                best = gain, name, backwards, threshold
    _, name, backwards, threshold = best
    positive, negative = _oriented(statistics[name](evaluation[0]), statistics[name](evaluation[1]), backwards)
    errors = TestErrors(
        int((positive >= threshold).sum()), len(positive), int((negative >= threshold).sum()), len(negative)
    )
    excess = float(log_likelihood_excess(*errors.rates(confidence), claims))
    return Evidence(name, backwards, -threshold if backwards else threshold, errors, excess)


def _oriented(scores_in: Array, scores_out: Array, backwards: bool) -> tuple[Array, Array]:
    """Return the scores of the world that counts as positive, large where it is called, and those of the other."""
    return (-scores_out, -scores_in) if backwards else (scores_in, scores_out)


def _shares(trials: int) -> Array:
    """Return the shares of scores at which a test may cut: even ones, and rare ones that enough trials are above."""
    even = np.linspace(0, 1, _THRESHOLDS)
    if trials <= _ABOVE * _THRESHOLDS:
        return even
    return np.append(even, 1 - np.geomspace(_ABOVE / trials, 1 / _THRESHOLDS, _THRESHOLDS))


def _best_threshold(
    positive: Array, negative: Array, counted: tuple[int, int], claims: Claims, confidence: float
) -> tuple[float, float]:
    """Return the largest excess over thresholds, and the threshold, where `counted` trials show the scores' rates."""
    thresholds = np.unique(np.concatenate([np.quantile(each, _shares(len(each))) for each in (positive, negative)]))
    rates = (1 - np.searchsorted(np.sort(each), thresholds) / len(each) for each in (positive, negative))
    right, wrong = (rate * count for rate, count in zip(rates, counted, strict=True))
    miss = (1 - confidence) / 2
    lower, _ = binomial_bounds(right, counted[0], miss)
    _, upper = binomial_bounds(wrong, counted[1], miss)
    gains = log_likelihood_excess(lower, upper, claims)
    best = int(np.argmax(gains))
    return float(gains[best]), float(thresholds[best])
