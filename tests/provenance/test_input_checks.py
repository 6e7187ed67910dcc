"""A stage reads only what an earlier stage wrote."""

import hashlib
import os

import pytest

from dpfl.errors import InputError
from dpfl.files import record_path
from dpfl.provenance import record
from dpfl.provenance.record import StageRecorder


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A file with its record, a second old."""
    monkeypatch.chdir(tmp_path)
    record._outputs.cache_clear()
    path = tmp_path / "out.csv"
    path.write_text("b\n2\n")
    StageRecorder("train", ("dpfl.grid.expansion",)).write(record_path(path), [path])
    before = path.stat().st_mtime_ns - 10**9
    os.utime(path, ns=(before, before))
    return path


def flip(path, *, keep_age):
    """Change one byte; keep the file's age as bit rot does."""
    age = path.stat().st_mtime_ns
    path.write_bytes(b"c" + path.read_bytes()[1:])
    if keep_age:
        os.utime(path, ns=(age, age))


def test_an_untouched_file_is_described(written):
    sha256 = hashlib.sha256(b"b\n2\n").hexdigest()
    assert record.check([written]) == [{"path": "out.csv", "bytes": 4, "sha256": sha256}]


def test_a_file_without_record_is_hashed(written):
    stray = written.with_name("stray.csv")
    stray.write_text("x")
    assert record.check([stray])[0]["sha256"] == hashlib.sha256(b"x").hexdigest()


def test_touching_is_no_change(written):
    written.touch()
    assert record.check([written])[0]["bytes"] == 4


def test_a_flipped_byte_in_a_newer_file_is_named(written):
    flip(written, keep_age=False)
    os.utime(written, ns=(2**62, 2**62))
    with pytest.raises(InputError, match=r"out\.csv is not what its record says.*--rebuild"):
        record.check([written])


def test_a_flipped_byte_under_an_old_date_is_found(written):
    flip(written, keep_age=True)
    with pytest.raises(InputError, match=r"out\.csv"):
        record.check([written])


def test_another_length_is_found_whatever_its_date(written):
    age = written.stat().st_mtime_ns
    written.write_text("b\n")
    os.utime(written, ns=(age, age))
    with pytest.raises(InputError, match=r"out\.csv"):
        record.check([written])


def test_a_missing_file_is_named(written):
    with pytest.raises(InputError, match=r"gone\.csv is not there"):
        record.check([written.with_name("gone.csv")])


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_what_is_no_regular_file_is_refused_without_being_opened(written, kind):
    stray = written.with_name("stray.csv")
    {"link": lambda: stray.symlink_to(written), "folder": stray.mkdir, "pipe": lambda: os.mkfifo(stray)}[kind]()
    with pytest.raises(InputError, match=r"stray\.csv is no regular file"):
        record.check([stray])


def test_a_process_that_changes_its_folder_reads_the_records_there(written, tmp_path, monkeypatch):
    [before] = record.check([written.relative_to(tmp_path)])
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    (other / "out.csv").write_text("longer than what the first folder's record says\n")
    [after] = record.check([written.relative_to(tmp_path)])
    assert after["bytes"] > before["bytes"]
