import pytest

from dpfl.accounting import gaussian_dp
from dpfl.accounting.tradeoff import Gaussian
from dpfl.papers.vandijk2023.reference_run import epsilon_of, equivalent_mu, run


def test_the_run_has_whole_rounds():
    values = run()
    assert values["n"] % values["m"] == 0


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
def test_a_gaussian_is_its_own_equivalent(mu):
    assert equivalent_mu(Gaussian(mu)) == pytest.approx(mu, rel=1e-9)
    assert float(gaussian_dp.delta(epsilon_of(Gaussian(mu)), mu)) == pytest.approx(1e-5, rel=1e-9)
