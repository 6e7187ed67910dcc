"""The mutation run itself, on a small project: what counts, who kills, what is left alone, and that it goes on."""

import hashlib
import json
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCE = '''"""A module of 1 + 1 faults."""

from dataclasses import dataclass
from functools import cache, cached_property

Number = int | float


@dataclass(frozen=True)
class Pair:
    first: int | None = 2

    @cached_property
    def é(self) -> int | float: return 3  


@cache
def mean(values: list[float] | None, *, scale: float = 4) -> float | None:
    assert scale > 0
    if not values:
        raise ValueError(f"{1 + 1} values, {scale * 2}")
    pairs = zip(values, values, strict=True)
    text = f"{1 + scale}"
    return sum(a * b for a, b in pairs) / len(values) ** 0.5
'''


def load(name):
    spec = spec_from_file_location(f"mutants_{name}", HERE / f"{name}.py")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_messages_annotations_guards_and_declarations_do_not_count():
    counted = load("draw").Counted(SOURCE)
    lines = SOURCE.splitlines()

    def counts(text, of, nth=0):
        number = [index for index, line in enumerate(lines) if text in line][nth]
        return counted(number + 1, lines[number].index(of))

    left_out = [
        ("int | float", "|"),
        ("frozen", "True"),
        ("first:", "|"),
        ("def é", "|"),
        ("@cache", "@"),
        ("def mean", "|"),
    ]
    left_out += [
        ("-> float", "| None)"[:1]),
        ("assert", ">"),
        ("raise", "+"),
        ("raise", "*"),
        ("strict", "True"),
        ("def mean", "*,"),
        ("text =", "1"),
    ]
    nth = {"@cache": 1}  # after cached_property
    assert [each for each in left_out if counts(*each, nth.get(each[0], 0))] == []
    kept = [
        ("@dataclass", "@"),
        ("first:", "2"),
        ("@cached_property", "@"),
        ("def é", "3"),
        ("scale: float", "4"),
        ("if not", "not"),
    ]
    kept += [("return sum", "*"), ("return sum", "/"), ("return sum", "0.5")]
    assert [each for each in kept if not counts(*each)] == []


@pytest.mark.parametrize(
    ("operator", "counts"),
    [
        ("core/ReplaceBinaryOperator_Add_Sub", True),
        ("core/ReplaceBinaryOperator_Add_BitOr", False),
        ("core/ReplaceBinaryOperator_BitOr_BitAnd", True),
        ("core/ReplaceComparisonOperator_Lt_LtE", True),
        ("core/ReplaceComparisonOperator_Eq_Is", False),
        ("core/ReplaceComparisonOperator_IsNot_Is", True),
        ("core/ReplaceUnaryOperator_Delete_USub", True),
        ("core/ReplaceUnaryOperator_USub_Invert", False),
        ("core/NumberReplacer", True),
    ],
)
def test_operators_are_replaced_within_their_family(operator, counts):
    assert load("draw").is_worth_testing(operator) == counts


def test_the_tests_of_a_module_are_those_named_after_it(tmp_path):
    names = ["test_rerun.py", "test_rerun_tolerance.py", "test_rerun_run.py", "rerun/test_x.py", "test_reruns.py"]
    for name in names:
        (tmp_path / "tests" / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests" / "images" / name).touch()
    (tmp_path / "src" / "dpfl" / "images").mkdir(parents=True)
    (tmp_path / "src" / "dpfl" / "images" / "rerun_run.py").touch()
    found = load("run").stages(tmp_path / "tests", "images/rerun.py")
    assert found["mirrored"] == tuple(
        f"tests/images/{name}" for name in ["test_rerun.py", "rerun", "test_rerun_tolerance.py"]
    )
    assert found["folder"] == ("tests/images",)
    assert load("run").stages(tmp_path / "tests", "images/other.py") == {"folder": ("tests/images",)}


def test_a_mutant_is_in_the_innermost_function_with_its_decorators_and_defaults():
    function_at = load("run").function_at
    lines = SOURCE.splitlines()

    def at(text):
        number = next(index for index, line in enumerate(lines) if text in line) + 1
        return function_at(SOURCE, {"module": "x.py", "line": number})

    cached, mean = lines.index("    @cached_property") + 1, lines.index("@cache") + 1
    assert at("Number =") == at("@dataclass") == at("first:") == ""
    assert at("@cached_property") == at("def é") == f"x.py:{cached}"
    assert at("def mean") == at("return sum") == f"x.py:{mean}"


def test_comments_and_docstrings_leave_what_a_mutant_is_known_by():
    code_of = load("run").code_of
    assert code_of('"""One."""\nx = 1  # one\ndef f():\n    """Two."""\n    return x\n') == code_of(
        "x = 1\ndef f(): return x\n"
    )
    assert code_of("x = 1\n") != code_of("x = 2\n")


MODULE = """def area(width, height, unit=1):
    while unit > 1:
        unit = unit / 10
    return width * height


def tiny():
    return 1e-9
"""
MIRROR = """from dpfl.images.shapes import area

def test_area():
    assert area(2, 1, 10) == 2
"""
FOLDER = """from dpfl.images.shapes import area

def test_area_of_a_square():
    assert area(3, 3) == 9
"""
CPU_SECONDS = "1"
"""That a mutant's tests may take; here they take a fifth of it at most."""
FAULTS = [("* height", "+ height"), ("* height", "/ height"), ("unit / 10", "unit * 10"), ("1e-9", "1e-8")]


def write_project(folder):
    """Write a project of one module whose tests kill two faults, and its mutants."""
    root = folder / "project"
    for name, text in {
        "src/dpfl/__init__.py": "",
        "src/dpfl/images/__init__.py": "",
        "src/dpfl/images/shapes.py": MODULE,
        "tests/images/test_shapes.py": MIRROR,
        "tests/images/test_squares.py": FOLDER,
        "pytest.ini": "[pytest]\naddopts = -ra\nmarkers =\n    slow\n    slurm\n    workflow\n",
        ".gitignore": "ignored\n",
        "ignored": "private",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run(["git", "init", "-q", root], check=True)
    mutants = []
    for before, after in FAULTS:
        start = MODULE.index(before)
        lines = [
            next(line.strip() for line in text.splitlines() if part in line)
            for text, part in ((MODULE, before), (MODULE.replace(before, after), after))
        ]
        mutants.append(
            {
                "module": "images/shapes.py",
                "line": MODULE[:start].count("\n") + 1,
                "before": lines[0],
                "after": lines[1],
                "start": start,
                "end": start + len(before),
                "text": after,
                "digest": hashlib.sha256(MODULE.encode()).hexdigest(),
            }
        )
    (folder / "drawn.json").write_text(json.dumps(mutants))


def run_mutants(folder):
    """The run as `make mutants` starts it."""
    command = [sys.executable, HERE / "run.py", folder / "drawn.json", "--repository", folder / "project"]
    command += ["--outcomes", folder / "outcomes.jsonl", "--cpu-seconds", CPU_SECONDS]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)


@pytest.fixture
def project(tmp_path):
    """A project before its first run, and the run."""
    write_project(tmp_path)
    return tmp_path / "project", lambda: run_mutants(tmp_path)


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """A project after its first run, which three tests begin with, the run's end, and its sources before the run."""
    folder = tmp_path_factory.mktemp("once")
    write_project(folder)
    sources = {path: path.read_bytes() for path in (folder / "project").rglob("*.py")}
    return folder, run_mutants(folder), sources


@pytest.fixture
def finished(once, tmp_path):
    """A copy of the project after its first run, and the next run."""
    shutil.copytree(once[0], tmp_path, dirs_exist_ok=True)
    return tmp_path / "project", lambda: run_mutants(tmp_path)


def test_mutants_are_killed_by_their_tests_then_the_folders_and_by_time(once):
    folder, done, before = once
    root = folder / "project"
    outcomes = [
        line.partition(": ")[2].split(" -> ")[1].split(" (")[0] for line in done.stdout.splitlines() if " s)" in line
    ]
    assert outcomes == [
        "return width + height: killed by tests/images/test_shapes.py::test_area",
        "return width / height: survived mirrored",
        "unit = unit * 10: killed by time",
        "return 1e-8: survived mirrored",
        "return width / height: killed by tests/images/test_squares.py::test_area_of_a_square",
        "return 1e-8: survived folder",
    ], done.stdout + done.stderr
    assert "4 of 4 tested: 3 killed (2 by mirrored tests), 1 survived" in done.stdout
    assert "score 75.0 % (3 of 4)" in done.stdout and done.returncode == 1
    assert {path: path.read_bytes() for path in root.rglob("*.py")} == before, "only a copy is mutated"


def test_a_run_goes_on_and_tests_survivors_again_when_their_tests_change(finished):
    root, run = finished
    assert " s)" not in run().stdout
    own = root / "tests" / "images" / "test_shapes.py"
    own.write_text(MIRROR + "\ndef test_tiny():\n    from dpfl.images.shapes import tiny\n    assert tiny() == 1e-9\n")
    done = run()
    assert done.stdout.count(" s)") == 1 and "return 1e-8: killed by" in done.stdout
    assert "4 of 4 tested: 4 killed" in done.stdout and done.returncode == 0


@pytest.mark.slow
def test_a_kill_counts_until_its_test_changes(finished):
    root, run = finished
    own = root / "tests" / "images" / "test_shapes.py"
    own.write_text(MIRROR.replace("== 2", "== 2.0"))
    done = run()
    assert done.stdout.count("killed by tests/images/test_shapes.py::test_area") == 1, done.stdout + done.stderr
    own.write_text(MIRROR.replace("area(2, 1, 10) == 2", "area(1, 1)"))
    done = run()
    assert "return width + height: survived mirrored" in done.stdout
    assert "return width + height: killed by tests/images/test_squares.py::test_area_of_a_square" in done.stdout


@pytest.mark.slow
def test_a_test_runs_where_it_calls_the_mutated_function_or_starts_a_process(project):
    root, run = project
    tests = {"calls": "tiny()", "calls_not": "area(1, 1)"}
    text = "import subprocess, sys, pytest\nfrom dpfl.images.shapes import area, tiny\n"
    text += "@pytest.fixture(scope='module')\ndef shared(): return tiny()\n"
    text += "".join(f"def test_{name}(): assert {call}\n" for name, call in tests.items())
    text += "def test_starts(): subprocess.run([sys.executable, '-c', ''], check=True)\n"
    text += "def test_shares(shared): assert shared\n"
    (root / "tests" / "images" / "test_shapes.py").write_text(text)
    run()
    traces = [json.loads(file.read_text()) for file in (root.parent / "traces").iterdir()]
    traced = next(each for each in traces if "tests/images/test_shapes.py::test_calls" in each)
    module = load("run")
    asked = "images/shapes.py:7"
    assert MODULE.splitlines()[6] == "def tiny():"
    chosen = module.Chosen(3.0)
    chosen.take({name: called for name, called in traced.items() if "shares" not in name}, asked)
    assert {name.partition("::test_")[2] for name in chosen.others} == set(), "a shared fixture counts for the file"
    text = text.replace("(scope='module')", "")
    (root / "tests" / "images" / "test_shapes.py").write_text(text)
    before = {file.name for file in (root.parent / "traces").iterdir()}
    run()
    (new,) = (file for file in (root.parent / "traces").iterdir() if file.name not in before)
    chosen = module.Chosen(3.0)
    chosen.take(json.loads(new.read_text()), asked)
    assert {name.partition("::test_")[2] for name in chosen.seconds} == {"calls", "starts", "shares"}
    assert {name.partition("::test_")[2] for name in chosen.others} == {"calls_not"}


def test_nothing_counts_where_the_tests_fail_without_a_mutant(project):
    root, run = project
    (root / "tests" / "images" / "test_shapes.py").write_text("def test_false():\n    assert False\n")
    done = run()
    assert done.returncode == 1 and "without a mutant tests/images/test_shapes.py::test_false fails" in done.stderr
    assert "tested" not in done.stdout


def test_mutants_of_another_text_are_refused(project):
    root, run = project
    (root / "src" / "dpfl" / "images" / "shapes.py").write_text(MODULE + "\n")
    assert "images/shapes.py has changed since the mutants were drawn" in run().stderr


def test_the_draw_is_addressed_and_its_edits_are_of_counted_code(repository, tmp_path):
    """By the Python of `make mutants`, where it is installed."""
    python = repository / ".venv-mutants" / "bin" / "python"
    if not python.exists():
        pytest.skip("make mutants installs cosmic-ray")
    source = tmp_path / "dpfl"
    for folder in ("accounting", "engine", "images", "provenance/audit", "reporting"):
        (source / folder).mkdir(parents=True)
    (source / "mechanisms.py").write_text(SOURCE)
    (source / "reporting" / "rules.py").write_text("LIMIT = 5\n")
    code = (
        "import json, sys; from dataclasses import asdict; from pathlib import Path; import draw\n"
        "print(json.dumps([asdict(each) for each in draw.draw(Path(sys.argv[1]), 100, int(sys.argv[2]))]))"
    )

    def drawn(seed):
        command = [python, "-c", code, source, str(seed)]
        ended = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=True)
        return json.loads(ended.stdout)

    first = drawn(0)
    edits = [(each["before"], each["after"]) for each in first]
    assert all(before != after for before, after in edits)
    assert not [each for each in edits if each[0].startswith(("raise", "assert", "Number", "@cache"[:7] + "\n"))]
    assert any(before.startswith("LIMIT") for before, _ in edits)
    places = {(each["module"], each["start"]) for each in first}
    assert len(places) == len(first) >= 8
    assert drawn(0) == first != drawn(1)
    (source / "reporting" / "rules.py").write_text("\nOTHER = 6\nLIMIT = 5\n")
    again = [(each["before"], each["after"]) for each in drawn(0)]
    assert [each for each in again if "OTHER" not in each[0]] == edits, "an edit elsewhere leaves the sample as it is"
