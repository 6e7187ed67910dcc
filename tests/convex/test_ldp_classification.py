"""The classification jobs: their rows by the plain functions, references against scikit-learn, leaks, bad input."""

import json
import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from dpfl.convex import ldp_classification
from dpfl.convex.federated_rounds import Hyperparameters, Trials
from dpfl.data.loading import load_images
from dpfl.data.partition import DigitPairs, Split
from dpfl.errors import InputError
from dpfl.features.pca import PrincipalComponents
from dpfl.grid.training_job import Folders, TrainingJob

SETTINGS = {
    "dataset": "toy",
    "digits": 4,
    "images_per_digit": 20,
    "components": 5,
    "split": "published",
    "participating": 3,
    "rounds": 5,
    "delta": "1/n^2",
    "noise": "moments",
    "sampling": "with_replacement",
    "clipping": "record",
    "batch_size": 6,
    "largest_epsilon": 18,
    "repetitions": 2,
    "step_exponents": {"minibatch": [-3, 0, 3], "local": [-4, -1, 3]},
    "clip_norms": [3.0],
    "last_iterates": 2,
    "divergence_loss": 1e6,
}
CELLS = tuple({"algorithm": name, "epsilon": e} for name in ("minibatch", "local") for e in (0.5, math.inf))


@pytest.fixture
def folders(tmp_path) -> Folders:
    """Forty-five training images of each digit, 4 x 4 pixels, each digit brighter in its own places."""
    rng = np.random.default_rng(4)
    labels = rng.permutation(np.repeat(np.arange(10), 45))
    shapes = rng.integers(0, 120, size=(10, 16))
    images = (shapes[labels] + rng.integers(0, 130, size=(450, 16))).astype(np.uint8).reshape(-1, 1, 4, 4)
    description = {"name": "toy", "title": "Toy", "stand_in_for": "mnist", "note": "a toy", "licence": "none"}
    description |= {"records": {"train": 440, "test": 10}}
    for part, chosen in (("train", slice(0, 440)), ("test", slice(440, 450))):
        np.save(tmp_path / f"{part}_x.npy", images[chosen])
        np.save(tmp_path / f"{part}_y.npy", labels[chosen])
    (tmp_path / "description.json").write_text(json.dumps(description))
    return Folders(arrays=tmp_path, features=tmp_path / "features")


def training_job(**changes) -> TrainingJob:
    """The toy job with some settings changed."""
    return TrainingJob("lowy2021", "ldp_classification", "toy", {**SETTINGS, **changes}, CELLS, (0, 3))


def trained(folders: Folders, job: TrainingJob):
    """Calibrate and train."""
    calibration = ldp_classification.calibrate(job, {})
    return ldp_classification.train(job, folders, calibration, None, lambda done, total: None)


def task_of(folders: Folders, split: str) -> ldp_classification.Classification:
    """The task of the toy job."""
    images = load_images(folders.arrays)
    job = training_job(split=split)
    pairs = DigitPairs.of(images.train_y, 4, 20, Split(split))
    features = ldp_classification.features(images, pairs, 5)
    return ldp_classification.Classification(ldp_classification._plan(job), pairs, features)


def test_rows_are_the_best_points_errors(folders):
    rows = trained(folders, training_job())
    assert len(rows) == 8 and set(rows["status"]) == {"finished"}
    assert set(rows["batch_size"]) == {6} and set(rows["privacy_records"]) == {32}
    task = task_of(folders, "published")
    own = rows[(rows["algorithm"] == "minibatch") & np.isinf(rows["epsilon"])].set_index("seed")
    for seed in (0, 3):
        trial = task.trial(seed)
        stack = Trials((seed,), trial.train_x[None], trial.train_y[None], trial.starts)
        points = Hyperparameters(np.exp([-3.0, -1.5, 0.0]), np.full(3, 3.0), np.zeros(3))
        outputs = ldp_classification.silo_jobs.RUN["minibatch"](stack, points, task.plan.protocol)[0]
        loss = np.zeros(3)
        errors = np.zeros(3)
        for point in range(3):
            for repetition in range(2):
                margins = trial.train_y * (trial.train_x @ outputs[repetition, :, point])
                loss[point] += np.mean(np.log1p(np.exp(-margins))) / 2
                predicted = np.where(trial.test_x @ outputs[repetition, :, point] > 0, 1, -1)
                errors[point] += 50 * np.mean(predicted != trial.test_y)
        best = int(np.argmin(loss))
        assert own.loc[seed, "train_loss"] == pytest.approx(loss[best], rel=1e-12)
        assert own.loc[seed, "test_error_pct"] == pytest.approx(errors[best], rel=1e-12)
        assert own.loc[seed, "step_size"] == pytest.approx(points.step_size[best], rel=1e-12)


def test_statements_say_when_a_row_is_not_an_image(folders):
    labels = load_images(folders.arrays).train_y
    for split, clients, said in (
        ("published", 2, "is not to replace an image"),
        ("disjoint", 1, "one image is one row"),
    ):
        hands = DigitPairs.of(labels, 4, 20, Split(split)).deal(0)
        holders = np.bincount(np.concatenate([np.unique(hand) for hand in hands]))
        twice = max(np.bincount(hand).max() for hand in hands)
        assert holders.max() == clients and (twice > 1) == (split == "published")
        notes = ldp_classification.calibrate(training_job(split=split), {}).query("epsilon < inf")["privacy_note"]
        assert notes.str.contains(said).all() and notes.str.contains("principal components are fitted").all()
        assert not notes.str.contains("standardisation").any()


def test_the_minimiser_is_scikit_learns(folders):
    trial = task_of(folders, "published").trial(0)
    rng = np.random.default_rng(0)
    # Labels in part at random: separable records have no minimiser.
    y = np.where(rng.random(len(trial.train_y)) < 0.3, -trial.train_y, trial.train_y)
    theirs = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-10, max_iter=10_000).fit(trial.train_x, y)
    np.testing.assert_allclose(ldp_classification.minimiser(trial.train_x, y), theirs.coef_[0], rtol=1e-4, atol=1e-5)


def test_references_are_measured_on_the_test_records(folders):
    task = task_of(folders, "disjoint")
    trial = task.trial(1)
    columns = task.references(trial)
    best = ldp_classification.minimiser(trial.train_x, trial.train_y)
    wrong = np.mean(np.where(trial.test_x @ best > 0, 1, -1) != trial.test_y)
    assert columns["minimiser_test_error_pct"] == pytest.approx(100 * wrong)
    assert columns["largest_record"] == pytest.approx(max(np.linalg.norm(row) for row in trial.train_x))
    assert columns["v_star_squared"] >= 0


def test_disjoint_components_never_see_a_clients_image(folders):
    """Components of the published split are those of all images; the others' change with no image that is dealt."""
    images = load_images(folders.arrays)
    pairs = DigitPairs.of(images.train_y, 4, 20, Split.DISJOINT)
    whole = PrincipalComponents.fit(images.train_x, 5)
    published = task_of(folders, "published")
    dealt = published.pairs.dealt
    np.testing.assert_array_equal(published.x[dealt], whole.scores(images.train_x[dealt]))
    public = np.setdiff1d(np.arange(len(images.train_y)), pairs.dealt)
    apart = PrincipalComponents.fit(images.train_x[public], 5)
    x = task_of(folders, "disjoint").x
    np.testing.assert_array_equal(x[pairs.dealt], apart.scores(images.train_x[pairs.dealt]))
    assert not x[public].any()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"digits": 3, "participating": 1}, "digits"),
        ({"digits": 0}, "digits"),
        ({"images_per_digit": 0}, "images_per_digit"),
        ({"images_per_digit": 500}, "there are"),
        ({"components": 17}, "components"),
        ({"split": "leaky"}, "split"),
        ({"participating": 5}, "participating"),
    ],
)
def test_settings_that_cannot_be_used_are_named(folders, changes, named):
    with pytest.raises(InputError, match=named) as raised:
        trained(folders, training_job(**changes))
    assert "\n" not in str(raised.value)
