"""Binary classification of odd against even labels, on features that depend on their own record only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfl.data.loading import ImageData, load_images
from dpfl.errors import InputError

POOL = 4
"""Side of the blocks of pixels that are averaged; the scattering features have been averaged over as many."""
BRIGHTEST = 255.0
_RECORDS_AT_ONCE = 2000

Array = NDArray[np.float64]


@dataclass(frozen=True)
class BinaryTask:
    """Records x float64 (n, features) of norm at most 1 and targets y (n,), 1 for an odd label and -1 for an even.

    The last feature is the linear model's constant.
    """

    description: dict[str, Any]
    train_x: Array
    train_y: Array
    test_x: Array
    test_y: Array


def load_pooled(arrays: Path) -> BinaryTask:
    """Return the task on pixels in [0, 1], averaged over blocks of 4 x 4: 50 features of a 28 x 28 image.

    Raises InputError where the arrays cannot be used or the images' side is not a multiple of 4.
    """
    data = load_images(arrays)
    side = data.train_x.shape[-1]
    if side % POOL:
        raise InputError(f"{arrays}: images are {side} pixels wide, should be a multiple of {POOL}")
    parts = {part: _in_parts(getattr(data, f"{part}_x"), _pooled_pixels) for part in ("train", "test")}
    return _task(data, parts)


def load_scattered(arrays: Path, features: Path) -> BinaryTask:
    """Return the task on scattering features, averaged over the image: 82 features of one channel.

    Raises InputError where arrays or features cannot be used.
    """
    data = load_images(arrays)
    parts = {}
    for part in ("train", "test"):
        path = features / f"{part}_x.npy"
        if not path.is_file():
            raise InputError(f"{path}: no such file; compute the scattering features first (dpfl features)")
        stored = np.load(path, mmap_mode="r", allow_pickle=False)
        if len(stored) != len(getattr(data, f"{part}_y")):
            raise InputError(f"{path}: {len(stored)} features for other records; compute them again (dpfl features)")
        parts[part] = _in_parts(stored, lambda block: block.astype(np.float64).mean(axis=(2, 3)))
    return _task(data, parts)


def unit_records(features: Array) -> Array:
    """Return each record's contrast (its features less their mean) at norm 2/sqrt(5), with a constant 1/sqrt(5).

    features (n, d) gives (n, d + 1), records of norm 1; a record without contrast keeps the constant alone. What
    becomes of a record depends on no other record, so its privacy is that of the raw data.
    """
    contrast = features - features.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(contrast, axis=1, keepdims=True)
    contrast *= 2.0 / np.where(norms > 0.0, norms, 1.0)
    return np.hstack([contrast, np.ones((len(features), 1))]) / np.sqrt(5.0)


def _pooled_pixels(images: NDArray[np.uint8]) -> Array:
    """Return the block means of images (n, channels, side, side) as (n, channels * (side / 4)^2)."""
    count, channels, side, _ = images.shape
    blocks = images.reshape(count, channels, side // POOL, POOL, side // POOL, POOL)
    return blocks.mean(axis=(3, 5), dtype=np.float64).reshape(count, -1) / BRIGHTEST


def _in_parts(source: NDArray, reduce: Callable[[NDArray], Array]) -> Array:
    """Return `reduce` of a long memory-mapped array, some records at a time."""
    starts = range(0, len(source), _RECORDS_AT_ONCE)
    return np.concatenate([reduce(np.asarray(source[start : start + _RECORDS_AT_ONCE])) for start in starts])


def _task(data: ImageData, parts: dict[str, Array]) -> BinaryTask:
    """Return the task of features by part."""
    labels = {part: 2.0 * (getattr(data, f"{part}_y") % 2) - 1.0 for part in parts}
    return BinaryTask(
        description=data.description,
        train_x=unit_records(parts["train"]),
        train_y=labels["train"],
        test_x=unit_records(parts["test"]),
        test_y=labels["test"],
    )
