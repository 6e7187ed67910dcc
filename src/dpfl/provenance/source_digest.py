"""Hash the code that a stage runs: the modules that it imports, by meaning instead of by text.

What counts: the syntax tree of every module that decides a number or a page. What does not: comments, docstrings, the
words of error messages, annotations of functions, `__all__`, imports that only re-export a name, and the packages that
carry the work without deciding its numbers (GROUND): files, messages, configuration, workflow, records, command line.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

GROUND = (
    "errors",
    "files",
    "progress",
    "catalog",
    "grid",
    "provenance",
    "pipeline",
    "cli",
    "data.datasets",
)
"""Modules and packages of dpfl that a digest leaves out where others import them: what they read is hashed itself."""

CALIBRATION = ("dpsgd", "guarantees", "isrl_dp", "poisson_gaussian", "privacy_profiles", "shuffling", "statements")
"""Modules of the accountants that reach a run by its calibration alone, whose noise is hashed by value."""

_ROOT = Path(__file__).parents[1]
_GROUND = tuple(f"dpfl.{each}." for each in GROUND)
_FOR_ANNOTATIONS = ("__future__", "typing", "collections.abc")


@cache
def source_digest(*modules: str, root: Path = _ROOT, calibrated: bool = False) -> str:
    """Return a hash of the named dpfl modules and of every dpfl module that they import, directly or not.

    A name "module:function" stands for that function of a module and what it uses there, not for the whole module.
    `calibrated`: without CALIBRATION and what only those import. The syntax trees are hashed, in a form that does not
    depend on the version of Python or on the folder. `root`: the folder of the package, another commit's for example.
    Raises ModuleNotFoundError for a module that is not dpfl's.
    """
    names = sorted(closure(*modules, root=root, calibrated=calibrated))
    text = "\n".join(f"{name} {_tree_digest(_text(name, root))}" for name in names)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def own_digest(*modules: str) -> str:
    """Return a hash of the named modules alone, without what they import: of a command, say."""
    return hashlib.sha256("\n".join(_tree_digest(_text(name, _ROOT)) for name in modules).encode()).hexdigest()[:16]


def closure(*modules: str, root: Path = _ROOT, calibrated: bool = False) -> set[str]:
    """Return the named modules and all that they import, without GROUND, and without CALIBRATION if `calibrated`."""
    left_out = tuple(f"dpfl.accounting.{name}." for name in CALIBRATION) if calibrated else ()
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name not in found and not f"{name}.".startswith(left_out):
            found.add(name)
            waiting.extend(_imports(name, root))
    return found


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
def _text(module: str, root: Path) -> str:
    """Return the text of a module: what follows from it is computed once, for most commits have most modules alike."""
    module, _, function = module.partition(":")
    path = _path(module, root)
    if path is None:
        raise ModuleNotFoundError(f"{module} is no module of dpfl")
    text = path.read_text(encoding="utf-8")
    return _used_by(function, module, text) if function else text


def _used_by(function: str, module: str, text: str) -> str:
    """Return the text of the definitions and imports of a module that a function of it needs, in their order."""
    homes = {name: node for node in ast.parse(text).body for name in _defined(node)}
    if function not in homes:
        raise ModuleNotFoundError(f"{module} has no {function}")
    needed, waiting = set(), [function]
    while waiting:
        name = waiting.pop()
        if name in homes and name not in needed:
            needed.add(name)
            waiting += [each.id for each in ast.walk(homes[name]) if isinstance(each, ast.Name)]
    nodes = sorted({homes[name] for name in needed}, key=lambda node: node.lineno)
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            node.names = [alias for alias in node.names if _bound(alias) in needed]
    return "\n".join(map(ast.unparse, nodes))


def _defined(node: ast.stmt) -> list[str]:
    """Return the names that a statement of a module binds."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [_bound(alias) for alias in node.names]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]


def _bound(alias: ast.alias) -> str:
    """Return the name that an import binds."""
    return alias.asname or alias.name.partition(".")[0]


@cache
def _tree(text: str) -> ast.Module:
    """Return a module's syntax tree, reduced to what can change a number."""
    return _Reduced().visit(ast.parse(text))


class _Reduced(ast.NodeTransformer):
    """Remove from a syntax tree what decides no number."""

    in_class = False

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Remove docstrings, those of attributes too."""
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        """Remove the words of an error's message."""
        if isinstance(node.exc, ast.Call):
            node.exc.args = [each for each in node.exc.args if not _is_text(each)]
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Keep the annotations of a class: they are the fields of a dataclass."""
        return self._inside(node, in_class=True)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Remove what a function returns by its annotation."""
        node.returns = None
        return self._inside(node, in_class=False)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        """Remove an argument's annotation."""
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        """Remove a variable's annotation."""
        if self.in_class:
            return self.generic_visit(node)
        return self.visit(ast.Assign([node.target], node.value)) if node.value else None

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        """Remove the list of public names."""
        is_list = any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)
        return None if is_list else self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | None:
        """Remove what only a type checker imports."""
        is_typing = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        return None if is_typing else self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> ast.AST | None:
        """Remove imports of modules that do not count."""
        node.names = [alias for alias in node.names if not _is_ground(alias.name)]
        return node if node.names else None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        """Remove imports of modules that do not count."""
        module = node.module or ""
        node.names = [alias for alias in node.names if not _is_ground(f"{module}.{alias.name}")]
        return node if node.names and module not in _FOR_ANNOTATIONS else None

    def _inside(self, node: ast.AST, *, in_class: bool) -> ast.AST:
        """Visit the parts of a class or a function."""
        before, self.in_class = self.in_class, in_class
        node = self.generic_visit(node)
        self.in_class = before
        return node


def _is_text(node: ast.expr) -> bool:
    """Return whether an expression is a text, with values in it or without."""
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_ground(name: str) -> bool:
    """Return whether a module, or what is imported from it, is of GROUND."""
    return f"{name}.".startswith(_GROUND)


@cache
def _tree_digest(text: str) -> str:
    """Return the hash of one module's syntax tree."""
    return hashlib.sha256(_canonical(_tree(text)).encode()).hexdigest()


def _canonical(node: object) -> str:
    """Return a syntax tree as text without its empty fields: newer versions of Python add some (type_params)."""
    if isinstance(node, ast.AST):
        fields = ((name, getattr(node, name, None)) for name in sorted(node._fields))
        parts = (f"{name}={_canonical(value)}" for name, value in fields if value is not None and value != [])
        return f"{type(node).__name__}({', '.join(parts)})"
    return f"[{', '.join(map(_canonical, node))}]" if isinstance(node, list) else repr(node)


@cache
def _imports(module: str, root: Path) -> frozenset[str]:
    """Return the dpfl modules that one module imports: of a package's re-exported name, the module that defines it."""
    named = (_home(package, name, root) if name else [package] for package, name in _named(_text(module, root)))
    return frozenset(each for homes in named for each in homes) - {module}


@cache
def _named(text: str) -> tuple[tuple[str, str], ...]:
    """Return (module, name or nothing) of every import of dpfl's in a module."""
    found = []
    for node in ast.walk(_tree(text)):
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [(node.module or "", alias.name) for alias in node.names]
    return tuple((module, name) for module, name in found if module.split(".")[0] == "dpfl")


def _home(module: str, name: str, root: Path) -> Iterator[str]:
    """Yield the modules that `from module import name` brings in."""
    path = _path(module, root)
    if _path(f"{module}.{name}", root) is not None:
        yield f"{module}.{name}"
    elif path is None or path.name != "__init__.py":
        yield module
    else:
        exported = [
            (node.module or "", alias.name)
            for node in _tree(_text(module, root)).body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            if (alias.asname or alias.name) == name
        ]
        if exported:
            yield from _home(*exported[-1], root)
        else:
            yield module
