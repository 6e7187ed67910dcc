import numpy as np
import pytest

from dpfl.accounting.samplers import Sampling
from dpfl.asynchronous.async_sgd import round_batch
from dpfl.errors import InputError


def batch(sampling, round=0, records=50, batch_size=10, client=1):
    return round_batch(records, batch_size, sampling, seed=3, client=client, round=round)


@pytest.mark.parametrize("sampling", [Sampling.FIXED, Sampling.POISSON])
def test_no_record_twice_and_the_same_address_the_same_batch(sampling):
    own = batch(sampling)
    assert len(set(own)) == len(own) and own.min() >= 0 and own.max() < 50
    np.testing.assert_array_equal(own, batch(sampling))
    assert any(not np.array_equal(own, batch(sampling, **other)) for other in ({"round": 1}, {"client": 2}))


def test_sizes_and_shares_follow_the_law():
    # 2000 rounds: each record is drawn Binomial(2000, 0.2) times; 50 records, all within 5.5 deviations but for 2e-6.
    for sampling in (Sampling.FIXED, Sampling.POISSON):
        rounds = [batch(sampling, number) for number in range(2000)]
        counts = np.bincount(np.concatenate(rounds), minlength=50)
        assert np.abs(counts - 400).max() < 5.5 * np.sqrt(2000 * 0.2 * 0.8)
        sizes = np.array([len(each) for each in rounds])
        assert sizes.std() == 0 if sampling is Sampling.FIXED else abs(sizes.var() - 8) < 5 * 8 * np.sqrt(2 / 2000)


def test_the_order_within_a_batch_is_random():
    # An interrupt splits a batch in this order: Poisson batches must not stay sorted.
    firsts = np.array([batch(Sampling.POISSON, number, batch_size=25)[0] for number in range(400)])
    assert abs(firsts.mean() - 24.5) < 5 * np.sqrt((50**2 - 1) / 12 / 400)


@pytest.mark.parametrize(("size", "sampling"), [(0, Sampling.FIXED), (51, Sampling.FIXED), (10, Sampling.SHUFFLED)])
def test_what_cannot_be_drawn_is_refused(size, sampling):
    with pytest.raises(InputError, match=r"batch_size|sampling"):
        batch(sampling, batch_size=size)
