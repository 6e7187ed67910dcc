from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings
from opacus.accountants.analysis import rdp

# The same examples every time: a test that fails here fails everywhere.
settings.register_profile("dpfl", derandomize=True, deadline=None, max_examples=40)
settings.load_profile("dpfl")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return Path(__file__).parents[1]


@pytest.fixture(scope="session", autouse=True)
def remembered_renyi_divergences() -> Iterator[None]:
    """Compute Opacus's Renyi divergence of one step once per (rate, noise, order): a calibration takes seconds.

    The function is pure, so no answer changes; the same calibrations are asked for by many tests.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rdp, "_compute_rdp", cache(rdp._compute_rdp))
        yield
