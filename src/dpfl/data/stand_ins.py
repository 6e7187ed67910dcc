"""Stand-ins: small data that come inside scikit-learn, for runs without a download; always named as such."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes, load_digits

from dpfl.data.arrays import describe, write_dataset
from dpfl.errors import InputError
from dpfl.randomness import generator

_DIGITS_LICENCE = "CC BY 4.0 (UCI Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak)"
_DIABETES_LICENCE = "none stated (B. Efron et al., 2004); distributed with scikit-learn under BSD-3-Clause"
_BRIGHTEST = 16.0  # of the 8x8 digits
_TRAIN_SHARE = 0.8
_COLOUR_STEP = 1  # the split is drawn at step 0 of the same address
_DARK, _BRIGHT = (0, 96), (160, 256)


def build_stand_in(name: str, out_folder: Path) -> Path:
    """Write the stand-in `name` to its own `out_folder`, in the shapes of the dataset it stands in for; return it.

    digits       for mnist: the 1,797 8x8 digits of scikit-learn as uint8 (n, 1, 28, 28), see `upsampled`.
    digits_rgb   for cifar10: the same as uint8 (n, 3, 32, 32), see `coloured`.
    diabetes     for insurance: scikit-learn's diabetes table, x (442, 10) with mean 0 and deviation 1 in every column.
    The digits' records are permuted by generator(0, "split"); the first 1,437 (80 %) train, the others test.

    Raises InputError for another name or where the folder cannot be written.
    """
    builders = {"digits": _digits, "digits_rgb": _digits_rgb, "diabetes": _diabetes}
    if name not in builders:
        raise InputError(f"no stand-in {name!r}; known: {', '.join(builders)}")
    arrays, description = builders[name]()
    write_dataset(Path(out_folder), arrays, description)
    return Path(out_folder)


def upsampled(images: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Return square `images` (n, s, s) as (n, size, size), bilinear with pixel centres at half-integers.

    Pixel i of the result lies at (i + 1/2) s / size - 1/2 of the source, clamped to [0, s - 1], and is the linear
    mean of its two neighbours there, along each axis.
    """
    source = images.shape[-1]
    places = np.clip((np.arange(size) + 0.5) * source / size - 0.5, 0, source - 1)
    weights = np.maximum(0.0, 1.0 - np.abs(places[:, None] - np.arange(source)))
    return weights @ images @ weights.T


def coloured(shapes: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Return `shapes` (n, s, s), in [0, 1], as RGB images (n, 3, s, s): a bright digit on a dark ground.

    Each channel of each image has its own ground, uniform in 0..95, and its own ink, uniform in 160..255, drawn at the
    address (0, "split", step 1) without a look at any label: the colours tell nothing about the class.
    """
    random = generator(0, "split", step=_COLOUR_STEP)
    ground = random.integers(*_DARK, size=(len(shapes), 3, 1, 1))
    ink = random.integers(*_BRIGHT, size=(len(shapes), 3, 1, 1))
    return np.rint(ground + (ink - ground) * shapes[:, None]).astype(np.uint8)


def _digits() -> tuple[dict[str, NDArray], dict]:
    """Return the arrays and the description of `digits`."""
    images, labels = load_digits(return_X_y=True)
    shapes = upsampled(images.reshape(-1, 8, 8) / _BRIGHTEST, 28)
    arrays = _split(np.rint(255.0 * shapes[:, None]).astype(np.uint8), labels)
    note = "Stand-in for MNIST: the 1,797 8x8 digits of scikit-learn, enlarged to 28x28 pixels. Not MNIST's numbers."
    return arrays, describe("digits", "Digits (stand-in for MNIST)", "mnist", note, _DIGITS_LICENCE, arrays)


def _digits_rgb() -> tuple[dict[str, NDArray], dict]:
    """Return the arrays and the description of `digits_rgb`."""
    images, labels = load_digits(return_X_y=True)
    arrays = _split(coloured(upsampled(images.reshape(-1, 8, 8) / _BRIGHTEST, 32)), labels)
    note = (
        "Stand-in for CIFAR-10: the 1,797 8x8 digits of scikit-learn, enlarged to 32x32 pixels in random colours. "
        "Not CIFAR-10's numbers."
    )
    title = "Coloured digits (stand-in for CIFAR-10)"
    return arrays, describe("digits_rgb", title, "cifar10", note, _DIGITS_LICENCE, arrays)


def _diabetes() -> tuple[dict[str, NDArray], dict]:
    """Return the arrays and the description of `diabetes`."""
    table = load_diabetes(scaled=False)
    x = table.data.astype(np.float64)
    arrays = {"x": (x - x.mean(axis=0)) / x.std(axis=0), "y": table.target.astype(np.float64)}
    note = (
        "Stand-in for the insurance data: scikit-learn's diabetes table of 442 patients, every column standardised. "
        "Not the insurance numbers."
    )
    title = "Diabetes (stand-in for medical insurance)"
    columns = tuple(table.feature_names)
    return arrays, describe("diabetes", title, "insurance", note, _DIABETES_LICENCE, arrays, columns)


def _split(images: NDArray[np.uint8], labels: NDArray) -> dict[str, NDArray]:
    """Return images and labels as the fixed 80/20 split."""
    order = generator(0, "split").permutation(len(labels))
    train, test = np.split(order, [int(_TRAIN_SHARE * len(labels))])
    labels = labels.astype(np.int64)
    return {"train_x": images[train], "train_y": labels[train], "test_x": images[test], "test_y": labels[test]}
