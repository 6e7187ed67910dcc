import copy
import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from dpfl.accounting.samplers import Sampling
from dpfl.engine.batches import BatchSampler
from dpfl.engine.per_record_gradients import ParameterVector, StackedGradients, gradient_rule
from dpfl.engine.sgd import StackedHyperparameters, base_noise
from dpfl.images.fedavg import FederatedAveraging, Schedule
from dpfl.images.fedavg_images import cross_entropy

INFINITE = float("inf")


def _federation(local_epochs, clip_norms, multipliers, *, sampling=Sampling.SHUFFLED, sizes=(13, 9, 2), **others):
    """Three clients; `local_epochs[variant]` lists the epochs of each round; `multipliers` also one list a client."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    if others.pop("linear", False):
        module = nn.Linear(6, 3).double()
    draw = torch.Generator().manual_seed(1)
    data = torch.randn(30, 6, generator=draw, dtype=torch.float64), torch.arange(30) % 3
    order = np.random.default_rng(0).permutation(30)
    noise = torch.tensor(multipliers).double().expand(len(sizes), -1)
    return FederatedAveraging(
        module=module,
        gradients=StackedGradients(gradient_rule(module, cross_entropy, data[0][0]), data[0][0], 2**20),
        variants=StackedHyperparameters(torch.tensor(clip_norms).double(), noise),
        schedule=Schedule(tuple(tuple(rounds) for rounds in local_epochs)),
        shares=np.split(order[: sum(sizes)], np.cumsum(sizes)[:-1]),
        initial=ParameterVector.of(module).flatten(dict(module.named_parameters())).detach(),
        train=data,
        test=data,
        samplers=tuple(BatchSampler(sampling, 4, size) for size in sizes),
        learning_rate=0.3,
        momentum=0.5,
        seed=7,
        **others,
    )


def _run(federation):
    state = federation.start()
    while state.epoch < max(federation.schedule.epochs):
        federation.advance(state)
    return state


def _fedavg_by_hand(federation, rounds):
    """Plain torch: a loop over rounds, clients, epochs and batches; `rounds` lists the local epochs of each."""
    server, accuracies, epoch = copy.deepcopy(federation.module), [], 0
    inputs, labels = federation.train
    for local_epochs in rounds:
        trained = []
        for client, share in enumerate(federation.shares):
            model = copy.deepcopy(server)
            optimiser = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.5)
            for local in range(1, local_epochs + 1):
                sampler = BatchSampler(Sampling.SHUFFLED, 4, len(share))
                for rows in sampler.epoch(epoch + local, seed=7, client=client):
                    optimiser.zero_grad()
                    nn.functional.cross_entropy(model(inputs[share[rows]]), labels[share[rows]]).backward()
                    optimiser.step()
            trained.append(nn.utils.parameters_to_vector(model.parameters()).detach())
        epoch += local_epochs
        nn.utils.vector_to_parameters(torch.stack(trained).mean(0), server.parameters())
        accuracies.append(100 * int((server(inputs).argmax(1) == labels).sum()) / len(labels))
    return nn.utils.parameters_to_vector(server.parameters()).detach(), accuracies


def test_without_privacy_it_is_fedavg_for_every_schedule_in_one_stack():
    schedules = [[1] * 6, [2] * 3, [6], [3], [1, 2, 3], [3, 1, 1], [2, 4]]
    federation = _federation(schedules, [INFINITE] * 7, [0.0] * 7)
    state = _run(federation)
    for variant, rounds in enumerate(schedules):
        weights, accuracies = _fedavg_by_hand(federation, rounds)
        torch.testing.assert_close(state.weights[0, variant], weights, rtol=0, atol=1e-12)
        assert torch.equal(state.weights[:, variant], state.weights[:1, variant].expand(3, -1))
        assert state.accuracy_pct[variant] == accuracies
    assert state.diverged == [False] * 7


# The last bits of layers that read the batch are the matrix library's business: engine/test_per_record_gradients.py.
@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("sampling", [Sampling.SHUFFLED, Sampling.POISSON, Sampling.BALLS_IN_BINS])
def test_a_variant_is_the_same_alone_and_in_a_stack_that_shares_epochs(sampling, linear):
    schedules = [[1] * 4, [2, 2], [4], [1, 1], [2, 1, 1], [4]]
    clip_norms, multipliers = (1.0, 1.0, 1.0, 1.0, INFINITE, 0.5), (0.8, 0.8, 0.8, 0.8, 0.0, 1.5)
    stacked = _run(_federation(schedules, clip_norms, multipliers, sampling=sampling, linear=linear))
    for v in range(6):
        one = slice(v, v + 1)
        apart = (schedules[one], clip_norms[one], multipliers[one])
        alone = _run(_federation(*apart, sampling=sampling, linear=linear))
        torch.testing.assert_close(alone.weights[:, 0], stacked.weights[:, v], rtol=0, atol=1e-12)
        assert alone.accuracy_pct[0] == stacked.accuracy_pct[v]


def test_epochs_before_the_first_difference_are_trained_once():
    schedules = [[1] * 4, [2, 2], [4], [4], [4], [2, 2]]
    federation = _federation(schedules, [1.0] * 5 + [INFINITE], [0.8, 0.8, 0.8, 0.8, 0.3, 0.0])
    assert federation.alike(1) == [[0, 1, 2, 3], [4], [5]]
    assert federation.alike(2) == [[0], [1, 2, 3], [4], [5]]
    assert federation.alike(3) == federation.alike(4) == [[0], [1], [2, 3], [4], [5]]
    # the papers' six splits of 20 epochs: 98 epochs of the 120 are left
    splits = _federation([[e] * (20 // e) for e in (1, 2, 4, 5, 10, 20)], [1.0] * 6, [1.0] * 6)
    assert sum(len(splits.alike(epoch)) for epoch in range(1, 21)) == 98


def test_clients_with_other_noise_do_not_share_and_each_adds_its_own():
    multipliers = [[0.5, 0.5], [2.0, 1.0], [0.0, 0.0]]
    state, quiet = (_one_epoch(_federation([[1], [2]], [1.0, 1.0], noise)) for noise in (multipliers, [0.0, 0.0]))
    assert _federation([[1], [2]], [1.0, 1.0], multipliers).alike(1) == [[0], [1]]
    moved = state.weights - quiet.weights
    assert not moved[2].any()
    # one step of the third client's neighbours is 4 and 3 steps long: compare the scale of the first's variants
    torch.testing.assert_close(moved[0, 0], moved[0, 1], rtol=0, atol=1e-12)
    assert moved[1, 0].norm() > 1.2 * moved[1, 1].norm()


def _one_epoch(federation):
    """Train without averaging."""
    state = federation.start()
    state.epoch = 1
    for client in range(3):
        federation._epoch(state, [client], list(range(len(federation.schedule.local_epochs))))
    return state


def test_a_missing_record_changes_neither_divisor_nor_the_other_records_batches():
    """Without gradients of the client's last record, and without the record: the same models, to the last bit."""
    federation = _federation([[2]], [1.0], [0.7], sampling=Sampling.POISSON)
    shares = [share[:-1] for share in federation.shares]
    without = replace(federation, shares=shares, gradients=_Without(federation.gradients, None))
    gone = {int(share[-1]) for share in federation.shares}
    zeroed = replace(federation, gradients=_Without(federation.gradients, federation.train[0][sorted(gone)]))
    assert torch.equal(_run(without).weights, _run(zeroed).weights)
    assert not torch.equal(_run(without).weights, _run(federation).weights)


class _Without:
    """Gradient sums in which some records count nothing, summed one record at a time so that none moves another."""

    def __init__(self, gradients, records):
        self.gradients, self.records = gradients, records

    def __call__(self, weights, batch, clip_norms):
        total = torch.zeros_like(weights)
        for x, y, present in zip(*(part.unbind(1) for part in batch), strict=True):
            hidden = self.records is not None and bool((self.records == x).all(1).any())
            if bool(present) and not hidden:
                total += self.gradients(weights, (x[:, None], y[:, None], present[:, None]), clip_norms)
        return total


def test_private_clients_divide_by_their_own_divisor_and_draw_their_own_noise():
    federation = _federation([[1]], [1.0], [1.0])
    silent = _federation([[1]], [1.0], [0.0])
    state, quiet = federation.start(), silent.start()
    for each, run in ((state, federation), (quiet, silent)):
        for client in range(3):
            run._epoch(each, [client], [0])
    # client 2 has two records, one step, divisor 2: its noise is lr * z / 2
    noise = ((quiet.weights - state.weights)[2, 0] * 2 / 0.3).numpy()
    expected = base_noise(
        len(noise), seed=7, client=2, epoch=0, step=0, dtype=torch.float64, device=torch.device("cpu")
    )
    np.testing.assert_allclose(noise, expected.numpy(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("clients", [[0, 1, 2], [1, 2]])
def test_clients_that_train_together_end_as_they_do_one_by_one(clients):
    """Two steps each, but batches of other lengths, divisors of 4, 3 and 2, and other noise; as on a GPU."""
    multipliers = [[0.5, 0.0, 1.0], [2.0, 0.0, 0.7], [1.5, 0.0, 3.0]]
    federation = _federation([[2]] * 3, [1.0, INFINITE, 0.5], multipliers, sizes=(8, 6, 5))
    assert [sampler.divisor for sampler in federation.samplers] == [4, 3, 2]
    together, draw = federation.start(), torch.Generator().manual_seed(2)
    together.epoch = 2
    for part in (together.weights, together.velocity):  # every client begins elsewhere
        part += 0.1 * torch.randn(part.shape, generator=draw, dtype=torch.float64)
    before, alone = copy.deepcopy(together), copy.deepcopy(together)
    federation._epoch(together, clients, [1, 2])
    for client, variant in itertools.product(clients, [1, 2]):
        federation._epoch(alone, [client], [variant])
    for name in ("weights", "velocity"):
        torch.testing.assert_close(getattr(together, name), getattr(alone, name), rtol=0, atol=1e-12)
        moved = (getattr(together, name) != getattr(before, name)).all(2)
        assert moved.tolist() == [[False, client in clients, client in clients] for client in range(3)]


def test_neighbours_with_equally_many_steps_train_together_but_on_a_cpu_each_client_alone():
    federation = _federation([[1]], [1.0], [1.0], sizes=(8, 5, 3, 4, 7, 2))
    assert [sampler.steps_per_epoch for sampler in federation.samplers] == [2, 2, 1, 1, 2, 1]
    assert federation._blocks() == [[0], [1], [2], [3], [4], [5]]
    elsewhere = replace(federation, train=tuple(part.to("meta") for part in federation.train))
    assert elsewhere._blocks() == [[0, 1], [2, 3], [4], [5]]


def test_divergence_is_said_and_stays_with_its_variant():
    federation = _federation([[1] * 3] * 2, [INFINITE, 1.0], [0.0, 0.5])
    state = federation.start()
    federation.advance(state)
    state.weights[1, 0] = float("nan")
    federation.advance(state)
    federation.advance(state)
    assert state.diverged == [True, False]
    assert [len(accuracies) for accuracies in state.accuracy_pct] == [3, 3]
    clean = _run(_federation([[1] * 3], [1.0], [0.5]))
    torch.testing.assert_close(state.weights[:, 1], clean.weights[:, 0], rtol=0, atol=1e-12)


def test_distances_are_those_of_the_models_that_clients_send_and_of_their_averages():
    schedules, clip_norms, noise = [[2, 1]] * 3 + [[3]], [0.5, INFINITE, 0.5, 0.5], [1.0, 0.0, 0.0, 1.0]
    federation = _federation(schedules, clip_norms, noise, measure=True)
    state, sent = federation.start(), []
    while state.epoch < 3:
        before = copy.deepcopy(state)
        federation.advance(state)
        alone = copy.deepcopy(before)
        alone.epoch += 1
        for client in range(3):
            federation._epoch(alone, [client], [0, 1, 2, 3])
        sent.append(alone.weights)
    for kind, reference in (("plain", 1), ("noiseless", 2)):
        for round_, weights in enumerate((sent[1], sent[2])):
            local = sum((weights[c, 0] - weights[c, reference]).norm() for c in range(3)) / 3
            average = (weights[:, 0].mean(0) - weights[:, reference].mean(0)).norm()
            assert state.measured[0][f"local_distance_to_{kind}"][round_] == pytest.approx(float(local), abs=1e-12)
            assert state.measured[0][f"distance_to_{kind}"][round_] == pytest.approx(float(average), abs=1e-12)
            assert local > average > 1e-3
    assert state.measured[1]["distance_to_plain"] == [0.0, 0.0]
    assert set(state.measured[3]) == {"local_accuracy_pct"}
    inputs, labels = federation.train
    accuracies = []
    for client in range(3):
        nn.utils.vector_to_parameters(sent[2][client, 0], federation.module.parameters())
        accuracies.append(100 * float((federation.module(inputs).argmax(1) == labels).double().mean()))
    assert state.measured[0]["local_accuracy_pct"] == [pytest.approx(np.mean(accuracies))]


def test_schedule():
    schedule = Schedule(((1, 1, 1, 1), (2, 2), (4,), (3, 1)))
    assert schedule.epochs == (4, 4, 4, 4)
    assert [schedule.averaging(epoch) for epoch in (1, 2, 3, 4)] == [[0], [0, 1], [0, 3], [0, 1, 2, 3]]
    assert Schedule(((1, 1), (3, 3))).active(3) == [1]
    assert schedule.averaged(0, 3) == (1, 2)
    assert schedule.averaged(3, 4) == (3,)
