"""Arrays: the verified raw files of a dataset, decoded into the shapes that every later stage reads."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dpfl.data import decoders
from dpfl.data.datasets import NAME, Source, accepted, official_files
from dpfl.errors import InputError
from dpfl.files import clear_unfinished, unfinished

_TITLES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10", "insurance": "Medical insurance"}
_IDX_SHAPE = (28, 28)


def build_arrays(dataset: str, raw_folder: Path, out_folder: Path) -> Path:
    """Decode the files of `dataset` in its own `raw_folder` into its own `out_folder`; return `out_folder`.

    Images: train_x, test_x uint8 (n, channels, height, width), train_y, test_y int64. Tables: x float64 (n, d), y (n,).
    description.json says what the data are; the note of a variant that was used is in it. An accepted variant of a
    file is read only where the file itself is not there. The folder appears whole or not at all.

    Raises InputError for an unknown dataset, a missing or malformed file, or a folder that cannot be written.
    """
    raw = {file: _raw(dataset, file, Path(raw_folder)) for file in official_files(dataset)}
    if dataset == "insurance":
        [(_, path)] = raw.values()
        arrays = dict(zip("xy", decoders.insurance(_bytes(path), str(path)), strict=True))
    elif dataset == "cifar10":
        arrays = _cifar([path for _, path in raw.values()])
    else:
        arrays = _idx([path for _, path in raw.values()])
    sources = [source for source, _ in raw.values()]
    notes = [source.note for source in sources if source.variant_of]
    columns = decoders.INSURANCE_COLUMNS if dataset == "insurance" else ()
    description = describe(dataset, _TITLES[dataset], None, " ".join(notes), sources[0].licence, arrays, columns)
    write_dataset(Path(out_folder), arrays, description)
    return Path(out_folder)


def describe(
    name: str,
    title: str,
    stand_in_for: str | None,
    note: str,
    licence: str,
    arrays: Mapping[str, NDArray],
    columns: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return the content of description.json for `arrays`; `columns` are a table's, and images have none."""
    records = {"all": len(arrays["y"])} if columns else {part: len(arrays[f"{part}_y"]) for part in ("train", "test")}
    description = {"name": name, "title": title, "stand_in_for": stand_in_for, "note": note, "licence": licence}
    return description | {"records": records} | ({"columns": list(columns)} if columns else {})


def write_dataset(folder: Path, arrays: Mapping[str, NDArray], description: Mapping[str, Any]) -> None:
    """Write `arrays` and, last, description.json to `folder`, which is replaced whole or left as it was.

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


def _raw(dataset: str, file: str, folder: Path) -> tuple[Source, Path]:
    """Return the source and path of `file` or of the variant that stands in its place."""
    for source in accepted(dataset, file):
        if (folder / source.file).is_file():
            return source, folder / source.file
    raise InputError(f"{folder / file}: no such file; fetch {dataset} first (dpfl data)")


def _bytes(path: Path) -> bytes:
    """Return the content of a raw file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def _idx(paths: list[Path]) -> dict[str, NDArray]:
    """Return the arrays of the four IDX files: train images, train labels, test images, test labels."""
    arrays = {}
    for part, images_path, labels_path in (("train", *paths[:2]), ("test", *paths[2:])):
        images = decoders.idx(_bytes(images_path), 3, str(images_path))
        labels = decoders.idx_labels(_bytes(labels_path), str(labels_path))
        if images.shape[1:] != _IDX_SHAPE:
            raise InputError(f"{images_path}: images of {images.shape[1:]} pixels, expected {_IDX_SHAPE}")
        if len(images) != len(labels):
            raise InputError(f"{images_path} holds {len(images)} images, {labels_path} {len(labels)} labels")
        arrays |= {f"{part}_x": images[:, None], f"{part}_y": labels}
    return arrays


def _cifar(paths: list[Path]) -> dict[str, NDArray]:
    """Return the arrays of the binary batches, of which the last is the test set."""
    batches = [decoders.cifar(_bytes(path), str(path)) for path in paths]
    train_x, train_y = (np.concatenate(parts) for parts in zip(*batches[:-1], strict=True))
    return {"train_x": train_x, "train_y": train_y, "test_x": batches[-1][0], "test_y": batches[-1][1]}


def _flush(stream: IO) -> None:
    """Bring what was written to the disk, so that the rename after it cannot arrive first."""
    stream.flush()
    os.fsync(stream.fileno())


def build_synthetic(out_folder: Path) -> Path:
    """Write description.json of the synthetic problems (dpfl.models.synthetic_problems) to `out_folder`; return it.

    Raises InputError where it cannot be written.
    """
    description = {
        "name": NAME,
        "title": "Synthetic convex problems with known optimum",
        "stand_in_for": None,
        "note": "",
        "licence": "none needed: drawn by this package",
        "records": {},
    }
    write_dataset(Path(out_folder), {}, description)
    return Path(out_folder)
