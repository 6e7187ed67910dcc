import numpy as np
import pytest

from dpfl.convex.logistic_task import CURVATURE, LIPSCHITZ, LOSS, RegularisedRisk, accuracy_pct, load_task
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
