"""Find the papers: folders of papers/ with paper.yaml (what it says), claims, grid (what runs), errata and modules.

It also reads the entries of the datasets (data/datasets.yaml), so that the layers below data can know their names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml
from yaml.constructor import ConstructorError, SafeConstructor

from dpfl.errors import InputError, schema_fault

PAPERS = Path(__file__).parent / "papers"
DATASETS = Path(__file__).parent / "data" / "datasets.yaml"
_SCHEMA = Path(__file__).parent / "schemas" / "paper.schema.yaml"


class UniqueKeys(SafeConstructor):
    """Part of a YAML loader: no mapping has a key twice, however it is written (1.2 and 1.20)."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        """Refuse a key that occurs twice: the second would silently win."""
        own = [key for key, _ in node.value if not key.tag.endswith(":merge")]
        keys = [self.construct_object(key, deep=True) for key in own]
        for index, key in enumerate(keys):
            if key in keys[:index]:
                raise ConstructorError(None, None, f"key {key!r} occurs twice", own[index].start_mark)
        return super().construct_mapping(node, deep)


EXPONENT_ALONE = ("tag:yaml.org,2002:float", re.compile(r"[-+]?\d+[eE][-+]?\d+$"), list("-+0123456789"))
"""The numbers that a loader resolves besides PyYAML's: 1e-5 is 0.00001, as YAML 1.2 has it, not a text."""

_SAFE_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _PaperLoader(UniqueKeys, _SAFE_LOADER):
    """Safe loader, by libyaml if there is one: every stage reads these files, and it is ten times as fast."""


_PaperLoader.add_implicit_resolver(*EXPONENT_ALONE)


@dataclass(frozen=True)
class Paper:
    """A paper's facts, what is run of it at each scale, and its errata."""

    key: str
    title: str
    authors: str
    published: str
    url: str
    settings: dict[str, Any]
    grid: dict[str, Any]
    """The entries of each scale; `base` completes them, `lists` has the values that they name."""
    tables: dict[str, dict[str, Any]]
    figures: dict[str, dict[str, Any]]
    claims: dict[str, dict[str, Any]]
    errata: dict[str, dict[str, Any]]
    inferred: dict[str, str] = field(default_factory=dict)
    """Why a setting has its value where the paper does not state it; "*" speaks for all that are not named."""
    deviations: list[str] = field(default_factory=list)
    """Where the runs differ from the paper on purpose, a sentence each."""
    notation: dict[str, str] = field(default_factory=dict)
    """Symbols of the paper that its claims use, with what they mean."""
    findings: list[dict[str, Any]] = field(default_factory=list)
    """Lead findings of the report's first screen: a sentence, a figure, a claim or a table,
    and maybe claims `beside` it that qualify it."""


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
    _require_module(key, "claims")
    facts = _mapping(key, "paper.yaml")
    others = {name: _mapping(key, f"{name}.yaml") for name in ("claims", "grid", "errata")}
    for name, content in {"paper": facts, **others}.items():
        require_valid(f"{key}/{name}.yaml", content, f"{name}.yaml")
    if astray := sorted(set(facts.get("inferred", {})) - {"*", *facts["settings"]}):
        raise InputError(f"{key}/paper.yaml: inferred.{astray[0]} is not a key of settings")
    known = {"claim": others["claims"], "table": facts["tables"], "figure": facts["figures"]}
    named = [(part, each[part]) for each in facts.get("findings", []) for part in known if part in each]
    named += [("claim", name) for each in facts.get("findings", []) for name in each.get("beside", [])]
    named += [("figure", claim["figure"]) for claim in others["claims"].values() if "figure" in claim]
    if missing := [f"{part} {name}" for part, name in named if name not in known[part]]:
        raise InputError(f"{key}: findings or claims.yaml name a {missing[0]} that the paper does not have")
    return Paper(key=key, **others, **facts)


def _mapping(key: str, name: str) -> dict[str, Any]:
    """Return the content of a paper's YAML file, empty where the file is missing or empty."""
    path = PAPERS / key / name
    return _content(path, f"{key}/{name}") if path.exists() else {}


def _content(path: Path, name: str) -> dict[str, Any]:
    """Return the content of a YAML file, empty where the file is; raises InputError by its `name`."""
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _PaperLoader)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: bytes that are no text, a date that cannot be
        raise InputError(f"{name} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict | None):
        raise InputError(f"{name} must have keys and values, found {type(content).__name__}")
    return content or {}


@cache
def validator() -> type:
    """Return the class of validators of JSON schemas, for which 1.0 is not an integer: as a seed it differs from 1."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    integers = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
    return extend(Draft202012Validator, type_checker=integers)


@cache
def _rules() -> dict[str, Any]:
    return _content(_SCHEMA, _SCHEMA.name)


def require_valid(place: str, content: Mapping[str, Any], part: str) -> None:
    """Raise InputError naming `place` where content is not what the schema says of `part`.

    `part` is the name of a paper's file, or datasets.yaml for one entry of it.
    """
    rules = {**_rules()["properties"][part], "$defs": _rules()["$defs"]}
    if fault := next(validator()(rules).iter_errors(content), None):
        raise InputError(f"{place}: {schema_fault(fault)}")
    _require_sortable_keys(place, content)


def _require_sortable_keys(place: str, content: object, where: str = "") -> None:
    """Raise InputError naming `place` where a mapping has texts and numbers as keys: digests sort them."""
    if isinstance(content, Mapping):
        kinds = {isinstance(key, str): key for key in content}
        if len(kinds) > 1:
            raise InputError(
                f"{place}: {where or 'its top'} has keys of two kinds, {kinds[False]!r} and {kinds[True]!r}: put all "
                "in quotation marks, or none"
            )
        for key, value in content.items():
            _require_sortable_keys(place, value, f"{where}.{key}".lstrip("."))
    elif isinstance(content, list):
        for number, value in enumerate(content):
            _require_sortable_keys(place, value, f"{where}.{number}".lstrip("."))


@cache
def dataset_entries() -> dict[str, dict[str, Any]]:
    """Return the entries of data/datasets.yaml by name (dpfl.data.datasets makes objects of them)."""
    return _content(DATASETS, DATASETS.name)


def module(key: str, name: str) -> ModuleType:
    """Return a paper's module: claims or errata. Raises InputError where the folder has none."""
    _require_module(key, name)
    return import_module(f"dpfl.papers.{key}.{name}")


def _require_module(key: str, name: str) -> None:
    """Raise InputError where a paper's folder lacks a module."""
    if not (PAPERS / key / f"{name}.py").exists():
        raise InputError(f"papers/{key} has no {name}.py; add one (docs/howto/new_paper.md)")


def recipe_code(key: str, kind: str) -> tuple[str, ...]:
    """Return what makes a paper's tables or figures (`kind`): TABLES or FIGURES of its files, for source_digest.

    Of errata.py it is all: its table finds functions by their names. The files are found by their bytes: nothing is
    imported here, and what is no text is refused where it is imported.
    """
    name = kind.upper()
    assigned = re.compile(rf"^{name}\b.*=".encode(), re.MULTILINE)
    files = (path for path in sorted((PAPERS / key).glob("*.py")) if assigned.search(path.read_bytes()))
    homes = (f"dpfl.papers.{key}.{path.stem}" for path in files)
    return tuple(home if home.endswith(".errata") else f"{home}:{name}" for home in homes)


def recipes(key: str, kind: str) -> dict[str, Any]:
    """Return the recipes of a paper's tables or figures by name, from TABLES or FIGURES of all files of its folder.

    Raises InputError where two files have one name, and where TABLES or FIGURES is no mapping.
    """
    found: dict[str, Any] = {}
    for code in recipe_code(key, kind):
        home = code.partition(":")[0]
        own = getattr(import_module(home), kind.upper(), None)
        if not isinstance(own, Mapping):
            raise InputError(f"{home}: {kind.upper()} must be a recipe for each name of paper.yaml")
        if twice := found.keys() & own:
            raise InputError(f"{home}: {kind.upper()} has {min(twice)}, which another file of papers/{key} has too")
        found |= own
    return found


def recipe(key: str, kind: str, name: str) -> Any:
    """Return the recipe of a paper's table or figure; `kind` is "tables" or "figures".

    Raises InputError as `recipes`, and where paper.yaml has a name that no file has.
    """
    found = recipes(key, kind)
    if name not in found:
        known = ", ".join(found) or "none"
        raise InputError(
            f"{key}/paper.yaml: {kind}.{name} is not in {kind.upper()} of any file of papers/{key}; they have {known}"
        )
    return found[name]
