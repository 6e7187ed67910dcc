"""What an experiment states for add_or_remove must be the same for n and n - 1 records; else it says n is public."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from dpfl import experiments
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import FixedBatches, Poisson
from dpfl.accounting.statements import Gaussian, PrivacyStatement
from dpfl.catalog import dataset_entries
from dpfl.engine.memory_budget import on_cpu
from dpfl.grid.configuration import resolve
from dpfl.grid.expansion import expand
from dpfl.grid.sweep import Sweep

FAMILIES = {(sweep.paper, sweep.family): on_cpu(sweep) for sweep in expand(resolve({"scale": "demo"}))}
DEPENDS_ON_RECORDS = ("privacy_records", "privacy_records_public", "privacy_note")
Calibrate = Callable[[Sweep, Mapping[str, Any]], pd.DataFrame]


def description(dataset: str, missing: int) -> dict[str, Any]:
    """The data set's own description, of `missing` training records fewer."""
    records = dataset_entries()[dataset]["records"]
    return {"name": dataset, "records": {part: count - missing * (part != "test") for part, count in records.items()}}


def faults(calibrate: Calibrate, sweep: Sweep) -> list[str]:
    """What a neighbour's statement gives away, or what a reader is not warned of."""
    rows = calibrate(sweep, description(sweep.dataset, 0))
    rows = rows[rows["privacy_epsilon_proven"].map(math.isfinite)]
    hidden = rows["privacy_neighbouring"] == Neighbouring.ADD_OR_REMOVE
    found = [] if rows.loc[~hidden, "privacy_records_public"].all() else ["n is not said to be public"]
    if hidden.any():
        fewer = calibrate(sweep, description(sweep.dataset, 1)).loc[rows.index]
        stated = [name for name in rows if name == "noise_multiplier" or name.startswith("privacy_")]
        for name in stated:
            if name not in DEPENDS_ON_RECORDS and not rows.loc[hidden, name].equals(fewer.loc[hidden, name]):
                found.append(name)
    return found


def one_of_each(sweep: Sweep) -> Sweep:
    """The sweep with one private cell for every sampler and relation that its cells name."""
    private = [cell for cell in sweep.cells if math.isfinite(cell.get("epsilon", 1.0))] or sweep.cells
    kinds = {(cell.get("sampling"), cell.get("neighbouring")): cell for cell in reversed(private)}
    return replace(sweep, cells=tuple(kinds.values()))


def kind(sweep: Sweep) -> tuple:
    """What the form of a sweep's statements depends on: experiment, samplers, relations and the noise's rule."""
    named = ("sampling", "neighbouring", "noise", "accountant", "preparation", "clipping")
    cells = {(cell.get("sampling"), cell.get("neighbouring")) for cell in sweep.cells}
    return sweep.experiment, frozenset(cells), tuple(str(sweep.settings.get(name)) for name in named)


KINDS = {kind(sweep): family for family, sweep in reversed(FAMILIES.items())}


@pytest.mark.parametrize("family", KINDS.values(), ids="_".join)
def test_no_kind_of_statement_of_the_demo_grid_gives_the_number_of_records_away(family):
    sweep = one_of_each(FAMILIES[family])
    assert faults(experiments.load(sweep.experiment).calibrate, sweep) == []


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids="_".join)
def test_no_statement_of_the_demo_grid_gives_the_number_of_records_away(family):
    sweep = FAMILIES[family]
    assert faults(experiments.load(sweep.experiment).calibrate, sweep) == []


def stating(sampler: Callable[[int], Any], steps: Callable[[int], int], relation: Neighbouring, public: bool = True):
    """An experiment that states one run of its training records."""

    def calibrate(sweep: Sweep, described: Mapping[str, Any]) -> pd.DataFrame:
        n = described["records"]["train"]
        run = {"noise_multiplier": 4.0, "steps": steps(n), "delta": 1e-5, "records": n, "records_public": public}
        stated = PrivacyStatement.of(Gaussian(), sampler(n), neighbouring=relation, **run)
        return pd.DataFrame([{"noise_multiplier": stated.noise_multiplier, **stated.columns()}])

    return calibrate


@pytest.mark.parametrize(
    ("experiment", "found"),
    [
        (stating(lambda n: Poisson(0.01), lambda n: 50, Neighbouring.ADD_OR_REMOVE), set()),
        (stating(lambda n: Poisson(0.01), lambda n: 50, Neighbouring.ADD_OR_REMOVE, public=False), set()),
        (stating(lambda n: Poisson(32 / n), lambda n: 50, Neighbouring.ZERO_OUT), set()),
        (stating(lambda n: Poisson(32 / n), lambda n: 50, Neighbouring.ADD_OR_REMOVE), {"privacy_sample_rate"}),
        (stating(lambda n: FixedBatches(32, n), lambda n: 50, Neighbouring.ADD_OR_REMOVE), {"privacy_sampler"}),
        (stating(lambda n: Poisson(0.01), lambda n: n // 3, Neighbouring.ADD_OR_REMOVE), {"privacy_steps"}),
        (stating(lambda n: Poisson(0.01), lambda n: 50, Neighbouring.ZERO_OUT, False), {"n is not said to be public"}),
    ],
)
def test_the_check_finds_a_rate_a_sampler_and_steps_that_follow_n(experiment, found):
    # n is a multiple of 3, so that n // 3 falls with the first record that goes.
    dataset = next(name for name, entry in dataset_entries().items() if entry["records"].get("train", 1) % 3 == 0)
    sweep = Sweep("none", "none", "none", {"dataset": dataset}, ({},), (0,))
    seen = set(faults(experiment, sweep))
    assert found <= seen and bool(found) == bool(seen), json.dumps(sorted(seen))
