"""Read the configuration, check it against the schema, and complete it with the defaults."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from dpfl.catalog import dataset_entries, keys, validator
from dpfl.errors import InputError, schema_fault
from dpfl.grid.strict_yaml import load_mapping

_SCHEMA = Path(__file__).parents[3] / "workflow" / "schemas" / "config.schema.yaml"


def schema() -> dict[str, Any]:
    """Return the JSON schema of the configuration: the workflow's, with the names of the datasets."""
    rules = deepcopy(_parsed(_SCHEMA.read_text(encoding="utf-8")))
    rules["properties"]["only"]["properties"]["dataset"]["items"]["enum"] = list(dataset_entries())
    return rules


@cache
def _parsed(text: str) -> dict[str, Any]:
    """Return what YAML says: reading it takes longer than all else that a configuration needs."""
    return yaml.safe_load(text)


def resolve(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return `config` checked and completed with every default.

    Raises InputError, one line that names the key, for an unknown key, a wrong type or a value out of range.
    """
    rules = schema()
    errors = sorted(validator()(rules).iter_errors(config), key=lambda error: list(map(str, error.path)))
    if errors:
        raise InputError(schema_fault(errors[0], " in the configuration"))
    _refuse_nan(config, "")
    complete = _with_defaults(config, rules)
    complete["papers"] = complete["papers"] or list(keys())
    if unknown := [key for key in complete["papers"] if key not in keys()]:
        raise InputError(f"papers has {unknown[0]!r}, and there is no such paper; there are {', '.join(keys())}")
    return complete


def read(path: Path) -> dict[str, Any]:
    """Return the resolved configuration in the YAML file at `path`; raises InputError naming file and key."""
    config = load_mapping(path)
    try:
        return resolve(config)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def overlaid(base: Path, overlay: Path | None, scale: str | None) -> dict[str, Any]:
    """Return the configuration as Snakemake combines it: `base`, over it `overlay`, over both the scale.

    Raises InputError naming the file and the key that cannot be used.
    """
    config = read(base)
    if overlay is not None:
        read(overlay)
        for key, value in load_mapping(overlay).items():
            config[key] = {**config[key], **value} if isinstance(value, dict) else value
    return resolve(config | ({} if scale is None else {"scale": scale}))


def _refuse_nan(value: Any, key: str) -> None:
    """Raise InputError for a NaN anywhere: it passes every comparison of the schema."""
    if isinstance(value, float) and math.isnan(value):
        raise InputError(f"{key} is not a number in the configuration")
    children = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for name, child in children:
        _refuse_nan(child, f"{key}.{name}".lstrip("."))


def _with_defaults(config: Mapping[str, Any], rules: Mapping[str, Any]) -> dict[str, Any]:
    """Return `config` with the schema's default for every key that it lacks, in the schema's order."""
    complete = {}
    for name, rule in rules["properties"].items():
        value = config.get(name, rule["default"])
        complete[name] = _with_defaults(value, rule) if rule.get("type") == "object" else value
    return complete
