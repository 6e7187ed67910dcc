import pytest

from dpfl.catalog import load
from dpfl.papers.asoodeh2021.tables import TABLES
from dpfl.reporting import tables

KEY = "asoodeh2021"


def test_every_table_of_the_paper_has_a_recipe():
    assert set(TABLES) == set(load(KEY).tables)


@pytest.mark.parametrize("name", sorted(TABLES))
def test_data_are_complete_and_can_be_laid_out(results, name):
    data = results.table(KEY, name)
    assert not data.isna().any(axis=None)
    page = TABLES[name].page(data)
    assert len(page.body) == len(data)
    # A bar in a cell would break the Markdown table.
    assert not page.body.map(lambda cell: "|" in cell).any(axis=None)
    assert tables.latex(page, "title", "label")


def test_every_check_belongs_to_a_claim(results):
    assert set(results.table(KEY, "checks")["claim"]) <= set(load(KEY).claims)
