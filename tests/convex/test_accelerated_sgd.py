"""Algorithm 2: against a plain loop of the printed equations, its known rate, its ball and its stack."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dpfl.accounting.samplers import Sampling
from dpfl.convex import accelerated_sgd
from dpfl.convex.accelerated_sgd import Restart
from dpfl.convex.federated_rounds import Aggregate, Hyperparameters, Participation, Protocol, Trials, participants
from dpfl.convex.minibatch_sgd import NoisyGradients
from dpfl.convex.problems import Square
from dpfl.randomness import generator

FULL = Protocol(Square(), 6, Participation((3,)), 5, repetitions=2, sampling=Sampling.FULL, aggregate=Aggregate.MEAN)
STAGES = [Restart(2, np.array([1.0, 3.0, 2.0])), Restart(4, np.array([2.0, 5.0, 2.0]))]


@pytest.fixture
def trials() -> Trials:
    """Two trials of three clients with 5 records of two features."""
    rng = np.random.default_rng(3)
    return Trials((4, 9), rng.normal(size=(2, 15, 2)), rng.normal(size=(2, 15)), np.arange(4) * 5)


@pytest.fixture
def points() -> Hyperparameters:
    """Three models: clipped, noisy and projected; without projection; without noise or clipping."""
    return Hyperparameters(
        step_size=np.full(3, np.nan),
        clip_norm=np.array([0.5, 2.0, np.inf]),
        noise_std=np.array([0.7, 0.1, 0.0]),
        radius=np.array([0.4, np.inf, np.inf]),
        regularisation=np.array([0.3, 0.3, 0.3]),
    )


def plain(trials, points, protocol, stages, mu, trial, repetition, model) -> list[np.ndarray]:
    """Return w^ag after every round, one client, record and coordinate at a time, as lowy2021 prints it."""
    seed, iterates, round = trials.seeds[trial], [], 0
    w_ag = np.zeros(2)
    for stage in stages:
        w = w_ag
        for r in range(1, stage.rounds + 1):
            alpha, eta = 2 / (r + 1), 4 * stage.gamma[model] / (r * (r + 1))
            w_md = (1 - alpha) * (mu + eta) * w_ag + alpha * ((1 - alpha) * mu + eta) * w
            w_md = w_md / (eta + (1 - alpha**2) * mu)
            who, present = participants(seed, round, 3, protocol)
            messages = []
            for client in who[repetition][present[repetition] > 0]:
                total = np.zeros(2)
                for record in range(client * 5, client * 5 + 5):
                    x, y = trials.x[trial, record], trials.y[trial, record]
                    gradient = (x @ w_md - y) * x
                    total = total + gradient / max(1.0, np.linalg.norm(gradient) / points.clip_norm[model])
                noise = generator(seed, "noise", int(client), round).standard_normal((2, 1, 2))[repetition, 0]
                messages.append(total / 5 + points.noise_std[model] * noise)
            g = np.mean(messages, axis=0) + points.regularisation[model] * w_md
            if mu == 0:
                w = w - r / (2 * stage.gamma[model]) * g
            else:
                w = (alpha * mu * w_md + ((1 - alpha) * mu + eta) * w - alpha * g) / (mu + eta)
            w = w * min(1.0, points.radius[model] / np.linalg.norm(w))
            w_ag = alpha * w + (1 - alpha) * w_ag
            iterates.append(w_ag)
            round += 1
    return iterates


@pytest.mark.parametrize("mu", [0.0, 0.3])
@pytest.mark.parametrize("sizes", [(3,), (2,), (1, 3)])
def test_the_stack_equals_a_plain_loop(trials, points, mu, sizes):
    protocol = replace(FULL, participation=Participation(sizes))
    found = [w.copy() for w in accelerated_sgd.iterates(NoisyGradients(trials, points, protocol), STAGES, mu)]
    assert len(found) == 6
    for trial, repetition, model in np.ndindex(2, 2, 3):
        expected = plain(trials, points, protocol, STAGES, mu, trial, repetition, model)
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours[trial, repetition, :, model], theirs, rtol=1e-10, atol=1e-12)


def test_a_model_does_not_depend_on_its_stack(trials, points):
    both = accelerated_sgd.run(NoisyGradients(trials, points, FULL), STAGES, 0.3)
    two = Hyperparameters(*(part[:2] for part in vars(points).values()))
    stages = [Restart(stage.rounds, stage.gamma[:2]) for stage in STAGES]
    np.testing.assert_array_equal(accelerated_sgd.run(NoisyGradients(trials, two, FULL), stages, 0.3), both[..., :2])


def test_every_iterate_lies_in_the_ball(trials, points):
    wild = replace(points, noise_std=np.full(3, 50.0), radius=np.full(3, 0.4))
    for weights in accelerated_sgd.iterates(NoisyGradients(trials, wild, FULL), STAGES):
        assert np.linalg.norm(weights, axis=-2).max() <= 0.4 * (1 + 1e-12)


@pytest.mark.parametrize("rounds", [5, 20, 80])
def test_the_known_rates_without_noise(rounds):
    """Ghadimi and Lan 2012, exact gradients: F(w^ag) - F* <= 4 gamma |w_0 - w*|^2 / (R (R + 1)), gamma = 2 beta; and
    plain steps of 1/beta are slower here from R = 20 on, with condition number 1000."""
    scales = np.array([1.0, 0.1, 0.001]) ** 0.5
    x, best = np.diag(scales) * math.sqrt(3), np.array([0.3, -0.5, 0.7])
    trials = Trials((0,), x[None], (x @ best)[None], np.array([0, 3]))
    none = np.array([0.0, 0.0])
    points = Hyperparameters(none, np.full(2, np.inf), none)
    protocol = replace(FULL, rounds=rounds, participation=Participation((1,)), batch_size=3, repetitions=1)
    gamma = accelerated_sgd.step_scale(smoothness=1.0, gradient_deviation=0.0, rounds=rounds, diameter=1.0)
    stages = [Restart(rounds, np.full(2, gamma))]
    weights = accelerated_sgd.run(NoisyGradients(trials, points, protocol), stages)[0, 0, :, 0]
    excess = scales**2 @ (weights - best) ** 2 / 2
    assert excess <= 4 * gamma * (best @ best) / (rounds * (rounds + 1))
    plain = best * (1 - scales**2) ** rounds
    if rounds >= 20:
        assert excess < scales**2 @ plain**2 / 2


def test_step_scale_and_rounds_as_printed():
    shared = {"smoothness": 2.0, "rounds": 3}
    assert accelerated_sgd.step_scale(**shared, gradient_deviation=0.0, diameter=1.0) == 4.0
    noisy = accelerated_sgd.step_scale(**shared, gradient_deviation=5.0, diameter=0.5)
    assert noisy == pytest.approx(math.sqrt(2 * 25 * 3 * 4 * 5 / (3 * 0.25)))
    stage = accelerated_sgd.step_scale(**shared, gradient_deviation=5.0, diameter=math.sqrt(0.1), strong_convexity=0.3)
    assert stage == pytest.approx(math.sqrt(0.3 * 25 * 3 * 4 * 5 / (3 * 0.1)))
    rounds = accelerated_sgd.shrinking_rounds(
        smoothness=8.0, strong_convexity=1.0, gradient_deviation=0.5, gap=2.0, stages=3
    )
    assert rounds == (22, 43, 86)  # 128 / 24 * 2^(k+1) = 21.3, 42.7, 85.3 against 4 sqrt(16) = 16


@pytest.mark.parametrize(("rounds", "stages"), [(1, 1), (40, 1), (60, 2), (1000, 5)])
def test_affordable_rounds_fill_the_budget(rounds, stages):
    """With beta/mu = 8 no stage is below 16 rounds, but a single one."""
    found = accelerated_sgd.affordable_rounds(smoothness=8.0, strong_convexity=1.0, rounds=rounds)
    assert sum(found) == rounds
    assert len(found) == stages
    assert len(found) == 1 or min(found) >= 16 - 1
    assert sorted(found) == list(found)


def test_bad_input(trials, points):
    summed = NoisyGradients(trials, points, replace(FULL, aggregate=Aggregate.SUM))
    with pytest.raises(ValueError, match="MEAN"):
        accelerated_sgd.run(summed, STAGES)
    with pytest.raises(ValueError, match="rounds"):
        accelerated_sgd.run(NoisyGradients(trials, points, FULL), STAGES[:1])
    with pytest.raises(ValueError, match="rounds"):
        accelerated_sgd.step_scale(smoothness=1.0, gradient_deviation=0.0, rounds=0, diameter=1.0)
    with pytest.raises(ValueError, match="rounds"):
        accelerated_sgd.affordable_rounds(smoothness=1.0, strong_convexity=1.0, rounds=0)
