"""Partitions: sizes, overlap, and addresses."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpfl.data.loading import TableData
from dpfl.data.partition import (
    DigitPairs,
    Split,
    client_blocks,
    dirichlet_shares,
    label_shards,
    random_shares,
    split,
)
from dpfl.errors import InputError


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


LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 60))


def pairs(split: Split, digits: int = 10, images_per_digit: int = 12) -> DigitPairs:
    """The clients of 600 images, 60 of each digit."""
    return DigitPairs.of(LABELS, digits, images_per_digit, split)


@pytest.mark.parametrize("split", list(Split))
def test_clients_hold_their_own_two_digits(split):
    own = pairs(split)
    assert own.clients == [(even, odd) for even in (0, 2, 4, 6, 8) for odd in (1, 3, 5, 7, 9)]
    for client, hand in zip(own.clients, own.deal(3), strict=True):
        assert len(hand) == 24 and set(LABELS[hand]) == set(client)


def test_the_published_split_draws_with_replacement_from_the_first_images():
    own = pairs(Split.PUBLISHED)
    first = np.concatenate([np.flatnonzero(digit == LABELS)[:12] for digit in range(10)])
    hands = own.deal(0)
    assert set(np.concatenate(hands)) <= set(first) and np.array_equal(own.dealt, np.sort(first))
    assert all(len(set(hand)) < 24 for hand in hands)
    # An image is drawn by its client with probability 1 - (1 - 1/24)^24 = 0.64: 500 trials of 24 images of client 0.
    held = np.mean([len(set(own.deal(seed)[0])) / 24 for seed in range(500)])
    assert abs(held - (1 - (1 - 1 / 24) ** 24)) < 0.02  # more than 5 standard errors


def test_the_disjoint_split_shares_no_image():
    own = pairs(Split.DISJOINT)
    hands = own.deal(7)
    everything = np.concatenate(hands)
    assert len(everything) == len(set(everything)) == 600
    for (one, left), (other, right) in itertools.combinations(zip(own.clients, hands, strict=True), 2):
        assert not set(left) & set(right), (one, other)
    assert any(not np.array_equal(a, b) for a, b in zip(hands, own.deal(8), strict=True))


@pytest.mark.parametrize("split", list(Split))
def test_trials_hold_back_a_fifth_and_name_even_digits_1(split):
    own = pairs(split, digits=4)
    x = np.arange(600.0)[:, None]
    trial = own.trial(x, seed=1)
    assert list(trial.starts) == [0, 19, 38, 57, 76] and len(trial.test_y) == 4 * 5
    for part, target in ((trial.train_x, trial.train_y), (trial.test_x, trial.test_y)):
        labels = LABELS[part[:, 0].astype(int)]
        assert np.array_equal(target, np.where(labels % 2 == 0, 1.0, -1.0))
    own_digits = [set(LABELS[trial.train_x[a:b, 0].astype(int)]) for a, b in itertools.pairwise(trial.starts)]
    assert own_digits == [{0, 1}, {0, 3}, {2, 1}, {2, 3}]
    shared = set(trial.train_x[:, 0]) & set(trial.test_x[:, 0])
    assert bool(shared) == (split is Split.PUBLISHED)


def test_what_cannot_be_dealt_is_named():
    with pytest.raises(InputError, match=r"needs 65 training images of digit 0, there are 60"):
        pairs(Split.DISJOINT, images_per_digit=13)
    with pytest.raises(InputError, match="images_per_digit: 61"):
        pairs(Split.PUBLISHED, images_per_digit=61)
    for digits in (0, 1, 3):
        with pytest.raises(InputError, match=f"digits is {digits}"):
            pairs(Split.PUBLISHED, digits=digits)


# Shares that depend on the labels.


@pytest.mark.parametrize("deal", [lambda *a: label_shards(*a, 3, 5), lambda *a: dirichlet_shares(*a, 2.0, 5)])
def test_every_record_is_some_clients_once_and_a_seed_decides(deal):
    labels = np.arange(1003) % 7
    shares = deal(labels, 4)
    assert len(shares) == 4 and sorted(np.concatenate(shares).tolist()) == list(range(1003))
    assert all(np.array_equal(one, other) for one, other in zip(shares, deal(labels, 4), strict=True))


def test_a_client_has_as_many_labels_as_shards_and_shards_fall_as_permutations_do():
    labels, clients, shards = np.random.default_rng(0).permutation(np.repeat(np.arange(8), 10)), 4, 2
    dealt = [label_shards(labels, clients, shards, seed) for seed in range(2000)]
    kinds = [[np.unique(labels[share]).tolist() for share in shares] for shares in dealt]
    assert all(len(share) == 20 for shares in dealt for share in shares)
    assert all(sorted(itertools.chain(*own)) == list(range(8)) for own in kinds)  # a shard is a label here
    # Client 0's pair is uniform among 28: a false alarm of 1e-6.
    pairs = [tuple(own[0]) for own in kinds]
    counts = [pairs.count(pair) for pair in itertools.combinations(range(8), 2)]
    assert stats.chisquare(counts).pvalue > 1e-6
    # Within a label the records of a shard are random: with two shards a label, each record is in the first half often.
    halves = np.array([np.isin(np.arange(40), label_shards(np.zeros(40, int), 2, 1, seed)[0]) for seed in range(2000)])
    # 40 binomial counts, each beyond its bounds with a chance of 1e-6 / 40 (Bonferroni).
    low, high = stats.binom.interval(1 - 1e-6 / 40, 2000, 0.5)
    assert ((halves.sum(0) >= low) & (halves.sum(0) <= high)).all()


@pytest.mark.parametrize("concentration", [0.5, 3.0])
def test_a_clients_part_of_a_label_has_the_marginals_of_a_dirichlet_law(concentration):
    clients, each = 3, 20000
    labels = np.repeat([0, 1], each)
    parts = np.empty((300, 2, clients))
    for seed in range(300):
        shares = dirichlet_shares(labels, clients, concentration, seed)
        parts[seed] = [[(labels[share] == label).sum() / each for share in shares] for label in (0, 1)]
    # Beta(a, (K - 1) a) up to the rounding to whole records, 1 / 20000; a false alarm of 6e-6 over all six.
    law = stats.beta(concentration, (clients - 1) * concentration)
    assert all(stats.kstest(parts[:, label, client], law.cdf).pvalue > 1e-6 for label in (0, 1) for client in range(3))
    # Labels are independent: the correlation of 300 pairs exceeds 0.28 with a chance of 1e-6.
    assert abs(np.corrcoef(parts[:, 0, 0], parts[:, 1, 0])[0, 1]) < 0.28


def test_shares_by_label_that_leave_a_client_without_records_are_refused():
    with pytest.raises(InputError, match=r"dirichlet:0\.001 leaves client \d of 5 without records; take fewer"):
        dirichlet_shares(np.arange(100) % 2, 5, 0.001, 0)
    with pytest.raises(InputError, match="5 clients with 3 shards each need more than 14 records"):
        label_shards(np.zeros(14, int), 5, 3, 0)
