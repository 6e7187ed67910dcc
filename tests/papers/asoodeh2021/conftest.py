"""The paper's results with its own runs at scale demo, cut down to few seeds and cells."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from dpfl.reporting.results import Results


def kept(cell: dict) -> bool:
    """Whether a test needs the cell."""
    if cell.get("noise_std", 0.0) >= 5 or cell.get("step", 1.0) < 0.1:  # studies example and convex
        return True
    quick = cell.get("epsilon", 1) != 8 and (cell.get("algorithm") != "shuffled" or math.isinf(cell["epsilon"]))
    return quick and cell.get("users", 0) <= 4000 and cell.get("step", 1.0) in (0.3, 1.0)


@pytest.fixture(scope="session")
def results(trained: Callable[..., Results]) -> Results:
    """Every table and figure's data of the paper, from runs on the stand-in."""
    return trained("asoodeh2021", kept)


@pytest.fixture
def run_table(results: Results) -> Path:
    """One of the run tables."""
    return results.run_tables["asoodeh2021"][0]
