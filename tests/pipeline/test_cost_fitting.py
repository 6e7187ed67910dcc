import pytest

from dpfl.grid.sweep import Sweep
from dpfl.pipeline import cost_fitting
from dpfl.pipeline.cost import TABLE, UnitCost, WorkCount, read, table


def measured(unit, works, factor=1.0, algorithm="pnsgd", **settings):
    """Sweeps that took exactly what a unit says."""
    sweep = Sweep("p", algorithm, "s_seed0", {"dataset": "mnist", **settings}, (), (0,))
    return [cost_fitting.Measured(sweep, work, factor * unit.seconds(work), unit.memory_mb) for work in works]


def test_known_costs_are_found_again():
    unit = UnitCost("pnsgd/mnist", 3.0, 0.002, 1e-5, 900.0, 0, 0.0)
    works = [WorkCount(1e3, 1e5), WorkCount(5e4, 2e5), WorkCount(1e4, 4e7)]
    found = cost_fitting.fit({}, measured(unit, works))["pnsgd/mnist"]
    for work in [*works, WorkCount(2e4, 1e6)]:
        assert found.seconds(work) == pytest.approx(unit.seconds(work), rel=1e-6)
    assert found.memory_mb == 900.0


def test_one_sweep_is_enough_to_predict_itself_and_nothing_is_negative():
    unit = UnitCost("pnsgd/mnist", 0.0, 0.0, 2e-5, 500.0, 0, 0.0)
    found = cost_fitting.fit({}, measured(unit, [WorkCount(1e3, 1e6)]))["pnsgd/mnist"]
    assert found.seconds(WorkCount(1e3, 1e6)) == pytest.approx(20.0)
    assert min(found.fixed_seconds, found.step_seconds, found.record_seconds) >= 0


def test_image_models_are_stretched():
    timed = table()["fedavg_images/cnn_tanh/grey"]
    works = [WorkCount(1e4, 1e6), WorkCount(1e4, 3e6), WorkCount(1e4, 5e6)]
    sweeps = measured(timed.scaled(1.5), works, algorithm="fedavg_images", model="cnn_tanh")
    found = cost_fitting.fit(table(), sweeps)["fedavg_images/cnn_tanh/grey"]
    assert found.record_seconds == pytest.approx(1.5 * timed.record_seconds, rel=0.05)


def test_the_table_is_written_as_it_is_read(tmp_path):
    path = tmp_path / "costs.csv"
    cost_fitting.write(table(), path)
    again = read(path)
    assert again.keys() == read(TABLE).keys()
    for kind, unit in table().items():
        assert again[kind].seconds(WorkCount(1e4, 1e6)) == pytest.approx(unit.seconds(WorkCount(1e4, 1e6)), rel=1e-3)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("s\tcpu_time\tmax_rss\n30.0\t4.0\t200.5\n", (30.0, 200.5)),
        ("s\tcpu_time\tmax_rss\n300.0\t140.0\t200.5\n", (140.0, 200.5)),
        ("s\tcpu_time\tmax_rss\n", None),
        ("s\tcpu_time\tmax_rss\n1\tNA\tNA\n", None),
    ],
)
def test_benchmarks_are_read(tmp_path, text, found):
    (tmp_path / "x.tsv").write_text(text)
    assert cost_fitting.read_benchmark(tmp_path / "x.tsv") == found
    assert cost_fitting.read_benchmark(tmp_path / "absent.tsv") is None
