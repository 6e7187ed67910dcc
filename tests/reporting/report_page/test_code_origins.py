import json
import os

from dpfl.files import record_path
from dpfl.reporting.report_page.contents import untraced_runs

CLEAN = {"commit": "0" * 40, "dirty": False}


def test_a_run_table_counts_where_no_commit_accounts_for_its_code(tmp_path):
    folder = tmp_path / "runs" / "p"
    folder.mkdir(parents=True)
    assert untraced_runs(tmp_path, "p") == ""
    sources = [CLEAN, CLEAN | {"dirty": True}, CLEAN | {"commit": None}, {"commit": "0" * 40}]
    for number, source in enumerate(sources):
        table = folder / f"{number}.csv.gz"
        table.touch()
        record_path(table).write_text(json.dumps({"source": source}))
    assert untraced_runs(tmp_path, "p").startswith("2 of 4 run tables were trained from a changed source tree or name")
    for number, text in enumerate(("[]", "{", '{"source": 1}', "[" * 100_000), start=4):
        table = folder / f"{number}.csv.gz"
        table.touch()
        record_path(table).write_text(text)
    assert untraced_runs(tmp_path, "p").startswith("6 of 8 ")
    record_path(folder / "0.csv.gz").unlink()
    os.mkfifo(record_path(folder / "0.csv.gz"))
    record_path(folder / "3.csv.gz").unlink()
    assert untraced_runs(tmp_path, "p").startswith("8 of 8 ")


def test_runs_of_commits_alone_need_no_sentence(tmp_path):
    table = tmp_path / "runs" / "p" / "x.csv.gz"
    table.parent.mkdir(parents=True)
    table.touch()
    record_path(table).write_text(json.dumps({"source": CLEAN}))
    assert untraced_runs(tmp_path, "p") == "" == untraced_runs(tmp_path, "q")
