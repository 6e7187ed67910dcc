"""Find the papers: folders of papers/ with paper.yaml (what it says), grid.yaml (what runs), errata.yaml and modules.

It also reads the entries of the datasets (data/datasets.yaml), so that the layers below data can know their names.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from dpfl.errors import InputError

PAPERS = Path(__file__).parent / "papers"
DATASETS = Path(__file__).parent / "data" / "datasets.yaml"


@dataclass(frozen=True)
class Paper:
    """A paper's facts, what is run of it at each scale, and its errata."""

    key: str
    title: str
    authors: str
    published: str
    url: str
    settings: dict[str, Any]
    grid: dict[str, list[dict[str, Any]]]
    tables: dict[str, dict[str, Any]]
    figures: dict[str, dict[str, Any]]
    claims: dict[str, dict[str, Any]]
    errata: dict[str, dict[str, Any]]


@cache
def keys() -> tuple[str, ...]:
    """Return the keys of all papers: the folders that have a paper.yaml, in alphabetical order."""
    return tuple(sorted(path.parent.name for path in PAPERS.glob("*/paper.yaml")))


@cache
def load(key: str) -> Paper:
    """Return the paper with this key. Raises InputError for an unknown key."""
    if key not in keys():
        raise InputError(f"no paper {key}; there are {', '.join(keys())}")
    facts, grid, errata = (
        yaml.safe_load((PAPERS / key / name).read_text(encoding="utf-8"))
        for name in ("paper.yaml", "grid.yaml", "errata.yaml")
    )
    return Paper(key=key, grid=grid, errata=errata, **facts)


@cache
def dataset_entries() -> dict[str, dict[str, Any]]:
    """Return the entries of data/datasets.yaml by name (dpfl.data.datasets makes objects of them)."""
    return yaml.safe_load(DATASETS.read_text(encoding="utf-8"))


def module(key: str, name: str) -> ModuleType:
    """Return a paper's module: tables, figures or claims."""
    return import_module(f"dpfl.papers.{key}.{name}")
