"""Standing of a claimed epsilon: kept, refuted or open."""

from __future__ import annotations

from enum import StrEnum

_ROUNDING = 1e-3
"""Relative excess over the claimed epsilon that calibration and accountants' grids may leave."""


class Standing(StrEnum):
    """Knowledge of a claimed epsilon."""

    KEPT = "kept"
    """The proven epsilon is at most the claimed one."""
    REFUTED = "refuted"
    """A pair of data sets exceeds the claimed epsilon."""
    OPEN = "open"
    """It is neither proven nor refuted."""


def standing(claimed: float, proven: float, refuted: float) -> Standing:
    """Return what is known of a claimed epsilon: `proven` is an upper, `refuted` a lower bound on what is spent."""
    if refuted > claimed * (1 + _ROUNDING):
        return Standing.REFUTED
    return Standing.KEPT if proven <= claimed * (1 + _ROUNDING) else Standing.OPEN
