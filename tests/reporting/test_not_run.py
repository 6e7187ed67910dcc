"""A table, a figure, a claim whose runs are not part of the configuration says so, and nothing fails."""

import matplotlib.pyplot as plt
import pytest

from dpfl.catalog import load
from dpfl.reporting import figures, style, tables
from dpfl.reporting.claims import evaluate
from dpfl.reporting.results import NotRunError, Results, read_csv
from dpfl.reporting.rules import Verdict

FROM_RUNS = {
    "lowy2021": (["paired_differences", "mnist_differences", "theory_slopes"], ["figure_2", "mnist", "theory_rates"]),
    "vandijk2023": ([], ["asynchrony", "strategies"]),
    "bhaskar2025": (["table_2", "last_column"], ["distances", "sampling"]),
    "asoodeh2021": (["rates"], ["price", "sampling", "frontier", "dimension", "five_papers"]),
    "asoodeh2020": ([], ["places", "utility"]),
}


@pytest.mark.parametrize("paper", FROM_RUNS)
def test_every_page_is_made_and_every_picture_says_why_it_is_empty(paper, tmp_path, monkeypatch):
    results, reasons = Results(tmp_path, {}), []
    monkeypatch.setattr(style, "text_figure", lambda reason: reasons.append(reason) or plt.figure())
    for names, module in zip(FROM_RUNS[paper], (tables, figures), strict=True):
        for name in names:
            paths = module.make(paper, name, results, tmp_path / module.__name__.rpartition(".")[2])
            assert all(path.stat().st_size > 0 for path in paths)
            pages = [path for path in paths if path.suffix == ".html"]
            assert len(pages) == (module is tables) and all("<tbody>\n<tr>" in page.read_text() for page in pages), name
    assert len(reasons) == len(FROM_RUNS[paper][1]) and all("run" in reason for reason in reasons)


def test_the_reason_stands_on_the_page_and_comes_back_as_an_error(tmp_path):
    results = Results(tmp_path, {})
    paths = tables.make("lowy2021", "price", results, tmp_path / "tables")
    assert "no run of lowy2021" in paths[1].read_text() and read_csv(paths[0]).columns.tolist() == ["not_run"]
    with pytest.raises(NotRunError, match="no run of lowy2021"):
        results.table("lowy2021", "price")
    figures.make("lowy2021", "mnist", results, tmp_path / "figures")
    with pytest.raises(NotRunError, match="ldp_classification"):
        results.figure("lowy2021", "mnist")


def test_claims_without_their_runs_are_not_run(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "write_pictures", lambda paper, name, csv: [])
    results = Results(tmp_path, {})
    for name in load("lowy2021").tables:
        if name != "errata":
            tables.make("lowy2021", name, results, tmp_path / "tables")
    for name in load("lowy2021").figures:
        figures.make("lowy2021", name, results, tmp_path / "figures")
    verdicts, evidence = evaluate("lowy2021", results)
    assert (verdicts["verdict"] == Verdict.NOT_RUN).all() and evidence.empty
    assert verdicts["reason"].str.startswith("No run of lowy2021").any()
