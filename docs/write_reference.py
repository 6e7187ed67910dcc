"""Write the reference pages of the docs from docstrings, the configuration's schema and the commands' help."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

import dpfl.accounting

ROOT = Path(__file__).resolve().parents[1]


def write_reference(folder: Path) -> None:
    """Write accounting.md, configuration.md, commands.md and index.md below `folder`."""
    folder.mkdir(exist_ok=True)
    (folder / "accounting.md").write_text(_accounting())
    (folder / "configuration.md").write_text(_configuration())
    (folder / "commands.md").write_text(_commands())


def _accounting() -> str:
    """The public face, then every module that has a public function."""
    lines = ["# Accountants", "", _verbatim(dpfl.accounting.__doc__ or ""), "", "## One call for all samplers", ""]
    lines += _directive(
        "autofunction", [f"dpfl.accounting.{name}" for name in _face() if name.islower() or "_" in name]
    )
    lines += ["## Samplers, relations, observers", ""]
    lines += _directive("autoclass", [f"dpfl.accounting.{name}" for name in _face() if name[0].isupper()])
    for name in sorted(_modules()):
        lines += [f"## {name.removeprefix('dpfl.accounting.')}", "", *_directive("automodule", [name], "   :members:")]
    return "\n".join(lines) + "\n"


def _face() -> list[str]:
    """The names of `dpfl.accounting.__all__`."""
    return list(dpfl.accounting.__all__)


def _modules() -> Iterator[str]:
    """The modules of the accountants that define a public function."""
    for found in pkgutil.walk_packages(dpfl.accounting.__path__, "dpfl.accounting."):
        module = importlib.import_module(found.name)
        own = [value for value in vars(module).values() if getattr(value, "__module__", None) == found.name]
        if any(callable(value) and not value.__name__.startswith("_") for value in own):
            yield found.name


def _directive(kind: str, names: list[str], *options: str) -> list[str]:
    """Sphinx directives in MyST's fence, one per name."""
    lines = []
    for name in names:
        lines += ["```{eval-rst}", f".. {kind}:: {name}", *options, "```", ""]
    return lines


def _verbatim(text: str) -> str:
    """The text as it stands."""
    return f"```text\n{text.strip()}\n```"


def _configuration() -> str:
    """Every key of the schema: type, default, meaning."""
    schema = yaml.safe_load((ROOT / "workflow/schemas/config.schema.yaml").read_text())
    lines = ["# Configuration", "", f"{schema['description']} The defaults are in `config.yaml`.", ""]
    lines += ["| key | values | default | meaning |", "| --- | --- | --- | --- |"]
    lines += list(_keys(schema, ""))
    return "\n".join(lines) + "\n"


def _keys(schema: dict[str, Any], prefix: str) -> Iterator[str]:
    """A table row for each key below `schema`."""
    for key, entry in schema["properties"].items():
        if "properties" in entry:
            yield from _keys(entry, f"{prefix}{key}.")
            continue
        values = ", ".join(map(str, entry["enum"])) if "enum" in entry else _type(entry)
        default = yaml.safe_dump(entry.get("default"), default_flow_style=True).split("\n")[0]
        yield f"| `{prefix}{key}` | {values} | `{default}` | {entry.get('description', '')} |"


def _type(entry: dict[str, Any]) -> str:
    """The type in words."""
    if "oneOf" in entry:
        return " or ".join(_type(one) for one in entry["oneOf"])
    kind = entry.get("type", "any")
    if isinstance(kind, list):
        return " or ".join(kind)
    return f"list of {_type(entry['items'])}" if kind == "array" else kind


def _commands() -> str:
    """The help of all commands, as typer writes it."""
    command = [sys.executable, "-m", "typer", "dpfl.cli", "utils", "docs", "--name", "dpfl", "--title", "Commands"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    write_reference(ROOT / "docs" / "reference")
