import math

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy import stats

from dpfl.papers.bhaskar2025.sampling import SAMPLERS, TABLES, draw_sampling, sampling_cells, sampling_message

LARGER = "table == 2 and model == 'scatter_linear' and epsilon == 2.93"
CELLS = "table == 2 and model == 'scatter_linear' and epsilon < inf"
# Claimed, proven and refuted epsilon of each sampler at noise multiplier 1.0072, 94 steps an epoch, 20 epochs.
EPSILONS = {"shuffled_epochs": (28.1, 12.77), "poisson": (2.642, 2.640), "balls_in_bins": (2.505, 2.504)}


def three(rows_of_runs, seeds=range(4), query=CELLS, noise=0.2):
    """The same runs under each sampler, with accuracies shifted by a constant that differs by sampler."""
    for shift, (sampling, (proven, refuted)) in enumerate(EPSILONS.items()):
        runs = rows_of_runs(query, seeds, offset_pct=-0.1 * shift, noise_pct=noise, sampling=sampling, study="sampling")
        scale = runs["epsilon"] / 2.93
        yield runs.assign(
            privacy_sampling=sampling,
            privacy_epsilon_proven=proven * scale,
            privacy_epsilon_refuted=refuted * scale,
        )


def test_differences_are_paired_by_seed(as_runs, rows_of_runs):
    cells = sampling_cells(as_runs(*three(rows_of_runs)))
    assert len(cells) == 2 * 7 * 3 and list(cells["sampling"][:3]) == list(SAMPLERS)
    over = cells.groupby("sampling")["over_shuffled_pct"].unique()
    # The seeds' noise is the same for all samplers, so it cancels.
    assert over["poisson"] == pytest.approx(-0.1) and over["balls_in_bins"] == pytest.approx(-0.2)
    assert cells["over_shuffled_interval_pct"].to_numpy() == pytest.approx(0, abs=1e-10)
    assert cells["interval_pct"].max() > 0.1


def test_an_interval_is_that_of_the_differences(as_runs, rows_of_runs):
    tables = list(three(rows_of_runs, query=f"{CELLS} and epsilon > 2 and local_epochs == 1"))
    tables[1]["accuracy_pct"] += np.array([0.1, 0.2, 0.3, 0.6])
    cells = sampling_cells(as_runs(*tables)).query("sampling == 'poisson' and split == '(1, 20)'")
    [row] = cells.to_dict("records")
    extra = np.array([0.1, 0.2, 0.3, 0.6]) - 0.1
    assert row["over_shuffled_pct"] == pytest.approx(extra.mean())
    half = stats.t.ppf(0.975, 3) * extra.std(ddof=1) / 2
    assert row["over_shuffled_interval_pct"] == pytest.approx(half)


def test_all_splits_are_averaged_seed_by_seed(as_runs, rows_of_runs):
    tables = list(three(rows_of_runs, query=f"{CELLS} and epsilon > 2"))
    tables[1].loc[tables[1]["rounds"] == 1, "accuracy_pct"] += 0.6
    cells = sampling_cells(as_runs(*tables))
    [row] = cells.query("sampling == 'poisson' and split == 'all'").to_dict("records")
    assert row["runs"] == 4 and row["over_shuffled_pct"] == pytest.approx(-0.1 + 0.6 / 6)
    assert cells["split"].iloc[-1] == "all" and cells["split"].iloc[0] == "(1, 20)"


def test_a_seed_without_all_three_samplers_is_left_out(as_runs, rows_of_runs):
    tables = list(three(rows_of_runs))
    tables[2] = tables[2][tables[2]["seed"] < 2]
    cells = sampling_cells(as_runs(*tables))
    assert (cells["runs"] == 2).all()


def test_one_seed_is_said_beside_its_numbers(as_runs, rows_of_runs):
    cells = sampling_cells(as_runs(*three(rows_of_runs, seeds=[0])))
    note = TABLES["sampling"].page(cells).notes[0]
    assert "±" not in note and " With one seed we cannot tell these changes from 0." in note
    assert sampling_message(cells).endswith(" at the same noise (one seed)")


def test_published_runs_belong_to_no_sampler(as_runs, rows_of_runs):
    tables = list(three(rows_of_runs))
    assert (sampling_cells(as_runs(*tables, tables[1].assign(study="")))["runs"] == 4).all()


def test_the_page_says_what_is_claimed_proven_and_refuted(as_runs, rows_of_runs):
    page = TABLES["sampling"].page(sampling_cells(as_runs(*three(rows_of_runs))))
    assert page.notes[0].startswith(
        "MNIST, ScatterNet + linear. The authors' code draws Poisson batches, and its accountant gives the noise for "
        "ε = 2.93. With this noise, for one record zeroed out, an observer of every step and δ = 10⁻⁵, shuffled "
        "epochs spend an ε of at least 12.77 and at most 28.10; Poisson batches at most 2.642 and balls-in-bins "
        "batches at most "
    )
    assert " Compared with shuffled epochs, accuracy changes by -0.10 ± 0.00 points with Poisson b" in page.notes[0]
    assert page.notes[0].endswith(" and R rounds. 4 seeds; ± is a 95 % interval.")
    first = page.body.iloc[0]
    assert tuple(first[["ε claimed", "ε proven", "ε at least", "Claim"]]) == ("2.93", "28.10", "12.77", "refuted")
    assert set(page.body.loc[page.body["Batches"] != "shuffled epochs", "Claim"]) == {"proven"}
    assert [heading for heading, _ in page.sections()] == [
        "MNIST, ScatterNet + linear, noise for ε = 2.93",
        "MNIST, ScatterNet + linear, noise for ε = 1.2",
    ]


def test_one_lower_bound_is_one_number_wherever_it_stands(as_runs, rows_of_runs):
    tables = [table.assign(privacy_epsilon_refuted=14.905996) for table in three(rows_of_runs)]
    cells = sampling_cells(as_runs(*tables))
    page, figure = TABLES["sampling"].page(cells), draw_sampling(cells)
    drawn = {text.get_text() for axis in figure.axes for text in axis.texts}
    plt.close(figure)
    assert "at least 14.90 and" in page.notes[0] and set(page.body["ε at least"]) == {"14.90"}
    assert "at least 14.90 with" in sampling_message(cells) and any("at least 14.90," in text for text in drawn)


def test_one_seed_has_no_interval_and_stand_ins_are_named(as_runs, rows_of_runs, as_stand_in):
    page = TABLES["sampling"].page(sampling_cells(as_runs(*map(as_stand_in, three(rows_of_runs, [0])))))
    assert not page.body["Minus shuffled, points"].str.contains("±").any() and "A note." in page.notes
    assert page.headings[0].startswith("Digits (stand-in for MNIST)")


def test_without_the_study_the_page_says_so(as_runs, rows_of_runs):
    cells = sampling_cells(as_runs(rows_of_runs(CELLS, [0])))
    assert cells.empty and TABLES["sampling"].page(cells).notes == [
        "No seed was run with all three samplers at this scale."
    ]


"""The figure of the samplers: spans of epsilon, paired differences at their places, and what leaves out 0."""


def test_samplers_are_drawn_with_claim_bounds_and_differences(as_runs, rows_of_runs):
    tables = []
    for sampling, proven in (("shuffled_epochs", math.inf), ("poisson", 2.64), ("balls_in_bins", 2.5)):
        runs = rows_of_runs(LARGER, [0, 1], sampling=sampling, study="sampling")
        tables.append(runs.assign(privacy_epsilon_proven=proven))
    figure = draw_sampling(sampling_cells(as_runs(*tables)))
    left, right = figure.axes
    assert left.get_title().startswith("MNIST") and left.get_lines()[0].get_xdata() == pytest.approx([2.93, 2.93])
    assert "at least 2.344, not proven" in {text.get_text() for text in left.texts}
    assert [label.get_text() for label in right.get_yticklabels()][:2] == ["mean of all", "(20, 1)"]
    figure.canvas.draw()
    claim = left.transData.transform((2.93, 0))[0]
    for text in (text for text in left.texts if not text.get_text().startswith("claimed")):
        box = text.get_window_extent()
        assert not box.x0 < claim < box.x1, text.get_text()
    plt.close(figure)
    cells = sampling_cells(as_runs(*tables))
    cells["over_shuffled_pct"], cells["over_shuffled_interval_pct"] = 0.1, 0.2
    cells.loc[cells["split"] == "(2, 10)", "over_shuffled_interval_pct"] = 0.05
    figure = draw_sampling(cells)
    assert "2 of 14 leave out 0" in figure.get_supxlabel().replace("\n", " ")
    plt.close(figure)


def test_spans_and_differences_are_those_of_each_sampler(as_runs, rows_of_runs):
    """Poisson batches lose 0.25 points and balls in bins gain 0.5, but at (20, 1), where both lose 1."""
    known = {"shuffled_epochs": (28.0, 12.0, 0.0), "poisson": (2.6, 2.5, -0.25), "balls_in_bins": (2.4, 2.3, 0.5)}
    tables = []
    for sampling, (proven, refuted, gain) in known.items():
        runs = rows_of_runs(LARGER, [0, 1], sampling=sampling, study="sampling")
        runs["accuracy_pct"] += gain
        runs.loc[(runs["rounds"] == 1) & (sampling != "shuffled_epochs"), "accuracy_pct"] -= gain + 1
        tables.append(runs.assign(privacy_epsilon_proven=proven, privacy_epsilon_refuted=refuted))
    figure = draw_sampling(sampling_cells(as_runs(*tables)))
    left, right = figure.axes
    names = [label.get_text() for label in left.get_yticklabels()]
    spans = {names[round(line.get_ydata()[0])]: list(line.get_xdata()) for line in left.get_lines()[1:]}
    assert spans == {"shuffled epochs": [12.0, 28.0], "Poisson": [2.5, 2.6], "balls in bins": [2.3, 2.4]}
    words = {text.get_text() for text in left.texts}
    assert words == {"claimed 2.93", "at least 12.00, proven 28.00", "proven 2.600", "proven 2.400"}
    splits = [label.get_text() for label in right.get_yticklabels()]
    assert splits == ["mean of all", "(20, 1)", "(10, 2)", "(5, 4)", "(4, 5)", "(2, 10)", "(1, 20)"]
    for container, gain in zip(right.containers, (-0.25, 0.5), strict=True):
        places, heights = container.lines[0].get_data()
        drawn = {splits[round(height)]: place for place, height in zip(places, heights, strict=True)}
        expected = dict.fromkeys(splits, gain) | {"(20, 1)": -1.0, "mean of all": (5 * gain - 1) / 6}
        assert drawn == pytest.approx(expected)
    plt.close(figure)


def test_one_seed_has_no_bars(as_runs, rows_of_runs):
    samplers = ("shuffled_epochs", "poisson", "balls_in_bins")
    figure = draw_sampling(
        sampling_cells(as_runs(*(rows_of_runs(LARGER, [3], sampling=each, study="sampling") for each in samplers)))
    )
    footer = figure.get_supxlabel().replace("\n", " ")
    assert "1 run a sampler" in footer and "no bars for one run" in footer and "leave out 0" not in footer
    plt.close(figure)
