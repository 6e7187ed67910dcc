"""From a row to the runs behind it, and to no others."""

import os

import pytest

from dpfl.errors import InputError
from dpfl.provenance import trace
from dpfl.provenance.trace import conditions, rows_where, runs_behind, same


def run(**changes):
    base = {"job": "a", "dataset": "digits", "stand_in_for": "mnist", "epsilon": "2.93", "delta": "1/n^2"}
    return {**base, "seed": "0", "status": "finished", "accuracy_pct": "90.0", **changes}


def test_runs_agree_in_every_shared_column_and_stand_ins_count_as_what_they_stand_for():
    runs = [run(seed="0"), run(seed="1"), run(epsilon="1.2"), run(dataset="diabetes", stand_in_for="insurance")]
    rows = [{"dataset": "mnist", "epsilon": "2.930", "delta": "1e-5", "accuracy_pct": "91.5"}]
    assert runs_behind(runs, rows) == runs[:2]


def test_a_study_of_the_same_cell_is_not_behind_a_row_that_names_none():
    others = [run(seed="1"), run(seed="2"), run(seed="3", clip="True")]
    studies = ("none", "canaries", "distances")
    runs = [run(), *({"study": study, **each} for study, each in zip(studies, others, strict=True))]
    assert runs_behind(runs, [{"epsilon": "2.93"}]) == runs[:2]
    assert runs_behind(runs, [{"epsilon": "2.93", "study": "canaries"}]) == [runs[0], runs[2]]
    assert runs_behind(runs[2:], [{"epsilon": "2.93"}]) == runs[2:]


def test_a_run_asked_for_twice_counts_once():
    assert len(runs_behind([run(), run(job="b")], [{"epsilon": "2.93"}])) == 1


def test_rows_that_record_their_runs_are_traced_to_these_alone():
    tables = {f"results/demo/runs/p/{name}.csv.gz": [run(seed="0"), run(seed="1")] for name in ("a", "b")}
    rows = [{"epsilon": "2.93", "origins": "a:1 b:0"}]
    kept = trace._recorded(tables, rows)
    assert [[each["seed"] for each in runs] for runs in kept.values()] == [["1"], ["0"]]
    assert trace.is_recorded(rows) and not trace.is_recorded([{"epsilon": "2.93"}])


def test_a_value_may_have_commas():
    assert conditions("split=(1, 20),sampling=poisson") == {"split": "(1, 20)", "sampling": "poisson"}


@pytest.mark.parametrize("text", ["x", "=1", "a=1,,", "a=1,=2", "a=1,a=2"])
def test_conditions_that_are_none_are_refused(text):
    with pytest.raises(InputError, match="--where"):
        conditions(text)


def test_unknown_columns_and_values_are_named_with_what_there_is(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("model,epsilon\na,1\nb,2\n")
    assert rows_where(path, {"epsilon": "1.0"}) == [{"model": "a", "epsilon": "1"}]
    with pytest.raises(InputError, match="no column modle; it has model, epsilon"):
        rows_where(path, {"modle": "a"})
    with pytest.raises(InputError, match=r"no row .* has model=c; there are a, b"):
        rows_where(path, {"model": "c"})
    with pytest.raises(InputError, match="together"):
        rows_where(path, {"model": "a", "epsilon": "2"})


def test_numbers_are_compared_as_numbers():
    assert same("inf", "Infinity") and same("1.0", "1") and same("True", "true") and not same("1", "x")


@pytest.mark.parametrize("row", ["a", "a,1,2"])
def test_a_row_of_another_number_of_cells_is_no_table(tmp_path, row):
    path = tmp_path / "t.csv"
    path.write_text(f"model,epsilon\na,1\n{row}\n")
    with pytest.raises(InputError, match=r"t\.csv is no table: row 2 has another number of cells than the first line"):
        rows_where(path, {"model": "a"})


@pytest.mark.parametrize("put", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_no_table_and_nothing_hangs(tmp_path, put):
    for name in ("t.csv", "t.csv.gz"):
        put(tmp_path / name)
        with pytest.raises(InputError, match="is no regular file"):
            rows_where(tmp_path / name, {"model": "a"})
