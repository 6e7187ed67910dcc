"""Logistic regression on drawn records: a convex task of any dimension, whose records all have norm 1."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dpfl.data.binary_classification import BinaryTask
from dpfl.experiments.shared.settings import Count, Positive, Settings
from dpfl.models.synthetic_problems import Kind, Problem, draw

SYNTHETIC = "synthetic_logistic"
_SIGNAL, _TARGET_NOISE = 0.5, 0.05
"""Norm of the law's model; targets are signs with the odds of its score over the noise."""
_CONDITION = 10.0
"""The features' largest variance over their smallest."""
_TRAINING, _TEST = 0, 1
"""Seeds of the records; every seed of a sweep draws its users from the same ones."""


class SyntheticRecords(Settings):
    """Numbers of drawn records and of their features, and the radius of the ball of models."""

    population: Count
    features: Count
    radius: Positive


def synthetic_description(description: Mapping[str, Any], settings: SyntheticRecords) -> dict[str, Any]:
    """Return a data set's description with the records that the settings ask for: `population` to train on."""
    return {**description, "records": {"train": settings.population}}


def synthetic_task(description: Mapping[str, Any], settings: SyntheticRecords) -> BinaryTask:
    """Return `population` records of `features` features (models.synthetic_problems, one client), half as many to test.

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
