"""Decode the verified raw files of a dataset into the arrays that every later stage reads."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dpfl.data import datasets, decoders
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
    decode = getattr(decoders, f"decode_{entry.decoder}", None)
    if decode is None:
        known = ", ".join(name.removeprefix("decode_") for name in vars(decoders) if name.startswith("decode_"))
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
