import getpass
import hashlib
import os
import shutil
import socket
import subprocess

import pytest

from dpfl.files import record_path
from dpfl.provenance import record
from dpfl.provenance.record import StageRecorder, read_record


@pytest.fixture
def written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.csv").write_text("a\n1\n")
    out = tmp_path / "out.csv"
    out.write_text("b\n2\n")
    path = record_path(out)
    stage = StageRecorder("train", ("dpfl.grid.expansion",), {"epsilon": 2.93}, (0, 1))
    stage.reads([tmp_path / "in.csv"])
    stage.write(path, [out])
    return path


def test_a_record_says_what_went_in_and_came_out(written):
    stated = read_record(written)
    assert stated["inputs"] == [{"path": "in.csv", "bytes": 4, "sha256": hashlib.sha256(b"a\n1\n").hexdigest()}]
    assert stated["outputs"][0]["path"] == "out.csv"
    assert stated["settings"] == {"epsilon": 2.93} and stated["seeds"] == [0, 1]
    assert stated["software"]["numpy"] and stated["seconds"] >= 0 and len(stated["source"]["digest"]) == 16


def test_a_record_names_no_user_no_host_and_no_absolute_path(written):
    text = written.read_text()
    assert str(written.parent) not in text and os.path.expanduser("~") not in text
    for private in {getpass.getuser(), socket.gethostname()}:
        assert f'"{private}"' not in text and f"/{private}/" not in text


@pytest.mark.parametrize(
    ("named", "stated"), [("0123456789abcdef" * 2 + "01234567", True), ("main", False), ("", False)]
)
def test_a_source_tree_without_git_takes_its_commit_from_the_environment(tmp_path, monkeypatch, named, stated):
    monkeypatch.setattr(record, "__file__", str(tmp_path / "dpfl" / "provenance" / "record.py"))
    monkeypatch.setenv(record.COMMIT, named)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    record._commit.cache_clear()
    assert record._commit() == {"commit": named if stated else None, "dirty": None}
    record._commit.cache_clear()


def _git(folder, *words):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    own = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", "-C", folder, *own, *words], env=clean, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _repository(folder):
    """A repository with one commit, which is not that of the source tree; returns the commit."""
    folder.mkdir()
    (folder / "file").write_text(folder.name)
    _git(folder, "init", "-q")
    _git(folder, "add", ".")
    _git(folder, "commit", "-qm", "another")
    return _git(folder, "rev-parse", "HEAD")


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A function that makes a folder the source tree of this process."""

    def at(folder):
        place = folder / "src" / "dpfl" / "provenance" / "record.py"
        place.parent.mkdir(parents=True)
        shutil.copy(record.__file__, place)
        monkeypatch.setattr(record, "__file__", str(place))
        record._commit.cache_clear()

    monkeypatch.delenv(record.COMMIT, raising=False)
    yield at
    record._commit.cache_clear()


def test_the_variables_of_a_hook_make_no_other_repository_the_source_tree(tree, tmp_path, monkeypatch):
    other = tmp_path / "other"
    commit, own = _repository(other), _repository(tmp_path / "own")
    tree(tmp_path / "own")
    for name, value in (("GIT_DIR", other / ".git"), ("GIT_WORK_TREE", other), ("GIT_INDEX_FILE", other / "index")):
        monkeypatch.setenv(name, str(value))
    assert commit != own and record._commit() == {"commit": own, "dirty": True}


def test_an_archive_inside_another_repository_has_no_commit_of_it(tree, tmp_path, monkeypatch):
    _repository(tmp_path / "other")
    tree(tmp_path / "other" / "unpacked")
    assert record._commit() == {"commit": None, "dirty": None}
    record._commit.cache_clear()
    monkeypatch.setenv(record.COMMIT, "ab" * 20)
    assert record._commit()["commit"] == "ab" * 20
