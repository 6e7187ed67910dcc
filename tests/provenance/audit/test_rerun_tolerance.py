import math

import pytest

from dpfl.catalog import keys
from dpfl.grid import configuration, expansion
from dpfl.provenance.audit.rerun import (
    FLOAT32,
    FLOAT32_EXPERIMENTS,
    FLOAT64,
    Tolerance,
    difference,
    platform_of,
    tolerance_of,
)


def test_a_tolerance_holds_up_to_its_largest_difference():
    points, relative = Tolerance(0.5, "points"), Tolerance(1e-3, "relative")
    assert points.holds(90.0, 90.5) and not points.holds(90.0, 90.6)
    assert relative.holds(2000.0, 2001.9) and not relative.holds(2000.0, 2002.1)
    assert relative.holds(0.0, 0.0009) and not relative.holds(0.0, 0.0011)


def test_missing_and_infinite_numbers_are_the_same_as_themselves_only():
    points = Tolerance(0.5, "points")
    assert points.holds(math.nan, math.nan) and not points.holds(math.nan, 1.0) and not points.holds(1.0, math.nan)
    assert points.holds(math.inf, math.inf) and not points.holds(math.inf, 1.0)


def test_experiments_in_single_precision_are_experiments_of_the_grid():
    grid = {job.experiment for job in expansion.expand(configuration.resolve({"papers": list(keys())}))}
    assert set(FLOAT32_EXPERIMENTS) < grid


@pytest.mark.parametrize(("experiment", "wanted"), [("fedavg_images", FLOAT32), ("pnsgd", FLOAT64)])
def test_the_tolerance_follows_the_precision(experiment, wanted):
    assert tolerance_of(experiment) == wanted


def test_a_record_names_its_platform_without_the_last_number_of_a_version():
    software = {"torch": "2.13.0+cpu", "python": "3.11.7", "numpy": "2.4.6"}
    here = {"torch": "2.13", "python": "3.11", "device": "cpu"}
    assert platform_of(software, {"device": "cpu", "threads": 1}) == here
    assert platform_of(software, {"device": "cuda"}) == here | {"device": "cuda"}
    one, other = (platform_of(software, {"device": "cuda", "gpu": f"NVIDIA {name}"}) for name in ("A100", "H100"))
    assert difference(one, one) == []
    assert difference(one, other) == ["device cuda (NVIDIA A100) to cuda (NVIDIA H100)"]
    assert difference(here, here) == []
    assert difference(here, here | {"device": "cuda"}) == ["device cpu to cuda"]
