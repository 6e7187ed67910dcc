"""Read the configuration, check it against the schema, and complete it with the defaults."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from jsonschema.validators import extend

from dpfl.catalog import dataset_entries, keys
from dpfl.errors import InputError
from dpfl.grid.strict_yaml import load_mapping

_INTEGERS = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
_Validator = extend(Draft202012Validator, type_checker=_INTEGERS)
"""JSON schema takes 1.0 for an integer; a seed of 1.0 would be another run than 1."""
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
    errors = sorted(_Validator(rules).iter_errors(config), key=lambda error: list(map(str, error.path)))
    if errors:
        raise InputError(_explain(errors[0]))
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


def _explain(error) -> str:
    """Return one line for a schema error: the key, its value, what would be right."""
    key = ".".join(map(str, error.absolute_path))
    if error.validator == "additionalProperties":
        known = ", ".join(error.schema["properties"])
        unknown = sorted(set(error.instance) - set(error.schema["properties"]), key=str)[0]
        return f"unknown key {f'{key}.' if key else ''}{unknown} in the configuration; known here: {known}"
    if error.validator == "oneOf":
        deeper = [inner for inner in error.context if inner.absolute_path and len(inner.path) > 0]
        if deeper:
            return _explain(deeper[0])
        return f"{key} is {error.instance!r} in the configuration; it must be {error.schema['description']}, as a list"
    wanted = {
        "type": f"of type {error.validator_value}",
        "enum": f"one of {error.validator_value}",
        "minimum": f"at least {error.validator_value}",
        "maximum": f"at most {error.validator_value}",
        "exclusiveMinimum": f"above {error.validator_value}",
        "minItems": f"a list of at least {error.validator_value}",
        "uniqueItems": "a list without repetition",
        "minLength": "a text that is not empty",
        "pattern": error.schema.get("description", error.message),
    }.get(error.validator, error.message)
    return f"{key} is {error.instance!r} in the configuration; it must be {wanted}"


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
