"""Noisy minibatch SGD: the stack against one plain loop a run, its noise, and who takes part."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from dpfl.engine.randomness import generator
from dpfl.federated import minibatch
from dpfl.federated.minibatch import Points, Protocol, Trials

FALSE_ALARM = 1e-6
"""Chance that a correct sampler fails one of the statistical tests below (their seeds are fixed)."""


@pytest.fixture
def trials() -> Trials:
    """Two trials of three clients with 5, 4 and 6 records of three features."""
    rng = np.random.default_rng(3)
    return Trials((4, 9), rng.normal(size=(2, 15, 3)), rng.normal(size=(2, 15)), np.array([0, 5, 9, 15]))


@pytest.fixture
def points() -> Points:
    """Four models: clipped and noisy, hardly clipped, not clipped and not noisy, and one that diverges."""
    return Points(
        step_size=np.array([0.1, 0.3, 0.2, 50.0]),
        clip_norm=np.array([0.5, 2.0, np.inf, np.inf]),
        noise_std=np.array([0.7, 0.1, 0.0, 0.0]),
    )


def nothing() -> None:
    """No progress to report."""


def plain_run(trials, trial, repetition, step_size, clip_norm, noise_std, protocol) -> np.ndarray:
    """One run of Algorithm 1, read off the paper: no stack, one record at a time."""
    seed, x, y = trials.seeds[trial], trials.x[trial], trials.y[trial]
    features, clients = x.shape[1], len(trials.starts) - 1
    shape = (protocol.repetitions, protocol.batch_size)
    weights, iterates = np.zeros(features), []
    for round in range(protocol.rounds):
        taking_part = minibatch.participants(seed, round, clients, protocol)[repetition]
        total = np.zeros(features)
        for client in taking_part:
            draws = generator(seed, "batches", client, round)
            batch = draws.integers(trials.starts[client], trials.starts[client + 1], size=shape)[repetition]
            message = np.zeros(features)
            for record in batch:
                gradient = (x[record] @ weights - y[record]) * x[record]
                message += gradient / max(1.0, np.linalg.norm(gradient) / clip_norm) / protocol.batch_size
            normal = generator(seed, "noise", client, round).standard_normal((protocol.repetitions, features))
            total += message + noise_std * normal[repetition]
        weights = weights - step_size * total
        iterates.append(weights)
    return np.mean(iterates[-protocol.last_iterates :], axis=0)


@pytest.mark.parametrize("participating", [3, 2, 1])
def test_the_stack_is_the_plain_loop(trials, points, participating):
    protocol = Protocol(rounds=6, participating=participating, batch_size=4, repetitions=2, last_iterates=3)
    outputs = minibatch.run(trials, points, protocol, nothing)
    assert outputs.shape == (2, 2, 3, 4)
    for trial, repetition, model in itertools.product(range(2), range(2), range(4)):
        own = (points.step_size[model], points.clip_norm[model], points.noise_std[model])
        expected = plain_run(trials, trial, repetition, *own, protocol)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(outputs[trial, repetition, :, model], expected, rtol=0, atol=1e-12 * scale)


def test_a_run_that_overflows_leaves_the_others_alone(trials, points):
    protocol = Protocol(rounds=300, participating=3, batch_size=2, repetitions=1, last_iterates=2)
    outputs = minibatch.run(trials, points, protocol, nothing)
    calm = Points(points.step_size[:3], points.clip_norm[:3], points.noise_std[:3])
    assert not np.isfinite(outputs[..., 3]).any()
    assert np.array_equal(outputs[..., :3], minibatch.run(trials, calm, protocol, nothing))


def test_the_noise_has_the_stated_standard_deviation():
    """With zero targets nothing but noise moves the first step: Kolmogorov-Smirnov accepts sigma, refuses 2/3, 3/2."""
    silent = Trials(tuple(range(50)), np.ones((50, 4, 5)), np.zeros((50, 4)), np.array([0, 2, 4]))
    points = Points(np.array([0.5, 0.5]), np.array([1.0, 1.0]), np.array([3.0, 0.0]))
    protocol = Protocol(rounds=1, participating=2, batch_size=1, repetitions=20, last_iterates=1)
    moved = minibatch.run(silent, points, protocol, nothing)
    sum_of_two = moved[..., 0].ravel() / (0.5 * 3.0 * np.sqrt(2))
    assert not moved[..., 1].any()
    assert stats.kstest(sum_of_two, "norm").pvalue > FALSE_ALARM
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(sum_of_two * wrong, "norm").pvalue < FALSE_ALARM


def test_every_set_of_participants_is_equally_likely():
    """Chi-square over the 10 pairs out of 5 clients, 20,000 repetitions; and rounds are drawn anew."""
    protocol = Protocol(rounds=1, participating=2, batch_size=1, repetitions=20_000, last_iterates=1)
    chosen = minibatch.participants(7, 0, 5, protocol)
    assert chosen.shape == (20_000, 2) and (chosen[:, 0] < chosen[:, 1]).all()
    counts = [np.all(chosen == pair, axis=1).sum() for pair in itertools.combinations(range(5), 2)]
    assert sum(counts) == 20_000
    assert stats.chisquare(counts).pvalue > FALSE_ALARM
    again = minibatch.participants(7, 1, 5, protocol)
    table = stats.contingency.crosstab(chosen @ [5, 1], again @ [5, 1]).count
    assert stats.chi2_contingency(table).pvalue > FALSE_ALARM


def test_batches_are_uniform_over_a_clients_records_and_with_replacement(trials):
    """Chi-square of one client's draws; a batch larger than the client shows that records return."""
    protocol = Protocol(rounds=1, participating=3, batch_size=30, repetitions=200, last_iterates=1)
    where = np.arange(15.0)
    located = Trials(trials.seeds, np.ones((2, 15, 1)), np.broadcast_to(where, (2, 15)), trials.starts)
    records = minibatch.Records.of(located.x, located.y)
    drawn = minibatch.draw_round(located, records, protocol, 0, steps=1).records.scaled_y
    assert drawn.shape == (2, 200, 3, 30)
    for client, (start, stop) in enumerate(itertools.pairwise(trials.starts)):
        counts = np.bincount(drawn[:, :, client].astype(int).ravel(), minlength=15)
        assert counts[start:stop].sum() == counts.sum() == 12_000
        assert stats.chisquare(counts[start:stop]).pvalue > FALSE_ALARM


def test_progress_is_told_every_round(trials, points):
    told = []
    protocol = Protocol(rounds=5, participating=3, batch_size=1, repetitions=1, last_iterates=1)
    minibatch.run(trials, points, protocol, lambda: told.append(1))
    assert len(told) == 5
