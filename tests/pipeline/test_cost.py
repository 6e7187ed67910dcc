"""The cost model: counts of work and models against the engine's, memory, cores, and the benchmarks that it reads."""

import dataclasses
import itertools
import math
import re
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.engine.sgd import StackedHyperparameters
from dpfl.errors import InputError
from dpfl.grid import configuration, expansion
from dpfl.grid.training_job import TrainingJob
from dpfl.images.fedavg import FederatedAveraging, Schedule
from dpfl.pipeline import cost
from dpfl.pipeline.cost import read_benchmark

MACHINE = {"device": "cpu", "threads": 1, "memory_gb": 1}


def training_job(
    dataset="mnist", model="scatter_linear", clients=10, cells=((math.inf, 1, 20),), seeds=(0,), **machine
):
    given = {"dataset": dataset, "model": model, "clients": clients, "client_share": 0.1, "batch_size": 64}
    rows = tuple({"epsilon": e, "local_epochs": epochs, "rounds": rounds} for e, epochs, rounds in cells)
    return TrainingJob("bhaskar2025", "fedavg_images", "x_seed0", given, rows, tuple(seeds), MACHINE | machine)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"clients": None, "cleints": 5}, "reads no setting cleints; clients is a setting"),
        ({"clients": "five"}, "its settings cannot be planned (ValueError("),
    ],
)
def test_a_slip_in_a_setting_is_one_line_of_the_plan(change, line):
    job = training_job()
    changed = {name: value for name, value in {**job.settings, **change}.items() if value is not None}
    with pytest.raises(InputError, match=f"^bhaskar2025/x_seed0: .*{re.escape(line)}"):
        cost.estimate(dataclasses.replace(job, settings=changed))


@pytest.mark.parametrize("scale", ["demo", "quick", "paper"])
def test_every_job_of_every_scale_has_a_cost(scale):
    for each in expansion.expand(configuration.resolve({"scale": scale})):
        found = cost.estimate(each)
        assert found.seconds > 0 and found.memory_mb > 100 and found.gpus == 0
        assert found.limit_minutes(1) * 60 >= 3 * found.seconds and found.limit_mb(1) > found.memory_mb
        assert found.limit_minutes(2) > found.limit_minutes(1) and found.limit_mb(2) > found.limit_mb(1)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([1, 2, 4, 5, 10, 20]), min_size=1, max_size=4, unique=True), st.integers(0, 2))
def test_the_models_counted_are_those_that_the_engine_trains(splits, private):
    budgets = [math.inf, 2.93, 1.2][: private + 1]
    cells = [
        {"epsilon": e, "local_epochs": epochs, "rounds": 20 // epochs}
        for e, epochs in itertools.product(budgets, splits)
    ]
    schedule = Schedule(tuple((cell["local_epochs"],) * cell["rounds"] for cell in cells))
    clips = torch.tensor([math.inf if math.isinf(cell["epsilon"]) else 1.0 for cell in cells])
    noise = torch.tensor([[0.0 if math.isinf(cell["epsilon"]) else 1 / cell["epsilon"] for cell in cells]])
    engine = SimpleNamespace(variants=StackedHyperparameters(clips, noise), schedule=schedule)
    counted = cost.trained_models(tuple(cells))
    assert counted == [len(FederatedAveraging.alike(engine, epoch)) for epoch in range(1, 21)]


def test_work_grows_with_clients_seeds_and_cells_as_it_should():
    one = cost.work_of(training_job())
    records = 20 * 10 * 6000 + 20 * 10_000 / 3
    assert one.records == pytest.approx(records) and one.steps == 20 * 10 * math.ceil(6000 / 64)
    assert cost.work_of(training_job(seeds=(0, 1, 2))).records == pytest.approx(3 * records)
    assert cost.work_of(training_job(clients=20)).steps == 2 * one.steps
    central = cost.work_of(training_job(clients=1))  # holds all records, whatever the clients' share
    assert central.records == pytest.approx(20 * 60_000 + 20 * 10_000 / 3) and central.steps == 20 * 938
    both = cost.work_of(training_job(cells=((math.inf, 1, 20), (2.93, 1, 20))))
    assert both.steps == one.steps and both.records == pytest.approx(2 * records)


def test_only_training_on_a_gpu_asks_for_one_and_it_is_never_short():
    other = next(
        each
        for each in expansion.expand(configuration.resolve({"scale": "demo"}))
        if each.experiment != "fedavg_images"
    )
    other = dataclasses.replace(other, resources=MACHINE | {"device": "cuda"})
    assert cost.estimate(other).gpus == 0
    on_gpu = cost.estimate(training_job("digits", device="cuda"))
    assert on_gpu.gpus == 1 and not on_gpu.is_short and not on_gpu.known
    assert cost.estimate(training_job("digits")).is_short


def test_a_gpu_takes_what_was_measured_on_it_and_a_step_of_neighbours_at_once():
    job = training_job("mnist", device="cuda")
    work = cost.work_of(job)
    assert work.steps == 20 * math.ceil(6000 / 64) and work.records == cost.work_of(training_job("mnist")).records
    uneven = dataclasses.replace(job, settings={**job.settings, "clients": 3, "client_share": [0.1, 0.1, 0.2]})
    assert cost.work_of(uneven).steps == 20 * (math.ceil(6000 / 64) + math.ceil(12000 / 64))
    unit = cost.UnitCost("", 1.0, 2.0, 1e-6, 0.0, 0, 0.0)
    units = cost.table() | {cost.on_gpu(cost.cost_key(job)): unit}
    found = cost.estimate(job, units)
    assert found.known and found.gpus == 1 and found.seconds == pytest.approx(unit.seconds(work))
    assert cost.estimate(training_job("mnist"), units) == cost.estimate(training_job("mnist"))


def test_a_kind_nobody_measured_is_taken_for_the_dearest_of_its_algorithm():
    unit = cost.UnitCost("fedavg_images/other/grey", 1.0, 0.0, 1.0, 900.0, 0, 0.0)
    found = cost.estimate(training_job(), {"fedavg_images/other/grey": unit})
    assert not found.known and found.seconds == pytest.approx(1 + cost.work_of(training_job()).records)
    assert cost.estimate(training_job(), {"fedavg_images/other/grey": unit}, 4).cores == 4
    colour = cost.estimate(training_job("cifar10"), {"fedavg_images/other/grey": unit})
    assert colour.memory_mb > 4 * 60_000 * 243 * 64 / 2**20 + 1024  # CIFAR's features and the budget for gradients
    nobody = cost.estimate(training_job(), {})
    assert not nobody.known and nobody.seconds == cost.UNKNOWN_SECONDS


def test_memory_covers_inputs_models_and_the_budget():
    inputs = 4 * 60_000 * 243 * 64 / 2**20  # CIFAR's features alone
    automatic, small, large = (cost.estimate(training_job("cifar10", memory_gb=gb)).memory_mb for gb in (None, 1, 5))
    assert automatic == small
    assert small > inputs + 1024 and large - small == pytest.approx(4 * 1024)


@settings(max_examples=40, deadline=None)
@given(
    clients=st.integers(1, 120),
    most=st.integers(1, 32),
    memory_mb=st.sampled_from([6e3, 16e3, 64e3, math.inf]),
    epochs=st.integers(1, 20),
)
def test_a_long_job_gets_the_fewest_cores_that_serve_it(clients, most, memory_mb, epochs):
    job = training_job("cifar10", "cnn_relu", clients, ((7.53, epochs, 4),))
    got = cost.cores_of(job, most, memory_mb)
    costs = [cost.estimate(job, cores=cores) for cores in range(1, min(most, clients) + 1)]
    assert 1 <= got <= len(costs)
    fit = [each for each in costs if each.cores == 1 or each.limit_mb(3) <= memory_mb]
    mine = costs[got - 1]
    assert mine in fit
    assert all(each.seconds > max(mine.seconds, cost.JOB_SECONDS) * (1 - 1e-9) for each in fit if each.cores < got)
    assert mine.seconds <= max(cost.JOB_SECONDS, min(each.seconds for each in fit))
    assert mine.seconds * got >= costs[0].seconds * (1 - 1e-9), "cores do more than their part"


def test_the_busiest_process_decides_and_evaluation_is_not_divided():
    trained = cost.work_of(training_job(clients=10)).records - cost.PREDICTION * 20 * 10000
    for cores, busiest in ((1, 10), (3, 4), (10, 1), (16, 1)):
        work = cost.work_of(training_job(clients=10), cores)
        assert work.records == pytest.approx(trained * busiest / 10 + cost.PREDICTION * 20 * 10000)
        assert work.steps == pytest.approx(cost.work_of(training_job(clients=10)).steps * busiest / 10)


@pytest.mark.parametrize("machine", [{"device": "cuda"}, {"threads": 2}])
def test_a_gpu_and_several_threads_are_not_divided(machine):
    assert cost.cores_of(training_job("cifar10", "cnn_relu", 100, ((7.53, 20, 20),), **machine), 16) == 1
    assert cost.cores_of(training_job("cifar10", "cnn_relu", 100, ((7.53, 20, 20),)), 16) > 8


NAN = math.nan


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("s\tcpu_time\tmax_rss\n30.0\t4.0\t200.5\n", (30.0, 4.0, 200.5)),
        ("s\tcpu_time\tmax_rss\n1.0\t1.0\t1.0\n300.0\t140.0\t200.5\n", (300.0, 140.0, 200.5)),  # the last try
        ("s\tcpu_time\tmax_rss\n", (NAN, NAN, NAN)),
        ("s\tcpu_time\tmax_rss\n1\tNA\t-\n", (1.0, NAN, NAN)),
        ("s\n1.2.3\n", (NAN, NAN, NAN)),
        ("", (NAN, NAN, NAN)),
    ],
)
def test_what_was_measured_is_read_and_the_rest_is_missing(tmp_path, text, found):
    (tmp_path / "x.tsv").write_text(text)
    assert read_benchmark(tmp_path / "x.tsv") == pytest.approx(found, nan_ok=True)
    assert all(map(math.isnan, read_benchmark(tmp_path / "absent.tsv")))


def other_job(experiment, settings, cells, seeds=(0,), dataset="mnist"):
    return TrainingJob("p", experiment, "x_seed0", {"dataset": dataset, **settings}, tuple(cells), seeds, MACHINE)


def test_work_of_the_other_experiments_by_hand():
    cells = [{"batch_factor": 1}, {"batch_factor": 4}, {"batch_factor": 4, "scaling": "rounds"}]
    asynchronous = cost.work_of(other_job("async_dpsgd", {"epochs": 5, "batch_size": 100}, cells, (0, 1)))
    # 60,000 records: 5 passes in batches of 100, 5 in batches of 400, 20 in batches of 400; two seeds
    assert asynchronous == cost.WorkCount(2 * (3000 + 750 + 3000), 2 * 30 * 60_000)

    laws = [{"law": law, "order": "given", "release": "last", "n": n} for law in ("a", "b") for n in (1, 2, 3)]
    assert cost.work_of(other_job("pnsgd", {"users": 50}, laws, (0, 1))) == cost.WorkCount(100, 50 * 6 * 2)
    shared = {"users": 50, "order": "given", "release": "last"}  # settings may stand in the job or in its cells
    apart = [{name: cell[name] for name in ("law", "n")} for cell in laws]
    assert cost.work_of(other_job("pnsgd", shared, apart, (0, 1))) == cost.WorkCount(100, 50 * 6 * 2)

    rounds = [{"draw": "new", "release": "last", "users": 100}, {"draw": "new", "release": "all", "users": 400}]
    rounds += [{"draw": "fixed", "release": "mean", "users": 100, "passes": 3}, {**rounds[0], "release": "mean"}]
    rounds += [{"draw": "fixed", "release": "mean", "users": 400}]
    # new draws of the last model and of all models go together, for the longest; fixed ones by their users
    aggregated = cost.work_of(other_job("trusted_aggregator", {"batch_size": 20}, rounds, (0, 1, 2)))
    assert aggregated == cost.WorkCount(20 + 15 + 5 + 20, 3 * (100 + 400 + 300 + 100 + 400))

    for experiment in ("ldp_regression", "ldp_classification"):
        grid = {"step_exponents": {"a": [-3, 1, 4], "b": [-2, 0, 6]}, "clip_norms": [1, 2, 3]}
        silos = {**grid, "rounds": 25, "repetitions": 2, "participating": 12}
        local = cost.work_of(other_job(experiment, silos, [{"algorithm": name} for name in "aab"], (0, 1)))
        assert local == cost.WorkCount(100 * 2, 100 * 12 * (12 + 12 + 18))
    assert cost.work_of(other_job("own", {}, [{}, {}], (0, 1, 2))) == cost.WorkCount(0.0, 6)


def test_times_of_a_unit_and_limits_of_a_job_by_hand():
    unit = cost.UnitCost("x", 10.0, 0.5, 0.001, 900.0, 0, 0.0)
    assert unit.seconds(cost.WorkCount(100, 4000)) == 10 + 50 + 4
    assert unit.scaled(3.0).seconds(cost.WorkCount(100, 4000)) == pytest.approx(3 * 64)
    job = cost.Cost("x", 1000.0, 800.0, 0, True)
    assert [job.limit_minutes(attempt) for attempt in (1, 2, 3)] == [50, 100, 200]
    assert [job.limit_mb(attempt) for attempt in (1, 2, 3)] == [1000, 1500, 2000]
    brief = dataclasses.replace(job, seconds=1.0)
    assert [brief.limit_minutes(attempt) for attempt in (1, 2, 3)] == [10, 20, 40]
    assert [dataclasses.replace(job, seconds=s).is_short for s in (299.9, 300.0)] == [True, False]
    assert not dataclasses.replace(brief, known=False).is_short and not dataclasses.replace(brief, gpus=1).is_short
    assert [dataclasses.replace(job, seconds=s).needs_node for s in (1500.0, 1500.1)] == [False, True]
    assert cost.beside(73.0, 1) == 73.0 and cost.beside(73.0, 2) == cost.beside(73.0, 9) == pytest.approx(100.0)


def test_memory_of_an_image_job_by_hand():
    unit = cost.UnitCost("fedavg_images/cnn_relu/grey", 1.0, 0.0, 0.0, 0.0, 2**18, 0.0)
    cells = ((2.0, 1, 20), (math.inf, 1, 20))
    job = training_job(model="cnn_relu", clients=5, cells=cells, memory_gb=2)
    inputs, models = 4 * 70_000 * 28 * 28 / 2**20, 3 * 5 * 2  # weights, momentum and gradients of 1 MB each
    found = {cores: cost.estimate(job, {unit.kind: unit}, cores).memory_mb for cores in (1, 4)}
    assert found[1] == pytest.approx(700 + inputs + models + 2048)
    assert found[4] - found[1] == pytest.approx(3 * (200 + 2048))
    on_gpu = training_job(model="cnn_relu", clients=5, cells=cells, memory_gb=2, device="cuda")
    assert cost.estimate(on_gpu, {unit.kind: unit}).memory_mb == pytest.approx(700 + inputs + models)


def test_a_gpu_that_was_not_measured_is_guessed_from_the_floating_point_operations():
    unit = cost.UnitCost("fedavg_images/cnn_relu/grey", 5.0, 100.0, 100.0, 0.0, 1, 4e9)
    job = training_job(model="cnn_relu", device="cuda")
    work = cost.work_of(job)
    found = cost.estimate(job, {unit.kind: unit})
    assert not found.known and found.seconds == pytest.approx(5 + work.steps * 0.01 + work.records * 4e9 / 1.3e13)
