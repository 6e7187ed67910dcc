import math

import pytest

from dpfl.papers.bhaskar2025.cells import (
    REPRODUCED,
)
from dpfl.papers.bhaskar2025.tables import TABLES, last_column
from dpfl.reporting.results import Results
from dpfl.reporting.tables import html_page, latex, markdown


def page_of(name, results):
    return TABLES[name].page(TABLES[name].data(results))


def lines(page, kind):
    """The lines of one kind, by the name of their row."""
    return page.body[page.body[""] == kind].set_index(page.body.columns[0]).drop(columns="")


def test_pages_say_what_was_not_run(tmp_path):
    for name in [f"table_{number}" for number in (2, 3, 4, 5)]:
        page = page_of(name, Results(tmp_path))
        assert (lines(page, "ours") == "not run").all(axis=None), name
        assert any("cells were not run" in note for note in page.notes)


def test_the_layout_is_that_of_the_paper(as_runs, rows_of_runs):
    page = page_of("table_2", as_runs(rows_of_runs("table == 2", range(10), offset_pct=0.25)))
    models = ["CNN + ReLU", "CNN + tanh", "ScatterNet + linear", "ScatterNet + CNN"]
    budgets = ["FedAvg", "ε = 2.93", "ε = 1.2"]
    assert list(page.body.columns[2:]) == [f"{budget}: {model}" for budget in budgets for model in models]
    assert page.body["(E, R)"].unique().tolist() == ["(1, 20)", "(2, 10)", "(4, 5)", "(5, 4)", "(10, 2)", "(20, 1)"]
    # The third line of the printed Table 2 (E = 4), and what the runs above are.
    third = [
        96.89, 98.04, 99.04, 98.23, 91.39, 91.79, 97.59, 94.00, 77.89, 88.09, 96.71, 87.65,
    ]  # fmt: skip
    assert lines(page, "published").loc["(4, 5)"].tolist() == [f"{value:.2f}" for value in third]
    assert lines(page, "ours").loc["(4, 5)"].tolist() == [f"{value + 0.25:.2f}" for value in third]
    assert set(lines(page, "difference").loc["(4, 5)"]) == {"+0.25*"}  # no scatter: outside

    fifth = page_of("table_5", as_runs(rows_of_runs("table == 5", [0])))
    assert fifth.body["k"].unique().tolist() == ["10", "25", "50", "100", "1 (central)"]
    assert list(fifth.body.columns[2:7:4]) == ["MNIST, ε = 2.93: CNN + ReLU", "Fashion-MNIST, ε = 2.7: CNN + ReLU"]
    row = lines(fifth, "published").loc["1 (central)"].tolist()
    assert row[:4] == ["95.28", "95.63", "98.42", "96.81"] and row[-1] == "61.86"
    assert lines(fifth, "ours").loc["25"].iloc[1] == "94.61 (n = 1)"


def test_runs_that_lie_far_apart_have_no_mean(as_runs, rows_of_runs):
    runs = rows_of_runs("table == 2 and model == 'cnn_relu' and epsilon == inf and local_epochs < 4", range(10))
    first = runs["local_epochs"] == 1
    runs.loc[first, "accuracy_pct"] = [11.35, *[98.0] * 9]
    runs.loc[~first, "accuracy_pct"] = [78.0, *[98.0] * 9]
    page = page_of("table_2", as_runs(runs))
    ours, difference = (lines(page, kind)["FedAvg: CNN + ReLU"] for kind in ("ours", "difference"))
    assert ours["(1, 20)"] == "11.35 to 98.00 (1 at chance)" and difference["(1, 20)"] == "–"
    assert ours["(2, 10)"] == "96.00" and difference["(2, 10)"] == "-1.99"  # 20 points are not more than 20


def test_table_5_says_where_the_central_model_is_below_ten_clients_and_names_each_noise_once(as_runs, rows_of_runs):
    runs = rows_of_runs("table == 5 and dataset == 'cifar10'", [0])
    assert "less accurate than ten clients" not in " ".join(page_of("table_5", as_runs(runs)).notes)
    runs.loc[(runs["clients"] == 1) & (runs["model"] == "cnn_relu"), "accuracy_pct"] = 35.0
    notes = page_of("table_5", as_runs(runs)).notes
    assert (
        "It is less accurate than ten clients for CIFAR-10 CNN + ReLU (35.00 against 38.98 %; published 55.86 against "
        "38.98 %); its batches, and on CIFAR-10 the rate of the pixel CNNs, are our choices."
    ) in notes[1]
    noise = "CIFAR-10, each of 10, 25, 50 and 100 clients, one central client, published ε = 7.53: noise multiplier"
    assert sum(note.startswith(noise) for note in notes) == 1
    assert sum("noise multiplier" in note for note in notes) == 1


def test_a_page_names_stand_in_noise_and_number_of_runs(as_runs, rows_of_runs, as_stand_in):
    runs = rows_of_runs("table == 2 and model == 'scatter_linear'", range(2), noise_pct=1.0)
    page = page_of("table_2", as_runs(as_stand_in(runs)))
    assert "(n = 2)" in page.body.to_string() and "stand-in" in page.body.to_string()
    notes = " ".join(page.notes)
    for words in (
        "digits stands in for mnist",
        "A note.",
        "1.0070",
        "zero out at most 2.637, at least 2.344; add or remove at most 2.64",
        "Poisson batches",
        "of 10 runs",
        "Batch size 64, learning rate 0.3, momentum 0.5: all cells.",
        "The published ε is proven.",
    ):
        assert words in notes, words
    assert "*" not in page.body.to_string()


def test_a_page_names_the_cells_that_were_trained_in_bfloat16(as_runs, rows_of_runs):
    one = rows_of_runs("table == 2 and model == 'cnn_tanh'", [0], precision="bfloat16")
    other = rows_of_runs("table == 2 and model == 'cnn_relu'", [0], precision="float32")
    said = [note for note in page_of("table_2", as_runs(one, other)).notes if note.startswith("Trained in")]
    assert said == ["Trained in bfloat16 instead of float32: MNIST CNN + tanh. See the table of precision."]


@pytest.mark.parametrize(
    ("proven", "refuted", "words"),
    [
        (2.931, 2.90, "The published ε is unproven."),
        (2.931, 2.9305, "The published ε is refuted: a lower bound exceeds it by 0.0005."),
        (2.93, 2.9, "The published ε is proven."),
    ],
)
def test_a_page_says_whether_the_printed_epsilon_holds(as_runs, rows_of_runs, proven, refuted, words):
    runs = rows_of_runs("table == 2 and model == 'scatter_linear' and epsilon == 2.93", [0])
    runs = runs.assign(privacy_epsilon_proven=proven, privacy_epsilon_refuted=refuted)
    assert page_of("table_2", as_runs(runs)).notes[-1].endswith(words)


def test_a_page_counts_cells_by_runs_and_by_side(as_runs, rows_of_runs):
    several = rows_of_runs("table == 2 and model == 'scatter_linear' and epsilon < 3", range(4), noise_pct=0.5)
    off = rows_of_runs("table == 2 and model == 'cnn_tanh' and epsilon == 2.93", range(3), offset_pct=9, noise_pct=0.5)
    single = rows_of_runs("table == 2 and model == 'cnn_relu' and epsilon == 2.93 and local_epochs == 1", [0])
    results = as_runs(several, off, single)
    data, page = TABLES["table_2"].data(results), page_of("table_2", results)
    inside = (data["prediction"] == REPRODUCED).sum()
    assert 0 < inside <= 12
    notes, text = " ".join(page.notes), page.body.to_string()
    single_inside = (data["prediction_single"] == REPRODUCED).sum()
    assert inside <= single_inside < 18
    assert (
        f"As means of 10 runs: {inside} reproduced, {18 - inside} not reproduced; "
        f"as single runs: {single_inside} reproduced" in notes
    )
    assert "0.9 would not be reproduced, by chance" in notes
    assert "12 cells have 4 runs, 6 cells have 3 runs, 1 cell has 1 run" in notes
    assert text.count("*") == 18 - inside
    assert "1 cell has a single run and no such interval" in notes and "+0.00 " in text
    assert "53 of 72 cells were not run" in notes


@pytest.mark.parametrize(
    "form",
    [
        lambda page, title: markdown(page, title, "caption"),
        html_page,
        lambda page, title: latex(page, title, "label"),
    ],
)
def test_every_format_carries_the_marks(as_runs, rows_of_runs, form):
    runs = rows_of_runs("table == 5 and dataset == 'cifar10'", range(3), offset_pct=5, noise_pct=0.5)
    assert "*" in form(page_of("table_5", as_runs(runs)), "title")


PAGE = TABLES["last_column"].page


def test_the_last_column_has_clients_average_and_print(as_runs, rows_of_runs):
    runs = rows_of_runs("table == 2 and model == 'scatter_cnn'", range(3), noise_pct=0.01)
    cells = last_column(as_runs(runs)).set_index("epsilon")
    # Printed at (20, 1): 92.24, 36.22 and 16.79; the clients alone are at 80 throughout.
    assert cells.loc[2.93, "accuracy_pct"] == pytest.approx(36.22, abs=0.05)
    assert cells.loc[2.93, "many_rounds_pct"] == pytest.approx(95.34, abs=0.05)
    assert (cells["local_accuracy_pct"] == 80).all() and (cells["runs"] == 3).all()
    page = PAGE(cells.reset_index())
    assert "In 2 of 3 rows the average is more than 10 points less" in page.notes[1]
    assert (
        "In 2 of them the clients alone are" in page.notes[1]
        and "In 1 other rows they are that far below" in page.notes[1]
    )
    assert "In 1 rows the average is more accurate" in page.notes[1] and "3 reproduced, 0 not" in page.notes[2]


def test_a_last_column_whose_runs_lie_far_apart_shows_their_range(as_runs, rows_of_runs):
    runs = [
        rows_of_runs("table == 2 and model == 'scatter_cnn' and epsilon == 2.93", [seed], offset_pct=off)
        for seed, off in ((0, 0), (1, 40))
    ]
    row = PAGE(last_column(as_runs(*runs))).body.iloc[0]
    assert (row["(20, 1)"], row["Difference"], row["Published"]) == ("36.22 to 76.22", "–", "36.22")


def test_clients_alone_are_compared_with_the_runs_that_measured_them(as_runs, rows_of_runs):
    query = "table == 2 and model == 'cnn_tanh' and epsilon == 1.2 and rounds == 1"  # published: 21.65
    measured = rows_of_runs(query, [0], offset_pct=55)  # clients alone: 80
    others = rows_of_runs(query, [1, 2], offset_pct=40).assign(local_accuracy_pct=math.nan)
    page = PAGE(cells := last_column(as_runs(measured, others)))
    assert page.body["Clients alone"].tolist() == ["80.00 (n = 1)"]
    assert cells["average_of_local_pct"].tolist() == pytest.approx([76.65]) and cells["local_runs"].tolist() == [1]
    assert page.notes[1].startswith("In 0 of 1 rows the average is more than 10 points less accurate"), "not 66.65 - 80"


def test_values_above_and_below_the_print_are_counted(as_runs, rows_of_runs):
    above = rows_of_runs("table == 2 and model == 'cnn_tanh'", [0], offset_pct=2)
    below = rows_of_runs("table == 3 and model == 'cnn_tanh' and epsilon == 2.7", [0], offset_pct=-2)
    notes = PAGE(last_column(as_runs(above, below))).notes
    assert "4 rows have a difference. Ours is more than a point above the published value in 3 and more" in notes[2]


def test_stand_ins_and_missing_measurements(as_runs, rows_of_runs, as_stand_in):
    runs = as_stand_in(rows_of_runs("table == 2 and model == 'cnn_tanh' and rounds == 1", [0]))
    cells = last_column(as_runs(runs.drop(columns="local_accuracy_pct")))
    page = PAGE(cells)
    assert set(page.body["Published"]) == set(page.body["Clients alone"]) == set(page.body["(1, 20)"]) == {"–"}
    assert "In 0 of 0 rows" in page.notes[1] and "Do not compare" in page.notes[-1]


def test_without_runs_the_page_says_so(tmp_path):
    assert PAGE(last_column(Results(tmp_path))).notes[0].startswith("Nothing was run")
