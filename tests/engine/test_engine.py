import doctest

import dpfl.engine


def test_the_example_of_a_model_of_ones_own_runs():
    result = doctest.testmod(dpfl.engine)
    assert result.attempted > 15 and result.failed == 0
