import math

import pytest

from dpfl.reporting.display_names import Standing, standing


@pytest.mark.parametrize(
    ("proven", "refuted", "known"),
    [
        (2.93, 2.93, Standing.KEPT),
        (2.9301, 2.9301, Standing.KEPT),
        (2.94, 0.0, Standing.OPEN),
        (math.inf, 2.65, Standing.OPEN),
        (math.inf, 2.94, Standing.REFUTED),
    ],
)
def test_the_claimed_epsilon_is_compared_up_to_the_accountants_grid(proven, refuted, known):
    assert standing(2.93, proven, refuted) == known
