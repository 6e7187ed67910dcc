"""Small data inside scikit-learn that stand in for the published ones, for runs without a download."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes, load_digits

from dpfl.data.datasets import Dataset
from dpfl.randomness import generator

_BRIGHTEST = 16.0  # of the 8x8 digits
_TRAIN_SHARE = 0.8
_COLOUR_STEP = 1  # the split is drawn at step 0 of the same address
_DARK, _BRIGHT = (0, 96), (160, 256)


def digits(entry: Dataset) -> dict[str, NDArray]:
    """Return the 1,797 8x8 digits of scikit-learn as uint8 images of the entry's shape, `upsampled`.

    Images of three channels are `coloured`. The records are permuted by generator(0, "split"); the first 80 % train,
    the others test: train_x, train_y, test_x, test_y.
    """
    images, labels = load_digits(return_X_y=True)
    channels, size, _ = entry.image_shape
    shapes = upsampled(images.reshape(-1, 8, 8) / _BRIGHTEST, size)
    pixels = coloured(shapes) if channels == 3 else np.rint(255.0 * shapes[:, None]).astype(np.uint8)
    return _split(pixels, labels)


def diabetes() -> dict[str, NDArray]:
    """Return scikit-learn's diabetes table: x (442, 10) with mean 0 and deviation 1 in every column, y (442,)."""
    x, y = load_diabetes(scaled=False, return_X_y=True)
    x = x.astype(np.float64)
    return {"x": (x - x.mean(axis=0)) / x.std(axis=0), "y": y.astype(np.float64)}


def upsampled(images: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Return square `images` (n, s, s) as (n, size, size), bilinear with pixel centres at half-integers.

    Pixel i of the result is at (i + 1/2) s / size - 1/2 of the source, clamped to [0, s - 1], and is the linear
    mean of its two neighbours there, along each axis.
    """
    source = images.shape[-1]
    places = np.clip((np.arange(size) + 0.5) * source / size - 0.5, 0, source - 1)
    weights = np.maximum(0.0, 1.0 - np.abs(places[:, None] - np.arange(source)))
    return weights @ images @ weights.T


def coloured(shapes: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Return `shapes` (n, s, s), in [0, 1], as RGB images (n, 3, s, s): a bright digit on a dark ground.

    Each channel of each image has its own ground, uniform in 0..95, and its own ink, uniform in 160..255, drawn at the
    address (0, "split", step 1) without the labels: the colours carry no information on the class.
    """
    random = generator(0, "split", step=_COLOUR_STEP)
    ground = random.integers(*_DARK, size=(len(shapes), 3, 1, 1))
    ink = random.integers(*_BRIGHT, size=(len(shapes), 3, 1, 1))
    return np.rint(ground + (ink - ground) * shapes[:, None]).astype(np.uint8)


def _split(images: NDArray[np.uint8], labels: NDArray) -> dict[str, NDArray]:
    """Return images and labels as the fixed 80/20 split."""
    order = generator(0, "split").permutation(len(labels))
    train, test = np.split(order, [int(_TRAIN_SHARE * len(labels))])
    labels = labels.astype(np.int64)
    return {"train_x": images[train], "train_y": labels[train], "test_x": images[test], "test_y": labels[test]}
