"""Names that docstrings and comments of the package mention are there: a renamed function leaves no dead reference.

Everything is read from the syntax trees; nothing is imported.
"""

import ast
import io
import re
import tokenize
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

import pytest

import dpfl

ROOT = Path(dpfl.__file__).parent
DOTTED = re.compile(r"(?<![\w./<>-])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+(?![\w/(*-]|\.\w)")
QUOTED = re.compile(r"`([A-Za-z]\w*_\w+)`")
FILES = {"bytes", "cff", "csv", "html", "json", "lock", "md", "npz", "pt", "py", "smk", "yaml"}
"""Last parts of names of files."""
ELSEWHERE = {
    *("data.mirror", "training.device"),  # keys of a configuration
    *("my_package.my_module", "decode_x"),  # examples
    *("accountant.history", "make_private", "make_private_with_epsilon"),  # of Opacus
    "xi.u",  # a scalar product
}
"""Names that stand for something outside the package's code."""


class Tree:
    """What the modules of a package bind: the statements of each module, and every identifier in each."""

    def __init__(self, root: Path) -> None:
        files = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(root.rglob("*.py"))}
        self.modules = {self.name(root, path): tree for path, tree in files.items()}
        self.paths = {self.name(root, path): path for path in files}
        self.bound = {name: set(words(tree)) for name, tree in self.modules.items()}
        self.classes = defaultdict(set)
        for tree in self.modules.values():
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    self.classes[node.name] |= members(node)
        data = "\n".join(path.read_text(encoding="utf-8") for path in sorted(root.rglob("*.yaml")))
        self.words = {*re.findall(r"\w+", data), *(word for name in self.bound for word in self.bound[name])}
        self.words |= {part for name in self.modules for part in name.split(".")}

    @staticmethod
    def name(root: Path, path: Path) -> str:
        """Return a file's module, as the package's own name says it."""
        parts = [part for part in path.relative_to(root).with_suffix("").parts if part != "__init__"]
        return ".".join([root.name, *parts])

    def resolves(self, dotted: str) -> bool:
        """Return whether a name from the package's root is a module, or what a module or a class of it binds."""
        parts = dotted.split(".")
        for length in range(len(parts), 0, -1):
            module = ".".join(parts[:length])
            if module in self.modules:
                return self.has(module, parts[length:])
        return False

    def has(self, module: str, rest: list[str]) -> bool:
        """Return whether a module binds a name, and what is named of that where it is a class."""
        if not rest:
            return True
        if rest[0] not in top(self.modules[module]):
            return False
        return len(rest) == 1 or (rest[0] in self.classes and rest[1] in self.classes[rest[0]])

    def dead(self, module: str) -> list[str]:
        """Return the names that a module's docstrings and comments mention and that are nowhere, with their lines."""
        found = []
        for line, text in prose(self.paths[module].read_text(encoding="utf-8"), self.modules[module]):
            found += [f"{line}: {name}" for name in DOTTED.findall(text) if not self.knows(module, name)]
            found += [f"{line}: {name}" for name in QUOTED.findall(text) if name not in self.words | ELSEWHERE]
        return found

    def knows(self, module: str, dotted: str) -> bool:
        """Return whether a dotted name stands for something where it is mentioned."""
        first, *rest = dotted.split(".")
        if rest[-1] in FILES or dotted in ELSEWHERE:
            return True
        if first == module.split(".")[0]:
            return self.resolves(dotted)
        homes = [name for name in self.modules if f".{name}.".endswith(f".{first}.")]
        if any(self.resolves(".".join([home, *rest])) for home in homes):
            return True
        if first in self.classes:
            return rest[0] in self.classes[first]
        if first in self.bound[module]:  # an argument, a variable, or what is imported
            return not homes or first in locals_of(self.modules[module])
        return not homes and find_spec(first) is not None


def words(tree):
    """Yield every identifier of a module, and every word of its texts that are no docstrings."""
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        yield from (value for value in vars(node).values() if isinstance(value, str) and id(node) not in docs)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield from re.findall(r"\w+", node.value)
        if isinstance(node, ast.alias):
            yield from node.name.split(".")


def locals_of(tree):
    """Return the names of arguments and variables of a module."""
    return {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)} | {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def top(tree):
    """Return the names that a module binds: definitions, variables and imports."""
    names = set()
    for node in tree.body:
        for each in ast.walk(node) if not isinstance(node, ast.FunctionDef | ast.ClassDef) else ():
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                names.add(each.id)
            if isinstance(each, ast.alias):
                names.add((each.asname or each.name).split(".")[0])
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
    return names


def members(node):
    """Return the names that a class's body binds, and the attributes that its methods set."""
    names = top(ast.Module(node.body, []))
    return names | {
        each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
    }


def prose(text, tree):
    """Yield each docstring, without its examples, and each comment of a module, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines = node.value.value.splitlines()
            yield node.lineno, "\n".join(line for line in lines if not line.strip().startswith((">>>", "...")))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


@pytest.fixture(scope="module")
def tree():
    return Tree(ROOT)


def test_what_docstrings_and_comments_name_is_there(tree):
    dead = [f"{module}:{each}" for module in tree.modules for each in tree.dead(module)]
    assert not dead, "\n".join(["these names are nowhere; name what is meant:", *dead])


def test_what_contributing_names_is_there(repository):
    text = (repository / "CONTRIBUTING.md").read_text(encoding="utf-8")
    sources = [path for each in ("src", "tests") for path in (repository / each).rglob("*.py")]
    code = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    names = set(re.findall(r"`([A-Za-z_]\w*)`", text)) - {"pyright"}
    dead = {name for name in names if not re.search(rf"\b{name}\b", code)}
    roots = [repository, *(ROOT / part for part in ("", "accounting", "provenance", "reporting"))]
    places = set(re.findall(r"`([\w/]+/(?:\w+\.\w+)?)`", text)) - {"tests/a/test_b.py", "src/dpfl/a/b.py"}
    dead |= {place for place in places if not any((root / place).exists() for root in roots)}
    assert not dead, dead


@pytest.mark.parametrize(
    ("sentence", "dead"),
    [
        ("As dpfl.a.kept does.", None),
        ("As dpfl.a.gone does.", "dpfl.a.gone"),
        ("As dpfl.gone.kept does.", "dpfl.gone.kept"),
        ("As `a.kept` does.", None),
        ("As `a.gone` does.", "a.gone"),
        ("The table (gone_module.kept).", "gone_module.kept"),
        ("`a.Kind.field_of_it` says it.", None),
        ("`Kind.gone` says it.", "Kind.gone"),
        ("See `kept_name`.", None),
        ("See `gone_name`.", "gone_name"),
        ("See config.yaml, np.sum and value.size.", None),
    ],
)
def test_a_dead_name_is_found(tmp_path, sentence, dead):
    package = tmp_path / "dpfl"
    package.mkdir()
    (package / "a.py").write_text("def kept(): ...\nclass Kind:\n    field_of_it: int\nkept_name = 1\n")
    (package / "b.py").write_text(f'"""{sentence}"""\nimport numpy as np\ndef f(value): ...\n# {sentence}\n')
    assert Tree(package).dead("dpfl.b") == ([] if dead is None else [f"1: {dead}", f"4: {dead}"])
