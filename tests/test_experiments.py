"""The contract of an experiment is checked where its functions return."""

import math
from dataclasses import replace

import pandas as pd
import pytest

from dpfl import attacks, experiments
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import Poisson
from dpfl.accounting.statements import Gaussian, PrivacyStatement
from dpfl.errors import InputError
from dpfl.grid import configuration, expansion


@pytest.fixture
def job():
    return expansion.expand(configuration.resolve({"papers": ["asoodeh2021"], "seeds": [0, 1]}))[0]


STATEMENT = PrivacyStatement.of(
    Gaussian(),
    Poisson(0.01),
    neighbouring=Neighbouring.REPLACE_ONE,
    records=100,
    noise_multiplier=1,
    steps=9,
    delta=1e-5,
)


def table_of(job, count, **changes):
    about = dict.fromkeys(["paper", "job", "experiment", "dataset"], "")
    row = {**about, "seed": 0, "status": "finished", "accuracy_pct": 90.0, "dimension": 8, "noise_multiplier": 1.0}
    return pd.DataFrame([{**job.cells[0], **row, **STATEMENT.columns(), **changes}] * count)


def test_what_keeps_the_contract_passes(job):
    experiments.require_calibrated(job, table_of(job, len(job.cells)))
    experiments.require_trained(job, table_of(job, 2 * len(job.cells)))


@pytest.mark.parametrize(
    ("check", "rows", "column", "said"),
    [
        (experiments.require_calibrated, 1, "", "calibrate returned for asoodeh2021/.* 1 rows, should be 25"),
        (experiments.require_calibrated, 25, "noise_multiplier", "without the column noise_multiplier"),
        (experiments.require_trained, 25, "", "train returned for asoodeh2021/.* 25 rows, should be 50"),
        (experiments.require_trained, 50, "users", "without the column users"),
        (experiments.require_trained, 50, "status", "without the column status"),
    ],
)
def test_what_breaks_the_contract_is_one_line(job, check, rows, column, said):
    with pytest.raises(InputError, match=said) as refused:
        check(job, table_of(job, rows).drop(columns=[column] if column else []))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", [name for name in STATEMENT.columns() if name in experiments._STATEMENT])
def test_a_run_that_does_not_state_its_privacy_is_refused(job, name):
    for check, rows in ((experiments.require_calibrated, 25), (experiments.require_trained, 50)):
        with pytest.raises(InputError, match=f"without the column {name}"):
            check(job, table_of(job, rows).drop(columns=name))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"status": "exploded"}, "the status exploded, should be finished or diverged"),
        ({"status": math.nan}, "the status nan, should be"),
        ({"accuracy_pct": math.nan}, "a finished run whose accuracy_pct, the metric after status, is no number"),
        ({"accuracy_pct": "high"}, "a finished run whose accuracy_pct"),
        ({"noise_multiplier": math.nan}, "a noise_multiplier that is no number of 0 or more"),
        ({"noise_multiplier": -1.0}, "a noise_multiplier that is no number of 0 or more"),
        ({"privacy_mechanism": None}, "a row without privacy_mechanism"),
    ],
)
def test_runs_that_say_nothing_are_refused(job, changes, said):
    with pytest.raises(InputError, match=said):
        experiments.require_trained(job, table_of(job, 50, **changes))


def test_a_run_that_diverged_needs_no_number(job):
    experiments.require_trained(job, table_of(job, 50, status="diverged", accuracy_pct=math.nan))


def test_a_list_is_no_table(job):
    with pytest.raises(InputError, match="a list, should be a DataFrame"):
        experiments.require_calibrated(job, [{}])


def test_a_setting_that_nobody_reads_is_refused_with_the_one_that_was_meant(job):
    experiments.load(job.experiment)
    for changed in (
        replace(job, settings={**job.settings, "stopps": 3}),
        replace(job, cells=({**job.cells[0], "stopps": 3},)),
    ):
        with pytest.raises(InputError, match="trusted_aggregator reads no setting stopps; stops is one"):
            experiments.require_known(changed)


def test_a_setting_of_another_experiment_is_none_of_this_one(job):
    experiments.load("async_dpsgd")
    with pytest.raises(InputError, match="trusted_aggregator reads no setting max_staleness"):
        experiments.require_known(replace(job, settings={**job.settings, "max_staleness": 3}))


@pytest.mark.parametrize("scale", ["demo", "quick", "paper"])
def test_every_setting_of_every_grid_is_read(scale):
    for job in expansion.expand(configuration.resolve({"scale": scale})):
        experiments.load(job.experiment)
        experiments.require_known(job)


def test_two_experiments_of_one_name_are_refused(tmp_path, monkeypatch):
    (tmp_path / "pnsgd.py").write_text("def calibrate():\n    ...\n\n\ndef train():\n    ...\n")
    monkeypatch.setattr(attacks, "__path__", [*attacks.__path__, str(tmp_path)])
    experiments.homes.cache_clear()
    with pytest.raises(InputError, match=r"dpfl\.convex\.pnsgd and dpfl\.attacks\.pnsgd have one name"):
        experiments.homes()
    monkeypatch.undo()
    experiments.homes.cache_clear()
