import matplotlib.pyplot as plt
import numpy as np
import pytest

from dpfl.accounting.contraction import pnsgd_gaussian_delta
from dpfl.papers.asoodeh2020.figures import RUN_FIGURES

KEY = "asoodeh2020"


@pytest.mark.parametrize("name", sorted(RUN_FIGURES))
def test_each_picture_is_drawn_from_its_data(results, name):
    figure = RUN_FIGURES[name].draw(results.figure(KEY, name))
    assert all(axis.get_xlabel() or axis.get_ylabel() for axis in figure.axes)
    plt.close(figure)


def test_places_are_theorem_4_and_its_means(results):
    data = results.figure(KEY, "places").query("law == 'gaussian'")
    n, step, scale = (data[name].iloc[0] for name in ("n", "step", "scale"))
    theory = {"eta": step, "sigma": scale, "lipschitz": 1, "smoothness": 1, "strong_convexity": 1, "diameter": 1}
    every = pnsgd_gaussian_delta(1.0, i=np.arange(1, n + 1), n=n, **theory)
    at = {name: rows[np.isclose(rows["epsilon"], 1.0)] for name, rows in data.groupby("variant")}
    np.testing.assert_allclose(at["last"]["delta"], every[-1 - at["last"]["later"]], rtol=1e-12)
    np.testing.assert_allclose(at["permuted"]["delta"], every.mean(), rtol=1e-12)
    stopped = [every[-1 - later :].sum() / n for later in at["random"]["later"]]
    np.testing.assert_allclose(at["random"]["delta"], stopped, rtol=1e-9)


def test_the_last_record_spends_the_budget_and_no_record_more(results):
    data = results.figure(KEY, "places").query("variant == 'last' and epsilon == 1")
    assert (data["delta"] <= 1e-5).all()
    assert data.groupby("law")["delta"].max().min() > 0.999e-5


def test_utility_takes_the_best_step(results):
    data = results.figure(KEY, "utility")
    runs = results.runs(KEY)
    for row in data.itertuples():
        own = runs.query("model == @row.model and law == @row.law and order == @row.order and release == @row.release")
        means = own[own["epsilon"] == row.epsilon].groupby("step")["excess_risk"].mean()
        assert row.excess_risk == pytest.approx(means.min(), rel=1e-12) and row.step == means.idxmin()
        assert (row.least_step, row.most_step) == (means.index.min(), means.index.max())


def test_lines_without_noise_are_named_at_the_margin_and_steps_at_an_end_are_counted(results):
    data = results.figure(KEY, "utility")
    figure = RUN_FIGURES["utility"].draw(data)
    for axis in figure.axes:
        lines = {
            round(line.get_ydata()[0], 12): line.get_color() for line in axis.get_lines() if line.get_linestyle() == ":"
        }
        assert {text.get_text() for text in axis.texts} <= {
            f"{order}, {stop}" for order in ("sorted", "permuted") for stop in ("last", "stop")
        }
        assert axis.texts and {text.get_color() for text in axis.texts} <= set(lines.values())
    private = data.query("epsilon < inf")
    least, most = (private["step"] == private["least_step"]).sum(), (private["step"] == private["most_step"]).sum()
    words = (
        f"Of the {len(private)} best steps with noise {least} are the smallest of their grid and {most} the largest."
    )
    assert words in figure.get_supxlabel().replace("\n", " ")
    plt.close(figure)


def test_places_are_titled_with_the_records_they_are_of(results):
    data = results.figure(KEY, "places")
    figure = RUN_FIGURES["places"].draw(data)
    assert f"n = {data['n'].iloc[0]}\n" in figure.axes[0].get_title()
    plt.close(figure)
