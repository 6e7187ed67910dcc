"""Test the mutants that draw.py drew, on a copy of the tree, and print the mutation score.

Each mutant is tested by the tests that mirror its file (if there are none, by the tests of its folder that import from
it). The mutants that survive are then tested by the other tests of their folder. A test runs only if it calls the
mutated function without the mutant (a trace of every test file says so), the quickest files first; a mutant outside
functions is tested by all. A test that fails, or takes far more processor time than without the mutant, kills it; it is
run without the mutant too, and must pass. Each run of tests is a process of its own, forked from one that has imported
the other libraries once.

outcomes.jsonl keeps what is known of each mutant, beside this file. An outcome counts for the code of the mutated file
that it was measured on, whatever its comments; a survivor's also for its tests, and a killed mutant's for the test that
killed it.
So a run that was stopped goes on. Exit status 1: a score below 92 %, or an explanation in explained.yaml for a mutant
that the tests kill.

python tests/mutants/run.py .mutants/drawn.json
"""

import argparse
import ast
import builtins
import contextlib
import hashlib
import importlib
import json
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.machinery import SourceFileLoader
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import CodeType

import pytest
import yaml

TARGET_PCT = 92
FOLDERS = {
    "accounting": ["accounting"],
    "engine": ["engine"],
    "images": ["images"],
    "mechanisms.py": ["engine", "convex"],
    "provenance": ["provenance/audit"],
    "reporting": ["reporting"],
}
"""The folders below tests that test a subject, by the first part of its path."""
MEMORY_BYTES = 12 * 2**30
CPU_SECONDS, CPU_FACTOR = 20, 4
"""With a mutant a test may take so many processor seconds, and that factor of what it takes without."""
WALL_SECONDS = 3600
"""For tests that wait and compute nothing."""
NOTE = "__note__"
"""The built-in function by which a function of the package notes its call."""
ANOTHER_PROCESS = "another process"
"""Called by a test that starts a process: it may call anything there."""
SELECTED = "not slow and not slurm and not workflow"


@dataclass
class Ended:
    """The end of a run of tests."""

    passed: bool
    failed: str
    """The test that failed, or the file that could not be collected; empty if there is none."""
    seconds: float
    """Processor seconds."""
    is_late: bool
    """Whether the run was ended for the time that it took."""
    traced: dict[str, tuple[float, list[str]]]
    """Processor seconds of each test and what it called, if a `Tracer` was there."""


@dataclass
class Tree:
    """A copy of the checkout in which files are mutated; `folder` holds it and what its tests write."""

    folder: Path
    traces: Path
    """Where the traces of test files are kept."""
    cpu_seconds: float = CPU_SECONDS
    sound: set[str] = field(default_factory=set)
    """The tests that are known to pass alone without a mutant."""
    mutated: int = 0
    """Number of the mutant at work."""

    def __post_init__(self) -> None:
        self.root = self.folder / "tree"
        self.source = self.root / "src" / "dpfl"
        self.log, self.said = self.folder / "log", self.folder / "said"

    def run(self, tests: list[str], cpu_seconds: float, *plugins: object, options: tuple[str, ...] = ()) -> Ended:
        """Run tests in a process of their own."""
        self.said.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            _run_tests(self, [*options, *tests], int(cpu_seconds), plugins)
        ends = time.monotonic() + WALL_SECONDS
        while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None and time.monotonic() < ends:
            time.sleep(0.05)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # the child, or what it left behind
        _, status, used = os.wait4(child, 0)
        said = json.loads(self.said.read_text()) if self.said.exists() else {"failed": "", "modules": [], "traced": {}}
        _import(said["modules"])
        is_late = os.WIFSIGNALED(status) and os.WTERMSIG(status) in {signal.SIGXCPU, signal.SIGKILL}
        passed = os.WIFEXITED(status) and os.WEXITSTATUS(status) in {0, pytest.ExitCode.NO_TESTS_COLLECTED}
        return Ended(passed, said["failed"], used.ru_utime + used.ru_stime, is_late, said["traced"])

    def demand(self, ended: Ended, tests: list[str]) -> None:
        """Stop everything unless tests passed without a mutant."""
        if not ended.passed:
            sys.exit(f"mutants: without a mutant {ended.failed or tests} fails:\n{self.log.read_text()[-3000:]}")

    @cached_property
    def digest(self) -> str:
        """Of the package without a mutant."""
        texts = [file.read_bytes() for file in sorted(self.source.rglob("*.py"))]
        return hashlib.sha256(b"".join(texts)).hexdigest()

    def traced(self, test_file: str) -> dict[str, tuple[float, list[str]]]:
        """Return the processor seconds of each test of a file without a mutant, and what it calls."""
        digests = self.digest + digest_of(self.root / "tests", (test_file,))
        kept = self.traces / hashlib.sha256(digests.encode()).hexdigest()
        if not kept.exists():
            ended = self.run([test_file], WALL_SECONDS, Tracer(self.source))
            self.demand(ended, [test_file])
            self.traces.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(ended.traced))
        return json.loads(kept.read_text())

    def chosen(self, mutant: dict, stage: str) -> "Chosen":
        """Return the tests of a stage that a mutant can make fail, without the tests of earlier stages."""
        function = function_at((self.source / mutant["module"]).read_text(encoding="utf-8"), mutant)
        files = {}
        for name, paths in stages(self.root / "tests", mutant["module"]).items():
            found = [file for path in paths for file in (self.root / path).rglob("test_*.py")]
            found += [self.root / path for path in paths if path.endswith(".py")]
            files[name] = {str(file.relative_to(self.root)) for file in found}
        chosen = Chosen(self.cpu_seconds)
        for file in sorted(files[stage] - (files.get("mirrored", set()) if stage != "mirrored" else set())):
            chosen.take(self.traced(file), function)
        return chosen

    def survives(self, mutant: dict, stage: str) -> Ended:
        """Test a mutant by the tests of a stage; what kills it passes without it."""
        chosen = self.chosen(mutant, stage)
        if not chosen.seconds:
            return Ended(True, "", 0.0, False, {})
        file, limit = self.source / mutant["module"], self.cpu_seconds + CPU_FACTOR * sum(chosen.seconds.values())
        text, known = file.read_text(encoding="utf-8"), file.stat()
        self.mutated += 1
        try:
            file.write_text(edited(text, mutant), encoding="utf-8")
            os.utime(file, (self.mutated, self.mutated))  # bytecode is known by time and size: no two share theirs
            ended = self.run(chosen.files(), limit, chosen)
        finally:
            file.write_text(text, encoding="utf-8")
            os.utime(file, ns=(known.st_atime_ns, known.st_mtime_ns))
        if not ended.passed and not ended.is_late and ended.failed not in self.sound:
            options = ("--collect-only",) * (not ended.failed.partition("::")[2])
            alone = [ended.failed] if ended.failed else chosen.files()
            self.demand(self.run(alone, WALL_SECONDS, options=options), alone)
            self.sound.add(ended.failed)
        return ended


class Witness:
    """A plugin of pytest that keeps the first test that fails."""

    failed = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a failed test."""
        self.failed = self.failed or (report.nodeid if report.failed else "")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep a file that cannot be collected."""
        self.failed = self.failed or (report.nodeid if report.failed else "")


class Tracer:
    """A plugin of pytest that notes which functions of the package each test calls, as module:line.

    What is called while a file is collected, or by a fixture that tests share, counts for every test of the file.
    """

    def __init__(self, source: Path) -> None:
        self.prefix, self.tests, self.shared = f"{source}/", {}, set()
        self.called = self.shared

    def start(self) -> None:
        """Have every function of the package that is imported from here on, and every process, note its call."""
        is_mine, compiled = (lambda path: path.startswith(self.prefix)), SourceFileLoader.get_code

        def get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
            path = loader.get_filename(name)
            return self._code(path) if is_mine(path) else compiled(loader, name)

        def noted(function: Callable) -> Callable:
            return lambda *given, **named: self.called.add(ANOTHER_PROCESS) or function(*given, **named)

        SourceFileLoader.get_code = get_code
        setattr(builtins, NOTE, lambda name: self.called.add(name))
        subprocess.Popen.__init__ = noted(subprocess.Popen.__init__)
        BaseProcess.start = noted(BaseProcess.start)

    def _code(self, path: str) -> CodeType:
        """Return the code of a module whose functions note their calls first, after the docstring."""
        tree = ast.parse(Path(path).read_bytes())
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                note = ast.parse(f"{NOTE}('{path.removeprefix(self.prefix)}:{first_line(node)}')").body[0]
                ast.increment_lineno(note, node.body[0].lineno - 1)
                node.body.insert(ast.get_docstring(node) is not None, note)
        return compile(tree, path, "exec", dont_inherit=True)

    def pytest_collection_finish(self) -> None:
        """Forget the processes that a library started while it was imported."""
        self.shared.discard(ANOTHER_PROCESS)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note the calls and the seconds of a test."""
        self.called, began = set(), time.process_time()
        try:
            return (yield)
        finally:
            self.tests[item.nodeid] = (time.process_time() - began, self.called)
            self.called = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef) -> Generator[None, object, object]:
        """Note the calls of a fixture for all tests that may share it."""
        own = self.called
        self.called = own if fixturedef.scope == "function" else self.shared
        try:
            return (yield)
        finally:
            self.called = own

    def found(self) -> dict[str, tuple[float, list[str]]]:
        """Return the seconds of each test and what it called."""
        return {name: (seconds, sorted(called | self.shared)) for name, (seconds, called) in self.tests.items()}


class Chosen:
    """A plugin of pytest that runs the tests that a mutant can make fail, the quickest files first."""

    def __init__(self, cpu_seconds: float) -> None:
        self.cpu_seconds, self.seconds, self.others = cpu_seconds, {}, set()

    def take(self, traced: dict[str, tuple[float, list[str]]], function: str) -> None:
        """Take the tests of a file that call a function, all if it is empty."""
        for name, (seconds, called) in traced.items():
            if not function or function in called or ANOTHER_PROCESS in called:
                self.seconds[name] = seconds
            else:
                self.others.add(name)

    def files(self) -> list[str]:
        """Return the files of the tests, the quickest first."""
        by_file = Counter()
        for name, seconds in self.seconds.items():
            by_file[name.partition("::")[0]] += seconds
        return sorted(by_file, key=by_file.__getitem__)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out the other tests and sort; a test that the trace did not see runs."""
        files = self.files()
        places = {name: (files.index(name.partition("::")[0]), seconds) for name, seconds in self.seconds.items()}
        kept = [item for item in items if item.nodeid not in self.others]
        items[:] = sorted(kept, key=lambda item: places.get(item.nodeid, (len(files), 0.0)))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Limit the processor time of a test that the trace saw."""
        if nodeid in self.seconds:
            ends = time.process_time() + self.cpu_seconds + CPU_FACTOR * self.seconds[nodeid]
            most = resource.getrlimit(resource.RLIMIT_CPU)[1]
            resource.setrlimit(resource.RLIMIT_CPU, (min(math.ceil(ends), most), most))


def _run_tests(tree: Tree, arguments: list[str], cpu_seconds: int, plugins: tuple[object, ...]) -> None:
    """In a forked process: run tests on the copy and end with status 0 if all passed; never returns."""
    status, before = 9, set(sys.modules)
    try:
        os.setsid()
        os.chdir(tree.root)
        log = os.open(tree.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 5))
        sys.path.insert(0, str(tree.root / "src"))
        environment = {"PYTHONPATH": str(tree.root / "src"), "OMP_NUM_THREADS": "1", "TMPDIR": str(tree.folder)}
        os.environ.update(environment)
        sys.dont_write_bytecode = False  # the next mutant need not compile again what both have
        tempfile.tempdir, witness = None, Witness()
        tracer = next((each for each in plugins if isinstance(each, Tracer)), None)
        if tracer:
            tracer.start()
        fixed = ["-x", "-q", "-p", "no:cacheprovider", "--basetemp", str(tree.folder / "pytest"), "-m", SELECTED]
        status = int(pytest.main([*fixed, *arguments], plugins=[witness, *plugins]))
        mine = getattr(sys.modules.get("dpfl"), "__file__", None)
        if mine and not Path(mine).is_relative_to(tree.root):
            witness.failed = f"the import of dpfl from {mine}"
        said = {"failed": witness.failed, "modules": [*sys.modules.keys() - before]}
        tree.said.write_text(json.dumps({**said, "traced": tracer.found() if tracer else {}}))
    finally:
        sys.stdout.flush()
        os._exit(status)


def _import(names: list[str]) -> None:
    """Import the libraries among modules, so that forks have them; never the package or a test."""
    for name in sorted(names):
        found = name if name.split(".")[0] not in {"dpfl", "tests", "conftest", "__main__"} else ""
        if found and found not in sys.modules and not found.startswith(("_pytest", "pytest", "test_")):
            try:
                importlib.import_module(found)
            except Exception:
                continue  # made by a test


def edited(text: str, mutant: dict) -> str:
    """Return a file's text with a mutant's edit; the file must be the one that it was drawn from."""
    if hashlib.sha256(text.encode()).hexdigest() != mutant["digest"]:
        sys.exit(f"mutants: {mutant['module']} has changed since the mutants were drawn; draw again")
    return text[: mutant["start"]] + mutant["text"] + text[mutant["end"] :]


def mirrored(tests: Path, module: str) -> list[str]:
    """Return the tests that mirror a module, relative to `tests`: a/test_b.py, a/test_b_subject.py and folder a/b."""
    place, source = Path(module).with_suffix(""), tests.parent / "src" / "dpfl"
    found = [tests / place.parent / f"test_{place.name}.py", tests / place]
    for each in sorted((tests / place.parent).glob(f"test_{place.name}_*.py")):
        words = each.stem.removeprefix("test_").split("_")
        longer = ("_".join(words[:count]) for count in range(len(place.name.split("_")) + 1, len(words) + 1))
        if not any((source / place.parent / f"{name}.py").exists() for name in longer):
            found.append(each)
    return [str(path.relative_to(tests)) for path in found if path.exists()]


def stages(tests: Path, module: str) -> dict[str, tuple[str, ...]]:
    """Return the sets of tests that a mutant of a module must survive, by stage; paths from the root of the tree."""
    found = {"mirrored": mirrored(tests, module), "folder": FOLDERS[module.split("/")[0]]}
    return {stage: tuple(f"tests/{name}" for name in names) for stage, names in found.items() if names}


def first_line(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the first line of a function, decorators included."""
    return min([node.lineno, *(each.lineno for each in node.decorator_list)])


def function_at(text: str, mutant: dict) -> str:
    """Return the innermost function that a mutant is in, as `Tracer` names it; empty for one outside functions."""
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lines = {first_line(node): node.end_lineno for node in found}
    around = [first for first, last in lines.items() if first <= mutant["line"] <= last]
    return f"{mutant['module']}:{max(around)}" if around else ""


@cache
def digest_of(tests: Path, paths: tuple[str, ...]) -> str:
    """Return a digest of test files and of what fixtures they share."""
    found = [file for path in paths for file in [tests.parent / path, *(tests.parent / path).rglob("*.py")]]
    files = {file for file in found if file.is_file()}
    shared = {above / "conftest.py" for file in files for above in file.parents if above.is_relative_to(tests)}
    files |= {file for file in shared if file.is_file()}
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(files))).hexdigest()


@cache
def digest_of_test(tests: Path, name: str) -> str:
    """Return a digest of one test and what its file has besides tests and imports; empty for what is no test."""
    path, _, rest = name.partition("::")
    file, test = tests.parent / path, rest.partition("[")[0]
    if not test or not file.is_file():
        return ""

    def counts(node: ast.stmt) -> bool:
        is_other = getattr(node, "name", "").startswith("test_") and node.name != test
        return not is_other and not isinstance(node, ast.Import | ast.ImportFrom)

    kept = [ast.unparse(node) for node in ast.parse(file.read_text(encoding="utf-8")).body if counts(node)]
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()


def copy_tree(repository: Path, root: Path) -> None:
    """Copy the files that git tracks or would track."""
    listed = ["git", "-C", str(repository), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, capture_output=True, check=True, text=True).stdout.split("\0"):
        if name and (repository / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(repository / name, root / name)


class Outcomes:
    """What is known of mutants, in a file of JSON lines: the last line of a mutant and a stage counts."""

    def __init__(self, file: Path, tests: Path) -> None:
        self.file, self.tests, self.known, self.names = file, tests, {}, {}
        for line in file.read_text().splitlines() if file.exists() else ():
            self._take(json.loads(line))

    def name_of(self, mutant: dict) -> str:
        """Return what a mutant is known by: its module's code with the edit, comments and docstrings aside."""
        place = mutant["module"], mutant["start"], mutant["end"], mutant["text"]
        if place not in self.names:
            text = (self.tests.parent / "src" / "dpfl" / mutant["module"]).read_text(encoding="utf-8")
            words = f"{mutant['module']} {code_of(edited(text, mutant))}"
            self.names[place] = hashlib.sha256(words.encode()).hexdigest()[:16]
        return self.names[place]

    def _take(self, line: dict) -> None:
        self.known.setdefault(line["mutant"], {})[line["stage"]] = line

    def add(self, mutant: dict, stage: str, paths: tuple[str, ...], by: str) -> None:
        """Take and write what killed a mutant at a stage, empty for nothing."""
        digest = digest_of_test(self.tests, by) if by else digest_of(self.tests, paths)
        edit = f"{mutant['before']} -> {mutant['after']}"
        line = {"mutant": self.name_of(mutant), "module": mutant["module"], "edit": edit, "stage": stage, "by": by}
        self._take(line | {"tests": digest})
        with self.file.open("a") as file:
            file.write(json.dumps(line | {"tests": digest}) + "\n")

    def killed(self, mutant: dict) -> str:
        """Return the stage that killed a mutant by a test that is still the same; empty if there is none."""
        lines = self.known.get(self.name_of(mutant), {}).values()
        kills = (line for line in lines if line["by"])
        return next((each["stage"] for each in kills if each["tests"] == digest_of_test(self.tests, each["by"])), "")

    def survived(self, mutant: dict, stage: str, paths: tuple[str, ...]) -> bool:
        """Return whether a mutant survived a stage whose tests are still the same."""
        line = self.known.get(self.name_of(mutant), {}).get(stage, {"by": "unknown"})
        return not line["by"] and line["tests"] == digest_of(self.tests, paths)

    def is_tested(self, mutant: dict) -> bool:
        """Return whether a mutant was killed, or survived some stage."""
        paths = stages(self.tests, mutant["module"])
        return bool(self.killed(mutant)) or any(self.survived(mutant, *stage) for stage in paths.items())


def code_of(text: str) -> str:
    """Return the syntax tree of a file as text, without docstrings: what comments and layout do not change."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not (isinstance(each, ast.Expr) and _is_text(each.value))]
    return ast.dump(tree)


def _is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def run_all(mutants: list[dict], tree: Tree, outcomes: Outcomes) -> None:
    """Test the mutants, first all by the tests of the first stage, which are the quickest."""
    for stage in ("mirrored", "folder"):
        for number, mutant in enumerate(mutants, 1):
            paths = stages(outcomes.tests, mutant["module"]).get(stage, ())
            if not paths or outcomes.killed(mutant) or outcomes.survived(mutant, stage, paths):
                continue
            ended = tree.survives(mutant, stage)
            by = "" if ended.passed else "time" if ended.is_late else ended.failed or "import"
            outcomes.add(mutant, stage, paths, by)
            where = f"{mutant['module']}:{mutant['line']}: {mutant['before']} -> {mutant['after']}"
            outcome = f"killed by {by}" if by else f"survived {stage}"
            print(f"{number}/{len(mutants)} {where}: {outcome} ({ended.seconds:.1f} s)", flush=True)


def report(mutants: list[dict], outcomes: Outcomes, explained: list[dict]) -> bool:
    """Print the score and the survivors; return whether the score is good and the explanations are of survivors."""
    tested = [mutant for mutant in mutants if outcomes.is_tested(mutant)]
    killed = [mutant for mutant in tested if outcomes.killed(mutant)]
    reasons = {tuple(each[key] for key in ("module", "before", "after")): each["because"] for each in explained}
    named = {
        outcomes.name_of(mutant): reasons.get((mutant["module"], mutant["before"], mutant["after"]))
        for mutant in tested
    }
    alive = [mutant for mutant in tested if mutant not in killed]
    wrong = [mutant for mutant in killed if named[outcomes.name_of(mutant)]]
    first = sum(outcomes.killed(mutant) == "mirrored" for mutant in killed)
    equal = sum(bool(named[outcomes.name_of(mutant)]) for mutant in alive)
    counted = len(tested) - equal
    for mutant in alive:
        reason = named[outcomes.name_of(mutant)] or "not explained"
        print(f"survivor: {mutant['module']}:{mutant['line']}: {mutant['before']} -> {mutant['after']}: {reason}")
    for mutant in wrong:
        print(f"explained, but killed: {mutant['module']}: {mutant['before']} -> {mutant['after']}")
    score_pct = 100 * len(killed) / counted if counted else 0.0
    killed_by = f"{len(killed)} killed ({first} by mirrored tests)"
    print(f"{len(tested)} of {len(mutants)} tested: {killed_by}, {len(alive)} survived, {equal} of them explained")
    print(f"score {score_pct:.1f} % ({len(killed)} of {counted}); at least {TARGET_PCT} % is asked for")
    return score_pct >= TARGET_PCT and not wrong


def main() -> None:
    """Test the mutants of a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("drawn", type=Path)
    parser.add_argument("--outcomes", type=Path, default=Path(__file__).with_name("outcomes.jsonl"))
    parser.add_argument("--repository", type=Path, default=Path(__file__).parents[2], help="(for tests)")
    parser.add_argument(
        "--cpu-seconds", type=float, default=CPU_SECONDS, help="that a mutant's tests may take, or more"
    )
    options = parser.parse_args()
    mutants = json.loads(options.drawn.read_text())
    explained = yaml.safe_load(Path(__file__).with_name("explained.yaml").read_text()) or []
    with tempfile.TemporaryDirectory(prefix="dpfl-mutants-") as name:
        tree = Tree(Path(name), options.drawn.with_name("traces"), options.cpu_seconds)
        copy_tree(options.repository, tree.root)
        outcomes = Outcomes(options.outcomes, tree.root / "tests")
        run_all(mutants, tree, outcomes)
        sys.exit(not report(mutants, outcomes, explained))


if __name__ == "__main__":
    main()
