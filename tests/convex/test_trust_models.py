"""The comparison of five papers' trust models: privacy, run tables, and the clients' steps against plain loops."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from dpfl.accounting import gaussian_dp, local_privacy
from dpfl.accounting.contraction import pnsgd_gaussian_delta
from dpfl.accounting.samplers import Sampling
from dpfl.convex import trust_models
from dpfl.convex.logistic_task import LOSS, RegularisedRisk
from dpfl.convex.problems import FactoredRecords, Logistic, Square, gradients
from dpfl.convex.projected_sgd import ProjectedHyperparameters
from dpfl.convex.trust_models import (
    LOCAL,
    TRUST_MODEL,
    TrustAlgorithm,
    TrustCell,
    deal_records,
    delayed_sgd,
    fedavg,
    noise_std,
    privacy,
)
from dpfl.data.binary_classification import load_pooled
from dpfl.data.loading import load_description
from dpfl.errors import InputError
from dpfl.grid.training_job import TrainingJob
from dpfl.randomness import generator

SETTINGS = {
    "model": "pooled_logistic",
    "dimension": 1,
    "delay": 3,
    "users": 400,
    "clients": 5,
    "batch_size": 20,
    "local_batch_size": 8,
    "rounds": 6,
    "passes": 2,
    "radius": 1.0,
    "regularisation": 0.1,
    "delta": 1e-4,
}


def plan(algorithm, **changes) -> TrustCell:
    return TrustCell.of(SETTINGS | {"step": 1.0, "epsilon": 2.0} | changes, {"algorithm": algorithm})


@pytest.mark.parametrize("algorithm", TrustAlgorithm)
def test_every_algorithm_spends_the_budget_and_says_so(algorithm):
    chosen = plan(algorithm)
    columns = privacy(chosen, noise_std(chosen))
    spent = (
        columns["privacy_epsilon_contraction"]
        if "last model" in TRUST_MODEL[algorithm]
        else columns["privacy_epsilon_proven"]
    )
    assert 0.98 * 2.0 <= spent <= 2.0 * (1 + 1e-9)
    assert columns["privacy_trust"] == TRUST_MODEL[algorithm]
    assert columns["privacy_records"] == (
        80 if algorithm in (*LOCAL, TrustAlgorithm.SHUFFLED, TrustAlgorithm.MINIBATCH) else 400
    )


def test_pnsgd_is_theorem_4_averaged_over_places():
    chosen = plan(TrustAlgorithm.PNSGD)
    theory = {"eta": 1.0, "lipschitz": 1.0, "smoothness": 0.35, "strong_convexity": 0.1, "diameter": 2.0}
    places = range(1, 401)
    sigma = noise_std(chosen)
    mean = sum(float(pnsgd_gaussian_delta(2.0, i=i, n=400, sigma=sigma, **theory)) for i in places) / 400
    assert mean == pytest.approx(1e-4, rel=1e-6)


def test_the_mean_of_the_messages_has_the_noise_of_its_clients():
    chosen = plan(TrustAlgorithm.MINIBATCH)
    # One client's mean of 80 records, six rounds: mu = 2 sqrt(6)/(80 sigma), sigma the message's deviation.
    message = noise_std(chosen) * math.sqrt(5)
    assert float(gaussian_dp.epsilon(1e-4, 2 * math.sqrt(6) / (80 * message))) == pytest.approx(2.0, rel=1e-9)
    central = noise_std(plan(TrustAlgorithm.CENTRAL_FULL))
    assert central * math.sqrt(5) == pytest.approx(noise_std(chosen), rel=1e-12)
    assert noise_std(plan(TrustAlgorithm.SHUFFLED)) == noise_std(chosen)  # a shuffler does not help five clients


@pytest.mark.slow
def test_a_shuffler_leaves_a_crowd_less_than_a_fifth_of_its_noise():
    crowd = {"clients": 400, "local_batch_size": 1}
    shuffled, alone = (noise_std(plan(each, **crowd)) for each in (TrustAlgorithm.SHUFFLED, TrustAlgorithm.MINIBATCH))
    assert shuffled < 0.2 * alone


@pytest.mark.parametrize("algorithm", LOCAL)
def test_a_clients_own_steps_compose(algorithm):
    chosen = plan(algorithm)
    draws = {"batch_size": 8, "records": 80, "steps": 20, "delta": 1e-4, "sampling": Sampling.FIXED}
    spent = local_privacy.epsilon(noise_multiplier=8 * noise_std(chosen), **draws)
    assert 2.0 * (1 - 2e-3) <= spent <= 2.0


@pytest.mark.parametrize("algorithm", TrustAlgorithm)
def test_without_a_budget_there_is_no_noise(algorithm):
    chosen = plan(algorithm, epsilon=math.inf)
    assert noise_std(chosen) == 0
    assert privacy(chosen, 0.0)["privacy_epsilon_proven"] == math.inf


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clients": 7}, "clients"),
        ({"batch_size": 401}, "batch_size"),
        ({"local_batch_size": 81}, "local_batch_size"),
        ({"epsilon": 0}, "epsilon"),
        ({"radius": -1.0}, "radius"),
        ({"rounds": 0}, "rounds"),
    ],
)
def test_settings_that_cannot_be_used_are_named(changes, words):
    with pytest.raises(InputError, match=words):
        plan(TrustAlgorithm.CENTRAL, **changes)
    with pytest.raises(InputError, match="algorithm"):
        plan("trusting")


# The comparison of five papers as an entry of the grid.


TRAINED = SETTINGS | {"dataset": "digits", "dimension": 50, "rounds": 30, "passes": 3, "delay": 10, "radius": 2.0}
CELLS = tuple({"algorithm": each.value, "epsilon": math.inf, "step": 0.3} for each in TrustAlgorithm)


def trained(digits, cells=CELLS, ticks=None, **settings) -> pd.DataFrame:
    job = TrainingJob("asoodeh2021", "trust_models", "x_seeds", TRAINED | settings, tuple(cells), (0, 3))
    calibration = trust_models.calibrate(job, load_description(digits.arrays))
    seen = [] if ticks is None else ticks
    return trust_models.train(job, digits, calibration, None, lambda done, total: seen.append((done, total)))


def test_every_way_learns_without_noise(digits):
    ticks: list[tuple[int, int]] = []
    table = trained(digits, ticks=ticks)
    idle = math.log(2)
    assert (table["excess_risk"] < 0.5 * (idle - 0.6)).all()
    assert len(table) == 16 and set(table["trust"]) >= {"trusted shuffler", "no trust outside the client"}
    assert ticks[-1][0] == ticks[-1][1]
    pd.testing.assert_frame_equal(trained(digits), table)


def test_full_batches_are_gradient_descent(digits):
    table = trained(digits, cells=[{"algorithm": "minibatch", "epsilon": math.inf, "step": s} for s in (1.0, 0.5)])
    task = load_pooled(digits.arrays)
    x, y = task.train_x[:400], task.train_y[:400]
    w = np.zeros((50, 1))
    for _ in range(30):
        w = w - (gradients(LOSS, w, x, y) + 0.1 * w)
    accuracy = 100 * np.mean(task.test_x @ w[:, 0] * task.test_y > 0)
    assert table[table["step"] == 1.0]["accuracy_pct"].tolist() == [accuracy, accuracy]


def test_noise_costs(digits):
    cells = [{"algorithm": "central", "epsilon": e, "step": 1.0} for e in (1.0, math.inf)]
    means = trained(digits, cells=cells).groupby("epsilon")["excess_risk"].mean()
    assert means[1.0] > 2 * means[math.inf]


@pytest.mark.parametrize(
    ("settings", "words"), [({"dimension": 49}, "dimension.*50"), ({"users": 1600}, "users.*1437")]
)
def test_data_that_do_not_fit_are_named(digits, settings, words):
    with pytest.raises(InputError, match=words):
        trained(digits, cells=CELLS[:1], **settings)


# The calibrated noise in whole runs: two budgets in one stack, four algorithms in one job, against plain loops.


PRIVATE = TRAINED | {"rounds": 40, "batch_size": 10, "passes": 2}
"""Forty rounds, more than the 32 whose draws share an address; twenty steps of each client."""
BUDGETS = ((1.0, 0.3), (4.0, 0.5))
FAMILIES = ("minibatch", "last_model", "averaging", "asynchronous")


@pytest.fixture(scope="module")
def private(digits) -> tuple[pd.Series, pd.DataFrame]:
    """The calibrated noise_std by algorithm and epsilon, and the run table."""
    cells = [{"algorithm": each, "epsilon": epsilon, "step": step} for epsilon, step in BUDGETS for each in FAMILIES]
    job = TrainingJob("asoodeh2021", "trust_models", "x_seeds", PRIVATE, tuple(cells), (0, 3))
    noise = trust_models.calibrate(job, load_description(digits.arrays))
    table = trust_models.train(job, digits, noise, None, lambda done, total: None)
    return noise.set_index(["algorithm", "epsilon"])["noise_std"], table


def block_noise(seed, t) -> np.ndarray:
    return generator(seed, "noise", round=t // 32).standard_normal((32, 50))[t % 32]


def full_batches(step, seed) -> np.ndarray:
    w = np.zeros(50)
    for t in range(40):
        w = step(w, w, np.arange(400), block_noise(seed, t))
    return w


def one_pass(step, seed) -> np.ndarray:
    w = np.zeros(50)
    for t, batch in enumerate(generator(seed, "partition").permutation(400).reshape(40, 10)):
        w = step(w, w, batch, block_noise(seed, t))
    return w


def averaged(step, seed) -> np.ndarray:
    held, server = generator(seed, "partition").permutation(400).reshape(5, 80), np.zeros(50)
    for round in range(2):
        results = []
        for client in range(5):
            w = server
            for t in range(10):
                batch = generator(seed, "batches", client, round, t).choice(80, 8, replace=False)
                noise = generator(seed, "noise", client, round, t).standard_normal(50)
                w = step(w, w, held[client, batch], noise)
            results.append(w)
        server = np.mean(results, axis=0)
    return server


def late(step, seed) -> np.ndarray:
    held, past = generator(seed, "partition").permutation(400).reshape(5, 80), [np.zeros(50)]
    for turn in range(20):
        plan = generator(seed, "participants", round=turn)
        for client, delay in zip(plan.permutation(5), plan.integers(0, 11, size=5), strict=True):
            batch = generator(seed, "batches", client, turn).choice(80, 8, replace=False)
            noise = generator(seed, "noise", client, turn).standard_normal(50)
            past.append(step(past[-1], past[max(0, len(past) - 1 - delay)], held[client, batch], noise))
    return past[-1]


@pytest.mark.parametrize(
    ("algorithm", "plain"), list(zip(FAMILIES, (full_batches, one_pass, averaged, late), strict=True)), ids=FAMILIES
)
def test_the_calibrated_noise_is_in_the_run_by_a_plain_loop(digits, private, algorithm, plain):
    task = load_pooled(digits.arrays)
    x, y = task.train_x[:400], task.train_y[:400]
    least = RegularisedRisk(x, y, 0.1, 2.0).least
    noise_stds, table = private
    assert noise_stds[algorithm, 1.0] > 2 * noise_stds[algorithm, 4.0] > 0
    for row in table[table["algorithm"] == algorithm].itertuples():

        def step(w, at, batch, noise, row=row):
            gradient = np.mean((-y * expit(-y * (x @ at)))[batch, None] * x[batch], axis=0)
            w = w - row.step * (gradient + 0.1 * at + noise_stds[algorithm, row.epsilon] * noise)
            return w * min(1.0, 2.0 / np.linalg.norm(w))

        w = plain(step, row.seed)
        risk = np.logaddexp(0, -y * (x @ w)).mean() + 0.05 * w @ w
        assert row.excess_risk == pytest.approx(risk - least, rel=1e-10)
        assert row.accuracy_pct == pytest.approx(100 * np.mean(task.test_x @ w * task.test_y > 0))


# Averages of clients' own steps: the stack against a plain loop.


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


def test_every_step_of_averaging_is_counted_and_repeats():
    ticks = []
    common = COMMON | {"tick": lambda: ticks.append(1)}
    first = fedavg(Logistic(), RECORDS, HELD, SEEDS, POINTS, **common)
    assert len(ticks) == 3 * 2
    assert np.array_equal(first, fedavg(Logistic(), RECORDS, HELD, SEEDS, POINTS, **COMMON))


# Late updates: the stack against a plain loop, closed forms of a lag, and what delays do to steps that converge.


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


def test_every_late_step_is_counted_and_repeats():
    ticks = []
    common = COMMON | {"tick": lambda: ticks.append(1)}
    first = delayed_sgd(Logistic(), RECORDS, HELD, SEEDS, POINTS, delay=2, **common)
    assert len(ticks) == 3 * 2 * 3
    assert np.array_equal(first, delayed_sgd(Logistic(), RECORDS, HELD, SEEDS, POINTS, delay=2, **COMMON))
