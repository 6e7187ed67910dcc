"""The one error that means: the input cannot be used, and here is what would be right."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

_KINDS = {
    "array": "a list", "object": "keys and values", "string": "a text", "integer": "an integer", "number": "a number",
    "boolean": "true or false", "null": "null",
}  # fmt: skip
_UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode's categories of control characters, of marks that turn a text's direction or join letters, of halves of a
character, and of line ends."""
_FILLERS = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
"""Letters and marks of other categories that have no shape of their own."""


class InputError(ValueError):
    """Unusable input. The message is one line: what, where, and what would be right.

    The command line prints it without a traceback and exits with status 2.
    """


def printable(text: str) -> str:
    """Return a text on one line, with control characters, invisible ones and lone surrogates escaped as \\xNN or
    \\uNNNN."""
    return "".join(each if _is_seen(each) else each.encode("unicode_escape").decode() for each in text)


def _is_seen(character: str) -> bool:
    """Return whether a character has a shape, or is a space, and steers nothing."""
    return unicodedata.category(character) not in _UNSEEN and not _FILLERS.match(character)


def schema_fault(error: Any, where: str = "") -> str:
    """Return one line for an error of jsonschema: the key, its value `where` it stands, and what would be right."""
    key = ".".join(map(str, error.absolute_path))
    if error.validator == "additionalProperties":
        known = ", ".join(error.schema["properties"])
        patterns = error.schema.get("patternProperties", {})
        others = sorted(set(map(str, error.instance)) - set(error.schema["properties"]))
        unknown = next(name for name in others if not any(re.search(pattern, name) for pattern in patterns))
        return f"unknown key {f'{key}.' if key else ''}{unknown}{where}; known here: {known}"
    if error.validator == "required":
        missing = next(name for name in error.validator_value if name not in error.instance)
        return f"{f'{key} ' if key else ''}lacks {missing}{where}; it needs {', '.join(error.validator_value)}"
    if error.validator == "oneOf":
        if names := [name for way in error.validator_value for name in way.get("required", [])]:
            return f"{f'{key} ' if key else ''}must have exactly one of {', '.join(names)}{where}"
        deeper = [inner for inner in error.context if inner.absolute_path and len(inner.path) > 0]
        if deeper:
            return schema_fault(deeper[0], where)
        if same := [inner for inner in error.context if inner.validator != "type"]:  # of the type that was given
            return schema_fault(same[0], where)
        wanted = error.schema["description"].partition(";")[0]
        return f"{key} is {error.instance!r}{where}; it must be a list: {wanted}"
    return f"{f'{key} ' if key else ''}is {error.instance!r}{where}; it must be {_wanted(error)}"


def _yaml_hint(value: object) -> str:
    """Return how to write a number that YAML 1.1 takes for a text: infinity, one without a point, or a sign after the
    e."""
    if isinstance(value, str) and value.lower().lstrip("+-") in ("inf", "infinity"):
        return "; infinity is written .inf"
    is_number = isinstance(value, str) and re.fullmatch(r"[-+]?[0-9.]+[eE][-+]?[0-9]+", value)
    return "; YAML reads this one as a text, write it with a point and a sign, as 1.0e-9" if is_number else ""


def _wanted(error: Any) -> str:
    """Return what would be right in place of a value."""
    value = error.validator_value
    kinds = [value] if isinstance(value, str) else value
    return {
        "type": lambda: (
            " or ".join(_KINDS[kind] for kind in kinds) + (_yaml_hint(error.instance) if "number" in kinds else "")
        ),
        "enum": lambda: f"one of {value}",
        "minimum": lambda: f"at least {value}",
        "maximum": lambda: f"at most {value}",
        "exclusiveMinimum": lambda: f"above {value}",
        "minItems": lambda: f"a list of at least {value}",
        "minProperties": lambda: f"at least {value} key with its values",
        "uniqueItems": lambda: "a list without repetition",
        "minLength": lambda: "a text that is not empty" if value == 1 else f"a text of {value} characters or more",
        "pattern": lambda: error.schema.get("description", error.message),
    }.get(error.validator, lambda: error.message)()
