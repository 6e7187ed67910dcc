"""Regularised logistic regression: labels of a data set, or drawn records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dpfl.convex.problems import Array, FactoredRecords, Logistic, Loss, minimum, risk, scores
from dpfl.convex.synthetic_problems import Kind, Problem, draw
from dpfl.data.binary_classification import BinaryTask, load_pooled, load_scattered
from dpfl.errors import InputError
from dpfl.grid.settings import Count, Positive, Settings

if TYPE_CHECKING:
    from dpfl.grid.training_job import Folders

# Regularised logistic regression on image data, with its optimum: what the projected algorithms are run on.

LOSS = cast("Loss", Logistic())
LIPSCHITZ = LOSS.lipschitz
"""Of one record's loss, for records of norm at most 1."""
CURVATURE = LOSS.smoothness
"""Smoothness of one record's loss, the regulariser apart."""
MODELS = ("pooled_logistic", "scatter_logistic")


def load_task(model: str, folders: Folders) -> BinaryTask:
    """Return the task that a job's setting `model` names; raises InputError for another name or unusable data."""
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


# Logistic regression on drawn records: a convex task of any dimension, whose records all have norm 1.

SYNTHETIC = "synthetic_logistic"
_SIGNAL, _TARGET_NOISE = 0.5, 0.05
"""Norm of the law's model; targets are signs with the odds of its score over the noise."""
_CONDITION = 10.0
"""The features' largest variance over their smallest."""
_TRAINING, _TEST = 0, 1
"""Seeds of the records; every seed of a job draws its users from the same ones."""


class SyntheticRecords(Settings):
    """Numbers of drawn records and of their features, and the radius of the ball of models."""

    population: Count
    features: Count
    radius: Positive


def synthetic_description(description: Mapping[str, Any], settings: SyntheticRecords) -> dict[str, Any]:
    """Return a data set's description with the records that the settings ask for: `population` to train on."""
    return {**description, "records": {"train": settings.population}}


def synthetic_task(description: Mapping[str, Any], settings: SyntheticRecords) -> BinaryTask:
    """Return `population` records of `features` features (`synthetic_problems`, one client), half as many to test.

    The best model of the population, within the ball of `radius`, is found as for image data.
    """
    problem = Problem(
        kind=Kind.LOGISTIC,
        clients=1,
        records=settings.population,
        features=settings.features,
        radius=settings.radius,
        condition=_CONDITION,
        signal=min(_SIGNAL, settings.radius),
        target_noise=_TARGET_NOISE,
    )
    train = draw(problem, _TRAINING)
    test = draw(replace(problem, records=math.ceil(problem.records / 2)), _TEST)
    return BinaryTask(synthetic_description(description, settings), train.x, train.y, test.x, test.y)
