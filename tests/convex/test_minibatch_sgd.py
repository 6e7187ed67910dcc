"""Noisy minibatch SGD: the stack against one plain loop a run, its noise and its clipping."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dpfl.accounting.samplers import Sampling
from dpfl.convex import minibatch_sgd
from dpfl.convex.federated_rounds import (
    Aggregate,
    Clipping,
    Hyperparameters,
    Participation,
    Protocol,
    Trials,
    participants,
)
from dpfl.convex.problems import Logistic, Square
from dpfl.randomness import generator

FALSE_ALARM = 1e-6
"""Chance that a correct sampler fails the statistical test below (its seeds are fixed)."""


@pytest.fixture
def trials() -> Trials:
    """Two trials of three clients with 5, 4 and 6 records of three features."""
    rng = np.random.default_rng(3)
    return Trials((4, 9), rng.normal(size=(2, 15, 3)), rng.normal(size=(2, 15)), np.array([0, 5, 9, 15]))


@pytest.fixture
def points() -> Hyperparameters:
    """Four models: clipped and noisy, hardly clipped, not clipped and not noisy, and one that diverges."""
    return Hyperparameters(
        step_size=np.array([0.1, 0.3, 0.2, 50.0]),
        clip_norm=np.array([0.5, 2.0, np.inf, np.inf]),
        noise_std=np.array([0.7, 0.1, 0.0, 0.0]),
    )


PROTOCOL = Protocol(Square(), 6, Participation((3,)), batch_size=4, repetitions=2, last_iterates=3)


def slope(protocol: Protocol, score: float, target: float) -> float:
    """The derivative of the loss by the score, of the two losses of this file."""
    return score - target if isinstance(protocol.loss, Square) else -target / (1 + np.exp(target * score))


def clip(gradient: np.ndarray, norm: float) -> np.ndarray:
    """Textbook clipping."""
    return gradient / max(1.0, np.linalg.norm(gradient) / norm)


def batch_of(trials: Trials, protocol: Protocol, seed: int, client: int, round: int, repetition: int) -> np.ndarray:
    """The records of one client's round."""
    start, stop, draws = *trials.starts[client : client + 2], generator(seed, "batches", client, round)
    if protocol.sampling is Sampling.WITH_REPLACEMENT:
        return draws.integers(start, stop, size=(protocol.repetitions, protocol.batch_size))[repetition]
    order = np.tile(np.arange(start, stop), (protocol.repetitions, 1))
    return draws.permuted(order, axis=1)[repetition, : protocol.batch_size]


def plain_run(trials: Trials, protocol: Protocol, points: Hyperparameters, trial: int, repetition: int, model: int):
    """One run of Algorithm 1, read off the paper: no stack, one record at a time."""
    seed, x, y = trials.seeds[trial], trials.x[trial], trials.y[trial]
    clip_norm, mean_clipping = points.clip_norm[model], protocol.clipping is Clipping.MEAN
    regularisation = 0.0 if points.regularisation is None else points.regularisation[model]
    weights, iterates = np.zeros(x.shape[1]), []
    for round in range(protocol.rounds):
        clients, present = participants(seed, round, trials.clients, protocol)
        taking_part = clients[repetition][present[repetition] > 0]
        total = np.zeros(x.shape[1])
        for client in taking_part:
            message = regularisation * weights
            each = [
                slope(protocol, x[record] @ weights, y[record]) * x[record]
                for record in batch_of(trials, protocol, seed, client, round, repetition)
            ]
            if mean_clipping:
                message = message + clip(np.mean(each, axis=0), clip_norm)
            else:
                message = message + np.mean([clip(gradient, clip_norm) for gradient in each], axis=0)
            normal = generator(seed, "noise", client, round).standard_normal((protocol.repetitions, len(weights)))
            total += message + points.noise_std[model] * normal[repetition]
        if protocol.aggregate is Aggregate.MEAN:
            total /= len(taking_part)
        weights = weights - points.step_size[model] * total
        if points.radius is not None:
            weights = clip(weights, points.radius[model])
        iterates.append(weights)
    return np.mean(iterates[-protocol.last_iterates :], axis=0)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"participation": Participation((2,))},
        {"participation": Participation((1, 3, 2)), "aggregate": Aggregate.MEAN},
        {"participation": Participation((1, 3))},
        {"clipping": Clipping.MEAN, "participation": Participation((1, 3))},
        {"sampling": Sampling.FIXED, "last_iterates": 1},
        {"loss": Logistic()},
    ],
    ids=lambda changes: "+".join(changes) or "published",
)
@pytest.mark.parametrize("constrained", [False, True])
def test_the_stack_is_the_plain_loop(trials, points, changes, constrained):
    protocol = replace(PROTOCOL, **changes)
    if isinstance(protocol.loss, Logistic):
        trials = replace(trials, y=np.sign(trials.y))
    if constrained:
        points = replace(points, radius=np.array([0.3, np.inf, 0.2, 1.0]), regularisation=np.array([0.1, 0.5, 0, 2.0]))
    outputs = minibatch_sgd.averaged_minibatch_sgd(trials, points, protocol)
    assert outputs.shape == (2, 2, 3, 4)
    for trial, repetition, model in itertools.product(range(2), range(2), range(4)):
        expected = plain_run(trials, protocol, points, trial, repetition, model)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(outputs[trial, repetition, :, model], expected, rtol=0, atol=1e-12 * scale)


def test_a_run_that_overflows_leaves_the_others_alone(trials, points):
    protocol = replace(PROTOCOL, rounds=300, batch_size=2, repetitions=1, last_iterates=2)
    outputs = minibatch_sgd.averaged_minibatch_sgd(trials, points, protocol)
    calm = Hyperparameters(points.step_size[:3], points.clip_norm[:3], points.noise_std[:3])
    assert not np.isfinite(outputs[..., 3]).any()
    assert np.array_equal(outputs[..., :3], minibatch_sgd.averaged_minibatch_sgd(trials, calm, protocol))


def test_the_noise_has_the_stated_standard_deviation():
    """With zero targets nothing but noise moves the first step: Kolmogorov-Smirnov accepts sigma, refuses 2/3, 3/2."""
    silent = Trials(tuple(range(50)), np.ones((50, 4, 5)), np.zeros((50, 4)), np.array([0, 2, 4]))
    points = Hyperparameters(np.array([0.5, 0.5]), np.array([1.0, 1.0]), np.array([3.0, 0.0]))
    protocol = Protocol(Square(), 1, Participation((2,)), batch_size=1, repetitions=20)
    moved = minibatch_sgd.averaged_minibatch_sgd(silent, points, protocol)
    sum_of_two = moved[..., 0].ravel() / (0.5 * 3.0 * np.sqrt(2))
    assert not moved[..., 1].any()
    assert stats.kstest(sum_of_two, "norm").pvalue > FALSE_ALARM
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(sum_of_two * wrong, "norm").pvalue < FALSE_ALARM


@pytest.mark.parametrize(("clipping", "moves"), [(Clipping.RECORD, 2 / 100), (Clipping.MEAN, 2.0)])
def test_one_record_moves_a_message_by_what_its_clipping_says(clipping, moves):
    """99 records whose gradients cancel, and one that decides: clipping the mean lets it turn the message around."""
    x = np.array([1.0, -1.0] * 49 + [1.0, 1e6])[None, :, None]
    steps = []
    for target in (1e6, -1e6):
        y = np.array([*[1.0] * 98, 0.0, target])[None]
        one = Trials((0,), x, y, np.array([0, 100]))
        protocol = Protocol(Square(), 1, Participation((1,)), 100, 1, sampling=Sampling.FULL, clipping=clipping)
        steps.append(
            minibatch_sgd.averaged_minibatch_sgd(one, Hyperparameters(np.ones(2), np.ones(2), np.zeros(2)), protocol)[
                0, 0, 0, 0
            ]
        )
    assert steps[0] - steps[1] == pytest.approx(moves, rel=1e-9)


def test_a_protocol_that_does_not_fit_is_refused(trials, points):
    with pytest.raises(ValueError, match="participation"):
        minibatch_sgd.averaged_minibatch_sgd(trials, points, replace(PROTOCOL, participation=Participation((4,))))


def test_progress_is_told_every_round(trials, points):
    told = []
    minibatch_sgd.averaged_minibatch_sgd(trials, points, replace(PROTOCOL, rounds=5), lambda: told.append(1))
    assert len(told) == 5


@pytest.mark.parametrize("clipping", Clipping)
def test_a_message_without_a_length_is_its_noise_alone(trials, points, clipping):
    """At a model that is not finite the gradients are not numbers: clipped they add nothing, else they show."""
    gradients = minibatch_sgd.NoisyGradients(trials, points, replace(PROTOCOL, clipping=clipping))
    with np.errstate(invalid="ignore"):
        step = gradients.at(np.full(gradients.shape, np.nan), 0)
        quiet = replace(points, clip_norm=np.full(4, 1e-12))
        noise = minibatch_sgd.NoisyGradients(trials, quiet, PROTOCOL).at(np.zeros(gradients.shape), 0)
    np.testing.assert_allclose(step[..., :2], noise[..., :2], rtol=0, atol=1e-10)
    assert np.isnan(step[..., 2:]).all()


def test_the_weighted_mean_is_the_printed_sum():
    """sum_r gamma_r w_r / sum_r gamma_r with gamma_r = (1 - mu eta)^-(r + 1), a model's own eta."""
    rng = np.random.default_rng(2)
    iterates, steps, mu = rng.normal(size=(40, 1, 1, 3, 2)), np.array([0.5, 0.01]), 0.8
    gamma = (1 - mu * steps) ** -(np.arange(40)[:, None] + 1.0)
    expected = np.einsum("rabdm,rm->abdm", iterates, gamma) / gamma.sum(axis=0)
    np.testing.assert_allclose(minibatch_sgd.weighted_mean(iterates, mu, steps), expected, rtol=1e-12)
    np.testing.assert_allclose(minibatch_sgd.weighted_mean(iterates, 0.0, steps), iterates.mean(axis=0), rtol=1e-12)
    with pytest.raises(ValueError, match="step_size"):
        minibatch_sgd.weighted_mean(iterates, 2.0, steps)
    with pytest.raises(ValueError, match="iterates"):
        minibatch_sgd.weighted_mean([], mu, steps)
