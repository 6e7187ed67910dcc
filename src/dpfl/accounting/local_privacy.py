"""Privacy of silos (ISRL-DP): epsilon of what they send, their noise, and the rates of lowy2021 with their rounds.

Noise that each client adds in lowy2021, if no server is trusted, and the epsilon that it spends. Everywhere n =
`records` of one client, L = `lipschitz` bounds a record's gradient, and two data sets of a client are neighbours when
one record is replaced. The noise is added to the mean of a batch's K gradients.

Rates of lowy2021 and the rounds with which its theorems reach them, equation by equation. Every rate is the text inside
O(.), O~(.) or Omega~(.), with constant 1 and without the logarithms that a tilde hides: it says how a risk scales, not
how large it is. L = `lipschitz` bounds the gradient of every record's loss, D = `radius` bounds |w|, mu =
`strong_convexity`, beta = `smoothness`; M = `clients_per_round` is 1/E[1/M_r] and need not be whole, N = `clients`, n =
`records` of one client, d = `features`. A number of rounds is real too: a run takes its ceiling. All arguments are
above 0, delta below 1; arrays broadcast. Every function raises ValueError naming the argument.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr
from scipy.stats import binom

from dpfl.accounting import gaussian_dp, poisson_gaussian
from dpfl.accounting.gaussian_dp import theta
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.numerics import Array, by_element, integer, integers, least_noise, real, reals
from dpfl.accounting.privacy_profiles import composed_epsilon, pair_epsilon_below
from dpfl.accounting.samplers import Sampling
from dpfl.errors import InputError

# Noise that each client adds in lowy2021, where no server is trusted, and the epsilon that it spends.

_LOST = 1e-6
"""Share of delta that cutting the privacy loss at its upper end may cost."""
_REACH, _OUTCOMES = 12.0, 100_001


def advanced_composition_variance(
    *,
    epsilon: ArrayLike,
    delta: ArrayLike,
    lipschitz: ArrayLike,
    rounds: ArrayLike,
    records: ArrayLike,
    batch_share: ArrayLike = 1.0,
) -> Array:
    """Return sigma^2 = 256 L^2 R ln(2.5 R/delta) ln(2/delta) / (n^2 epsilon^2) per coordinate; arrays broadcast.

    Guarantee: R = `rounds` steps on batches of at least `least_batch_advanced` records drawn with replacement
    are (epsilon, delta)-LDP. Source: lowy2021 Theorems 2.1 and 2.3, under epsilon <= ln(2/delta). The authors'
    scripts put R K/n for R in the first logarithm: their `batch_share` is K/n, in (0, 1]; the guarantee is stated for
    1. Raises ValueError naming the argument.
    """
    epsilon, delta, lipschitz, rounds, records = _run(epsilon, delta, lipschitz, rounds, records)
    if np.any(epsilon > np.log(2 / delta)):
        raise ValueError("epsilon must be at most ln(2/delta) (lowy2021 Theorem 2.1)")
    logarithms = np.log(2.5 * rounds * reals("batch_share", batch_share, above=0, at_most=1) / delta) * np.log(
        2 / delta
    )
    return 256 * lipschitz**2 * rounds * logarithms / (records * epsilon) ** 2


def moments_variance(
    *, epsilon: ArrayLike, delta: ArrayLike, lipschitz: ArrayLike, rounds: ArrayLike, records: ArrayLike
) -> Array:
    """Return sigma^2 = 8 L^2 R ln(1/delta) / (n^2 epsilon^2), of the authors' later script; arrays broadcast.

    No guarantee of its own: it is meant for epsilon <= `largest_moments_epsilon`, and even there `epsilon`
    below shows more spent than asked for. `rounds` counts noisy steps: K R of them for local SGD.
    Raises ValueError naming the argument. Source: the lowy2021 scripts.
    """
    epsilon, delta, lipschitz, rounds, records = _run(epsilon, delta, lipschitz, rounds, records)
    return 8 * lipschitz**2 * rounds * np.log(1 / delta) / (records * epsilon) ** 2


def one_pass_variance(*, epsilon: ArrayLike, delta: ArrayLike, lipschitz: ArrayLike) -> Array:
    """Return sigma^2 = 8 L^2 ln(1.25/delta) / epsilon^2: each record used once, alone; arrays broadcast.

    Guarantee: (epsilon, delta)-LDP, by the Gaussian mechanism of sensitivity 2L and parallel composition.
    0 < `epsilon` <= 1, `delta` in (0, 1). Source: lowy2021, one-pass Algorithm 2. Raises ValueError naming
    the argument.
    """
    epsilon, delta = reals("epsilon", epsilon, above=0, at_most=1), reals("delta", delta, above=0, below=1)
    return 8 * reals("lipschitz", lipschitz, above=0) ** 2 * np.log(1.25 / delta) / epsilon**2


def least_batch_advanced(*, epsilon: ArrayLike, delta: ArrayLike, rounds: ArrayLike, records: ArrayLike) -> Array:
    """Return n epsilon / (4 sqrt(2 R ln(2/delta))), the batch size that Theorem 2.1 of lowy2021 asks for at least.

    A real number: the theorem's K is its ceiling, the authors' scripts take its floor. Arrays broadcast.
    Raises ValueError naming the argument.
    Source: lowy2021 Theorem 2.1.
    """
    epsilon, delta, _, rounds, records = _run(epsilon, delta, 1.0, rounds, records)
    return records * epsilon / (4 * np.sqrt(2 * rounds * np.log(2 / delta)))


def least_batch_moments(*, epsilon: ArrayLike, rounds: ArrayLike, records: ArrayLike) -> Array:
    """Return n sqrt(epsilon / (4 R)), the batch size that moments_variance is meant for; else as above.

    Source: the lowy2021 scripts, after abadi2016, Theorem 1.
    """
    epsilon, _, _, rounds, records = _run(epsilon, 0.5, 1.0, rounds, records)
    return records * np.sqrt(epsilon / (4 * rounds))


def largest_moments_epsilon(*, batch_size: ArrayLike, steps: ArrayLike, records: ArrayLike) -> Array:
    """Return 4 T B^2 / n^2, up to which moments_variance is meant for T = `steps` on batches of B records.

    Local SGD with K local steps on single records has B = 1 and T = K R, so 4 K R / n^2. Arrays broadcast.
    Raises ValueError naming the argument.
    Source: the lowy2021 scripts, after abadi2016, Theorem 1.
    """
    batch, steps = integers("batch_size", batch_size, at_least=1), integers("steps", steps, at_least=1)
    return 4 * steps * (batch / integers("records", records, at_least=1)) ** 2


def epsilon(
    *,
    noise_multiplier: ArrayLike,
    batch_size: ArrayLike,
    records: ArrayLike,
    steps: ArrayLike,
    delta: ArrayLike,
    sampling: Sampling,
) -> float | NDArray[np.float64]:
    """Return epsilon at `delta` of `steps` noisy steps with per-record clipping, under replace_one; arrays broadcast.

    `noise_multiplier` > 0 is sigma K / L: replacing a record in j of the K = `batch_size` slots moves the
    step by 2 j / noise_multiplier deviations. Guarantee: (epsilon, delta)-LDP, an upper bound on what is spent.
    FULL (K = n) is exact. FIXED composes the profile of sampling without replacement, the same in both orders.
    WITH_REPLACEMENT composes the profile of balle2018, Theorem 10: j ~ Bin(K, 1/n), an upper
    bound, often a loose one: see `with_replacement_known_epsilon`.
    Raises ValueError naming the argument; other samplings are refused.
    Sources: balle2018, Theorem 9 (FIXED) and 10; zhu2022, Theorem 10 (composition); vandijk2023 (6) (FULL).
    """
    if not any(sampling is known for known in (Sampling.FULL, Sampling.FIXED, Sampling.WITH_REPLACEMENT)):
        raise ValueError(f"sampling must be FULL, FIXED or WITH_REPLACEMENT here, got {sampling!r}")

    def one(noise_multiplier: float, batch_size: float, records: float, steps: float, delta: float) -> float:
        move = 2 / real("noise_multiplier", noise_multiplier, above=0)
        batch, n, count, failure = _steps(batch_size, records, steps, delta)
        if sampling is Sampling.WITH_REPLACEMENT:
            return _sampled_epsilon(_Multiplicity(batch, n, _LOST * failure / count), move, count, failure)
        if batch > n or (sampling is Sampling.FULL and batch != n):
            raise ValueError(f"batch_size {batch} does not fit {n} records under sampling {sampling.value!r}")
        if batch == n:
            return float(gaussian_dp.epsilon(failure, move * math.sqrt(count)))
        return _sampled_epsilon(_Once(batch / n), move, count, failure)

    return by_element(
        one, noise_multiplier=noise_multiplier, batch_size=batch_size, records=records, steps=steps, delta=delta
    )


def clipped_mean_epsilon(
    *,
    sigma_over_lipschitz: float,
    batch_size: int,
    records: int,
    steps: int,
    delta: float,
    sampling: Sampling = Sampling.WITH_REPLACEMENT,
) -> float:
    """Return epsilon at `delta` where the batch's MEAN gradient is clipped to L, as the lowy2021 scripts do.

    Then a record that is drawn at all (into K = `batch_size` slots, WITH_REPLACEMENT or FIXED) may turn the mean
    around: it moves by 2L however small its share. `sigma_over_lipschitz` > 0. Relation: replace_one. An upper bound
    that `clipped_mean_known_epsilon` comes near. Raises ValueError naming the argument; other samplings are refused.
    Source: derived, with balle2018, Theorems 9 and 10, at a move of 2L for any number of draws.
    """
    chance, move = _turn(sigma_over_lipschitz, batch_size, records, sampling)
    _, _, count, failure = _steps(batch_size, records, steps, delta)
    return _sampled_epsilon(_Once(chance), move, count, failure)


def clipped_mean_known_epsilon(
    *,
    sigma_over_lipschitz: float,
    batch_size: int,
    records: int,
    steps: int,
    delta: float,
    sampling: Sampling = Sampling.WITH_REPLACEMENT,
) -> float:
    """Return epsilon at `delta` that clipping the batch's mean gradient is known to spend; all as for
    `clipped_mean_epsilon`.

    Gradients may be of any length, for only their mean is clipped. If all records but one pull to -L, and that one
    is so long that a mean with it is clipped to L, then a step shows N(2L, sigma^2) where it is drawn and N(0, sigma^2)
    else, against N(0, sigma^2) if it also pulls to -L: the pair of a Poisson step.
    Guarantee: a lower bound of what the worst data set spends, so no privacy guarantee. Source: derived.
    """
    chance, move = _turn(sigma_over_lipschitz, batch_size, records, sampling)
    _, _, count, failure = _steps(batch_size, records, steps, delta)
    run = {"noise_multiplier": 1 / move, "sample_rate": chance, "steps": count, "delta": failure}
    return poisson_gaussian.epsilon_interval(**run, neighbouring=Neighbouring.ADD_OR_REMOVE)[0]


def _turn(sigma_over_lipschitz: float, batch_size: int, records: int, sampling: Sampling) -> tuple[float, float]:
    """Return the chance that a batch draws a record, and how far it then moves a clipped mean, in deviations."""
    if not any(sampling is known for known in (Sampling.FIXED, Sampling.WITH_REPLACEMENT)):
        raise ValueError(f"sampling must be FIXED or WITH_REPLACEMENT here, got {sampling!r}")
    move = 2 / real("sigma_over_lipschitz", sigma_over_lipschitz, above=0)
    batch, n = integer("batch_size", batch_size, at_least=1), integer("records", records, at_least=1)
    if sampling is Sampling.FIXED and batch > n:
        raise ValueError(f"batch_size {batch} does not fit {n} records under sampling {sampling.value!r}")
    return batch / n if sampling is Sampling.FIXED else _chance(batch, n), move


def with_replacement_known_epsilon(
    *, noise_multiplier: float, batch_size: int, records: int, steps: int, delta: float
) -> float:
    """Return epsilon at `delta` that WITH_REPLACEMENT sampling is known to spend; arguments as for `epsilon`.

    A data set whose other records all have the gradient opposite to the record's own attains the mixture of
    Gaussians sum_j Bin(j; K, 1/n) N(2 j / noise_multiplier, 1) against N(0, 1): what the worst data set spends
    is between this and `epsilon`. Guarantee: a lower bound of what is spent, so no privacy guarantee.
    Source: derived; the mixture is composed from below by privacy_profiles. Raises ValueError naming the argument.
    """
    move = 2 / real("noise_multiplier", noise_multiplier, above=0)
    batch, n, count, failure = _steps(batch_size, records, steps, delta)
    # Several draws counted as one are the pair of a Poisson step, which has a sharper accountant where draws are rare.
    rate = _chance(batch, n)
    run = {"noise_multiplier": 1 / move, "sample_rate": rate, "steps": count, "delta": failure}
    once = poisson_gaussian.epsilon_interval(**run, neighbouring=Neighbouring.ADD_OR_REMOVE)[0]
    if batch == 1:
        return once
    drawn = _Multiplicity(batch, n, _LOST * failure / count)
    shifts = np.concatenate([[0.0], drawn.times]) * move
    weights = np.concatenate([[1 - drawn.weights.sum()], drawn.weights])
    edges = np.linspace(-_REACH, shifts[-1] + _REACH, _OUTCOMES)
    logs = np.full(edges.size - 1, -np.inf)
    for weight, shift in zip(weights, shifts, strict=True):
        if weight > 0:
            logs = np.logaddexp(logs, math.log(weight) + _log_masses(edges - shift))
    losses = np.maximum.accumulate(logs - _log_masses(edges))
    support = logs > -690
    return max(once, pair_epsilon_below(losses[support], np.exp(logs[support]), steps=count, delta=failure))


def _log_masses(edges: Array) -> Array:
    """The logarithm of the mass of N(0, 1) in each cell between the edges, with its digits in both tails."""
    sides = log_ndtr(-np.abs(edges))
    middle = edges[1:] + edges[:-1] > 0
    near, far = np.where(middle, sides[:-1], sides[1:]), np.where(middle, sides[1:], sides[:-1])
    inside = edges[1:] * edges[:-1] < 0  # 0 is in the cell: both tails are outside of it
    tails = np.log1p(-np.exp(np.where(inside, -1.0, np.minimum(far - near, -1e-300))))
    return np.where(inside, np.log1p(-np.exp(near) - np.exp(far)), near + tails)


class _Once:
    """The record is drawn with probability `rate`, and then moves the step by one unit."""

    def __init__(self, rate: float) -> None:
        self.rate, self.times, self.weights, self.ignored = rate, np.ones(1), np.array([rate]), 0.0


class _Multiplicity:
    """The record fills Bin(batch, 1/n) slots and moves the step by as many units; rarer numbers are `ignored`."""

    def __init__(self, batch: int, n: int, rarest: float) -> None:
        # Not by binom.isf, which looks at 1 - rarest. By Chernoff's bound, counts above the last one are rarer still.
        counts = np.arange(min(batch, int(7 * batch / n - math.log(rarest)) + 46) + 1)
        most = max(1, int(np.argmin(binom.sf(counts, batch, 1 / n) > 1e-3 * rarest)))
        self.times = np.arange(1.0, most + 1)
        self.weights = binom.pmf(self.times, batch, 1 / n)
        self.rate, self.ignored = float(binom.sf(0, batch, 1 / n)), float(binom.sf(most, batch, 1 / n))


def _sampled_epsilon(drawn: _Once | _Multiplicity, move: float, steps: int, delta: float) -> float:
    """Compose the privacy profile of one step: advanced joint convexity, then a group profile for each multiplicity."""

    def profile(epsilon: Array) -> Array:
        # e^epsilon = 1 + rate (e^inner - 1), solved for inner so that nothing overflows.
        inner = epsilon - math.log(drawn.rate) + np.log1p(-(1 - drawn.rate) * np.exp(-epsilon))
        inner = np.maximum(inner, 0.0)
        return drawn.weights @ theta(inner, drawn.times[:, None] * move) + drawn.ignored

    lost = 2 * _LOST * delta / steps
    largest = 1.0
    while profile(np.array([largest]))[0] > lost:
        largest *= 2
    if profile(np.zeros(1))[0] > lost:
        # As `zero_between`; the training digests keep this text until the runs are trained anew.
        largest = (
            brentq(lambda x: math.log(max(profile(np.array([x]))[0], 1e-300) / lost), 0.0, largest, xtol=1e-4)  # pyright: ignore[reportOperatorIssue]
            + 1e-3
        )
    return composed_epsilon(profile, largest=largest, steps=steps, delta=delta)


def _run(
    epsilon: ArrayLike, delta: ArrayLike, lipschitz: ArrayLike, rounds: ArrayLike, records: ArrayLike
) -> tuple[Array, Array, Array, Array, Array]:
    """The arguments of a noise formula, each in its range."""
    return (
        reals("epsilon", epsilon, above=0),
        reals("delta", delta, above=0, below=1),
        reals("lipschitz", lipschitz, above=0),
        integers("rounds", rounds, at_least=1),
        integers("records", records, at_least=1),
    )


def _steps(batch_size: float, records: float, steps: float, delta: float) -> tuple[int, int, int, float]:
    """The arguments of an accountant, each in its range."""
    return (
        integer("batch_size", batch_size, at_least=1),
        integer("records", records, at_least=1),
        integer("steps", steps, at_least=1),
        real("delta", delta, above=0, below=1),
    )


def _chance(batch: int, records: int) -> float:
    """Return the chance that a record fills one of `batch` slots, each drawn from all records."""
    return -math.expm1(batch * math.log1p(-1 / records)) if records > 1 else 1.0


EPSILON_TOLERANCE = 2e-3
"""Most that epsilon at the calibrated noise of composed rounds may fall below the target, relative to it."""


@cache
def _rounds_epsilon(sigma: float, delta: float, users: int, size: int, rounds: int, sampling: Sampling) -> float:
    """Return epsilon of rounds with freshly drawn batches, once for every cell that shares it.

    Source: `epsilon` at the noise of a round of `size` users.
    """
    multiplier = math.sqrt(size) * sigma
    draws = {"batch_size": size, "records": users, "steps": rounds, "delta": delta, "sampling": sampling}
    return float(epsilon(noise_multiplier=multiplier, **draws))


@cache
def composed_sigma(epsilon: float, delta: float, users: int, size: int, rounds: int, sampling: Sampling) -> float:
    """Return a sigma that meets `epsilon` with freshly drawn batches, by at most EPSILON_TOLERANCE (relative) too much.

    `epsilon` > 0, `delta` in (0, 1), `size` the batch of the `users`. Secant steps in log-log coordinates, where the
    curve is nearly straight, from the central limit's answer: the accountant takes seconds per evaluation.
    Guarantee and source: `epsilon` of this module, solved for sigma. Raises ValueError naming the argument.
    """
    real("epsilon", epsilon, above=0)
    mu = float(gaussian_dp.mu(epsilon, delta)) / (size / users * math.sqrt(rounds))
    here = math.log(2.0 / math.sqrt(size * math.log1p(mu**2)))

    def excess(log_sigma: float) -> float:
        spent = _rounds_epsilon(math.exp(log_sigma), delta, users, size, rounds, sampling)
        return math.log(spent / epsilon) if spent > 0 else -math.inf

    result = least_noise(excess, here, slope=-2.0, room=EPSILON_TOLERANCE, longest=0.7)
    if result is None:
        raise InputError(f"epsilon: no noise was found that meets {epsilon:g} with {rounds} rounds of {size} users")
    return math.exp(result)


# Rates of lowy2021 and the rounds with which its theorems reach them, equation by equation.


def iid_convex_rate(
    *,
    lipschitz: ArrayLike,
    radius: ArrayLike,
    clients_per_round: ArrayLike,
    records: ArrayLike,
    features: ArrayLike,
    epsilon: ArrayLike,
    delta: ArrayLike,
) -> Array:
    """Return L D / sqrt(M) (1/sqrt(n) + sqrt(d ln(2/delta)) / (epsilon n)), of excess population risk.

    Source: lowy2021 (4), Theorem 2.1 for convex losses and clients of one law.
    """
    scale, m, n, d = _scale(lipschitz, radius), *_sizes(clients_per_round, records, features)
    budget, logarithm = _budget(epsilon, delta)
    return scale / np.sqrt(m) * (1 / np.sqrt(n) + np.sqrt(d * logarithm) / (budget * n))


def iid_strongly_convex_rate(
    *,
    lipschitz: ArrayLike,
    strong_convexity: ArrayLike,
    clients_per_round: ArrayLike,
    records: ArrayLike,
    features: ArrayLike,
    epsilon: ArrayLike,
    delta: ArrayLike,
) -> Array:
    """Return L^2 / (mu M) (1/n + d ln(2/delta) / (epsilon n)^2), of excess population risk.

    Source: lowy2021 (5), Theorem 2.1 for strongly convex losses and clients of one law.
    """
    scale, m, n, d = _square(lipschitz, strong_convexity), *_sizes(clients_per_round, records, features)
    budget, logarithm = _budget(epsilon, delta)
    return scale / m * (1 / n + d * logarithm / (budget * n) ** 2)


def one_pass_convex_rate(
    *,
    lipschitz: ArrayLike,
    radius: ArrayLike,
    smoothness: ArrayLike,
    clients_per_round: ArrayLike,
    records: ArrayLike,
    features: ArrayLike,
    epsilon: ArrayLike,
    delta: ArrayLike,
) -> Array:
    """Return beta D^2 / n^2 + L D sqrt(d ln(1/delta)) / (epsilon sqrt(M n)), of excess population risk.

    `smoothness` may be 0 here. Source: lowy2021 (6), Theorem 2.2 for convex losses and clients of any laws, one pass of
    R = n rounds.
    """
    scale, m, n, d = _scale(lipschitz, radius), *_sizes(clients_per_round, records, features)
    budget, logarithm = _budget(epsilon, delta, 1.0)
    curved = reals("smoothness", smoothness, at_least=0) * _above("radius", radius) ** 2
    return curved / n**2 + scale * np.sqrt(d * logarithm) / (budget * np.sqrt(m * n))


def one_pass_strongly_convex_rate(
    *,
    lipschitz: ArrayLike,
    radius: ArrayLike,
    smoothness: ArrayLike,
    strong_convexity: ArrayLike,
    clients_per_round: ArrayLike,
    records: ArrayLike,
    features: ArrayLike,
    epsilon: ArrayLike,
    delta: ArrayLike,
) -> Array:
    """Return L D exp(-n sqrt(mu/beta)) + L^2 d ln(1/delta) / (mu epsilon^2 M n), of excess population risk.

    Source: lowy2021 (7), Theorem 2.2 for strongly convex losses and clients of any laws, one pass of R = n rounds.
    """
    m, n, d = _sizes(clients_per_round, records, features)
    budget, logarithm = _budget(epsilon, delta, 1.0)
    beta, mu = _curvatures(smoothness, strong_convexity)
    start = _scale(lipschitz, radius) * np.exp(-np.sqrt(mu / beta) * n)
    return start + _square(lipschitz, strong_convexity) * d * logarithm / (budget**2 * m * n)


def erm_convex_rate(
    *,
    lipschitz: ArrayLike,
    radius: ArrayLike,
    clients_per_round: ArrayLike,
    records: ArrayLike,
    features: ArrayLike,
    epsilon: ArrayLike,
    delta: ArrayLike,
) -> Array:
    """Return L D sqrt(d ln(2/delta)) / (epsilon n sqrt(M)), of excess empirical risk.

    Source: lowy2021 (8), Theorem 2.3 for convex losses, by Algorithm 2.
    """
    scale, m, n, d = _scale(lipschitz, radius), *_sizes(clients_per_round, records, features)
    budget, logarithm = _budget(epsilon, delta)
    return scale * np.sqrt(d * logarithm) / (budget * n * np.sqrt(m))


def erm_strongly_convex_rate(
    *,
    lipschitz: ArrayLike,
    strong_convexity: ArrayLike,
    clients_per_round: ArrayLike,
    records: ArrayLike,
    features: ArrayLike,
    epsilon: ArrayLike,
    delta: ArrayLike,
) -> Array:
    """Return L^2 d ln(2/delta) / (mu epsilon^2 n^2 M), of excess empirical risk.

    Source: lowy2021 (9), Theorem 2.3 for strongly convex losses, by Algorithm 2.
    """
    scale, m, n, d = _square(lipschitz, strong_convexity), *_sizes(clients_per_round, records, features)
    budget, logarithm = _budget(epsilon, delta)
    return scale * d * logarithm / ((budget * n) ** 2 * m)


def lower_bound_convex(
    *,
    lipschitz: ArrayLike,
    radius: ArrayLike,
    clients: ArrayLike,
    records: ArrayLike,
    features: ArrayLike,
    epsilon: ArrayLike,
) -> Array:
    """Return L D (1/sqrt(N n) + min{1, sqrt(d) / (epsilon n sqrt(N))}), which excess population risk cannot go below.

    Up to constants and logarithms, for the worst convex problem, where `lower_bound_applies`.
    Source: lowy2021 (10), Theorem 3.1.
    """
    scale, m, n, d = _scale(lipschitz, radius), *_sizes(clients, records, features, "clients")
    private = np.sqrt(d) / (_above("epsilon", epsilon) * n * np.sqrt(m))
    return scale * (1 / np.sqrt(m * n) + np.minimum(1.0, private))


def lower_bound_strongly_convex(
    *,
    lipschitz: ArrayLike,
    radius: ArrayLike,
    strong_convexity: ArrayLike,
    clients: ArrayLike,
    records: ArrayLike,
    features: ArrayLike,
    epsilon: ArrayLike,
) -> Array:
    """Return L^2 / (mu n N) + L D min{1, d / (epsilon^2 n^2 N)}, which excess population risk cannot go below.

    Up to constants and logarithms, for the worst strongly convex problem, where `lower_bound_applies`.
    Source: lowy2021 (11), Theorem 3.1.
    """
    m, n, d = _sizes(clients, records, features, "clients")
    private = np.minimum(1.0, d / ((_above("epsilon", epsilon) * n) ** 2 * m))
    return _square(lipschitz, strong_convexity) / (n * m) + _scale(lipschitz, radius) * private


def lower_bound_applies(
    *, clients: ArrayLike, records: ArrayLike, epsilon: ArrayLike, round_epsilon: ArrayLike, round_delta: ArrayLike
) -> NDArray[np.bool_]:
    """Return where Theorem 3.1 speaks: epsilon <= sqrt(N), epsilon_r <= 1/n and N >= 16 ln(2/(delta_r n)).

    epsilon_r = `round_epsilon` and delta_r = `round_delta` are what one client's message of a round spends by itself;
    delta_r is the least of all rounds. Left to the caller is sum_r delta_r = o(1/(n N)^2), which no number settles.
    Source: lowy2021, Theorem 3.1.
    """
    m, n, _ = _sizes(clients, records, 1, "clients")
    each = reals("round_delta", round_delta, above=0, below=1)
    enough = m >= 16 * np.log(2 / (each * n))
    return enough & (_above("round_epsilon", round_epsilon) * n <= 1) & (_above("epsilon", epsilon) <= np.sqrt(m))


def iid_convex_rounds(
    *, clients_per_round: ArrayLike, records: ArrayLike, features: ArrayLike, epsilon: ArrayLike
) -> Array:
    """Return R = M min{n, epsilon^2 n^2 / d}, with which Algorithm 1 reaches `iid_convex_rate`.

    Source: lowy2021, Theorem 2.1, part 1.
    """
    m, n, d = _sizes(clients_per_round, records, features)
    return m * np.minimum(n, (_above("epsilon", epsilon) * n) ** 2 / d)


def iid_strongly_convex_rounds(
    *,
    lipschitz: ArrayLike,
    radius: ArrayLike,
    strong_convexity: ArrayLike,
    clients_per_round: ArrayLike,
    records: ArrayLike,
    features: ArrayLike,
    epsilon: ArrayLike,
) -> Array:
    """Return R = M min{n, epsilon^2 n^2 / d} ln(D^2 mu^2 M^2 epsilon^2 n^3 / (d L^2)), for `iid_strongly_convex_rate`.

    The logarithm is meant for arguments above e; below 1 it is negative and the theorem gives no number of rounds.
    Source: lowy2021, Theorem 2.1, part 2.
    """
    m, n, d = _sizes(clients_per_round, records, features)
    budget = _above("epsilon", epsilon)
    pull = _above("radius", radius) * _above("strong_convexity", strong_convexity) / _above("lipschitz", lipschitz)
    rounds = iid_convex_rounds(clients_per_round=m, records=n, features=d, epsilon=budget)
    return rounds * np.log((pull * m * budget) ** 2 * n**3 / d)


def erm_convex_rounds(
    *,
    clients: ArrayLike,
    clients_per_round: ArrayLike,
    records: ArrayLike,
    features: ArrayLike,
    epsilon: ArrayLike,
    batch_size: ArrayLike,
) -> Array:
    """Return R = max(sqrt(M) epsilon n / sqrt(d), epsilon^2 n^2 / d (1/K if M = N, else 1)), for `erm_convex_rate`.

    K = `batch_size` records of a client and round. Source: lowy2021, Theorem 2.3, part 1.
    """
    accelerated, drawn = _erm_rounds(clients, clients_per_round, records, features, epsilon, batch_size)
    return np.maximum(accelerated, drawn)


def shuffled_convex_rounds(
    *,
    lipschitz: ArrayLike,
    radius: ArrayLike,
    smoothness: ArrayLike,
    clients: ArrayLike,
    clients_per_round: ArrayLike,
    records: ArrayLike,
    features: ArrayLike,
    epsilon: ArrayLike,
) -> Array:
    """Return the largest of (n N epsilon)^2 / M, N/M, min{n, (epsilon n N)^2 / (d M)} and
    beta D / L min{sqrt(n M), epsilon n N / sqrt(d)}; `smoothness` may be 0 here.

    Source: lowy2021, Theorem 4.1, part 1.
    """
    plain, signal, m, n, d = _shuffled_rounds(clients, clients_per_round, records, features, epsilon)
    curved = reals("smoothness", smoothness, at_least=0) * _above("radius", radius) / _above("lipschitz", lipschitz)
    return np.maximum(plain, curved * np.minimum(np.sqrt(n * m), signal / np.sqrt(d)))


def shuffled_strongly_convex_rounds(
    *,
    lipschitz: ArrayLike,
    radius: ArrayLike,
    smoothness: ArrayLike,
    strong_convexity: ArrayLike,
    clients: ArrayLike,
    clients_per_round: ArrayLike,
    records: ArrayLike,
    features: ArrayLike,
    epsilon: ArrayLike,
) -> Array:
    """Return the largest of (n N epsilon)^2 / M, N/M, min{n, (epsilon n N)^2 / (d M)} and
    8 beta/mu ln(beta D^2 mu (epsilon n N)^2 / (d L^2)).

    Source: lowy2021, Theorem 4.1, part 2.
    """
    plain, signal, _, _, d = _shuffled_rounds(clients, clients_per_round, records, features, epsilon)
    beta, mu = _curvatures(smoothness, strong_convexity)
    start = beta * mu * (_above("radius", radius) * signal / _above("lipschitz", lipschitz)) ** 2 / d
    return np.maximum(plain, 8 * beta / mu * np.log(start))


def _above(name: str, value: ArrayLike) -> Array:
    """Return an argument that is above 0."""
    return reals(name, value, above=0)


def _scale(lipschitz: ArrayLike, radius: ArrayLike) -> Array:
    """Return L D, the scale of a convex problem's risk."""
    return _above("lipschitz", lipschitz) * _above("radius", radius)


def _square(lipschitz: ArrayLike, strong_convexity: ArrayLike) -> Array:
    """Return L^2/mu, the scale of a strongly convex problem's risk."""
    return _above("lipschitz", lipschitz) ** 2 / _above("strong_convexity", strong_convexity)


def _curvatures(smoothness: ArrayLike, strong_convexity: ArrayLike) -> tuple[Array, Array]:
    """Return beta and mu, which is at most beta."""
    beta, mu = _above("smoothness", smoothness), _above("strong_convexity", strong_convexity)
    if np.any(mu > beta):
        raise ValueError("strong_convexity must be at most smoothness")
    return beta, mu


def _budget(epsilon: ArrayLike, delta: ArrayLike, numerator: float = 2.0) -> tuple[Array, Array]:
    """Return epsilon, and ln(numerator/delta)."""
    return _above("epsilon", epsilon), np.log(numerator / reals("delta", delta, above=0, below=1))


def _sizes(
    clients: ArrayLike, records: ArrayLike, features: ArrayLike, name: str = "clients_per_round"
) -> tuple[Array, Array, Array]:
    """Return M (or N, by its name), n and d, each in its range."""
    read = reals if name == "clients_per_round" else integers
    n, d = integers("records", records, at_least=1), integers("features", features, at_least=1)
    return read(name, clients, at_least=1), n, d


def _federation(clients: ArrayLike, clients_per_round: ArrayLike) -> tuple[Array, Array]:
    """Return N and M, which is at most N."""
    n, m = integers("clients", clients, at_least=1), reals("clients_per_round", clients_per_round, at_least=1)
    if np.any(m > n):
        raise ValueError("clients_per_round must be at most clients")
    return n, m


def _erm_rounds(
    clients: ArrayLike,
    clients_per_round: ArrayLike,
    records: ArrayLike,
    features: ArrayLike,
    epsilon: ArrayLike,
    batch_size: ArrayLike,
) -> tuple[Array, Array]:
    """Return the two terms of Theorem 2.3's R, without the logarithm of its second part."""
    everyone, m = _federation(clients, clients_per_round)
    _, n, d = _sizes(m, records, features)
    batch, signal = integers("batch_size", batch_size, at_least=1), _above("epsilon", epsilon) * n
    if np.any(batch > n):
        raise ValueError("batch_size must be at most records")
    return np.sqrt(m / d) * signal, signal**2 / d * np.where(m == everyone, 1 / batch, 1.0)


def _shuffled_rounds(
    clients: ArrayLike, clients_per_round: ArrayLike, records: ArrayLike, features: ArrayLike, epsilon: ArrayLike
) -> tuple[Array, Array, Array, Array, Array]:
    """Return the largest of the three terms that both of Theorem 4.1's R have, epsilon n N, M, n and d."""
    everyone, m = _federation(clients, clients_per_round)
    _, n, d = _sizes(m, records, features)
    signal = _above("epsilon", epsilon) * n * everyone
    largest = np.maximum(np.maximum(signal**2, everyone) / m, np.minimum(n, signal**2 / (d * m)))
    return largest, signal, m, n, d
