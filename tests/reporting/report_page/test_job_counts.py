from dpfl.grid import configuration, expansion
from dpfl.reporting.report_page.contents import SweepCounts, sweep_counts, total

CONFIG = configuration.resolve({"scale": "demo", "papers": ["asoodeh2020", "lowy2021"]})


def trained(folder, *sweeps):
    """Put run tables of sweeps there."""
    for sweep in sweeps:
        path = expansion.run_table(folder, sweep.paper, sweep.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"runs")


def test_sweeps_are_counted_by_their_run_tables(tmp_path):
    sweeps = expansion.expand(CONFIG)
    own = [sweep for sweep in sweeps if sweep.paper == "lowy2021"]
    trained(tmp_path, *own[:-1])
    counts = sweep_counts(tmp_path, CONFIG)
    assert (counts["lowy2021"].run, counts["lowy2021"].total, counts["lowy2021"].not_run) == (len(own) - 1, len(own), 1)
    assert [group[2] - group[1] for group in counts["lowy2021"].open_groups] == [1]
    assert sum(group[2] for group in counts["lowy2021"].groups) == len(own)
    both = total(counts.values())
    assert (both.run, both.total) == (len(own) - 1, len(sweeps))
    trained(tmp_path, *sweeps)
    assert total(sweep_counts(tmp_path, CONFIG).values()).sentence() == f"All {len(sweeps)} sweeps run."


def test_the_sentence_counts_what_was_run():
    assert SweepCounts(245, 460).sentence() == "245 of 460 sweeps run."
    assert SweepCounts(0, 0).sentence() == ""
