from itertools import pairwise

import numpy as np
import pytest

from dpfl.accounting import local_privacy
from dpfl.accounting.contraction import hockey_stick
from dpfl.papers.lowy2021 import errata


def test_the_noise_of_the_theorem_suffices_and_is_33_to_55_times_loose():
    numbers = [errata.theorem_full(epsilon) for epsilon in (0.125, 1.0, 3.0, 10.0)]
    looseness = [each.printed / each.corrected for each in numbers]
    assert looseness == pytest.approx([55.1, 41.3, 36.9, 33.1], abs=0.05)


@pytest.mark.parametrize(("epsilon", "interval", "spent"), [(1.0, 2e-5, 0.0253), (10.0, 2e-4, 0.352)])
def test_with_replacement_too_it_suffices(epsilon, interval, spent):
    numbers = errata.theorem_sampled(epsilon, interval)
    assert numbers.corrected == pytest.approx(spent, rel=3e-3)
    # The bound is near: nine tenths of it are spent on a known data set.
    assert 0.9 * numbers.corrected < numbers.independent < numbers.corrected < 0.04 * epsilon


def test_the_later_script_is_meant_for_small_epsilon_in_local_sgd():
    assert errata.later_script_range(3.0).corrected == pytest.approx(4 * 19 * 35 / 105**2)


def test_the_later_script_spends_more_than_its_largest_budget():
    spent = [errata.later_script(epsilon, clients).corrected for epsilon, clients in ((3.0, 10), (10.0, 3), (3.0, 3))]
    assert spent == pytest.approx([3.68, 24.7, 2.98], rel=2e-3)


def test_other_counts_of_records_spend_no_less():
    clients = (errata.ONE_OF_THREE, errata.ONE_OF_TEN, errata.LATER_SCRIPT[3])
    assert [each.batch for each in clients] == [37, 19, 119]
    for records, batch in ((446, 65), (356, 52)):
        delta = 1 / records**2
        variance = local_privacy.moments_variance(epsilon=3, delta=delta, lipschitz=1, rounds=35, records=records)
        size = {"noise_multiplier": float(variance**0.5) * batch, "batch_size": batch, "records": records}
        assert local_privacy.with_replacement_known_epsilon(**size, steps=35, delta=delta) > 4.3


def test_clipping_the_mean_spends_a_thousand():
    numbers = errata.clipped_mean(1.0, "the later script")
    assert numbers.corrected == pytest.approx(1720, rel=0.01)
    assert numbers.independent < numbers.corrected


def test_one_record_turns_the_clipped_mean_of_a_real_batch_around():
    # The case behind the independent value: all others pull to -1, the record by far the other way.
    batch, draws = 119, 20_000
    gradients = np.full(356, -1.0)
    gradients[0] = 2.0 * batch
    slots = np.random.default_rng(0).integers(0, 356, (draws, batch))
    means = np.clip(gradients[slots].mean(axis=1), -1, 1)
    assert set(means) == {-1.0, 1.0}
    rate = 1 - (1 - 1 / 356) ** batch
    # 4.75 standard errors: false alarm 2e-6
    assert abs((means > 0).mean() - rate) < 4.75 * (rate * (1 - rate) / draws) ** 0.5


def test_no_experiment_has_enough_clients():
    assert errata.shuffled_clients(25, 1e-5).corrected == pytest.approx(339, abs=0.5)
    assert errata.fewest_clients(25, 1e-5).corrected == 383


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_the_mechanism_that_exceeds_the_group_delta_is_private(epsilon):
    laws = errata.answer_laws(3, epsilon, 1e-6)
    for one, other in pairwise(laws):
        assert hockey_stick(one, other, epsilon) <= 1e-6 * (1 + 1e-9)
        assert hockey_stick(other, one, epsilon) == pytest.approx(1e-6, rel=1e-6)


def test_the_leak_is_almost_total():
    leaks = [errata.leaked_rows(clients, "") for clients in (1, 5)]
    assert [leak.corrected for leak in leaks] == pytest.approx([0.55, 0.98], abs=0.005)
