"""Run tables against grid, calibration and themselves."""

import math
from dataclasses import replace

import pandas as pd
import pytest

from dpfl.grid.expansion import run_table
from dpfl.grid.training_job import TrainingJob
from dpfl.provenance.audit.findings import Audit
from dpfl.provenance.audit.records import against_grid, against_itself, check_runs
from dpfl.reporting.results import write_table

CELLS = ({"epsilon": 2.0, "split": [1, 2]}, {"epsilon": math.inf, "split": [1, 2]})
JOB = TrainingJob("p", "a", "s_seeds0to1", {"dataset": "d"}, CELLS, (0, 1))


def runs():
    """A run table: two cells, two seeds."""
    return [
        {"epsilon": epsilon, "seed": seed, "status": "finished", "noise_multiplier": noise, "accuracy_pct": "90.5",
         "accuracy_pct_by_round": "[80.0, 90.50]", "privacy_delta": "1e-05"}
        for epsilon, noise in (("2.0", "1.5"), ("inf", "0.0")) for seed in ("0", "1")
    ]  # fmt: skip


def test_a_whole_table_has_no_problem():
    assert against_grid(runs(), JOB) == against_itself(runs()) == []


def test_a_lost_cell_seed_or_run_is_named():
    assert against_grid([run for run in runs() if run["epsilon"] == "2.0"], JOB) == ["has no run of epsilon=inf"]
    assert "has no run of seed 1" in against_grid([run for run in runs() if run["seed"] == "0"], JOB)[0]
    assert against_grid(runs()[1:], JOB) == ["has 1 runs of seed 0, should have 2"]
    lists = replace(JOB, cells=({"several": [1]}, {"several": [2]}))
    assert against_grid(runs()[2:], lists) == ["has 1 runs of seed 0, should have 2"]
    assert against_grid([], JOB) == ["has no runs"]


def test_a_result_that_is_not_that_of_the_last_round_is_named():
    other = runs()
    other[3]["accuracy_pct"] = "91"
    assert against_itself(other) == ["accuracy_pct of seed 1 is 91, after its last round 90.5"]
    other[3]["status"] = "diverged"
    assert against_itself(other) == []


def test_a_cell_that_gives_its_noise_has_no_target_epsilon():
    cells = tuple({"epsilon": math.inf, "sigma": sigma} for sigma in (None, 1.5))
    job = TrainingJob("p", "a", "s_seed0", {}, cells, (0,))
    told = [{"epsilon": "inf", "sigma": "nan"}, {"epsilon": "nan", "sigma": "1.5"}]
    rows = [{**each, "seed": "0", "status": "finished", "noise_multiplier": "3"} for each in told]
    assert against_grid(rows, job) == []
    assert against_grid(rows[:1], job) == ["has no run of sigma=1.5"]


@pytest.mark.parametrize("stated", [None, ""])
def test_runs_that_state_no_privacy_are_named(tmp_path, stated):
    silent = [run if stated is None else {**run, "privacy_mechanism": stated} for run in runs()]
    path = run_table(tmp_path / "results" / "demo", JOB.paper, JOB.name)
    write_table(pd.DataFrame(silent), path)
    report = Audit()
    check_runs(report, tmp_path, "demo", [JOB])
    assert "has runs that do not state their privacy" in [finding.problem for finding in report.findings]
