import pytest

from dpfl.data.datasets import COLOUR
from dpfl.engine.networks import ImageModel, build
from dpfl.grid import configuration, expansion
from dpfl.grid.training_job import TrainingJob
from dpfl.pipeline import cost_fitting
from dpfl.pipeline.cost import TABLE, UnitCost, WorkCount, read, table


def measured(unit, works, factor=1.0, algorithm="pnsgd", **settings):
    """Jobs that took exactly what a unit says."""
    job = TrainingJob("p", algorithm, "s_seed0", {"dataset": "mnist", **settings}, (), (0,))
    return [cost_fitting.Measured(job, work, factor * unit.seconds(work), unit.memory_mb) for work in works]


def test_known_costs_are_found_again():
    unit = UnitCost("pnsgd/mnist", 3.0, 0.002, 1e-5, 900.0, 0, 0.0)
    works = [WorkCount(1e3, 1e5), WorkCount(5e4, 2e5), WorkCount(1e4, 4e7)]
    found = cost_fitting.fit({}, measured(unit, works))["pnsgd/mnist"]
    for work in [*works, WorkCount(2e4, 1e6)]:
        assert found.seconds(work) == pytest.approx(unit.seconds(work), rel=1e-6)
    assert found.memory_mb == 900.0


def test_one_job_is_enough_to_predict_itself_and_nothing_is_negative():
    unit = UnitCost("pnsgd/mnist", 0.0, 0.0, 2e-5, 500.0, 0, 0.0)
    found = cost_fitting.fit({}, measured(unit, [WorkCount(1e3, 1e6)]))["pnsgd/mnist"]
    assert found.seconds(WorkCount(1e3, 1e6)) == pytest.approx(20.0)
    assert min(found.fixed_seconds, found.step_seconds, found.record_seconds) >= 0


def test_image_models_are_stretched():
    timed = table()["fedavg_images/cnn_tanh/grey"]
    works = [WorkCount(1e4, 1e6), WorkCount(1e4, 3e6), WorkCount(1e4, 5e6)]
    jobs = measured(timed.scaled(1.5), works, algorithm="fedavg_images", model="cnn_tanh")
    found = cost_fitting.fit(table(), jobs)["fedavg_images/cnn_tanh/grey"]
    assert found.record_seconds == pytest.approx(1.5 * timed.record_seconds, rel=0.05)


def test_the_table_is_written_as_it_is_read(tmp_path):
    path = tmp_path / "costs.csv"
    cost_fitting.write(table(), path)
    again = read(path)
    assert again.keys() == read(TABLE).keys()
    for kind, unit in table().items():
        assert again[kind].seconds(WorkCount(1e4, 1e6)) == pytest.approx(unit.seconds(WorkCount(1e4, 1e6)), rel=1e-3)


@pytest.mark.parametrize(
    ("clock", "seconds", "device"),
    [("30.0", 30.0, "cpu"), ("300.0", 140.0, "cpu"), ("NA", None, "cpu"), ("30.0", None, "cuda")],
)
def test_the_clock_stands_for_the_processor_time_of_short_jobs(tmp_path, clock, seconds, device):
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / "config.yaml").write_text(f"papers: [lowy2021]\ntraining: {{device: {device}}}\n")
    first, second, *_ = expansion.expand(configuration.resolve({"papers": ["lowy2021"]}))
    for job in (first, second):
        path = expansion.training_benchmark(folder, job.paper, job.name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"s\tcpu_time\tmax_rss\n{clock}\t140.0\t200.5\n")
    runs = expansion.run_table_path(folder, first.paper, first.name)  # the second is not finished
    runs.parent.mkdir(parents=True)
    runs.write_bytes(b"runs")
    found = [(each.job.name, each.seconds, each.memory_mb) for each in cost_fitting.measured(tmp_path)]
    assert found == ([(first.name, seconds, 200.5)] if seconds else [])


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
