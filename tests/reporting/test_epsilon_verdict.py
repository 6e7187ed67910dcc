import math

import pytest

from dpfl.reporting.display_names import EpsilonVerdict, epsilon_verdict


@pytest.mark.parametrize(
    ("proven", "refuted", "known"),
    [
        (2.93, 2.93, EpsilonVerdict.PROVEN),
        (2.9301, 2.9301, EpsilonVerdict.PROVEN),
        (2.94, 0.0, EpsilonVerdict.UNPROVEN),
        (math.inf, 2.65, EpsilonVerdict.UNPROVEN),
        (math.inf, 2.94, EpsilonVerdict.REFUTED),
    ],
)
def test_the_claimed_epsilon_is_compared_up_to_the_accountants_grid(proven, refuted, known):
    assert epsilon_verdict(2.93, proven, refuted) == known
