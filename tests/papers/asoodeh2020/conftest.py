"""The paper's results with its own runs at scale demo, cut down to few seeds and cells."""

from collections.abc import Callable

import pytest

from dpfl.reporting.results import Results


def kept(cell: dict) -> bool:
    """Whether a test needs the cell."""
    return cell["epsilon"] in (1, 4, float("inf")) and cell["step"] >= 0.01


@pytest.fixture(scope="session")
def results(trained: Callable[..., Results]) -> Results:
    """Every table and figure's data of the paper, from runs on the stand-in."""
    return trained("asoodeh2020", kept)
