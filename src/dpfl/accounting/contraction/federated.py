"""Federated learning by contraction (asoodeh2021, Algorithm 1): delta, released and stopped models, noise.

Rounds of federated SGD in which every user takes part once, and the divergence that its last model keeps. A record is
seen in round t with probability m/n. There it opens a divergence theta(head_t); every later round j multiplies it by
theta(link_j). Everything is summed in logarithms, so neither T = 1e5 factors near 1 nor terms far below 1e-308 lose
digits.

Federated SGD with a trusted aggregator that releases only its last model (asoodeh2021, Algorithm 1). n users; each
round takes m of them without replacement, averages their gradients, each with noise of standard deviation sigma_t per
coordinate, steps by eta_t and projects on a ball of radius `radius`. Each user takes part once. Neighbours differ in
one user's data (replace one). Common arguments: integers n >= m >= 1; eta, sigma > 0 scalars or schedules of T = n/m
rounds; `lipschitz` >= 0 bounds every gradient's norm; `radius` >= 0 is in the model's unit. All functions return delta
in the shape of `epsilon` and raise ValueError naming the argument.

Algorithm 1 of asoodeh2021 with the steps eta_t = 1/(lambda t) of its Corollary 1. `strong_convexity` is lambda > 0; the
noise sigma > 0 is one number; m must divide n (T = n/m rounds).

Algorithm 1 of asoodeh2021 on regularised losses, released after a drawn round. The losses are l(w, x) +
strong_convexity |w|^2/2 with l convex, `lipschitz` and smooth; `smoothness` > 0 is that of the sum, and its strong
convexity is at least `strong_convexity` > 0. m must divide n, T = n/m.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dpfl.accounting import gaussian_dp
from dpfl.accounting.contraction.kernels import contraction_factor, double_geometric, geometric
from dpfl.accounting.numerics import Array, exponential, integer, power, probability, ratio, real, reals, zero_between

# Rounds of federated SGD in which every user takes part once, and the divergence that its last model keeps.

_BLOCK = 1 << 20  # elements of an (epsilon, round) table in memory at once


@dataclass(frozen=True)
class Rounds:
    """Step sizes and noise of T rounds with m of n users each; both arrays have shape () if constant, else (T,)."""

    n: int
    m: int
    eta: Array
    sigma: Array

    @property
    def constant(self) -> bool:
        """True where every round has the same step size and noise."""
        return not self.eta.ndim and not self.sigma.ndim

    @property
    def count(self) -> float:
        """T: the length of the schedule, or n/m, which need not be an integer for a constant one."""
        return self.n / self.m if self.constant else float(max(self.eta.size, self.sigma.size))

    def whole_count(self) -> int:
        """T where a theorem needs T = n/m exactly. Raises ValueError naming m."""
        return whole_rounds(self.n, self.m)

    def head(self, lipschitz: float) -> Array:
        """2L/(sqrt(m) sigma_t): what the record moves its own round by, in units of that round's noise."""
        return ratio(2.0 * lipschitz, math.sqrt(self.m), self.sigma)

    def link(self, diameter: ArrayLike) -> Array:
        """diameter sqrt(m)/(eta_t sigma_t): how far apart two models may enter round t, in units of its noise."""
        with np.errstate(over="ignore"):
            return ratio(np.multiply(diameter, math.sqrt(self.m)), self.eta, self.sigma)


def read_rounds(n: int, m: int, eta: ArrayLike, sigma: ArrayLike) -> Rounds:
    """Check users, batch and schedules: eta and sigma are positive scalars or share the length T = n/m, rounded down.

    A schedule with one round more is refused: fewer than m users are left for it, each of whom moves the mean by more,
    and nothing is proven of such a round. Raises ValueError naming the argument.
    """
    n, m = read_users(n, m)
    schedules = {"eta": reals("eta", eta, above=0.0), "sigma": reals("sigma", sigma, above=0.0)}
    rounds = n // m
    for name, schedule in schedules.items():
        if schedule.ndim > 1 or (schedule.ndim and schedule.size != rounds):
            one_more = n % m and schedule.shape == (rounds + 1,)
            left = f": the last round would have {n % m} users, not m" if one_more else ""
            raise ValueError(f"{name} must be one number or n/m = {rounds} of them, got shape {schedule.shape}{left}")
    return Rounds(n, m, **schedules)


def read_users(n: int, m: int) -> tuple[int, int]:
    """Check integers n >= m >= 1. Raises ValueError naming the argument."""
    n, m = integer("n", n, at_least=1), integer("m", m, at_least=1)
    if m > n:
        raise ValueError(f"m must be at most n = {n}, got {m}")
    return n, m


def whole_rounds(n: int, m: int) -> int:
    """Return T = n/m. Raises ValueError naming m where it does not divide n, or as `read_users` does."""
    n, m = read_users(n, m)
    if n % m:
        raise ValueError(f"m must divide n, so that every round has m users, got n = {n} and m = {m}")
    return n // m


def non_negative(**values: float) -> tuple[float, ...]:
    """Check named scalars >= 0, in order. Raises ValueError naming the argument."""
    return tuple(real(name, value, at_least=0.0) for name, value in values.items())


def last_model(epsilon: ArrayLike, rounds: Rounds, lipschitz: float, diameter: ArrayLike) -> Array:
    """Logarithm of (m/n) sum_t theta(head_t) prod_{j>t} theta(link_j): delta of the model after round T.

    Raises ValueError naming epsilon. Source: asoodeh2021 Theorem 2.
    """
    head, link = rounds.head(lipschitz), rounds.link(diameter)
    log_rate = math.log(rounds.m / rounds.n)

    def closed_form(epsilon: Array) -> Array:
        kept = _geometric_at(geometric, epsilon, link, rounds.count)
        return gaussian_dp.log_divergence(epsilon, head) + np.log(kept) + log_rate

    def general_sum(epsilon: Array) -> Array:
        terms = gaussian_dp.log_divergence(epsilon, head) + _log_kept(gaussian_dp.log_divergence(epsilon, link))
        return _logsumexp(terms, int(rounds.count)) + log_rate

    return _over_epsilon(epsilon, rounds, closed_form, general_sum)


def stopped_model(epsilon: ArrayLike, rounds: Rounds, lipschitz: float, diameter: ArrayLike, first: int) -> Array:
    """Logarithm of the mean over tau = first..T of (1/T) sum_{t<=tau} theta(head_t) prod_{t<j<=tau} theta(link_j).

    Raises ValueError naming epsilon, or m where it does not divide n. Source: asoodeh2021 Corollary 3.
    """
    head, link = rounds.head(lipschitz), rounds.link(diameter)
    total = rounds.whole_count()
    stops = float(total - first + 1)
    log_rate = -math.log(stops) - math.log(total)

    def closed_form(epsilon: Array) -> Array:
        kept = exponential(power(gaussian_dp.log_divergence(epsilon, link), first))
        within = _geometric_at(geometric, epsilon, link, float(first)) * stops
        beyond = _geometric_at(double_geometric, epsilon, link, stops - 1.0)
        return gaussian_dp.log_divergence(epsilon, head) + np.log(within + kept * beyond) + log_rate

    def general_sum(epsilon: Array) -> Array:
        log_link = np.broadcast_to(gaussian_dp.log_divergence(epsilon, link), (len(epsilon), total))
        reach = np.zeros(log_link.shape)
        reach[:, :first] = _log_kept(log_link[:, :first])
        stays = np.log(_discounted_counts(log_link[:, first - 1 :]))
        reach[:, : first - 1] += stays[:, :1]
        reach[:, first - 1 :] += stays
        return _logsumexp(gaussian_dp.log_divergence(epsilon, head) + reach, total) + log_rate

    return _over_epsilon(epsilon, rounds, closed_form, general_sum)


def _geometric_at(function: Callable[..., Array], epsilon: Array, link: Array, terms: float) -> Array:
    """`geometric` or `double_geometric` of the factor theta(link)."""
    log_factor, gap = gaussian_dp.log_divergence(epsilon, link), gaussian_dp.complement(epsilon, link)
    return function(log_factor, gap, np.float64(terms))


def _log_kept(log_link: Array) -> Array:
    """sum of log_link over the later rounds j > t, for each t; extended precision, as 1e5 additions drift."""
    kept = np.zeros(log_link.shape)
    later = log_link[..., :0:-1].astype(np.longdouble)
    kept[..., -2::-1] = np.cumsum(later, axis=-1)
    return kept


def _discounted_counts(log_link: Array) -> Array:
    """G_t = 1 + theta_{t+1} G_{t+1}, G_T = 1, by doubling the reach: log2(T) passes of positive terms."""
    log_reach = np.full(log_link.shape, -np.inf)
    log_reach[..., :-1] = log_link[..., 1:]
    counts = np.ones(log_link.shape)
    step = 1
    while step < log_link.shape[-1]:
        counts[..., :-step] += np.exp(log_reach[..., :-step]) * counts[..., step:]
        log_reach[..., :-step] += log_reach[..., step:]
        step *= 2
    return counts


def _logsumexp(terms: Array, count: int) -> Array:
    """log of the sum over the last axis, which may be of length 1 standing for `count` equal terms."""
    terms = np.broadcast_to(terms, (*terms.shape[:-1], count))
    largest = terms.max(axis=-1)
    reference = np.where(np.isneginf(largest), 0.0, largest)
    with np.errstate(divide="ignore"):
        return reference + np.log(np.exp(terms - reference[..., None]).sum(axis=-1))


def _over_epsilon(epsilon: ArrayLike, rounds: Rounds, closed_form: Callable, general_sum: Callable) -> Array:
    """Apply the closed form to a constant schedule, else the sum to columns of epsilon, a bounded table at a time."""
    epsilon = reals("epsilon", epsilon, at_least=0.0)
    with np.errstate(over="ignore"):  # a logarithm below -1e308 is one of 0
        if rounds.constant:
            return closed_form(epsilon)
        column = epsilon.reshape(-1, 1)
        size = max(1, _BLOCK // int(rounds.count))
        blocks = [general_sum(column[start : start + size]) for start in range(0, len(column), size)]
    return np.concatenate(blocks).reshape(epsilon.shape) if blocks else np.empty(epsilon.shape)


# Federated SGD with a trusted aggregator that releases only its last model (asoodeh2021, Algorithm 1).


def federated_delta(
    epsilon: ArrayLike, *, n: int, m: int, eta: ArrayLike, sigma: ArrayLike, lipschitz: float, radius: float
) -> Array:
    """Return delta at `epsilon` of the last model, losses convex and smooth.

    Formal guarantee: (epsilon, delta)-DP for convex, `lipschitz`-Lipschitz, beta-smooth losses when every eta_t <=
    2/beta and every round has m users: floor(n/m) rounds where m does not divide n. A scalar eta and sigma use the
    closed form at T = n/m, integer or not; schedules use the sum with T = floor(n/m). At n = m this is
    theta(2L/(sqrt(n) sigma)). Source: asoodeh2021 Theorem 2.
    """
    rounds = read_rounds(n, m, eta, sigma)
    lipschitz, radius = non_negative(lipschitz=lipschitz, radius=radius)
    return probability(last_model(epsilon, rounds, lipschitz, 2.0 * radius))


def federated_delta_relaxed(
    epsilon: ArrayLike, *, n: int, m: int, eta: ArrayLike, sigma: ArrayLike, lipschitz: float, radius: float
) -> Array:
    """Return delta as `federated_delta` does, for losses neither convex nor smooth and any step size.

    A step maps the ball into a set of diameter 2 (radius + eta_t L). Formal guarantee: (epsilon, delta)-DP with one
    user's data replaced, for all `lipschitz`-Lipschitz losses. Source: asoodeh2021, text after Theorem 2.
    """
    rounds = read_rounds(n, m, eta, sigma)
    lipschitz, radius = non_negative(lipschitz=lipschitz, radius=radius)
    with np.errstate(over="ignore"):
        diameter = 2.0 * (radius + rounds.eta * lipschitz)
    return probability(last_model(epsilon, rounds, lipschitz, diameter))


def federated_delta_strongly_convex(
    epsilon: ArrayLike,
    *,
    n: int,
    m: int,
    eta: ArrayLike,
    sigma: ArrayLike,
    lipschitz: float,
    radius: float,
    smoothness: float,
    strong_convexity: float,
) -> Array:
    """Return delta as `federated_delta` does, for strongly convex losses: each step shrinks the ball by M_t.

    M_t is `contraction_factor`(eta_t, smoothness, strong_convexity), which refuses eta_t > 2/(smoothness +
    strong_convexity). Formal guarantee: that of `federated_delta`, for smooth and strongly convex losses. Source:
    asoodeh2021, text after Theorem 2, with M of asoodeh2020 eq. (14).
    """
    rounds = read_rounds(n, m, eta, sigma)
    lipschitz, radius = non_negative(lipschitz=lipschitz, radius=radius)
    shrink = contraction_factor(rounds.eta, smoothness, strong_convexity)
    return probability(last_model(epsilon, rounds, lipschitz, 2.0 * radius * shrink))


def federated_unamplified_delta(epsilon: ArrayLike, *, n: int, m: int, sigma: float, lipschitz: float) -> Array:
    """Return theta(2L/(sqrt(m) sigma)): delta of one round alone, without sampling or contraction.

    An upper bound of `federated_delta` at constant sigma whenever m divides n. Formal guarantee: (epsilon, delta)-DP
    with one user's data replaced, even if all models are published. Source: asoodeh2021, the bound named after eq.
    (11).
    """
    _, m = read_users(n, m)
    (lipschitz,) = non_negative(lipschitz=lipschitz)
    head = ratio(2.0 * lipschitz, np.sqrt(m), reals("sigma", sigma, above=0.0))
    return gaussian_dp.divergence(reals("epsilon", epsilon, at_least=0.0), head)


# Algorithm 1 of asoodeh2021 with the steps eta_t = 1/(lambda t) of its Corollary 1.


def federated_harmonic_delta(
    epsilon: ArrayLike,
    *,
    n: int,
    m: int,
    sigma: float,
    lipschitz: float,
    radius: float,
    strong_convexity: float,
    smoothness: float | None = None,
) -> Array:
    """Return delta of the last model: Theorem 2 with link_j = 2 radius lambda sqrt(m) j/sigma.

    The steps t < smoothness/(2 lambda) exceed 2/smoothness, where the theorem's diameter 2 radius does not hold: with
    `smoothness` given those steps take 2 (radius + eta_t L), without it the paper's assumption is taken on trust.
    Formal guarantee: (epsilon, delta)-DP of the last model, one user's data replaced; without `smoothness` under that
    assumption. Source: asoodeh2021 Corollary 1, first line of eq. (11), rederived.
    """
    steps = harmonic_rounds(n, m, sigma, strong_convexity)
    lipschitz, radius = non_negative(lipschitz=lipschitz, radius=radius)
    diameter = np.full(steps.eta.shape, 2.0 * radius)
    if smoothness is not None:
        too_long = steps.eta > 2.0 / real("smoothness", smoothness, above=0.0)
        with np.errstate(over="ignore"):
            diameter += np.where(too_long, 2.0 * lipschitz * steps.eta, 0.0)
    return probability(last_model(epsilon, steps, lipschitz, diameter))


def federated_harmonic_bound(
    epsilon: ArrayLike, *, n: int, m: int, sigma: float, lipschitz: float, radius: float, strong_convexity: float
) -> Array:
    """Return the closed upper bound of `federated_harmonic_delta`: every link at its largest, j = n/m.

    Holds for any n/m, integer or not. Formal guarantee: that of `federated_harmonic_delta` without `smoothness`.
    Source: asoodeh2021 eq. (11), second line.
    """
    n, m = read_users(n, m)
    smallest_step = 1.0 / (real("strong_convexity", strong_convexity, above=0.0) * n / m)
    sigma = real("sigma", sigma, above=0.0)
    lipschitz, radius = non_negative(lipschitz=lipschitz, radius=radius)
    return probability(last_model(epsilon, read_rounds(n, m, smallest_step, sigma), lipschitz, 2.0 * radius))


def harmonic_rounds(n: int, m: int, sigma: float, strong_convexity: float) -> Rounds:
    """Return the T = n/m rounds with eta_t = 1/(lambda t) and constant sigma > 0; lambda = `strong_convexity` > 0.

    Raises ValueError naming the argument, m where it does not divide n. Source: asoodeh2021 Corollary 1.
    """
    n, m = read_users(n, m)
    if n % m:
        raise ValueError(f"m must divide n for the steps 1/(lambda t), got n = {n} and m = {m}")
    rate = real("strong_convexity", strong_convexity, above=0.0)
    eta = ratio(1.0, rate, np.arange(1.0, n // m + 1.0))
    return read_rounds(n, m, eta, real("sigma", sigma, above=0.0))


# Algorithm 1 of asoodeh2021 on regularised losses, released after a drawn round.

_LEAST = 1e-300
_LOG_SIGMA_RANGE = 60.0


def step_diameter(
    eta: ArrayLike, *, radius: float, lipschitz: float, smoothness: float, strong_convexity: float
) -> Array:
    """Return a bound on the diameter of what a step of size eta > 0 makes of the ball, in the shape of `eta`.

    The least of those that hold: 2 radius M with M of asoodeh2020 eq. (14) for eta <= 2/(smoothness +
    strong_convexity); 2 radius for eta <= 2/smoothness; and 2 (|1 - eta strong_convexity| radius + eta lipschitz) for
    every eta, the paper's relaxed form with the regulariser's share, which is linear, put in.
    Raises ValueError naming the argument. Source: asoodeh2021, text after Theorem 2.
    """
    eta = reals("eta", eta, above=0.0)
    radius, lipschitz = non_negative(radius=radius, lipschitz=lipschitz)
    smoothness = real("smoothness", smoothness, above=0.0)
    curvature = real("strong_convexity", strong_convexity, at_least=0.0)
    any_step = 2.0 * (np.abs(1.0 - eta * curvature) * radius + eta * lipschitz)
    convex = np.where(eta <= 2.0 / smoothness, 2.0 * radius, math.inf)
    shortest = np.minimum(eta, 2.0 / (smoothness + curvature))
    shrunk = 2.0 * radius * contraction_factor(shortest, smoothness, curvature)
    strong = np.where(eta <= 2.0 / (smoothness + curvature), shrunk, math.inf)
    return np.minimum(np.minimum(any_step, convex), strong)


@dataclass(frozen=True)
class FederatedRelease:
    """A run whose model is released after tau ~ uniform{`first_stop`..T} rounds; first_stop = T is the last model.

    `n` users, `m` a round, which divides n; `eta` > 0, one step size or T; `lipschitz` >= 0 and `smoothness` > 0 of
    the losses, which are `strong_convexity`-strongly convex (>= 0); `radius` >= 0 of the ball. Raises ValueError
    naming the field.
    """

    n: int
    m: int
    eta: ArrayLike
    lipschitz: float
    radius: float
    smoothness: float
    strong_convexity: float
    first_stop: int

    def __post_init__(self) -> None:
        rounds = self.rounds(1.0)
        first = integer("first_stop", self.first_stop, at_least=1)
        if first > rounds.whole_count():
            raise ValueError(f"first_stop must be at most n/m = {rounds.whole_count()}, got {first}")
        self.diameter()

    def rounds(self, sigma: ArrayLike) -> Rounds:
        """Return the rounds with that noise, `sigma` > 0, one or T of them. Raises ValueError naming it."""
        return read_rounds(self.n, self.m, self.eta, sigma)

    def diameter(self) -> Array:
        """Return `step_diameter` of the step sizes, in the shape of `eta`."""
        return step_diameter(
            self.eta,
            radius=self.radius,
            lipschitz=self.lipschitz,
            smoothness=self.smoothness,
            strong_convexity=self.strong_convexity,
        )


def federated_release_delta(epsilon: ArrayLike, release: FederatedRelease, *, sigma: ArrayLike) -> Array:
    """Return delta at `epsilon` of a released model, noise `sigma` > 0, one or T of them.

    Formal guarantee: (epsilon, delta)-DP for one user's data replaced, for every step size: see `step_diameter`.
    Raises ValueError naming the argument. Source: asoodeh2021 Theorem 2, Corollary 3 and the remarks after them.
    """
    rounds, first = release.rounds(sigma), int(release.first_stop)
    return probability(stopped_model(epsilon, rounds, release.lipschitz, release.diameter(), first=first))


def release_epsilon(delta: float, release: FederatedRelease, *, sigma: float) -> float:
    """Return the least epsilon at which `federated_release_delta` is at most `delta` in (0, 1), constant `sigma`.

    Never above that of one round alone. Raises ValueError naming the argument. Formal guarantee: that of
    `federated_release_delta`. Source: asoodeh2021 Theorem 2 and Corollary 3, solved for epsilon.
    """
    delta = real("delta", delta, above=0.0, below=1.0)
    alone = round_epsilon(delta, m=release.m, sigma=sigma, lipschitz=release.lipschitz)

    def excess(epsilon: float) -> float:
        spent = float(federated_release_delta(epsilon, release, sigma=sigma))
        return math.log(max(spent, _LEAST)) - math.log(delta)

    if excess(0.0) <= 0.0:
        return 0.0
    return alone if excess(alone) >= 0.0 else _safe(excess, zero_between(excess, 0.0, alone, xtol=1e-12))


def round_epsilon(delta: float, *, m: int, sigma: float, lipschitz: float) -> float:
    """Return epsilon at `delta` where every round's model is published: the Gaussian mechanism, once a user.

    Each user is in one round, whose noise hides it with mu = 2 L/(sqrt(m) sigma); other rounds only process what was
    released. Exact for the worst case. 0 < delta < 1, m >= 1, sigma > 0, lipschitz > 0. Formal guarantee: (epsilon,
    `delta`)-DP of all models, one user's data replaced. Raises ValueError naming the argument. Source: asoodeh2021, the
    bound named after eq. (11).
    """
    sigma = real("sigma", sigma, above=0.0)
    delta = real("delta", delta, above=0.0, below=1.0)
    return float(gaussian_dp.epsilon(delta, _move(m, lipschitz) / sigma))


def release_sigma(epsilon: float, delta: float, release: FederatedRelease) -> float:
    """Return the least constant sigma at which `federated_release_delta`(epsilon) is at most `delta`.

    epsilon >= 0, 0 < delta < 1, lipschitz > 0. On the safe side of the root. Formal guarantee: with that noise the
    release is (epsilon, `delta`)-DP, as `federated_release_delta` has it. Raises ValueError naming the argument.
    Source: asoodeh2021 Theorem 2 and Corollary 3, solved for sigma.
    """
    delta = real("delta", delta, above=0.0, below=1.0)
    upper = math.log(round_sigma(epsilon, delta, m=release.m, lipschitz=release.lipschitz))

    def excess(log_sigma: float) -> float:
        spent = float(federated_release_delta(epsilon, release, sigma=math.exp(log_sigma)))
        return math.log(max(spent, _LEAST)) - math.log(delta)

    if excess(upper) >= 0.0:
        return math.exp(_safe(excess, upper))
    lower = upper - 1.0
    while excess(lower) <= 0.0:
        lower -= 1.0
        if lower < upper - _LOG_SIGMA_RANGE:
            raise ValueError(f"delta: any sigma attains {delta} at epsilon {epsilon}")
    return math.exp(_safe(excess, zero_between(excess, lower, upper, xtol=1e-12)))


def round_sigma(epsilon: float, delta: float, *, m: int, lipschitz: float) -> float:
    """Return the sigma at which `round_epsilon` is `epsilon` >= 0: analytic calibration of the Gaussian mechanism.

    Other arguments as there. Formal guarantee: with that noise all models are (epsilon, `delta`)-DP. Raises ValueError
    naming the argument. Source: as `round_epsilon`, solved for sigma; balle2018gaussian, Theorem 8, is the same curve.
    """
    epsilon = real("epsilon", epsilon, at_least=0.0)
    delta = real("delta", delta, above=0.0, below=1.0)
    return _move(m, lipschitz) / float(gaussian_dp.mu(epsilon, delta))


def _move(m: int, lipschitz: float) -> float:
    """Return 2 L / sqrt(m): how far a user moves a round's model, in units of the step times the noise's scale."""
    return 2.0 * real("lipschitz", lipschitz, above=0.0) / math.sqrt(integer("m", m, at_least=1))


def _safe(excess: Callable[[float], float], root: float) -> float:
    """Return the first point from `root` upwards where the falling function is not above 0."""
    step = 1e-13
    while excess(root) > 0.0:
        root += step
        step *= 2.0
    return root


# Noise for a wanted guarantee of asoodeh2021, Algorithm 1.

_LOG_RANGE = 690.0  # sigma is sought between e^-690 and e^690
_SPACING = 2.0**-52


def federated_sigma(
    epsilon: float, delta: float, *, n: int, m: int, eta: ArrayLike, lipschitz: float, radius: float
) -> float:
    """Return the smallest constant sigma at which `federated_delta`(epsilon) <= delta.

    epsilon >= 0, 0 < delta < 1 and lipschitz > 0 scalars; eta a scalar or a schedule; other arguments as in
    `federated_delta`. The result is on the safe side of the root, by a few units in the last place. Raises
    ValueError naming the argument, and naming delta if no sigma or any sigma attains it. Formal guarantee: with that
    noise the last model is (epsilon, delta)-DP, as `federated_delta` has it. Source: asoodeh2021 Theorem 2, whose delta
    falls as sigma grows, solved by bracketing on log sigma.
    """
    epsilon = real("epsilon", epsilon, at_least=0.0)
    delta = real("delta", delta, above=0.0, below=1.0)
    lipschitz = real("lipschitz", lipschitz, above=0.0)
    radius = real("radius", radius, at_least=0.0)
    eta = reals("eta", eta, above=0.0)
    read_rounds(n, m, eta, 1.0)

    def excess(log_sigma: float) -> float:
        """log delta above the target; floored, because the search needs finite ends."""
        rounds = read_rounds(n, m, eta, math.exp(log_sigma))
        return max(float(last_model(epsilon, rounds, lipschitz, 2.0 * radius)) - math.log(delta), -1e300)

    start = float(np.clip(math.log(2.0 * lipschitz) - 0.5 * math.log(m), -_LOG_RANGE, _LOG_RANGE))
    sigma = math.exp(zero_between(excess, *_bracket(excess, start), xtol=1e-15, rtol=4.0 * _SPACING))
    step = _SPACING
    while federated_delta(epsilon, n=n, m=m, eta=eta, sigma=sigma, lipschitz=lipschitz, radius=radius) > delta:
        sigma *= 1.0 + step
        step *= 2.0
    return sigma


def _bracket(excess: Callable[[float], float], start: float) -> tuple[float, float]:
    """Widen from `start` until `excess`, a falling function, changes sign between the two ends."""
    ends = []
    for direction, outside in ((-1.0, lambda value: value <= 0.0), (1.0, lambda value: value > 0.0)):
        end, stride = start, 1.0
        while outside(excess(end)):
            if abs(end) >= _LOG_RANGE:
                reached = "every" if direction < 0.0 else "no"
                raise ValueError(f"delta: {reached} sigma between e^-690 and e^690 attains it")
            end = float(np.clip(end + direction * stride, -_LOG_RANGE, _LOG_RANGE))
            stride *= 2.0
        ends.append(end)
    return ends[0], ends[1]


# Algorithm 1 of asoodeh2021 stopped after a random round; m must divide n.


def federated_random_stop_delta(
    epsilon: ArrayLike, *, n: int, m: int, eta: ArrayLike, sigma: ArrayLike, lipschitz: float, radius: float
) -> Array:
    """Return delta when the algorithm stops after tau ~ uniform{1..T} rounds and releases that model.

    The double sum (1/T^2) sum_tau sum_{t<=tau} theta(head_t) prod_{t<j<=tau} theta(link_j), exactly; assumptions and
    errors are those of `federated_delta`, and m must divide n. Formal guarantee: (epsilon, delta)-DP of that model, one
    user's data replaced, while the stopping round stays secret. Source: asoodeh2021 Corollary 3.
    """
    rounds = read_rounds(n, m, eta, sigma)
    lipschitz, radius = non_negative(lipschitz=lipschitz, radius=radius)
    return probability(stopped_model(epsilon, rounds, lipschitz, 2.0 * radius, first=1))


def federated_random_stop_bound(
    epsilon: ArrayLike, *, n: int, m: int, eta: ArrayLike, sigma: ArrayLike, lipschitz: float, radius: float
) -> Array:
    """Return the upper bound of `federated_random_stop_delta` from the smallest step size and the smallest noise.

    Equal to it for constant schedules. Formal guarantee: that of `federated_random_stop_delta`. Source: asoodeh2021 eq.
    (12).
    """
    rounds = read_rounds(n, m, eta, sigma)
    worst = Rounds(rounds.n, rounds.m, rounds.eta.min(), rounds.sigma.min())
    lipschitz, radius = non_negative(lipschitz=lipschitz, radius=radius)
    return probability(stopped_model(epsilon, worst, lipschitz, 2.0 * radius, first=1))


def federated_suffix_stop_delta(
    epsilon: ArrayLike,
    *,
    n: int,
    m: int,
    eta: ArrayLike,
    sigma: ArrayLike,
    lipschitz: float,
    radius: float,
    alpha: float,
) -> Array:
    """Return delta when tau is uniform on {ceil(alpha T)..T}, 0 < alpha < 1.

    alpha T <= 1 gives `federated_random_stop_delta`, T(1 - alpha) < 1 gives `federated_delta`. For constant
    schedules delta grows with alpha: later models have seen more records, so the suffix costs privacy there. Formal
    guarantee: that of `federated_random_stop_delta`. Source: asoodeh2021, end of section IV (derived: Corollary 3 with
    the mean over the suffix).
    """
    rounds = read_rounds(n, m, eta, sigma)
    lipschitz, radius = non_negative(lipschitz=lipschitz, radius=radius)
    alpha = real("alpha", alpha, above=0.0, below=1.0)
    # 0.1 * 30 is 3.0000000000000004: the rounding of the product must not skip a round
    first = max(1, math.ceil(alpha * rounds.whole_count() * (1.0 - 1e-12)))
    return probability(stopped_model(epsilon, rounds, lipschitz, 2.0 * radius, first=first))
