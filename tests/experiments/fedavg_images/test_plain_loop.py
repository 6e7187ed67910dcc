"""The engine against benchmarks/plain_loop.py: Opacus and torch alone, one client, model and batch at a time."""

import importlib
import math
from dataclasses import replace

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
SEEDS = range(8)
MODELS = ["scatter_linear", "scatter_cnn", "cnn_tanh", "cnn_relu"]


@pytest.fixture(scope="module")
def plain(repository):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(repository / "benchmarks")
        yield importlib.import_module("plain_loop")


@pytest.fixture(scope="module")
def tasks(plain, tmp_path_factory):
    folders = plain.stand_in(tmp_path_factory.mktemp("data"))
    settings = {**plain.SETTINGS, "dataset": "digits"}
    return {task.settings["model"]: task for task in plain.tasks(folders, settings, plain.CELL, MODELS)}


@pytest.fixture(scope="module")
def engine(plain, tasks, tmp_path_factory):
    """The engine's runs of a model, each trained once."""
    scratch, runs = tmp_path_factory.mktemp("engine"), {}

    def of(model):
        if model not in runs:
            runs[model] = [plain.engine_run(tasks[model], seed, scratch) for seed in SEEDS]
        return runs[model]

    return of


@pytest.fixture(scope="module")
def sigma(plain, tasks):
    """Opacus's noise multiplier: the records, and so the noise, are the same for all models."""
    return plain.opacus_noise(tasks["cnn_relu"])


@pytest.mark.parametrize("model", MODELS)
def test_on_the_same_draws_the_weights_agree(plain, tasks, engine, sigma, model):
    assert engine(model)[0].noise_multiplier == pytest.approx(sigma, rel=2e-4)
    found = [far for far, _ in plain.same_draws(tasks[model], engine(model)[:3])]
    assert min(found) < plain.SAME_DRAWS
    # pixel CNNs amplify rounding in some seeds (plain.SAME_DRAWS): cnn_tanh's seed 1 ends 2.7e-4 from the engine, and
    # 7.7e-4 from the plain loop itself with initial weights moved by 1e-7
    assert max(found) < (2e-2 if model.startswith("cnn") else plain.SAME_DRAWS)


@pytest.mark.parametrize("model", MODELS)
def test_without_privacy_the_weights_agree(plain, tasks, tmp_path, model):
    """One round: after two, a pixel CNN at this learning rate has made 4e-3 of rounding, after four 0.3."""
    task = replace(tasks[model], cell={"epsilon": math.inf, "rounds": 1, "local_epochs": 1})
    found = plain.same_draws(task, [plain.engine_run(task, seed, tmp_path) for seed in range(3)])
    assert max(far for far, _ in found) < plain.SAME_DRAWS
    assert all(run.update_norm > 0.1 for _, run in found)


@pytest.mark.parametrize("model", MODELS)
def test_on_own_draws_the_law_agrees(plain, tasks, engine, sigma, model):
    """Fails by chance for one of the four models, three measures each, with probability 1 %; the seeds are fixed, so
    only once for a change of any draw. On 60 other seeds a side the law of cnn_relu agreed too."""
    found = plain.own_draws(engine(model), [plain.plain_run(tasks[model], plain.OwnDraws(s), sigma) for s in SEEDS])
    assert {name: measure["p"] for name, measure in found.items() if measure["p"] < plain.LEVEL} == {}


def test_a_little_more_noise_is_no_rounding(plain, tasks, engine):
    for model in ("scatter_linear", "cnn_relu"):
        first = engine(model)[0]
        louder = plain.plain_run(tasks[model], plain.EngineDraws(tasks[model], 0), 1.001 * first.noise_multiplier)
        assert plain.distance(first, louder) > 10 * plain.SAME_DRAWS


def _louder(draws, task):
    noise = draws.noise
    draws.noise = lambda *address: 1.1 * noise(*address)


def _smaller_batches(draws, task):
    batches = draws.batches
    draws.batches = lambda client, epoch, records, steps: batches(client, epoch, records, 2 * steps)[:steps]


# A start twice as wide and one share for all clients move a linear model too little for so few seeds (p 0.6 and 0.01).
# tests/models/test_initial_weights.py and tests/data/test_partition.py hold those laws.
@pytest.mark.parametrize("fault", [_louder, _smaller_batches])
def test_a_wrong_law_is_found(plain, tasks, engine, sigma, fault):
    task, runs = tasks["scatter_linear"], []
    for seed in SEEDS:
        draws = plain.OwnDraws(seed)
        fault(draws, task)
        runs.append(plain.plain_run(task, draws, sigma))
    found = plain.own_draws(engine("scatter_linear"), runs)
    assert min(measure["p"] for measure in found.values()) < plain.LEVEL, found
