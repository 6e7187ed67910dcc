"""What each difference between text and code changes, on run tables with known effects."""

import math

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from scipy import stats

from dpfl.papers.bhaskar2025.readings import CODE, NAMES, draw_readings, reading_cells, readings_page
from dpfl.reporting.results import Results

LINEAR = "table == 2 and model == 'scatter_linear' and local_epochs in [1, 20]"
SWITCHED = {
    "network": "cited", "pixels": "unit_interval", "feature_norm": "fixed", "client_records": "disjoint",
    "plain_batches": "shuffled", "accountant": "rdp",
}  # fmt: skip


def study(rows_of_runs, name, offset_pct, query=LINEAR, seeds=range(3), **more):
    return rows_of_runs(query, seeds, offset_pct=offset_pct, study="readings", **{name: SWITCHED[name]}, **more)


def test_every_difference_has_its_own_effect(as_runs, rows_of_runs):
    published = rows_of_runs(LINEAR, range(5), noise_pct=0.4)
    tables = [study(rows_of_runs, name, place, noise_pct=0.4) for place, name in enumerate(CODE, 1)]
    together = rows_of_runs(LINEAR, range(3), offset_pct=-5, noise_pct=0.4, study="readings", **SWITCHED)
    cells = reading_cells(as_runs(published, *tables, together))
    effects = cells.groupby("difference")["effect_pct"].unique()
    for place, name in enumerate(CODE, 1):
        assert effects[name] == pytest.approx(place), name
    assert effects["all"] == pytest.approx(-5) and set(effects.index) == set(NAMES)
    # The accountant changes nothing without privacy, the order of plain batches nothing with it.
    assert not cells.query("difference == 'accountant'")["epsilon"].isin([math.inf]).any()
    assert cells.query("difference == 'plain_batches'")["epsilon"].isin([math.inf]).all()
    assert len(cells) == 4 * 6 + 4 + 2 + 6
    assert (cells["runs"] == 3).all()  # of the five published seeds those that the study ran too


def test_an_effect_is_paired_by_seed_and_has_its_interval(as_runs, rows_of_runs):
    query = f"{LINEAR} and epsilon == 2.93 and local_epochs == 1"
    published = rows_of_runs(query, range(3), noise_pct=5.0)
    switched = study(rows_of_runs, "pixels", 0.0, query, noise_pct=5.0)
    switched["accuracy_pct"] += [0.1, 0.2, 0.6]
    [cell] = reading_cells(as_runs(published, switched)).to_dict("records")
    assert cell["effect_pct"] == pytest.approx(0.3)
    sd = math.sqrt(((0.1 - 0.3) ** 2 + (0.2 - 0.3) ** 2 + (0.6 - 0.3) ** 2) / 2)
    assert cell["effect_interval_pct"] == pytest.approx(stats.t.ppf(0.975, 2) * sd / math.sqrt(3))
    assert cell["text_pct"] - cell["code_pct"] == pytest.approx(0.3) and cell["published_accuracy_pct"] == 97.52


def test_the_reading_is_that_of_the_published_cells(as_runs, rows_of_runs):
    """Once the order rule ships shuffled batches, the fixed order is what is switched."""
    plain = f"{LINEAR} and epsilon == inf"
    published = rows_of_runs(plain, range(2), plain_batches="shuffled")
    fixed = rows_of_runs(plain, range(2), offset_pct=-2, study="readings", plain_batches="fixed")
    cells = reading_cells(as_runs(published, fixed))
    assert cells["difference"].unique().tolist() == ["plain_batches"]
    assert cells["effect_pct"].tolist() == pytest.approx([-2, -2])


def test_runs_with_another_rate_are_compared_with_nothing(as_runs, rows_of_runs):
    published = rows_of_runs(LINEAR, range(2))
    other = study(rows_of_runs, "pixels", 1, learning_rate=0.1)
    assert reading_cells(as_runs(published, other)).empty
    assert reading_cells(as_runs(published.drop(columns="network"), other.drop(columns="network"))).empty


def test_the_page_has_a_row_a_difference_and_sums_each_up(as_runs, rows_of_runs):
    published = rows_of_runs(LINEAR, range(3), offset_pct=0.5)
    far, near = study(rows_of_runs, "network", 3.0), study(rows_of_runs, "pixels", -0.25)
    page = readings_page(reading_cells(as_runs(published, far, near)))
    assert len(page.body) == 2 * 3 and set(page.headings) == {"MNIST, ScatterNet + linear"}
    first = page.body[page.body["ε"] == "2.93"].iloc[0]
    assert first["Switched"] == NAMES["network"] and first["Seeds"] == "3"
    assert first["(1, 20)"] == "98.02 → 100.52 (+2.50 ± 0.00)" and first["(1, 20) published"] == "97.52"
    assert list(page.body.columns)[-2:] == ["(20, 1)", "(20, 1) published"]
    assert page.notes[0].startswith(
        "Networks as cited: 6 cells with a mean, median change 2.50 points, largest +2.50 ("
    )
    assert page.notes[0].endswith("0.50 by the code, 3.00 switched, which is nearer in 0 of 6.")
    assert page.notes[1].endswith("0.50 by the code, 0.25 switched, which is nearer in 6 of 6.")


def test_runs_far_apart_have_no_effect(as_runs, rows_of_runs):
    query = "table == 2 and model == 'cnn_relu' and epsilon == inf and local_epochs in [1, 20]"
    published = rows_of_runs(query, range(3))
    switched = study(rows_of_runs, "network", 0.0, query)
    switched.loc[(switched["seed"] == 1) & (switched["local_epochs"] == 1), "accuracy_pct"] = 11.35
    cells = reading_cells(as_runs(published, switched))
    page = readings_page(cells)
    assert page.body["(1, 20)"].tolist() == ["98.20 to 98.20 → 11.35 to 98.20"]
    assert "1 cell with a mean" in page.notes[0]
    figure = draw_readings(cells)
    assert "Left out: 1 with runs over 20 points apart" in figure.get_supxlabel().replace("\n", " ")
    plt.close(figure)


def test_marks_lie_at_the_effects_and_the_published_values_on_top(as_runs, rows_of_runs):
    published = rows_of_runs(LINEAR, range(3), offset_pct=0.5, noise_pct=0.1)
    tables = [study(rows_of_runs, name, place) for place, name in enumerate(("network", "pixels"), 3)]
    figure = draw_readings(reading_cells(as_runs(published, *tables)))
    left = figure.axes[0]
    labels = [label.get_text() for label in left.get_yticklabels()]
    assert labels == [NAMES["pixels"], NAMES["network"], "published less ours"]
    drawn = {}
    for container in left.containers:
        for place, height in zip(*container.lines[0].get_data(), strict=True):
            drawn.setdefault(labels[round(height)], []).append(place)
    assert drawn[NAMES["network"]] == pytest.approx([2.5, 2.5], abs=0.2)
    assert drawn[NAMES["pixels"]] == pytest.approx([3.5, 3.5], abs=0.2)
    hollow = [line for line in left.get_lines() if line.get_markerfacecolor() == "none"]
    assert [line.get_xdata()[0] for line in hollow] == pytest.approx([-0.5, -0.5], abs=0.2)
    plt.close(figure)


def test_stand_ins_have_no_published_values(as_runs, rows_of_runs, as_stand_in):
    published, switched = rows_of_runs(LINEAR, [0]), study(rows_of_runs, "pixels", 1.0, seeds=[0])
    cells = reading_cells(as_runs(as_stand_in(published), as_stand_in(switched)))
    page = readings_page(cells)
    assert set(page.body["(1, 20) published"]) == {"–"} and "(digits) are not comparable" in " ".join(page.notes)
    assert "±" not in page.body.to_string() and "Median distance" not in page.notes[0]
    figure = draw_readings(cells)
    footer = figure.get_supxlabel().replace("\n", " ")
    assert "no bars for one run" in footer and "Hollow" not in footer
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [NAMES["pixels"]]
    plt.close(figure)


def test_without_runs_the_page_says_so(tmp_path, as_runs, rows_of_runs):
    for results in (Results(tmp_path), as_runs(rows_of_runs(LINEAR, [0]))):
        cells = reading_cells(results)
        assert cells.empty and readings_page(cells).notes[0].startswith("No difference was run")
    assert isinstance(reading_cells(Results(tmp_path)), pd.DataFrame)


def test_a_split_that_a_model_lacks_leaves_its_marks_out(as_runs, rows_of_runs):
    few = "table == 2 and model == 'cnn_tanh' and local_epochs == 1"
    published = rows_of_runs(f"({LINEAR}) or ({few})", range(2))
    tables = [study(rows_of_runs, "pixels", 1, query, seeds=range(2)) for query in (LINEAR, few)]
    figure = draw_readings(reading_cells(as_runs(published, *tables)))
    assert len(figure.axes) == 6
    plt.close(figure)
