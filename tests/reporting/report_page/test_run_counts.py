"""Counts of jobs, and runs whose code no commit names."""

import json
import os

import pytest

from dpfl.files import record_path
from dpfl.grid import configuration, expansion
from dpfl.reporting.report_page.run_counts import JobCounts, job_counts, total, untraced_runs

CONFIG = configuration.resolve({"scale": "demo", "papers": ["asoodeh2020", "lowy2021"]})


def trained(folder, *jobs):
    """Put run tables of jobs there."""
    for job in jobs:
        path = expansion.run_table_path(folder, job.paper, job.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"runs")


def test_jobs_are_counted_by_their_run_tables(tmp_path):
    jobs = expansion.expand(CONFIG)
    own = [job for job in jobs if job.paper == "lowy2021"]
    trained(tmp_path, *own[:-1])
    counts = job_counts(tmp_path, CONFIG)
    assert (counts["lowy2021"].run, counts["lowy2021"].total, counts["lowy2021"].not_run) == (len(own) - 1, len(own), 1)
    assert [group[2] - group[1] for group in counts["lowy2021"].open_groups] == [1]
    assert sum(group[2] for group in counts["lowy2021"].groups) == len(own)
    both = total(counts.values())
    assert (both.run, both.total) == (len(own) - 1, len(jobs))
    trained(tmp_path, *jobs)
    assert total(job_counts(tmp_path, CONFIG).values()).sentence() == f"All {len(jobs)} jobs were run."


def test_the_sentence_counts_what_was_run():
    assert JobCounts(245, 460).sentence() == "245 of 460 jobs were run."
    assert JobCounts(1, 1).sentence() == "The one job was run."
    assert JobCounts(0, 0).sentence() == ""


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
    assert untraced_runs(tmp_path, "p").startswith("2 of 4 run tables were made from a changed source tree or name")
    for number, text in enumerate(("[]", "{", '{"source": 1}', "[" * 100_000), start=4):
        table = folder / f"{number}.csv.gz"
        table.touch()
        record_path(table).write_text(text)
    assert untraced_runs(tmp_path, "p").startswith("6 of 8 ")
    record_path(folder / "0.csv.gz").unlink()
    os.mkfifo(record_path(folder / "0.csv.gz"))
    record_path(folder / "3.csv.gz").unlink()
    assert untraced_runs(tmp_path, "p").startswith("8 of 8 ")


@pytest.mark.parametrize(
    ("digest", "words"), [("a", "is that of runs from an unchanged tree."), ("b", "cannot be compared.")]
)
def test_an_untraced_run_affects_nothing_where_its_code_is_that_of_traced_ones(tmp_path, digest, words):
    folder = tmp_path / "runs" / "p"
    folder.mkdir(parents=True)
    for number, source in enumerate([CLEAN | {"digest": "a"}, CLEAN | {"dirty": True, "digest": digest}]):
        table = folder / f"{number}.csv.gz"
        table.touch()
        record_path(table).write_text(json.dumps({"source": source}))
    assert untraced_runs(tmp_path, "p").endswith(words)


def test_runs_of_commits_alone_need_no_sentence(tmp_path):
    table = tmp_path / "runs" / "p" / "x.csv.gz"
    table.parent.mkdir(parents=True)
    table.touch()
    record_path(table).write_text(json.dumps({"source": CLEAN}))
    assert untraced_runs(tmp_path, "p") == "" == untraced_runs(tmp_path, "q")
