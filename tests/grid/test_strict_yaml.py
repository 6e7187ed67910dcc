"""A file that a person wrote is read, or refused in one line that names it."""

import math
import os

import pytest

from dpfl.errors import InputError
from dpfl.grid.configuration import load_mapping


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"a: 1\na: 2\n", "twice"),
        (b"only: {clients: [1], clients: [2]}\n", "twice"),
        (b"only: {epsilon: 1, 1.2: 3, 1.20: 4}\n", "key 1.2 occurs twice"),
        (b"<<: {scale: demo}\nscale: paper\n", "merges"),
        (b"a: &x [1]\nb: *x\n", "aliases"),
        (b"a: 2024-13-45\n", "not YAML"),
        (b"a: " + b"9" * 6000, "not YAML"),
        (b"a: " + b"[" * 5000 + b"]" * 5000, "not YAML"),
        (b"a: 0x" + b"f" * 6000, "not YAML"),
        (b"a: {b: [-0x8000000000000001]}", "64 bits"),
        (b"? 0x" + b"f" * 6000 + b"\n: 1", "64 bits"),
        (b"a: 1:30", "'1:30' is a number of base 60"),
        (b"a: -1:30.5", "base 60"),
        (b"a: " + b"1:" * 20_000 + b"1", "base 60"),
        (b"a: 0777", "'0777' is a number of base 8"),
        (b"a: 1.0e+400", "1.0e+400"),
        (b'a: "x\\ud800"', "half a character"),
        (b'"x\\ud800": 1', "half a character"),
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
    path.write_text("a: [0, -1, 0x1F, 9223372036854775807, 1_000, '1:30', '0777', -.inf, 0.5, 1.0e-400, 2:a]\n")
    assert load_mapping(path)["a"] == [0, -1, 31, 2**63 - 1, 1000, "1:30", "0777", -math.inf, 0.5, 0.0, "2:a"]
    path.write_text("# nothing\n")
    assert load_mapping(path) == {}
