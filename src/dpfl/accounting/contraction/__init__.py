"""Privacy of iterative algorithms by contraction of the hockey-stick divergence (asoodeh2020, asoodeh2021)."""

from __future__ import annotations

from dpfl.accounting.contraction.contraction_factor import contraction_factor
from dpfl.accounting.contraction.excess_risk import average_iterate_rate, convex_iterate_rate, last_iterate_rate
from dpfl.accounting.contraction.federated import (
    federated_delta,
    federated_delta_relaxed,
    federated_delta_strongly_convex,
    federated_unamplified_delta,
)
from dpfl.accounting.contraction.federated_harmonic import federated_harmonic_bound, federated_harmonic_delta
from dpfl.accounting.contraction.federated_sigma import federated_sigma
from dpfl.accounting.contraction.federated_stopping import (
    federated_random_stop_bound,
    federated_random_stop_delta,
    federated_suffix_stop_delta,
)
from dpfl.accounting.contraction.kernels import contraction_coefficient, hockey_stick
from dpfl.accounting.contraction.laplace import laplace_divergence
from dpfl.accounting.contraction.pnsgd_fixed_order import (
    pnsgd_gaussian_delta,
    pnsgd_laplace_delta,
    pnsgd_laplace_pure_epsilon,
)
from dpfl.accounting.contraction.pnsgd_stopping import (
    pnsgd_random_stop_bound,
    pnsgd_random_stop_delta,
    pnsgd_random_stop_renyi_delta,
)
from dpfl.accounting.contraction.renyi_comparators import (
    iteration_renyi,
    pnsgd_renyi_coefficient,
    pnsgd_renyi_delta,
    pnsgd_renyi_optimal_shift_coefficient,
    pnsgd_renyi_optimal_shift_delta,
    pnsgd_shifted_gdp_delta,
)
from dpfl.accounting.gaussian_divergence import log_theta, one_minus_theta, theta

__all__ = [
    "average_iterate_rate",
    "contraction_coefficient",
    "contraction_factor",
    "convex_iterate_rate",
    "federated_delta",
    "federated_delta_relaxed",
    "federated_delta_strongly_convex",
    "federated_harmonic_bound",
    "federated_harmonic_delta",
    "federated_random_stop_bound",
    "federated_random_stop_delta",
    "federated_sigma",
    "federated_suffix_stop_delta",
    "federated_unamplified_delta",
    "hockey_stick",
    "iteration_renyi",
    "laplace_divergence",
    "last_iterate_rate",
    "log_theta",
    "one_minus_theta",
    "pnsgd_gaussian_delta",
    "pnsgd_laplace_delta",
    "pnsgd_laplace_pure_epsilon",
    "pnsgd_random_stop_bound",
    "pnsgd_random_stop_delta",
    "pnsgd_random_stop_renyi_delta",
    "pnsgd_renyi_coefficient",
    "pnsgd_renyi_delta",
    "pnsgd_renyi_optimal_shift_coefficient",
    "pnsgd_renyi_optimal_shift_delta",
    "pnsgd_shifted_gdp_delta",
    "theta",
]
