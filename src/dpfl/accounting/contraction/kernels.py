"""Contraction of Markov kernels with finitely many outputs: the two-point characterisation of asoodeh2020."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dpfl.accounting.arguments import real, reals
from dpfl.accounting.contraction.stable_arithmetic import Array

_ROUNDING = 1e-9  # how far a row may miss a total of 1


def hockey_stick(p: ArrayLike, q: ArrayLike, epsilon: ArrayLike) -> Array:
    """Return E_{e^epsilon}(p || q) = sum of [p - e^epsilon q]_+ over the last axis of two mass functions.

    p, q: masses, shape (..., outcomes), broadcasting; epsilon >= 0 broadcasts with their leading axes. At epsilon = 0
    this is total variation. Raises ValueError naming the argument. Source: asoodeh2020 eq. (6), asoodeh2021 eq. (2).
    """
    p, q = reals("p", p, at_least=0.0), reals("q", q, at_least=0.0)
    epsilon = reals("epsilon", epsilon, at_least=0.0)
    # as p (1 - e^eps q/p), with the ratio in logarithms: e^eps itself may overflow
    with np.errstate(divide="ignore"):
        log_ratio = np.log(q) - np.log(np.where(p > 0.0, p, 1.0)) + epsilon[..., None]
    return (p * -np.expm1(np.minimum(log_ratio, 0.0))).sum(axis=-1)


def contraction_coefficient(kernel: ArrayLike, epsilon: ArrayLike) -> float:
    """Return the contraction coefficient of a row-stochastic matrix under E_{e^epsilon}.

    kernel: shape (inputs, outputs), rows sum to 1; epsilon: one number >= 0. The supremum over two inputs of the
    divergence of their rows; at epsilon = 0 Dobrushin's coefficient. Raises ValueError naming the argument.
    Source: asoodeh2020 Theorem 2, eq. (8); asoodeh2021 Theorem 1, eq. (5).
    """
    kernel = reals("kernel", kernel, at_least=0.0)
    if kernel.ndim != 2 or not kernel.size or np.any(np.abs(kernel.sum(axis=1) - 1.0) > _ROUNDING):
        raise ValueError("kernel must be a matrix whose rows sum to 1")
    epsilon = real("epsilon", epsilon, at_least=0.0)
    return float(max(hockey_stick(row, kernel, epsilon).max() for row in kernel))
