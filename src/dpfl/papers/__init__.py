"""The five papers, each a folder: paper.yaml (citation, settings, grid, published numbers, claims) and its modules."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from dpfl.errors import InputError

KEYS = ("asoodeh2020", "asoodeh2021", "lowy2021", "vandijk2023", "bhaskar2025")


@dataclass(frozen=True)
class Paper:
    """What a paper's paper.yaml says: facts of the paper, and what is run at each scale."""

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


@cache
def load(key: str) -> Paper:
    """Return the paper with this key; its text lies in <key>/paper.yaml. Raises InputError for an unknown key."""
    if key not in KEYS:
        raise InputError(f"no paper {key}; there are {', '.join(KEYS)}")
    text = (Path(__file__).parent / key / "paper.yaml").read_text(encoding="utf-8")
    return Paper(key=key, **yaml.safe_load(text))


def module(key: str, name: str) -> ModuleType:
    """Return a paper's module: tables, figures or claims."""
    return import_module(f"dpfl.papers.{key}.{name}")
