"""Tasks for PNSGD: a mean in one dimension, where Laplace noise can be tried, and a logistic model."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpfl.data.binary_classification import BRIGHTEST
from dpfl.data.loading import load_images
from dpfl.errors import InputError
from dpfl.experiments.shared.logistic_task import CURVATURE, LIPSCHITZ, LOSS, RegularisedRisk, accuracy_pct, load_task
from dpfl.grid.sweep import Folders
from dpfl.models.glm import Array, FactoredRecords, Loss, Square

MEAN_INK = "mean_ink"


@dataclass(frozen=True)
class LossConstants:
    """The constants of one record's loss on the ball of `radius`, its regulariser included."""

    lipschitz: float
    smoothness: float
    strong_convexity: float
    radius: float
    regularisation: float

    @classmethod
    def of(cls, model: str, radius: float, regularisation: float) -> LossConstants:
        """Return those of a model; `lipschitz` bounds half of how far two records' gradients may lie apart."""
        if model == MEAN_INK:
            return cls(radius + 0.5, 1.0, 1.0, radius, 0.0)
        return cls(LIPSCHITZ, CURVATURE + regularisation, regularisation, radius, regularisation)


@dataclass(frozen=True)
class PnsgdTask:
    """n records in one order, sorted by target: the worst for a single pass, and public knowledge here.

    `excess` and `accuracy_pct` map weights (features, models) to one number a model; accuracy is nan for a mean.
    """

    description: dict[str, Any]
    loss: Loss
    records: FactoredRecords
    dimension: int
    excess: Callable[[Array], Array]
    accuracy_pct: Callable[[Array], Array]


def load(model: str, folders: Folders, n: int, theory: LossConstants) -> PnsgdTask:
    """Return the task on the first n training records; raises InputError where model or data cannot be used."""
    if model == MEAN_INK:
        return _mean(folders.arrays, n)
    task = load_task(model, folders)
    order = np.argsort(task.train_y[:n], kind="stable")
    x, y = task.train_x[order], task.train_y[order]
    goal = RegularisedRisk(x, y, theory.regularisation, theory.radius)
    return PnsgdTask(
        description=task.description,
        loss=LOSS,
        records=FactoredRecords.of(x, y),
        dimension=x.shape[1],
        excess=goal.excess,
        accuracy_pct=lambda weights: accuracy_pct(weights, task.test_x, task.test_y),
    )


def _mean(arrays: Path, n: int) -> PnsgdTask:
    """Return the mean of an image's mean pixel, less 1/2: the loss (w - y)^2/2 with y in [-1/2, 1/2]."""
    data = load_images(arrays)
    ink = np.sort(np.asarray(data.train_x[:n]).mean(axis=(1, 2, 3), dtype=np.float64) / BRIGHTEST - 0.5)
    mean = ink.mean()
    return PnsgdTask(
        description=data.description,
        loss=Square(),
        records=FactoredRecords.of(np.ones((len(ink), 1)), ink),
        dimension=1,
        excess=lambda weights: np.square(weights[0] - mean) / 2.0,
        accuracy_pct=lambda weights: np.full(weights.shape[1], math.nan),
    )


def check_records(description: dict[str, Any], n: int) -> None:
    """Raise InputError where the data set has fewer than n training records."""
    if n > description["records"]["train"]:
        raise InputError(
            f"users: n = {n}, but {description['name']} has {description['records']['train']} training records"
        )
