import pytest

from dpfl.papers.asoodeh2021 import errata


def test_the_simulated_risk_is_that_of_averaged_noise():
    # Without the projection |w|^2/2 has mean d sigma^2/(2 T) = 2.5e-3; five runs of d = 100 scatter by 6 %.
    numbers = errata.corollary_utility(dimension=100, rounds=20_000, repeats=5)
    assert numbers.independent == pytest.approx(2.5e-3, rel=0.3)
    assert 1.5 * numbers.printed < numbers.independent < numbers.corrected


@pytest.mark.parametrize(("rounds", "ratio"), [(3, 0.9), (4, 1.2)])
def test_broken_rounds(rounds, ratio):
    numbers = errata.broken_rounds(0.3, rounds, 0.5)
    assert numbers.corrected / numbers.printed == pytest.approx(ratio, rel=1e-4)
