"""Draw mutants: small faults, each one edit of one file, in the code on whose tests the results rest most.

The operators are cosmic-ray's. First places are drawn, then one fault for each: a `+` has six faults, `True` has one,
and drawing among faults would judge mostly the tests of sums. The draw is addressed: a place's rank is a hash of the
seed, its file and its line's text, so that an edit elsewhere leaves the sample as it is.

Left out by rule, because no test of behaviour can or should see them (`uncounted`, `is_worth_testing`):
- annotations, type aliases, `if TYPE_CHECKING`, and decorators that only declare or remember (`cache`, `override`);
- what is said: error messages (all of a `raise`), warnings, logs, docstrings and other texts, f-strings too;
- guards that no correct caller trips: `assert`, `strict=` of zip, `frozen=` and `slots=` of dataclasses, and the `*` of
  a signature;
- faults that Python itself refuses wherever the line runs: sums turned into bit operations, `==` into `is`;
- edits that leave the syntax tree as it was, or none at all.

Run by the Python that has cosmic-ray (make mutants): draw.py --count 300 --seed 0 drawn.json
"""

import argparse
import ast
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

SUBJECTS = ("accounting", "engine", "images", "mechanisms.py", "provenance/audit", "reporting/rules.py")
"""What is mutated, below src/dpfl."""
FAMILIES = (
    {"Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow"},
    {"RShift", "LShift", "BitOr", "BitAnd", "BitXor"},
    {"Eq", "NotEq", "Lt", "LtE", "Gt", "GtE"},
    {"Is", "IsNot"},
)
"""An operator is replaced by another of its family."""
MUTATED_BY = {
    "operator": "Binary",
    "comparison": "Comparison",
    "factor": "Unary",
    "not_test": "Unary",
    "number": "Number",
}
"""Kinds of nodes, and a part of the names of the operators that mutate them; trying all takes minutes."""
NEVER_MUTATED = {
    "name",
    "newline",
    "string",
    "endmarker",
    "trailer",
    "arglist",
    "atom",
    "atom_expr",
    "suite",
    "expr_stmt",
}
DECLARING = {"cache", "lru_cache", "overload", "override", "runtime_checkable", "final"}
SAYING = {"warnings", "logging", "logger", "print"}
GUARDS = {"strict", "frozen", "slots"}


@dataclass(frozen=True)
class Mutant:
    """One edit: the characters start..end of a file become `text`; `before` and `after` are the lines that change."""

    module: str
    line: int
    before: str
    after: str
    start: int
    end: int
    text: str
    digest: str
    """SHA-256 of the file that is edited."""


@dataclass(frozen=True)
class Place:
    """A position that an operator of cosmic-ray mutates, in a top-level statement of a module."""

    start: int
    """Where the statement begins in the file, in characters; `end` is where it ends."""
    end: int
    line: int
    column: int
    faults: tuple[tuple[str, int], ...]
    """The operator and its how-many-eth occurrence in the statement."""


def uncounted(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a syntax tree inside which no mutant counts (the rule is the module's docstring)."""
    for node in ast.walk(tree):
        if _is_uncounted(node):
            yield node
        elif isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
            yield node.annotation
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield from (each for each in node.decorator_list if _tail(each) in DECLARING)
            if isinstance(node, ast.FunctionDef) and node.returns:
                yield node.returns
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value and _is_type(node.value):
            yield node.value


def _is_uncounted(node: ast.AST) -> bool:
    """Return True for a node that says, guards or declares, whole."""
    match node:
        case ast.Raise() | ast.Assert() | ast.JoinedStr():
            return True
        case ast.If():
            return ast.unparse(node.test).endswith("TYPE_CHECKING")
        case ast.Call():
            return _head(node.func) in SAYING
        case ast.keyword():
            return node.arg in GUARDS
    return False


def _head(function: ast.expr) -> str:
    return ast.unparse(function).split(".")[0]


def _tail(decorator: ast.expr) -> str:
    return ast.unparse(decorator).split("(")[0].split(".")[-1]


def _is_type(value: ast.expr) -> bool:
    """Return True for a union of types, as `int | None`, or a subscripted one."""
    kinds = (ast.BinOp, ast.BitOr, ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.Tuple, ast.Load, ast.List)
    union = isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr)
    return (union or isinstance(value, ast.Subscript)) and all(isinstance(each, kinds) for each in ast.walk(value))


def is_worth_testing(operator: str) -> bool:
    """Return True for an operator of cosmic-ray whose mutants count: of one family, or the removal of a sign or not."""
    if match := re.search(r"Replace(?:Binary|Comparison)Operator_([A-Za-z]+)_([A-Za-z]+)$", operator):
        return any({*match.groups()} <= family for family in FAMILIES)
    return "ReplaceUnaryOperator" not in operator or "_Delete_" in operator


class Counted:
    """The positions of a source text where mutants count; lines from 1, columns in characters from 0."""

    def __init__(self, source: str) -> None:
        self.lines = lines = source.splitlines()

        def position(line: int, column: int) -> tuple[int, int]:  # ast counts bytes
            return line, len(lines[line - 1].encode()[:column].decode())

        self.spans = []
        for node in uncounted(ast.parse(source)):
            line, column = position(node.lineno, node.col_offset)
            at = column - 1 if column and lines[line - 1][column - 1] == "@" else column
            self.spans.append(((line, at), position(node.end_lineno, node.end_col_offset)))

    def __call__(self, line: int, column: int) -> bool:
        is_star = self.lines[line - 1].startswith("*,", column)  # keywords only from here on
        return not is_star and not any(start <= (line, column) < end for start, end in self.spans)


def places(source: str) -> Iterator[Place]:
    """Yield the places of a source text where a mutant counts."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    kinds = {name: get_operator(name) for name in operator_names() if is_worth_testing(name)}
    operators = {name: kind() for name, kind in kinds.items() if not kind.arguments()}
    by_kind = {kind: [each for each in operators.items() if kind in each[0]] for kind in MUTATED_BY.values()}
    specific = {name for found in by_kind.values() for name, _ in found}
    by_kind[""] = [each for each in operators.items() if each[0] not in specific]
    counted, lines = Counted(source), source.splitlines(keepends=True)
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line))
    for statement in ast.parse(source).body:
        first = min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", []))])
        start, end = offsets[first - 1], offsets[statement.end_lineno]
        faults, occurrences = {}, Counter()
        for node in ast_nodes(get_ast(source[start:end])):
            for name, operator in () if node.type in NEVER_MUTATED else by_kind[MUTATED_BY.get(node.type, "")]:
                for (line, column), _ in operator.mutation_positions(node):
                    faults.setdefault((line + first - 1, column), []).append((name, occurrences[name]))
                    occurrences[name] += 1
        yield from (Place(start, end, *at, tuple(found)) for at, found in faults.items() if counted(*at))


def mutate(module: str, source: str, place: Place, operator: str, occurrence: int) -> Mutant | None:
    """Return the mutant of a fault, or None where it does not compile or changes no syntax."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    text = mutate_code(source[place.start : place.end], get_operator(operator)(), occurrence)
    mutated = source[: place.start] + text + source[place.end :]
    try:
        if ast.dump(ast.parse(mutated)) == ast.dump(ast.parse(source)):
            return None
    except SyntaxError:
        return None
    same = next(number for number, (a, b) in enumerate(zip(source, mutated, strict=False)) if a != b)
    most = min(len(source), len(mutated)) - same
    tail = next((count for count in range(most) if source[-1 - count] != mutated[-1 - count]), most)
    end, mutated_end = len(source) - tail, len(mutated) - tail
    first = source.rfind("\n", 0, same) + 1
    line_of = {
        old: old_text[first : _line_end(old_text, stop)]
        for old, old_text, stop in (("before", source, end), ("after", mutated, mutated_end))
    }
    digest = hashlib.sha256(source.encode()).hexdigest()
    lines = {name: " ".join(each.split()) for name, each in line_of.items()}
    return Mutant(module, place.line, **lines, start=same, end=end, text=mutated[same:mutated_end], digest=digest)


def _line_end(text: str, stop: int) -> int:
    found = text.find("\n", max(stop - 1, 0))
    return len(text) if found < 0 else found


def rank(*address: object) -> str:
    """Return what an address is sorted by: 64 hexadecimal digits, uniform over addresses."""
    return hashlib.sha256(repr(address).encode()).hexdigest()


def draw(source: Path, count: int, seed: int) -> Iterator[Mutant]:
    """Yield `count` mutants of the package in folder `source`, in the order of their ranks; fewer if no more exist."""
    files = [found for each in SUBJECTS for found in (source / each).rglob("*.py")]
    files += [source / each for each in SUBJECTS if each.endswith(".py")]
    texts = {file.relative_to(source).as_posix(): file.read_text(encoding="utf-8") for file in sorted(files)}
    ranked = []
    for module, text in texts.items():
        lines, equal = text.splitlines(), Counter()
        for place in places(text):
            words = (module, lines[place.line - 1].strip(), place.column - len(lines[place.line - 1]))
            equal[words] += 1
            ranked.append((rank(seed, *words, equal[words]), module, place))
    for key, module, place in sorted(ranked, key=lambda each: each[0]):
        if count == 0:
            return
        faults = sorted(place.faults, key=lambda fault: rank(key, fault[0], place.faults.index(fault)))
        found = (mutate(module, texts[module], place, *fault) for fault in faults)
        if mutant := next((each for each in found if each), None):
            yield mutant
            count -= 1


def main() -> None:
    """Write the mutants as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("drawn", type=Path)
    options = parser.parse_args()
    source = Path(__file__).parents[2] / "src" / "dpfl"
    drawn = [asdict(each) for each in draw(source, options.count, options.seed)]
    options.drawn.write_text(json.dumps(drawn, indent=1))


if __name__ == "__main__":
    main()
