"""Privacy gained when a trusted shuffler permutes the clients' reports before anyone reads them.

`clones` bounds any local randomiser by its epsilon alone (numerically), `blanket` a Gaussian one by its whole
law, `published_noise` has the closed forms as printed, with their conditions.
"""

from __future__ import annotations

from dpfl.accounting.shuffling.blanket import blanket_delta, blanket_epsilon, blanket_rounds_epsilon
from dpfl.accounting.shuffling.clones import clones_delta, clones_epsilon, restricted_clones_epsilon

__all__ = [
    "blanket_delta",
    "blanket_epsilon",
    "blanket_rounds_epsilon",
    "clones_delta",
    "clones_epsilon",
    "restricted_clones_epsilon",
]
