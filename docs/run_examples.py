"""Run the examples of the accountants' reference: one YAML file for each module, in docs/examples/accounting.

    where:                                 # optional: names that the calls share, in this order
      norm: from scipy.stats
      run: dict(n=100, m=10)
    federated_delta:                       # a public function or class of the module; first an example, then edge cases
      federated_delta(1, **run): 0.126937  # the call, and what it gives

A result is written as Python prints it: numbers to six digits, arrays as lists, members of enums by their values, and
errors as "ValueError: message". Zeros and infinities must agree exactly, other numbers to 1e-5. Calls are made in the
root of the repository.
"""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
import re
import warnings
from collections.abc import Iterator
from contextlib import chdir
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import yaml

import dpfl.accounting
from dpfl.errors import InputError

EXAMPLES = Path(__file__).parent / "examples" / "accounting"
Rows = list[tuple[str, str]]
"""Calls, and what each gives."""

_FLOAT = re.compile(r"(?<![\w.])-?(?:\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+|inf\b)")
_DIGITS, _RELATIVE = 6, 1e-5


def modules() -> list[ModuleType]:
    """Return the modules of the accountants that define a public function or class, by name."""
    found = pkgutil.walk_packages(dpfl.accounting.__path__, "dpfl.accounting.")
    every = (importlib.import_module(each.name) for each in sorted(found, key=lambda each: each.name))
    return [module for module in every if members(module)]


def members(module: ModuleType) -> dict[str, Any]:
    """Return the public functions and classes that the module defines, in their order."""
    return {
        name: value
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", None) == module.__name__ and not name.startswith("_")
    }


def computes(member: Any) -> bool:
    """Return whether a member needs rows: all but enums, protocols and classes that only hold values."""
    if not inspect.isclass(member):
        return callable(member)
    if issubclass(member, Enum) or getattr(member, "_is_protocol", False):
        return False
    return "__post_init__" in vars(member) or bool(methods(member))


def methods(kind: type) -> list[str]:
    """Return the public methods and properties that the class itself defines."""
    ours = (property, classmethod, staticmethod)
    return [
        name
        for name, value in vars(kind).items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, ours))
    ]


def read(path: Path) -> dict[str, Rows]:
    """Return the rows of each entry of a file. Raises ValueError naming the entry that stands twice."""
    content = path.read_text(encoding="utf-8")

    def text(node: yaml.Node) -> str:
        return node.value if isinstance(node, yaml.ScalarNode) else content[node.start_mark.index : node.end_mark.index]

    entries: dict[str, Rows] = {}
    for key, rows in yaml.compose(content).value:
        if key.value in entries:
            raise ValueError(f"{path.name}: {key.value} stands twice")
        entries[key.value] = [(text(call), text(gives)) for call, gives in rows.value]
    return entries


def place(module: ModuleType) -> Path:
    """Return the file of a module's examples, relative to the folder of all."""
    return Path(*module.__name__.split(".")[2:]).with_suffix(".yaml")


def unfilled(module: ModuleType, entries: dict[str, Rows]) -> Iterator[str]:
    """Yield what is missing from a module's entries, and what no member answers to."""
    known = members(module)
    for name in entries.keys() - known.keys() - {"where"}:
        yield f"{name}: has examples, but {module.__name__} defines no such public name"
    for name, member in known.items():
        if not computes(member):
            continue
        calls = " ".join(call for call, _ in entries.get(name, []))
        if name not in entries or not entries[name]:
            yield f"{name}: has no example"
        elif inspect.isclass(member):
            yield from (f"{name}.{each}: has no example" for each in methods(member) if f".{each}" not in calls)


def wrong(module: ModuleType, entries: dict[str, Rows]) -> Iterator[str]:
    """Yield the calls that give something else than their row says."""
    names = {name: getattr(dpfl.accounting, name) for name in dpfl.accounting.__all__}
    names |= {"np": np, "math": math, "Path": Path, **vars(module)}
    for name, meaning in entries.get("where", []):
        home = meaning.removeprefix("from ")
        names[name] = getattr(importlib.import_module(home), name) if home != meaning else eval(meaning, dict(names))
    with chdir(EXAMPLES.parents[2]):
        for call, gives in (row for entry, rows in entries.items() if entry != "where" for row in rows):
            found = evaluated(call, names)
            if not agree(gives, found):
                yield f"{call}: gives {found}, not {gives}"


def evaluated(call: str, names: dict[str, Any]) -> str:
    """Return what a call gives as text; a warning about numbers counts as an error that was not meant."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            return shown(eval(call, dict(names)))
        except (ValueError, InputError) as problem:
            return shown(f"{type(problem).__name__}: {problem}")


def shown(value: Any) -> str:
    """Return a result as text."""
    plain = _plain(value)
    return _FLOAT.sub(lambda match: _rounded(match[0]), plain if isinstance(plain, str) else repr(plain))


def agree(stated: str, found: str) -> bool:
    """Return whether two results differ in the last digits of their numbers at most."""
    if _FLOAT.split(stated) != _FLOAT.split(found):
        return False
    pairs = zip(_FLOAT.findall(stated), _FLOAT.findall(found), strict=True)
    return all(math.isclose(float(one), float(other), rel_tol=_RELATIVE) for one, other in pairs)


def table(rows: Rows) -> list[str]:
    """Return the rows as lines of Markdown."""
    cells = [[f"`{text}`".replace("|", r"\|") for text in row] for row in rows]
    lines = [f"| {call} | {gives} |" for call, gives in cells]
    return ["| example, then edge cases | gives |", "| :--- | :--- |", *lines, ""]


def _plain(value: Any) -> Any:
    """Return arrays as lists, numbers of numpy as Python's, and members of enums by their values."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, tuple):
        parts = [_plain(each) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def _rounded(number: str) -> str:
    """Return the number to six digits; a shorter one as it is."""
    digits = re.sub(r"e.*|[-.]", "", number).strip("0")
    if number.endswith("inf") or 0 < len(digits) <= _DIGITS:
        return number
    short = f"{float(number):.{_DIGITS}g}" if digits else "0"
    return short if "." in short or "e" in short else f"{short}.0"
