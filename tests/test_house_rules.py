"""Rules of CONTRIBUTING that no linter knows: one name a class, docstrings and how they begin."""

import ast
import re
from collections import Counter
from importlib import import_module
from importlib.util import find_spec

import pytest

QUESTION = re.compile(r"(What|Whether|How|Which|Where|Why)\b")
TWICE = {"Gaussian", "Guarantee"}
"""Classes of dpfl.accounting.tradeoff, named before."""


@pytest.fixture(scope="module")
def trees(repository):
    """The syntax tree of every file of the package."""
    files = sorted((repository / "src").rglob("*.py"))
    return {file.relative_to(repository): ast.parse(file.read_text()) for file in files}


def test_what_scripts_import_is_there(repository):
    """Of docs and benchmarks, most of which no test runs."""
    files = [file for part in ("docs", "benchmarks") for file in sorted((repository / part).glob("*.py"))]
    missing = []
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("dpfl"):
                module = import_module(node.module)
                unknown = [each.name for each in node.names if not hasattr(module, each.name)]
                missing += [(file.name, node.module, name) for name in unknown if not is_module(node.module, name)]
    assert not missing


def is_module(package, name):
    try:
        return find_spec(f"{package}.{name}") is not None
    except ModuleNotFoundError:  # what stands for the package is a module
        return False


def nodes(trees, *kinds):
    return [(file, node) for file, tree in trees.items() for node in ast.walk(tree) if isinstance(node, kinds)]


def test_no_two_classes_have_one_name(trees):
    names = Counter(node.name for _, node in nodes(trees, ast.ClassDef))
    assert {name for name, count in names.items() if count > 1} == TWICE


def test_what_is_public_has_a_docstring(trees):
    """Functions and classes of modules; the methods of private and of protocol classes say it above."""
    public = [
        (file, node.name)
        for file, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
        if not ast.get_docstring(node)
    ]
    assert not public


def test_docstrings_begin_with_no_question_word(trees):
    documented = nodes(trees, ast.FunctionDef, ast.ClassDef, ast.Module)
    assert not [(file, text) for file, node in documented if QUESTION.match(text := ast.get_docstring(node) or "")]


def test_the_package_is_imported_by_names_alone(trees):
    """No star, no dots, no `import dpfl.x`: a source digest follows names (dpfl.provenance.source_digest)."""
    imports = nodes(trees, ast.Import, ast.ImportFrom)
    whole = [(file, node.lineno) for file, node in imports if any(a.name.split(".")[0] == "dpfl" for a in node.names)]
    stars = [(file, node.lineno) for file, node in imports if any(alias.name == "*" for alias in node.names)]
    dotted = [(file, node.lineno) for file, node in imports if getattr(node, "level", 0)]
    assert (whole, stars, dotted) == ([], [], [])
