import pandas as pd

from dpfl.files import file_sha256
from dpfl.provenance.trace import conditions, rows_where
from dpfl.reporting.report_page.claim_views import row_conditions, trace_of
from dpfl.reporting.results import read_csv

TABLE = "tables/bhaskar2025_table_2.csv"


def test_the_command_names_the_file_from_the_project(made):
    trace = trace_of(made[0] / TABLE, made[0].parents[1])
    assert trace.command == f"dpfl trace results/demo/{TABLE}"
    assert trace.record_sha256 == file_sha256(made[0] / f"{TABLE}.record.json")


def test_a_file_without_a_record_says_so(made):
    assert trace_of(made[0] / "accounting/bhaskar2025.csv", made[0].parents[1]).record_sha256 == ""


def test_every_condition_finds_its_row_and_no_other(made):
    rows = read_csv(made[0] / TABLE)
    for where, (_, row) in zip(row_conditions(rows), rows.iterrows(), strict=True):
        [found] = rows_where(made[0] / TABLE, conditions(where))
        assert float(found["published_accuracy_pct"]) == row["published_accuracy_pct"]


def test_columns_that_cannot_be_asked_for_are_passed_over():
    rows = pd.DataFrame({"case": ["a, b", "a = b"], "n": [1, 2]})
    assert row_conditions(rows) == ["n=1", "n=2"]


def test_rows_that_nothing_tells_apart_have_no_condition():
    assert row_conditions(pd.DataFrame({"n": [1, 1], "same": ["x", "x"]})) == ["", ""]
