"""The pooled logistic task: its constants, its least risk, and records that are drawn."""

import numpy as np
import pytest

from dpfl.convex.logistic_task import (
    CURVATURE,
    LIPSCHITZ,
    LOSS,
    RegularisedRisk,
    SyntheticRecords,
    accuracy_pct,
    load_task,
    synthetic_description,
    synthetic_task,
)
from dpfl.errors import InputError
from dpfl.grid.training_job import Folders

X = np.random.default_rng(0).normal(size=(50, 3))
X /= np.linalg.norm(X, axis=1, keepdims=True)
Y = np.sign(X[:, 0] + 0.2)


def test_no_model_in_the_ball_is_below_the_goal():
    goal = RegularisedRisk(X, Y, 0.05, 1.0)
    models = np.random.default_rng(1).normal(size=(3, 500))
    models *= np.random.default_rng(2).random(500) / np.linalg.norm(models, axis=0)
    assert (goal.excess(models) >= 0).all()
    assert goal.excess(goal.optimum[:, None])[0] == pytest.approx(0, abs=1e-12)


def test_the_constants_are_those_of_the_loss_on_records_of_norm_one():
    scores = np.linspace(-20, 20, 2001)
    slopes = LOSS.derivative(scores, np.ones(2001))
    assert np.abs(slopes).max() <= LIPSCHITZ
    assert np.abs(np.diff(slopes) / np.diff(scores)).max() == pytest.approx(CURVATURE, rel=1e-4)


def test_accuracy_counts_the_right_side():
    weights = np.array([[1.0, -1.0], [0.0, 0.0], [0.0, 0.0]])
    right = 100 * np.mean(X[:, 0] * Y > 0)
    np.testing.assert_allclose(accuracy_pct(weights, X, Y), [right, 100 - right])


def test_an_unknown_model_is_named(tmp_path):
    with pytest.raises(InputError, match="cnn_relu"):
        load_task("cnn_relu", Folders.of(tmp_path, "digits"))


DESCRIPTION = {"name": "synthetic", "records": {}}
SETTINGS = {"population": 4000, "features": 12, "radius": 2.0}
RECORDS = SyntheticRecords.of(SETTINGS)


def test_records_have_norm_one_in_every_dimension():
    for features in (1, 12, 40):
        task = synthetic_task(DESCRIPTION, SyntheticRecords.of(SETTINGS, {"features": features}))
        assert task.train_x.shape == (4000, features) and task.test_x.shape == (2000, features)
        np.testing.assert_allclose(np.linalg.norm(task.train_x, axis=1), 1.0, atol=1e-12)
        assert set(np.unique(task.train_y)) == {-1.0, 1.0}


def test_training_and_test_records_are_of_one_law_and_different():
    task = synthetic_task(DESCRIPTION, RECORDS)
    assert not np.array_equal(task.train_x[:2000], task.test_x)
    best = RegularisedRisk(task.train_x, task.train_y, 1e-3, 50.0).optimum
    # The law's model lies along (1, ..., 1), with norm 0.5/0.05 = 10 in units of the score's odds.
    assert best @ np.ones(12) / np.linalg.norm(best) / np.sqrt(12) > 0.95
    accuracies = [
        100 * np.mean(x @ best * y > 0) for x, y in ((task.train_x, task.train_y), (task.test_x, task.test_y))
    ]
    # Binomial deviations of 0.7 and 1.0 points: 6 points apart once in a million times.
    assert min(accuracies) > 70 and abs(accuracies[0] - accuracies[1]) < 6


def test_the_optimum_is_stationary_and_the_same_for_every_seed():
    task, again = synthetic_task(DESCRIPTION, RECORDS), synthetic_task(DESCRIPTION, RECORDS)
    np.testing.assert_array_equal(task.train_x, again.train_x)
    goal = RegularisedRisk(task.train_x, task.train_y, 0.1, 2.0)
    score = task.train_x @ goal.optimum * task.train_y
    gradient = -(task.train_x * (task.train_y / (1 + np.exp(score)))[:, None]).mean(axis=0) + 0.1 * goal.optimum
    assert np.linalg.norm(goal.optimum) < 2.0 and np.linalg.norm(gradient) < 1e-4


def test_the_description_says_how_many_records_there_are():
    assert synthetic_description(DESCRIPTION, RECORDS)["records"] == {"train": 4000} and DESCRIPTION["records"] == {}


@pytest.mark.parametrize("changed", [{"features": 0}, {"population": 2.5}, {"radius": -1.0}])
def test_settings_that_cannot_be_used_are_named(changed):
    with pytest.raises(InputError, match=f"^{next(iter(changed))} is [^\n]*$"):
        SyntheticRecords.of(SETTINGS | changed)
