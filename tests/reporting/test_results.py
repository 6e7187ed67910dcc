"""A table, a figure, a claim whose runs are not part of the configuration says so, and nothing fails."""

import gzip
import math
import os

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from dpfl.catalog import keys, load
from dpfl.errors import InputError
from dpfl.provenance.trace import read_rows
from dpfl.reporting import figures, style, tables
from dpfl.reporting.claims import evaluate
from dpfl.reporting.results import (
    NotRunError,
    Results,
    compute_or_placeholder,
    own_code,
    read_csv,
    removed_unless_finished,
    write_csv,
    write_table,
)
from dpfl.reporting.rules import Verdict


def test_a_table_comes_back_with_every_digit_and_every_empty_text(tmp_path):
    table = pd.DataFrame(
        {"a": [0.1 + 0.2, math.nan, 1e-300, math.inf], "text": ["", "NA", "null", "x"], "n": [1, 2, 3, 4]}
    )
    write_csv(table, tmp_path / "t.csv")
    pd.testing.assert_frame_equal(read_csv(tmp_path / "t.csv"), table, check_exact=True, check_dtype=False)
    assert b"\r" not in (tmp_path / "t.csv").read_bytes()


def test_a_failing_line_of_a_papers_own_code_is_named(tmp_path):
    own = {"__name__": "dpfl.papers.smith2026.tables"}
    exec(compile("def risks(results):\n    return results['noise']", "papers/smith2026/tables.py", "exec"), own)
    with pytest.raises(InputError, match=r"^smith2026: table risk: tables\.py, line 2: KeyError: 'noise'$"):
        compute_or_placeholder(own["risks"], {}, "smith2026", "table risk")
    with pytest.raises(InputError, match=r"^smith2026: table risk: data returned a NoneType, no DataFrame$"):
        compute_or_placeholder(lambda _: None, {}, "smith2026", "table risk")
    with pytest.raises(ZeroDivisionError), own_code("smith2026", "table risk"):
        1 / 0  # noqa: B018 - a fault that is not in the paper's code keeps its traceback
    page = tmp_path / "t.csv"
    page.write_text("a\n1\n")
    with pytest.raises(KeyError), removed_unless_finished(page):
        raise KeyError
    assert not page.exists()


def test_every_float_is_read_exactly(tmp_path):
    bits = np.random.default_rng(0).integers(0, 2**63, size=2000, dtype=np.int64)
    table = pd.DataFrame({"a": bits.view(np.float64)}).replace([np.inf], np.nan).dropna()
    write_csv(table, tmp_path / "t.csv")
    assert read_csv(tmp_path / "t.csv")["a"].tolist() == table["a"].tolist()


def test_a_table_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    def forbidden(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(gzip, "open", forbidden)  # root, who runs tests in containers, may read everything
    (tmp_path / "t.csv.gz").touch()
    with pytest.raises(InputError, match=r"t\.csv\.gz cannot be read: its permissions"):
        read_csv(tmp_path / "t.csv.gz")


def test_a_missing_or_broken_table_is_named(tmp_path):
    with pytest.raises(InputError, match=r"t\.csv is not there"):
        read_csv(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("")
    with pytest.raises(InputError, match=r"t\.csv is empty"):
        read_csv(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text('a,b\n1,"2\n')
    with pytest.raises(InputError, match=r"t\.csv is not a table"):
        read_csv(tmp_path / "t.csv")


def test_a_small_file_that_unpacks_without_end_is_no_table(tmp_path, monkeypatch):
    monkeypatch.setattr("dpfl.reporting.results._LONGEST_TABLE", 1 << 20)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a\n" + b"1\n" * (1 << 19)))
    with pytest.raises(InputError, match=r"t\.csv\.gz is not a table: it has more than 1 MiB"):
        read_csv(tmp_path / "t.csv.gz")
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a\n" + b"1\n" * ((1 << 19) - 1)))
    assert len(read_csv(tmp_path / "t.csv.gz")) == (1 << 19) - 1


def test_runs_of_a_paper_are_one_table(tmp_path):
    folder = tmp_path / "demo" / "runs" / "bhaskar2025"
    folder.mkdir(parents=True)
    paths = [folder / f"s{seed}.csv" for seed in (1, 0)]
    for seed, path in enumerate(paths):
        write_csv(pd.DataFrame({"seed": [seed], "accuracy_pct": [float(seed)]}), path)
    results = Results(tmp_path / "demo", {"bhaskar2025": tuple(paths)})
    assert results.runs("bhaskar2025")["seed"].tolist() == [1, 0]  # in the order of the files' names
    assert results.runs("lowy2021").empty
    with pytest.raises(InputError, match=rf"^no paper lowy2012; there are {', '.join(keys())}$"):
        results.runs("lowy2012")  # an empty table would be a page that says that nothing was run
    assert np.isfinite(results.runs("bhaskar2025")["accuracy_pct"]).all()
    mine = results.runs("bhaskar2025")
    mine["seed"] = 7
    assert results.runs("bhaskar2025")["seed"].tolist() == [1, 0]  # whoever changes a table changes their own


def test_links_and_pipes_are_refused_unopened(tmp_path):
    (tmp_path / "secret.csv").write_text("a\n1\n")
    (tmp_path / "link.csv").symlink_to(tmp_path / "secret.csv")
    (tmp_path / "dead.csv").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "folder.csv").mkdir()
    for name in ("link", "dead", "pipe", "folder"):
        with pytest.raises(InputError, match="not a regular file"):
            read_csv(tmp_path / f"{name}.csv")


ROWS = pd.DataFrame({"model": ["a", "ü"], "epsilon": [0.1 + 0.2, float("inf")], "note": ["", "x,y"]})


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_a_table_comes_back_and_the_same_rows_give_the_same_bytes(tmp_path, name):
    for folder in ("one", "two"):
        write_table(ROWS, tmp_path / folder / name)
    one, two = (tmp_path / folder / name for folder in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    pd.testing.assert_frame_equal(read_csv(one), ROWS, check_dtype=False)
    assert [row["model"] for row in read_rows(one)] == ["a", "ü"]


def test_a_shipped_run_table_is_written_again_to_the_same_bytes_by_every_version_of_python(repository, tmp_path):
    shipped = min((repository / "results" / "paper" / "runs").rglob("*.csv.gz"), key=lambda path: path.stat().st_size)
    write_table(read_csv(shipped), tmp_path / shipped.name)
    assert (tmp_path / shipped.name).read_bytes() == shipped.read_bytes()


def test_a_damaged_run_table_is_named(tmp_path):
    path = tmp_path / "t.csv.gz"
    write_table(ROWS, path)
    whole = path.read_bytes()
    for damaged in (whole[:-9], whole[:12] + bytes([whole[12] ^ 255]) + whole[13:], b"model\na\n", gzip.compress(b"")):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"t\.csv\.gz is"):
            read_csv(path)
    path.write_bytes(whole[:-9])
    with pytest.raises(InputError, match=r"t\.csv\.gz is not a table"):
        read_rows(path)


# A table, a figure, a claim whose runs are not part of the configuration says so, and nothing fails.


FROM_RUNS = {
    "lowy2021": (["paired_differences", "mnist_differences", "theory_slopes"], ["figure_2", "mnist", "theory_rates"]),
    "vandijk2023": ([], ["asynchrony", "strategies"]),
    "bhaskar2025": (["table_2", "last_column"], ["distances", "sampling"]),
    "asoodeh2021": (["rates"], ["price", "sampling", "frontier", "dimension", "five_papers"]),
    "asoodeh2020": ([], ["places", "utility"]),
}


@pytest.mark.parametrize("paper", FROM_RUNS)
def test_every_page_is_made_and_every_picture_says_why_it_is_empty(paper, tmp_path, monkeypatch):
    results, reasons = Results(tmp_path, {}), []
    monkeypatch.setattr(style, "text_figure", lambda reason: reasons.append(reason) or plt.figure())
    for names, module in zip(FROM_RUNS[paper], (tables, figures), strict=True):
        for name in names:
            paths = module.make(paper, name, results, tmp_path / module.__name__.rpartition(".")[2])
            assert all(path.stat().st_size > 0 for path in paths)
            pages = [path for path in paths if path.suffix == ".html"]
            assert len(pages) == (module is tables) and all("<tbody>\n<tr>" in page.read_text() for page in pages), name
    assert len(reasons) == len(FROM_RUNS[paper][1]) and all("run" in reason for reason in reasons)


def test_the_reason_stands_on_the_page_and_comes_back_as_an_error(tmp_path):
    results = Results(tmp_path, {})
    paths = tables.make("lowy2021", "price", results, tmp_path / "tables")
    assert "no run of lowy2021" in paths[1].read_text() and read_csv(paths[0]).columns.tolist() == ["not_run"]
    with pytest.raises(NotRunError, match="no run of lowy2021"):
        results.table("lowy2021", "price")
    figures.make("lowy2021", "mnist", results, tmp_path / "figures")
    with pytest.raises(NotRunError, match="ldp_classification"):
        results.figure("lowy2021", "mnist")


def test_claims_without_their_runs_are_not_run(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "write_pictures", lambda paper, name, csv: [])
    results = Results(tmp_path, {})
    for name in load("lowy2021").tables:
        if name != "errata":
            tables.make("lowy2021", name, results, tmp_path / "tables")
    for name in load("lowy2021").figures:
        figures.make("lowy2021", name, results, tmp_path / "figures")
    verdicts, evidence = evaluate("lowy2021", results)
    computed = verdicts["claim"] == "privacy_for_free"  # from formulas
    assert (verdicts.loc[~computed, "verdict"] == Verdict.NOT_RUN).all() and computed.sum() == 1
    assert set(evidence["claim"]) == {"privacy_for_free"}
    assert verdicts["reason"].str.startswith("No run of lowy2021").any()


FORMULAS = ["=1+1", "=cmd|' /C calc'!A0", "+cmd|' /C calc'!A0", "-2+3+cmd|' /C calc'!A0", "@SUM(A1)", "\t=1", "＝1+1"]
FORMULAS += [" =1+1", "\n=1+1", "\u00a0@SUM(A1)"]


@pytest.mark.parametrize("cell", FORMULAS)
def test_a_cell_that_a_spreadsheet_would_run_is_neither_read_nor_written(tmp_path, cell):
    path = tmp_path / "a.csv"
    for table in (pd.DataFrame({"a": ["x", cell]}), pd.DataFrame({cell: [1.0]})):
        with pytest.raises(InputError, match="is a formula to a spreadsheet"):
            write_table(table, path)
        assert not path.exists()
        table.to_csv(path, index=False)
        with pytest.raises(InputError, match=r"a\.csv has the cell .* is a formula to a spreadsheet"):
            read_csv(path)
        path.unlink()


def test_a_number_and_what_says_one_are_no_formulas(tmp_path):
    cells = ["-1e-09 to 1e-09", "-0.5", "+3", "-inf", "a = b", "", "(= 1 - bound on delta)", "-- none"]
    write_table(pd.DataFrame({"a": cells}), tmp_path / "a.csv")
    assert list(read_csv(tmp_path / "a.csv")["a"]) == cells
