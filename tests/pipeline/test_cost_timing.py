import pytest

from dpfl.data.datasets import COLOUR
from dpfl.engine.networks import ImageModel, build
from dpfl.pipeline import cost_fitting
from dpfl.pipeline.cost import UnitCost, WorkCount, table


def test_a_measured_kind_is_timed_and_counted():
    found = cost_fitting.measure(["fedavg_images/scatter_linear/grey", "pnsgd/mnist"], seconds=0.4)
    assert list(found) == ["fedavg_images/scatter_linear/grey"]
    unit = found["fedavg_images/scatter_linear/grey"]
    assert unit.parameters == 47_638 and 0 < unit.seconds(WorkCount(1, 64)) - unit.fixed_seconds < 60
    assert unit.step_seconds >= 0 and unit.record_seconds > 0


@pytest.mark.parametrize("model", list(ImageModel))
def test_operations_are_more_than_those_of_the_parameters(model):
    """Forward and two backward products touch every weight at least once each, two operations a touch."""
    parameters, flops = cost_fitting.flops_of_a_record(f"fedavg_images/{model}/colour")
    assert parameters == sum(each.numel() for each in build(model, COLOUR, 0).parameters())
    assert flops >= 2 * 2 * 0.9 * parameters


def test_a_slower_machine_is_known_by_what_both_measured():
    slower = {kind: table()[kind].scaled(3.0) for kind in cost_fitting.KINDS}
    assert cost_fitting.slowdown(slower, table()) == pytest.approx(3.0)
    assert cost_fitting.slowdown({"new": UnitCost("new", 1, 1, 1, 1, 1, 1)}, table()) == 1.0
