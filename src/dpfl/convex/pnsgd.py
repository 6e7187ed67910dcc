"""Projected noisy SGD in one pass over the records, one a step (asoodeh2020, Algorithm 1), as an entry of the grid.

The order of the records is sorted by target and public, or a secret permutation; the model of the last step is
released, or that of a uniformly drawn one; the noise is Gaussian, or Laplace for a model of one dimension. Every cell's
noise meets its budget for the record that is worst off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import model_validator

from dpfl.accounting.contraction.pnsgd import Law, NoisyPass, calibrated_scale, worst_epsilon
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import ShuffledEpochs
from dpfl.accounting.statements import Gaussian, Laplace, PrivacyStatement
from dpfl.convex.logistic_task import CURVATURE, LIPSCHITZ, LOSS, RegularisedRisk, accuracy_pct, load_task
from dpfl.convex.problems import Array, FactoredRecords, Loss, Square
from dpfl.convex.projected_sgd import ProjectedHyperparameters, _rows, models_at, projected_sgd, stratified_stops
from dpfl.data.binary_classification import BRIGHTEST
from dpfl.data.loading import load_images
from dpfl.errors import InputError
from dpfl.grid.run_table import as_columns, calibrated, run_table
from dpfl.grid.settings import Choice, Count, Epsilon, Positive, Probability, Settings
from dpfl.grid.training_job import Folders, TrainingJob, is_private
from dpfl.progress import step_counter
from dpfl.randomness import generator

# PNSGD (asoodeh2020): the order of the records, and their source for `projected_sgd`.


def ordered_records(records: FactoredRecords, orders: NDArray[np.int64]) -> Callable[[int], FactoredRecords]:
    """Return the source that takes single records in given orders (seeds, records): PNSGD's."""
    return _rows(records, orders[:, :, None])


def _orders(seeds: tuple[int, ...], n: int, permuted: bool) -> NDArray[np.int64]:
    """Return the order in which each seed takes the sorted records, (seeds, n)."""
    if not permuted:
        return np.tile(np.arange(n), (len(seeds), 1))
    return np.stack([generator(seed, "partition").permutation(n) for seed in seeds])


# Tasks for PNSGD: a mean in one dimension, where Laplace noise can be tried, and a logistic model.

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
        """Return the constants of a model; `lipschitz` bounds half of how far two records' gradients may lie apart."""
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
        loss=cast("Loss", Square()),
        records=FactoredRecords.of(np.ones((len(ink), 1)), ink),
        dimension=1,
        excess=lambda weights: np.square(weights[0] - mean) / 2.0,
        accuracy_pct=lambda weights: np.full(weights.shape[1], math.nan),
    )


def check_records(description: Mapping[str, Any], n: int) -> None:
    """Raise InputError where the data set has fewer than n training records."""
    if n > description["records"]["train"]:
        raise InputError(
            f"users: n = {n}, but {description['name']} has {description['records']['train']} training records"
        )


_STD = {Law.GAUSSIAN: 1.0, Law.LAPLACE: math.sqrt(2.0)}
"""Standard deviation of noise of scale 1."""


class Order(StrEnum):
    """The order in which the records are read."""

    SORTED = "sorted"
    """By target, and public."""
    PERMUTED = "permuted"
    """Secret, all orders being as likely."""


class Release(StrEnum):
    """The model that is released."""

    LAST = "last"
    RANDOM = "random"
    """That of a uniformly drawn step."""


class PnsgdCell(Settings):
    """A cell within its job's settings: the pass and its guarantee.

    `regularisation` is read for a logistic model only; `stops` counts the stopping steps of a randomly stopped run.
    """

    model: str
    users: Count
    law: Choice[Law]
    order: Choice[Order]
    release: Choice[Release]
    step: Positive
    epsilon: Epsilon
    delta: Probability
    radius: Positive
    regularisation: Positive | None = None
    stops: Count

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Raise ValueError where the theorems do not cover the cell."""
        if self.regularisation is None and self.model != MEAN_INK:
            raise ValueError(f"regularisation is missing in the settings; model {self.model} needs a number above 0")
        limit = 2.0 / (self.theory.smoothness + self.theory.strong_convexity)
        if self.step > limit:
            raise ValueError(f"step is {self.step}; Theorems 3 to 5 need eta <= 2/(beta + rho) = {limit:g}")
        if self.law is Law.LAPLACE and self.model != MEAN_INK:
            raise ValueError(f"law: laplace noise is analysed for models of one dimension, and {self.model} has more")
        return self

    @property
    def permuted(self) -> bool:
        """True where the order is secret."""
        return self.order is Order.PERMUTED

    @property
    def random_stop(self) -> bool:
        """True where the released model's step is drawn."""
        return self.release is Release.RANDOM

    @property
    def theory(self) -> LossConstants:
        """The constants of a record's loss."""
        return LossConstants.of(self.model, self.radius, self.regularisation or 0.0)

    @property
    def accounting(self) -> dict[str, Any]:
        """The fields of the pass for the contraction analysis."""
        return {
            "n": self.users,
            "law": self.law,
            "permuted": self.permuted,
            "random_stop": self.random_stop,
            "eta": self.step,
            "lipschitz": self.theory.lipschitz,
            "smoothness": self.theory.smoothness,
            "strong_convexity": self.theory.strong_convexity,
            "diameter": 2.0 * self.theory.radius,
        }


def calibrate(job: TrainingJob, description: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row for each cell: its keys, scale (of the noise on a gradient), noise_multiplier, privacy_* columns.

    privacy_epsilon_contraction is that of the worst place, by Theorem 4 (3 for Laplace), averaged over places or
    stopping times where order or stop are secret; privacy_epsilon_proven is of one noisy gradient with every model
    published. Raises InputError naming the setting or the cell's key that cannot be used.
    """
    rows = []
    for cell in job.cells:
        chosen = PnsgdCell.of(job.settings, cell)
        check_records(description, chosen.users)
        scale = 0.0
        if is_private(cell):
            scale = calibrated_scale(chosen.epsilon, chosen.delta, NoisyPass(**chosen.accounting))
        columns = _privacy(chosen, scale)
        noise = {"scale": scale, "noise_multiplier": columns["privacy_noise_multiplier"]}
        rows.append({**as_columns(cell), **noise, **columns})
    return pd.DataFrame(rows)


def train(
    job: TrainingJob,
    folders: Folders,
    calibration: pd.DataFrame,
    checkpoint: Path | None,
    progress: Callable[[int, int], None],
) -> pd.DataFrame:
    """Return the run table: a row for each run, cells in order and seeds within.

    Metrics: excess_risk on the n records, above the optimum in the ball; accuracy_pct on the test set (nan for a mean).
    A randomly stopped run has their means over `stops` stopping steps, one in each of as many equal parts of the pass.
    `progress` counts steps. `checkpoint` is not used: minutes at most. Raises InputError where settings, cells, data or
    calibration cannot be used.
    """
    passes = [PnsgdCell.of(job.settings, cell) for cell in job.cells]
    noise = calibrated(calibration, job.cells)
    scales = [each["scale"] for each in noise]
    if len({(each.users, each.theory) for each in passes}) > 1:
        raise InputError("users, radius, regularisation: the cells of a job must share them")
    task = load(passes[0].model, folders, passes[0].users, passes[0].theory)
    check_records(task.description, passes[0].users)
    groups: dict[tuple, list[int]] = {}
    for place, each in enumerate(passes):
        groups.setdefault((each.law, each.permuted, each.random_stop), []).append(place)
    tick = step_counter(progress, passes[0].users * len(groups))
    results: dict[tuple[int, int], dict[str, Any]] = {}
    for places in groups.values():
        stack = [passes[place] for place in places]
        draws = stack[0].stops if stack[0].random_stop else 1
        weights = _run(task, stack, [scales[place] for place in places], job.seeds, draws, tick)
        for model, place in enumerate(places):
            for seed, own in zip(job.seeds, weights[..., model], strict=True):
                means = {"excess_risk": task.excess(own.T).mean(), "accuracy_pct": task.accuracy_pct(own.T).mean()}
                measured = {name: float(value) for name, value in means.items()}
                results[place, seed] = {**measured, "dimension": task.dimension, "scale": scales[place]}
    return run_table(job, task.description, noise, results)


def _run(
    task: PnsgdTask,
    stack: list[PnsgdCell],
    scales: list[float],
    seeds: tuple[int, ...],
    draws: int,
    tick: Callable[[], None],
) -> Array:
    """Return the released models of passes that share law, order and kind of stop: (seeds, stops, features, models)."""
    first = stack[0]
    models = len(stack)
    points = ProjectedHyperparameters(
        step_size=np.tile(np.array([[each.step] for each in stack]), (1, first.users)),
        noise_std=np.array(scales),
        radius=np.full(models, first.theory.radius),
        regularisation=np.full(models, first.theory.regularisation),
    )
    start = 1 if first.random_stop else first.users
    stops = np.stack([np.tile(stratified_stops(seed, start, first.users, draws), (models, 1)) for seed in seeds])
    source = ordered_records(task.records, _orders(seeds, first.users, first.permuted))
    runs = projected_sgd(task.loss, source, seeds, points, clip_norm=first.theory.lipschitz, law=first.law)
    return models_at(runs, stops, tick)


def _privacy(chosen: PnsgdCell, scale: float) -> dict[str, Any]:
    """Return the statement's columns, with what is released and the worst place's epsilon by contraction."""
    released_model = "one model, its step drawn" if chosen.random_stop else "last model"
    order = "a secret order" if chosen.permuted else "the order of their labels or values; order and labels are public"
    statement = PrivacyStatement.of(
        Laplace() if chosen.law is Law.LAPLACE else Gaussian(),
        ShuffledEpochs(1, chosen.users),
        neighbouring=Neighbouring.REPLACE_ONE,
        records=chosen.users,
        clip_norm=chosen.theory.lipschitz,
        noise_multiplier=_STD[chosen.law] * scale / chosen.theory.lipschitz,
        steps=chosen.users,
        delta=chosen.delta,
        note=f"one pass, each record once, in {order}; epsilon_proven allows all models to be released, "
        "epsilon_contraction is of the record that is worst off and needs the other models kept secret",
    )
    last_model = math.inf
    if scale > 0:
        last_model = worst_epsilon(chosen.delta, NoisyPass(**chosen.accounting), scale=scale)
    return {**statement.columns(), "privacy_released": released_model, "privacy_epsilon_contraction": last_model}
