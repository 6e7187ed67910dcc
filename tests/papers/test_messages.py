"""Messages of figures: a sentence from the shipped numbers, and from any part of them."""

import itertools

import pandas as pd
import pytest

from dpfl.catalog import keys, load, recipe
from dpfl.reporting.results import NotRunError, read_csv, refuse_not_run

FIGURES = [(key, name) for key in keys() for name in load(key).figures]
MOST_VALUES = 12
LONGEST = 260
"""Letters of three lines."""
LONGEST_OF_A_PART = 280
"""A part may need a clause that the whole does not; no report shows it."""


@pytest.fixture
def shipped(repository, require_shipped):
    """A function that returns the data of a shipped figure; it skips one that was not run."""

    def read(key: str, name: str) -> pd.DataFrame:
        require_shipped(key)
        csv = repository / "results" / "paper" / "figures" / f"{key}_{name}.csv"
        try:
            data = refuse_not_run(read_csv(csv))
        except NotRunError as reason:
            pytest.skip(str(reason))
        assert not data.empty, "a figure without runs says so"
        return data

    return read


@pytest.mark.parametrize(("key", "name"), FIGURES)
def test_the_shipped_numbers_give_a_sentence(shipped, key, name):
    message = recipe(key, "figures", name).message(shipped(key, name))
    assert 20 < len(message) <= LONGEST and not message.endswith(".") and "nan" not in message and "  " not in message


def parts(data: pd.DataFrame):
    """Each part of a table that lacks, or has alone, one value of a column with few of them."""
    for column in data.columns:
        values = data[column].drop_duplicates()
        if 1 < len(values) <= MOST_VALUES:
            for value, lacks in itertools.product(values, (True, False)):
                yield data[(data[column] != value) if lacks else (data[column] == value)]


LONG = (("bhaskar2025", "leads"), ("bhaskar2025", "open_settings"))
"""Figures with so many parts that they take seconds."""


@pytest.mark.parametrize(
    ("key", "name"), [pytest.param(*each, marks=[pytest.mark.slow] if each in LONG else []) for each in FIGURES]
)
def test_any_part_of_the_shipped_numbers_gives_a_sentence_or_none(shipped, key, name):
    message, data = recipe(key, "figures", name).message, shipped(key, name)
    if "runs" not in data and "seeds" not in data and "trials" not in data:
        pytest.skip("is computed, not run: it has no parts")
    told = [message(part) for part in parts(data)]
    assert told, "no column has parts"
    for each in told:
        assert not each or 20 < len(each) <= LONGEST_OF_A_PART, each
        assert "nan" not in each and not each.endswith(".") and "  " not in each, each
