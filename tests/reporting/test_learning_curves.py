import sys
from types import ModuleType

import pandas as pd
import pytest

from dpfl.errors import InputError
from dpfl.reporting import learning_curves


@pytest.fixture
def data():
    """Two cells of two seeds, three rounds each."""
    rows = [
        (cell, seed, step, "round", base + seed + 10.0 * step)
        for cell, base in (("epsilon inf", 20.0), ("epsilon 1", 10.0))
        for seed in (0, 1)
        for step in (1, 2, 3)
    ]
    table = pd.DataFrame(rows, columns=["cell", "seed", "step", "unit", "accuracy_pct"])
    return table.assign(origin=[f"job_{cell}:{seed}" for cell, seed in zip(table["cell"], table["seed"], strict=True)])


def test_a_panel_a_cell_with_each_run_and_their_mean(data):
    first, second = learning_curves.draw(data, "a table").axes
    assert [axis.get_title() for axis in (first, second)] == ["epsilon inf", "epsilon 1"]
    *runs, mean = [list(line.get_ydata()) for line in second.get_lines()]
    assert runs == [[20, 30, 40], [21, 31, 41]] and mean == [20.5, 30.5, 40.5]


def test_runs_of_one_cell_and_seed_are_lines_of_their_own(data):
    """As those of several splits in a row for all of them."""
    both = pd.concat([data, data.assign(origin=data["origin"] + "0", accuracy_pct=0.0)])
    figure = learning_curves.draw(both, "a table")
    assert [len(axis.get_lines()) for axis in figure.axes] == [5, 5]
    assert "Runs a cell: 4." in figure.texts[-1].get_text()


def test_the_same_data_give_the_same_bytes(data, tmp_path):
    for name in ("a.svg", "b.svg"):
        learning_curves.write(data, "a table", tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_what_cannot_be_drawn_is_refused(data, tmp_path):
    with pytest.raises(InputError, match=r"ends with \.gif: choose"):
        learning_curves.write(data, "a table", tmp_path / "a.gif")
    many = pd.concat([data.assign(cell=f"cell {number}") for number in range(85)])
    with pytest.raises(InputError, match="choose some with --where"):
        learning_curves.draw(many, "a table")
    assert not list(tmp_path.iterdir())


def test_events_are_written_by_tensorboards_writer(data, tmp_path, monkeypatch):
    """A writer of the same face stands in for TensorBoard's, which is not among the locked packages."""
    written = {}

    class Writer:
        def __init__(self, folder):
            self.values = written.setdefault(folder, [])

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def add_scalar(self, name, value, step):
            self.values.append((name, value, step))

    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer
    with pytest.raises(InputError, match="pip install tensorboard"):
        monkeypatch.setattr(learning_curves, "find_spec", lambda _: None)
        learning_curves.write_events(data, tmp_path / "events")
    monkeypatch.setattr(learning_curves, "find_spec", lambda _: object())
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    assert learning_curves.write_events(data, tmp_path / "events") == 4
    assert written[str(tmp_path / "events" / "epsilon_1_seed1")] == [
        ("accuracy_pct", 21.0, 1), ("accuracy_pct", 31.0, 2), ("accuracy_pct", 41.0, 3)
    ]  # fmt: skip
    written.clear()
    both = pd.concat([data, data.assign(origin=data["origin"] + "0")])
    assert learning_curves.write_events(both, tmp_path / "events") == len(written) == 8
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "old").touch()
    with pytest.raises(InputError, match="is there already"):
        learning_curves.write_events(data, tmp_path / "events")
