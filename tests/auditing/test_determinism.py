"""What may differ between two runs of the same thing, and how that was measured."""

import csv
import math

import pandas as pd
import pytest

from dpfl.auditing.determinism import TABLE, Spread, spread_of
from dpfl.auditing.spread import FLOORS, SAFETY, kinds, largest_difference


def rows():
    """The shipped table."""
    with TABLE.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_a_spread_holds_up_to_its_tolerance():
    points, relative = Spread(0.5, "points"), Spread(1e-3, "relative")
    assert points.holds(90.0, 90.5) and not points.holds(90.0, 90.6)
    assert relative.holds(2000.0, 2001.9) and not relative.holds(2000.0, 2002.1)
    assert relative.holds(0.0, 0.0009) and not relative.holds(0.0, 0.0011)


def test_missing_and_infinite_numbers_are_the_same_as_themselves_only():
    spread = Spread(0.5, "points")
    assert spread.holds(math.nan, math.nan) and not spread.holds(math.nan, 1.0) and not spread.holds(1.0, math.nan)
    assert spread.holds(math.inf, math.inf) and not spread.holds(math.inf, 1.0)


def test_every_algorithm_and_model_of_the_demo_was_measured_in_every_way():
    measured = {}
    for row in rows():
        measured.setdefault(f"{row['algorithm']},{row['model']}", set()).add(row["changed"])
    assert set(kinds()) <= set(measured)
    assert set(map(frozenset, measured.values())) == {
        frozenset({"trained alone", "threads 1 to 2", "older instructions"})
    }


def test_a_tolerance_follows_from_what_was_measured():
    table = pd.DataFrame(rows()).astype({"largest": float})
    widest = table.groupby(["algorithm", "model"])["largest"].max()
    for row in rows():
        largest = widest[row["algorithm"], row["model"]]
        assert float(row["tolerance"]) == pytest.approx(max(FLOORS[row["unit"]], SAFETY * largest), rel=0.01)
        assert spread_of(row["algorithm"], row["model"]).tolerance == float(row["tolerance"])


def test_a_model_that_was_not_measured_has_the_widest_spread_of_its_algorithm():
    widest = max(float(row["tolerance"]) for row in rows() if row["algorithm"] == "pfl")
    assert spread_of("pfl", "unheard_of") == Spread(widest, "points")


def test_the_largest_difference_is_that_of_the_metrics_alone():
    usual = pd.DataFrame({"seed": [0, 1], "status": "finished", "test_loss": [200.0, 0.5], "privacy_delta": [1.0, 1.0]})
    other = usual.assign(seed=[5, 6], test_loss=[201.0, 0.52], privacy_delta=[2.0, 2.0])
    assert largest_difference(usual, usual, "relative") == 0.0
    assert largest_difference(usual, other, "relative") == pytest.approx(0.02)
    assert largest_difference(usual, other, "points") == pytest.approx(1.0)
