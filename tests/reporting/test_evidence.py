import numpy as np
import pandas as pd

from dpfl.reporting.cases import from_interval
from dpfl.reporting.evidence import Comparison, Relation, checks_page, interval_cases, passed, table


def rows(relation: Relation, independent: float) -> pd.DataFrame:
    return table([Comparison("claim", "case", relation, 1.0, independent, 0.1)])


def test_equality_fails_on_both_sides_and_a_bound_on_one():
    assert passed(rows(Relation.EQUALS, 1.05)).all()
    assert not passed(rows(Relation.EQUALS, 1.2)).any()
    assert not passed(rows(Relation.EQUALS, 0.8)).any()
    assert passed(rows(Relation.AT_MOST, 0.2)).all()
    assert not passed(rows(Relation.AT_MOST, 1.2)).any()


def test_a_missing_number_does_not_pass():
    for relation in Relation:
        assert not passed(rows(relation, np.nan)).any()


def test_what_fails_comes_first_and_is_counted_by_claim():
    made = [Comparison(claim, "case", Relation.EQUALS, 1.0, value, 1e-6) for claim, value in CASES]
    data = table(made)
    assert list(data["claim"]) == ["b", "c", "b", "a"] and list(passed(data)) == [False, False, False, True]
    note = "1 of 4 cases hold within their tolerance (in the CSV file); first those that fail: b 2, c 1."
    assert checks_page(data).notes == [note]


CASES = [("a", 1.0), ("b", 2.0), ("c", 2.0), ("b", 3.0)]


def test_pages_hold_text_only():
    page = checks_page(rows(Relation.EQUALS, 1.0))
    assert all(isinstance(cell, str) for row in page.body.itertuples(index=False) for cell in row)
    assert "1 of 1" in page.notes[0]


def test_a_row_is_the_case_of_its_interval_and_names_the_data_that_stand_in():
    data = pd.DataFrame({"dataset": ["a", "b"], "stand_in_for": ["", "c"], "seeds": [3, 1], "mean": [2.0, 4.0]})
    one, other = interval_cases(data, "on {dataset}", data["mean"] / 2, data["mean"], runs="seeds", target=1.0)
    assert one == from_interval("on a", 3, 1.0, 2.0, level=0.9, target=1.0)
    assert (other.case, other.n, other.stand_in) == ("on b", 1, "b") and np.isnan(other.error)
