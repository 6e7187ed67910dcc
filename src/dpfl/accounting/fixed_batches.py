"""Batches of a fixed size, drawn independently in every step, with or without replacement: bounds for every step seen.

A batch of B out of n records uses the one in question k times: 0 or 1 times with chance B/n (without replacement),
Binomial(B, 1/n) times (with). In units of the clip norm, w_k the law of k and p = 1 - w_0:

At least, by pairs that occur. Others -1, the record +1: the sum is N(-B + 2k, sigma^2) with weights w. Against a
record -1, or against n - 1 records and the same B, it is N(-B, sigma^2); against a zeroed one N(-B + k, sigma^2) with
weights w. Others 0, the record 1 or zeroed: N(k, sigma^2) with weights w against N(0, sigma^2).

At most, under replace_one and so under zero_out, where the new record is a zero: a batch with k uses couples to one
without by exchanging k of its slots, which moves the sum by at most 2k. By the advanced joint convexity of
balle2018, Theorems 9 and 10, a step's profile is at most
sum_k>0 w_k theta(ln(1 + (e^eps - 1)/p), 2k/sigma), in both orders.
Under add_or_remove that coupling makes the first pair above dominate: exact. Given the slots without the record, and so
the centre of Q, P is a mixture of Gaussians whose centres v_k, for k uses, are at most 2k away. Its likelihood ratio
sum_k w_k L_k is a sum of log-normal variables of fixed weights. It is largest in convex order if all v_k have one
direction (comonotone) and the length 2k, and both orders of the profile are expectations of convex functions of it.
Without replacement the pair is that of Poisson sampling at rate B/n and noise sigma/2.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr
from scipy.stats import binom

from dpfl.accounting.composition import largest_below
from dpfl.accounting.gaussian_dp import theta
from dpfl.accounting.loss_grids import MOST_LAW_PLACES, GridLaw, fitting_grid, from_atoms, from_points, grid_between
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.poisson_gaussian import amplified_epsilon

if TYPE_CHECKING:
    from dpfl.accounting.numerics import Array

_CELLS, _ROUGH_CELLS = 100_000, 40_000
_ENDS, _LOOKS = np.geomspace(1e-12, 1e5, 400), 50
_THETA_ERROR = 1e-10
_RARE = 1e-12


def uses(batch_size: int, records: int, replacement: bool, tail: float) -> tuple[Array, float]:
    """Return the chances that a batch uses a record 0, 1, 2, ... times, and the chance of more, at most `tail`.

    Source: elementary; see the module.
    """
    if not replacement:
        return np.array([1 - batch_size / records, batch_size / records]), 0.0
    # binom.isf answers batch_size for any tail below 1e-16.
    last = bisect_left(range(batch_size), True, key=lambda k: bool(binom.sf(k, batch_size, 1 / records) <= tail))
    return binom.pmf(np.arange(last + 1), batch_size, 1 / records), float(binom.sf(last, batch_size, 1 / records))


def law_above(
    noise_multiplier: float, weights: Array, beyond: float, steps: int, delta: float, *, rough: bool = False
) -> GridLaw:
    """Return a law, the same in both orders, that dominates one step under replace_one, zero_out and add_or_remove.

    weights, shape (k + 1,), chances of 0 to k uses; `beyond` that of more. `steps`, `delta` and `rough` only set the
    grid.
    Uses of a share of at most _RARE count as the most uses, which spend more.
    Source: balle2018, Theorems 9 and 10, with the coupling derived in the module.
    """
    rate, (shares, counts) = float(np.sum(weights[1:])) + beyond, _frequent(weights, beyond)
    mus = 2 * counts / noise_multiplier

    def profile(loss: Array) -> Array:
        inner = amplified_epsilon(loss, rate)
        found = sum((share * theta(inner, mu) for share, mu in zip(shares, mus, strict=True)), np.zeros(loss.shape))
        return found * (1 + _THETA_ERROR) + beyond

    return _law_of_profile(profile, steps, delta, 2 * beyond, _ROUGH_CELLS if rough else MOST_LAW_PLACES)


def _frequent(weights: Array, beyond: float) -> tuple[Array, Array]:
    """Return the chances of 1, 2, ... uses and these counts; a share of at most _RARE counts as the most uses."""
    last = weights.size - 1
    rare = int(np.argmax(np.cumsum(weights[::-1])[::-1] <= _RARE * (float(np.sum(weights[1:])) + beyond))) or last
    return np.append(weights[1:rare], np.sum(weights[rare:])), np.append(np.arange(1, rare), last)


def pair_laws_above(
    noise_multiplier: float, weights: Array, beyond: float, steps: int, delta: float, *, rough: bool = False
) -> tuple[GridLaw, GridLaw]:
    """Return laws, both orders, above the loss of one step under add_or_remove: the first pair of the module, exactly.

    Arguments and rare uses as in `law_above`. At the threshold z of the loss x the profile is the sum over k of w_k
    times that of N(2k/sigma, 1) at its own loss at z, so no digits are lost.
    Source: derived in the module.
    """
    shares, counts = _frequent(weights, beyond)
    mus = 2 * counts / noise_multiplier
    little = 1e-4 * delta / steps
    reach = math.sqrt(-2 * math.log(little)) + 1
    z = np.linspace(-reach, float(mus[-1]) + reach, _CELLS)

    def excess(z: Array) -> tuple[Array, Array]:
        """Return P's density over Q's less 1 at z, and its derivative."""
        ratio, slope = np.full(z.shape, -beyond), np.zeros(z.shape)
        for share, mu in zip(shares, mus, strict=True):
            ratio += share * np.expm1(mu * (z - mu / 2))
            slope += share * mu * np.exp(mu * (z - mu / 2))
        return ratio, slope

    ratio = excess(z)[0]
    loss, q = np.log1p(ratio), np.exp(-(z**2) / 2) * (z[1] - z[0]) / math.sqrt(2 * math.pi)
    variance = float(np.sum((2 + ratio) * q * loss**2)) / 2
    last = int(np.argmax(sum(share * ndtr(mu - z) for share, mu in zip(shares, mus, strict=True)) <= little)) or -1
    grid = grid_between(
        max(-float(loss[0]), 0.0), max(float(loss[last]), 0.0), variance, steps, _ROUGH_CELLS if rough else _CELLS
    )
    wanted = np.expm1(grid.losses)
    at = np.interp(wanted, ratio, z)
    for _ in range(4):  # Newton's steps, each within the cell of the table
        found, slope = excess(at)
        cell = np.clip(np.searchsorted(ratio, wanted), 1, z.size - 1)
        at = np.clip(at - (found - wanted) / np.maximum(slope, 1e-300), z[cell - 1], z[cell])
    calls = grid.losses >= 0
    at += np.where(calls, -1, 1) * 1e-13 * (1 + np.abs(at))  # on the side where the profile is more
    values = np.where(calls, beyond, 0.0)
    for share, mu in zip(shares, mus, strict=True):
        own = mu * (at - mu / 2)  # a put is a call less 1 - e^own, and e^own times the call at -own
        parity = np.maximum(np.where(calls, -1, 1) * np.expm1(own), 0.0)
        values += share * (np.exp(np.minimum(own, 0.0)) * theta(np.abs(own), mu) + parity) * (1 + _THETA_ERROR)
    return from_points(grid, values)


def _law_of_profile(profile: Callable[[Array], Array], steps: int, delta: float, floor: float, places: int) -> GridLaw:
    """Return a law above a loss with this profile at losses >= 0, the same in both orders, and down to `floor`."""
    little = 1e-4 * delta / steps + floor
    last = min(int(np.searchsorted(-profile(_ENDS), -little)), _ENDS.size - 1)
    # Looked at once more between two of them: in steps of these the grid, and epsilon with it, would jump.
    ends = np.geomspace(_ENDS[max(last - 1, 0)], _ENDS[last], _LOOKS)
    end = float(ends[min(int(np.searchsorted(-profile(ends), -little)), _LOOKS - 1)])
    coarse = end * np.append(0.0, np.geomspace(1e-7, 1, 2000))
    # The variance of the loss, from its profile: E loss^2 is about twice the integral of both orders'.
    at = profile(coarse)
    variance = 2 * float(np.trapezoid(at + np.exp(-coarse) * at, coarse))
    grid = grid_between(end, end, variance, steps, places)
    calls = profile(np.arange(grid.last + 1, dtype=np.float64) * grid.step)
    below = np.arange(grid.first, 0, dtype=np.float64) * grid.step
    return from_points(grid, np.append(np.exp(below) * calls[-grid.first : 0 : -1], calls))[0]


def smallest_epsilon(
    noise_multiplier: float, weights: Array, beyond: float, steps: int, delta: float, neighbouring: Neighbouring
) -> float:
    """Return an epsilon that `steps` steps exceed at `delta`, by the best of the module's pairs.

    Guarantee: for some data the steps are not (e, delta)-DP under `neighbouring` for any e below. Where a batch uses a
    record at most once, the pair with silent others is that of Poisson samples, and left to its sharper accountant.
    Source: derived here, by the pairs of the module.
    """
    shift = 1 / noise_multiplier
    laws = [
        law for pair in pairs(weights, neighbouring) for law in pair_laws(shift, weights, pair, steps, delta, beyond)
    ]
    return largest_below(laws, steps, delta)


def pairs(weights: Array, neighbouring: Neighbouring) -> list[tuple[int, int]]:
    """Return the pairs of the module, as `pair_laws` takes them, of which one spends most under the relation.

    Source: derived here; see the module.
    """
    if neighbouring is not Neighbouring.ZERO_OUT:
        return [(2, 0)]
    return [(2, 1), (1, 0)] if weights.size > 2 else [(2, 1)]


def pair_laws(
    shift: float, weights: Array, pair: tuple[int, int], steps: int, delta: float, beyond: float = 0.0
) -> tuple[GridLaw, GridLaw]:
    """Return laws, both orders, below the loss of mixtures of N(a k, 1) and of N(b k, 1), (a, b) = `pair` * `shift`.

    weights, shape (k + 1,): the mixture's weights of 0 to k; `beyond` that of more. `steps` and `delta` only set the
    grid.
    Source: derived here; see the module.
    """
    reach = math.sqrt(2 * (math.log(steps) - math.log(delta)) + 14) + 1
    largest = pair[0] * shift * (weights.size - 1)
    z = np.linspace(-reach, largest + reach, _CELLS)
    p_mass, q_mass = (_mixture(z, weights, each * shift) for each in pair)
    return from_atoms(fitting_grid(p_mass, q_mass, steps), p_mass, q_mass, beyond)


def _mixture(z: Array, weights: Array, shift: float) -> Array:
    """Return the masses between neighbours of z, ends included, of sum_k weights[k] N(shift k, 1)."""
    masses = np.zeros(z.size + 1)
    for k, weight in enumerate(weights if shift else [np.sum(weights)]):
        if weight > 0:
            at = z - shift * k
            zero = int(np.searchsorted(at, 0.0))
            tail = ndtr(-np.abs(at))  # below up to `zero`, above from there on
            mass = np.diff(tail, prepend=0.0, append=0.0)
            mass[zero + 1 :] *= -1.0
            inside = 0 < zero < at.size
            mass[zero] = 1.0 - tail[zero - 1] - tail[zero] if inside else 1.0 - (tail[0] if zero == 0 else tail[-1])
            masses += weight * mass
    return masses
