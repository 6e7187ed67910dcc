"""Decode the verified raw files of a dataset into the arrays that every later stage reads, or make a stand-in's.

Raw files are decoded strictly: whatever is not exactly of the format is refused. The decoder `x` of an entry in
datasets.yaml is the function `decode_x` of the entry and of the paths of its raw files, if any; it returns the arrays.
Editing one makes the data of its own datasets anew alone. Stand-ins are small data inside scikit-learn, for runs
without a download.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import shutil
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes, load_digits

from dpfl.data import datasets
from dpfl.errors import InputError
from dpfl.files import clear_unfinished, unfinished
from dpfl.randomness import generator

if TYPE_CHECKING:
    from dpfl.data.datasets import Dataset, Source

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
            raise InputError(f"{place}: {text[:40]!r} is not one of {', '.join(categories)}")
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
    return digits(entry)


def decode_scikit_learn_diabetes(entry: Dataset, paths: Sequence[Path]) -> dict[str, NDArray]:
    """Return the arrays of the diabetes table that ships inside scikit-learn."""
    return diabetes()


def decode_none(entry: Dataset, paths: Sequence[Path]) -> dict[str, NDArray]:
    """Return no arrays: every run draws its own records."""
    return {}


def build_arrays(dataset: str, out_folder: Path, raw_folder: Path | None = None) -> Path:
    """Write the arrays of `dataset` to its own `out_folder`; return `out_folder`.

    Images: train_x, test_x uint8 (n, channels, height, width), train_y, test_y int64. Tables: x float64 (n, d), y (n,).
    description.json describes the data, with the notes of the variants that were used. The files of a
    published dataset are read from its own `raw_folder`, an accepted variant only where the file itself is not there.
    The folder is complete or not written at all.

    Raises InputError for an unknown dataset, a missing or malformed file, or a folder that cannot be written.
    """
    entry = datasets.load(dataset)
    decode = globals().get(f"decode_{entry.decoder}")
    if decode is None:
        known = ", ".join(name.removeprefix("decode_") for name in globals() if name.startswith("decode_"))
        raise InputError(f"dataset {dataset}: no decoder {entry.decoder!r}; known: {known}")
    files = [_raw(entry, file, raw_folder) for file in entry.official_files]
    arrays = decode(entry, [path for _, path in files])
    notes = [note for note in (entry.note, *(source.note for source, _ in files)) if note]
    write_dataset(Path(out_folder), arrays, _description(entry, " ".join(notes), arrays))
    return Path(out_folder)


def _description(entry: Dataset, note: str, arrays: Mapping[str, NDArray]) -> dict[str, Any]:
    """Return the content of description.json for `arrays`."""
    parts = {"train": "train_y", "test": "test_y", "all": "y"}
    description = {"name": entry.name, "title": entry.title, "stand_in_for": entry.stand_in_for, "note": note}
    description |= {"licence": entry.licence}
    description |= {"records": {part: len(arrays[name]) for part, name in parts.items() if name in arrays}}
    return description | ({"columns": list(entry.columns)} if entry.columns else {})


def write_dataset(folder: Path, arrays: Mapping[str, NDArray], description: Mapping[str, Any]) -> None:
    """Write `arrays` and, last, description.json to `folder`, which is replaced or left as it was.

    Raises InputError where it cannot be written.
    """
    former = folder.with_name(f"{folder.name}.previous")
    temporary, previous = unfinished(folder), unfinished(former)
    try:
        clear_unfinished(folder)
        clear_unfinished(former)
        temporary.mkdir(parents=True)
        for name, array in arrays.items():
            with (temporary / f"{name}.npy").open("wb") as stream:
                np.save(stream, np.ascontiguousarray(array), allow_pickle=False)
                _flush(stream)
        with (temporary / "description.json").open("w", encoding="utf-8", newline="\n") as stream:
            stream.write(json.dumps(description, indent=2, ensure_ascii=False) + "\n")
            _flush(stream)
        if folder.exists():
            os.replace(folder, previous)
        os.replace(temporary, folder)
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror or error}") from None
    finally:
        if previous.exists() and not folder.exists():
            os.replace(previous, folder)
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(previous, ignore_errors=True)


def _raw(entry: Dataset, file: str, folder: Path | None) -> tuple[Source, Path]:
    """Return the source and path of `file` or of the variant that takes its place."""
    folder = Path(folder or "")
    for source in entry.accepted(file):
        if (folder / source.file).is_file():
            return source, folder / source.file
    raise InputError(f"{folder / file}: no such file; fetch {entry.name} first (dpfl data)")


def _flush(stream: IO) -> None:
    """Bring what was written to the disk, so that the rename after it cannot arrive first."""
    stream.flush()
    os.fsync(stream.fileno())


_BRIGHTEST = 16.0  # of the 8x8 digits
_TRAIN_SHARE = 0.8
_COLOUR_STEP = 1  # the split is drawn at step 0 of the same address
_DARK, _BRIGHT = (0, 96), (160, 256)


def digits(entry: Dataset) -> dict[str, NDArray]:
    """Return the 1,797 8x8 digits of scikit-learn as uint8 images of the entry's shape, `upsampled`.

    Images of three channels are `coloured`. The records are permuted by generator(0, "split"); the first 80 % train,
    the others test: train_x, train_y, test_x, test_y.
    """
    images, labels = (np.asarray(part) for part in load_digits(return_X_y=True))
    channels, size, _ = entry.image_shape
    shapes = upsampled(images.reshape(-1, 8, 8) / _BRIGHTEST, size)
    pixels = coloured(shapes) if channels == 3 else np.rint(255.0 * shapes[:, None]).astype(np.uint8)
    return _split(pixels, labels)


def diabetes() -> dict[str, NDArray]:
    """Return scikit-learn's diabetes table: x (442, 10) with mean 0 and deviation 1 in every column, y (442,)."""
    x, y = (np.asarray(part, dtype=np.float64) for part in load_diabetes(scaled=False, return_X_y=True))
    return {"x": (x - x.mean(axis=0)) / x.std(axis=0), "y": y}


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
