"""Load the arrays of a dataset for the later stages, checked against the description in their folder."""

from __future__ import annotations

import json
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfl.errors import InputError

# What numpy's parsing of a header raises, by the kind of damage.
_MALFORMED = (
    ValueError, EOFError, SyntaxError, OverflowError, TypeError, RecursionError, MemoryError, tokenize.TokenError,
)  # fmt: skip
_DESCRIPTION_KEYS = ("name", "title", "stand_in_for", "note", "licence", "records")


@dataclass(frozen=True)
class ImageData:
    """Images uint8 (n, channels, height, width), memory-mapped and read-only, with their labels int64 (n,)."""

    description: dict[str, Any]
    train_x: NDArray[np.uint8]
    train_y: NDArray[np.int64]
    test_x: NDArray[np.uint8]
    test_y: NDArray[np.int64]


@dataclass(frozen=True)
class TableData:
    """A regression table: x float64 (n, d) with a name for each column, y float64 (n,)."""

    description: dict[str, Any]
    columns: tuple[str, ...]
    x: NDArray[np.float64]
    y: NDArray[np.float64]


def load_images(folder: Path) -> ImageData:
    """Return the images in a dataset's arrays folder.

    Raises InputError naming the file that is missing, malformed, or at odds with description.json.
    """
    description = load_description(folder)
    parts: dict[str, NDArray] = {}
    for part in ("train", "test"):
        images, labels = folder / f"{part}_x.npy", folder / f"{part}_y.npy"
        count = description["records"].get(part)
        parts[f"{part}_x"] = _array(images, np.uint8, 4, count)
        parts[f"{part}_y"] = np.array(_array(labels, np.int64, 1, count))
        if parts[f"{part}_y"].min() < 0:
            raise InputError(f"{labels} holds a negative label; build the arrays of this dataset again")
    if parts["train_x"].shape[1:] != parts["test_x"].shape[1:]:
        raise InputError(f"{folder}: train and test images differ in shape; build the arrays of this dataset again")
    return ImageData(description, **parts)


def load_table(folder: Path) -> TableData:
    """Return the regression table in a dataset's arrays folder.

    Raises InputError naming the file that is missing, malformed, or at odds with description.json.
    """
    description = load_description(folder)
    columns, count = description.get("columns"), description["records"].get("all")
    if not isinstance(columns, list) or not all(isinstance(column, str) for column in columns):
        raise InputError(
            f"{folder / 'description.json'} must name the table's columns; build the arrays of this dataset again"
        )
    x = np.array(_array(folder / "x.npy", np.float64, 2, count))
    y = np.array(_array(folder / "y.npy", np.float64, 1, count))
    if x.shape[1] != len(columns):
        raise InputError(f"{folder / 'x.npy'} has {x.shape[1]} columns, description.json names {len(columns)}")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise InputError(f"{folder}: the table holds a value that is not finite; build its arrays again")
    return TableData(description, tuple(columns), x, y)


def load_description(folder: Path) -> dict[str, Any]:
    """Return the description.json of a dataset's arrays folder. Raises InputError where it is missing or malformed."""
    path = folder / "description.json"
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{path}: no such file; build its arrays first (dpfl data arrays --dataset {folder.name})"
        ) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}; build the arrays of this dataset again") from None
    missing = (
        [key for key in _DESCRIPTION_KEYS if key not in description]
        if isinstance(description, dict)
        else list(_DESCRIPTION_KEYS)
    )
    if missing or not isinstance(description["records"], dict):
        raise InputError(f"{path} must say {', '.join(missing or ['records'])}; build the arrays of this dataset again")
    return description


def _array(path: Path, dtype: type, dimensions: int, records: Any) -> NDArray:
    """Return the memory-mapped array at `path` after checking its kind, its shape and its number of records."""
    try:
        array = np.lib.format.open_memmap(path, mode="r")  # refuses pickled objects
    except FileNotFoundError:
        raise InputError(
            f"{path}: no such file; build its arrays first (dpfl data arrays --dataset {path.parent.name})"
        ) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except _MALFORMED as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{path} is not a complete array: {reason}; build the arrays of this dataset again") from None
    if array.dtype != dtype or array.ndim != dimensions or not array.size or len(array) != records:
        raise InputError(
            f"{path} holds {array.dtype} of shape {array.shape}, expected {np.dtype(dtype)} of {dimensions} dimensions "
            f"with {records} records; build the arrays of this dataset again"
        )
    return array
