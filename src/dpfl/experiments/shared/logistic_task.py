"""Regularised logistic regression on image data, with its optimum: what the projected algorithms are run on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpfl.data.binary_classification import BinaryTask, load_pooled, load_scattered
from dpfl.errors import InputError
from dpfl.grid.sweep import Folders
from dpfl.models.glm import Array, FactoredRecords, Logistic, scores
from dpfl.models.optimum import minimum, risk

LOSS = Logistic()
LIPSCHITZ = LOSS.lipschitz
"""Of one record's loss, for records of norm at most 1."""
CURVATURE = LOSS.smoothness
"""Smoothness of one record's loss, the regulariser apart."""
MODELS = ("pooled_logistic", "scatter_logistic")


def load_task(model: str, folders: Folders) -> BinaryTask:
    """Return the task that a sweep's setting `model` names; raises InputError for another name or unusable data."""
    if model not in MODELS:
        raise InputError(f"model: {model!r} is unknown here, should be one of {', '.join(MODELS)}")
    return load_scattered(folders.arrays, folders.features) if model == MODELS[1] else load_pooled(folders.arrays)


@dataclass(frozen=True)
class RegularisedRisk:
    """The risk over some records of a task, regularised, and its least value in a ball."""

    x: Array
    y: Array
    regularisation: float
    radius: float

    @cached_property
    def optimum(self) -> Array:
        """The weights (features,) of least risk in the ball, to 1e-10 in risk."""
        return minimum(LOSS, self.x, self.y, regularisation=self.regularisation, radius=self.radius)

    @cached_property
    def least(self) -> float:
        """The least risk in the ball."""
        return float(risk(LOSS, self.optimum[:, None], self.x, self.y, self.regularisation)[0])

    def excess(self, weights: Array) -> Array:
        """Return the risk of each model above the least, weights (features, models), shape (models,)."""
        return risk(LOSS, weights, self.x, self.y, self.regularisation) - self.least


def records_of(task: BinaryTask) -> FactoredRecords:
    """Return the training records as the steps read them."""
    return FactoredRecords.of(task.train_x, task.train_y)


def accuracy_pct(weights: Array, x: Array, y: Array) -> Array:
    """Return the share of records on the right side of 0, in percent, weights (features, models)."""
    return 100.0 * np.mean(scores(weights, x) * y[:, None] > 0, axis=0)
