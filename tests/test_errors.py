"""Lines that say what is wrong: faults of small schemas with the sentence written out, and what is printable."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from dpfl.errors import InputError, printable, schema_fault

KEYS = {"properties": {"seed": {"type": "integer"}, "name": {"type": "string"}}}
LIST = {"type": "array", "items": {"type": "integer", "minimum": 1}}
EITHER = {"oneOf": [LIST, {"type": "string", "minLength": 1}], "description": "whole numbers"}
RATE = {"type": ["number", "null"]}


ONE_OF_TWO = {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}


@pytest.mark.parametrize(
    ("schema", "value", "line"),
    [
        ({**KEYS, "additionalProperties": False}, {"sede": 1, "zed": 2}, "unknown key sede; known here: seed, name"),
        ({**KEYS, "required": ["seed", "name"]}, {"seed": 1}, "lacks name; it needs seed, name"),
        (KEYS, {"seed": "x"}, "seed is 'x'; it must be an integer"),
        (KEYS, {"name": 3}, "name is 3; it must be a text"),
        (RATE, "fast", "is 'fast'; it must be a number or null"),
        (RATE, "1e-9", "is '1e-9'; it must be a number or null; YAML reads this one as a text, write it with a point "
                       "and a sign, as 1.0e-9"),
        ({"enum": ["a", "b"]}, "c", "is 'c'; it must be one of ['a', 'b']"),
        ({"minimum": 2}, 1, "is 1; it must be at least 2"),
        ({"maximum": 2}, 3, "is 3; it must be at most 2"),
        ({"exclusiveMinimum": 0}, 0, "is 0; it must be above 0"),
        ({"minItems": 2}, [1], "is [1]; it must be a list of at least 2"),
        ({"minProperties": 1}, {}, "is {}; it must be at least 1 key with its values"),
        ({"uniqueItems": True}, [1, 1], "is [1, 1]; it must be a list without repetition"),
        ({"minLength": 1}, "", "is ''; it must be a text that is not empty"),
        ({"minLength": 3}, "ab", "is 'ab'; it must be a text of 3 characters or more"),
        ({"pattern": "^a", "description": "a word with a"}, "b", "is 'b'; it must be a word with a"),
        ({"pattern": "^a"}, "b", "is 'b'; it must be 'b' does not match '^a'"),
        ({"properties": {"part": LIST}}, {"part": [3, 0]}, "part.1 is 0; it must be at least 1"),
        ({"properties": {"part": KEYS | {"additionalProperties": False}}}, {"part": {"x": 1}},
         "unknown key part.x; known here: seed, name"),
        ({"properties": {"part": KEYS | {"required": ["seed"]}}}, {"part": {}}, "part lacks seed; it needs seed"),
        ({"properties": {"part": EITHER}}, {"part": [2, 0]}, "part.1 is 0; it must be at least 1"),
        ({"properties": {"part": EITHER}}, {"part": ""}, "part is ''; it must be a text that is not empty"),
        ({"properties": {"part": EITHER}}, {"part": 3}, "part is 3; it must be a list: whole numbers"),
        ({"properties": {"part": ONE_OF_TWO}}, {"part": {"a": 1, "b": 2}}, "part must have exactly one of a, b"),
        ({"properties": {"part": ONE_OF_TWO}}, {"part": {}}, "part must have exactly one of a, b"),
        ({**KEYS, "patternProperties": {"^p_": {}}, "additionalProperties": False}, {"p_1": 1, "sede": 1},
         "unknown key sede; known here: seed, name"),
    ],
)  # fmt: skip
def test_a_fault_is_one_line_by_its_key(schema, value, line):
    [fault] = Draft202012Validator(schema).iter_errors(value)
    assert schema_fault(fault) == line


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ({"seed": "x"}, "seed is 'x' in a.yaml; it must be an integer"),
        ({"x": 1}, "unknown key x in a.yaml; known here: seed, name"),
    ],
)
def test_a_fault_says_where_it_is(value, line):
    [fault] = Draft202012Validator({**KEYS, "additionalProperties": False}).iter_errors(value)
    assert schema_fault(fault, " in a.yaml") == line


@given(st.text(st.characters(), max_size=30))
def test_what_is_printable_is_one_line_and_can_be_written(text):
    found = printable(text)
    assert len(found.splitlines()) <= 1
    found.encode()
    if text.isprintable() and text.isascii():
        assert found == text


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a\tb\nc", r"a\tb\nc"),
        ("\x1b[31mred\x7f", r"\x1b[31mred\x7f"),
        ("\u202eback\u2066\u2028", r"\u202eback\u2066\u2028"),
        ("lone \ud800", r"lone \ud800"),
        ("Ärger, 数, ε ≤ 1 \U0001f600", "Ärger, 数, ε ≤ 1 \U0001f600"),
    ],
)
def test_controls_are_escaped_and_letters_kept(text, escaped):
    assert printable(text) == escaped


def test_an_input_error_is_a_value_error():
    assert issubclass(InputError, ValueError) and str(InputError("one line")) == "one line"


@pytest.mark.parametrize("character", "\u200b\u200f\u061c\ufeff\u00ad\u2060\U000e0041\u3164\ufe0f\U0001d173\u0600")
def test_a_character_that_is_not_seen_is_escaped(character):
    assert printable(f"a{character}b") == f"a{character.encode('unicode_escape').decode()}b"
