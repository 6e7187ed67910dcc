"""Mechanisms on one record's or one client's contribution: clipping and projection.

The one rule of each, in numpy; clipping takes torch tensors too, without importing torch. Noise is drawn elsewhere:
CONTRIBUTING.md, "Follow a number", says where.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor


# Clip what one record adds to a sum: the one rule, for torch tensors and numpy arrays.

Array = NDArray[np.float64]
Norms = TypeVar("Norms", "Tensor", Array)


def clip_factors(norms: Norms, clip_norm: Norms | float) -> Norms:
    """Return the factor, in (0, 1], by which each vector is scaled: 1 / max(1, norm / C), nan for one not finite.

    `norms` >= 0 are Euclidean norms over all coordinates, any shape, a tensor or an array; `clip_norm` C > 0 broadcasts
    to it, and infinity means no clipping: every factor is exactly 1. Source: abadi2016, Algorithm
    1. Opacus divides C by norm + 1e-6 instead, which shrinks vectors near the ball's surface a little more.

    Formal guarantee: a scaled vector has norm min(norm, C), up to rounding (which dpfl.engine.layers divides out), so
    adding or removing one moves a sum by at most C, and replacing one by at most 2C. A zero vector stays zero, and a
    vector in the ball keeps every bit. One with an infinite entry or nan cannot be scaled into the ball: its factor is
    nan, which marks every entry of a sum, and the caller leaves it out (`clip_vectors`; for sums
    dpfl.engine.per_record_gradients.without_overflow).
    """
    return 1.0 / (norms / clip_norm).clip(1.0) + 0.0 * norms


def clip_vectors(vectors: Tensor, clip_norm: float) -> Tensor:
    """Return `vectors` (n, features), each scaled to a norm of at most `clip_norm`, which is finite and above 0.

    Formal guarantee: as `clip_factors`; a vector with an infinite entry or nan, or whose norm overflows, becomes 0.
    """
    factors = clip_factors(vectors.norm(dim=1), clip_norm)[:, None]
    return (vectors * factors).where(factors.isfinite(), 0.0)


def clip_lengths(lengths: Array, clip_norm: Array | float, out: Array | None = None) -> Array:
    """Return signed lengths along unit vectors, clipped as `clip_factors` clips norms: to [-C, C].

    `clip_norm` C > 0 broadcasts to `lengths`, inf clips nothing; `out`, if given, receives the result and may be
    `lengths` itself. Formal guarantee: as `clip_factors`, for the vectors that the lengths stand for; where C is finite
    an infinite length becomes C, and nan 0.
    """
    clipped = np.clip(lengths, -clip_norm, clip_norm, out=out)
    undefined = np.isnan(clipped)
    if undefined.any():
        np.copyto(clipped, 0.0, where=undefined & np.isfinite(clip_norm))
    return clipped


# Project models on a ball, where the constants of a loss hold: contraction needs it.


def project(weights: Array, radius: Array | float) -> Array:
    """Return `weights` (..., features, models), every model moved to the nearest point of the ball around 0.

    `radius` > 0, a number or one a model, inf for no projection. A model inside the ball is returned bit for bit.
    Raises ValueError for a radius that is not above 0.
    Formal guarantee: it depends on no record, so it is post-processing; and it is 1-Lipschitz.
    """
    bound = np.asarray(radius, dtype=np.float64)
    if not np.all(bound > 0):
        raise ValueError(f"radius is {radius}; it must be above 0 (inf: no projection)")
    norms = np.linalg.norm(weights, axis=-2, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(norms > bound, weights * (bound / norms), weights)
