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
from dpfl.grid.training_job import TrainingJob

FAMILIES = {(job.paper, job.calibration_key): on_cpu(job) for job in expand(resolve({"scale": "demo"}))}
DEPENDS_ON_RECORDS = ("privacy_records", "privacy_records_public", "privacy_note")
Calibrate = Callable[[TrainingJob, Mapping[str, Any]], pd.DataFrame]


def description(dataset: str, missing: int) -> dict[str, Any]:
    """The data set's own description, of `missing` training records fewer."""
    records = dataset_entries()[dataset]["records"]
    return {"name": dataset, "records": {part: count - missing * (part != "test") for part, count in records.items()}}


def faults(calibrate: Calibrate, job: TrainingJob) -> list[str]:
    """What a neighbour's statement gives away, or what a reader is not warned of."""
    rows = calibrate(job, description(job.dataset, 0))
    rows = rows[rows["privacy_epsilon_proven"].map(math.isfinite)]
    hidden = rows["privacy_neighbouring"] == Neighbouring.ADD_OR_REMOVE
    found = [] if rows.loc[~hidden, "privacy_records_public"].all() else ["n is not said to be public"]
    if hidden.any():
        fewer = calibrate(job, description(job.dataset, 1)).loc[rows.index]
        stated = [name for name in rows if name == "noise_multiplier" or name.startswith("privacy_")]
        for name in stated:
            if name not in DEPENDS_ON_RECORDS and not rows.loc[hidden, name].equals(fewer.loc[hidden, name]):
                found.append(name)
    return found


def one_of_each(job: TrainingJob) -> TrainingJob:
    """The job with one private cell for every sampler and relation that its cells name."""
    private = [cell for cell in job.cells if math.isfinite(cell.get("epsilon", 1.0))] or job.cells
    kinds = {(cell.get("sampling"), cell.get("neighbouring")): cell for cell in reversed(private)}
    return replace(job, cells=tuple(kinds.values()))


def kind(job: TrainingJob) -> tuple:
    """What the form of a job's statements depends on: experiment, samplers, relations and the noise's rule."""
    named = ("sampling", "neighbouring", "noise", "accountant", "preparation", "clipping")
    cells = {(cell.get("sampling"), cell.get("neighbouring")) for cell in job.cells}
    return job.experiment, frozenset(cells), tuple(str(job.settings.get(name)) for name in named)


KINDS = {kind(job): family for family, job in reversed(FAMILIES.items())}


@pytest.mark.parametrize("family", KINDS.values(), ids="_".join)
def test_no_kind_of_statement_of_the_demo_grid_gives_the_number_of_records_away(family):
    job = one_of_each(FAMILIES[family])
    assert faults(experiments.load(job.experiment).calibrate, job) == []


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids="_".join)
def test_no_statement_of_the_demo_grid_gives_the_number_of_records_away(family):
    job = FAMILIES[family]
    assert faults(experiments.load(job.experiment).calibrate, job) == []


def stating(sampler: Callable[[int], Any], steps: Callable[[int], int], relation: Neighbouring, public: bool = True):
    """An experiment that states one run of its training records."""

    def calibrate(job: TrainingJob, described: Mapping[str, Any]) -> pd.DataFrame:
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
    job = TrainingJob("none", "none", "none", {"dataset": dataset}, ({},), (0,))
    seen = set(faults(experiment, job))
    assert found <= seen and bool(found) == bool(seen), json.dumps(sorted(seen))
