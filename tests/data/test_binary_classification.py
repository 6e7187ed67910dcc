import json

import numpy as np
import pytest

from dpfl.data.binary_classification import load_pooled, load_scattered, unit_records
from dpfl.errors import InputError


@pytest.fixture
def folder(tmp_path):
    """Twelve training and five test images of 8 x 8 pixels with labels 0 to 9."""
    rng = np.random.default_rng(0)
    arrays = tmp_path / "arrays"
    arrays.mkdir()
    for part, count in (("train", 12), ("test", 5)):
        np.save(arrays / f"{part}_x.npy", rng.integers(0, 256, size=(count, 1, 8, 8)).astype(np.uint8))
        np.save(arrays / f"{part}_y.npy", rng.integers(0, 10, size=count))
    description = {"name": "tiny", "title": "", "stand_in_for": None, "note": "", "licence": ""}
    (arrays / "description.json").write_text(json.dumps({**description, "records": {"train": 12, "test": 5}}))
    return tmp_path


def test_pooled_features_are_block_means_without_a_look_at_other_records(folder):
    task = load_pooled(folder / "arrays")
    image = np.load(folder / "arrays" / "train_x.npy")[3, 0] / 255
    blocks = np.array([image[i : i + 4, j : j + 4].mean() for i in (0, 4) for j in (0, 4)])
    contrast = blocks - blocks.mean()
    expected = np.append(2 * contrast / np.linalg.norm(contrast), 1) / np.sqrt(5)
    np.testing.assert_allclose(task.train_x[3], expected, atol=1e-14)
    labels = np.load(folder / "arrays" / "train_y.npy")
    assert ((task.train_y == 1) == (labels % 2 == 1)).all() and set(task.train_y) <= {-1.0, 1.0}
    assert task.test_x.shape == (5, 5)


def test_records_have_norm_one_and_a_blank_one_keeps_its_constant():
    records = unit_records(np.vstack([np.random.default_rng(1).random((6, 9)), np.full(9, 0.3)]))
    np.testing.assert_allclose(np.linalg.norm(records[:6], axis=1), 1, atol=1e-14)
    np.testing.assert_allclose(records[6], np.append(np.zeros(9), 1 / np.sqrt(5)), atol=1e-15)


def test_scattered_features_are_means_over_the_image(folder):
    features = folder / "features"
    features.mkdir()
    stored = np.random.default_rng(2).random((12, 3, 2, 2)).astype(np.float32)
    np.save(features / "train_x.npy", stored)
    np.save(features / "test_x.npy", stored[:5])
    task = load_scattered(folder / "arrays", features)
    np.testing.assert_allclose(task.train_x, unit_records(stored.astype(np.float64).mean(axis=(2, 3))), atol=1e-12)
    np.save(features / "train_x.npy", stored[:4])
    with pytest.raises(InputError, match="4 features"):
        load_scattered(folder / "arrays", features)
    (features / "train_x.npy").unlink()
    with pytest.raises(InputError, match="dpfl features"):
        load_scattered(folder / "arrays", features)


def test_odd_sizes_are_refused(folder):
    for part, count in (("train", 12), ("test", 5)):
        np.save(folder / "arrays" / f"{part}_x.npy", np.zeros((count, 1, 6, 6), np.uint8))
    with pytest.raises(InputError, match="multiple of 4"):
        load_pooled(folder / "arrays")
