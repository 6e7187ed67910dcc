import itertools

import numpy as np
import pytest
from scipy import stats

from dpfl.data.loading import TableData
from dpfl.data.non_iid_blocks import client_blocks, split
from dpfl.errors import InputError


@pytest.fixture
def table() -> TableData:
    """A table of 62 records and three columns: blocks of 21, 21 and 20."""
    rng = np.random.default_rng(8)
    x = np.column_stack([rng.normal(40, 12, 62), rng.integers(0, 2, 62), rng.integers(0, 4, 62)]).astype(float)
    y = x @ np.array([0.1, 5.0, 1.0]) + rng.normal(size=62)
    return TableData(description={}, columns=("age", "sex", "region"), x=x, y=y)


def test_trials_differ_and_every_split_holds_each_record_once(table):
    trials = [split(table, 3, [], seed) for seed in range(3)]
    for trial in trials:
        assert list(trial.starts) == [0, 16, 32, 48] and len(trial.test_y) == 14
        assert sorted([*trial.train_y, *trial.test_y]) == sorted(table.y)
        blocks = [trial.train_y[start:stop] for start, stop in itertools.pairwise(trial.starts)]
        assert all(low.max() <= high.min() for low, high in itertools.pairwise(blocks))
    assert not np.array_equal(trials[0].train_y, trials[1].train_y)


def test_every_record_is_held_back_equally_often(table):
    """Exact binomial tail of 2,000 trials at 5 in 21 for the record seen least and most; false alarm below 1e-6."""
    lowest = np.sort(table.y)[:21]
    held = np.zeros(21)
    for seed in range(2000):
        held += np.isin(lowest, split(table, 3, [], seed).test_y)
    low, high = stats.binom.ppf([1e-8, 1 - 1e-8], 2000, 5 / 21)
    assert low <= held.min() and held.max() <= high


def test_standardised_columns_have_mean_0_and_deviation_1_in_every_clients_training_records(table):
    trial = split(table, 3, ["age", "region"], seed=2)
    for start, stop in itertools.pairwise(trial.starts):
        own = trial.train_x[start:stop, [1, 3]]
        np.testing.assert_allclose(own.mean(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(own.std(axis=0), 1.0, rtol=1e-12)
    assert set(trial.train_x[:, 0]) == {1.0} and set(trial.train_x[:, 2]) == {0.0, 1.0}


def test_a_client_without_records_is_named():
    with pytest.raises(InputError, match="client 31"):
        client_blocks(62, 40)


@pytest.mark.parametrize(
    ("standardise", "named"), [(["height"], "no column height"), (["age", "region"], "region is constant")]
)
def test_columns_that_cannot_be_standardised_are_named(table, standardise, named):
    table.x[:, 2] = 3.0
    with pytest.raises(InputError, match=named):
        split(table, 3, standardise, 0)
