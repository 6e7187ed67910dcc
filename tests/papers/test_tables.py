"""Tables that need no runs: complete data and a page. Tables that private runs stand behind: a privacy card."""

from collections.abc import Callable

import pandas as pd
import pytest

from dpfl.catalog import keys, module
from dpfl.reporting import tables
from dpfl.reporting.privacy_card import private_runs
from dpfl.reporting.results import ORIGINS, Results, read_csv, write_csv

COMPUTED = ["asoodeh2020", "asoodeh2021", pytest.param("vandijk2023", marks=pytest.mark.slow)]
SEEDS = 3
"""Of the shipped runs, so that tests are fast; a fitted power needs three."""


@pytest.mark.parametrize("paper", COMPUTED)
def test_data_are_complete_and_can_be_laid_out(made, paper):
    results = made(paper)
    for name, recipe in module(paper, "tables").TABLES.items():
        data = results.table(paper, name)
        stated = data if name != "errata" else data[data["kind"] != "unstated"]  # what is not stated has no number
        assert not stated.isna().any(axis=None), name
        page = recipe.page(data)
        assert len(page.body) == len(data)
        # A bar in a cell would break the Markdown table.
        assert not page.body.map(lambda cell: "|" in cell).any(axis=None), name
        assert tables.latex(page, "title", "label")


@pytest.fixture(scope="module")
def few(repository, tmp_path_factory) -> Callable[[str, Callable[[pd.DataFrame], pd.DataFrame]], Results]:
    """Return a function (paper, kept) that stores the first seeds of the paper's shipped runs that `kept` leaves."""

    def store(paper: str, kept: Callable[[pd.DataFrame], pd.DataFrame]) -> Results:
        folder, paths = tmp_path_factory.mktemp(paper), []
        for source in sorted((repository / "results" / "paper" / "runs" / paper).glob("*.csv.gz")):
            runs = read_csv(source)
            if len(runs := kept(runs[runs["seed"] < SEEDS])):
                paths.append(folder / source.name.removesuffix(".gz"))
                write_csv(runs, paths[-1])
        return Results(folder, {paper: tuple(paths)})

    return store


def made_of_runs(paper: str) -> list[str]:
    """The paper's tables but for its errata, which are arithmetic."""
    return [name for name in module(paper, "tables").TABLES if name != "errata"]


def without_private(runs: pd.DataFrame) -> pd.DataFrame:
    return runs.drop(private_runs(runs).index)


@pytest.mark.parametrize("paper", [key for key in keys() if made_of_runs(key)])
def test_private_runs_imply_a_card(few, paper):
    """They stand behind a table if it is another one without them: no matter what it says of its runs."""
    complete, rest = few(paper, lambda runs: runs), few(paper, without_private)
    for name in made_of_runs(paper):
        paths = tables.make(paper, name, complete, complete.folder / "tables")
        private = paths[0].read_bytes() != tables.make(paper, name, rest, rest.folder / "tables")[0].read_bytes()
        cards = [path for path in paths if path.name.endswith(".privacy.md")]
        assert len(cards) == private, name
        assert not list(rest.folder.glob("tables/*.privacy.md")), name


@pytest.mark.parametrize("paper", [key for key in keys() if made_of_runs(key)])
def test_no_page_shows_the_runs_of_a_row(few, tmp_path, paper):
    """A page is the same without them: who wants them reads the CSV, or asks `dpfl trace`."""
    results, folder = few(paper, lambda runs: runs), tmp_path / "tables"
    for name in made_of_runs(paper):
        csv = tables.make(paper, name, results, folder)[0]
        pages = {path: path.read_bytes() for path in tables.write_pages(paper, name, csv)}
        data = read_csv(csv)
        write_csv(data.drop(columns=ORIGINS, errors="ignore"), csv)
        assert pages == {path: path.read_bytes() for path in tables.write_pages(paper, name, csv)}, name
