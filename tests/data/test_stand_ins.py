"""Stand-ins: the promised shapes, a fixed split, torch's enlargement, and colours that tell nothing."""

import numpy as np
import pytest
import torch
from scipy.stats import f_oneway
from sklearn.datasets import load_diabetes, load_digits

from dpfl.data.arrays import build_arrays
from dpfl.data.loading import load_images, load_table
from dpfl.data.stand_ins import coloured, upsampled


@pytest.mark.parametrize("size", [28, 32, 8])
def test_the_enlargement_is_torch_s_bilinear_one(size):
    images = load_digits().images[:50]
    expected = torch.nn.functional.interpolate(
        torch.from_numpy(images)[:, None], size=(size, size), mode="bilinear", align_corners=False
    )
    np.testing.assert_allclose(upsampled(images, size), expected[:, 0].numpy(), atol=1e-13)


@pytest.mark.parametrize(
    ("name", "original", "shape"), [("digits", "mnist", (1, 28, 28)), ("digits_rgb", "cifar10", (3, 32, 32))]
)
def test_the_digits_come_in_the_original_s_shape_with_their_name(tmp_path, name, original, shape):
    data = load_images(build_arrays(name, tmp_path / name))
    assert data.description["name"] == name and data.description["stand_in_for"] == original
    assert (
        "stand-in" in data.description["note"].lower()
        and data.description["note"].endswith(".")
        and data.description["licence"]
    )
    assert data.description["records"] == {"train": 1437, "test": 360}
    assert data.train_x.shape == (1437, *shape) and data.test_x.shape == (360, *shape)
    assert data.train_x.dtype == np.uint8 and data.train_y.dtype == np.int64
    labels = np.concatenate([data.train_y, data.test_y])
    assert np.array_equal(np.bincount(labels), np.bincount(load_digits().target))
    assert data.train_x.max() > 200 and np.bincount(data.test_y, minlength=10).min() > 10


def test_the_split_keeps_images_with_their_labels_and_loses_none(tmp_path):
    data = load_images(build_arrays("digits", tmp_path / "digits"))
    found = sorted(
        zip(
            map(bytes, np.concatenate([data.train_x, data.test_x])),
            np.concatenate([data.train_y, data.test_y]),
            strict=True,
        )
    )
    digits = load_digits()
    images = np.rint(upsampled(digits.images, 28) * 255 / 16).astype(np.uint8)
    assert found == sorted(zip(map(bytes, images), digits.target, strict=True))


def test_the_colours_tell_nothing_about_the_label(tmp_path):
    """Analysis of variance over the ten classes of the ground's channels and of the ratios between the contrasts.

    Ratios are free of the digit's shape. Five tests at level 1e-3: a false alarm has probability 5e-3, once and for
    all, the images being fixed. A ground that brightened by 2 of its 96 levels a class is found: second half.
    """
    data = load_images(build_arrays("digits_rgb", tmp_path / "rgb"))
    images, labels = np.concatenate([data.train_x, data.test_x]), np.concatenate([data.train_y, data.test_y])
    ground = images.min(axis=(2, 3)).astype(float)
    contrast = images.max(axis=(2, 3)) - ground
    ratios = np.log(contrast[:, 1:] / contrast[:, :1])

    def p_value(values):
        return f_oneway(*[values[labels == label] for label in range(10)]).pvalue

    assert min(p_value(values) for values in np.column_stack([ground, ratios]).T) > 1e-3
    assert p_value(ground[:, 0] + 2 * labels) < 1e-3


def test_ground_and_ink_are_the_image_s_own_and_apart():
    shapes = np.zeros((500, 2, 2))
    shapes[:, 0, 0] = 1.0
    images = coloured(shapes).astype(int)
    ink, ground = images[:, :, 0, 0], images[:, :, 1, 1]
    assert ground.min() >= 0 and ground.max() <= 95 and ink.min() >= 160 and ink.max() <= 255
    assert len(np.unique(np.column_stack([ink, ground]), axis=0)) == 500
    correlations = np.corrcoef(np.column_stack([ink, ground]).T)[np.triu_indices(6, 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(500)  # independent: 15 tests, false alarm 9e-6
    assert np.array_equal(coloured(shapes), images)


def test_the_table_is_scikit_learn_s_standardised(tmp_path):
    data = load_table(build_arrays("diabetes", tmp_path / "diabetes"))
    table = load_diabetes()  # scikit-learn's own scaling: mean 0, sum of squares 1
    assert data.description["stand_in_for"] == "insurance" and "stand-in" in data.description["note"].lower()
    assert data.columns == tuple(table.feature_names) and data.description["records"] == {"all": 442}
    np.testing.assert_allclose(data.x, table.data * np.sqrt(442), atol=1e-10)
    assert np.array_equal(data.y, table.target)


@pytest.mark.parametrize("name", ["digits", "digits_rgb", "diabetes"])
def test_the_same_call_gives_the_same_bytes(tmp_path, name):
    first, second = build_arrays(name, tmp_path / "a"), build_arrays(name, tmp_path / "b")
    build_arrays(name, second)
    assert {p.name: p.read_bytes() for p in first.iterdir()} == {p.name: p.read_bytes() for p in second.iterdir()}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]
