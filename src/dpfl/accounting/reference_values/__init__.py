"""Reference values of closed forms and of epsilons, with their sources, for any accountant to be checked against.

The JSON files here, format "dpfl-vectors/1", need nothing of this package. A quantity has a meaning, a formula, a
source and vectors; `dpfl` names the function here that computes it. A vector has arguments and either a `value`, 30
digits as text, or what an answer must be: `at_least`, which every upper bound on epsilon must reach, and `at_most`,
which a tight one does not exceed.

>>> from dpfl.accounting.reference_values import quantities
>>> from scipy.stats import norm
>>> def g(alpha, mu):
...     return norm.sf(norm.ppf(alpha) + mu)
>>> quantities()["gaussian_tradeoff"].misses(g)
[]
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import Any, NamedTuple

SCHEMA = "dpfl-vectors/1"


@dataclass(frozen=True)
class Vector:
    """Arguments of a quantity, and the interval [low, high] that the answer must be in; a value is both ends.

    `low` is -inf or `high` inf if there is no such end; `value` is None where the ends differ.
    """

    id: str
    arguments: dict[str, Any]
    value: str | None
    low: float
    high: float


class Miss(NamedTuple):
    """An answer that is outside of its interval; nan where the function raised an error, which `error` quotes."""

    vector: Vector
    answer: float
    error: str


@dataclass(frozen=True)
class Quantity:
    """A number that accountants compute: what it means, its formula and source, our function, and its vectors."""

    name: str
    meaning: str
    formula: str
    source: str
    dpfl: str | None
    vectors: tuple[Vector, ...]

    def misses(self, function: Callable[..., float], relative: float = 1e-9) -> list[Miss]:
        """Return the vectors that `function(**arguments)` does not meet up to a `relative` error, zeros exactly.

        ArithmeticError, ValueError, TypeError and RuntimeError of the function count as misses.
        """
        found = []
        for vector in self.vectors:
            try:
                answer, error = float(function(**vector.arguments)), ""
            except (ArithmeticError, ValueError, TypeError, RuntimeError) as problem:
                answer, error = math.nan, repr(problem)
            if not vector.low - relative * abs(vector.low) <= answer <= vector.high + relative * abs(vector.high):
                found.append(Miss(vector, answer, error))
        return found


def quantities() -> dict[str, Quantity]:
    """Return all quantities by name. Source: each names its own; the definition of the format is the module's."""
    found = {}
    for file in sorted(resources.files(__name__).iterdir(), key=lambda file: file.name):
        if file.name.endswith(".json"):
            for entry in json.loads(file.read_text(encoding="utf-8"))["quantities"]:
                vectors = tuple(_vector(each) for each in entry.pop("vectors"))
                found[entry["name"]] = Quantity(**entry, vectors=vectors)
    return found


def _vector(entry: dict[str, Any]) -> Vector:
    value = entry.get("value")
    low = float(value) if value is not None else entry.get("at_least", -math.inf)
    high = float(value) if value is not None else entry.get("at_most", math.inf)
    return Vector(entry["id"], entry["arguments"], value, low, high)
