"""Read a stranger's own records for classification: an .npz file, or a folder with a subfolder of images a class.

Nothing is fetched and nothing is listed here: the hash of what was read is what names the data.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from dpfl.errors import InputError, printable
from dpfl.files import file_sha256
from dpfl.randomness import generator

TRAIN_SHARE = 0.8
"""Part of the records that trains, rounded down, where the data name no test records."""
_WHOLE, _PARTS = ("x", "y"), ("train_x", "train_y", "test_x", "test_y")
_DAMAGED = (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError)
_MODES = ("L", "RGB")
"""Modes of Pillow that are read: grey and colour, a byte a channel."""
_OF_WINDOWS = ("thumbs.db", "desktop.ini")
"""Files that Windows hides in folders of images, in lower case."""


@dataclass(frozen=True)
class OwnData:
    """Records for classification: inputs float32 (n, ...), labels int64 (n,), from 0 to `classes` - 1.

    `name` is that of the file or folder in printable characters. `sha256` is the hash of its content: of a folder, of
    the paths and hashes of its images in their order. Anyone who knows all records but one finds that one by the hash:
    it is not to be published.
    `held_back`: True where the test records are a part of those that were given to train on.
    """

    name: str
    sha256: str
    classes: int
    train_x: NDArray[np.float32]
    train_y: NDArray[np.int64]
    test_x: NDArray[np.float32]
    test_y: NDArray[np.int64]
    held_back: bool


def read(path: Path) -> OwnData:
    """Return the records of an .npz file or of a folder of images.

    The file holds plain arrays: x and y, or train_x, train_y, test_x and test_y. The folder has a subfolder a class, in
    the order of their names, or two, train and test, that have those; hidden files, and those that Windows leaves, are
    passed over. Without test records a fixed permutation, address (0, "split"), holds back a fifth. Bytes (uint8) are
    divided by 255; other numbers stay as they are.

    Raises InputError, one line, for a path or content that is none of these: objects instead of arrays, labels that are
    no whole numbers from 0, numbers that single precision cannot hold, shapes that do not fit, a file that is no image.
    """
    if not path.exists():
        raise InputError(f"{path} is not there: name an .npz file or a folder with a subfolder of images a class")
    sha256, arrays = _images(path) if path.is_dir() else (file_sha256(path), _npz(path))
    if set(arrays) == set(_WHOLE):
        x, y = _checked(path, arrays, *_WHOLE)
        order = generator(0, "split").permutation(len(y))
        train, test = np.split(order, [int(TRAIN_SHARE * len(y))])
        if not len(train):
            raise InputError(f"{path} has one record: two or more are needed, to train and to test on")
        parts = x[train], y[train], x[test], y[test]
    else:
        parts = *_checked(path, arrays, *_PARTS[:2]), *_checked(path, arrays, *_PARTS[2:])
        if parts[0].shape[1:] != parts[2].shape[1:]:
            raise InputError(
                f"{path}: training records have shape {parts[0].shape[1:]}, test records {parts[2].shape[1:]}"
            )
    classes = 1 + max(int(parts[1].max()), int(parts[3].max()))
    return OwnData(printable(path.resolve().name), sha256, classes, *parts, held_back=set(arrays) == set(_WHOLE))


def _npz(path: Path) -> dict[str, NDArray]:
    """Return the arrays of a file, by name."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            names = set(archive)
            if names not in (set(_WHOLE), set(_PARTS)):
                found = ", ".join(sorted(names)) or "nothing"
                raise InputError(f"{path} holds {found}; it must hold {', '.join(_WHOLE)} or {', '.join(_PARTS)}")
            arrays = {name: archive[name] for name in names}
            if not all(
                isinstance(array, np.ndarray) for array in arrays.values()
            ):  # numpy gives other content as bytes
                raise ValueError("a member is not an array")
            return arrays
    except InputError:
        raise
    except (*_DAMAGED, AttributeError, TypeError) as error:  # the last two: a single array, which has no names
        if path.suffix != ".npz":
            raise InputError(
                f"{path} is no .npz file of plain arrays; numpy.savez('my.npz', x=x, y=y) writes one"
            ) from None
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{path} is no .npz file of plain arrays (numpy.savez): {reason}") from None


def _checked(path: Path, arrays: dict[str, NDArray], x: str, y: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return inputs and labels of one part, ready for training."""
    inputs, labels = arrays[x], arrays[y]
    if labels.dtype.kind not in "iu" or labels.ndim != 1:
        raise InputError(f"{path}: {y} is {labels.dtype} {labels.shape}; labels must be whole numbers, one a record")
    if inputs.dtype.kind not in "buif" or inputs.ndim < 2:
        raise InputError(f"{path}: {x} is {inputs.dtype} {inputs.shape}; it must be numbers, (records, ...)")
    if len(inputs) != len(labels) or not inputs.size:
        raise InputError(f"{path}: {x} has {len(inputs)} records of shape {inputs.shape[1:]}, {y} {len(labels)} labels")
    if labels.min() < 0 or labels.max() >= 2**31:
        wrong = labels.min() if labels.min() < 0 else labels.max()
        raise InputError(f"{path}: {y} has the label {wrong}; labels must be from 0 to the number of classes less 1")
    with np.errstate(over="ignore"):
        values = inputs.astype(np.float32)
    if inputs.dtype == np.uint8:
        values /= np.float32(255)
    bad = ~np.isfinite(values).reshape(len(values), -1).all(1)
    if bad.any():
        raise InputError(f"{path}: record {np.flatnonzero(bad)[0]} of {x} has a value that is not a finite number")
    return values, labels.astype(np.int64)


def _images(folder: Path) -> tuple[str, dict[str, NDArray]]:
    """Return the hash and the arrays of a folder of images."""
    given = [each.name for each in _shown(folder)]
    parts = {"train_": folder / "train", "test_": folder / "test"} if given == ["test", "train"] else {"": folder}
    classes = [each.name for each in _shown(next(iter(parts.values())))]
    if len(classes) < 2:
        raise InputError(f"{folder} has {len(classes)} classes: it needs two subfolders or more, a class each")
    digest, arrays, shape = hashlib.sha256(), {}, None
    for prefix, part in parts.items():
        images, labels = [], []
        for place in _shown(part):
            if not place.is_dir() or place.name not in classes:
                raise InputError(f"{place} is not a folder of a class; there are {', '.join(classes[:10])}")
            for file in _shown(place):
                content, image = _image(file)
                shape = shape or image.shape
                if image.shape != shape:
                    raise InputError(f"{file} has channels, height and width {image.shape}, others {shape}")
                digest.update(
                    os.fsencode(file.relative_to(folder)) + f"\0{hashlib.sha256(content).hexdigest()}\n".encode()
                )
                images.append(image)
                labels.append(classes.index(place.name))
        if not images:
            raise InputError(f"{part} has no images")
        arrays |= {f"{prefix}x": np.stack(images), f"{prefix}y": np.array(labels, dtype=np.int64)}
    return digest.hexdigest(), arrays


def _shown(folder: Path) -> list[Path]:
    """Return what a folder holds, in the order of names, without hidden files."""
    shown = (each for each in folder.iterdir() if not each.name.startswith("."))
    return sorted(each for each in shown if each.name.lower() not in _OF_WINDOWS)


def _image(file: Path) -> tuple[bytes, NDArray[np.uint8]]:
    """Return the content of a file, and its image (channels, height, width)."""
    try:
        content = file.read_bytes()
        with Image.open(io.BytesIO(content)) as image:
            if image.mode not in _MODES:
                raise InputError(f"{file} is an image of mode {image.mode}; convert it to {' or '.join(_MODES)}")
            pixels = np.asarray(image)
    except InputError:
        raise
    except UnidentifiedImageError:  # its text shows an address in memory
        raise InputError(f"{file} is not an image that can be read: take it out of the folder of its class") from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{file} is not an image that can be read: {reason}") from None
    return content, pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))
