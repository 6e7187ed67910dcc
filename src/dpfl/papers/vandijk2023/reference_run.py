"""The run that the chapter's statements are evaluated on, and functions that compare two runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpfl.accounting import gaussian_dp
from dpfl.catalog import load

if TYPE_CHECKING:
    from dpfl.accounting.tradeoff import Guarantee

KEY = "vandijk2023"


def settings(name: str) -> Any:
    """Return delta, or a number of the analysed run."""
    paper = load(KEY)
    return paper.settings[name] if name == "delta" else paper.tables["errata"]["settings"][name]


def run() -> dict[str, int]:
    """Return n, m and epochs of the run."""
    return dict(settings("run"))


def epsilon_of(guarantee: Guarantee) -> float:
    """Return a guarantee's epsilon at the settings' delta."""
    return float(guarantee.epsilon(settings("delta")))


def equivalent_mu(guarantee: Guarantee) -> float:
    """Return the mu of the Gaussian guarantee that has the same epsilon at the settings' delta."""
    return float(gaussian_dp.mu(epsilon_of(guarantee), settings("delta")))
