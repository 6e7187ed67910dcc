"""What may differ between two runs of the same thing, and how that was measured."""

import csv
import math

import pandas as pd
import pytest

from dpfl.auditing import determinism, spread
from dpfl.auditing.determinism import TABLE, Spread, platform_of, spread_of, unmeasured
from dpfl.auditing.spread import FLOORS, SAFETY, Kind, kinds, largest_difference


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


def kind_of(row):
    """Whose runs a row is about."""
    return Kind(row["algorithm"], row["model"], row["private"] == "True")


def test_every_algorithm_and_model_of_the_demo_was_measured_in_every_way_with_noise_and_without():
    measured = {}
    for row in rows():
        measured.setdefault(kind_of(row), []).append(row["changed"])
    assert set(kinds()) == set(measured)
    ways = set(map(tuple, measured.values()))
    assert len(ways) == 1 and {"trained alone", "threads 1 to 2", "older instructions"} < set(ways.pop())


def test_the_demo_has_runs_with_noise_and_without_and_each_kind_has_its_own_only():
    small = kinds()
    assert {kind.private for kind in small if kind.algorithm == "pfl"} == {True, False}
    for kind, sweep in small.items():
        if kind.algorithm == "pfl":
            assert {math.isfinite(cell["epsilon"]) for cell in sweep.cells} == {kind.private}


def test_a_tolerance_follows_from_what_was_measured():
    table = pd.DataFrame(rows()).astype({"largest": float})
    widest = table.groupby(["algorithm", "model", "private"])["largest"].max()
    for row in rows():
        largest = widest[row["algorithm"], row["model"], row["private"]]
        assert float(row["tolerance"]) == pytest.approx(max(FLOORS[row["unit"]], SAFETY * largest), rel=0.01)
        assert spread_of(*kind_of(row)).tolerance == float(row["tolerance"])


def test_noise_does_not_hide_in_the_spread_of_runs_without():
    assert spread_of("pfl", "cnn_relu", True).tolerance < 5 < spread_of("pfl", "cnn_relu", False).tolerance


def test_a_model_that_was_not_measured_has_the_widest_spread_of_its_kind():
    for private in (True, False):
        alike = [row for row in rows() if row["algorithm"] == "pfl" and row["private"] == str(private)]
        widest = max(float(row["tolerance"]) for row in alike)
        assert spread_of("pfl", "unheard_of", private) == Spread(widest, "points")


HERE = {"torch": "2.13", "python": "3.11", "device": "cpu"}


@pytest.fixture
def measured(monkeypatch):
    """A table in which only one change of versions was measured."""
    row = {"algorithm": "pfl", "model": "m", "private": "True", "runs": "2", "largest": "0.1", "unit": "points",
           "changed": "torch 2.13 to 2.11, python 3.11 to 3.12", "tolerance": "0.5"}  # fmt: skip
    monkeypatch.setattr(determinism, "table_rows", lambda: [row])


def test_a_change_that_nobody_measured_is_named(measured):
    other = {"torch": "2.11", "python": "3.12", "device": "cpu"}
    assert unmeasured("pfl", HERE, HERE) == unmeasured("pfl", HERE, other) == unmeasured("pfl", other, HERE) == []
    assert unmeasured("pfl", HERE, HERE | {"device": "cuda"}) == ["device cpu to cuda"]
    assert unmeasured("pfl", HERE | {"torch": "2.6"}, other) == ["torch 2.6 to 2.11"]
    assert unmeasured("canaries", HERE, other) == ["torch 2.13 to 2.11", "python 3.11 to 3.12"]


def test_a_record_names_its_platform_without_the_last_number_of_a_version():
    software = {"torch": "2.13.0+cpu", "python": "3.11.7", "numpy": "2.4.6"}
    assert platform_of(software, "cuda") == HERE | {"device": "cuda"}


def test_a_change_that_is_not_made_now_keeps_its_rows_and_its_part_of_the_tolerance(measured, tmp_path, monkeypatch):
    monkeypatch.setattr(spread, "table_rows", determinism.table_rows)
    runs = pd.DataFrame({"seed": [0], "status": "finished", "accuracy_pct": [90.0]})
    for name, accuracy in (("nothing", 90.0), ("threads 1 to 2", 90.5)):
        (tmp_path / name).mkdir()
        runs.assign(accuracy_pct=accuracy).to_csv(tmp_path / name / "pfl,m,True.csv", index=False)
    made = [spread.Change("threads 1 to 2", threads=2)]
    written = list(spread._rows(tmp_path, Kind("pfl", "m", True), made))
    assert [(row["changed"], row["largest"], row["tolerance"]) for row in written] == [
        ("threads 1 to 2", "0.5", "1.5"),
        ("torch 2.13 to 2.11, python 3.11 to 3.12", "0.1", "1.5"),
    ]


def test_the_largest_difference_is_that_of_the_metrics_alone():
    usual = pd.DataFrame({"seed": [0, 1], "status": "finished", "test_loss": [200.0, 0.5], "privacy_delta": [1.0, 1.0]})
    other = usual.assign(seed=[5, 6], test_loss=[201.0, 0.52], privacy_delta=[2.0, 2.0])
    assert largest_difference(usual, usual, "relative") == 0.0
    assert largest_difference(usual, other, "relative") == pytest.approx(0.02)
    assert largest_difference(usual, other, "points") == pytest.approx(1.0)
    assert largest_difference(usual, other.assign(test_loss=[201.0, math.nan]), "points") == math.inf
