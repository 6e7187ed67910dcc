"""The datasets as datasets.yaml describes them: an entry each, read once into frozen objects."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self

from dpfl import catalog
from dpfl.errors import InputError


@dataclass(frozen=True)
class Archive:
    """A published archive: its addresses in the order in which they are tried, its size and hash."""

    urls: tuple[str, ...]
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Source:
    """A raw file of a dataset. `bytes` and `sha256` belong to its decompressed content.

    `urls` are tried in their order. Where `archive` is set they are its addresses, and `member` is the file's name in
    it. A file with `variant_of` is accepted in the place of that file; its note must then appear wherever its numbers
    do.
    """

    file: str
    bytes: int
    sha256: str
    urls: tuple[str, ...] = ()
    archive: Archive | None = None
    member: str = ""
    variant_of: str = ""
    note: str = ""

    @classmethod
    def of(cls, file: str, facts: Mapping[str, Any]) -> Self:
        """Return the file that an entry describes."""
        given = facts.get("archive")
        archive = Archive(**given | {"urls": tuple(given["urls"])}) if given else None
        urls = tuple((given or facts).get("urls", ()))
        own = {name: value for name, value in facts.items() if name not in ("archive", "urls")}
        return cls(file, urls=urls, archive=archive, **own)


@dataclass(frozen=True)
class Dataset:
    """An entry of datasets.yaml.

    `decoder` x names the function decode_x of dpfl.data.arrays that makes the arrays; "none" makes a description
    only. Images have a `shape` (channels, height, width) and `classes`, tables `columns`, each with its categories in
    the order of their codes (none: a number), and a `target`. `records` counts those of a part: train and test, or all
    of a table. `stand_in_for` names the dataset whose place it takes; `note` then appears wherever its numbers do.
    `mirror_folder` is the folder of its `files` in a mirror; a dataset without files is not published: a stand-in, or
    drawn.
    """

    name: str
    title: str
    decoder: str
    records: Mapping[str, int]
    licence: str
    licence_url: str = ""
    shape: tuple[int, ...] = ()
    classes: int = 0
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    target: str = ""
    stand_in_for: str | None = None
    note: str = ""
    mirror_folder: str = ""
    files: tuple[Source, ...] = ()

    @classmethod
    def of(cls, name: str, facts: Mapping[str, Any]) -> Self:
        """Return the dataset of an entry; raises InputError for a key or a value that cannot be."""
        catalog.require_valid(f"{catalog.DATASETS.name}: entry {name}", facts, "datasets.yaml")
        own = {
            "files": tuple(Source.of(file, each) for file, each in facts.get("files", {}).items()),
            "shape": tuple(facts.get("shape", ())),
            "columns": {column: tuple(kinds) for column, kinds in facts.get("columns", {}).items()},
        }
        return cls(name, **{**facts, **own})

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of its images. Raises InputError where it has none."""
        if len(self.shape) != 3:
            raise InputError(f"dataset {self.name} has no images, which this needs")
        return self.shape[0], self.shape[1], self.shape[2]

    @property
    def training_records(self) -> int:
        """Number of records to train on, all of a table's; 0 where every run draws its own."""
        return self.records.get("train", self.records.get("all", 0))

    @property
    def test_records(self) -> int:
        """Number of records to test on; a table has none of its own."""
        return self.records.get("test", 0)

    def accepted(self, file: str) -> tuple[Source, ...]:
        """Return what is accepted as `file`: the file itself, then its variants. Raises InputError for another name."""
        found = [each for each in self.files if each.file == file]
        if not found:
            known = ", ".join(each.file for each in self.files) or "none"
            raise InputError(f"no file {file!r} in dataset {self.name!r}; known: {known}")
        return (*found, *(each for each in self.files if each.variant_of == file))

    @property
    def official_files(self) -> tuple[str, ...]:
        """Names of the files that make it up, without variants."""
        return tuple(each.file for each in self.files if not each.variant_of)


def names() -> tuple[str, ...]:
    """Return the names of all datasets, in the file's order."""
    return tuple(catalog.dataset_entries())


@cache  # the plan of a grid asks for each of its jobs, several times
def load(name: str) -> Dataset:
    """Return the dataset of that name. Raises InputError for an unknown one, and for an entry that cannot be used."""
    if name not in names():
        raise InputError(f"no dataset {name!r}; known: {', '.join(names())}")
    return Dataset.of(name, catalog.dataset_entries()[name])


def digest(name: str) -> str:
    """Return a hash of an entry without its addresses; stages of that dataset run again when it changes."""
    entry = {key: value for key, value in catalog.dataset_entries()[load(name).name].items() if key != "licence_url"}
    files = {
        file: {key: value for key, value in facts.items() if key not in ("urls", "archive")}
        for file, facts in entry.get("files", {}).items()
    }
    text = json.dumps({**entry, "files": files})  # in its order, which is that of columns and files
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def modules(name: str) -> tuple[str, ...]:
    """Return the code that makes a dataset's arrays, as source_digest takes it: of the decoders its own alone."""
    return "dpfl.data.arrays:build_arrays", f"dpfl.data.arrays:decode_{load(name).decoder}"


# Shapes of images and of their scattering features, which models, features and the plan's costs share.
GREY, COLOUR = (1, 28, 28), (3, 32, 32)
"""Channels, height and width of the images that the papers' models read."""

CLASSES = 10

SCALES = 2
"""J of the scattering transform: what it gives is subsampled by 2**J."""
ANGLES = 8
"""L of the scattering transform: orientations of its wavelets."""
COEFFICIENTS = 1 + SCALES * ANGLES + ANGLES**2
"""Coefficients of an input channel up to the second order: 81. The count of the second order holds for J = 2."""
SUBSAMPLING = 2**SCALES


def feature_shape(image_shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return channels, height and width of the scattering features of images of that shape."""
    channels, height, width = image_shape
    return COEFFICIENTS * channels, height // SUBSAMPLING, width // SUBSAMPLING
