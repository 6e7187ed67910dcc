"""Privacy of the last iterate alone, for convex losses: contraction, shifted interpolation, and the least of them."""

from __future__ import annotations

from dpfl.accounting.hidden_state.gradient_step import diameter_in_shifts, step_contraction
from dpfl.accounting.hidden_state.last_iterate import Batches, Bound, LastIterate, last_iterate_epsilon
from dpfl.accounting.hidden_state.shifted_interpolation import shifted_interpolation_mu

__all__ = [
    "Batches",
    "Bound",
    "LastIterate",
    "diameter_in_shifts",
    "last_iterate_epsilon",
    "shifted_interpolation_mu",
    "step_contraction",
]
