from pathlib import Path

import numpy as np
import pytest

from dpfl.data.arrays import build_arrays, write_dataset
from dpfl.grid.sweep import Folders


@pytest.fixture(scope="session")
def digits(tmp_path_factory) -> Folders:
    """The digits of scikit-learn; no features."""
    folder = tmp_path_factory.mktemp("data")
    build_arrays("digits", folder / "arrays" / "digits")
    return Folders.of(folder, "digits")


@pytest.fixture(scope="session")
def bars(tmp_path_factory) -> Path:
    """Ten classes, each a bright bar at its own place on noise: easy, so that learning can be told from chance."""
    folder = tmp_path_factory.mktemp("bars") / "arrays"
    draw = np.random.default_rng(0)
    records = {"train": 300, "test": 100}
    arrays = {}
    for part, count in records.items():
        labels = np.arange(count, dtype=np.int64) % 10
        images = draw.integers(0, 60, (count, 1, 28, 28), dtype=np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[0, :, 2 + 2 * label : 5 + 2 * label] += 150
        arrays |= {f"{part}_x": images, f"{part}_y": labels}
    description = {"name": "digits", "title": "Bars", "stand_in_for": "mnist", "note": "Not MNIST.", "licence": "none"}
    write_dataset(folder, arrays, {**description, "records": records})
    return folder
