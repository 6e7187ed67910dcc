"""Commit, source digest and versions of a record against a git repository."""

import hashlib
import subprocess

import pytest

from dpfl.provenance import record as environment
from dpfl.provenance.audit.findings import Audit
from dpfl.provenance.audit.records import check_commits
from dpfl.provenance.source_digest import source_digest

LOCK = "torch==2.13.0\nnumpy==2.4.6\nscipy==1.17.1\npandas==3.1.1\nmatplotlib==3.11.2\nopacus==1.6.0\n"
LOCK += "dp-accounting==0.6.0\nscikit-learn==1.9.1\nsnakemake==9.27.1\n"


@pytest.fixture
def repository(tmp_path):
    """A repository of a package dpfl with one commit; returns folder and commit."""
    package = tmp_path / "src" / "dpfl"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("x = 1\n")
    (tmp_path / "requirements.lock").write_text(LOCK)

    def git(*arguments):
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        return subprocess.run(
            ["git", "-C", tmp_path, *who, *arguments], check=True, capture_output=True, text=True
        ).stdout

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    return tmp_path, git("rev-parse", "HEAD").strip()


@pytest.fixture
def record(repository):
    """An honest record of that commit."""
    root, commit = repository
    versions = environment.locked_versions(LOCK)
    return {
        "stage": "train", "outputs": [{"path": "run.csv.gz"}],
        "source": {"modules": ["dpfl.a"], "digest": source_digest("dpfl.a", root=root / "src" / "dpfl"),
                   "commit": commit, "dirty": False},
        "software": {**versions, "torch": "2.13.0+cpu", "lock": hashlib.sha256(LOCK.encode()).hexdigest(),
                     "not_as_locked": {}},
    }  # fmt: skip


def check(record, root):
    """Problems and notes of one record."""
    report = Audit()
    check_commits(report, [record], root)
    return [finding.problem for finding in report.findings], report.notes


def test_an_honest_record_is_that_of_its_commit(record, repository):
    assert check(record, repository[0]) == ([], [])


@pytest.mark.parametrize(
    ("part", "change", "problem"),
    [
        ("source", {"commit": "0" * 40}, "which the repository does not have"),
        ("source", {"commit": "--upload-pack=x"}, "that cannot be one"),
        ("source", {"digest": "0" * 16}, "source digest"),
        ("source", {"modules": ["dpfl.b"]}, "modules that commit"),
        ("software", {"lock": "0" * 64}, "another requirements.lock"),
        ("software", {"lock": None, "torch": "1.0"}, "names no requirements.lock"),
        ("software", {"torch": "2.11.0"}, "torch 2.11.0, where its environment has 2.13.0"),
        ("software", {"not_as_locked": {"numpy": "1.0"}}, "numpy 2.4.6, where its environment has 1.0"),
    ],
)
def test_a_forged_word_is_found(record, repository, part, change, problem):
    record[part] |= change
    problems, _ = check(record, repository[0])
    assert len(problems) == 1 and problem in problems[0]


def test_versions_that_are_said_to_differ_from_the_lock_file_are_counted(record, repository):
    record["software"] |= {"torch": "1.0", "not_as_locked": {"torch": "1.0"}}
    note = "trained in an environment that is not that of requirements.lock: 1 of 1 run tables"
    assert check(record, repository[0]) == ([], [note])


def test_a_changed_tree_has_another_digest_and_is_marked(record, repository):
    record["source"] |= {"digest": "0" * 16, "dirty": True}
    note = "trained from a changed tree or without a commit: 1 of 1 run tables"
    assert check(record, repository[0]) == ([], [note])
    record["source"] |= {"commit": None, "dirty": None}
    assert check(record, repository[0]) == ([], [note])


def test_outside_a_checkout_that_is_a_note(record, tmp_path_factory):
    problems, notes = check(record, tmp_path_factory.mktemp("none"))
    assert problems == [] and notes == ["commits were not checked: the source tree here is no git checkout"]


@pytest.mark.parametrize("has_led_here", [True, False])
def test_a_commit_counts_its_code_itself_if_it_led_to_what_is_checked_out(record, repository, has_led_here):
    root, first = repository

    def git(*words):
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        done = subprocess.run(["git", "-C", root, *who, *words], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    own = root / "src" / "dpfl" / "provenance" / "source_digest.py"
    own.parent.mkdir()
    own.write_text("def source_digest(*modules, root):\n    return 'counted by itself'\n")
    git("checkout", "-qb", "another")
    git("add", ".")
    git("commit", "-qm", "counts in another way")
    record["source"] |= {"commit": git("rev-parse", "HEAD"), "digest": "counted by itself"}
    if not has_led_here:
        git("checkout", "-q", first)
    problems, _ = check(record, root)
    assert (problems == []) is has_led_here
