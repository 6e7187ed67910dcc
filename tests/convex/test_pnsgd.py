"""The records that PNSGD takes, one a step, and the orders in which seeds take them."""

import itertools

import numpy as np
from scipy import stats

from dpfl.convex.pnsgd import _orders, ordered_records
from dpfl.convex.problems import FactoredRecords
from dpfl.convex.projected_sgd import BLOCK

FALSE_ALARM = 1e-6
TARGETS = np.arange(60.0) / 7
RECORDS = FactoredRecords.of(np.arange(1.0, 61.0)[:, None], TARGETS)


def test_given_orders_are_read_as_given():
    orders = np.array([[3, 1, 2], [0, 4, 5], [9, 9, 9]])
    block = ordered_records(RECORDS, orders)(0)
    assert np.array_equal(block.norms[:, :3, 0] - 1, orders)
    assert np.array_equal(block.targets[:, :3, 0], TARGETS[orders])


def test_long_orders_go_on_in_the_next_block():
    orders = np.random.default_rng(0).integers(0, 60, size=(2, 2 * BLOCK))
    source = ordered_records(RECORDS, orders)
    for block in (1, 0):
        assert np.array_equal(source(block).norms[..., 0] - 1, orders[:, block * BLOCK : (block + 1) * BLOCK])


def test_sorted_records_are_taken_as_they_are_and_permuted_ones_once_each():
    assert _orders((4, 7), 5, permuted=False).tolist() == [[0, 1, 2, 3, 4]] * 2
    found = _orders((4, 7, 4), 30, permuted=True)
    assert np.array_equal(np.sort(found), np.tile(np.arange(30), (3, 1)))
    assert np.array_equal(found[0], found[2]) and not np.array_equal(found[0], found[1])


def test_all_orders_are_as_likely():
    """The six orders of three records in 3000 seeds."""
    seen = [tuple(order) for order in _orders(tuple(range(3000)), 3, permuted=True).tolist()]
    counts = [seen.count(order) for order in itertools.permutations(range(3))]
    assert sum(counts) == 3000 and stats.chisquare(counts).pvalue > FALSE_ALARM
