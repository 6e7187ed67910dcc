"""Who takes part, which records are drawn, and what a round hands over."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dpfl.accounting.samplers import Sampling
from dpfl.convex.federated_rounds import (
    Hyperparameters,
    Participation,
    Protocol,
    Trials,
    draw_round,
    mean_of_last,
    participants,
)
from dpfl.convex.problems import FactoredRecords, Square

FALSE_ALARM = 1e-6
"""Chance that a correct sampler fails one of the statistical tests below (their seeds are fixed)."""


@pytest.fixture
def trials() -> Trials:
    """Two trials of three clients with 5, 4 and 6 records; a record's target is its place."""
    return Trials((4, 9), np.ones((2, 15, 1)), np.tile(np.arange(15.0), (2, 1)), np.array([0, 5, 9, 15]))


def protocol(sizes=(3,), **changes) -> Protocol:
    """One round of K = 1 of every client."""
    return replace(Protocol(Square(), 1, Participation(tuple(sizes)), batch_size=1, repetitions=1), **changes)


def drawn(trials: Trials, rules: Protocol):
    """Return the first round."""
    return draw_round(trials, FactoredRecords.of(trials.x, trials.y), rules, 0, steps=1)


def test_every_set_of_participants_is_equally_likely():
    """Chi-square over the 10 pairs out of 5 clients, 20,000 repetitions; and rounds are drawn anew."""
    rules = protocol((2,), repetitions=20_000)
    chosen, present = participants(7, 0, 5, rules)
    assert chosen.shape == (20_000, 2) and (chosen[:, 0] < chosen[:, 1]).all() and present.all()
    counts = [np.all(chosen == pair, axis=1).sum() for pair in itertools.combinations(range(5), 2)]
    assert sum(counts) == 20_000
    assert stats.chisquare(counts).pvalue > FALSE_ALARM
    again, _ = participants(7, 1, 5, rules)
    table = stats.contingency.crosstab(chosen @ [5, 1], again @ [5, 1]).count
    assert stats.chi2_contingency(table).pvalue > FALSE_ALARM


def test_a_random_number_of_participants_is_uniform_on_its_list_and_so_are_the_sets():
    """M_r is 1, 3, 3 or 4 of 5 clients: chi-square of M_r, and of the 10 sets of three."""
    rules = protocol((1, 3, 3, 4), repetitions=40_000)
    chosen, present = participants(3, 2, 5, rules)
    counts = present.sum(axis=1).astype(int)
    assert rules.participation.mean_inverse == pytest.approx((1 + 1 / 3 + 1 / 3 + 1 / 4) / 4)
    assert stats.chisquare(np.bincount(counts, minlength=5)[[1, 3, 4]], [10_000, 20_000, 10_000]).pvalue > FALSE_ALARM
    inverse = 1 / counts
    assert abs(inverse.mean() - rules.participation.mean_inverse) < 5 * inverse.std() / 200  # 5.7e-7
    three = chosen[counts == 3][:, :3]
    assert (np.diff(three, axis=1) > 0).all() and (np.diff(present, axis=1) <= 0).all()
    sets = [np.all(three == each, axis=1).sum() for each in itertools.combinations(range(5), 3)]
    assert sum(sets) == len(three) and stats.chisquare(sets).pvalue > FALSE_ALARM


def test_who_does_not_take_part_hands_over_nothing(trials):
    rules = protocol((1, 2, 3), repetitions=50, batch_size=4)
    round = drawn(trials, rules)
    absent = round.participates == 0
    assert absent.any() and not round.noise[absent].any() and not round.records.direction[absent].any()
    assert round.noise[~absent].all() and round.records.direction[~absent].all()
    assert np.array_equal(round.count[..., 0, 0], round.participates.sum(axis=2)) and set(round.count.ravel()) == {
        1,
        2,
        3,
    }


def test_batches_are_uniform_over_a_clients_records_and_with_replacement(trials):
    """Chi-square of one client's draws; a batch larger than the client shows that records return."""
    targets = drawn(trials, protocol(batch_size=30, repetitions=200)).records.targets
    assert targets.shape == (2, 200, 3, 30)
    for client, (start, stop) in enumerate(itertools.pairwise(trials.starts)):
        counts = np.bincount(targets[:, :, client].astype(int).ravel(), minlength=15)
        assert counts[start:stop].sum() == counts.sum() == 12_000
        assert stats.chisquare(counts[start:stop]).pvalue > FALSE_ALARM


def test_batches_without_replacement_hold_no_record_twice_and_all_sets_equally_often(trials):
    """Chi-square of the 10 pairs of the first client's 5 records."""
    targets = drawn(trials, protocol(batch_size=2, repetitions=5_000, sampling=Sampling.FIXED)).records.targets
    assert (targets[..., 0] != targets[..., 1]).all()
    pairs = np.sort(targets[:, :, 0].reshape(-1, 2), axis=1)
    counts = [np.all(pairs == pair, axis=1).sum() for pair in itertools.combinations(range(5), 2)]
    assert sum(counts) == 10_000 and stats.chisquare(counts).pvalue > FALSE_ALARM


def test_a_full_batch_is_all_records():
    trials = Trials((0,), np.ones((1, 6, 1)), np.arange(6.0)[None], np.array([0, 3, 6]))
    targets = drawn(trials, protocol((2,), batch_size=3, repetitions=2, sampling=Sampling.FULL)).records.targets
    assert np.array_equal(targets, np.tile([[0, 1, 2], [3, 4, 5]], (1, 2, 1, 1)))


def test_clients_of_a_round_are_drawn_as_if_alone(trials):
    """A client's records and noise do not depend on who else takes part."""
    everyone, some = (drawn(trials, protocol(sizes, batch_size=3, repetitions=4)) for sizes in ((3,), (2,)))
    chosen = np.stack([participants(seed, 0, 3, protocol((2,), repetitions=4))[0] for seed in trials.seeds])
    same = np.take_along_axis(everyone.records.targets, chosen[..., None], axis=2)
    assert np.array_equal(same, some.records.targets)
    assert np.array_equal(np.take_along_axis(everyone.noise, chosen[..., None, None], axis=2), some.noise)


@pytest.mark.parametrize(
    ("sizes", "changes", "starts", "named"),
    [
        ((4,), {}, (0, 5, 9, 15), "participation: 4 of 3"),
        ((1,), {}, (0, 5, 5, 15), "client 1 has no records"),
        ((1,), {"sampling": Sampling.FIXED, "batch_size": 5}, (0, 5, 9, 15), "batch_size 5 exceeds the 4"),
        ((1,), {"sampling": Sampling.FULL, "batch_size": 5}, (0, 5, 9, 15), "batch_size 5 is not"),
    ],
)
def test_what_a_protocol_asks_for_and_there_is_not_is_named(trials, sizes, changes, starts, named):
    with pytest.raises(ValueError, match=named):
        protocol(sizes, **changes).fits(replace(trials, starts=np.array(starts)))


def test_arguments_out_of_range_are_named():
    for sizes in ((), (0,), (3, -1)):
        with pytest.raises(ValueError, match="sizes"):
            Participation(sizes)
    with pytest.raises(ValueError, match="sampling"):
        protocol(sampling=Sampling.POISSON)


def test_points_join_with_and_without_their_optional_fields():
    one = Hyperparameters(np.array([1.0]), np.array([2.0]), np.array([0.0]), radius=np.array([np.inf]))
    two = Hyperparameters(np.array([3.0, 4.0]), np.ones(2), np.ones(2), radius=np.array([np.inf, 5.0]))
    both = Hyperparameters.joined([one, two])
    assert both.step_size.tolist() == [1.0, 3.0, 4.0] and both.regularisation is None
    assert both.projected and not one.projected and both.radius.tolist() == [np.inf, np.inf, 5.0]


def test_the_output_is_the_mean_of_the_last_iterates_even_where_one_array_is_reused():
    buffer, told = np.zeros(2), []

    def iterates():
        for value in (1.0, 2.0, 6.0):
            buffer[:] = value
            yield buffer

    assert mean_of_last(iterates(), 3, 2, lambda: told.append(1)).tolist() == [4.0, 4.0]
    assert len(told) == 3 and mean_of_last(iterates(), 3, 1).tolist() == [6.0, 6.0]
