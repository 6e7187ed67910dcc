"""Logistic regression under local privacy (lowy2021, MNIST): even digits from odd ones, a pair of digits a client.

Features are principal components. In the published split they are fitted on all training images, and test images are
drawn among those trained on as well; five clients share the images of a digit, each draws them with replacement, and
so to replace one of a client's rows is not to replace an image. In the disjoint split no image is shared, and the
components are fitted on images that no client holds. The choice of step sizes is not accounted for. Privacy statements
say so (UNACCOUNTED).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from scipy.optimize import minimize

from dpfl.convex import silo_jobs
from dpfl.convex.problems import Array, Logistic, Loss, gradients, losses, scores
from dpfl.convex.silo_jobs import ClientCounts, LdpCell, LdpPlan, LdpSettings, LdpTask
from dpfl.data.loading import ImageData, load_images
from dpfl.data.partition import DigitPairs, Split, Trial, held_back
from dpfl.features.pca import PrincipalComponents
from dpfl.grid.settings import Choice, Count

if TYPE_CHECKING:
    import pandas as pd

    from dpfl.grid.training_job import Folders, TrainingJob

UNACCOUNTED = {
    Split.PUBLISHED: (
        "one image is a row of up to five clients, and of a client several times, for rows are drawn with replacement: "
        "to replace one row is not to replace an image, or the person behind it; the principal components are fitted "
        "on the private images; neither that nor the choice of step size is accounted for"
    ),
    Split.DISJOINT: (
        "one image is one row, and the principal components are fitted on images that no client holds; the choice of "
        "step size is not accounted for"
    ),
}
"""What the privacy statements leave out, by split."""


class ClassificationSettings(LdpSettings):
    """A job's settings: the images that clients hold, their split, and the number of principal components."""

    digits: Count
    images_per_digit: Count
    split: Choice[Split]
    components: Count


@dataclass(frozen=True)
class Classification:
    """The task: logistic loss; x holds the features of all training images, zeros if no client may hold one."""

    plan: LdpPlan
    pairs: DigitPairs
    x: Array

    def trial(self, seed: int) -> Trial:
        """Return the clients' images of one trial."""
        return self.pairs.trial(self.x, seed)

    def measures(self, trial: Trial, weights: Array) -> dict[str, Array]:
        """Return loss and error, pooled over the clients' test records; a score of 0 counts as odd."""
        wrong = (scores(weights, trial.test_x) > 0) != (trial.test_y > 0)[:, None]
        test_loss = losses(cast("Loss", Logistic()), weights, trial.test_x, trial.test_y)
        return {"test_loss": test_loss, "test_error_pct": 100.0 * wrong.mean(axis=-2)}

    def references(self, trial: Trial) -> dict[str, float]:
        """Return what a trial can be held against, all pooled over the clients' records.

        Test loss and error of the weights w* of least training loss; largest_record, max |x| in training, which times
        the logistic slope's bound 1 bounds every record's gradient; v_star_squared, the mean over clients of
        |grad F_i(w*)|^2, lowy2021's measure of how much clients differ.
        """
        best = minimiser(trial.train_x, trial.train_y)
        pair = np.stack([best, best], axis=1)
        clients = [slice(*each) for each in itertools.pairwise(trial.starts)]
        pulls = [
            gradients(cast("Loss", Logistic()), pair, trial.train_x[each], trial.train_y[each])[:, 0]
            for each in clients
        ]
        return {
            **{f"minimiser_{name}": float(each[0]) for name, each in self.measures(trial, pair).items()},
            "largest_record": float(np.linalg.norm(trial.train_x, axis=1).max()),
            "v_star_squared": float(np.mean([np.sum(pull**2) for pull in pulls])),
        }


def minimiser(x: Array, y: Array) -> Array:
    """Return the weights of least mean logistic loss, shape (features,), for x (records, features), y of -1 and 1."""

    def objective(weights: Array) -> tuple[float, Array]:
        margins = y * (x @ weights)
        loss = Logistic()
        ones = np.ones_like(margins)
        return float(loss.value(margins, ones).mean()), x.T @ (y * loss.derivative(margins, ones)) / len(y)

    return minimize(objective, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B", options={"gtol": 1e-8}).x


def features(images: ImageData, pairs: DigitPairs, components: int) -> Array:
    """Return the principal components of the images that clients may hold, zeros elsewhere.

    They are fitted on all training images (published), or on those alone that no client may hold (disjoint).
    """
    public = np.ones(len(images.train_y), dtype=bool)
    if pairs.split is Split.DISJOINT:
        public[pairs.dealt] = False
    components_of = PrincipalComponents.fit(images.train_x[public], components)
    x = np.zeros((len(images.train_y), components))
    x[pairs.dealt] = components_of.scores(images.train_x[pairs.dealt])
    return x


def calibrate(job: TrainingJob, description: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row for each cell: see dpfl.convex.silo_jobs.calibrate_plan.

    Raises InputError naming the setting or the cell's key that cannot be used.
    """
    split = ClassificationSettings.of(job.settings).split
    return silo_jobs.calibrate_plan(_plan(job), job.cells, UNACCOUNTED[split])


def train(
    job: TrainingJob,
    folders: Folders,
    calibration: pd.DataFrame,
    checkpoint: Path | None,
    progress: Callable[[int, int], None],
) -> pd.DataFrame:
    """Return the run table (`silo_jobs.train_plan`). `checkpoint` is not used: a job takes minutes.

    Raises InputError where settings, cells, images or calibration cannot be used.
    """
    plan, settings = _plan(job), ClassificationSettings.of(job.settings)
    images = load_images(folders.arrays)
    pairs = DigitPairs.of(images.train_y, settings.digits, settings.images_per_digit, settings.split)
    task = Classification(plan, pairs, features(images, pairs, settings.components))
    return silo_jobs.train_plan(cast("LdpTask", task), job, images.description, calibration, progress)


def _plan(job: TrainingJob) -> LdpPlan:
    """Return the plan of `job`; every client has as many records."""
    settings = ClassificationSettings.of(job.settings)
    records = 2 * settings.images_per_digit
    counts = ClientCounts((settings.digits // 2) ** 2, records, records - held_back(records))
    return LdpPlan.of(settings, map(LdpCell.of, job.cells), cast("Loss", Logistic()), counts)
