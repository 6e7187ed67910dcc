"""Renyi divergences of one step at any order above 1, and what their sums prove of steps that are chosen adaptively.

Divergences. Of a pair (P, Q) with ratio r = P/Q, the divergence of order a is ln(1 + D)/(a - 1), and
D = E_Q[r^a - 1 - a (r - 1)] is the mean of a term that is never below 0: no digits are lost where D is tiny. For the
pairs of `poisson_gaussian` the terms are analytic and fall like a normal density, so that an even sum over the line is
exact but for rounding (the trapezoid rule). A pair of which only the profile is known, as that of a batch without
replacement under zero_out and replace_one, h(x) at e^x >= 1 in both orders, has at most
D = a (a - 1) int_0^inf (e^((a-1) x) + e^(-a x)) h(x) dx (sason2016, f-divergences by hockey sticks); with
h(x) = E_Q[(r - e^x)_+] of some r that is E_Q[(1 - r^(1-a)) (r^a - 1); r > 1].

Adaptive rounds. Let the rounds be chosen one by one, each from all that was seen before, and let round t, given that,
have a divergence of rho_t at most, in both orders, for one client or record. L_t is the privacy loss of the first t
rounds. As E[e^((a-1) (L_t - L_(t-1))) | before] <= e^((a-1) rho_t), the process M_t = e^((a-1) (L_t - rho_1 - ... -
rho_t)) is a supermartingale, above 0, that begins at 1.
Filter: if the rounds stop before their sum would exceed a budget R, and at some time, then E e^((a-1) L) <= e^((a-1) R)
at the end, by any rule of stopping. All that is seen together has a divergence of at most R (feldman2021filter,
lecuyer2021), and is as private as any mechanism of that divergence.
Odometer: by Ville's inequality M_t reaches 1/delta at any time with a chance of at most delta. So, but for that chance,
L_t <= rho_1 + ... + rho_t + ln(1/delta)/(a - 1) at all times together; k orders may have delta/k each, of which the
least counts. At whatever time it is read, and the rounds stop, they are (that, delta)-DP (rogers2016; whitehouse2023).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from dpfl.accounting.neighbouring import MOVES, Neighbouring
from dpfl.accounting.numerics import Array, by_element, member, real, reals
from dpfl.accounting.poisson_gaussian import Order, Step
from dpfl.accounting.samplers import Accountable, FixedBatches, FullBatch, Poisson

ORDERS = (1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 14.0, 20.0, 30.0, 45.0, 70.0, 120.0, 250.0)
"""Orders that an odometer looks at, each with its share of delta."""
LEAST_ORDER, MOST_ORDER = 1.01, 1e4
"""Range of orders: nearer to 1 digits are lost, beyond it the sums are long."""
_ERROR = 1e-9  # relative, allowed to a divergence: the sums err by less
_FAR = 40.0  # deviations, beyond which nothing is left of a normal density
_MOST_POINTS = 1_000_000
_NEAR = 0.03
_FILTER_ORDERS = 1 + np.geomspace(0.01, 1e3, 120)


def divergence(
    sampler: Accountable,
    *,
    noise_multiplier: ArrayLike,
    order: ArrayLike,
    neighbouring: Neighbouring | str = Neighbouring.ZERO_OUT,
) -> float | Array:
    """Return the Renyi divergence of one step on a batch of `sampler`, at any `order` in [1.01, 10,000].

    `sampler`: Poisson, FixedBatches or FullBatch. `noise_multiplier` > 0 is the noise's standard deviation over the
    norm bound of one record's contribution. Numbers or arrays of them, which broadcast.
    Guarantee: no step on neighbours under `neighbouring` has a larger divergence, in either order. Poisson samples,
    full batches, and batches without replacement under add_or_remove attain it; for other batches without replacement
    it is what the coupling of `fixed_batches` leaves. Sources: mironov2017 (Gaussian), mironov2019 (the pairs of
    Poisson samples, here at any order), sason2016 (divergences from profiles); see the module.
    Raises ValueError naming the argument.
    """
    relation = member("neighbouring", Neighbouring, neighbouring)
    if not isinstance(sampler, Poisson | FixedBatches | FullBatch):
        raise ValueError(f"sampler must be Poisson, FixedBatches or FullBatch, got {sampler!r}")

    def one(noise_multiplier: float, order: float) -> float:
        sigma = real("noise_multiplier", noise_multiplier, above=0)
        return _divergence(sampler, sigma, real("order", order, at_least=LEAST_ORDER, at_most=MOST_ORDER), relation)

    return by_element(one, noise_multiplier=noise_multiplier, order=order)


def filter_budget(*, epsilon: float, delta: float, order: float) -> float:
    """Return the sum of divergences of that `order` > 1 up to which a filter keeps (`epsilon`, `delta`)-DP.

    epsilon > 0, delta in (0, 1). Guarantee: rounds that are chosen one by one from all that was seen, and stop before
    the sum of their divergences would exceed the answer, are (epsilon, delta)-DP together. The order must be chosen
    before the first round. Sources: feldman2021filter, with the proof in the module; canonne2020,
    Proposition 12 (from the divergence to epsilon).
    Raises ValueError naming the argument, the order where it leaves no budget.
    """
    target, failure = real("epsilon", epsilon, above=0), real("delta", delta, above=0, below=1)
    at = real("order", order, at_least=LEAST_ORDER, at_most=MOST_ORDER)
    budget = float(_budgets(target, failure, np.array(at)))
    if budget <= 0:
        likely = filter_order(epsilon=target, delta=failure)
        raise ValueError(
            f"order {at:g} leaves no budget for epsilon {target:g} at delta {failure:g}, {likely:.3g} does"
        )
    return budget


def filter_order(
    *,
    epsilon: float,
    delta: float,
    sampler: Accountable | None = None,
    noise_multiplier: float = 1.0,
    neighbouring: Neighbouring | str = Neighbouring.ZERO_OUT,
) -> float:
    """Return the order at which a filter admits most of the steps that are planned, the last ones as for `divergence`.

    Without a `sampler` they are Gaussian, of any noise. A choice, not a bound: any order will do that is chosen before
    the first round. Source: derived here, the largest ratio of `filter_budget` and `divergence` over a grid of orders.
    Raises ValueError naming the argument, and epsilon if no order leaves a budget.
    """
    target, failure = real("epsilon", epsilon, above=0), real("delta", delta, above=0, below=1)
    budgets = _budgets(target, failure, _FILTER_ORDERS)
    if budgets.max() <= 0:
        raise ValueError(f"epsilon {target:g} at delta {failure:g} leaves no budget at any order up to 1,001")
    orders, budgets = _FILTER_ORDERS[budgets > 0], budgets[budgets > 0]
    planned = FullBatch() if sampler is None else sampler
    noise = real("noise_multiplier", noise_multiplier, above=0)
    spent = divergence(planned, noise_multiplier=noise, order=orders, neighbouring=neighbouring)
    return float(orders[np.argmax(budgets / spent)])


def odometer_epsilon(*, orders: ArrayLike, sums: ArrayLike, delta: float) -> float:
    """Return what an odometer shows when the divergences of the `orders` have these `sums`, both of shape (k,).

    Guarantee: whatever rounds were chosen, one by one from all that was seen, the privacy loss has been at most this at
    all times together, but for a chance of `delta` in (0, 1): stopping at any time, they are (this, delta)-DP. The
    orders must be chosen before the first round. Source: Ville's inequality, derived in the module; rogers2016 and
    whitehouse2023 (odometers). Raises ValueError naming the argument.
    """
    failure, at = real("delta", delta, above=0, below=1), np.atleast_1d(reals("orders", orders, above=1))
    spent = np.atleast_1d(reals("sums", sums, at_least=0, infinite=True))
    if at.ndim != 1 or not at.size:
        raise ValueError(f"orders must be of shape (k,), with k at least 1, got {at.shape}")
    if at.shape != spent.shape:
        raise ValueError(f"sums must have the shape of orders, {at.shape}, got {spent.shape}")
    if not spent.any():
        return 0.0
    return float(np.min(spent + (math.log(at.size) - math.log(failure)) / (at - 1)))


def _budgets(epsilon: float, delta: float, orders: Array) -> Array:
    """The divergences whose epsilon at delta is the given one."""
    return epsilon - np.log1p(-1 / orders) + (math.log(delta) + np.log(orders)) / (orders - 1)


@lru_cache(maxsize=1 << 14)
def _divergence(
    sampler: Poisson | FixedBatches | FullBatch, sigma: float, order: float, relation: Neighbouring
) -> float:
    """Return the divergence of checked arguments, rounded up; at most that of a batch that always has the record."""
    move = MOVES[relation]
    if isinstance(sampler, FullBatch):
        return order * (move / sigma) * (move / sigma) / 2
    if isinstance(sampler, Poisson):
        rate, shift = sampler.sample_rate, 1 / sigma
        orders: tuple[Order, ...] = ("replace",) if relation is Neighbouring.REPLACE_ONE else ("remove", "add")
    else:
        rate, shift = sampler.batch_size / sampler.records, 2 / sigma
        orders = ("remove", "add")
        if relation is Neighbouring.ADD_OR_REMOVE:
            move = 2.0  # another record takes the place
    plain = order * (move / sigma) * (move / sigma) / 2
    if rate == 1:
        return plain
    if isinstance(sampler, FixedBatches) and relation is not Neighbouring.ADD_OR_REMOVE:
        log_mean = _log_mean_of_profile(shift, rate, order)
    else:
        log_mean = max(_log_mean(Step(shift, rate, each), order) for each in orders)
    return min(float(np.logaddexp(0.0, log_mean)) / (order - 1) * (1 + _ERROR), plain)


def _log_mean(step: Step, order: float) -> float:
    """Return ln D of one order of a pair, by the trapezoid rule; its nearest pole is pi / shift away from the line.

    inf where the sum would be long: where noise is so little that amplification is next to nothing.
    """
    width = min(0.1, 0.4 / step.shift)
    # Where the move by -shift has nearly all the mass of a replaced record's batch, the integrand peaks this far out.
    furthest = 2 * order - 1 if step.order == "replace" else order
    reach = _FAR + furthest * step.shift
    if reach > width * _MOST_POINTS:
        return math.inf
    x = np.arange(-reach, reach + width, width)
    loss, log_density = step.loss_and_log_density(x)
    return _log_sum(log_density - loss + _log_excess(loss, order)) + math.log(width)


def _log_excess(loss: Array, order: float) -> Array:
    """Return ln(r^a - 1 - a (r - 1)) of r = e^loss, to some twelve digits, -inf at a loss of 0."""
    rise, fall, less = np.maximum(loss, 0.0), np.minimum(loss, 0.0), order - 1
    left = np.exp(-less * rise)
    above = -np.expm1(-less * rise) + less * left * np.expm1(-rise)  # over r^a
    below = np.exp(fall) * np.expm1(less * fall) - less * np.expm1(fall)
    near = np.abs(loss) * (order + 1) < _NEAR  # there the difference loses digits: its series in the loss
    series = np.zeros(loss.shape)
    for power in range(2, 10):
        factor = order * math.expm1((power - 1) * math.log(order)) / math.factorial(power)
        series += factor * np.where(near, loss, 0.0) ** power
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(near, np.log(series), order * rise + np.log(np.where(loss > 0, above, below)))


def _log_mean_of_profile(shift: float, rate: float, order: float) -> float:
    """Return ln D of what has the profile of removals from Poisson samples, in both orders; by Gauss-Legendre nodes."""
    step = Step(shift, rate, "remove")
    start, end = shift / 2, _FAR + order * shift  # the loss is 0 at the first
    cells = (end - start) * max(2.0, 4 * shift)
    if cells > _MOST_POINTS / 16:
        return math.inf
    count = math.ceil(cells)
    nodes, weights = _nodes()
    edges = np.linspace(start, end, count + 1)
    half = np.diff(edges)[:, None] / 2
    x, log_weights = edges[:-1, None] + half * (1 + nodes), np.log(half * weights)
    loss, log_density = step.loss_and_log_density(x)
    with np.errstate(divide="ignore"):
        power = order * loss
        grown = power + np.log(-np.expm1(-power))  # ln(r^a - 1)
        term = np.log(-np.expm1(-(order - 1) * loss)) + grown
    return _log_sum(log_density - loss + term + log_weights)


def _log_sum(logs: Array) -> float:
    """Return the logarithm of a sum, from the logarithms of its terms."""
    top = float(logs.max())
    if top == -math.inf:
        return top
    return top + math.log(float(np.exp(logs - top).sum()))


@lru_cache(maxsize=1)
def _nodes() -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(16)
