import pytest

from dpfl.papers.vandijk2023 import errata


@pytest.mark.parametrize(
    ("numbers", "printed", "corrected"),
    [
        (errata.epsilon_delta_curve(0.1, 1.0, 1e-5), 0.0, 0.7282),
        (errata.renyi_sign(3.0, 1.0), -0.5, 1.5),
        (errata.loss_within_epsilon(1.0, 1.0), 0.127, 0.375),
        (errata.expected_rounds(0.5), 0.625, 0.3125),
        (errata.concentrated("A0", 64), 250.0, 4450.0),
        (errata.concentrated("A1", 2), 7.8125, 9.464),
        (errata.optimistic_h(20.0), 4.76e-8, 6.63e-7),
    ],
    ids=["curve", "renyi", "loss", "rounds", "A0", "A1", "h"],
)
def test_printed_and_corrected_values(numbers, printed, corrected):
    assert numbers.printed == pytest.approx(printed, rel=2e-3, abs=1e-12)
    assert numbers.corrected == pytest.approx(corrected, rel=2e-3, abs=0)


def test_the_accountants_differ():
    poisson, limit = errata.whose_accountant(), errata.central_limit()
    assert poisson.printed == pytest.approx(3.18, abs=0.005)
    assert poisson.corrected == pytest.approx(2.75, abs=0.005)
    assert poisson.independent == pytest.approx(poisson.corrected, abs=0.02)
    assert limit.printed == pytest.approx(3.23, abs=0.01)
