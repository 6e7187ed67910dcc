"""What the reader of a table of text may do with it."""

import pytest

from dpfl.reporting.report_page.agreement import Row, TextTable

PLAIN = (Row(("a", "1")), Row(("b", "2")), Row(("c", "3")))


@pytest.mark.parametrize(
    ("rows", "sorts"),
    [
        (PLAIN, True),
        (PLAIN[:2], False),  # two rows are in sight at once
        ((), False),
        ((*PLAIN[:2], Row(("c", "3"), heading="Others")), False),  # a row would leave its heading
        ((Row(("a", "1"), heading="First"), *PLAIN), False),
        ((*PLAIN, Row(("d", "4"), where="x=1", style="bad")), True),
    ],
)
def test_rows_may_change_places_only_where_none_stands_below_a_heading(rows, sorts):
    assert TextTable(("name", "number"), rows).can_sort is sorts


@pytest.mark.parametrize("place", [None, 0, 2])
def test_one_row_with_a_condition_makes_a_table_that_can_be_traced(place):
    rows = tuple(Row(row.cells, where="x=1" if number == place else "") for number, row in enumerate(PLAIN))
    assert TextTable(("name", "number"), rows).has_traces is (place is not None)
