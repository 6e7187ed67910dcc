"""What an edit makes run again: exactly the stages that it can have changed."""

import os
import re
import shutil

import pytest

pytestmark = [pytest.mark.workflow, pytest.mark.slow]

AFTER_RUNS = {"tables", "figures", "claims", "audit"}
CODE = "\n_CHANGED = 1\n"
TOY = "\ntoy: {title: Toy, decoder: none, records: {}, licence: none}\n"


@pytest.fixture(scope="module")
def edited_run(checkout, repository, tmp_path_factory):
    """A finished tiny run with its own copy of the source, and a function that plans it anew after an edit."""
    folder = tmp_path_factory.mktemp("reruns") / "w"
    run = checkout(folder)
    shutil.copytree(repository / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    (folder / "tiny.yaml").write_text(
        "papers: [lowy2021, bhaskar2025]\nseeds: [0]\n"
        "only: {model: [scatter_linear], dataset: [digits, diabetes], epsilon: [2.93, 5, .inf], local_epochs: [10],\n"
        "       clients: [3, 10], study: [none]}\n"
    )
    source = str(folder / "src")
    command = ("dpfl", "run", "--config", "tiny.yaml")
    done = run(*command, PYTHONPATH=source)
    assert done.returncode == 0, done.stderr[-4000:]

    def plan(path: str, change) -> tuple[set[str], set[str]]:
        """The rules, and the papers whose sweeps, that would run after `change` of `path`, which is then restored."""
        file = folder / path
        before, age = file.read_text(), file.stat()
        file.write_text(change(before))
        try:
            planned = run(*command, "--dry-run", PYTHONPATH=source)
        finally:
            file.write_text(before)
            os.utime(file, ns=(age.st_atime_ns, age.st_mtime_ns))
        text = planned.stdout + planned.stderr
        assert planned.returncode == 0, text[-3000:]
        rules = set(re.findall(r"^ *(?:local)?(?:rule|checkpoint) ([a-z]+)(?:_\w+)?:$", text, re.MULTILINE)) - {"all"}
        return rules, set(re.findall(r"output: results/demo/runs/(\w+)/", text))

    return plan


def append(text: str):
    """An edit that adds lines at the end."""
    return lambda before: before + text


def replace(old: str, new: str):
    """An edit of one place."""

    def change(before: str) -> str:
        assert old in before
        return before.replace(old, new, 1)

    return change


NOTHING = (set(), set())
EDITS = {
    "touching": ("src/dpfl/engine/sgd.py", append(""), NOTHING),
    "a comment": ("src/dpfl/engine/sgd.py", append("\n# a remark\n"), NOTHING),
    "formatting": ("src/dpfl/engine/sgd.py", replace("\n\n", "\n\n\n"), NOTHING),
    "a docstring": ("src/dpfl/engine/sgd.py", replace('"""', '"""Indeed: '), NOTHING),
    "a caption": (
        "src/dpfl/papers/bhaskar2025/paper.yaml",
        replace("Mean test accuracy", "The mean test accuracy"),
        ({"tables", "claims", "audit"}, set()),
    ),
    "a claim's words": (
        "src/dpfl/papers/lowy2021/claims.yaml",
        replace("costs in test error shrinks", "costs in test error falls"),
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
        append(CODE),
        ({"accounting", "train", *AFTER_RUNS}, {"bhaskar2025"}),
    ),
    "minibatch SGD's code": (
        "src/dpfl/algorithms/minibatch_sgd.py",
        append(CODE),
        ({"accounting", "train", *AFTER_RUNS}, {"lowy2021"}),
    ),
    "the scattering transform": (
        "src/dpfl/features/scattering.py",
        append(CODE),
        ({"features", "train", *AFTER_RUNS}, {"bhaskar2025"}),
    ),
    "how data are unpacked": (
        "src/dpfl/data/stand_ins.py",
        append(CODE),
        ({"arrays", "features", "train", *AFTER_RUNS}, {"lowy2021", "bhaskar2025"}),
    ),
    "a title": ("src/dpfl/data/datasets.yaml", replace("title: Digits (", "title: Small digits ("), NOTHING),
    "what the runs of one dataset state": (
        "src/dpfl/data/datasets.yaml",
        replace("Stand-in for MNIST: the", "A stand-in for MNIST: the"),
        ({"arrays", "features", "accounting", "train", *AFTER_RUNS}, {"bhaskar2025"}),
    ),
    "an error's class": ("src/dpfl/errors.py", append(CODE), NOTHING),
    "the words of an error": ("src/dpfl/data/loading.py", replace("no such file; build", "not there; build"), NOTHING),
    "how files are written": ("src/dpfl/files.py", append(CODE), NOTHING),
    "what a record says": ("src/dpfl/provenance/record.py", append(CODE), NOTHING),
    "the grid's code": ("src/dpfl/grid/expansion.py", append(CODE), NOTHING),
    "the command of the pages": ("src/dpfl/cli/report_commands.py", append(CODE), (AFTER_RUNS, set())),
    "the command that trains": ("src/dpfl/cli/training_commands.py", append(CODE), NOTHING),
    "the format of records": (
        "src/dpfl/provenance/record_format.py",
        replace('FORMAT = "dpfl-record/2"', 'FORMAT = "dpfl-record/3"'),
        ({"accounting", "train", *AFTER_RUNS}, {"lowy2021", "bhaskar2025"}),
    ),
    "a new dataset": ("src/dpfl/data/datasets.yaml", append(TOY), NOTHING),
    "how the command line looks": ("src/dpfl/progress.py", append(CODE), NOTHING),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_reruns_what_it_can_have_changed_and_nothing_else(edited_run, edit):
    path, change, expected = EDITS[edit]
    assert edited_run(path, change) == expected
