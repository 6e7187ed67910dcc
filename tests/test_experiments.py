"""The contract of an experiment, and statements that do not give the number of records away."""

import json
import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from dpfl import attacks, catalog, experiments
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import FixedBatches, Poisson
from dpfl.accounting.statements import Gaussian, PrivacyStatement
from dpfl.catalog import dataset_entries
from dpfl.errors import InputError
from dpfl.grid import configuration, expansion
from dpfl.grid.configuration import resolve
from dpfl.grid.expansion import expand
from dpfl.grid.training_job import TrainingJob, on_cpu


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
    about = {"paper": job.paper, "job": job.name, "experiment": job.experiment, "dataset": job.dataset}
    row = {**about, "status": "finished", "accuracy_pct": 90.0, "dimension": 8, "noise_multiplier": 1.0}
    runs = [{**cell, "seed": seed} for cell in job.cells for seed in job.seeds]
    return pd.DataFrame([{**run, **row, **STATEMENT.columns(), **changes} for run in runs[:count]])


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
        ({"accuracy_pct": math.nan}, "the accuracy_pct nan in row 1: a finished run's metric"),
        ({"accuracy_pct": "high"}, "the accuracy_pct high in row 1"),
        ({"noise_multiplier": math.nan}, "the noise_multiplier nan in row 1, should be a number of 0 or more"),
        ({"noise_multiplier": -1.0}, "the noise_multiplier -1.0 in row 1, should be a number of 0 or more"),
        ({"privacy_mechanism": None}, "no privacy_mechanism in row 1"),
    ],
)
def test_runs_that_say_nothing_are_refused(job, changes, said):
    with pytest.raises(InputError, match=said):
        experiments.require_trained(job, table_of(job, 50, **changes))


@pytest.mark.parametrize("name", ["accuracy_pct", "noise_multiplier", "privacy_mechanism"])
def test_the_first_row_that_is_wrong_is_named(job, name):
    table = table_of(job, 50)
    table.loc[[6, 30], name] = None
    with pytest.raises(InputError, match=rf"{name} .*\bin row 7\b|{name} in row 7\b"):
        experiments.require_trained(job, table)


@pytest.mark.parametrize(("name", "value"), [("seed", 3), ("job", "other"), ("paper", "x"), ("users", 7)])
def test_a_metric_that_takes_the_name_of_what_says_whose_run_it_is_is_refused(job, name, value):
    assert name in table_of(job, 50)
    with pytest.raises(InputError, match=rf"{name} {value} in row 1, should be"):
        experiments.require_trained(job, table_of(job, 50).assign(**{name: value}))


def test_rows_in_another_order_are_refused(job):
    with pytest.raises(InputError, match=r"in row 1, should be .*: a row for each cell and seed, seeds within cells"):
        experiments.require_trained(job, table_of(job, 50).iloc[::-1])


def test_runs_without_a_metric_are_refused(job):
    table = table_of(job, 50).drop(columns=["accuracy_pct", "dimension"])
    for without in (table, table[[*table.columns.drop("status"), "status"]]):
        with pytest.raises(InputError, match="no metric: it stands in the column after status"):
            experiments.require_trained(job, without)


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
        with pytest.raises(InputError, match="trusted_aggregator reads no setting stopps; stops is a setting"):
            experiments.require_known(changed)


@pytest.mark.parametrize("name", ["paper", "job", "experiment", "seed", "status", "stand_in_for", "data_note"])
def test_a_setting_with_the_name_of_a_column_of_every_run_is_refused(job, name):
    """Before it is asked whether the experiment has such a field: the run table would hold the one or the other."""
    experiments.load(job.experiment)
    for changed in (
        replace(job, settings={**job.settings, name: 3}),
        replace(job, cells=({**job.cells[0], name: 3},)),
    ):
        with pytest.raises(InputError, match=f"the setting {name} has the name of a column that says whose run a row"):
            experiments.require_known(changed)


@pytest.mark.parametrize("name", ["dataset", "study"])
def test_what_a_whole_job_shares_is_no_axis_of_its_cells(job, name):
    experiments.load(job.experiment)
    with pytest.raises(InputError, match=f"cells vary {name}, which a whole job shares: move it to sweep"):
        experiments.require_known(replace(job, cells=({**job.cells[0], name: "mnist"},)))


def test_an_experiment_that_there_is_not_is_refused_by_the_file_that_names_it(job):
    with pytest.raises(InputError, match=r"^asoodeh2021/grid.yaml: experiment 'trusted' is unknown, should be one of"):
        experiments.require_known(replace(job, experiment="trusted"))


def test_a_setting_of_the_paper_that_nothing_reads_is_refused(job, monkeypatch):
    """trusted_aggregator does not read the first two either: another experiment of the paper and a figure do."""
    paper = catalog.load(job.paper)
    experiments.load(job.experiment)
    for name, said in (
        ("rounds", None),
        ("epsilon_axis", None),
        ("stopps", "reads settings.stopps; stops is a setting"),
    ):
        settings = {**paper.settings, name: 3}
        monkeypatch.setattr(catalog, "load", lambda _, settings=settings: replace(paper, settings=settings))
        changed = replace(job, settings={**job.settings, name: 3})
        with pytest.raises(InputError, match=f"asoodeh2021/paper.yaml: .* {said}") if said else nullcontext():
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


@pytest.fixture
def added(tmp_path, monkeypatch):
    """A function that adds a module, by its name and text, to the attacks."""
    monkeypatch.setattr(attacks, "__path__", [*attacks.__path__, str(tmp_path)])
    experiments.homes.cache_clear()
    yield lambda name, text: (tmp_path / f"{name}.py").write_text(text)
    experiments.homes.cache_clear()


CONTRACT = "def calibrate():\n    ...\n\n\ndef train():\n    ...\n"


def test_two_experiments_of_one_name_are_refused(added):
    added("pnsgd", CONTRACT)
    with pytest.raises(InputError, match=r"dpfl\.convex\.pnsgd and dpfl\.attacks\.pnsgd have one name"):
        experiments.homes()


@pytest.mark.parametrize(
    "text", [f'"""An example:\n{CONTRACT}"""\n', "def calibrate(): ...\nclass A:\n    def train(): ...\n"]
)
def test_functions_in_texts_and_classes_make_no_experiment(added, text):
    added("other", text)
    assert "other" not in experiments.homes()


def test_a_file_that_is_not_python_is_named_in_one_line(added):
    added("other", "def calibrate(:\n")
    with pytest.raises(InputError, match=r"^experiment: [^\n]*other\.py is not Python: [^\n]*line 1[^\n]*$"):
        experiments.homes()


# What an experiment states for add_or_remove must be the same for n and n - 1 records; else it says n is public.


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
