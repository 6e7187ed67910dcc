"""Decode the verified raw files of a dataset into the arrays that every later stage reads."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dpfl.data import datasets, decoders, stand_ins
from dpfl.data.datasets import Dataset, Source
from dpfl.errors import InputError
from dpfl.files import clear_unfinished, unfinished


def build_arrays(dataset: str, out_folder: Path, raw_folder: Path | None = None) -> Path:
    """Write the arrays of `dataset` to its own `out_folder`; return `out_folder`.

    Images: train_x, test_x uint8 (n, channels, height, width), train_y, test_y int64. Tables: x float64 (n, d), y (n,).
    description.json describes the data, with the notes of the variants that were used. The files of a
    published dataset are read from its own `raw_folder`, an accepted variant only where the file itself is not there.
    The folder is complete or not written at all.

    Raises InputError for an unknown dataset, a missing or malformed file, or a folder that cannot be written.
    """
    entry = datasets.load(dataset)
    decode = _DECODERS.get(entry.decoder)
    if decode is None:
        raise InputError(f"dataset {dataset}: no decoder {entry.decoder!r}; known: {', '.join(_DECODERS)}")
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


def _bytes(path: Path) -> bytes:
    """Return the content of a raw file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def _idx(entry: Dataset, paths: Sequence[Path]) -> dict[str, NDArray]:
    """Return the arrays of four IDX files: train images, train labels, test images, test labels."""
    arrays = {}
    shape = entry.image_shape[1:]
    for part, images_path, labels_path in (("train", *paths[:2]), ("test", *paths[2:])):
        images = decoders.idx(_bytes(images_path), 3, str(images_path))
        labels = decoders.idx_labels(_bytes(labels_path), entry.classes, str(labels_path))
        if images.shape[1:] != shape:
            raise InputError(f"{images_path}: images of {images.shape[1:]} pixels, expected {shape}")
        if len(images) != len(labels):
            raise InputError(f"{images_path} has {len(images)} images, {labels_path} {len(labels)} labels")
        arrays |= {f"{part}_x": images[:, None], f"{part}_y": labels}
    return arrays


def _cifar(entry: Dataset, paths: Sequence[Path]) -> dict[str, NDArray]:
    """Return the arrays of binary batches, of which the last is the test set."""
    batches = [decoders.cifar(_bytes(path), entry.classes, str(path)) for path in paths]
    train_x, train_y = (np.concatenate(parts) for parts in zip(*batches[:-1], strict=True))
    return {"train_x": train_x, "train_y": train_y, "test_x": batches[-1][0], "test_y": batches[-1][1]}


def _csv(entry: Dataset, paths: Sequence[Path]) -> dict[str, NDArray]:
    """Return the arrays of one CSV file."""
    [path] = paths
    x, y = decoders.csv_table(_bytes(path), entry.columns, entry.target, str(path))
    return {"x": x, "y": y}


_DECODERS: dict[str, Callable[[Dataset, Sequence[Path]], dict[str, NDArray]]] = {
    "idx": _idx,
    "cifar_binary": _cifar,
    "csv": _csv,
    "scikit_learn_digits": lambda entry, _: stand_ins.digits(entry),
    "scikit_learn_diabetes": lambda entry, _: stand_ins.diabetes(),
    "none": lambda entry, _: {},
}
"""Functions of an entry and the paths of its raw files, if any, that return its arrays, by decoder name."""


def _flush(stream: IO) -> None:
    """Bring what was written to the disk, so that the rename after it cannot arrive first."""
    stream.flush()
    os.fsync(stream.fileno())
