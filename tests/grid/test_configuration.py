"""Configurations: read strictly, every default shipped, and what is wrong named in one line."""

import math
import os
import re

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from dpfl.errors import InputError
from dpfl.grid import configuration
from dpfl.grid.configuration import load_mapping


def test_the_shipped_configuration_holds_every_default(repository):
    shipped = yaml.safe_load((repository / "config.yaml").read_text())
    assert configuration.resolve(shipped) == configuration.resolve({})


def test_the_schema_is_a_schema_and_describes_every_key():
    rules = configuration.schema()
    Draft202012Validator.check_schema(rules)

    def walk(rule):
        for name, inner in rule.get("properties", {}).items():
            assert inner.get("description") and "default" in inner, name
            walk(inner)
        if rule.get("type") == "object":
            assert rule["additionalProperties"] is False

    walk(rules)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"scales": "demo"}, ["scales", "unknown", "scale"]),
        ({"data": {"miror": "x"}}, ["data.miror", "mirror"]),
        ({"scale": "huge"}, ["scale", "huge", "demo"]),
        ({"seeds": 3}, ["seeds", "3", "list"]),
        ({"seeds": ["0"]}, ["seeds", "'0'", "integer"]),
        ({"seeds": [0.0]}, ["seeds", "0.0", "integer"]),
        ({"seeds": [-1]}, ["seeds", "-1", "at least 0"]),
        ({"seeds": []}, ["seeds", "a list of at least 1"]),
        ({"seeds": ["1e3"]}, ["seeds.0", "it must be an integer"]),
        ({"seeds": [1, 1]}, ["seeds", "a list without repetition"]),
        ({"papers": []}, ["papers", "a list of at least 1"]),
        ({"only": {"epsilon": ["1e1"]}}, ["only.epsilon.0", "a number; YAML reads this one as a text", "1.0e-9"]),
        ({"only": {"epsilon": [-1]}}, ["only.epsilon.0", "-1", "above 0"]),
        ({"only": {"epsilon": [0]}}, ["only.epsilon.0", "above 0"]),
        ({"only": {"epsilon": [math.nan]}}, ["only.epsilon.0", "not a number"]),
        ({"only": {"clients": [10, 10]}}, ["only.clients", "repetition"]),
        ({"only": {"dataset": ["minst"]}}, ["only.dataset.0", "minst", "mnist"]),
        ({"only": {"clients": [0]}}, ["only.clients.0", "at least 1"]),
        ({"papers": ["lowy2022"]}, ["papers", "lowy2022", "lowy2021"]),
        ({"training": {"threads": 0}}, ["training.threads", "at least 1"]),
        ({"training": {"threads": 1.5}}, ["training.threads", "integer"]),
        ({"training": {"threads": 2.0}}, ["training.threads", "integer"]),
        ({"only": {"clients": [10.0]}}, ["only.clients.0", "integer"]),
        ({"data": {"timeout_seconds": 0}}, ["data.timeout_seconds", "above 0"]),
        ({"data": "here"}, ["data", "keys and values"]),
    ],
)
def test_a_wrong_value_is_named_in_one_line(wrong, words):
    with pytest.raises(InputError) as caught:
        configuration.resolve(wrong)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(("text", "word"), [("\x00", "YAML"), ("scale: [demo]", "scale")])
def test_a_file_that_is_no_configuration_is_named(tmp_path, text, word):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"mine\.yaml") as caught:
        configuration.read(path)
    assert word in str(caught.value) and "\n" not in str(caught.value)


@settings(max_examples=150)
@given(data=st.data())
def test_any_file_is_a_configuration_or_refused_in_one_line(repository, tmp_path_factory, data):
    # Without its comments, which are two thirds of the file: every change meets a key, a value or the layout.
    text = re.sub(r" *#.*", "", (repository / "config.yaml").read_text())
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(0, len(text)))
        length = data.draw(st.integers(0, 12))
        text = text[:place] + data.draw(st.text(max_size=8)) + text[place + length :]
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        resolved = configuration.read(path)
    except InputError as error:
        assert "\n" not in str(error) and "any.yaml" in str(error)
    else:
        assert resolved == configuration.resolve(resolved)


# A file that a person wrote is read, or refused in one line that names it.


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
        (b"a: 0" + b"7" * 6000, "not YAML"),
        (b"a: {b: [-0x8000000000000001]}", "64 bits"),
        (b"? 0x" + b"f" * 6000 + b"\n: 1", "64 bits"),
        (b"a: 1:30", "'1:30' is a number of base 60"),
        (b"a: -1:30.5", "base 60"),
        (b"a: " + b"1:" * 20_000 + b"1", "base 60"),
        (b"a: 0777", "'0777' is a number of base 8"),
        (b"a: 1.0e+400", "1.0e+400"),
        (b"a: 1e400", "1e400"),
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
        with pytest.raises(InputError, match="name one that is there"):
            load_mapping(tmp_path / name)


@pytest.mark.parametrize(("number", "write"), [("8e0", "8.0e+0"), ("1e-1", "1.0e-1"), ("2E+0", "2.0e+0")])
def test_a_number_that_snakemake_would_read_as_a_text_is_refused_before_it_does(tmp_path, repository, number, write):
    """Snakemake reads the file itself, by a reader for which 8e0 is a text."""
    path = tmp_path / "mine.yaml"
    path.write_text(f"papers: [asoodeh2021]\nonly: {{epsilon: [1.0, {number}]}}\n")
    said = f"mine.yaml: only.epsilon.1 is {number}, which Snakemake reads as a text: write {write}"
    with pytest.raises(InputError, match=re.escape(said)):
        configuration.overlaid(repository / "config.yaml", path, None)
    path.write_text(f"papers: [asoodeh2021]\nonly: {{epsilon: [1.0, {write}]}}\n")
    assert configuration.overlaid(repository / "config.yaml", path, None)["only"]["epsilon"][1] == float(number)


def test_a_mapping_is_read_and_an_empty_file_is_an_empty_one(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("a: [1, .inf]\nb: {c: é}\n", encoding="utf-8")
    assert load_mapping(path) == {"a": [1, float("inf")], "b": {"c": "é"}}
    path.write_text("a: [0, -1, 0x1F, 9223372036854775807, 1_000, '1:30', '0777', -.inf, 0.5, 1.0e-400, 2:a]\n")
    assert load_mapping(path)["a"] == [0, -1, 31, 2**63 - 1, 1000, "1:30", "0777", -math.inf, 0.5, 0.0, "2:a"]
    path.write_text("a: [1e-5, -2E3, 1e+2, '1e-5', 1e5a, e5]\n")
    assert load_mapping(path)["a"] == [1e-5, -2000.0, 100.0, "1e-5", "1e5a", "e5"]
    path.write_text("# nothing\n")
    assert load_mapping(path) == {}
