from pathlib import Path

import pytest
from hypothesis import settings

# The same examples every time: a test that fails here fails everywhere.
settings.register_profile("dpfl", derandomize=True, deadline=None)
settings.load_profile("dpfl")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return Path(__file__).parents[1]
