"""Tables that need no runs: complete data and a page."""

import pytest

from dpfl.catalog import module
from dpfl.reporting import tables

COMPUTED = ["asoodeh2020", "asoodeh2021", pytest.param("vandijk2023", marks=pytest.mark.slow)]


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
