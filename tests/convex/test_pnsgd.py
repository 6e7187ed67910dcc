"""PNSGD: the orders of its records, its tasks, and its run tables against a plain loop."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpfl.convex import pnsgd
from dpfl.convex.pnsgd import MEAN_INK, LossConstants, PnsgdCell, _orders, load, ordered_records
from dpfl.convex.problems import FactoredRecords, gradients
from dpfl.convex.projected_sgd import BLOCK
from dpfl.data.loading import load_description, load_images
from dpfl.errors import InputError
from dpfl.grid.training_job import TrainingJob
from dpfl.randomness import generator

FALSE_ALARM = 1e-6
TARGETS = np.arange(60.0) / 7
RECORDS = FactoredRecords.of(np.arange(1.0, 61.0)[:, None], TARGETS)


def test_given_orders_are_read_as_given():
    orders = np.array([[3, 1, 2], [0, 4, 5], [9, 9, 9]])
    block = ordered_records(RECORDS, orders)(0)
    assert np.array_equal(block.norms[:, :3, 0] - 1, orders)
    assert np.array_equal(block.targets[:, :3, 0], TARGETS[orders])


def test_long_orders_go_on_in_the_next_block():
    orders = np.random.default_rng(0).integers(0, 60, size=(2, 2 * BLOCK))
    source = ordered_records(RECORDS, orders)
    for block in (1, 0):
        assert np.array_equal(source(block).norms[..., 0] - 1, orders[:, block * BLOCK : (block + 1) * BLOCK])


def test_sorted_records_are_taken_as_they_are_and_permuted_ones_once_each():
    assert _orders((4, 7), 5, permuted=False).tolist() == [[0, 1, 2, 3, 4]] * 2
    found = _orders((4, 7, 4), 30, permuted=True)
    assert np.array_equal(np.sort(found), np.tile(np.arange(30), (3, 1)))
    assert np.array_equal(found[0], found[2]) and not np.array_equal(found[0], found[1])


def test_all_orders_are_as_likely():
    """The six orders of three records in 3000 seeds."""
    seen = [tuple(order) for order in _orders(tuple(range(3000)), 3, permuted=True).tolist()]
    counts = [seen.count(order) for order in itertools.permutations(range(3))]
    assert sum(counts) == 3000 and stats.chisquare(counts).pvalue > FALSE_ALARM


@pytest.mark.parametrize(("model", "radius", "regularisation"), [(MEAN_INK, 0.5, 0.0), ("pooled_logistic", 2.0, 0.1)])
def test_the_theory_covers_the_records(digits, model, radius, regularisation):
    theory = LossConstants.of(model, radius, regularisation)
    task = load(model, digits, 100, theory)
    x = task.records.direction * task.records.norms[:, None]
    models = np.random.default_rng(0).normal(size=(task.dimension, 40))
    models *= radius / np.linalg.norm(models, axis=0)
    per_record = [gradients(task.loss, models, x[i : i + 1], task.records.targets[i : i + 1]) for i in range(100)]
    norms = np.linalg.norm(per_record, axis=1)
    assert norms.max() <= theory.lipschitz + 1e-12
    steps = np.linalg.norm(models[:, :20] - models[:, 20:], axis=0) + 1e-12
    moved = np.linalg.norm(np.stack(per_record)[..., :20] - np.stack(per_record)[..., 20:], axis=1) / steps
    assert moved.max() <= theory.smoothness + 1e-9


def test_records_come_sorted(digits):
    for model in (MEAN_INK, "pooled_logistic"):
        task = load(model, digits, 100, LossConstants.of(model, 0.5, 0.1))
        assert (np.diff(task.records.targets) >= 0).all()


def test_the_excess_of_a_mean_is_its_squared_distance(digits):
    task = load(MEAN_INK, digits, 100, LossConstants.of(MEAN_INK, 0.5, 0.0))
    targets = task.records.targets
    at = np.array([[-0.3, 0.1, targets.mean()]])
    risks = [np.mean((w - targets) ** 2) / 2 for w in at[0]]
    np.testing.assert_allclose(task.excess(at), np.array(risks) - risks[-1], atol=1e-14)
    assert np.isnan(task.accuracy_pct(at)).all()


# PNSGD as an entry of the grid: run tables against a plain loop, both laws, both orders, both stops.


SETTINGS = {"dataset": "digits", "model": "mean_ink", "users": 300, "delta": 1e-5, "radius": 0.5, "stops": 4}
CELLS = tuple(
    {"law": law, "order": order, "release": release, "step": 0.05, "epsilon": epsilon}
    for law in ("gaussian", "laplace")
    for order in ("sorted", "permuted")
    for release in ("last", "random")
    for epsilon in (2, math.inf)
)


def trained(digits, cells=CELLS, seeds=(0, 4), **settings) -> pd.DataFrame:
    job = TrainingJob("asoodeh2020", "pnsgd", "x_seeds", SETTINGS | settings, tuple(cells), seeds)
    calibration = pnsgd.calibrate(job, load_description(digits.arrays))
    return pnsgd.train(job, digits, calibration, None, lambda done, total: None)


@pytest.fixture(scope="module")
def table(digits) -> pd.DataFrame:
    return trained(digits)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("order", ["sorted", "permuted"])
@pytest.mark.parametrize("release", ["last", "random"])
def test_a_pass_is_the_plain_loop(digits, table, law, order, release):
    """A randomly stopped run has the mean over four stops of steps 1 to 300, one in each quarter."""
    ink = np.sort(load_images(digits.arrays).train_x[:300].mean(axis=(1, 2, 3)) / 255 - 0.5)
    for seed in (0, 4):
        own = table.query("law == @law and order == @order and release == @release and epsilon == 2 and seed == @seed")
        taken = ink[generator(seed, "partition").permutation(300)] if order == "permuted" else ink
        w, excess = 0.0, []
        for t, target in enumerate(taken):
            draw = generator(seed, "noise", round=t // 32)
            noise = (draw.standard_normal if law == "gaussian" else draw.laplace)(size=(32, 1))[t % 32, 0]
            w = float(np.clip(w - 0.05 * (w - target + own["scale"].item() * noise), -0.5, 0.5))
            excess.append((w - ink.mean()) ** 2 / 2)
        places = np.floor((np.arange(4) + generator(seed, "split").random(4)) / 4 * 300).astype(int)
        released = excess[-1] if release == "last" else np.mean(np.array(excess)[places])
        assert own["excess_risk"].item() == pytest.approx(released, abs=1e-12)


def test_a_random_stop_is_any_step_of_the_pass(digits, monkeypatch):
    """One stop each of 10,000 seeds against the uniform law on 1 to 300, made continuous by a uniform draw."""
    cell = PnsgdCell.of(SETTINGS, CELLS[2])
    assert cell.random_stop
    task = load(MEAN_INK, digits, 300, cell.theory)
    monkeypatch.setattr(pnsgd, "models_at", lambda runs, stops, tick: stops)
    stops = pnsgd._run(task, [cell], [0.0], tuple(range(10_000)), 1, lambda: None)
    assert stops.shape == (10_000, 1, 1)
    within = (stops.ravel() - np.random.default_rng(0).random(10_000)) / 300
    assert stats.kstest(within, "uniform").pvalue > FALSE_ALARM


def test_every_budget_is_met_by_the_record_that_is_worst_off(table):
    private = table[table["epsilon"] == 2]
    np.testing.assert_allclose(private["privacy_epsilon_contraction"], 2.0, rtol=1e-6)
    assert (private["privacy_epsilon_proven"] >= 2.0 * (1 - 1e-6)).all()
    scales = private.drop_duplicates(["law", "order", "release"]).set_index(["law", "order", "release"])["scale"]
    for law in ("gaussian", "laplace"):
        assert scales[law, "permuted", "last"] <= scales[law, "sorted", "last"] * (1 + 1e-8)
    silent = table[table["epsilon"] == math.inf]
    assert (silent["scale"] == 0).all() and (silent["privacy_epsilon_contraction"] == math.inf).all()


def test_the_order_matters_without_noise(table):
    silent = table[(table["epsilon"] == math.inf) & (table["release"] == "last")]
    means = silent.groupby("order")["excess_risk"].mean()
    assert means["permuted"] < 0.2 * means["sorted"]


def test_rows_repeat(digits, table):
    assert len(table) == 32 and (table["dimension"] == 1).all() and table["accuracy_pct"].isna().all()
    pd.testing.assert_frame_equal(trained(digits), table)


def test_a_logistic_model_learns(digits):
    logistic = {"model": "pooled_logistic", "regularisation": 0.05, "radius": 2.0}
    cells = [cell | {"step": 0.3} for cell in CELLS if cell["law"] == "gaussian" and math.isinf(cell["epsilon"])]
    means = trained(digits, cells=cells, **logistic).groupby(["order", "release"])["accuracy_pct"].mean()
    assert means["permuted", "last"] > 70 > means["sorted", "last"]


@pytest.mark.parametrize(
    ("cell", "settings", "words"),
    [
        ({"step": 1.5}, {}, r"step.*2/\(beta \+ rho\) = 1"),
        ({"step": 0.0}, {}, "step"),
        ({"law": "uniform"}, {}, "law"),
        ({"order": "random"}, {}, "order"),
        ({"release": "all"}, {}, "release"),
        ({"epsilon": -1}, {}, "epsilon"),
        ({}, {"radius": 0.0}, "radius"),
        ({}, {"users": 1438}, "users.*1437"),
        ({}, {"model": "pooled_logistic", "regularisation": 0.0}, "regularisation"),
        ({"law": "laplace"}, {"model": "pooled_logistic", "regularisation": 0.1}, "laplace"),
    ],
)
def test_bad_input_is_named(digits, cell, settings, words):
    with pytest.raises(InputError, match=words):
        trained(digits, cells=[CELLS[0] | cell], **settings)
