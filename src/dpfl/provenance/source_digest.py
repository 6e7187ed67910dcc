"""Hash the code that a stage runs: the definitions that it uses, by meaning instead of by text.

What counts: the syntax tree of every definition that the named modules or functions use, directly or not, wherever it
stands. Which file holds a definition does not count, so that a file can be split or folded without a change of digest;
nor do comments, docstrings, the words of error messages, annotations of functions, casts, assertions, `__all__`, unused
imports, and the packages that carry the work without deciding its numbers (GROUND): files, messages, configuration,
workflow, records, command line.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import EllipsisType
from typing import Any

GROUND = (
    "errors",
    "files",
    "progress",
    "catalog",
    "grid.configuration",
    "grid.expansion",
    "grid.training_job",
    "experiments",
    "provenance",
    "pipeline",
    "cli",
    "data.datasets",
)
"""Modules and packages of dpfl that a digest leaves out where others import them: what they read is hashed itself."""

CALIBRATION = (
    "balls_in_bins",
    "composition",
    "dpsgd",
    "fixed_batches",
    "guarantees",
    "phases",
    "poisson_gaussian",
    "privacy_profiles",
    "sampler_accountants",
    "shuffled_batches",
    "shuffling",
    "statements",
)
"""Modules of the accountants that reach a run by its calibration alone, whose noise is hashed by value."""

_ROOT = Path(__file__).parents[1]
_GROUND = tuple(f"dpfl.{each}." for each in GROUND)
_FOR_ANNOTATIONS = ("__future__", "typing", "collections.abc")


@cache
def source_digest(*modules: str, root: Path = _ROOT, calibrated: bool = False) -> str:
    """Return a hash of the named dpfl modules and of every definition of dpfl that they use, directly or not.

    A name "module:function" stands for that function of a module and what it uses, not for the whole module.
    `calibrated`: without CALIBRATION and what only those use. The syntax trees are hashed, in a form that does not
    depend on the version of Python or on the folder. `root`: the folder of the package, another commit's for example.
    Raises ModuleNotFoundError for a module that is not dpfl's and for a function that the module lacks.
    """
    labels = _labels(_used(modules, root, _left_out(calibrated)), root)
    return _hash(*sorted(set(labels.values())))[:16]


def own_digest(*modules: str) -> str:
    """Return a hash of the named modules alone, without what they use of others: of a command, say."""
    return _hash(*(_canonical(_module(name, _ROOT).tree) for name in modules))[:16]


def is_current(source: Mapping[str, Any]) -> bool:
    """Return whether the source that a record states is the code of this process."""
    try:
        return source_digest(*source["modules"]) == source["digest"]
    except ModuleNotFoundError:
        return False


@dataclass(frozen=True)
class _Module:
    """A module's reduced syntax tree, and what each of its names stands for."""

    tree: ast.Module
    statements: Mapping[str, tuple[int, ...]]
    """The statements that bind a name, by their places in the module."""
    imported: Mapping[str, tuple[tuple[str, str], ...]]
    """Module and name of what is imported from dpfl; "" for a module itself."""
    always: tuple[int, ...]
    """Statements that act when the module is imported, and definitions that a decorator of ours may register."""


@cache
def _module(name: str, root: Path) -> _Module:
    """Return a module as it counts. Raises ModuleNotFoundError if there is none of this name."""
    path = _path(name, root)
    if path is None:
        raise ModuleNotFoundError(f"{name} is not a module of dpfl")
    tree = _Reduced().visit(ast.parse(path.read_text(encoding="utf-8")))
    statements: dict[str, tuple[int, ...]] = {}
    imported: dict[str, tuple[tuple[str, str], ...]] = {}
    for index, node in enumerate(tree.body):
        for each in _bound(node):
            statements[each] = (*statements.get(each, ()), index)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dpfl":
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                is_module = _path(whole, root) is not None
                known = alias.asname or alias.name
                target = (whole, "") if is_module else (node.module or "", alias.name)
                imported[known] = (*imported.get(known, ()), target)
    own = statements.keys() | imported.keys()
    always = tuple(index for index, node in enumerate(tree.body) if _acts(node, own))
    return _Module(tree, statements, imported, always)


def _acts(node: ast.stmt, own: Set[str]) -> bool:
    """Return whether a statement of a module acts when it is imported; `own`: the names that the module has of dpfl."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        named = (each for decorator in node.decorator_list for each in ast.walk(decorator))
        return any(isinstance(each, ast.Name) and each.id in own for each in named)
    return not isinstance(node, ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign)


def _left_out(calibrated: bool) -> tuple[str, ...]:
    """Return the starts of the names of modules that do not count."""
    return (*_GROUND, *(f"dpfl.accounting.{name}." for name in CALIBRATION if calibrated))


_Place = tuple[str, int]
"""A statement: its module, and its place there."""


def _used(modules: tuple[str, ...], root: Path, left_out: tuple[str, ...]) -> dict[_Place, list[tuple[str, _Place]]]:
    """Return every statement that the named modules or functions use, directly or not, each with the statements that it
    uses itself and the names by which it calls them."""
    waiting: list[_Place] = []
    reached: set[str] = set()

    def standing_for(module: str, name: str) -> set[_Place]:
        found = set(_standing_for(module, name, root, left_out))
        for each in {module for module, _ in found} - reached:
            reached.add(each)
            waiting.extend((each, index) for index in _module(each, root).always)
        return found

    for each in modules:
        module, _, name = each.partition(":")
        facts = _module(module, root)
        if name and name not in {*facts.statements, *facts.imported}:
            raise ModuleNotFoundError(f"{module} has no {name}")
        reached.add(module)
        waiting.extend((module, index) for index in facts.always)
        for known in [name] if name else _names(facts):
            waiting.extend(standing_for(module, known))
    used: dict[_Place, list[tuple[str, _Place]]] = {}
    while waiting:
        place = waiting.pop()
        if place not in used:
            used[place] = [(name, each) for home, name in _uses(*place, root) for each in standing_for(home, name)]
            waiting.extend(each for _, each in used[place])
    return used


def _labels(used: Mapping[_Place, list[tuple[str, _Place]]], root: Path) -> dict[_Place, str]:
    """Return a hash of every statement with all that it uses, whatever file that stands in.

    A statement's own hash does not tell which of two definitions of one name it calls. So each hash takes in those of
    what the statement calls, by name, again and again, until no further statements are told apart (colour refinement).
    """
    labels = {place: _statement_hash(*place, root) for place in used}
    while True:
        finer = {
            place: _hash(labels[place], *sorted(f"{name} {labels[each]}" for name, each in used[place]))
            for place in used
        }
        if len(set(finer.values())) == len(set(labels.values())):
            return finer
        labels = finer


def _names(facts: _Module) -> list[str]:
    """Return every name that a module binds or imports from dpfl."""
    return [*facts.statements, *facts.imported]


def _standing_for(
    module: str, name: str, root: Path, left_out: tuple[str, ...], seen: frozenset[tuple[str, str]] = frozenset()
) -> Iterator[_Place]:
    """Yield the statements that a name of a module stands for; "" stands for all of the module.

    A name that the module neither binds nor imports is one of its submodules, or what its `__getattr__` finds;
    otherwise all of the module counts.
    """
    if f"{module}.".startswith(left_out) or (module, name) in seen:
        return
    facts, seen = _module(module, root), seen | {(module, name)}
    targets: list[tuple[str, str]] = list(facts.imported.get(name, ()))
    if name not in facts.statements and not targets:
        if name and _path(f"{module}.{name}", root):
            targets = [(f"{module}.{name}", "")]
        else:
            fallback = ["__getattr__"] if name and "__getattr__" in facts.statements else _names(facts)
            targets = [(module, each) for each in fallback]
    yield from ((module, index) for index in facts.statements.get(name, ()))
    for home, other in targets:
        yield from _standing_for(home, other, root, left_out, seen)


@cache
def _uses(module: str, index: int, root: Path) -> tuple[tuple[str, str], ...]:
    """Return (module, name) of what a statement names: of its own module, or an attribute of an imported one."""
    facts, found, through = _module(module, root), [], set()
    for node in ast.walk(facts.tree.body[index]):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            targets = facts.imported.get(node.value.id, ())
            if targets and not any(name for _, name in targets) and node.value.id not in facts.statements:
                through.add(id(node.value))
                found += [(home, node.attr) for home, _ in targets]
    for node in ast.walk(facts.tree.body[index]):
        if isinstance(node, ast.Name) and id(node) not in through and node.id in {*facts.statements, *facts.imported}:
            found.append((module, node.id))
    return tuple(dict.fromkeys(found))


@cache
def _statement_hash(module: str, index: int, root: Path) -> str:
    """Return the hash of one statement of a module, and of the outside imports that it names."""
    tree = _module(module, root).tree
    node = tree.body[index]
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    outside = sorted(
        f"{getattr(each, 'module', None)} {alias.name} {alias.asname}"
        for each in tree.body
        if isinstance(each, ast.Import | ast.ImportFrom) and (getattr(each, "module", "") or "").split(".")[0] != "dpfl"
        for alias in each.names
        if (alias.asname or alias.name.partition(".")[0]) in names
    )
    return _hash(_canonical(node), *outside)


def _hash(*texts: str) -> str:
    """Return the hash of texts in their order."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def _bound(node: ast.stmt) -> list[str]:
    """Return the names that a statement of a module binds, imports apart."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return []
    return [each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]


def _path(module: str, root: Path) -> Path | None:
    """Return the file of a dpfl module, or None where the name is no module (an imported function, say)."""
    base = root.joinpath(*module.split(".")[1:])
    for candidate in (base.with_suffix(".py"), base / "__init__.py"):
        if candidate.exists():
            return candidate
    return None


class _Reduced(ast.NodeTransformer):
    """Remove from a syntax tree what decides no number."""

    in_class = False

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Remove docstrings, also of attributes, and the dots of a protocol's methods."""
        is_empty = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str | EllipsisType)
        return None if is_empty else self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        """Remove what only says what is so."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Remove casts, which are for a type checker."""
        is_cast = isinstance(node.func, ast.Name) and node.func.id == "cast" and len(node.args) == 2
        return self.visit(node.args[1]) if is_cast else self.generic_visit(node)

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

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.AST]:
        """Take what only a type checker imports for imported: a class's annotations may name it."""
        is_typing = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        return [each for part in node.body if (each := self.visit(part))] if is_typing else self.generic_visit(node)

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


def _canonical(node: object) -> str:
    """Return a syntax tree as text without its empty fields: newer versions of Python add some (type_params)."""
    if isinstance(node, ast.AST):
        fields = ((name, getattr(node, name, None)) for name in sorted(node._fields))
        parts = (f"{name}={_canonical(value)}" for name, value in fields if value is not None and value != [])
        return f"{type(node).__name__}({', '.join(parts)})"
    return f"[{', '.join(map(_canonical, node))}]" if isinstance(node, list) else repr(node)
