"""Averages of clients' own steps: the stack against a plain loop."""

import numpy as np
from scipy.special import expit

from dpfl.convex.problems import FactoredRecords, Logistic
from dpfl.convex.projected_sgd import ProjectedHyperparameters
from dpfl.convex.trust_models import deal_records, fedavg
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


def drawn(seed, client, round, step) -> tuple[np.ndarray, np.ndarray]:
    rows = generator(seed, "batches", client, round, step).choice(8, 4, replace=False)
    return rows, generator(seed, "noise", client, round, step).standard_normal(3)


def test_shares_are_a_partition():
    assert HELD.shape == (2, 3, 8)
    for own in HELD:
        assert sorted(own.ravel()) == list(range(24))


def test_averaging_is_the_plain_loop():
    ours = fedavg(Logistic(), RECORDS, HELD, SEEDS, POINTS, **COMMON)
    for s, seed in enumerate(SEEDS):
        for model in range(2):
            server = np.zeros(3)
            for round in range(3):
                results = []
                for client in range(3):
                    w = server
                    for step in range(2):
                        rows, noise = drawn(seed, client, round, step)
                        w = moved(w, w, HELD[s, client][rows], noise, model)
                    results.append(w)
                server = np.mean(results, axis=0)
            np.testing.assert_allclose(ours[s, :, model], server, atol=1e-12)


def test_every_step_is_counted_and_repeats():
    ticks = []
    common = COMMON | {"tick": lambda: ticks.append(1)}
    first = fedavg(Logistic(), RECORDS, HELD, SEEDS, POINTS, **common)
    assert len(ticks) == 3 * 2
    assert np.array_equal(first, fedavg(Logistic(), RECORDS, HELD, SEEDS, POINTS, **COMMON))
