"""The figure of Tables 2 to 4: every run a point, medians by pandas, the print where it is comparable."""

import json
import math

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from dpfl.papers.bhaskar2025.distances import distances_message
from dpfl.papers.bhaskar2025.figures import draw_leads, draw_splits, leads_message, split_cells, splits_message
from dpfl.papers.bhaskar2025.readings import readings_message
from dpfl.papers.bhaskar2025.sampling import sampling_message
from dpfl.reporting.results import Results


def test_the_published_values_are_drawn_even_without_runs(tmp_path):
    data = split_cells(Results(tmp_path))
    assert len(data) == 216
    figure = draw_splits(data)
    assert len(figure.axes) == 12 and "Nothing was run" in figure.get_supxlabel()
    plt.close(figure)


def test_only_datasets_that_ran_are_drawn_and_every_run_is_a_point(as_runs, rows_of_runs):
    runs = rows_of_runs("table == 2 and model == 'cnn_relu'", range(3))
    data = split_cells(as_runs(runs))
    assert len(data) == 72 and data["run_accuracies_pct"].map(json.loads).map(len).sum() == len(runs)
    figure = draw_splits(data)
    assert [axis.get_title() for axis in figure.axes][:2] == ["CNN + ReLU, n = 3", "CNN + tanh"] and len(
        figure.axes
    ) == 4
    assert "MNIST" in figure.axes[0].get_ylabel() and "our runs, n a cell" in figure.get_supxlabel()
    points, line, published = figure.axes[0].get_lines()[:3]
    assert len(points.get_xdata()) == 18 and len(line.get_xdata()) == len(published.get_xdata()) == 6
    assert [text.get_text() for text in figure.axes[1].texts] == ["not run"] and not figure.axes[0].texts
    assert not math.isnan(figure.axes[0].get_ylim()[0])
    plt.close(figure)


def test_no_line_is_drawn_through_runs_that_lie_apart(as_runs, rows_of_runs):
    runs = rows_of_runs("table == 2 and model == 'cnn_relu' and epsilon == inf", range(3))
    runs.loc[(runs["seed"] == 0) & (runs["rounds"] == 10), "accuracy_pct"] = 11.35
    figure = draw_splits(split_cells(as_runs(runs)))
    middle = figure.axes[0].get_lines()[1].get_ydata()
    assert [math.isnan(value) for value in middle] == [False, True, False, False, False, False]
    plt.close(figure)


def test_no_line_is_drawn_through_a_split_that_was_not_run(as_runs, rows_of_runs):
    runs = rows_of_runs("table == 2 and model == 'cnn_relu' and epsilon == inf and rounds != 10", range(3))
    figure = draw_splits(split_cells(as_runs(runs)))
    middle = figure.axes[0].get_lines()[1].get_ydata()
    assert [math.isnan(value) for value in middle] == [False, True, False, False, False, False]
    plt.close(figure)


def test_nothing_published_is_drawn_beside_stand_ins(as_runs, rows_of_runs, as_stand_in):
    runs = as_stand_in(rows_of_runs("table == 2 and model == 'cnn_relu'", [0]))
    figure = draw_splits(split_cells(as_runs(runs)))
    assert len(figure.axes[0].get_lines()) == 6
    assert figure.axes[0].get_ylabel().startswith("Digits\n(stand-in for MNIST)")
    assert "published" not in [text.get_text() for text in figure.legends[0].get_texts()]
    plt.close(figure)


def test_points_line_and_print_are_the_runs_their_medians_and_the_published_values(as_runs, rows_of_runs):
    runs = rows_of_runs("table == 2 and model == 'cnn_tanh' and epsilon == 2.93", range(3), offset_pct=-5, noise_pct=2)
    figure = draw_splits(split_cells(as_runs(runs, rows_of_runs("table == 2 and model == 'cnn_relu'", [0]))))
    [axis] = [axis for axis in figure.axes if axis.get_title().startswith("CNN + tanh")]
    points, line, published = axis.get_lines()[3:6]  # the larger budget; without privacy nothing ran
    by_split = runs.groupby("local_epochs")["accuracy_pct"]
    drawn = sorted(zip(points.get_xdata(), points.get_ydata(), strict=True))
    assert drawn == sorted(zip(runs["local_epochs"], runs["accuracy_pct"], strict=True))
    assert line.get_ydata() == pytest.approx(by_split.median().tolist())
    # Table 2, CNN + tanh at epsilon 2.93, as printed.
    assert published.get_ydata().tolist() == [93.56, 93.03, 91.79, 90.75, 85.38, 49.75]
    assert published.get_xdata().tolist() == [1, 2, 4, 5, 10, 20]
    plt.close(figure)


def test_leads_are_over_the_best_other_split_and_counted(as_runs, rows_of_runs, tmp_path):
    # Read off the printed tables: 7 of 24 private columns have a better split than (1, 20).
    nothing = split_cells(Results(tmp_path / "none"))
    assert leads_message(nothing) == "One local epoch a round is best in 17 of 24 published private columns"
    runs = rows_of_runs("table == 2 and model == 'cnn_relu' and epsilon == 2.93", range(3))
    runs.loc[runs["local_epochs"] == 20, "accuracy_pct"] = 99.0
    data = split_cells(as_runs(runs))
    ours = "and in 0 of 1 of ours; another is better beyond chance in 1 of ours"
    assert leads_message(data).endswith(f"published private columns, {ours}")
    # 93.86 is the highest mean, and no fixed split is ahead: the best of five with the same seed leads by chance.
    luck = rows_of_runs("table == 2 and model == 'cnn_relu' and epsilon == 2.93", range(3))
    luck.loc[
        (luck["local_epochs"] > 1) & (luck["local_epochs"] == 2 + 2 * luck["seed"].clip(upper=1)), "accuracy_pct"
    ] = 95
    assert leads_message(split_cells(as_runs(luck))).endswith("published private columns, and in all 1 of ours")
    figure = draw_leads(data)
    [axis] = figure.axes
    ours, published = axis.containers[0].lines[0], axis.get_lines()[-2]  # the last is the circle
    assert ours.get_ydata()[0] == pytest.approx(93.86 - 99.0)
    assert published.get_ydata()[0] == pytest.approx(93.86 - 92.63)
    assert axis.get_yscale() == "linear" and "mean over 3 seeds" in figure.get_supxlabel().replace("\n", " ")
    plt.close(figure)


def test_the_published_column_that_decides_the_claim_is_circled_and_named(tmp_path):
    """It is the counterexample of one_local_epoch_printed."""
    data = split_cells(Results(tmp_path))
    figure = draw_leads(data)
    [axis] = figure.axes
    [label] = axis.texts
    assert label.get_text() == (
        "counterexample: -0.74, the claim needs at least 0\n(published, ScatterNet + linear, CIFAR-10, ε = 3)"
    )
    assert axis.get_lines()[-1].get_ydata()[0] == label.xy[1] == pytest.approx(-0.74)
    whole = draw_leads(data.assign(published_accuracy_pct=data["published_accuracy_pct"] - data["local_epochs"]))
    assert not whole.axes[0].texts, "every column is led by one epoch"
    plt.close("all")


def test_another_dataset_is_left_out_of_cells_and_runs_alike(as_runs, rows_of_runs):
    cells = split_cells(as_runs(rows_of_runs("table == 3 and model == 'cnn_tanh' and epsilon == 1.2", [4, 2])))
    assert set(cells["dataset"]) == {"fashion_mnist"} and len(cells) == 72
    ran = cells[cells["runs"] > 0]
    assert len(ran) == 6 and (ran["epsilon"] == 1.2).all()
    assert [json.loads(text) for text in ran["run_accuracies_pct"]] == [
        [printed] * 2 for printed in ran["published_accuracy_pct"]
    ]
    assert set(cells.loc[cells["runs"] == 0, "run_accuracies_pct"]) == {"[]"}


# Messages: the sentence above a picture follows the numbers; each case turns one around.


def cells_of(**last: float) -> pd.DataFrame:
    """Two lines of splits at 90 % with one epoch; `last` is what they have with twenty."""
    rows = [
        {"dataset": "mnist", "model": model, "epsilon": 1.2, "local_epochs": epochs, "runs": 3}
        | {"run_accuracies_pct": json.dumps([value - 1, value, value + 5])}
        for model, end in last.items()
        for epochs, value in ((1, 90.0), (20, end))
    ]
    return pd.DataFrame(rows)


def test_splits_count_the_lines_in_which_twenty_epochs_lose():
    text = splits_message(cells_of(a=40.0, b=89.0))
    assert (
        text == "20 local epochs a round are less accurate than 1 in all 2 lines that ran both, by 1.0 to 50.0 points"
    )
    assert "in 1 of 2 lines" in splits_message(cells_of(a=40.0, b=91.0))
    assert splits_message(cells_of(a=40.0, b=91.0).query("local_epochs == 1")) == ""
    assert splits_message(cells_of(a=40.0).assign(runs=0)) == ""


def test_the_difference_that_changes_most_is_named_and_bimodal_cells_count_for_nothing():
    effects = (("pixels", -2.0, 81.0), ("network", 1.0, 81.0), ("network", 60.0, 141.0), ("all", 9.0, 81.0))
    least = {"code_least_pct": 80.0, "text_least_pct": 80.0, "text_most_pct": 81.0}
    rows = [{"difference": name, "effect_pct": effect, "code_most_pct": most} | least for name, effect, most in effects]
    text = readings_message(pd.DataFrame(rows), {"pixels": "PIXELS", "network": "NETWORK"})
    assert "Of 2 differences" in text and "most: PIXELS, by 2.0 points" in text
    assert readings_message(pd.DataFrame(rows).query("code_most_pct > 100"), {}) == ""


@pytest.mark.parametrize(("power", "bound"), [(-0.5, 1.0), (0.0, 9.0)])
def test_distances_give_the_power_of_the_clients_and_the_printed_bound(power, bound):
    rows = [
        {"reference": "noiseless", "round": "first", "ran_on": "mnist", "model": "m", "epsilon": 1.2, "clients": k}
        | {"local_epochs": 1, "distance": k**power, "local_distance": 5.0}
        | {"bound_epochs": bound if k == 10 else math.nan, "bound_steps": 9.0}
        for k in (10, 40, 160)
    ]
    text = distances_message(pd.DataFrame(rows))
    assert f"as k to the power {power:.2f}" in text and "clients' models in all 1 cells with E in steps" in text
    assert f"exceeded in {int(bound < 5)} with E in passes" in text


@pytest.mark.parametrize("refuted", [1.0, 9.0])
def test_a_claim_is_false_if_a_lower_bound_exceeds_it(refuted):
    rows = [
        {
            "ran_on": "mnist",
            "model": "m",
            "epsilon": 2.0,
            "split": "all",
            "sampling": sampling,
            "over_shuffled_pct": over,
        }
        | {"epsilon_proven": 20.0, "epsilon_refuted": refuted, "runs": 3}
        for sampling, over in (("shuffled_epochs", 0.0), ("poisson", -0.5), ("balls_in_bins", 0.25))
    ]
    text = sampling_message(pd.DataFrame(rows))
    assert ("ε of at least 9.000 with the noise for 2;" in text) == (refuted > 2)
    assert text.startswith("No ε is") == (refuted < 2)
    assert "by -0.50 to +0.25 points" in text and text.endswith("(3 seeds)")
    assert "accuracy" not in sampling_message(pd.DataFrame(rows).query("sampling == 'shuffled_epochs'"))
