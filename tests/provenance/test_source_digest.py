import shutil
import sys
from dataclasses import replace

import pytest

from dpfl import experiments
from dpfl.data import datasets
from dpfl.data.arrays import build_arrays
from dpfl.data.loading import load_description
from dpfl.grid import configuration, expansion
from dpfl.grid.training_job import Folders
from dpfl.provenance import run_identity, source_digest

FILES = {
    "__init__": "__version__ = '1'\n",
    "a": "from dpfl.files import write\nfrom dpfl.sub import f\n\nwrite(f())\n",
    "c": "x = 1\n",
    "files": "def write(number): ...\n",
    "sub/__init__": "from dpfl.sub.b import f\nfrom dpfl.sub.other import g\n",
    "sub/other": "def g():\n    return 3\n\n\nclass Kind:\n    two = 2\n",
}
CACHED = (
    source_digest.source_digest,
    source_digest._module,
    source_digest._uses,
    source_digest._statement_hash,
)
B_CODE = '''"""Doc."""
from typing import Any
from dpfl.sub.other import Kind

__all__ = ["f"]
LIMIT: int = 3
"""Of something."""


class Size:
    low: int = 1
    kind: Kind | None = None


def f(number: int = 1) -> int:
    """Return it."""
    if number > LIMIT:
        raise ValueError(f"number is {number}, above {LIMIT}")
    Size()
    return number
'''


@pytest.fixture
def package(tmp_path):
    """A package dpfl in which `a` imports `sub.b` through `sub`; returns it and a function that digests `a` anew."""
    (tmp_path / "sub").mkdir()
    for name, text in {**FILES, "sub/b": B_CODE}.items():
        (tmp_path / f"{name}.py").write_text(text)

    def digest():
        for each in CACHED:
            each.cache_clear()
        return source_digest.source_digest("dpfl.a", root=tmp_path)

    yield tmp_path, digest
    for each in CACHED:
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
        ("sub/b", "from dpfl.sub.other import Kind\n",
         "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from dpfl.sub.other import Kind\n"),
        ("sub/b", "    return number", "    return (number)  # as it is"),
        ("sub/b", "    return number", "    assert number is not None\n    return cast(int, number)"),
        ("sub/b", "    Size()", "    ...\n    Size()"),
        ("sub/__init__", "from dpfl.sub.other import g\n", ""),
        ("sub/other", "return 3", "return 4"),
        ("__init__", "'1'", "'2'"),
        ("files", "...", "print(number)"),
        ("a", "from dpfl.files import write", "from dpfl.files import write, write as other"),
        ("c", "1", "2"),
    ],
)  # fmt: skip
def test_what_changes_no_number_does_not_count(package, file, old, new):
    assert not edited(package, file, old, new)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("sub/b", "number: int = 1)", "number: int = 2)"),
        ("sub/b", "LIMIT: int = 3", "LIMIT: int = 4"),
        ("sub/b", "low: int = 1", "low: float = 1"),
        ("sub/b", "ValueError", "KeyError"),
        ("sub/other", "two = 2", "two = 3"),
        ("sub/b", "number > LIMIT", "number >= LIMIT"),
        ("sub/__init__", "from dpfl.sub.b import f", "from dpfl.sub.other import g as f"),
        ("a", "write(f())", "write(f(2))"),
    ],
)
def test_what_can_change_a_number_counts(package, file, old, new):
    assert edited(package, file, old, new)


@pytest.mark.parametrize(
    ("text", "file", "old", "new"),
    [
        # Two names change places: every definition is used as before, by another name.
        ("from dpfl.sub.b import f\nfrom dpfl.sub.other import g\n\nx = f(g())\n", "a",
         "b import f\nfrom dpfl.sub.other import g", "b import f as g\nfrom dpfl.sub.other import g as f"),
        # What a package finds by its __getattr__, and a module that is reached through its package.
        ("from dpfl.lazy import late\n\nlate()\n", "sub/other", "return 3", "return 4"),
        ("from dpfl import sub\n\nsub.other.g()\n", "sub/other", "return 3", "return 4"),
        # A module that is handed on counts whole.
        ("from dpfl import c\n\nprint(c)\n", "c", "x = 1", "x = 2"),
        # What a decorator of ours may register counts if anything of its module is used.
        ("from dpfl.sub.rules import apply\n\napply()\n", "sub/rules", "return 5", "return 6"),
    ],
)  # fmt: skip
def test_no_way_to_reach_a_definition_is_missed(package, text, file, old, new):
    root, _ = package
    (root / "a.py").write_text(text)
    lazy = "def __getattr__(name):\n    from dpfl.sub import other\n\n    return getattr(other, name)\n"
    (root / "lazy.py").write_text(lazy)
    (root / "sub" / "rules.py").write_text(
        "RULES = []\n\n\ndef rule(function):\n    RULES.append(function)\n    return function\n\n\n"
        "@rule\ndef five():\n    return 5\n\n\ndef apply():\n    return RULES[0]()\n"
    )
    assert edited(package, file, old, new)


def test_a_definition_that_moves_to_another_file_changes_nothing(package):
    root, digest = package
    before = digest()
    (root / "sub" / "moved.py").write_text((root / "sub" / "b.py").read_text())
    (root / "sub" / "b.py").unlink()
    (root / "sub" / "__init__.py").write_text("from dpfl.sub.moved import f\n")
    assert digest() == before


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
        for each in CACHED:
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


def closure(code):
    """What a function uses, directly or not, as "module:definition", without GROUND and CALIBRATION."""
    root = source_digest._ROOT
    return {
        f"{module}:{name}"
        for module, index in source_digest._used([code], root, source_digest._left_out(True))
        for name in source_digest._bound(source_digest._module(module, root).tree.body[index])
    }


@pytest.mark.parametrize("experiment", experiments.names())
def test_training_depends_on_the_packages_that_decide_its_numbers_alone(experiment):
    names = closure(run_identity.training_code(experiment))
    assert any(name.startswith("dpfl.grid.run_table:") for name in names)
    modules = {name.partition(":")[0] for name in names}
    assert modules & {"dpfl.randomness", "dpfl.engine.sgd"}
    packages = {name.split(".")[1] for name in modules}
    numeric = "accounting mechanisms data features engine images convex asynchronous attacks grid randomness"
    assert packages <= set(numeric.split())
    left_out = {f"dpfl.accounting.{name}" for name in source_digest.CALIBRATION} | {"dpfl.grid.expansion"}
    assert not modules & left_out


def test_what_a_training_calls_is_in_its_digest(tmp_path):
    """Every function of dpfl that a small training enters, found by the interpreter's own trace of calls."""
    code = run_identity.training_code("fedavg_images")
    config = configuration.resolve({"scale": "demo", "papers": ["bhaskar2025"], "only": {"dataset": ["digits"]}})
    job = next(each for each in expansion.expand(config) if each.name == "digits_cnn_tanh_k10_seed0")
    job = replace(job, cells=job.cells[:2], resources={**job.resources, "memory_gb": 0.5})
    folders = Folders.of(tmp_path, "digits")
    build_arrays("digits", folders.arrays)
    experiment = experiments.load("fedavg_images")
    noise = experiment.calibrate(job, load_description(folders.arrays))
    entered = set()

    def enter(frame, event, _):
        if event == "call" and (module := frame.f_globals.get("__name__", "")).startswith("dpfl."):
            entered.add((module, frame.f_code.co_qualname.partition(".")[0]))

    sys.setprofile(enter)
    try:
        experiment.train(job, folders, noise, None, lambda done, of: None)
    finally:
        sys.setprofile(None)
    ground = tuple(f"dpfl.{name}" for name in source_digest.GROUND)
    own = {(module, name) for module, name in entered if not module.startswith(ground)}
    counted = {f"{module}:{name}" for module, name in own if not name.startswith(("<", "__"))}
    assert len(counted) > 30
    assert counted - closure(code) == set()


def test_an_unknown_module_is_refused():
    with pytest.raises(ModuleNotFoundError, match=r"dpfl\.nowhere"):
        source_digest.source_digest("dpfl.nowhere")
