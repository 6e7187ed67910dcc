"""One's own data and model: against plain loops and the accountants; slips in one line."""

import copy
import hashlib
import json
import math
import re
import sys
from pathlib import Path

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting.pld import PLDAccountant
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from dpfl.accounting import BallsInBins, FixedBatches, FullBatch, Poisson, ShuffledEpochs, WithReplacement, guarantee
from dpfl.accounting.samplers import Sampling
from dpfl.data.own_arrays import OwnData
from dpfl.engine.per_record_gradients import PerRecordGradients
from dpfl.errors import InputError
from dpfl.images.own_federation import OwnFederationSettings, checked_rule, load_model, statements, train, weakest

SETTINGS = {
    "clients": 3, "partition": "even", "rounds": 3, "local_epochs": 2, "batch_size": 8, "sampler": "shuffled_epochs",
    "epsilon": math.inf, "delta": 1e-5, "clip_norm": math.inf, "neighbouring": "zero_out", "learning_rate": 0.2,
    "momentum": 0.5, "seed": 4, "device": "cpu", "threads": 1, "memory_gb": 0.1,
}  # fmt: skip
FOREIGN = """
import random
import torch
from torch import nn

def Net():
    return nn.Sequential(nn.Linear(5, 6), nn.SiLU(), nn.LayerNorm(6), nn.Linear(6, 3))

class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(5, 5)
        self.outer = nn.Linear(5, 3, bias=False)
        self.scale = nn.Parameter(torch.tensor(1.5))
    def forward(self, x):
        return self.outer(torch.relu(self.inner(torch.sigmoid(self.inner(x))))) * self.scale

class Mixing(nn.Linear):
    def __init__(self):
        super().__init__(5, 3)
    def forward(self, x):
        return super().forward(x - x.mean(0))

class Drawing(Mixing):
    def forward(self, x):
        return nn.Linear.forward(self, nn.functional.dropout(x, 0.5))

class Branching(Mixing):
    def forward(self, x):
        return nn.Linear.forward(self, x) if x.sum() > -1e9 else x

class Failing(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
    def forward(self, x):
        raise KeyError("no\\nway")

def Normed():
    return nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3))
def Dropping():
    return nn.Sequential(nn.Linear(5, 3), nn.Dropout(0.5))
def Buffered():
    module = nn.Linear(5, 3)
    module.register_buffer("scale", torch.ones(1))
    return module
def Frozen():
    module = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3))
    module[0].requires_grad_(False)
    return module
class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.memory = nn.GRU(5, 4, batch_first=True)
        self.scores = nn.Linear(4, 3)
    def forward(self, x):
        return self.scores(self.memory(x[:, None])[0][:, -1])
class Remembering(Recurrent):
    def __init__(self):
        super().__init__()
        self.memory = nn.LSTM(5, 4, batch_first=True)
def Tuple():
    return nn.GRU(5, 3)
class Addressed(Failing):
    def forward(self, x):
        raise ValueError(f"not {object()}")
def Elsewhere():
    module = nn.Linear(5, 3)
    with torch.no_grad():
        module.bias.fill_(random.random())
    return module
def Wide():
    return nn.Linear(7, 3)
def Narrow():
    return nn.Linear(5, 2)
def Flat():
    return nn.Sequential(nn.Linear(5, 1), nn.Flatten(0))
def Lazy():
    return nn.LazyLinear(3)
def Empty():
    return nn.Identity()
def Text():
    return "net"
def Needy(width):
    return nn.Linear(width, 3)
made = nn.Linear(5, 3)
def Global():
    return made
"""


@pytest.fixture
def foreign(tmp_path, monkeypatch):
    """A module of a stranger in the working folder; gone afterwards."""
    (tmp_path / "foreign_nets.py").write_text(FOREIGN)
    (tmp_path / "broken_nets.py").write_text("def Net(:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield "foreign_nets"
    sys.modules.pop("foreign_nets", None)


@pytest.fixture(scope="module")
def data():
    """Three classes of points around their own centres."""
    draw = np.random.default_rng(0)
    y = np.arange(100) % 3
    x = (np.eye(5)[y] * 3 + draw.standard_normal((100, 5))).astype(np.float32)
    return OwnData("points", "0" * 64, 3, x[:75], y[:75], x[75:], y[75:], held_back=False)


def run_of(data, name, *, checkpoint=None, progress=lambda *_: None, **others):
    settings = OwnFederationSettings.of(SETTINGS, others)
    model = load_model(f"foreign_nets:{name}", settings.seed)
    start = copy.deepcopy(model.module)
    shares = settings.shares(data.train_y)
    known = statements(settings, [len(share) for share in shares], lambda *_: None)
    return settings, start, shares, known, train(data, model, settings, shares, known, checkpoint, progress)


def by_hand(data, settings, module, shares, step):
    """Plain federated averaging; `step(model, velocity, x, y, divisor)` moves a client's model. Accuracies, weights."""
    x, y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
    test_x, test_y = torch.from_numpy(data.test_x), torch.from_numpy(data.test_y)
    accuracies, epoch = [], 0
    for _ in range(settings.rounds):
        trained = []
        for client, share in enumerate(shares):
            model = copy.deepcopy(module)
            velocity = {name: torch.zeros_like(value) for name, value in model.named_parameters()}
            for local in range(1, settings.local_epochs + 1):
                sampler = settings.batches(len(share))
                for rows in sampler.epoch(epoch + local, seed=settings.seed, client=client):
                    step(model, velocity, x[share[rows]], y[share[rows]], sampler.divisor)
            trained.append(dict(model.named_parameters()))
        epoch += settings.local_epochs
        with torch.no_grad():
            for name, value in module.named_parameters():
                value.copy_(sum(each[name] for each in trained) / len(trained))
            accuracies.append(100 * (module(test_x).argmax(1) == test_y).double().mean().item())
    return accuracies, dict(module.named_parameters())


def move(model, velocity, gradients, settings):
    with torch.no_grad():
        for name, value in model.named_parameters():
            velocity[name].mul_(settings.momentum).add_(gradients[name])
            value.sub_(settings.learning_rate * velocity[name])


@pytest.mark.parametrize("name", ["Net", "Tied"])
@pytest.mark.parametrize("partition", ["even", "shards:2", "dirichlet:1"])
def test_without_noise_and_clipping_it_is_plain_fedavg(foreign, data, name, partition):
    settings, start, shares, _, run = run_of(data, name, partition=partition)

    def step(model, velocity, x, y, divisor):
        model.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        move(model, velocity, {each: value.grad for each, value in model.named_parameters()}, settings)

    accuracies, weights = by_hand(data, settings, start, shares, step)
    [row] = run.runs.to_dict("records")
    assert json.loads(row["accuracy_pct_by_round"]) == pytest.approx(accuracies) and accuracies[-1] > 70
    assert row["accuracy_pct"] == pytest.approx(accuracies[-1]) and row["status"] == "finished"
    for each, value in weights.items():
        torch.testing.assert_close(run.weights[each], value.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "sampler", [Sampling.POISSON, Sampling.BALLS_IN_BINS, Sampling.FIXED, Sampling.WITH_REPLACEMENT]
)
def test_clipping_is_that_of_each_record_by_torch_func(foreign, data, sampler):
    clip = 0.3
    settings, start, shares, _, run = run_of(data, "Tied", sampler=sampler.value, clip_norm=clip)
    norms = []

    def step(model, velocity, x, y, divisor):
        parameters = {name: value.detach() for name, value in model.named_parameters()}

        def loss(own, record, label):
            return functional.cross_entropy(functional_call(model, own, (record[None],)), label[None])

        sums = {name: torch.zeros_like(value) for name, value in parameters.items()}
        if len(y):
            each = vmap(grad(loss), (None, 0, 0))(parameters, x, y)
            norm = torch.stack([value.reshape(len(y), -1).norm(dim=1) for value in each.values()]).norm(dim=0)
            norms.extend(norm.tolist())
            factor = (clip / norm).clamp(max=1)
            sums = {name: torch.tensordot(factor, value, 1) for name, value in each.items()}
        move(model, velocity, {name: value / divisor for name, value in sums.items()}, settings)

    accuracies, weights = by_hand(data, settings, start, shares, step)
    assert np.mean(np.array(norms) > clip) > 0.3  # it does clip, and not all
    assert json.loads(run.runs["accuracy_pct_by_round"][0]) == pytest.approx(accuracies)
    for each, value in weights.items():
        torch.testing.assert_close(run.weights[each], value.detach(), rtol=1e-4, atol=1e-5)


def test_a_foreign_module_is_differentiated_record_by_record(foreign, data):
    x, y = torch.from_numpy(data.train_x[:3]), torch.from_numpy(data.train_y[:3])
    assert isinstance(checked_rule(load_model("foreign_nets:Net", 0), x, y, 3), PerRecordGradients)


def test_batches_with_replacement_fill_each_slot_from_all_records():
    """A record fills Bin(4, 1/10) slots of a step, and two slots hold the same record with chance 1/10."""
    batches = OwnFederationSettings.of(SETTINGS, {"sampler": "with_replacement", "batch_size": 4}).batches(10)
    drawn = np.concatenate([batches.epoch(epoch, seed=0, client=1) for epoch in range(2000)])
    assert drawn.shape == (3 * 2000, 4) and batches.divisor == 4 and set(drawn.flatten()) == set(range(10))
    for record in range(10):
        filled = np.bincount((drawn == record).sum(1), minlength=5)
        expected = len(drawn) * np.array([0.6561, 0.2916, 0.0486, 0.0037])
        # 5 standard deviations of each count; 40 counts in all: chance 2e-5.
        assert (np.abs(np.r_[filled[:3], filled[3:].sum()] - expected) < 5 * np.sqrt(expected)).all()
    repeated = (drawn[:, 0] == drawn[:, 1]).mean()
    assert abs(repeated - 0.1) < 5 * math.sqrt(0.09 / len(drawn))
    assert OwnFederationSettings.of(SETTINGS, {"sampler": "with_replacement"}).batches(5).divisor == 5


def test_noise_has_the_stated_deviation(foreign, data):
    """One step on full batches from the same start: what noise adds is normal with lr * sigma * C / n."""
    one = {"rounds": 1, "local_epochs": 1, "sampler": "full_batch", "clients": 1, "clip_norm": 0.5, "momentum": 0.0}
    drawn = []
    for seed in range(30):
        *_, quiet = run_of(data, "Net", **one, seed=seed)
        *_, noisy = run_of(data, "Net", **one, seed=seed, noise_multiplier=2.0, epsilon=None)
        drawn += [(noisy.weights[name] - value).flatten() for name, value in quiet.weights.items()]
    scaled = torch.cat(drawn).double() * len(data.train_y) / (0.2 * 2.0 * 0.5)
    # The sum of n squares has deviation sqrt(2 n): beyond 5 of them with a chance of 6e-7; half the noise is 24.
    assert len(scaled) > 2000 and abs(float(scaled.square().sum()) - len(scaled)) < 5 * math.sqrt(2 * len(scaled))


def test_same_arguments_give_the_same_bytes_and_resuming_too(foreign, data, tmp_path):
    private = {"sampler": "poisson", "clip_norm": 1.0, "noise_multiplier": 1.0, "epsilon": None, "rounds": 4}
    *_, whole = run_of(data, "Net", **private)

    class Stopped(Exception):
        pass

    def stop(done, total):
        if done == 5:
            raise Stopped

    checkpoint = tmp_path / "checkpoint"
    with pytest.raises(Stopped):
        run_of(data, "Net", **private, checkpoint=checkpoint, progress=stop)
    done = []
    *_, resumed = run_of(data, "Net", **private, checkpoint=checkpoint, progress=lambda *at: done.append(at[0]))
    assert done == [5, 6, 7, 8]
    assert resumed.runs.to_csv() == whole.runs.to_csv() and resumed.clients.to_csv() == whole.clients.to_csv()
    assert all(torch.equal(resumed.weights[name], value) for name, value in whole.weights.items())
    *_, other = run_of(data, "Net", **private, seed=5)
    assert not torch.equal(other.weights["0.weight"], whole.weights["0.weight"])


# The privacy statement.

N, B, EPOCHS = 144, 18, 4
DRAWN = {
    "poisson": Poisson(1 / 8), "balls_in_bins": BallsInBins(8), "shuffled_epochs": ShuffledEpochs(18, 144),
    "fixed_without_replacement": FixedBatches(18, 144), "full_batch": FullBatch(),
    "with_replacement": WithReplacement(18, 144),
}  # fmt: skip


def stated(sizes, **others):
    given = {"batch_size": B, "rounds": EPOCHS, "local_epochs": 1, "clip_norm": 1.0, "clients": len(sizes), **others}
    return statements(OwnFederationSettings.of(SETTINGS, given), list(sizes), lambda *_: None)


@pytest.mark.parametrize("sampler", DRAWN)
@pytest.mark.parametrize("neighbouring", ["zero_out", "replace_one"])
def test_the_statement_is_the_accountants_for_the_batches_that_are_drawn(sampler, neighbouring):
    [found] = stated([N], sampler=sampler, neighbouring=neighbouring, epsilon=None, noise_multiplier=1.5)
    steps = EPOCHS * (1 if sampler == "full_batch" else 8)
    assert (found.steps, found.noise_multiplier, found.clip_norm, found.sampler) == (steps, 1.5, 1.0, DRAWN[sampler])
    expected = guarantee(found.sampler, noise_multiplier=1.5, steps=steps, delta=1e-5, neighbouring=neighbouring)
    assert found.guarantee.upper <= expected.upper * (1 + 1e-5)
    assert found.guarantee.lower == pytest.approx(expected.lower, rel=1e-6)


@pytest.mark.parametrize("sampler", ["poisson", "shuffled_epochs", "full_batch"])
def test_calibrated_noise_proves_the_epsilon_and_hardly_more(sampler):
    [found] = stated([N], sampler=sampler, epsilon=3.0)
    assert 3.0 * (1 - 1e-4) < found.guarantee.upper <= 3.0
    if sampler == "poisson":
        step = dp_accounting.PoissonSampledDpEvent(1 / 8, dp_accounting.GaussianDpEvent(found.noise_multiplier))
        accountant = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
        accountant.compose(step, 8 * EPOCHS)
        assert accountant.get_epsilon(1e-5) == pytest.approx(3.0, rel=1e-3)


def test_clients_of_other_sizes_have_their_own_noise_and_the_weakest_speaks_for_all():
    found = stated([40, 400, 10], sampler="poisson", epsilon=None, noise_multiplier=2.0)
    assert [each.steps for each in found] == [12, 92, 4]
    assert found[2].sampler == Poisson(1.0)  # fewer records than a batch
    uppers = [each.guarantee.upper for each in found]
    assert weakest(found).guarantee.upper == max(uppers) and len(set(uppers)) == 3
    # The noise of the same epsilon falls with the number of records, for the rate does.
    small, large = stated([40, 400], sampler="poisson", epsilon=3.0)
    assert small.noise_multiplier > large.noise_multiplier > 0.3


def test_a_run_without_noise_claims_no_privacy(foreign, data):
    *_, run = run_of(data, "Net", clip_norm=1.0)
    assert run.runs["privacy_epsilon_proven"].tolist() == [math.inf]
    assert "no noise is added: no privacy guarantee" in run.runs["privacy_note"][0]


def test_the_clients_table_has_each_clients_number_of_records_and_statement(foreign, data):
    _, _, shares, known, run = run_of(data, "Net", partition="dirichlet:0.5", rounds=1)
    assert run.clients["records"].tolist() == [len(share) for share in shares]
    assert run.clients["privacy_steps"].tolist() == [each.steps for each in known]


# Slips, each in one line, before anything is trained.


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"epsilon": None}, "epsilon is missing: name it, inf for no privacy, or a noise_multiplier"),
        ({"epsilon": 3.0}, "clip_norm is inf, but noise hides only what is clipped"),
        ({"epsilon": math.nan}, "epsilon is nan; it must be greater than 0"),
        ({"noise_multiplier": -1.0}, "noise_multiplier is -1.0; it must be greater than or equal to 0"),
        ({"clip_norm": 0.0}, "clip_norm is 0.0; it must be greater than 0"),
        ({"delta": 1.0}, "delta is 1.0; it must be less than 1"),
        ({"clients": 0}, "clients is 0; it must be greater than or equal to 1"),
        (
            {"sampler": "with"},
            "sampler is 'with'; it must be 'poisson', 'fixed_without_replacement', 'with_replacement'",
        ),
        ({"neighbouring": "add_or_remove"}, "neighbouring is 'add_or_remove'; it must be 'zero_out' or 'replace_one'"),
        ({"partition": "uneven"}, "partition is 'uneven'; it must be even, shards:<number> or dirichlet:<parameter>"),
        ({"partition": "dirichlet:0"}, "partition is 'dirichlet:0'; it must be even"),
        ({"partition": "shards:1.5"}, "partition is 'shards:1.5'; it must be even"),
        ({"partition": "even:2"}, "partition is 'even:2'; it must be even"),
    ],
)
def test_a_setting_that_cannot_be_used_is_one_line(given, named):
    with pytest.raises(InputError, match=re.escape(named)) as refused:
        OwnFederationSettings.of(SETTINGS, given)
    assert "\n" not in str(refused.value)


def test_more_clients_than_records_are_one_line(data):
    with pytest.raises(InputError, match="clients: 76 are more than the 75 training records"):
        OwnFederationSettings.of(SETTINGS, {"clients": 76}).shares(data.train_y)


def test_a_delta_that_no_accountant_serves_is_one_line():
    with pytest.raises(InputError, match="the privacy of client 0 with 144 records: delta must be") as refused:
        stated([N], epsilon=1.0, delta=1e-300, sampler="poisson")
    assert "\n" not in str(refused.value)


def test_a_delta_that_asks_for_no_noise_is_refused():
    """A record that is used with a chance of at most delta needs none, and the model would be published without."""
    with pytest.raises(InputError, match=r"144 records: delta = 0\.7 asks for no noise at all: choose one below 1/144"):
        stated([N], epsilon=3.0, delta=0.7, sampler="poisson", batch_size=1, rounds=1)


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("foreign_nets", "it must be an import path, as my_module:Net"),
        ("nowhere_nets:Net", "cannot be imported: ModuleNotFoundError: No module named 'nowhere_nets'"),
        ("broken_nets:Net", "cannot be imported: SyntaxError"),
        ("foreign_nets:Nett", "cannot be imported: AttributeError"),
        ("foreign_nets:made", "must be a class of modules, or a function that makes one"),
        ("foreign_nets:random", "must be a class of modules, or a function that makes one"),
        ("foreign_nets:Text", "makes a str, no torch.nn.Module"),
        ("foreign_nets:Needy", "cannot be called without arguments: TypeError: Needy() missing 1"),
        ("foreign_nets:Empty", "has no parameters to train"),
        ("foreign_nets:Normed", "1 mixes the records of a batch; stacked private training needs"),
        ("foreign_nets:Dropping", "1 draws at random, unaddressed"),
        ("foreign_nets:Buffered", "has the buffer scale"),
        ("foreign_nets:Frozen", "Frozen has 0.weight, which is frozen (requires_grad is False): every parameter must"),
        ("foreign_nets:Elsewhere", "draws its initial weights by another generator than torch's"),
        ("foreign_nets:Lazy", "has weight, whose size is not known yet: use no lazy layer"),
        ("foreign_nets:Wide", "cannot read records of shape (5,): RuntimeError"),
        ("foreign_nets:Failing", "cannot read records of shape (5,): KeyError: 'no\\nway'"),
        ("foreign_nets:Recurrent", "Recurrent has GRU memory; recurrent layers cannot be trained record by record"),
        ("foreign_nets:Remembering", "Remembering has LSTM memory; recurrent layers cannot be trained"),
        ("foreign_nets:Tuple", "gives tuple for 3 records; it must give a score a class"),
        ("foreign_nets:Addressed", "cannot read records of shape (5,): ValueError: not <object object>"),
        ("foreign_nets:Narrow", "gives 2 scores, but the labels have 3 classes"),
        ("foreign_nets:Flat", "gives (3,) for 3 records; it must give a score a class"),
        ("foreign_nets:Mixing", "mixes the records of a batch"),
        ("foreign_nets:Drawing", "gives other scores for the same records: it draws at random"),
        (
            "foreign_nets:Branching",
            "cannot be differentiated record by record (torch.func.vmap and grad): RuntimeError",
        ),
    ],
)
def test_a_model_that_cannot_be_trained_is_one_line(foreign, data, path, named):
    x, y = torch.from_numpy(data.train_x[:3]), torch.from_numpy(data.train_y[:3])
    with pytest.raises(InputError) as refused:
        checked_rule(load_model(path, 0), x, y, 3)
    assert named in str(refused.value) and "\n" not in str(refused.value)


def test_initial_weights_are_the_modules_own_law_at_an_address(foreign):
    before = torch.get_rng_state()
    one, same, other = (load_model("foreign_nets:Net", seed).initial for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one, same) and not torch.equal(one, other)
    drawn = load_model("foreign_nets:Global", 1).initial  # at import
    sys.modules.pop("foreign_nets")
    torch.rand(3)
    assert torch.equal(load_model("foreign_nets:Global", 1).initial, drawn)
    norm = load_model("foreign_nets:Net", 1).module[2]
    assert isinstance(norm, nn.LayerNorm) and torch.equal(norm.weight, torch.ones(6))
    source = Path("foreign_nets.py").read_bytes()
    assert load_model("foreign_nets:Net", 1).source_sha256 == hashlib.sha256(source).hexdigest()
