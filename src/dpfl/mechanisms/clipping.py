"""Per-record clipping: bounds what one record adds to a sum of gradients."""

from __future__ import annotations

from torch import Tensor

STABILISER = 1e-6  # Opacus adds it to the norm, so a clipped gradient stays strictly inside the ball


def clip_factors(norms: Tensor, clip_norm: Tensor | float) -> Tensor:
    """Return the factor, in (0, 1], by which each record's gradient is scaled: min(1, C/(norm + 1e-6)).

    `norms` are Euclidean norms over the whole parameter vector, any shape; `clip_norm` C > 0 broadcasts to it, and
    infinity means no clipping (every factor is exactly 1). Source: abadi2016, Algorithm 1, in Opacus's form.

    Formal guarantee: scaled gradients have norm at most C (up to rounding), so adding or removing one record moves
    their sum by at most C, and replacing one by at most 2C. A zero gradient stays zero; nan gives nan; an infinite norm
    gives 0, and so nan for the entries that are infinite: the run is then seen to have diverged.
    """
    return (clip_norm / (norms + STABILISER)).clamp(max=1.0)
