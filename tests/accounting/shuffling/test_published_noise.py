import math

import pytest

from dpfl.accounting import shuffling

FEDERATION = {"clients_per_round": 25, "clients": 25, "rounds": 35, "delta": 1e-5}


def test_no_experiment_of_the_paper_has_clients_enough_for_theorem_4_1():
    assert math.ceil(shuffling.least_reports(**FEDERATION)) == 339
    with pytest.raises(ValueError, match="clients_per_round"):
        shuffling.shuffled_noise_variance(**FEDERATION, epsilon=1.0, lipschitz=1.0, records=100)


def test_the_printed_variance():
    ours = shuffling.shuffled_noise_variance(
        epsilon=2.0,
        delta=1e-5,
        lipschitz=3.0,
        rounds=35,
        records=100,
        clients_per_round=1000,
        clients=2000,
        constant=0.5,
    )
    logs = math.log(35 * 1000**2 / (2000 * 1e-5)) * math.log(35 / 1e-5) * math.log(1e5)
    assert ours == pytest.approx(0.5 * 9 * 35 * 1000 * logs / (100 * 2000 * 2) ** 2, rel=1e-14)
