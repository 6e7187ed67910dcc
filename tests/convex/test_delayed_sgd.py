"""Late updates: the stack against a plain loop, closed forms of a lag, and what delays do to steps that converge."""

import numpy as np
from scipy.special import expit

from dpfl.convex.problems import FactoredRecords, Logistic, Square
from dpfl.convex.projected_sgd import ProjectedHyperparameters
from dpfl.convex.trust_models import deal_records, delayed_sgd
from dpfl.randomness import generator

SEEDS = (1, 6)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 3))
Y = np.sign(RNG.normal(size=24))
RECORDS = FactoredRecords.of(X, Y)
POINTS = ProjectedHyperparameters(
    np.array([[0.5], [0.2]]), np.array([0.3, 0.0]), np.array([0.8, 2.0]), np.array([0.1, 0.05])
)
HELD = np.stack([deal_records(seed, 24, 3) for seed in SEEDS])
COMMON = {"passes": 3, "size": 4, "clip_norm": 0.6, "tick": lambda: None}


def moved(w, at, rows, noise, model) -> np.ndarray:
    """One step from `w` along the clipped mean gradient at `at`, read off the definition."""
    total = np.zeros(3)
    for x, y in zip(X[rows], Y[rows], strict=True):
        gradient = -y * expit(-y * x @ at) * x
        total += gradient * min(1.0, 0.6 / np.linalg.norm(gradient)) / 4
    step = total + POINTS.regularisation[model] * at + POINTS.noise_std[model] * noise
    w = w - POINTS.step_size[model, 0] * step
    return w * min(1.0, POINTS.radius[model] / np.linalg.norm(w))


def test_late_updates_are_the_plain_loop():
    ours = delayed_sgd(Logistic(), RECORDS, HELD, SEEDS, POINTS, delay=4, **COMMON)
    for s, seed in enumerate(SEEDS):
        for model in range(2):
            past = [np.zeros(3)]
            for turn in range(6):
                plan = generator(seed, "participants", round=turn)
                order, delays = plan.permutation(3), plan.integers(0, 5, size=3)
                for client, delay in zip(order, delays, strict=True):
                    stale = past[max(0, len(past) - 1 - delay)]
                    rows = generator(seed, "batches", client, turn, 0).choice(8, 4, replace=False)
                    noise = generator(seed, "noise", client, turn, 0).standard_normal(3)
                    past.append(moved(past[-1], stale, HELD[s, client][rows], noise, model))
            np.testing.assert_allclose(ours[s, :, model], past[-1], atol=1e-12)


def test_without_delay_one_client_s_batches_of_all_records_are_gradient_descent():
    """Loss (w - y)^2/2 with equal records: w_t - y shrinks by 1 - step a turn, whatever the order."""
    records = FactoredRecords.of(np.ones((8, 1)), np.full(8, 2.0))
    held = np.arange(8).reshape(1, 1, 8).repeat(2, axis=0)
    silent = ProjectedHyperparameters(np.array([[0.3], [0.5]]), np.zeros(2), np.full(2, np.inf), np.zeros(2))
    ours = delayed_sgd(
        Square(), records, held, SEEDS, silent, passes=7, size=8, delay=0, clip_norm=np.inf, tick=lambda: None
    )
    np.testing.assert_allclose(ours[:, 0], [2 - 2 * np.array([0.7, 0.5]) ** 7] * 2, rtol=1e-12)


def test_steps_that_converge_at_once_do_not_when_they_are_late():
    silent = ProjectedHyperparameters(np.full((2, 1), 0.5), np.zeros(2), np.full(2, np.inf), np.zeros(2))
    records, best = FactoredRecords.of(X, X @ np.ones(3)), np.ones((3, 1))
    run = COMMON | {"passes": 40, "size": 8, "clip_norm": np.inf}
    prompt, stale = (delayed_sgd(Square(), records, HELD, SEEDS, silent, delay=d, **run) for d in (0, 40))
    assert np.abs(prompt - best).max() < 1e-3
    assert np.abs(stale - best).max() > 1


def test_every_step_is_counted_and_repeats():
    ticks = []
    common = COMMON | {"tick": lambda: ticks.append(1)}
    first = delayed_sgd(Logistic(), RECORDS, HELD, SEEDS, POINTS, delay=2, **common)
    assert len(ticks) == 3 * 2 * 3
    assert np.array_equal(first, delayed_sgd(Logistic(), RECORDS, HELD, SEEDS, POINTS, delay=2, **COMMON))
