"""Noisy local SGD: the blocked stack against one plain loop a run, and the noise of its steps."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dpfl.convex import local_sgd
from dpfl.convex.federated_rounds import Hyperparameters, Participation, Protocol, Trials, participants
from dpfl.convex.local_sgd import averaged_local_sgd
from dpfl.convex.minibatch_sgd import averaged_minibatch_sgd
from dpfl.convex.problems import Logistic, Square
from dpfl.randomness import generator

FALSE_ALARM = 1e-6
"""Chance that a correct sampler fails the statistical test below (its seeds are fixed)."""

PROTOCOL = Protocol(Square(), 5, Participation((3,)), batch_size=7, repetitions=2, last_iterates=3)


@pytest.fixture
def trials() -> Trials:
    """Two trials of three clients with 5, 4 and 6 records of three features."""
    rng = np.random.default_rng(5)
    return Trials((0, 11), rng.normal(size=(2, 15, 3)), rng.normal(size=(2, 15)), np.array([0, 5, 9, 15]))


@pytest.fixture
def points() -> Hyperparameters:
    """Three models: clipped and noisy, hardly clipped, not clipped and not noisy."""
    return Hyperparameters(np.array([0.1, 0.05, 0.2]), np.array([0.5, 2.0, np.inf]), np.array([0.7, 0.1, 0.0]))


def slope(protocol: Protocol, score: float, target: float) -> float:
    """The derivative of the loss by the score, of the two losses of this file."""
    return score - target if isinstance(protocol.loss, Square) else -target / (1 + np.exp(target * score))


def clip(gradient: np.ndarray, norm: float) -> np.ndarray:
    """Textbook clipping."""
    return gradient / max(1.0, np.linalg.norm(gradient) / norm)


def plain_run(trials: Trials, protocol: Protocol, points: Hyperparameters, trial: int, repetition: int, model: int):
    """One run of local SGD: no stack, one client after the other, one record at a time."""
    seed, x, y = trials.seeds[trial], trials.x[trial], trials.y[trial]
    step_size, clip_norm, noise_std = (part[model] for part in (points.step_size, points.clip_norm, points.noise_std))
    regularisation = 0.0 if points.regularisation is None else points.regularisation[model]
    radius = np.inf if points.radius is None else points.radius[model]
    shape, features = (protocol.repetitions, protocol.batch_size), x.shape[1]
    server, iterates = np.zeros(features), []
    for round in range(protocol.rounds):
        results = []
        clients, present = participants(seed, round, trials.clients, protocol)
        for client in clients[repetition][present[repetition] > 0]:
            draws = generator(seed, "batches", client, round)
            batch = draws.integers(trials.starts[client], trials.starts[client + 1], size=shape)[repetition]
            noise = generator(seed, "noise", client, round).standard_normal((*shape, features))[repetition]
            weights = server
            for record, normal in zip(batch, noise, strict=True):
                gradient = clip(slope(protocol, x[record] @ weights, y[record]) * x[record], clip_norm)
                gradient = gradient + regularisation * weights + noise_std * normal
                weights = clip(weights - step_size * gradient, radius)
            results.append(weights)
        server = sum(results) / len(results)
        iterates.append(server)
    return np.mean(iterates[-protocol.last_iterates :], axis=0)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"participation": Participation((2,))},
        {"participation": Participation((1, 3))},
        {"loss": Logistic()},
        {"batch_size": local_sgd.BLOCK_STEPS + 3},
    ],
    ids=lambda changes: "+".join(changes) or "published",
)
@pytest.mark.parametrize("constrained", [False, True])
def test_the_stack_is_the_plain_loop(trials, points, changes, constrained):
    protocol = replace(PROTOCOL, **changes)
    if isinstance(protocol.loss, Logistic):
        trials = replace(trials, y=np.sign(trials.y))
    if constrained:
        points = replace(points, radius=np.array([0.3, np.inf, 0.2]), regularisation=np.array([0.1, 0.5, 0.0]))
    outputs = local_sgd.averaged_local_sgd(trials, points, protocol)
    assert outputs.shape == (2, 2, 3, 3)
    for trial, repetition, model in itertools.product(range(2), range(2), range(3)):
        expected = plain_run(trials, protocol, points, trial, repetition, model)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(outputs[trial, repetition, :, model], expected, rtol=0, atol=1e-12 * scale)


def test_the_length_of_the_blocks_does_not_matter(trials, points, monkeypatch):
    outputs = []
    for length in (1, 3, 7, 100):
        monkeypatch.setattr(local_sgd, "BLOCK_STEPS", length)
        outputs.append(local_sgd.averaged_local_sgd(trials, points, PROTOCOL))
    for other in outputs[1:]:
        np.testing.assert_allclose(other, outputs[0], rtol=1e-11)


def test_a_model_does_not_depend_on_its_stack(trials, points):
    pair = Hyperparameters(points.step_size[1:], points.clip_norm[1:], points.noise_std[1:])
    both = local_sgd.averaged_local_sgd(trials, points, PROTOCOL)
    assert np.array_equal(both[..., 1:], local_sgd.averaged_local_sgd(trials, pair, PROTOCOL))
    last = replace(trials, seeds=trials.seeds[1:], x=trials.x[1:], y=trials.y[1:])
    assert np.array_equal(both[1:], local_sgd.averaged_local_sgd(last, points, PROTOCOL))


def test_one_local_step_of_one_client_is_a_minibatch_step(trials, points):
    """K = 1, M = 1: both algorithms are the same step on the same draws."""
    protocol = replace(PROTOCOL, participation=Participation((1,)), batch_size=1, repetitions=3)
    one, other = (run(trials, points, protocol) for run in (averaged_local_sgd, averaged_minibatch_sgd))
    np.testing.assert_allclose(one, other, rtol=1e-12)


def test_the_noise_of_the_steps_adds_up():
    """K silent steps of M clients, averaged, leave a standard deviation of step * sigma * sqrt(K / M)."""
    clients, steps = 4, 9
    starts = np.arange(clients + 1)
    silent = Trials(tuple(range(50)), np.zeros((50, clients, 5)), np.zeros((50, clients)), starts)
    points = Hyperparameters(np.array([0.5]), np.array([1.0]), np.array([3.0]))
    protocol = Protocol(Square(), 1, Participation((clients,)), batch_size=steps, repetitions=20)
    standard = local_sgd.averaged_local_sgd(silent, points, protocol).ravel() / (0.5 * 3.0 * np.sqrt(steps / clients))
    assert stats.kstest(standard, "norm").pvalue > FALSE_ALARM
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(standard * wrong, "norm").pvalue < FALSE_ALARM


def test_a_protocol_that_does_not_fit_is_refused(trials, points):
    with pytest.raises(ValueError, match="participation"):
        local_sgd.averaged_local_sgd(trials, points, replace(PROTOCOL, participation=Participation((4,))))
