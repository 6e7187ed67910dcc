"""Tables that need no runs: complete data and a page. Tables that private runs stand behind: a privacy card."""

import functools
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dpfl.catalog import keys, load, recipe
from dpfl.reporting import tables
from dpfl.reporting.privacy_card import private_runs
from dpfl.reporting.results import ORIGINS, Results, read_csv, write_csv

COMPUTED = ["asoodeh2020", "asoodeh2021", pytest.param("vandijk2023", marks=pytest.mark.slow)]
SHOWN = (".md", ".tex", ".html")
SEEDS = 3
"""Of the shipped runs, so that tests are fast; a fitted power needs three."""


@pytest.mark.parametrize("paper", COMPUTED)
def test_data_are_complete_and_can_be_laid_out(made, paper):
    results = made(paper)
    for name in load(paper).tables:
        data = results.table(paper, name)
        stated = data if name != "errata" else data[data["kind"] != "unstated"]  # what is not stated has no number
        assert not stated.isna().any(axis=None), name
        page = recipe(paper, "tables", name).page(data)
        assert len(page.body) == len(data)
        # A bar in a cell would break the Markdown table.
        assert not page.body.map(lambda cell: "|" in cell).any(axis=None), name
        assert tables.latex(page, "title", "label")


def made_of_runs(paper: str) -> list[str]:
    """The paper's tables but for its errata and overlap, which are arithmetic and take long."""
    return [name for name in load(paper).tables if name not in ("errata", "overlap")]


LONG = [("lowy2021", "mnist_differences")]
"""Two dozen epsilons of their own."""
TABLES = [
    pytest.param(paper, name, marks=[pytest.mark.slow] if (paper, name) in LONG else [])
    for paper in keys()
    for name in made_of_runs(paper)
]


@pytest.fixture(scope="module")
def few(repository, require_shipped, tmp_path_factory) -> Callable[[str, str, bool], list[Path]]:
    """Return a function (paper, name, private) that makes a table of the first seeds of the shipped runs.

    It gives the table's paths; without `private`, of the runs that are left without the private ones.
    """

    @functools.cache
    def results(paper: str, private: bool) -> Results:
        require_shipped(paper)
        folder, jobs = tmp_path_factory.mktemp(paper), []
        for source in sorted((repository / "results" / "paper" / "runs" / paper).glob("*.csv.gz")):
            if (seed := re.search(r"_seed(\d+)\.csv", source.name)) and int(seed[1]) >= SEEDS:
                continue
            runs = read_csv(source)
            runs = runs[runs["seed"] < SEEDS]
            if len(kept := runs if private else runs.drop(private_runs(runs).index)):
                jobs.append(folder / source.name.removesuffix(".gz"))
                write_csv(kept, jobs[-1])
        assert jobs or not private, f"no shipped runs of {paper}"
        return Results(folder, {paper: tuple(jobs)})

    @functools.cache
    def make(paper: str, name: str, private: bool) -> list[Path]:
        runs = results(paper, private)
        return tables.make(paper, name, runs, runs.folder / "tables")

    return make


@pytest.mark.parametrize(("paper", "name"), TABLES)
def test_private_runs_imply_a_card(few, paper, name):
    """They stand behind a table if it is another one without them, whatever it says of its runs."""
    paths, rest = (few(paper, name, private) for private in (True, False))
    private = paths[0].read_bytes() != rest[0].read_bytes()
    assert [path.name for path in paths[5:]] == [f"{paper}_{name}.privacy.md"] * private
    assert len(rest) == 5


@pytest.mark.parametrize(("paper", "name"), TABLES)
def test_no_page_shows_the_runs_of_a_row(few, tmp_path, paper, name):
    """A page is the same without them: who wants them reads the CSV, or asks `dpfl trace`."""
    csv, *pages = few(paper, name, True)
    copy = tmp_path / csv.name
    write_csv(read_csv(csv).drop(columns=ORIGINS, errors="ignore"), copy)
    again = {path.name: path.read_bytes() for path in tables.write_pages(paper, name, copy, SHOWN)}
    assert again == {path.name: path.read_bytes() for path in pages if path.name in again}
