"""One pass: each record at most once, its plain loop, who takes part, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from dpfl.accounting.samplers import Sampling
from dpfl.algorithms import accelerated_sgd, one_pass_sgd
from dpfl.algorithms.accelerated_sgd import Restart
from dpfl.algorithms.one_pass_sgd import OneRecordGradients
from dpfl.engine.federated_rounds import Aggregate, Hyperparameters, Participation, Protocol, Trials, participants
from dpfl.models.glm import Square
from dpfl.randomness import generator

PROTOCOL = Protocol(
    Square(), 4, Participation((3,)), 1, repetitions=2, sampling=Sampling.FIXED, aggregate=Aggregate.MEAN
)
POINTS = Hyperparameters(np.zeros(2), np.array([0.5, 2.0]), np.array([0.7, 0.1]))


@pytest.fixture
def trials() -> Trials:
    """Two trials of three clients with 5, 4 and 6 records of two features."""
    rng = np.random.default_rng(3)
    return Trials((4, 9), rng.normal(size=(2, 15, 2)), rng.normal(size=(2, 15)), np.array([0, 5, 9, 15]))


def test_no_record_is_shown_twice(trials):
    for seed in trials.seeds:
        order = one_pass_sgd.record_order(trials, seed, 4)
        assert order.shape == (3, 4)
        assert len(np.unique(order)) == order.size
        for client, (start, stop) in enumerate(zip(trials.starts[:-1], trials.starts[1:], strict=True)):
            assert np.all((order[client] >= start) & (order[client] < stop))
    assert set(one_pass_sgd.record_order(trials, 4, 4)[1]) == {5, 6, 7, 8}  # a client whose records are all used


@pytest.mark.parametrize("sizes", [(3,), (1, 3)])
def test_gradients_equal_a_plain_loop(trials, sizes):
    protocol = replace(PROTOCOL, participation=Participation(sizes))
    source = OneRecordGradients(trials, POINTS, protocol)
    weights = np.random.default_rng(0).normal(size=source.shape)
    for round in range(4):
        found = source.at(weights, round)
        for trial, repetition, model in np.ndindex(2, 2, 2):
            seed = trials.seeds[trial]
            who, present = participants(seed, round, 3, protocol)
            messages = []
            for client in map(int, who[repetition][present[repetition] > 0]):
                start, stop = trials.starts[client : client + 2]
                record = start + generator(seed, "batches", client).permutation(stop - start)[round]
                x, y = trials.x[trial, record], trials.y[trial, record]
                gradient = (x @ weights[trial, repetition, :, model] - y) * x
                gradient = gradient / max(1.0, np.linalg.norm(gradient) / POINTS.clip_norm[model])
                noise = generator(seed, "noise", client, round).standard_normal((2, 1, 2))[repetition, 0]
                messages.append(gradient + POINTS.noise_std[model] * noise)
            np.testing.assert_allclose(found[trial, repetition, :, model], np.mean(messages, axis=0), rtol=1e-10)


def test_a_replaced_record_changes_one_message_only(trials):
    """Replace client 0's record of round 2: gradients at given weights differ in that round alone."""
    order = one_pass_sgd.record_order(trials, 4, 4)
    x = trials.x.copy()
    x[0, order[0, 2]] = [10.0, -10.0]
    other = replace(trials, x=x)
    weights = np.zeros((2, 2, 2, 2))
    pairs = [OneRecordGradients(each, POINTS, PROTOCOL) for each in (trials, other)]
    for round in range(4):
        ours, theirs = (source.at(weights, round)[0] for source in pairs)
        gap = np.linalg.norm(ours - theirs, axis=-2)
        if round == 2:
            assert gap.max() > 0 and np.all(gap <= 2 * POINTS.clip_norm / 3 + 1e-12)
        else:
            np.testing.assert_array_equal(ours, theirs)


def test_runs_in_algorithm_2_and_is_deterministic(trials):
    stages = [Restart(4, np.array([2.0, 3.0]))]
    first = accelerated_sgd.run(OneRecordGradients(trials, POINTS, PROTOCOL), stages)
    np.testing.assert_array_equal(first, accelerated_sgd.run(OneRecordGradients(trials, POINTS, PROTOCOL), stages))


def test_bad_input(trials):
    with pytest.raises(ValueError, match="batch_size"):
        OneRecordGradients(trials, POINTS, replace(PROTOCOL, batch_size=2))
    with pytest.raises(ValueError, match="rounds"):
        OneRecordGradients(trials, POINTS, replace(PROTOCOL, rounds=5))
