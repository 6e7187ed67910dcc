"""Noisy local SGD: the stack against one plain loop a run, and the noise of its steps."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from dpfl.engine.randomness import generator
from dpfl.federated import local, minibatch
from dpfl.federated.minibatch import Points, Protocol, Trials

FALSE_ALARM = 1e-6
"""Chance that a correct sampler fails the statistical test below (its seeds are fixed)."""


@pytest.fixture
def trials() -> Trials:
    """Two trials of three clients with 5, 4 and 6 records of three features."""
    rng = np.random.default_rng(5)
    return Trials((0, 11), rng.normal(size=(2, 15, 3)), rng.normal(size=(2, 15)), np.array([0, 5, 9, 15]))


@pytest.fixture
def points() -> Points:
    """Three models: clipped and noisy, hardly clipped, not clipped and not noisy."""
    return Points(np.array([0.1, 0.05, 0.2]), np.array([0.5, 2.0, np.inf]), np.array([0.7, 0.1, 0.0]))


def nothing() -> None:
    """No progress to report."""


def plain_run(trials, trial, repetition, step_size, clip_norm, noise_std, protocol) -> np.ndarray:
    """One run of local SGD: no stack, one client after the other."""
    seed, x, y = trials.seeds[trial], trials.x[trial], trials.y[trial]
    features, clients = x.shape[1], len(trials.starts) - 1
    shape = (protocol.repetitions, protocol.batch_size)
    server, iterates = np.zeros(features), []
    for round in range(protocol.rounds):
        results = []
        for client in minibatch.participants(seed, round, clients, protocol)[repetition]:
            draws = generator(seed, "batches", client, round)
            batch = draws.integers(trials.starts[client], trials.starts[client + 1], size=shape)[repetition]
            noise = generator(seed, "noise", client, round).standard_normal((*shape, features))[repetition]
            weights = server
            for record, normal in zip(batch, noise, strict=True):
                gradient = (x[record] @ weights - y[record]) * x[record]
                clipped = gradient / max(1.0, np.linalg.norm(gradient) / clip_norm)
                weights = weights - step_size * (clipped + noise_std * normal)
            results.append(weights)
        server = sum(results) / len(results)
        iterates.append(server)
    return np.mean(iterates[-protocol.last_iterates :], axis=0)


@pytest.mark.parametrize("participating", [3, 2])
def test_the_stack_is_the_plain_loop(trials, points, participating):
    protocol = Protocol(rounds=5, participating=participating, batch_size=4, repetitions=2, last_iterates=3)
    outputs = local.run(trials, points, protocol, nothing)
    assert outputs.shape == (2, 2, 3, 3)
    for trial, repetition, model in itertools.product(range(2), range(2), range(3)):
        own = (points.step_size[model], points.clip_norm[model], points.noise_std[model])
        expected = plain_run(trials, trial, repetition, *own, protocol)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(outputs[trial, repetition, :, model], expected, rtol=0, atol=1e-12 * scale)


def test_one_local_step_of_one_client_is_a_minibatch_step(trials, points):
    """K = 1, M = 1: both algorithms are the same step on the same draws."""
    protocol = Protocol(rounds=4, participating=1, batch_size=1, repetitions=3, last_iterates=2)
    one, other = (module.run(trials, points, protocol, nothing) for module in (local, minibatch))
    np.testing.assert_allclose(one, other, rtol=1e-12)


def test_the_noise_of_the_steps_adds_up():
    """K silent steps of M clients, averaged, leave a standard deviation of step * sigma * sqrt(K / M)."""
    clients, steps = 4, 9
    starts = np.arange(clients + 1)
    silent = Trials(tuple(range(50)), np.zeros((50, clients, 5)), np.zeros((50, clients)), starts)
    points = Points(np.array([0.5]), np.array([1.0]), np.array([3.0]))
    protocol = Protocol(rounds=1, participating=clients, batch_size=steps, repetitions=20, last_iterates=1)
    standard = local.run(silent, points, protocol, nothing).ravel() / (0.5 * 3.0 * np.sqrt(steps / clients))
    assert stats.kstest(standard, "norm").pvalue > FALSE_ALARM
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(standard * wrong, "norm").pvalue < FALSE_ALARM
