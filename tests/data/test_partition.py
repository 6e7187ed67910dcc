"""Partitions: sizes, overlap, and addresses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.data.partition import random_shares


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 300), st.integers(1, 12), st.integers(1, 100), st.integers(0, 5))
def test_every_share_is_of_distinct_records_and_disjoint_where_it_can_be(records, clients, percent, seed):
    share = percent / 100
    size = records * percent // 100
    if size == 0:
        with pytest.raises(ValueError, match=r"^share must give each client"):
            random_shares(records, clients, share, seed)
        return
    shares = random_shares(records, clients, share, seed)
    assert len(shares) == clients
    for indices in shares:
        assert indices.dtype == np.int64 and indices.shape == (size,)
        assert indices.min() >= 0 and indices.max() < records and len(set(indices.tolist())) == size
    if clients * percent <= 100:
        assert len(set(np.concatenate(shares).tolist())) == clients * size


@pytest.mark.parametrize(
    ("clients", "share"), [(10, 0.1), (3, 1 / 3), (49, 1 / 49), (6, 1 / 6), (10, (0.1 + 0.2) / 3), (1, 1.0)]
)
def test_shares_that_add_up_to_one_are_disjoint_and_complete(clients, share):
    shares = random_shares(clients * 20, clients, share, 0)
    assert sorted(np.concatenate(shares).tolist()) == list(range(clients * 20))


@pytest.mark.parametrize("shares", [[0.5, 0.2, 0.1], [0.7, 0.2, 0.1], [0.7, 0.2, 0.2]])
def test_clients_may_differ_in_size(shares):
    found = random_shares(200, 3, shares, 0)
    assert [len(share) for share in found] == [round(200 * share) for share in shares]
    assert all(len(set(share.tolist())) == len(share) for share in found)
    disjoint = len(set(np.concatenate(found).tolist())) == sum(map(len, found))
    assert disjoint == (sum(shares) < 1.05)


def test_a_rounding_error_takes_no_record_away():
    assert 0.29 * 100 < 29
    assert len(random_shares(100, 1, 0.29, 0)[0]) == 29


def test_the_share_of_a_client_depends_on_its_address_alone():
    """A client keeps its records when others join, as long as the shares overlap; seeds differ."""
    few, many = random_shares(1000, 5, 0.5, 7), random_shares(1000, 9, 0.5, 7)
    assert all(np.array_equal(a, b) for a, b in zip(few, many[:5], strict=True))
    assert not np.array_equal(few[0], random_shares(1000, 5, 0.5, 8)[0])
    assert not np.array_equal(few[0], few[1])


def test_shares_that_fit_may_be_independent_all_the_same():
    """The draws are those of overlapping shares, so the statistical test below is of them too."""
    shares = random_shares(1000, 3, 0.1, 4, independent=True)
    many = random_shares(1000, 20, 0.1, 4)
    assert all(np.array_equal(a, b) for a, b in zip(shares, many[:3], strict=True))
    assert len(set(np.concatenate(random_shares(1000, 10, 0.1, 4, independent=True)).tolist())) < 1000


def test_overlapping_shares_are_independent_and_uniform():
    """Two clients of half of 2,000 records share Hypergeometric(2000, 1000, 1000) of them: 500 +- 11.2.

    40 pairs; the mean lies within 5 standard errors but with probability 6e-7, and each half of the records is hit
    as often as the other (same bound).
    """
    common, low = [], []
    for seed in range(40):
        first, second = random_shares(2000, 3, 0.5, seed)[:2]
        common.append(len(np.intersect1d(first, second)))
        low.append((first < 1000).sum())
    error = np.sqrt(1000 * 0.5 * 0.5 * 1000 / 1999 / 40)
    assert abs(np.mean(common) - 500) < 5 * error
    assert abs(np.mean(low) - 500) < 5 * error


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((0, 1, 0.5, 0), "records"),
        ((10, 0, 0.5, 0), "clients"),
        ((10, 1.5, 0.5, 0), "clients"),
        ((10, 1, 0.0, 0), "share"),
        ((10, 1, 1.1, 0), "share"),
        ((10, 1, float("nan"), 0), "share"),
        ((10, 1, 0.05, 0), "share"),
        ((10, 3, [0.5, 0.5], 0), "share"),
        ((10, 2, [0.5, 0.01], 0), "share"),
    ],
)
def test_wrong_arguments_are_named(arguments, name):
    with pytest.raises(ValueError, match=f"^{name} must"):
        random_shares(*arguments)
