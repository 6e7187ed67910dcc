import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from dpfl.papers.lowy2021.comparisons import mnist_pairs
from dpfl.papers.lowy2021.figures import FIGURES, figure_2_message, mnist_message, spent_message
from dpfl.papers.lowy2021.theory import acceleration_message, availability_message, one_pass_message, shuffle_message
from dpfl.papers.lowy2021.theory_rates import free_message, rates_message
from dpfl.reporting.results import NotRunError


@pytest.mark.parametrize("name", ["figure_2", "figure_2_spent"])
def test_figure_2_has_every_curve_and_says_its_bars(results, name):
    recipe = FIGURES[name]
    data = recipe.data(results(stand_in_for="insurance"))
    assert set(data["algorithm"]) == {"minibatch", "local", "mean_predictor", "least_squares"}
    panels = 4 if name == "figure_2" else 3  # the authors' protocol clips means and is in Fig. 2 alone
    assert len(data) == panels * (2 * 3 + 2) and data["test_loss"].notna().all()
    losses = data.query("algorithm == 'minibatch' and epsilon == 18")["test_loss"]
    assert losses.tolist() == pytest.approx([5 + 10 / 18] * panels, abs=0.2)
    figure = recipe.draw(data)
    assert "20 trials" in figure.get_supxlabel() and "90\N{NO-BREAK SPACE}%" in figure.get_supxlabel()
    assert "stand-in for medical insurance" in figure.axes[0].get_title().lower()
    if name == "figure_2":
        titles = [axis.get_title().splitlines()[-1] for axis in figure.axes]
        assert titles == [
            "authors' protocol, n = 20",
            "noise of Theorem 2.1, n = 20",
            "noise of the later script, n = 20",
            "tight noise, n = 20",
        ]
        assert [text.get_text() for text in figure.axes[0].texts] == ["v*² = 6.5e+07"]
        assert not figure.axes[1].texts
        assert "noise of Theorem 2.1 0.0056 to 0.10;" in figure.get_supxlabel().replace("\n", " ")  # rounded up
    plt.close(figure)


def test_no_point_of_the_protocol_lies_above_its_panel(results):
    recipe = FIGURES["figure_2_protocol"]
    data = recipe.data(results())
    higher = data.assign(clients=data["clients"] + 1, test_loss=10 * data["test_loss"])
    figure = recipe.draw(pd.concat([data, higher]))
    assert figure.axes[1].get_ylim()[0] == 0
    assert figure.axes[1].get_ylim()[1] > higher["test_loss"].max()
    plt.close(figure)


def test_the_spent_figure_places_runs_at_what_they_spend(results):
    recipe = FIGURES["figure_2_spent"]
    figure = recipe.draw(recipe.data(results(epsilon_proven=0.25)))
    drawn = [line.get_xdata() for line in figure.axes[0].get_lines() if len(line.get_xdata()) == 2]
    assert any(list(places) == [0.25, 0.25] for places in drawn)
    plt.close(figure)


def test_the_spent_figure_needs_a_private_run(results):
    recipe = FIGURES["figure_2_spent"]
    data = recipe.data(results())
    with pytest.raises(NotRunError, match="no private run"):
        recipe.draw(data[data["epsilon"] == float("inf")])


def test_the_mnist_figure_is_drawn_where_one_algorithm_was_run(results):
    recipe = FIGURES["mnist"]
    data = recipe.data(results())
    figure = recipe.draw(data[data["algorithm"] == "minibatch"])
    assert len(figure.axes[0].collections) == 1
    below = figure.axes[2]
    assert not below.containers and [text.get_text() for text in below.texts] == ["not run"]
    plt.close(figure)


def test_the_mnist_figure_shows_errors_and_their_difference_for_each_split(results):
    recipe = FIGURES["mnist"]
    data = recipe.data(results())
    assert len(data) == 2 * (2 * 3 + 1)
    figure = recipe.draw(pd.concat([data, data.assign(rounds=50)]))
    titles = [axis.get_title() for axis in figure.axes]
    assert len(titles) == 4 and "published split" in titles[0] and "disjoint split" in titles[1]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[:2] == ["R = 35 rounds", "R = 50 rounds"] and "MNIST" in figure.get_supxlabel()
    assert figure.axes[2].get_ylabel().startswith("M = 12\n")
    algorithms = {line.get_color() for line in figure.axes[0].get_lines()}
    gaps = {container.lines[0].get_color() for container in figure.axes[2].containers}
    assert len(gaps) == 2 and not algorithms & gaps
    own = (
        data[data["split"] == "published"].query("epsilon < inf").set_index(["algorithm", "epsilon"])["test_error_pct"]
    )
    drawn = figure.axes[2].containers[0].lines[0]
    assert drawn.get_ydata() == pytest.approx(list(own["local"] - own["minibatch"]))
    bars = figure.axes[2].containers[0].lines[2][0].get_segments()
    paired = mnist_pairs(results()).query("split == 'published' and epsilon < inf").sort_values("epsilon")["interval"]
    assert [(high - low) / 2 for (_, low), (_, high) in bars] == pytest.approx(paired.tolist())
    noisy = data.query("split == 'published' and epsilon < inf")
    apart = noisy.groupby("epsilon")["interval"].agg(np.linalg.norm)
    assert (paired.to_numpy() < 0.9 * apart.to_numpy()).all()
    plt.close(figure)


def test_the_band_of_an_algorithm_spans_its_errors(results):
    data = FIGURES["mnist"].data(results())
    wide = pd.concat([data, data.assign(rounds=50, test_error_pct=data["test_error_pct"] + 3)])
    figure = FIGURES["mnist"].draw(wide)
    own = data.query("split == 'published' and epsilon < inf and algorithm == 'minibatch'")["test_error_pct"]
    heights = figure.axes[0].collections[0].get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == pytest.approx((own.min(), own.max() + 3))
    plt.close(figure)


# Messages: the sentence above a picture follows the numbers; each case turns one around.


NAMES = {"moments": "noise of the later script", "tight": "tight noise"}


def losses(local: float) -> pd.DataFrame:
    rows = [
        {"dataset": "insurance", "clients": 3, "noise": "tight", "clipping": clipping, "epsilon": epsilon}
        | {"algorithm": algorithm, "test_loss": loss, "epsilon_spent": 0.5 * epsilon}
        | {
            "difference": (local if epsilon < 2 else 9.0) - 5.0,
            "holm_p_value": 0.01 if epsilon < math.inf else math.nan,
        }
        for clipping in ("mean", "record")
        for epsilon in (1.0, 2.0, math.inf)
        for algorithm, loss in (("minibatch", 5.0), ("local", local if epsilon < 2 else 9.0))
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(("local", "share"), [(6.0, "all 2"), (4.0, "1 of 2")])
def test_points_at_which_minibatch_is_better_beyond_chance_are_counted(local, share):
    text = figure_2_message(losses(local))
    worse = ", worse at 1" if local < 5 else ""
    assert text.endswith(
        f" at {share} points of the authors' protocol{worse}; with records clipped at {share} (tight noise{worse})"
    )
    assert "at 0 of 2 points" in figure_2_message(losses(local).assign(holm_p_value=0.06))
    assert figure_2_message(losses(local).query("algorithm == 'minibatch'")) == ""
    data = losses(local)
    data.loc[(data["algorithm"] == "minibatch") & (data["epsilon"] == 1), "epsilon_spent"] *= 298
    assert f"of the authors' protocol{worse} (at a bound on ε up to 298 times as large); with" in figure_2_message(data)


def test_a_run_spends_a_share_of_what_is_asked():
    data = losses(6.0)
    assert spent_message(data, NAMES) == "Of the ε asked for, a run spends at most 50 % under tight noise"
    more = data.assign(noise="moments", epsilon_spent=data["epsilon"] * data["epsilon"] * 20)
    assert "2000 to over 1,000 % under the noise of the later script" in spent_message(more, NAMES)
    assert spent_message(data.query("epsilon == inf"), NAMES) == ""


def test_larger_errors_of_local_sgd_count_beyond_their_interval():
    data = pd.DataFrame(
        {"algorithm": "local", "epsilon": [1.0, 2.0, 1.0, math.inf], "noise": ["moments", "moments", "tight", "tight"],
         "difference_pct": [0.5, -0.2, 2.0, 9.0], "difference_interval_pct": 0.3}
    )  # fmt: skip
    text = mnist_message(data, NAMES)
    assert (
        "in 2 of 3 cases, by more than the bar; over all cases the difference is -0.2 to 0.5 points under the noise of "
        "the later script, 2.0 points under tight" in text
    )
    assert mnist_message(data.query("epsilon == inf"), NAMES) == ""


@pytest.mark.parametrize(("gap", "worse", "better"), [(-1.0, 1, 0), (1.0, 0, 1), (0.1, 0, 0)])
def test_acceleration_is_judged_at_the_theorems_rounds(gap, worse, better):
    data = pd.DataFrame(
        {"task": "least squares, convex", "theorem": [True, False], "epsilon": 1.0, "plain_minus_this": [gap, -9.0],
         "difference_interval": 0.2}
    )  # fmt: skip
    assert (
        f"in {better} of 1 problems where it is smooth; it loses in {worse}; after other rounds it can lose (crosses)"
        == acceleration_message(data).split(", ")[-1]
    )
    assert acceleration_message(data.assign(plain_minus_this=gap)).endswith(f"it loses in {worse}") == (gap > -0.2)
    assert acceleration_message(data.query("not theorem")) == ""
    sharp = data.assign(task="absolute loss, condition 3", plain_minus_this=5.0)
    both = acceleration_message(pd.concat([data, sharp]))
    assert "in 1 of 1 problems where the loss is not smooth (as in Theorem 2.3) and in" in both
    assert f"in {better} of 1 problems where it is smooth; it loses in 0 and {worse}; after other" in both


@pytest.mark.parametrize(("slope", "share"), [(-0.2, "all 1"), (-0.6, "0 of 1")])
def test_one_pass_says_what_differing_clients_cost_and_where_the_risk_falls_slowly(slope, share):
    data = pd.DataFrame(
        {"federation": ["alike", "different"], "noise": "tight", "problem": "convex", "axis": "clients", "ratio": 1.1,
         "ratio_interval": 0.05, "slope": slope, "slope_interval": 0.1, "exponent": -0.5}
    )  # fmt: skip
    text = one_pass_message(data)
    assert "by +10 % (1 of 1 points beyond chance);" in text and f"in {share} panels" in text
    assert "(0 of 1 points beyond chance)" in one_pass_message(data.assign(ratio_interval=0.2))
    assert one_pass_message(data.query("federation == 'alike'")) == ""


@pytest.mark.parametrize(("power", "share"), [(-0.7, "all 1"), (-1.05, "all 1"), (-1.5, "0 of 1")])
def test_a_fitted_power_agrees_between_the_terms_powers_up_to_its_interval(power, share):
    data = pd.DataFrame(
        {"study": ["bounds_convex"] * 2, "axis": "clients", "noise": "tight", "risk_power": power, "risk_interval": 0.1,
         "statistical_power": -0.5, "private_power": -1.0, "applies": [True, False]}
    )  # fmt: skip
    text = rates_message(data, {"theorem": "the theorem's noise", "tight": "least noise"})
    assert f"in {share} panels with least noise" in text and "1 of 2 points are within the theorem's conditions" in text
    assert "conditions" not in rates_message(data.assign(study="rates_convex"), {"tight": "least noise"})


@pytest.mark.parametrize(("ratio", "free"), [(1.0, True), (30.0, False)])
def test_privacy_is_free_only_if_no_ratio_exceeds_one(ratio, free):
    data = pd.DataFrame(
        {"study": "free_convex", "axis": ["records", "clients"], "ratio": [ratio, 40.0], "ratio_interval": 0.2,
         "power": [0.5, 0.05], "power_interval": 0.1, "power_over_logarithm": [0.5, 0.05],
         "power_over_logarithm_interval": 0.1}
    )  # fmt: skip
    assert ("grows beyond chance" in free_message(data)) != free
    assert ("in 1 of 2 lines" in free_message(data)) != free


def test_trust_is_compared_with_a_trusted_server():
    data = pd.DataFrame(
        {"clients": 16, "rounds": 8, "trust": ["nobody", "shuffler", "server"], "excess_risk": [5.0, 0.6, 0.5]}
    )
    text = shuffle_message(data)
    assert "is 1.2 times" in text and text.endswith("if nobody is trusted, 10 times")
    assert shuffle_message(data.query("trust != 'server'")) == ""


@pytest.mark.parametrize(("ratio", "verb"), [(1.05, "decides"), (1.5, "does not decide")])
def test_the_mean_of_the_inverse_decides_if_no_twin_differs_beyond_chance(ratio, verb):
    data = pd.DataFrame(
        {"law": ["fixed", "random"], "same_inverse_ratio": [math.nan, ratio],
         "same_inverse_ratio_interval": [math.nan, 0.1], "same_mean_ratio": [math.nan, 2.0]}
    )  # fmt: skip
    assert availability_message(data).startswith(
        f"The mean of 1/M {verb} the risk"
    ) and "2.00 times the risk of a fixed M with the same mean of M" in availability_message(data)
    assert availability_message(data.query("law == 'fixed'")) == ""
