"""Map of the smallest bound on the last iterate, over settings of asoodeh2020's one pass in a public order."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from dpfl.accounting import gaussian_divergence, gaussian_dp
from dpfl.accounting.arguments import integers, reals
from dpfl.accounting.contraction.contraction_factor import contraction_factor
from dpfl.accounting.contraction.renyi import linear_renyi_delta
from dpfl.accounting.contraction.renyi_comparators import pnsgd_renyi_coefficient
from dpfl.accounting.contraction.stable_arithmetic import power
from dpfl.accounting.elementwise import elementwise
from dpfl.accounting.hidden_state.gradient_step import REPLACEMENT, diameter_in_shifts, step_contraction
from dpfl.accounting.hidden_state.shifted_interpolation import place_energy
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.roots import root

Array = NDArray[np.float64]

LATER_STEPS = (0, 1, 4, 20, 100)
STRONG_CONVEXITIES = (0.0, 0.5)
SIGMAS = tuple(np.geomspace(0.5, 32.0, 10))
DIAMETERS = tuple(np.geomspace(0.1, 51.2, 10))
"""5 x 2 x 10 x 10 = 1,000 settings."""
BOUNDS = ("composition", "theorem_4", "shifted_interpolation", "proposition_1")
"""Columns of `bound_map`; the first of those that tie is named smallest."""
_TIE = 1e-9  # relative


def one_pass_epsilons(
    *,
    later_steps: ArrayLike,
    sigma: ArrayLike,
    diameter: ArrayLike,
    eta: ArrayLike,
    smoothness: ArrayLike,
    strong_convexity: ArrayLike,
    delta: ArrayLike,
    lipschitz: ArrayLike = 1.0,
) -> dict[str, Array]:
    """Return epsilon at `delta` in (0, 1) by each of BOUNDS for a record that `later_steps` >= 0 steps follow.

    The pass w <- project(w - eta (grad f_i(w) + sigma Z)) takes one record per step in a public order; the record is
    replaced. Shapes broadcast; the other arguments are those of `contraction.pnsgd_gaussian_delta`. Each bound is an
    (epsilon, delta)-DP guarantee of the last iterate. Raises ValueError naming the argument.
    Source: composition is the Gaussian mechanism (the record's own step); asoodeh2020 Theorem 4; asoodeh2020
    Proposition 1, converted at its best order; bok2024, section 4.
    """
    later = integers("later_steps", later_steps, at_least=0)
    sigma, diameter = reals("sigma", sigma, above=0), reals("diameter", diameter, above=0)
    delta = reals("delta", delta, above=0, below=1)
    first = REPLACEMENT * reals("lipschitz", lipschitz, above=0) / sigma
    later, sigma, diameter, delta, first = np.broadcast_arrays(later, sigma, diameter, delta, first)
    alone = np.asarray(gaussian_dp.epsilon(delta, first))
    link = contraction_factor(eta, smoothness, strong_convexity) * diameter / (np.asarray(eta) * sigma)
    loss = {"eta": eta, "smoothness": smoothness, "strong_convexity": strong_convexity}
    kappa = pnsgd_renyi_coefficient(i=1, n=later + 1, sigma=sigma, lipschitz=lipschitz, **loss)
    reach = kappa + 2 * np.sqrt(-kappa * np.log(delta))
    shifts = diameter_in_shifts(
        diameter, step_size=eta, lipschitz=lipschitz, batch_size=1, neighbouring=Neighbouring.REPLACE_ONE
    )
    energy = _energies(step_contraction(eta, smoothness, strong_convexity), later, shifts)
    return {
        "composition": alone,
        "theorem_4": root(_theorem_4_gap, 0.0, alone, first, link, later, np.log(delta)),
        "shifted_interpolation": np.asarray(gaussian_dp.epsilon(delta, np.sqrt(energy) * first)),
        "proposition_1": root(_proposition_1_gap, 0.0, reach, kappa, np.log(delta)),
    }


def bound_map(*, delta: float = 1e-5) -> pd.DataFrame:
    """Return a row for each of 1,000 settings of `one_pass_epsilons`: the setting, four epsilons, and `smallest`.

    Columns: later_steps, strong_convexity, sigma, diameter (eta is 0.5, smoothness and lipschitz are 1), then BOUNDS
    in epsilon at `delta`, and `smallest`, the bound with the least epsilon; among those within 1e-9 of it, relative,
    the first of BOUNDS.
    Raises ValueError naming the argument. Source: `one_pass_epsilons`.
    """
    names = ["later_steps", "strong_convexity", "sigma", "diameter"]
    table = pd.DataFrame(list(product(LATER_STEPS, STRONG_CONVEXITIES, SIGMAS, DIAMETERS)), columns=names)
    setting = {name: table[name].to_numpy() for name in names}
    result = one_pass_epsilons(**setting, eta=0.5, smoothness=1.0, delta=delta)
    epsilons = np.column_stack([result[name] for name in BOUNDS])
    least = epsilons.min(axis=1, keepdims=True)
    table[list(BOUNDS)] = epsilons
    table["smallest"] = np.array(BOUNDS)[np.argmax(epsilons <= least * (1 + _TIE), axis=1)]
    return table


def _energies(contraction: Array, later: Array, diameter: Array) -> Array:
    """mu^2 over that of the record's own step, for one use that `later` steps follow."""

    def one(contraction: float, later: float, diameter: float) -> float:
        return float(place_energy(contraction, 1, period=1, diameter=diameter, tail=int(later)))

    return elementwise(one, contraction=contraction, later=later, diameter=diameter)


def _theorem_4_gap(epsilon: Array, first: Array, link: Array, later: Array, log_delta: Array) -> Array:
    """ln delta of asoodeh2020 Theorem 4 less its target; falls in epsilon."""
    log_later = power(gaussian_divergence.log_divergence(epsilon, link), later)
    return gaussian_divergence.log_divergence(epsilon, first) + log_later - log_delta


def _proposition_1_gap(epsilon: Array, kappa: Array, log_delta: Array) -> Array:
    """ln delta of asoodeh2020 Proposition 1 at its best order less its target; falls in epsilon."""
    return np.log(np.maximum(linear_renyi_delta(epsilon, kappa, "tight"), 1e-300)) - log_delta
