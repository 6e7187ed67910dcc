import pytest

from dpfl.papers.bhaskar2025.published_cells import INSIDE
from dpfl.papers.bhaskar2025.tables import TABLES
from dpfl.reporting.results import Results
from dpfl.reporting.tables import html_page, latex, markdown


def page_of(name, results):
    return TABLES[name].page(TABLES[name].data(results))


def test_pages_say_what_was_not_run(tmp_path):
    for name in [f"table_{number}" for number in (2, 3, 4, 5)]:
        page = page_of(name, Results(tmp_path))
        ours = page.body[page.body[""] == "ours"]
        assert (ours.iloc[:, 4:] == "not run").all(axis=None), name
        assert any("cells were not run" in note for note in page.notes)
        assert len(page.body) == 36


def test_a_page_names_stand_in_noise_and_number_of_runs(as_runs, rows_of_runs, as_stand_in):
    runs = rows_of_runs("table == 2 and model == 'scatter_linear'", range(2), noise_pct=1.0)
    page = page_of("table_2", as_runs(as_stand_in(runs)))
    assert "(2)" in page.body.to_string() and "stand-in" in page.body.to_string()
    notes = " ".join(page.notes)
    for words in (
        "digits stands in for mnist",
        "A note.",
        "1.0070",
        "proven 2.637, at least 2.344",
        "poisson batches",
        "of 10 runs",
    ):
        assert words in notes, words
    assert "(in" not in page.body.to_string()


def test_a_page_counts_cells_by_runs_and_by_side(as_runs, rows_of_runs):
    several = rows_of_runs("table == 2 and model == 'scatter_linear' and epsilon < 3", range(4), noise_pct=0.5)
    off = rows_of_runs("table == 2 and model == 'cnn_tanh' and epsilon == 2.93", range(3), offset_pct=9, noise_pct=0.5)
    single = rows_of_runs("table == 2 and model == 'cnn_relu' and epsilon == 2.93 and local_epochs == 1", [0])
    results = as_runs(several, off, single)
    data, page = TABLES["table_2"].data(results), page_of("table_2", results)
    inside = (data["prediction"] == INSIDE).sum()
    assert 0 < inside <= 12
    notes, text = " ".join(page.notes), page.body.to_string()
    single_inside = (data["prediction_single"] == INSIDE).sum()
    assert inside <= single_inside < 18
    assert (
        f"As a mean of 10: inside {inside}, outside {18 - inside}; as a single run: inside {single_inside}, " in notes
    )
    assert "0.9 would be outside by chance" in notes
    assert "12 cells have 4 runs, 6 cells have 3 runs, 1 cell has 1 run" in notes
    assert text.count("(in, ") == inside and text.count("(out, ") == 18 - inside
    assert "1 cell has a single run and no such interval" in notes and "+0.00 " in text
    assert "53 of 72 cells were not run" in notes


@pytest.mark.parametrize("form", [markdown, html_page, lambda page, title: latex(page, title, "label")])
def test_every_format_carries_the_marks(as_runs, rows_of_runs, form):
    runs = rows_of_runs("table == 5 and dataset == 'cifar10'", range(3), noise_pct=0.5)
    assert "(in, in)" in form(page_of("table_5", as_runs(runs)), "title")
