"""A file that a person wrote is read, or refused in one line that names it."""

import os

import pytest

from dpfl.errors import InputError
from dpfl.grid.strict_yaml import load_mapping


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"a: 1\na: 2\n", "twice"),
        (b"only: {clients: [1], clients: [2]}\n", "twice"),
        (b"a: &x [1]\nb: *x\n", "aliases"),
        (b"a: 2024-13-45\n", "not YAML"),
        (b"a: " + b"9" * 6000, "not YAML"),
        (b"a: " + b"[" * 5000 + b"]" * 5000, "not YAML"),
        (b"\xff\xfe\x00a", "not YAML"),
        (b"a: [", "not YAML"),
        (b"- 1\n", "keys and values"),
        (b"1: 2\n", "keys and values"),
        (b"? [1]\n: 2\n", "mine.yaml"),
        (b"#" * 1_000_001, "bytes"),
    ],
)
def test_what_is_no_configuration_is_refused_in_one_line(tmp_path, content, word):
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"mine\.yaml") as caught:
        load_mapping(path)
    assert word in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_folders_pipes_and_missing_files_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in (".", "pipe", "nowhere.yaml"):
        with pytest.raises(InputError, match="name a configuration"):
            load_mapping(tmp_path / name)


def test_a_mapping_is_read_and_an_empty_file_is_an_empty_one(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("a: [1, .inf]\nb: {c: é}\n", encoding="utf-8")
    assert load_mapping(path) == {"a": [1, float("inf")], "b": {"c": "é"}}
    path.write_text("# nothing\n")
    assert load_mapping(path) == {}
