"""What an edit makes run again: exactly the stages that it can have changed."""

import os
import re
import shutil
from contextlib import contextmanager
from functools import partial

import pytest

pytestmark = [pytest.mark.workflow, pytest.mark.slow]

AFTER_RUNS = {"tables", "figures", "claims", "audit"}
CODE = "\n_CHANGED = 1\n"
TOY = "\ntoy: {title: Toy, decoder: none, records: {}, licence: none}\n"


COMMAND = ("dpfl", "run", "--config", "tiny.yaml")


@pytest.fixture(scope="module")
def project(checkout, repository, tmp_path_factory):
    """The folder of a finished tiny run with its own copy of the source, and a runner of commands there."""
    folder = tmp_path_factory.mktemp("reruns") / "w"
    run = partial(checkout(folder), PYTHONPATH=str(folder / "src"))
    shutil.copytree(repository / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    (folder / "tiny.yaml").write_text(
        "papers: [lowy2021, bhaskar2025]\nseeds: [0]\n"
        "only: {model: [scatter_linear], dataset: [digits, diabetes], epsilon: [2.93, 5, .inf], local_epochs: [10],\n"
        "       clients: [3, 10], study: [none]}\n"
    )
    done = run(*COMMAND)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder, run


def planned(run) -> tuple[set[str], set[str]]:
    """The rules, and the papers whose jobs, that would run now."""
    done = run(*COMMAND, "--dry-run")
    text = done.stdout + done.stderr
    assert done.returncode == 0, text[-3000:]
    rules = set(re.findall(r"^ *(?:local)?(?:rule|checkpoint) ([a-z]+)(?:_\w+)?:$", text, re.MULTILINE)) - {"all"}
    return rules, set(re.findall(r"output: results/demo/runs/(\w+)/", text))


@contextmanager
def edited(folder, *edits):
    """Edits of files, undone at the end: bytes and times."""
    kept = {folder / path: ((folder / path).read_bytes(), (folder / path).stat()) for path, _ in edits}
    try:
        for path, change in edits:
            (folder / path).write_text(change((folder / path).read_text()))
        yield
    finally:
        for file, (content, age) in kept.items():
            file.write_bytes(content)
            os.utime(file, ns=(age.st_atime_ns, age.st_mtime_ns))


def append(text: str):
    """An edit that adds lines at the end."""
    return lambda before: before + text


def replace(old: str, new: str):
    """An edit of one place."""

    def change(before: str) -> str:
        assert old in before
        return before.replace(old, new, 1)

    return change


WITHOUT_EFFECT = {
    "touching": ("src/dpfl/engine/sgd.py", append("")),
    "a comment": ("src/dpfl/engine/sgd.py", append("\n# a remark\n")),
    "formatting": ("src/dpfl/engine/sgd.py", replace("\n\n", "\n\n\n")),
    "a docstring": ("src/dpfl/engine/sgd.py", replace('"""', '"""Indeed: ')),
    "a title": ("src/dpfl/data/datasets.yaml", replace("title: Digits (", "title: Small digits (")),
    "an error's class": ("src/dpfl/errors.py", append(CODE)),
    "the words of an error": ("src/dpfl/data/loading.py", replace("no such file; build", "not there; build")),
    "how files are written": ("src/dpfl/files.py", append(CODE)),
    "what a record says": ("src/dpfl/provenance/record.py", append(CODE)),
    "the grid's code": ("src/dpfl/grid/expansion.py", append(CODE)),
    "the command that trains": ("src/dpfl/cli/training_commands.py", append(CODE)),
    "a new dataset": ("src/dpfl/data/datasets.yaml", append(TOY)),
    "how the command line looks": ("src/dpfl/progress.py", append(CODE)),
}
"""Edits after which nothing is to be made again."""

EDITS = {
    "a caption": (
        "src/dpfl/papers/bhaskar2025/paper.yaml",
        replace("Test accuracy in per cent", "The test accuracy in per cent"),
        ({"tables", "claims", "audit"}, set()),
    ),
    "a claim's words": (
        "src/dpfl/papers/lowy2021/claims.yaml",
        replace("shrinks towards", "falls towards"),
        ({"claims", "audit"}, set()),
    ),
    "the look of figures": ("src/dpfl/reporting/style.py", append(CODE), (AFTER_RUNS, set())),
    "a verdict's code": ("src/dpfl/papers/lowy2021/claims.py", append(CODE), ({"claims", "audit"}, set())),
    "one epsilon": (
        "tiny.yaml",
        replace("2.93, 5,", "2.93, 7.5,"),
        ({"accounting", "train", *AFTER_RUNS}, {"lowy2021"}),
    ),
    "one more seed": (
        "tiny.yaml",
        replace("seeds: [0]", "seeds: [0, 1]"),
        ({"train", *AFTER_RUNS}, {"lowy2021", "bhaskar2025"}),
    ),
    "the engine's code": (
        "src/dpfl/engine/sgd.py",
        replace("self.noise_multipliers * self.clip_norms", "self.clip_norms * self.noise_multipliers"),
        ({"train", *AFTER_RUNS}, {"bhaskar2025"}),
    ),
    "minibatch SGD's code": (
        "src/dpfl/convex/minibatch_sgd.py",
        replace("return means.sum(axis=2)", "return +means.sum(axis=2)"),
        ({"train", *AFTER_RUNS}, {"lowy2021"}),
    ),
    "the scattering transform": (
        "src/dpfl/features/scattering.py",
        append(CODE),
        ({"features", "train", *AFTER_RUNS}, {"bhaskar2025"}),
    ),
    "how data are unpacked": (
        "src/dpfl/data/arrays.py",
        replace("arrays = decode(entry, [", "arrays = decode(entry, 1 * ["),
        ({"arrays", "features", "train", *AFTER_RUNS}, {"lowy2021", "bhaskar2025"}),
    ),
    "what the runs of one dataset state": (
        "src/dpfl/data/datasets.yaml",
        replace("Stand-in for the insurance data", "A stand-in for the insurance data"),
        ({"arrays", "accounting", "train", *AFTER_RUNS}, {"lowy2021"}),
    ),
    "the command of the pages": ("src/dpfl/cli/report_commands.py", append(CODE), (AFTER_RUNS, set())),
    "an accountant": (
        "src/dpfl/accounting/dpsgd.py",
        replace("return by_element(one, target", "return +by_element(one, target"),
        ({"accounting", *AFTER_RUNS}, set()),
    ),
    "the format of records": (
        "src/dpfl/provenance/record.py",
        replace('FORMAT = "dpfl-record/2"', 'FORMAT = "dpfl-record/3"'),
        ({"accounting", "train", *AFTER_RUNS}, {"lowy2021", "bhaskar2025"}),
    ),
}


def test_edits_that_change_no_result_rerun_nothing(project):
    folder, run = project
    with edited(folder, *WITHOUT_EFFECT.values()):
        assert planned(run) == (set(), set())


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_reruns_what_it_can_have_changed_and_nothing_else(project, edit):
    folder, run = project
    path, change, expected = EDITS[edit]
    with edited(folder, (path, change)):
        assert planned(run) == expected


def test_noise_that_changes_trains_in_the_same_run_what_has_it_and_nothing_else(project, checkout, tmp_path):
    """An accountant's edit alone cannot say whether noise changes: it is calibrated first, then the run is planned."""
    folder = tmp_path / "w"
    run = partial(checkout(folder), PYTHONPATH=str(folder / "src"))
    shutil.copytree(project[0], folder, dirs_exist_ok=True)
    before = {path: path.read_bytes() for path in (folder / "results/demo/runs").rglob("*.csv.gz")}
    private, kept = (
        str(next(path for path in before if path.parent.name == paper).relative_to(folder))
        for paper in ("bhaskar2025", "lowy2021")
    )
    accountant = "return by_element(one, target_epsilon=target_epsilon"
    with edited(folder, ("src/dpfl/accounting/dpsgd.py", replace(accountant, f"return 1.01 * {accountant[7:]}"))):
        done = run(*COMMAND, "--", private, kept)
        assert done.returncode == 0, done.stderr[-3000:]
        assert "calibrated anew first: results/demo/accounting/bhaskar2025.csv;" in done.stderr
        assert f"dpfl: {kept} is finished" in done.stderr and f"dpfl: {private} is finished" not in done.stderr
        assert {path.parent.name for path in before if path.read_bytes() != before[path]} == {"bhaskar2025"}
        again = run(*COMMAND, "--", private)
        assert again.returncode == 0 and again.stderr.startswith(f"dpfl: {private} is finished"), again.stderr[-3000:]


def test_the_pages_that_a_run_ends_with_are_those_that_the_audit_writes(project):
    _, run = project
    assert run("dpfl", "report", "--config", "results/demo/config.yaml").returncode == 0
    audited = run("dpfl", "audit", "--quick", "results/demo")
    assert audited.returncode == 0, audited.stdout
    assert "2 pages for readers checked" in audited.stdout and " 0 findings" in audited.stdout
