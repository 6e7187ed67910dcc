from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from dpfl.accounting.relations import Sampling
from dpfl.engine.batches import epoch_batches
from dpfl.engine.gradients import StackedGradients
from dpfl.engine.layers import gradient_rule
from dpfl.engine.sgd import Variants
from dpfl.federated.averaging import FederatedAveraging, Schedule
from dpfl.federated.pfl import cross_entropy
from dpfl.mechanisms.noise import base_noise

INFINITE = float("inf")


def _federation(local_epochs, rounds, clip_norms, multipliers, *, sampling=Sampling.SHUFFLED, sizes=(13, 9, 2)):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    draw = torch.Generator().manual_seed(1)
    data = torch.randn(30, 6, generator=draw, dtype=torch.float64), torch.arange(30) % 3
    order = np.random.default_rng(0).permutation(30)
    return FederatedAveraging(
        module=module,
        gradients=StackedGradients(gradient_rule(module, cross_entropy, data[0][0]), data[0][0], 2**20),
        variants=Variants(torch.tensor(clip_norms).double(), torch.tensor(multipliers).double()),
        schedule=Schedule(tuple(local_epochs), tuple(rounds)),
        shares=np.split(order[: sum(sizes)], np.cumsum(sizes)[:-1]),
        train=data,
        test=data,
        batch_size=4,
        sampling=sampling,
        learning_rate=0.3,
        momentum=0.5,
        seed=7,
    )


def _run(federation):
    state = federation.start()
    while state.epoch < max(federation.schedule.epochs):
        federation.advance(state)
    return state


def _fedavg_by_hand(federation, local_epochs, rounds):
    """Plain torch: a loop over rounds, clients, epochs and batches."""
    server, accuracies, epoch = copy.deepcopy(federation.module), [], 0
    inputs, labels = federation.train
    for _ in range(rounds):
        trained = []
        for client, share in enumerate(federation.shares):
            model = copy.deepcopy(server)
            optimiser = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.5)
            for local in range(1, local_epochs + 1):
                address = {"seed": 7, "client": client, "epoch": epoch + local}
                for rows in epoch_batches(len(share), 4, Sampling.SHUFFLED, **address):
                    optimiser.zero_grad()
                    nn.functional.cross_entropy(model(inputs[share[rows]]), labels[share[rows]]).backward()
                    optimiser.step()
            trained.append(nn.utils.parameters_to_vector(model.parameters()).detach())
        epoch += local_epochs
        nn.utils.vector_to_parameters(torch.stack(trained).mean(0), server.parameters())
        accuracies.append(100 * int((server(inputs).argmax(1) == labels).sum()) / len(labels))
    return nn.utils.parameters_to_vector(server.parameters()).detach(), accuracies


def test_without_privacy_it_is_fedavg_for_every_split_in_one_stack():
    splits = [(1, 6), (2, 3), (6, 1), (3, 1)]
    local_epochs, rounds = zip(*splits, strict=True)
    federation = _federation(local_epochs, rounds, [INFINITE] * 4, [0.0] * 4)
    state = _run(federation)
    for variant, (local, count) in enumerate(splits):
        weights, accuracies = _fedavg_by_hand(federation, local, count)
        torch.testing.assert_close(state.weights[0, variant], weights, rtol=0, atol=1e-12)
        assert torch.equal(state.weights[:, variant], state.weights[:1, variant].expand(3, -1))
        assert state.accuracy_pct[variant] == accuracies
    assert state.diverged == [False] * 4


@pytest.mark.parametrize("sampling", [Sampling.SHUFFLED, Sampling.POISSON])
def test_a_variant_does_not_depend_on_what_else_is_in_the_stack(sampling):
    local_epochs, rounds = (1, 2, 4, 1), (4, 2, 1, 2)
    clip_norms, multipliers = (1.0, INFINITE, 0.5, 1.0), (0.8, 0.0, 1.5, 0.3)
    stacked = _run(_federation(local_epochs, rounds, clip_norms, multipliers, sampling=sampling))
    for v in range(4):
        one = slice(v, v + 1)
        alone = _run(_federation(local_epochs[one], rounds[one], clip_norms[one], multipliers[one], sampling=sampling))
        torch.testing.assert_close(alone.weights[:, 0], stacked.weights[:, v], rtol=0, atol=1e-12)
        assert alone.accuracy_pct[0] == stacked.accuracy_pct[v]


def test_private_clients_that_divide_by_their_own_expected_batch_and_draw_their_own_noise():
    federation = _federation([1], [1], [1.0], [1.0])
    silent = _federation([1], [1], [1.0], [0.0])
    state, quiet = federation.start(), silent.start()
    for each, run in ((state, federation), (quiet, silent)):
        for client in range(3):
            run._epoch(each, [client], [0])
    # client 2 has two records, one step, expected batch 2: its noise is lr * z / 2
    noise = ((quiet.weights - state.weights)[2, 0] * 2 / 0.3).numpy()
    expected = base_noise(
        len(noise), seed=7, client=2, epoch=0, step=0, dtype=torch.float64, device=torch.device("cpu")
    )
    np.testing.assert_allclose(noise, expected.numpy(), rtol=0, atol=1e-12)


def test_divergence_is_said_and_stays_with_its_variant():
    federation = _federation([1, 1], [3, 3], [INFINITE, 1.0], [0.0, 0.5])
    state = federation.start()
    federation.advance(state)
    state.weights[1, 0] = float("nan")
    federation.advance(state)
    federation.advance(state)
    assert state.diverged == [True, False]
    assert [len(accuracies) for accuracies in state.accuracy_pct] == [3, 3]
    clean = _run(_federation([1], [3], [1.0], [0.5]))
    torch.testing.assert_close(state.weights[:, 1], clean.weights[:, 0], rtol=0, atol=1e-12)


def test_schedule():
    schedule = Schedule((1, 2, 4), (4, 2, 1))
    assert schedule.epochs == (4, 4, 4)
    assert [schedule.averaging(epoch) for epoch in (1, 2, 3, 4)] == [[0], [0, 1], [0], [0, 1, 2]]
    assert Schedule((1, 3), (2, 2)).active(3) == [1]
