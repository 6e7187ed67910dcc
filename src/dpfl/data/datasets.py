"""The table of sources: each file of each dataset, its hash, its addresses and its licence."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dpfl.errors import InputError

DATASETS = {
    "mnist": (60_000, 10_000),
    "fashion_mnist": (60_000, 10_000),
    "cifar10": (50_000, 10_000),
    "insurance": (1338, 0),
    "digits": (1437, 360),
    "digits_rgb": (1437, 360),
    "diabetes": (442, 0),
}
"""Records that train and test."""

COLOUR_DATASETS = ("cifar10", "digits_rgb")


def image_shape(dataset: str) -> tuple[int, int]:
    """Return channels and side of a dataset's images."""
    return (3, 32) if dataset in COLOUR_DATASETS else (1, 28)


TABLE = Path(__file__).with_name("sources.csv")


@dataclass(frozen=True)
class Source:
    """One row of sources.csv. `bytes` and `sha256` are those of the file's decompressed content.

    `urls` are tried in their order. Where `member` is set they name an archive (of `archive_bytes` and
    `archive_sha256`) that holds the file under that name. A file with `variant_of` is accepted in the place of
    that file; its note must then appear wherever its numbers do.
    """

    dataset: str
    file: str
    bytes: int
    sha256: str
    urls: tuple[str, ...]
    member: str
    archive_bytes: int
    archive_sha256: str
    variant_of: str
    mirror_folder: str
    licence: str
    note: str


def sources(dataset: str) -> tuple[Source, ...]:
    """Return the rows of `dataset` in the table's order. Raises InputError for an unknown dataset."""
    rows = _table()
    found = tuple(row for row in rows if row.dataset == dataset)
    if not found:
        known = ", ".join(dict.fromkeys(row.dataset for row in rows))
        raise InputError(f"no dataset {dataset!r} in the table of sources; known: {known}")
    return found


def is_published(dataset: str) -> bool:
    """Return whether the table has files of `dataset`; a stand-in has none."""
    return any(row.dataset == dataset for row in _table())


def official_files(dataset: str) -> tuple[str, ...]:
    """Return the names of the files that make up `dataset`, without variants. Raises InputError as `sources`."""
    return tuple(source.file for source in sources(dataset) if not source.variant_of)


def accepted(dataset: str, file: str) -> tuple[Source, ...]:
    """Return what is accepted as `file`: the file itself, then its variants. Raises InputError for unknown names."""
    rows = sources(dataset)
    found = [row for row in rows if row.file == file] + [row for row in rows if row.variant_of == file]
    if not found:
        raise InputError(f"no file {file!r} in dataset {dataset!r}; known: {', '.join(row.file for row in rows)}")
    return tuple(found)


@cache
def _table() -> tuple[Source, ...]:
    """Return every row of the table."""
    with TABLE.open(encoding="utf-8", newline="") as stream:
        return tuple(_source(row) for row in csv.DictReader(stream))


def _source(row: dict[str, str]) -> Source:
    """Return a row of the table with its numbers and addresses read."""
    numbers = {name: int(row[name] or 0) for name in ("bytes", "archive_bytes")}
    return Source(**{**row, **numbers, "urls": tuple(row["urls"].split())})


NAME = "synthetic"
"""The key of the dataset that these problems go by."""

SCALES = 2  # J: the result is subsampled by 2**J
ANGLES = 8  # L
COEFFICIENTS = 1 + SCALES * ANGLES + ANGLES**2  # 81 per input channel, for J = 2
SUBSAMPLING = 2**SCALES

CLASSES = 10
GREY, COLOUR = (1, 28, 28), (3, 32, 32)
