"""Rules of CONTRIBUTING that no linter knows: tests mirror the source, one name a class."""

import ast
from collections import Counter
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

TWICE = {"Gaussian", "Guarantee"}
"""Classes of dpfl.accounting.tradeoff, named before."""

WHOLE = {  # tests of several files, of the whole, or of what is no source
    "": [
        "docs",
        "docstring_names",
        "environment",
        "example_experiment",
        "house_rules",
        "issue_pages",
        "makefile",
        "notebooks",
        "package",
        "prose",
        "sixth_paper",
    ],
    "accounting": ["examples", "extremes", "public_face", "sources", "wrong_arguments"],
    "accounting/contraction": ["simulation"],
    "accounting/tradeoff": ["dpsgd_runs"],
    "attacks": ["foreign_trainer", "refutations"],
    "faults": ["inject"],
    "gpu": ["cuda", "memory"],
    "images": ["opacus_loop"],
    "mutants": ["mutants"],
    "papers": ["claims", "errata", "letters", "messages", "partial_grids", "tables", "written_numbers"],
    "provenance": ["flips", "hostile_folder"],
    "provenance/audit": ["forgeries"],
    "reporting/report_page": ["browser"],
    "slurm": ["slurm", "slurm_batches"],
    "workflow": [
        "batches",
        "faults",
        "module",
        "quoting",
        "report",
        "reruns",
        "shipped_results",
        "workers",
        "workflow",
    ],
}
LONGEST = 700
"""Lines of the tests of one source file from which they may be split by subject."""
SHORTEST = 80
"""Lines of a source file from which it has a test file of its own; tests of a whole cover shorter ones."""


@pytest.fixture(scope="module")
def places(repository):
    """The test files by what they are named after: a/b for a/test_b.py."""
    found = sorted((repository / "tests").rglob("test_*.py"))
    return {path.relative_to(repository / "tests").with_name(path.stem.removeprefix("test_")): path for path in found}


def mirrored(place, source):
    """Return the source file that tests at this place are of, and whether they are all of them; None if there is none.

    The tests of a/b.py (or of a/b.yaml, of the package a/b) are a/test_b.py, those of the package a itself a/test_a.py.
    Split by subject they are a/test_b_subject.py or a/b/test_subject.py.
    """
    own = source / place
    if any(path.exists() for path in (own.with_suffix(".py"), own.with_suffix(".yaml"), own)):
        return place, True
    if place.name == place.parent.name:
        return place.parent, True
    words = place.name.split("_")
    parts = [place.with_name("_".join(words[:count])) for count in range(len(words) - 1, 0, -1)]
    found = (part for part in [*parts, place.parent] if (source / part).with_suffix(".py").exists())
    return next(((part, False) for part in found), None)


def test_a_test_file_mirrors_a_source_file(repository, places):
    source = repository / "src" / "dpfl"
    whole = {Path(folder, name) for folder, names in WHOLE.items() for name in names}
    assert whole <= places.keys(), "WHOLE names a test that is not there"
    lines, split, lost = Counter(), {}, []
    for place, path in places.items():
        if place in whole:
            continue
        if (found := mirrored(place, source)) is None:
            lost.append(place)
            continue
        lines[found[0]] += path.read_text().count("\n")
        if not found[1]:
            split[place] = found[0]
    assert not lost, "name them after the source file that they test, or in WHOLE"
    together = [place for place, of in split.items() if lines[of] <= LONGEST]
    assert not together, f"one test file for each source file, unless its tests are over {LONGEST} lines"


def test_a_source_file_has_its_test_file(repository, places):
    source = repository / "src" / "dpfl"
    tested = {found[0] for place in places if (found := mirrored(place, source))}
    files = {path.relative_to(source).with_suffix(""): path for path in source.rglob("*.py")}
    long = {place for place, path in files.items() if path.read_text().count("\n") >= SHORTEST}
    untested = [place for place in long - tested if not place.name.startswith("__")]
    assert not untested


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


def test_the_package_is_imported_by_names_alone(trees):
    """No `import dpfl.x`, as ruff knows no stars and dots: a source digest follows names (provenance.source_digest)."""
    imports = nodes(trees, ast.Import, ast.ImportFrom)
    whole = [(file, node.lineno) for file, node in imports if any(a.name.split(".")[0] == "dpfl" for a in node.names)]
    assert whole == []
