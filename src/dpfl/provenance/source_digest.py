"""Hash the code that a stage runs: the modules that it imports, by meaning instead of by text."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]


def source_digest(*modules: str, root: Path = _ROOT) -> str:
    """Return a hash of the named dpfl modules and of every dpfl module that they import, directly or not.

    Comments, docstrings and formatting do not count: the syntax tree is hashed, in a form that does not depend on the
    version of Python. `root`: the folder of the package, another commit's for example.
    Raises ModuleNotFoundError for a module that is not dpfl's.
    """
    closure: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name not in closure:
            closure.add(name)
            waiting.extend(_imports(name, root))
    text = "\n".join(f"{name} {_tree_digest(name, root)}" for name in sorted(closure))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def is_current(source: Mapping[str, Any]) -> bool:
    """Return whether the source that a record states is the code of this process."""
    try:
        return source_digest(*source["modules"]) == source["digest"]
    except ModuleNotFoundError:
        return False


def _path(module: str, root: Path) -> Path | None:
    """Return the file of a dpfl module, or None where the name is no module (an imported function, say)."""
    base = root.joinpath(*module.split(".")[1:])
    for candidate in (base.with_suffix(".py"), base / "__init__.py"):
        if candidate.exists():
            return candidate
    return None


@cache
def _tree(module: str, root: Path) -> ast.Module:
    """Return a module's syntax tree without its docstrings."""
    path = _path(module, root)
    if path is None:
        raise ModuleNotFoundError(f"{module} is no module of dpfl")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return tree


@cache
def _tree_digest(module: str, root: Path) -> str:
    """Return the hash of one module's syntax tree."""
    return hashlib.sha256(_canonical(_tree(module, root)).encode()).hexdigest()


def _canonical(node: object) -> str:
    """Return a syntax tree as text without its empty fields: newer versions of Python add some (type_params)."""
    if isinstance(node, ast.AST):
        fields = ((name, getattr(node, name, None)) for name in sorted(node._fields))
        parts = (f"{name}={_canonical(value)}" for name, value in fields if value is not None and value != [])
        return f"{type(node).__name__}({', '.join(parts)})"
    return f"[{', '.join(map(_canonical, node))}]" if isinstance(node, list) else repr(node)


@cache
def _imports(module: str, root: Path) -> frozenset[str]:
    """Return the dpfl modules that one module imports, packages above them included."""
    names: set[str] = set()
    for node in ast.walk(_tree(module, root)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    found = {name for name in names if name.split(".")[0] == "dpfl" and _path(name, root) is not None}
    parents = {".".join(name.split(".")[:depth]) for name in found for depth in range(1, name.count(".") + 1)}
    return frozenset(found | parents)
