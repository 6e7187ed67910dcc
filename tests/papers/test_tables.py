"""Tables that need no runs: complete data and a page. Tables that private runs stand behind: a privacy card."""

import functools
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


PAPERS = [paper for paper in keys() if made_of_runs(paper)]


@pytest.fixture(scope="module")
def few(repository, require_shipped, tmp_path_factory) -> Callable[[str, bool], dict[str, list[Path]]]:
    """Return a function (paper, private) that makes its tables of the first seeds of the shipped runs.

    It gives the paths of each, by name; without `private`, of the runs that are left without the private ones.
    """

    @functools.cache
    def make(paper: str, private: bool) -> dict[str, list[Path]]:
        require_shipped(paper)
        folder, jobs = tmp_path_factory.mktemp(paper), []
        for source in sorted((repository / "results" / "paper" / "runs" / paper).glob("*.csv.gz")):
            runs = read_csv(source)
            runs = runs[runs["seed"] < SEEDS]
            if len(kept := runs if private else runs.drop(private_runs(runs).index)):
                jobs.append(folder / source.name.removesuffix(".gz"))
                write_csv(kept, jobs[-1])
        assert jobs or not private, f"no shipped runs of {paper}"
        results = Results(folder, {paper: tuple(jobs)})
        return {name: tables.make(paper, name, results, folder / "tables") for name in made_of_runs(paper)}

    return make


@pytest.mark.parametrize("paper", PAPERS)
def test_private_runs_imply_a_card(few, paper):
    """They stand behind a table if it is another one without them, whatever it says of its runs."""
    for name, paths in few(paper, True).items():
        rest = few(paper, False)[name]
        private = paths[0].read_bytes() != rest[0].read_bytes()
        assert [path.name for path in paths[5:]] == [f"{paper}_{name}.privacy.md"] * private
        assert len(rest) == 5, name


@pytest.mark.parametrize("paper", PAPERS)
def test_no_page_shows_the_runs_of_a_row(few, tmp_path, paper):
    """A page is the same without them: who wants them reads the CSV, or asks `dpfl trace`."""
    for name, (csv, *pages) in few(paper, True).items():
        copy = tmp_path / csv.name
        write_csv(read_csv(csv).drop(columns=ORIGINS, errors="ignore"), copy)
        again = {path.name: path.read_bytes() for path in tables.write_pages(paper, name, copy, SHOWN)}
        assert again == {path.name: path.read_bytes() for path in pages if path.name in again}, name
