import matplotlib.pyplot as plt
import pandas as pd

from dpfl.papers.bhaskar2025.figure_parts import heights, runs_text
from dpfl.reporting import style


def test_runs_are_counted_where_there_are_any():
    assert runs_text(pd.DataFrame({"runs": [0, 1, 1]})) == "1 run"
    assert runs_text(pd.DataFrame({"runs": [2, 10, 3]})) == "2 to 10 runs"
    assert runs_text(pd.DataFrame({"runs": [3, 3]})) == "3 runs"


def test_axes_have_ticks_at_the_values_and_plain_numbers():
    figure, axis = plt.subplots()
    axis.plot([1, 5, 20], [0.5, 20, 300])
    axis.set_xscale("log")
    style.ticks_at(axis, pd.Series([20, 1, 5, 5]))
    heights(axis)
    figure.canvas.draw()
    assert [label.get_text() for label in axis.get_xticklabels()] == ["1", "5", "20"]
    assert {"0.5", "20", "200"} <= {label.get_text() for label in axis.get_yticklabels()}
    plt.close(figure)
