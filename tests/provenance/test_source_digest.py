import shutil

import pytest

from dpfl.data import datasets
from dpfl.experiments import protocol
from dpfl.provenance import source_digest

FILES = {
    "__init__": "__version__ = '1'\n",
    "a": "from dpfl.files import write\nfrom dpfl.sub import f\n\nwrite(f())\n",
    "c": "x = 1\n",
    "files": "def write(number): ...\n",
    "sub/__init__": "from dpfl.sub.b import f\nfrom dpfl.sub.other import g\n",
    "sub/other": "def g():\n    return 3\n",
}
B_CODE = '''"""Doc."""
from typing import Any

__all__ = ["f"]
LIMIT: int = 3
"""Of something."""


class Size:
    low: int = 1


def f(number: int = 1) -> int:
    """Return it."""
    if number > LIMIT:
        raise ValueError(f"number is {number}, above {LIMIT}")
    return number
'''


@pytest.fixture
def package(tmp_path):
    """A package dpfl in which `a` imports `sub.b` through `sub`; returns it and a function that digests `a` anew."""
    (tmp_path / "sub").mkdir()
    for name, text in {**FILES, "sub/b": B_CODE}.items():
        (tmp_path / f"{name}.py").write_text(text)
    cached = (source_digest.source_digest, source_digest._text, source_digest._imports)

    def digest():
        for each in cached:
            each.cache_clear()
        return source_digest.source_digest("dpfl.a", root=tmp_path)

    yield tmp_path, digest
    for each in cached:
        each.cache_clear()


def edited(package, file, old, new):
    """Return whether the digest of `a` changes when a text in a file is replaced."""
    root, digest = package
    path, before = root / f"{file}.py", digest()
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return digest() != before


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("sub/b", "Return it.", "Return the number."),
        ("sub/b", "Of something.", "Of everything."),
        ("sub/b", "above {LIMIT}", "more than {LIMIT}"),
        ("sub/b", '["f"]', '["LIMIT", "f"]'),
        ("sub/b", "number: int = 1) -> int", "number=1)"),
        ("sub/b", "LIMIT: int =", "LIMIT ="),
        ("sub/b", "from typing import Any\n", ""),
        ("sub/b", "    return number", "    return (number)  # as it is"),
        ("sub/__init__", "from dpfl.sub.other import g\n", ""),
        ("sub/other", "return 3", "return 4"),
        ("__init__", "'1'", "'2'"),
        ("files", "...", "print(number)"),
        ("a", "from dpfl.files import write", "from dpfl.files import write, write as other"),
        ("c", "1", "2"),
    ],
)
def test_what_changes_no_number_does_not_count(package, file, old, new):
    assert not edited(package, file, old, new)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("sub/b", "number: int = 1)", "number: int = 2)"),
        ("sub/b", "LIMIT: int = 3", "LIMIT: int = 4"),
        ("sub/b", "low: int = 1", "low: float = 1"),
        ("sub/b", "ValueError", "KeyError"),
        ("sub/b", "number > LIMIT", "number >= LIMIT"),
        ("sub/__init__", "from dpfl.sub.b import f", "from dpfl.sub.other import g as f"),
        ("a", "write(f())", "write(f(2))"),
    ],
)
def test_what_can_change_a_number_counts(package, file, old, new):
    assert edited(package, file, old, new)


def test_another_folder_with_the_same_code_has_the_same_digest(package, tmp_path_factory):
    root, digest = package
    other = tmp_path_factory.mktemp("checkout") / "dpfl"
    shutil.copytree(root, other)
    assert source_digest.source_digest("dpfl.a", root=other) == digest()


TWO = """import re
from dpfl.c import x
from dpfl.sub.b import f

LIMIT = 3


def helper(n):
    return n * x


def one(n):
    return helper(n) + LIMIT


def two(n):
    return f(n)
"""


@pytest.mark.parametrize(
    ("file", "old", "new", "changed"),
    [
        ("two", "helper(n) + LIMIT", "helper(n) - LIMIT", {"one"}),
        ("two", "n * x", "n + x", {"one"}),
        ("two", "LIMIT = 3", "LIMIT = 4", {"one"}),
        ("c", "1", "2", {"one"}),
        ("two", "return f(n)", "return f(2 * n)", {"two"}),
        ("sub/b", "LIMIT: int = 3", "LIMIT: int = 4", {"two"}),
        ("two", "import re", "import os", set()),
    ],
)
def test_a_function_of_a_module_counts_with_what_it_uses_alone(package, file, old, new, changed):
    root, _ = package
    (root / "two.py").write_text(TWO)

    def digests():
        for each in (source_digest.source_digest, source_digest._text, source_digest._imports):
            each.cache_clear()
        return {name: source_digest.source_digest(f"dpfl.two:{name}", root=root) for name in ("one", "two")}

    before, path = digests(), root / f"{file}.py"
    path.write_text(path.read_text().replace(old, new, 1))
    after = digests()
    assert {name for name in before if before[name] != after[name]} == changed
    with pytest.raises(ModuleNotFoundError, match=r"dpfl\.two has no three"):
        source_digest.source_digest("dpfl.two:three", root=root)


def test_each_dataset_answers_for_its_own_decoder():
    by_decoder = {}
    for name in datasets.names():
        by_decoder.setdefault(datasets.load(name).decoder, set()).add(
            source_digest.source_digest(*datasets.modules(name))
        )
    assert all(len(digests) == 1 for digests in by_decoder.values())
    assert len(set.union(*by_decoder.values())) == len(by_decoder) > 4


@pytest.mark.parametrize("experiment", protocol.names())
def test_training_depends_on_the_packages_that_decide_its_numbers_alone(experiment):
    names = source_digest.closure(protocol.module_name(experiment))
    assert {"dpfl.randomness", "dpfl.accounting.gaussian_dp", "dpfl.experiments.shared.run_table"} <= names
    packages = {name.split(".")[1] for name in names}
    numeric = "accounting mechanisms data features models engine algorithms attacks experiments randomness"
    assert packages <= set(numeric.split())


def test_an_unknown_module_is_refused():
    with pytest.raises(ModuleNotFoundError, match=r"dpfl\.nowhere"):
        source_digest.source_digest("dpfl.nowhere")
