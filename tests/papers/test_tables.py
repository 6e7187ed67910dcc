"""Tables that need no runs: each has a recipe, complete data and a page, and every check belongs to a claim."""

import pytest

from dpfl.catalog import keys, load, module
from dpfl.reporting import tables

COMPUTED = ["asoodeh2020", "asoodeh2021", pytest.param("vandijk2023", marks=pytest.mark.slow)]


@pytest.mark.parametrize("paper", keys())
@pytest.mark.parametrize("kind", ["tables", "figures"])
def test_everything_that_paper_yaml_names_has_a_recipe(paper, kind):
    assert set(getattr(module(paper, kind), kind.upper())) == set(getattr(load(paper), kind))


@pytest.mark.parametrize("paper", COMPUTED)
def test_data_are_complete_and_can_be_laid_out(made, paper):
    results = made(paper)
    for name, recipe in module(paper, "tables").TABLES.items():
        data = results.table(paper, name)
        assert not data.isna().any(axis=None), name
        page = recipe.page(data)
        assert len(page.body) == len(data)
        # A bar in a cell would break the Markdown table.
        assert not page.body.map(lambda cell: "|" in cell).any(axis=None), name
        assert tables.latex(page, "title", "label")


@pytest.mark.parametrize("paper", COMPUTED)
def test_every_check_belongs_to_a_claim(made, paper):
    assert set(made(paper).table(paper, "checks")["claim"]) <= set(load(paper).claims)
