"""Clients of digit pairs: who holds what, what leaks in the published split, and that nothing does in the other."""

import itertools

import numpy as np
import pytest

from dpfl.data.digit_pairs import DigitPairs, Split
from dpfl.errors import InputError

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
