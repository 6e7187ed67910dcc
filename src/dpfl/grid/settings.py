"""Typed settings: what an experiment reads of a job is exactly the fields of its models."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from dpfl.errors import InputError

Kind = TypeVar("Kind")

Count = Annotated[int, Field(ge=1)]
"""A whole number from 1."""
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""A finite number above 0."""
Probability = Annotated[float, Field(gt=0, lt=1)]
"""A number between 0 and 1, both excluded."""
Epsilon = Annotated[float, Field(gt=0)]
"""A privacy budget; inf is no privacy."""
Choice = Annotated[Kind, Field(strict=False)]
"""A member of an enum, given by its text."""
Several = Annotated[tuple[Kind, ...], Field(strict=False)]
"""A list, read as a tuple."""


def among(*known: StrEnum) -> AfterValidator:
    """Return the annotation of an enum's field that admits some members only."""

    def check(value: StrEnum) -> StrEnum:
        if value not in known:
            raise PydanticCustomError(
                "among", "Input should be {known}", {"known": " or ".join(map(repr, map(str, known)))}
            )
        return value

    return AfterValidator(check)


class Settings(BaseModel):
    """Base of an experiment's settings: frozen, and strict (a bool does not count as a number, or a float as a count).

    The settings of a job are a superset (the paper's, the entry's and the axes' values), so keys that a model does
    not have are ignored.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    @classmethod
    def of(cls, *given: Mapping[str, Any]) -> Self:
        """Return the model of the given mappings, of which a later one overrides the earlier.

        Raises InputError: one line with the first key that cannot be used, its value, and what would be right.
        """
        merged = {key: value for each in given for key, value in each.items()}
        try:
            return cls.model_validate(merged)
        except ValidationError as problem:
            raise InputError(_as_line(problem, merged)) from None


def _as_line(problem: ValidationError, given: Mapping[str, Any]) -> str:
    """Return the first error of a validation as one line; a rule of a model's own says its line itself."""
    errors: list[tuple[str, Any]] = [(_path(each["loc"], given), each) for each in problem.errors(include_url=False)]
    path, first = errors[0]
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    if first["type"] == "extra_forbidden":
        return f"{path} is unknown in the settings"
    if first["type"] == "missing":
        return f"{'.'.join(map(str, first['loc']))} is missing in the settings"
    rules = dict.fromkeys(_rule(each["msg"]) for where, each in errors if where == path)
    return f"{path} is {first['input']!r}; it must be {' or '.join(rules)}"


def _rule(message: str) -> str:
    """Return what pydantic says that a value should be, without its words for Python's types."""
    rule = message.removeprefix("Input should be ")
    return rule.replace("a valid integer", "a whole number").replace("a valid tuple", "a list")


def _path(location: tuple[Any, ...], given: Any) -> str:
    """Return the keys and places of `location` that are in `given`: the rest names a branch of a union."""
    path = ""
    for part in location:
        if isinstance(given, Mapping) and part in given:
            path += f".{part}" if path else str(part)
        elif isinstance(given, list | tuple) and isinstance(part, int) and part < len(given):
            path += f"[{part}]"
        else:
            break
        given = given[part]
    return path
