"""Typed settings: strict types, bounds, and one line that names the key, its value and what would be right."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated, Literal, Self

import pytest
from pydantic import Field, ValidationError, model_validator

from dpfl.errors import InputError
from dpfl.grid.settings import Choice, Count, Epsilon, Positive, Probability, Settings, Several, among


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Example(Settings):
    rounds: Count
    radius: Positive = 1.0
    delta: Probability = 0.5
    epsilon: Epsilon = 1.0
    colour: Choice[Colour] = Colour.RED
    dark: Annotated[Choice[Colour], among(Colour.BLUE)] = Colour.BLUE
    factors: Several[Positive] = (1.0,)
    step: Literal["harmonic"] | Positive = "harmonic"
    parts: dict[str, Several[Positive]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.rounds == 13:
            raise ValueError("rounds is 13; it brings bad luck")
        return self


def test_keys_of_others_are_ignored_and_the_last_mapping_decides():
    read = Example.of({"rounds": 3, "model": "cnn", "radius": 1}, {"rounds": 4, "colour": "blue", "factors": [1, 2.0]})
    assert (read.rounds, read.radius, read.colour, read.factors) == (4, 1.0, Colour.BLUE, (1.0, 2.0))
    assert read == Example.of({"rounds": 4, "colour": Colour.BLUE, "factors": (1, 2)})
    with pytest.raises(ValidationError, match="frozen"):
        read.rounds = 5


def test_infinity_is_a_budget_and_no_finite_number():
    assert math.isinf(Example.of({"rounds": 1, "epsilon": math.inf}).epsilon)


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"rounds": 0}, "rounds is 0; it must be greater than or equal to 1"),
        ({"rounds": True}, "rounds is True; it must be a whole number"),
        ({"rounds": 2.0}, "rounds is 2.0; it must be a whole number"),
        ({"rounds": "2"}, "rounds is '2'; it must be a whole number"),
        ({"radius": True}, "radius is True; it must be a valid number"),
        ({"radius": math.inf}, "radius is inf; it must be a finite number"),
        ({"radius": math.nan}, "radius is nan; it must be a finite number"),
        ({"delta": 1.0}, "delta is 1.0; it must be less than 1"),
        ({"epsilon": math.nan}, "epsilon is nan; it must be greater than 0"),
        ({"colour": "green"}, "colour is 'green'; it must be 'red' or 'blue'"),
        ({"dark": "red"}, "dark is 'red'; it must be 'blue'"),
        ({"factors": 1.0}, "factors is 1.0; it must be a list"),
        ({"factors": [1.0, 0.0]}, "factors[1] is 0.0; it must be greater than 0"),
        ({"step": "linear"}, "step is 'linear'; it must be 'harmonic' or a valid number"),
        ({"parts": {"odd": [1.0, -1.0]}}, "parts.odd[1] is -1.0; it must be greater than 0"),
        ({"rounds": 13}, "rounds is 13; it brings bad luck"),
    ],
)
def test_what_cannot_be_used_is_one_line(changed, line):
    with pytest.raises(InputError) as raised:
        Example.of({"rounds": 1} | changed)
    assert str(raised.value) == line


def test_a_key_that_is_missing_is_named():
    with pytest.raises(InputError, match=r"^rounds is missing in the settings$"):
        Example.of({"radius": 1.0})
