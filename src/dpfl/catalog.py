"""Find the papers: folders of papers/ with paper.yaml (what it says), claims, grid (what runs), errata and modules.

It also reads the entries of the datasets (data/datasets.yaml), so that the layers below data can know their names.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from dpfl.errors import InputError

PAPERS = Path(__file__).parent / "papers"
DATASETS = Path(__file__).parent / "data" / "datasets.yaml"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's loader where PyYAML was built with it: ten times as fast, and every stage reads these files."""
_PARTS = {"tables": {"title", "caption"}, "figures": {"title", "caption"}}
"""Parts of paper.yaml, with the keys that each of their entries needs."""
_CLAIM = {"text", "scope", "kind", "because", "settled_by", "places"}
_CLAIM_OPTIONS = {"margin", "unit", "of", "pending", "runs", "asked_here"}
"""Keys of an entry of claims.yaml: what it says, its rule (dpfl.reporting.rules) and why this one, what settles it, and
the tables and figures where that stands; if needed the margin, a unit, the claim it is a part of, why nothing decides
it yet, the runs that decide it: for settings of sweeps, study and experiment among them, the values that count; and
whether it is a question of ours, which the paper does not answer and no tally counts."""
_OPTIONAL = {"inferred", "deviations"}
"""Parts of paper.yaml that may be absent."""


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
    inferred: dict[str, str] = field(default_factory=dict)
    """Why a setting has its value where the paper does not state it; "*" speaks for all that are not named."""
    deviations: list[str] = field(default_factory=list)
    """Where the runs differ from the paper on purpose, a sentence each."""


@cache
def keys() -> tuple[str, ...]:
    """Return the keys of all papers: the folders that have a paper.yaml, in alphabetical order."""
    return tuple(sorted(path.parent.name for path in PAPERS.glob("*/paper.yaml")))


@cache
def load(key: str) -> Paper:
    """Return the paper with this key. A folder without claims.yaml, grid.yaml or errata.yaml has none of them.

    Raises InputError, one line that names the file, for an unknown key, a file that is not YAML, and for what
    paper.yaml or claims.yaml lacks or has too much.
    """
    if key not in keys():
        raise InputError(f"no paper {key}; there are {', '.join(keys())}")
    facts = _mapping(key, "paper.yaml")
    others = {name: _mapping(key, f"{name}.yaml") for name in ("claims", "grid", "errata")}
    known = {each.name for each in fields(Paper)} - {"key", *others}
    _require_keys(f"{key}/paper.yaml", facts, known - _OPTIONAL, known)
    if astray := sorted(set(facts.get("inferred", {})) - {"*", *facts["settings"]}):
        raise InputError(f"{key}/paper.yaml: inferred.{astray[0]} is no key of settings")
    for part, needed in _PARTS.items():
        if not isinstance(facts[part], dict):
            raise InputError(f"{key}/paper.yaml: {part} must be keys and values, {{}} where there are none")
        for name, entry in facts[part].items():
            _require_keys(f"{key}/paper.yaml, {part}.{name}", entry, needed, None)
    for name, entry in others["claims"].items():
        _require_keys(f"{key}/claims.yaml, {name}", entry, _CLAIM, _CLAIM | _CLAIM_OPTIONS)
    return Paper(key=key, **others, **facts)


def _mapping(key: str, name: str) -> dict[str, Any]:
    """Return the content of a paper's YAML file, empty where the file is missing or empty."""
    path = PAPERS / key / name
    if not path.exists():
        return {}
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _LOADER)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{key}/{name} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict | None):
        raise InputError(f"{key}/{name} must have keys and values, found {type(content).__name__}")
    return content or {}


def _require_keys(place: str, given: Any, needed: set[str], known: set[str] | None) -> None:
    """Raise InputError naming `place` where `given` is no mapping, lacks a key or has one that is not `known`.

    None as `known` leaves further keys to the paper's own modules.
    """
    if not isinstance(given, dict):
        raise InputError(f"{place} must have keys and values, found {given!r}")
    if missing := sorted(needed - set(given)):
        raise InputError(f"{place} lacks {', '.join(missing)}; it needs {', '.join(sorted(needed))}")
    if known is not None and (unknown := sorted(set(map(str, given)) - known)):
        raise InputError(f"{place} has an unknown key {unknown[0]}; its keys are {', '.join(sorted(known))}")


@cache
def dataset_entries() -> dict[str, dict[str, Any]]:
    """Return the entries of data/datasets.yaml by name (dpfl.data.datasets makes objects of them)."""
    return yaml.load(DATASETS.read_text(encoding="utf-8"), _LOADER)


def module(key: str, name: str) -> ModuleType:
    """Return a paper's module: tables, figures, claims or errata. Raises InputError where the folder has none."""
    if not (PAPERS / key / f"{name}.py").exists():
        raise InputError(f"papers/{key} has no {name}.py; add one (CONTRIBUTING.md, Add a paper)")
    return import_module(f"dpfl.papers.{key}.{name}")


def recipe(key: str, kind: str, name: str) -> Any:
    """Return the recipe of a paper's table or figure; `kind` is "tables" or "figures".

    Raises InputError where paper.yaml names one that TABLES or FIGURES does not have.
    """
    recipes = getattr(module(key, kind), kind.upper())
    if name not in recipes:
        known = ", ".join(recipes) or "none"
        raise InputError(f"{key}/paper.yaml: {kind}.{name} is not in {kind.upper()} of {kind}.py, which has {known}")
    return recipes[name]
