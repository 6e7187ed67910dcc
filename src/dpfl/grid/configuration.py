"""Read the configuration, check it against the schema, and complete it with the defaults."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import yaml
from yaml.composer import ComposerError

from dpfl.catalog import EXPONENT_ALONE, UniqueKeys, dataset_entries, keys, validator
from dpfl.errors import InputError, schema_fault

# Read a YAML file that a person wrote: every fault is one line that names the file.

_MOST_BYTES = 1_000_000
_MOST_BITS = 63
_SHOWN = 20
_OCTAL = re.compile(r"[-+]?0[0-7_]+")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class _Loader(UniqueKeys, yaml.SafeLoader):
    """PyYAML's safe loader without duplicate keys, aliases, merges, and numbers and texts that are not what they look
    like."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Refuse aliases: a configuration needs none, and nested ones fill the memory."""
        if self.check_event(yaml.AliasEvent):
            raise ComposerError(None, None, "aliases (*name) are not allowed", self.peek_event().start_mark)
        return super().compose_node(parent, index)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Refuse merges (<<), which need aliases and hide which key wins."""
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                _refuse(key, "merges (<<) are not allowed")

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        """Refuse half a character ("\\ud800"): no file has such a name, and no page can show it."""
        text = super().construct_scalar(node)
        if isinstance(text, str) and _SURROGATE.search(text):
            _refuse(node, "a text holds half a character (a surrogate)")
        return text

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Refuse integers of base 60 and 8 (1:30 is 90, 010 is 8), and more than 64 bits, which take long to print."""
        if _OCTAL.fullmatch(node.value):
            _refuse(node, f"{node.value[:_SHOWN]!r} is a number of base 8; write it in base 10")
        _refuse_base_60(node)
        value = super().construct_yaml_int(node)
        if value.bit_length() > _MOST_BITS:
            _refuse(node, f"{node.value[:_SHOWN]!r}... is an integer of more than 64 bits")
        return value

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        """Refuse numbers of base 60, and those too large for a float: infinity is written .inf."""
        _refuse_base_60(node)
        value = super().construct_yaml_float(node)
        if math.isinf(value) and "inf" not in node.value.lower():
            _refuse(node, f"{node.value[:_SHOWN]!r} is too large for a number; infinity is .inf")
        return value


_Loader.add_implicit_resolver(*EXPONENT_ALONE)
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_yaml_float)


def _refuse_base_60(node: yaml.Node) -> None:
    """Refuse 1:30, which is 90."""
    if ":" in node.value:
        _refuse(node, f"{node.value[:_SHOWN]!r} is a number of base 60; write it in base 10, or a text in quotes")


def _refuse(node: yaml.Node, reason: str) -> NoReturn:
    """Raise the error of a value that is not taken."""
    raise yaml.constructor.ConstructorError(None, None, reason, node.start_mark)


def load_mapping(path: Path) -> dict[str, Any]:
    """Return the mapping in the YAML file at `path`; an empty file is an empty mapping.

    Raises InputError, one line, where the file is missing, no file, too large, not UTF-8, not YAML, no mapping, has a
    key twice or an alias, or a value that YAML takes for a date or number that cannot exist, or that is not what it
    looks like (base 60 or 8, more than 64 bits, half a character).
    """
    if not path.is_file():
        reason = "is a folder or no regular file" if path.exists() else "is not there"
        of_a_run = path.name == "config.yaml" and path.absolute().parent.parent.name == "results"
        here = f"make {path.parent.name} makes it" if of_a_run else "name one that is there"
        raise InputError(f"{path} {reason}: {here}, or run in the folder of config.yaml")
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(f"{path} has {path.stat().st_size} bytes: a configuration has at most {_MOST_BYTES}")
        content = yaml.load(path.read_bytes().decode("utf-8"), _Loader)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise InputError(f"{path} is not YAML that can be used: {' '.join(str(error).split())[:300]}") from None
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise InputError(f"{path} must have keys and values, found {type(content).__name__}")
    return content


_SCHEMA = Path(__file__).parents[1] / "schemas" / "config.schema.yaml"


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
    if not base.is_file():
        raise InputError(f"no {base} here: run dpfl in the folder of the project")
    for path in (base, overlay):
        if path is not None:
            read(path)
            _refuse_other_readings(load_mapping(path), _as_snakemake_reads(path), str(path))
    config = read(base)
    if overlay is not None:
        for key, value in load_mapping(overlay).items():
            config[key] = {**config[key], **value} if isinstance(value, dict) else value
    return resolve(config | ({} if scale is None else {"scale": scale}))


def _as_snakemake_reads(path: Path) -> Any:
    """Return the content of a configuration by the readers of Snakemake: JSON if it is that, else YAML 1.1."""
    text = path.read_bytes()
    try:
        return json.loads(text)
    except ValueError:
        return yaml.safe_load(text)


def _refuse_other_readings(ours: Any, snakemakes: Any, place: str) -> None:
    """Raise InputError for a number that Snakemake, which reads the file itself, would take for a text: 1e-5."""
    if isinstance(ours, dict | list):
        for key in ours if isinstance(ours, dict) else range(len(ours)):
            _refuse_other_readings(ours[key], snakemakes[key], f"{place}{'.' if ': ' in place else ': '}{key}")
    elif isinstance(snakemakes, str) and ours != snakemakes:
        base, exponent = re.split("[eE]", snakemakes)
        written = f"{base}.0e{exponent if exponent[0] in '+-' else f'+{exponent}'}"
        raise InputError(f"{place} is {snakemakes}, which Snakemake reads as a text: write {written}")


def results_folder(config: Mapping[str, Any]) -> Path:
    """Return the results folder of a resolved configuration's scale."""
    return Path("results") / config["scale"]


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
