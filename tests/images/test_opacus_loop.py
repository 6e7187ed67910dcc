"""The engine against benchmarks/opacus_loop.py: Opacus and torch alone, written from the facts on the authors' code."""

import importlib
import io
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import ttest_ind
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dpfl.data.arrays import build_arrays
from dpfl.data.loading import load_description, load_images
from dpfl.engine.batches import BatchSampler, Sampling
from dpfl.engine.networks import ImageModel, build
from dpfl.engine.per_record_gradients import StackedGradients, cross_entropy, gradient_rule
from dpfl.engine.sgd import SGD, StackedHyperparameters
from dpfl.features.scattering import build_features
from dpfl.files import checked_content
from dpfl.grid.training_job import Folders, TrainingJob
from dpfl.images import fedavg_images
from dpfl.images.fedavg_images import FedavgSettings, inputs_of

pytestmark = pytest.mark.filterwarnings("ignore")
MODELS = ["scatter_linear", "scatter_cnn", "cnn_tanh", "cnn_relu"]
SHAPES = {"digits": (1, 28, 28), "digits_rgb": (3, 32, 32)}
PARAMETERS = {
    ("digits", "scatter_linear"): 7_938 + 39_700,
    ("digits", "scatter_cnn"): 162 + 20_778,
    ("digits", "cnn_tanh"): 10_650,
    ("digits", "cnn_relu"): 10_650,
    ("digits_rgb", "scatter_linear"): 31_104 + 155_530,
    ("digits_rgb", "scatter_cnn"): 486 + 179_530,
    ("digits_rgb", "cnn_tanh"): 605_226,
    ("digits_rgb", "cnn_relu"): 605_226,
}
"""Group norm and the rest. The group norms and 10,650 are facts of the authors' code; the others are counted by hand
from its layers."""
SETTINGS = {
    "client_share": 0.1, "batch_size": 64, "delta": 1e-5, "clip_norm": 1.0, "learning_rate": 0.3, "momentum": 0.5,
    "clients": 10,
}  # fmt: skip
MACHINE = {"device": "cpu", "threads": 1, "memory_gb": 1.0}
STEPS = 3
AMPLIFIED = 5
"""How much farther apart a few steps may lie than one, since the next gradients are taken at other weights. Opacus with
a bound of 0.99955 is 0.00045 from Opacus with 1 after one step of `scatter_cnn` on colours, and 0.0025 after three.
Plain steps of `cnn_relu` on colours are 4e-6 apart after one and 3e-5 after three, on an AMD processor without AVX-512.
"""
ROUNDING = 1e-5
"""Distance, relative to how far the weights moved, that float32 explains in a few steps."""
MARGINS = {"scatter_linear": 0, "cnn_relu": 3e-5, "cnn_tanh": 3e-5, "scatter_cnn": 6e-4}
"""By how much a clipped record may be shorter here: what rounding could add is divided out (clipping_precision.md)."""
SEEDS = range(8)
MEASURES = ("accuracy_pct", "training_loss", "update_norm")
LEVEL = 0.01 / (len(MODELS) * len(MEASURES))
"""Least p of one comparison: where all laws are the same, one of them is below it with probability 1 % at most."""


@pytest.fixture(scope="module")
def loop(repository):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(repository / "benchmarks")
        yield importlib.import_module("opacus_loop")


@pytest.fixture(scope="module")
def root(made_once):
    """A function (data set) that returns a data folder with its arrays and features."""

    def of(dataset):
        folders = Folders.of(Path("data"), dataset)

        def make(folder):
            build_arrays(dataset, folder / folders.arrays)
            build_features(folder / folders.arrays, folder / folders.features, lambda done, total: None)

        return made_once(f"opacus_loop_{dataset}", make) / "data"

    return of


@pytest.fixture(scope="module")
def both(loop, root, tmp_path_factory):
    """Training and test records of a data set, as each side reads them: (the loop's, the pipeline's)."""
    found, cache = {}, tmp_path_factory.mktemp("kymatio")

    def of(dataset, model):
        key = dataset, model if model.startswith("scatter") else "pixels"
        if key not in found:
            folders = Folders.of(root(dataset), dataset)
            settings = FedavgSettings.of({**SETTINGS, "model": model}, MACHINE)
            ours = [inputs_of(settings, folders, load_images(folders.arrays), part) for part in ("train", "test")]
            found[key] = loop.load(loop.Cell(dataset, model, 8.0, 1, 1), root(dataset), cache), ours
        return found[key]

    return of


def vector(module):
    return nn.utils.parameters_to_vector(module.parameters()).detach().clone()


def of_vector(loop, model, dataset, weights):
    """The loop's module at those weights; parameters have the same order on both sides."""
    module = loop.network(model, SHAPES[dataset])
    nn.utils.vector_to_parameters(weights.clone(), module.parameters())
    return module


def same_move(one, other, start, rounding=ROUNDING):
    """Whether two models moved alike; the weights themselves are stored to a relative `eps`."""
    stored = torch.finfo(torch.float32).eps * other.norm()
    return bool((one - other).norm() < rounding * (other - start).norm() + stored)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("dataset", SHAPES)
def test_models_have_the_shapes_of_the_code(loop, dataset, model):
    theirs = loop.network(model, SHAPES[dataset])
    ours = build(ImageModel(model), SHAPES[dataset], seed=0)
    assert [tuple(each.shape) for each in ours.parameters()] == [tuple(each.shape) for each in theirs.parameters()]
    assert len(vector(theirs)) == len(vector(ours)) == PARAMETERS[dataset, model]


def _logits_and_steps(loop, both, dataset, model, private, steps=STEPS):
    """Take some steps on each side, from the same weights on the same batches, without noise.

    Return each side's logits of the test set before, and weights after; and the weights before. The scales are not left
    at 1 and the shifts not at 0, where an error in them would not be seen.
    """
    (train, test), (own_train, own_test) = both(dataset, model)
    start = vector(build(ImageModel(model), SHAPES[dataset], seed=5))
    start = start + 0.02 * torch.randn(start.shape, generator=torch.Generator().manual_seed(8))
    module, records = of_vector(loop, model, dataset, start), len(train) // 10
    own = TensorDataset(*(part[:records] for part in train.tensors))
    with torch.no_grad():
        before = module(test.tensors[0])
    loader = DataLoader(own, batch_size=loop.BATCH_SIZE, generator=torch.Generator().manual_seed(3))
    cell, draws = loop.Cell(dataset, model, 8.0 if private else math.inf, 1, 1), loop.Draws(0)
    trained, optimiser = module, torch.optim.SGD(module.parameters(), lr=cell.learning_rate, momentum=cell.momentum)
    if private:
        trained, optimiser, loader = loop.made_private(cell, optimiser, module, loader, 0.0, draws)
    batches = list(loader.batch_sampler)[:steps]
    for rows in batches:
        loop.step(trained, optimiser, *(part[rows] for part in own.tensors))

    ours = build(ImageModel(model), SHAPES[dataset], seed=5)
    nn.utils.vector_to_parameters(start.clone(), ours.parameters())
    with torch.no_grad():
        logits = ours(own_test[0])
    sampler = BatchSampler(Sampling.POISSON if private else Sampling.SHUFFLED, 64, records, fixed_order=not private)
    if private:
        assert sampler.divisor == optimiser.expected_batch_size
        assert sampler.sample_rate == loader.sample_rate
    else:
        assert [each.tolist() for each in sampler.epoch(1, seed=0, client=0)][:steps] == batches
    rule = gradient_rule(ours, cross_entropy, own_train[0][0])
    variants = StackedHyperparameters(torch.tensor([1.0 if private else math.inf]), torch.zeros(1))
    sgd = SGD(StackedGradients(rule, own_train[0][0], 2**30), variants, cell.learning_rate, cell.momentum)
    weights = start.clone()[None, None]
    sgd.epoch(
        weights, torch.zeros_like(weights), own_train, [[np.array(rows) for rows in batches]], [sampler.divisor], None
    )
    return (logits, weights[0, 0]), (before, vector(module)), start


def _agree(found, margin):
    (ours, after), (theirs, their_after), start = found
    assert (ours - theirs).abs().max() < ROUNDING * theirs.abs().max()
    assert same_move(after, their_after, start, ROUNDING + margin)


@pytest.mark.parametrize("private", [True, False], ids=["clipped", "plain"])
@pytest.mark.parametrize("model", ["scatter_linear", "cnn_relu"])
def test_steps_are_opacus_own(loop, both, model, private):
    _agree(_logits_and_steps(loop, both, "digits", model, private), MARGINS[model] if private else 0)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, STEPS])
@pytest.mark.parametrize("private", [True, False], ids=["clipped", "plain"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("dataset", SHAPES)
def test_steps_of_every_model_are_opacus_own(loop, both, dataset, model, private, steps):
    amplified = AMPLIFIED if steps > 1 else 1
    margin = MARGINS[model] * amplified if private else ROUNDING * (amplified - 1)
    _agree(_logits_and_steps(loop, both, dataset, model, private, steps), margin)


def test_the_noise_multiplier_is_that_of_the_privacy_engine(loop):
    """By make_private_with_epsilon, and by the pipeline's calibration: 20 epochs of a client with a tenth of MNIST."""
    module, own = nn.Linear(1, 1), TensorDataset(torch.zeros(6_000, 1))
    loader = DataLoader(own, batch_size=loop.BATCH_SIZE)
    given = torch.optim.SGD(module.parameters(), lr=0.1), module, loader, None, loop.Draws(0)
    theirs = loop.made_private(loop.Cell("mnist", "cnn_relu", 2.93, 4, 5), *given)[1].noise_multiplier
    cell = {"epsilon": 2.93, "rounds": 5, "local_epochs": 4}
    job = TrainingJob(
        "bhaskar2025", "fedavg_images", "noise", {**SETTINGS, "model": "cnn_relu"}, (cell,), (0,), MACHINE
    )
    row = fedavg_images.calibrate(job, {"records": {"train": 60_000}}).iloc[0]
    assert row["privacy_records"] == 6_000
    # 0.9595 is what the authors' version of Opacus gives, too
    assert round(theirs, 4) == round(row["noise_multiplier"], 4) == 0.9595


def pipeline_run(root, dataset, model, cell, seed, scratch):
    """Return the weights that the pipeline's own training ends with, its accuracy by round and noise multiplier."""
    folders, settings = Folders.of(root(dataset), dataset), {**SETTINGS, "model": model, "dataset": dataset}
    job = TrainingJob("bhaskar2025", "fedavg_images", "one", settings, (cell,), (seed,), MACHINE)
    checkpoint, kept = scratch / f"{model}_{seed}.ckpt", []

    def keep(done, total):
        if done == total:
            payload = checked_content(checkpoint.read_bytes()).partition(b"\n")[2]
            kept.append(torch.load(io.BytesIO(payload), weights_only=True)["running"]["weights"][0, 0])

    calibration = fedavg_images.calibrate(job, load_description(folders.arrays))
    row = fedavg_images.train(job, folders, calibration, checkpoint, keep).iloc[0]
    return kept[0], json.loads(row["accuracy_pct_by_round"]), row["noise_multiplier"]


def start_and_shares(root, dataset, model, seed):
    """Return the initial weights and the shares that the pipeline draws."""
    settings = FedavgSettings.of({**SETTINGS, "model": model}, MACHINE)
    held = settings.shares(load_description(Folders.of(root(dataset), dataset).arrays)["records"]["train"], seed)
    return vector(build(ImageModel(model), SHAPES[dataset], seed)), [own.tolist() for own in held]


def rounded(weights):
    """Yield weights as they are, then four times as another rounding of float32 could have left them, and eight times
    ten times as far away."""
    yield weights
    draw = torch.Generator().manual_seed(0)
    for scale in (6e-8,) * 4 + (6e-7,) * 8:
        yield weights * (1 + scale * torch.randn(weights.shape, generator=draw))


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_without_privacy_a_federation_ends_at_the_same_weights(loop, root, both, tmp_path, model):
    """Two rounds of two epochs on the pipeline's shares: averages, the fixed order, momentum that starts anew.

    Where rounding decides a ReLU or a pooling, a CNN ends apart, but not in every seed. The loop does so itself: with
    seed 2, two of four starts that are 7e-8 away lead it to another end. So one of the starts has to agree. On an AMD
    processor without AVX-512 none of the first five does with scatter_cnn and seed 2; three of the others do.
    """
    cell, found = {"epsilon": math.inf, "rounds": 2, "local_epochs": 2}, []
    own, (data, _) = loop.Cell("digits", model, math.inf, 2, 2), both("digits", model)
    for seed in range(3):
        ours, accuracies, _ = pipeline_run(root, "digits", model, cell, seed, tmp_path)
        start, held = start_and_shares(root, "digits", model, seed)
        for begin in rounded(start):
            given = {"weights": of_vector(loop, model, "digits", begin).state_dict(), "held": held}
            theirs, by_round, _ = loop.federated(own, SHAPES["digits"], *data, **given, draws=loop.Draws(seed))
            end = torch.cat([each.flatten() for each in theirs.values()])
            if (ours - end).norm() < 0.01 * (end - start).norm():
                break
        assert (ours - end).norm() < 0.01 * (end - start).norm()
        assert by_round == pytest.approx(accuracies, abs=1)
        found.append(same_move(ours, end, start))
    assert any(found)


def measured(loop, both, model, end, start):
    """Accuracy and mean training loss of the loop's module at the weights `end`, and the distance from the start."""
    (train, test), _ = both("digits", model)
    module = of_vector(loop, model, "digits", end)
    with torch.no_grad():
        loss = nn.functional.cross_entropy(module(train.tensors[0]), train.tensors[1]).item()
    return dict(zip(MEASURES, (loop.accuracy_pct(module, test), loss, (end - start).norm().item()), strict=True))


@pytest.fixture(scope="module")
def laws(loop, root, both, tmp_path_factory):
    """A function (model, louder) that returns what the runs of each side measure, each on draws of its own."""
    scratch, cell, found = tmp_path_factory.mktemp("law"), {"epsilon": 8.0, "rounds": 4, "local_epochs": 1}, {}

    def ours(model):
        for seed in SEEDS:
            end, _, noise = pipeline_run(root, "digits", model, cell, seed, scratch)
            yield measured(loop, both, model, end, start_and_shares(root, "digits", model, seed)[0]), noise

    def theirs(model, louder, noise):
        for seed in SEEDS:
            own, draws = loop.Cell("digits", model, 8.0, 1, 4, seed=seed), loop.Draws(1000 + seed)
            train, test = both("digits", model)[0]
            held, weights = loop.shares(len(train), 10, draws.shares), loop.initial(own, SHAPES["digits"], draws)
            start = torch.cat([each.flatten().clone() for each in weights.values()])
            given = {"weights": weights, "held": held, "draws": draws, "noise": noise and louder * noise}
            ended, _, noise_found = loop.federated(own, SHAPES["digits"], train, test, **given)
            noise = noise or noise_found
            end = torch.cat([each.flatten() for each in ended.values()])
            yield measured(loop, both, model, end, start), noise

    def of(model, louder=1.0):
        if model not in found:
            found[model] = list(ours(model))
        runs, noise = zip(*found[model], strict=True)
        others, their_noise = zip(*theirs(model, louder, noise[0] if louder != 1 else None), strict=True)
        assert their_noise[0] == pytest.approx(noise[0], rel=1e-12)
        return {
            name: ttest_ind(*([run[name] for run in side] for side in (runs, others)), equal_var=False).pvalue
            for name in MEASURES
        }

    return of


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_with_privacy_the_law_agrees(laws, model):
    """Fails by chance for one of the four models, three measures each, with probability 1 %; the seeds are fixed, so
    only once for a change of any draw."""
    assert {name: p for name, p in laws(model).items() if p < LEVEL} == {}


@pytest.mark.slow
def test_a_tenth_more_noise_is_found(laws):
    assert min(laws("scatter_linear", louder=1.1).values()) < LEVEL


def _tables(loop, ours, theirs, **changed):
    cells = [loop.Cell("mnist", "cnn_tanh", 2.93, 1, 20, seed=seed) for seed in range(len(theirs))]
    lines = pd.DataFrame([{**vars(cell), "accuracy_pct": value} for cell, value in zip(cells, theirs, strict=True)])
    rows = [{**vars(replace(cells[0], seed=s)), **loop.READING, "accuracy_pct": value} for s, value in enumerate(ours)]
    return lines, pd.DataFrame(rows).assign(**changed)


@pytest.mark.parametrize(
    "ours, theirs, agree",
    [
        ([93.0, 94.0, 95.0], [95.2], True),  # 1.04 of the difference's standard deviations
        ([93.0, 94.0, 95.0], [96.4], False),  # 2.08
        ([93.0, 95.0], [96.0, 98.0], False),  # 2.12
        ([94.0], [94.0], None),
        ([9.8, 9.8], [9.8, 9.8, 9.8], True),  # at chance, as collapsed runs are
        ([9.8, 9.8], [94.0, 94.0, 94.0], False),
    ],
)
def test_two_standard_deviations_decide(loop, ours, theirs, agree):
    lines, rows = _tables(loop, ours, theirs)
    distances = rows.assign(accuracy_pct=math.nan)
    (found,) = loop.compared(lines, pd.concat([distances, rows, rows]))  # a run that two tables hold counts once
    assert found["agree"] is agree
    assert found["pipeline"] == ours


@pytest.mark.parametrize(
    "changed", [{"network": "cited"}, {"epsilon": 1.2}, {"learning_rate": 0.1}, {"precision": "bfloat16"}]
)
def test_runs_with_other_settings_are_not_compared(loop, changed):
    (found,) = loop.compared(*_tables(loop, [93.0, 94.0, 95.0], [10.0], **changed))
    assert found["pipeline"] == []
    assert found["agree"] is None


def test_the_command_trains_and_compares(loop, root, tmp_path, monkeypatch, capsys):
    cell = ["--dataset", "digits", "--model", "cnn_tanh", "--local-epochs", "1", "--rounds", "2", "--clients", "2"]
    lines = []
    for epsilon, seed in (("inf", 0), ("inf", 1), ("8", 0)):
        given = [*cell, "--epsilon", epsilon, "--seed", str(seed), "--cache", str(tmp_path)]
        monkeypatch.setattr("sys.argv", ["opacus_loop.py", "train", "--data", str(root("digits")), *given])
        assert loop.main() == 0
        lines.append(json.loads(capsys.readouterr().out))
    assert [len(line["accuracy_pct_by_round"]) for line in lines] == [2, 2, 2]
    assert [line["noise_multiplier"] > 0 for line in lines] == [False, False, True]
    (tmp_path / "loop.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines[:2]))
    pd.DataFrame(lines[:1]).assign(accuracy_pct=101.0, **loop.READING).to_csv(tmp_path / "runs.csv")
    monkeypatch.setattr(
        "sys.argv", ["opacus_loop.py", "compare", *(str(tmp_path / n) for n in ("loop.jsonl", "runs.csv"))]
    )
    assert loop.main() == 1
    assert json.loads(capsys.readouterr().out)["agree"] is False
