"""Test the mutants that draw.py drew, on a copy of the tree, and print the mutation score.

Each mutant is tested by the tests that mirror its file (if there are none, by those of its folder that import from it);
all that survive, then, by the tests of their folder. A test that fails, or takes far more processor time than without
the mutant, kills it; it is run without the mutant too, and must pass. Each run of tests is a process of its own, forked
from one that has imported the other libraries once.

The results so far stand in a file beside the mutants: a run that was stopped goes on, a killed mutant stays killed, and
a survivor is tested again once its tests have changed. Exit status 1: a score below 92 %, or an explanation in
explained.yaml for a mutant that the tests kill.

python tests/mutants/run.py .mutants/drawn.json
"""

import argparse
import contextlib
import hashlib
import importlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

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
FILE_BYTES = 4 * 2**30
CPU_SECONDS, CPU_FACTOR = 60, 4
"""Processor seconds that a mutant's tests may take, or that factor of what they take without it where that is more."""
WALL_SECONDS = 3600
"""For tests that wait and compute nothing."""
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


@dataclass
class Tree:
    """A copy of the checkout in which files are mutated; `folder` holds it and what its tests write."""

    folder: Path
    cpu_seconds: float = CPU_SECONDS
    sound: set[str] = field(default_factory=set)
    """The tests that are known to pass without a mutant."""
    limits: dict[tuple[str, ...], float] = field(default_factory=dict)
    """Processor seconds that sets of tests may take, where `cpu_seconds` are too few."""
    mutated: int = 0
    """Number of the mutant at work."""

    def __post_init__(self) -> None:
        self.root = self.folder / "tree"
        self.source = self.root / "src" / "dpfl"
        self.log, self.said = self.folder / "log", self.folder / "said"

    def run(self, tests: tuple[str, ...], cpu_seconds: float, *options: str) -> Ended:
        """Run tests in a process of their own."""
        self.said.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            _run_tests(self, [*options, *tests], int(cpu_seconds))
        ends = time.monotonic() + WALL_SECONDS
        while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None and time.monotonic() < ends:
            time.sleep(0.05)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # the child, or what it left behind
        _, status, used = os.wait4(child, 0)
        said = json.loads(self.said.read_text()) if self.said.exists() else {"failed": "", "modules": []}
        _import(said["modules"])
        is_late = os.WIFSIGNALED(status) and os.WTERMSIG(status) in {signal.SIGXCPU, signal.SIGKILL}
        return Ended(status == 0, said["failed"], used.ru_utime + used.ru_stime, is_late)

    def confirm(self, tests: tuple[str, ...], ended: Ended, limit: float) -> None:
        """Stop everything unless what failed with a mutant passes without one."""
        if ended.is_late:
            alone = self.run(tests, 100 * limit)
            self.limits[tests] = max(limit, CPU_FACTOR * alone.seconds)
        elif ended.failed in self.sound:
            return
        else:
            options = ["--collect-only"] * (not ended.failed.partition("::")[2])
            alone = self.run((ended.failed,) if ended.failed else tests, 100 * limit, *options)
        if not alone.passed:
            sys.exit(f"mutants: without a mutant {ended.failed or tests} fails:\n{self.log.read_text()[-3000:]}")
        self.sound.add(ended.failed)

    def survives(self, mutant: dict, tests: tuple[str, ...]) -> Ended:
        """Test a mutant; what kills it passes without it."""
        file, limit = self.source / mutant["module"], self.limits.get(tests, self.cpu_seconds)
        text, known = file.read_text(encoding="utf-8"), file.stat()
        self.mutated += 1
        try:
            file.write_text(edited(text, mutant), encoding="utf-8")
            os.utime(file, (self.mutated, self.mutated))  # bytecode is known by time and size: no two share theirs
            ended = self.run(tests, limit)
        finally:
            file.write_text(text, encoding="utf-8")
            os.utime(file, ns=(known.st_atime_ns, known.st_mtime_ns))
        if not ended.passed:
            self.confirm(tests, ended, limit)
        if ended.is_late and self.limits[tests] > limit:
            return self.survives(mutant, tests)
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


def _run_tests(tree: Tree, arguments: list[str], cpu_seconds: int) -> None:
    """In a forked process: run tests on the copy and end with status 0 if all passed; never returns."""
    status, before = 9, set(sys.modules)
    try:
        os.setsid()
        os.chdir(tree.root)
        log = os.open(tree.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 5))
        sys.path.insert(0, str(tree.root / "src"))
        environment = {"PYTHONPATH": str(tree.root / "src"), "OMP_NUM_THREADS": "1", "TMPDIR": str(tree.folder)}
        os.environ.update(environment)
        sys.dont_write_bytecode = False  # the next mutant need not compile again what both have
        tempfile.tempdir, witness = None, Witness()
        fixed = ["-x", "-q", "-p", "no:cacheprovider", "--basetemp", str(tree.folder / "pytest"), "-m", SELECTED]
        status = int(pytest.main([*fixed, *arguments], plugins=[witness]))
        mine = getattr(sys.modules.get("dpfl"), "__file__", None)
        if mine and not Path(mine).is_relative_to(tree.root):
            witness.failed = f"the import of dpfl from {mine}"
        tree.said.write_text(json.dumps({"failed": witness.failed, "modules": [*sys.modules.keys() - before]}))
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


def importing(tests: Path, module: str) -> list[str]:
    """Return the tests of a module's folder that import from it, relative to `tests`."""
    place = Path(module).with_suffix("")
    asked = f"from dpfl.{'.'.join(place.parts)} import "
    files = sorted((tests / place.parent).glob("test_*.py"))
    return [str(path.relative_to(tests)) for path in files if asked in path.read_text(encoding="utf-8")]


def stages(tests: Path, module: str) -> dict[str, tuple[str, ...]]:
    """Return the sets of tests that a mutant of a module must survive, by stage; paths from the root of the tree."""
    named = mirrored(tests, module)
    found = {
        "mirrored": named,
        "importing": [] if named else importing(tests, module),
        "folder": FOLDERS[module.split("/")[0]],
    }
    return {stage: tuple(f"tests/{name}" for name in names) for stage, names in found.items() if names}


def digest_of(tests: Path, paths: tuple[str, ...]) -> str:
    """Return a digest of test files and of what fixtures they share."""
    found = [file for path in paths for file in [tests.parent / path, *(tests.parent / path).rglob("*.py")]]
    files = sorted({*(file for file in found if file.is_file()), *tests.rglob("conftest.py")})
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def copy_tree(repository: Path, root: Path) -> None:
    """Copy the files that git tracks or would track."""
    listed = ["git", "-C", str(repository), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, capture_output=True, check=True, text=True).stdout.split("\0"):
        if name and (repository / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(repository / name, root / name)


class Results:
    """What is known of mutants, in a file of JSON lines: the last line of a mutant and a stage counts."""

    def __init__(self, file: Path) -> None:
        self.file, self.known = file, {}
        for line in file.read_text().splitlines() if file.exists() else ():
            self._take(json.loads(line))

    def _take(self, line: dict) -> None:
        self.known.setdefault(line["mutant"], {})[line["stage"]] = line

    def add(self, line: dict) -> None:
        """Take and write a result."""
        self._take(line)
        with self.file.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def killed(self, key: str) -> bool:
        """Return whether a stage killed the mutant."""
        return any(not line["survived"] for line in self.known.get(key, {}).values())

    def survived(self, key: str, stage: str, digest: str) -> bool:
        """Return whether the mutant survived a stage whose tests are still the same."""
        line = self.known.get(key, {}).get(stage, {})
        return line.get("survived", False) and line["tests"] == digest


def name_of(mutant: dict) -> str:
    """Return what a mutant is known by: its edit and the file that it edits."""
    return hashlib.sha256(
        json.dumps([mutant[key] for key in ("module", "digest", "start", "end", "text")]).encode()
    ).hexdigest()


def run_all(mutants: list[dict], repository: Path, tree: Tree, results: Results) -> None:
    """Test the mutants, first all by the tests of the first stage, which are the quickest."""
    for stage in ("mirrored", "importing", "folder"):
        for number, mutant in enumerate(mutants, 1):
            tests, key = stages(repository / "tests", mutant["module"]).get(stage, ()), name_of(mutant)
            digest = digest_of(repository / "tests", tests)
            if not tests or results.killed(key) or results.survived(key, stage, digest):
                continue
            ended = tree.survives(mutant, tests)
            by = "" if ended.passed else "time" if ended.is_late else ended.failed or "import"
            results.add({"mutant": key, "stage": stage, "survived": ended.passed, "by": by, "tests": digest})
            where = f"{mutant['module']}:{mutant['line']}: {mutant['before']} -> {mutant['after']}"
            outcome = f"killed by {by}" if by else f"survived {stage}"
            print(f"{number}/{len(mutants)} {where}: {outcome} ({ended.seconds:.1f} s)", flush=True)


def report(mutants: list[dict], results: Results, explained: list[dict]) -> bool:
    """Print the score and the survivors; return whether the score is good and the explanations are of survivors."""
    tested = [mutant for mutant in mutants if name_of(mutant) in results.known]
    killed = [mutant for mutant in tested if results.killed(name_of(mutant))]
    reasons = {tuple(each[key] for key in ("module", "before", "after")): each["because"] for each in explained}
    named = {name_of(mutant): reasons.get((mutant["module"], mutant["before"], mutant["after"])) for mutant in tested}
    alive = [mutant for mutant in tested if mutant not in killed]
    wrong = [mutant for mutant in killed if named[name_of(mutant)]]
    first = sum(not results.known[name_of(mutant)].get("mirrored", {"survived": True})["survived"] for mutant in killed)
    equal = sum(bool(named[name_of(mutant)]) for mutant in alive)
    counted = len(tested) - equal
    for mutant in alive:
        reason = named[name_of(mutant)] or "not explained"
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
    parser.add_argument("--repository", type=Path, default=Path(__file__).parents[2], help="(for tests)")
    parser.add_argument(
        "--cpu-seconds", type=float, default=CPU_SECONDS, help="that a mutant's tests may take, or more"
    )
    options = parser.parse_args()
    mutants, results = json.loads(options.drawn.read_text()), Results(options.drawn.with_name("results.jsonl"))
    explained = yaml.safe_load(Path(__file__).with_name("explained.yaml").read_text()) or []
    with tempfile.TemporaryDirectory(prefix="dpfl-mutants-") as name:
        tree = Tree(Path(name), options.cpu_seconds)
        copy_tree(options.repository, tree.root)
        run_all(mutants, options.repository, tree, results)
    sys.exit(not report(mutants, results, explained))


if __name__ == "__main__":
    main()
