"""The contract of an experiment is checked where its functions return."""

from dataclasses import replace

import pandas as pd
import pytest

from dpfl.errors import InputError
from dpfl.experiments import protocol
from dpfl.grid import configuration, expansion


@pytest.fixture
def sweep():
    return expansion.expand(configuration.resolve({"papers": ["asoodeh2021"], "seeds": [0, 1]}))[0]


def table_of(sweep, count):
    about = dict.fromkeys(["paper", "sweep", "experiment", "dataset", "seed", "status", "noise_multiplier"], 0)
    return pd.DataFrame([{**about, **sweep.cells[0]}] * count)


def test_what_keeps_the_contract_passes(sweep):
    protocol.require_calibrated(sweep, table_of(sweep, len(sweep.cells)))
    protocol.require_trained(sweep, table_of(sweep, 2 * len(sweep.cells)))


@pytest.mark.parametrize(
    ("check", "rows", "column", "said"),
    [
        (protocol.require_calibrated, 1, "", "calibrate returned for asoodeh2021/.* 1 rows, should be 25"),
        (protocol.require_calibrated, 25, "noise_multiplier", "without the column noise_multiplier"),
        (protocol.require_trained, 25, "", "train returned for asoodeh2021/.* 25 rows, should be 50"),
        (protocol.require_trained, 50, "users", "without the column users"),
        (protocol.require_trained, 50, "status", "without the column status"),
    ],
)
def test_what_breaks_the_contract_is_one_line(sweep, check, rows, column, said):
    with pytest.raises(InputError, match=said) as refused:
        check(sweep, table_of(sweep, rows).drop(columns=[column] if column else []))
    assert "\n" not in str(refused.value)


def test_a_list_is_no_table(sweep):
    with pytest.raises(InputError, match="a list, should be a DataFrame"):
        protocol.require_calibrated(sweep, [{}])


def test_a_setting_that_nobody_reads_is_refused_with_the_one_that_was_meant(sweep):
    protocol.load(sweep.experiment)
    for changed in (
        replace(sweep, settings={**sweep.settings, "stopps": 3}),
        replace(sweep, cells=({**sweep.cells[0], "stopps": 3},)),
    ):
        with pytest.raises(InputError, match="trusted_aggregator reads no setting stopps; stops is one"):
            protocol.require_known(changed)


def test_a_setting_of_another_experiment_is_none_of_this_one(sweep):
    protocol.load("async_dpsgd")
    with pytest.raises(InputError, match="trusted_aggregator reads no setting max_staleness"):
        protocol.require_known(replace(sweep, settings={**sweep.settings, "max_staleness": 3}))


@pytest.mark.parametrize("scale", ["demo", "quick", "paper"])
def test_every_setting_of_every_grid_is_read(scale):
    for sweep in expansion.expand(configuration.resolve({"scale": scale})):
        protocol.load(sweep.experiment)
        protocol.require_known(sweep)
