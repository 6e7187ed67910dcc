"""Decode raw files strictly: refuse whatever is not exactly of the format.

The decoder `x` of an entry in datasets.yaml is the function `decode_x` of the entry and of the paths of its raw files,
if any; it returns the arrays. Editing one makes the data of its own datasets anew alone.
"""

from __future__ import annotations

import csv
import io
import math
import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpfl.data import stand_ins
from dpfl.data.datasets import Dataset
from dpfl.errors import InputError

_CIFAR_SHAPE = (3, 32, 32)
_IDX_UNSIGNED_BYTES = 0x08
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def idx(data: bytes, dimensions: int, name: str) -> NDArray[np.uint8]:
    """Return the array of an IDX file of unsigned bytes: magic 0 0 8 `dimensions`, big-endian sizes, values.

    Raises InputError, naming the file `name`, for another magic number, an empty array or another length.
    """
    header = 4 + 4 * dimensions
    magic = bytes((0, 0, _IDX_UNSIGNED_BYTES, dimensions))
    if data[:4] != magic or len(data) < header:
        raise InputError(f"{name} is not an IDX file of {dimensions} dimensions: it begins with {data[:4].hex(' ')!r}")
    shape = struct.unpack(f">{dimensions}I", data[4:header])
    expected = header + math.prod(shape)
    if len(data) != expected or len(data) == header:
        raise InputError(f"{name} is {len(data)} bytes long; its header, of shape {shape}, promises {expected}")
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


def idx_labels(data: bytes, classes: int, name: str) -> NDArray[np.int64]:
    """Return the labels, below `classes`, of an IDX file of one dimension. Raises InputError as `idx`, or
    for another label."""
    return _labels(idx(data, 1, name), classes, name)


def cifar(data: bytes, classes: int, name: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images (n, 3, 32, 32) and labels (n,), below `classes`, of a CIFAR-10 binary batch.

    A record is one label byte and 3,072 pixels.

    Raises InputError, naming the file `name`, for a length that is not a multiple of a record's, or another label.
    """
    width = 1 + math.prod(_CIFAR_SHAPE)
    if not data or len(data) % width:
        raise InputError(f"{name} is {len(data)} bytes long; CIFAR-10 records take {width} bytes each, at least one")
    records = np.frombuffer(data, np.uint8).reshape(-1, width)
    return records[:, 1:].reshape(-1, *_CIFAR_SHAPE), _labels(records[:, 0], classes, name)


def csv_table(
    data: bytes, columns: Mapping[str, tuple[str, ...]], target: str, name: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return x (n, columns), in their order, and y (n,), the target, of a CSV file in UTF-8; unscaled.

    The header is the columns and the target. A cell of a column with categories becomes the place of its category.
    Raises InputError, naming the file `name`, the row (records count from 1) and the column, for a missing,
    non-numeric or unknown cell; for another header; for a table without records.
    """
    header = (*columns, target)
    try:
        rows = list(csv.reader(io.StringIO(data.decode("utf-8"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{name} is not a CSV file in UTF-8: {error}") from None
    if not rows or tuple(rows[0]) != header:
        found = ",".join(rows[0])[:80] if rows else ""
        raise InputError(f"{name} must begin with the header {','.join(header)}, found {found!r}")
    if len(rows) == 1:
        raise InputError(f"{name} holds no records, only a header")
    kinds = {**columns, target: ()}
    cells = np.array([_cells(row, kinds, f"{name}, row {number}") for number, row in enumerate(rows[1:], 1)])
    return np.ascontiguousarray(cells[:, :-1]), cells[:, -1].copy()


def _labels(raw: NDArray[np.uint8], classes: int, name: str) -> NDArray[np.int64]:
    """Return class labels as int64 after checking each."""
    wrong = np.flatnonzero(raw >= classes)
    if wrong.size:
        raise InputError(f"{name}: record {wrong[0]} has label {raw[wrong[0]]}; labels are 0 to {classes - 1}")
    return raw.astype(np.int64)


def _cells(row: list[str], kinds: Mapping[str, tuple[str, ...]], place: str) -> list[float]:
    """Return the numbers of one row."""
    header = tuple(kinds)
    if len(row) > len(header):
        raise InputError(f"{place}: {len(row)} cells, expected the {len(header)} of {','.join(header)}")
    missing = header[len(row) :]
    if missing:
        raise InputError(f"{place}, column {missing[0]}: the cell is missing")
    return [
        _cell(text, known, f"{place}, column {column}")
        for text, (column, known) in zip(row, kinds.items(), strict=True)
    ]


def _cell(text: str, categories: tuple[str, ...], place: str) -> float:
    """Return one cell as a number: a category's code or the number that it spells."""
    if not text:
        raise InputError(f"{place}: the cell is missing")
    if categories:
        if text not in categories:
            raise InputError(f"{place}: {text[:40]!r} is none of {', '.join(categories)}")
        return float(categories.index(text))
    if not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        raise InputError(f"{place}: {text[:40]!r} is not a finite number")
    return float(text)


def _bytes(path: Path) -> bytes:
    """Return the content of a raw file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def decode_idx(entry: Dataset, paths: Sequence[Path]) -> dict[str, NDArray]:
    """Return the arrays of four IDX files: train images, train labels, test images, test labels."""
    arrays = {}
    shape = entry.image_shape[1:]
    for part, images_path, labels_path in (("train", *paths[:2]), ("test", *paths[2:])):
        images = idx(_bytes(images_path), 3, str(images_path))
        labels = idx_labels(_bytes(labels_path), entry.classes, str(labels_path))
        if images.shape[1:] != shape:
            raise InputError(f"{images_path}: images of {images.shape[1:]} pixels, expected {shape}")
        if len(images) != len(labels):
            raise InputError(f"{images_path} has {len(images)} images, {labels_path} {len(labels)} labels")
        arrays |= {f"{part}_x": images[:, None], f"{part}_y": labels}
    return arrays


def decode_cifar_binary(entry: Dataset, paths: Sequence[Path]) -> dict[str, NDArray]:
    """Return the arrays of binary batches, of which the last is the test set."""
    batches = [cifar(_bytes(path), entry.classes, str(path)) for path in paths]
    train_x, train_y = (np.concatenate(parts) for parts in zip(*batches[:-1], strict=True))
    return {"train_x": train_x, "train_y": train_y, "test_x": batches[-1][0], "test_y": batches[-1][1]}


def decode_csv(entry: Dataset, paths: Sequence[Path]) -> dict[str, NDArray]:
    """Return the arrays of one CSV file."""
    [path] = paths
    x, y = csv_table(_bytes(path), entry.columns, entry.target, str(path))
    return {"x": x, "y": y}


def decode_scikit_learn_digits(entry: Dataset, paths: Sequence[Path]) -> dict[str, NDArray]:
    """Return the arrays of the digits that ship inside scikit-learn."""
    return stand_ins.digits(entry)


def decode_scikit_learn_diabetes(entry: Dataset, paths: Sequence[Path]) -> dict[str, NDArray]:
    """Return the arrays of the diabetes table that ships inside scikit-learn."""
    return stand_ins.diabetes()


def decode_none(entry: Dataset, paths: Sequence[Path]) -> dict[str, NDArray]:
    """Return no arrays: every run draws its own records."""
    return {}
