import numpy as np
import pytest

from dpfl.convex.pnsgd import MEAN_INK, LossConstants, load
from dpfl.convex.problems import gradients


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
