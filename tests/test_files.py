"""Files: replaced whole or left as they were, and sealed bytes that come back or not at all."""

import os
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.errors import InputError
from dpfl.files import checked_content, read_given_json, replacing, require_writable, with_checksum, write_atomically


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "deep" / "a.txt"
    write_atomically(path, "one\n")
    write_atomically(path, "two é\n")
    assert path.read_bytes() == "two é\n".encode()
    assert os.listdir(path.parent) == ["a.txt"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    write_atomically(path, "old")
    with pytest.raises(RuntimeError), replacing(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["a.txt"]


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path):
    path = tmp_path / "a [1].csv"
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = tmp_path / f".a [1].csv.{ended.pid}.partial"
    others = [".a [1].csv.record.json.123.partial", ".b.csv.123.partial", "a [1].csv.x"]
    others.append(f".a [1].csv.{os.getppid()}.partial")  # of a writer that lives
    for name in (left.name, *others):
        (tmp_path / name).write_text("half")
    write_atomically(path, "whole")
    assert sorted(os.listdir(tmp_path)) == sorted([path.name, *others])


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        write_atomically(tmp_path / "file" / "a.txt", "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_is_one_line(tmp_path):
    with (
        pytest.raises(InputError, match="No space left"),
        replacing(tmp_path / "a.txt"),
        open("/dev/full", "w") as full,
    ):
        full.write("x")
        full.flush()


def test_a_folder_that_will_be_made_is_writable_where_its_parent_is(tmp_path):
    require_writable(tmp_path / "new" / "deep")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file"):
        require_writable(tmp_path / "file" / "deep")


@pytest.mark.parametrize("name", ["dead", "loop"])
def test_a_link_to_nothing_is_no_folder_that_can_be_written(tmp_path, name):
    """A link to another disk stays when the disk is gone."""
    (tmp_path / name).symlink_to({"dead": "nowhere", "loop": "loop"}[name])
    with pytest.raises(InputError, match=name):
        require_writable(tmp_path / name / "deep")


# Sealed bytes: back as they were, or not at all.


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=200))
def test_content_comes_back(content):
    assert checked_content(with_checksum(content)) == content


@settings(max_examples=50, deadline=None)
@given(st.binary(min_size=1, max_size=200), st.data())
def test_any_flipped_bit_and_any_cut_is_seen(content, data):
    sealed = bytearray(with_checksum(content))
    place = data.draw(st.integers(0, len(sealed) - 1))
    assert checked_content(bytes(sealed[:place])) is None
    sealed[place] ^= 1 << data.draw(st.integers(0, 7))
    assert checked_content(bytes(sealed)) is None


def test_foreign_bytes_are_nothing():
    assert checked_content(b"") is None and checked_content(b"\n\n") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "a": 2}', "'a' stands twice"),
        ("{", "is not a ledger: Expecting"),
        ("[" * 100_000, "nested too deeply"),
        (None, "cannot read"),
        (" " * 101, "is not a ledger: it is not a file of at most 100 bytes"),
    ],
)
def test_a_json_file_that_cannot_be_used_is_one_line(tmp_path, text, message):
    path = tmp_path / "ledger.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        read_given_json(path, "ledger", 1 << 20 if text and text[0] == "[" else 100)
    assert "\n" not in str(caught.value)
