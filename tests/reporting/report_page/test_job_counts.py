from dpfl.grid import configuration, expansion
from dpfl.reporting.report_page.contents import JobCounts, job_counts, total

CONFIG = configuration.resolve({"scale": "demo", "papers": ["asoodeh2020", "lowy2021"]})


def trained(folder, *jobs):
    """Put run tables of jobs there."""
    for job in jobs:
        path = expansion.run_table(folder, job.paper, job.name)
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
    assert total(job_counts(tmp_path, CONFIG).values()).sentence() == f"All {len(jobs)} jobs run."


def test_the_sentence_counts_what_was_run():
    assert JobCounts(245, 460).sentence() == "245 of 460 jobs run."
    assert JobCounts(0, 0).sentence() == ""
