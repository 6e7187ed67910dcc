"""The comparison of five papers as an entry of the grid."""

import math

import numpy as np
import pandas as pd
import pytest

from dpfl.convex import trust_models
from dpfl.convex.logistic_task import LOSS
from dpfl.convex.problems import gradients
from dpfl.convex.trust_models import TrustAlgorithm
from dpfl.data.binary_classification import load_pooled
from dpfl.data.loading import load_description
from dpfl.errors import InputError
from dpfl.grid.training_job import TrainingJob

SETTINGS = {
    "dataset": "digits",
    "model": "pooled_logistic",
    "dimension": 50,
    "users": 400,
    "clients": 5,
    "batch_size": 20,
    "local_batch_size": 8,
    "rounds": 30,
    "passes": 3,
    "delay": 10,
    "radius": 2.0,
    "regularisation": 0.1,
    "delta": 1e-4,
}
CELLS = tuple({"algorithm": each.value, "epsilon": math.inf, "step": 0.3} for each in TrustAlgorithm)


def trained(digits, cells=CELLS, ticks=None, **settings) -> pd.DataFrame:
    job = TrainingJob("asoodeh2021", "trust_models", "x_seeds", SETTINGS | settings, tuple(cells), (0, 3))
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
