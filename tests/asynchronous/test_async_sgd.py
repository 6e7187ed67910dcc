import copy
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dpfl.accounting.samplers import Sampling
from dpfl.asynchronous.async_sgd import (
    AdaptiveClip,
    Federation,
    NoiseSchedule,
    clipped_mean,
    gradient_norms,
    judged_weights,
    largest_entries,
    replay,
    round_batch,
    run_guarded,
)
from dpfl.asynchronous.events import (
    EndRound,
    EvaluateEvent,
    GradientEvent,
    Interrupt,
    Network,
    Program,
    ServerStep,
    simulate,
)
from dpfl.engine.networks import softmax_regression
from dpfl.engine.per_record_gradients import LinearGradients, cross_entropy
from dpfl.engine.sgd import base_noise
from dpfl.errors import InputError
from dpfl.randomness import generator

CLIENTS, RECORDS, ROUNDS, BATCH = 3, 12, 6, 4
INFINITE = float("inf")


def federation(sampling=Sampling.FIXED, mix=(1 / 3, 1 / 3, 1 / 3)):
    draw = torch.Generator().manual_seed(1)
    module = softmax_regression(5, 3).double()
    data = torch.randn(40, 5, generator=draw, dtype=torch.float64), torch.arange(40) % 3
    order = np.random.default_rng(0).permutation(40)[: CLIENTS * RECORDS]
    return Federation(
        module=module,
        rule=LinearGradients(module, cross_entropy),
        shares=np.split(order, CLIENTS),
        train=data,
        test=data,
        mix=mix,
        batch_sizes=(BATCH,) * ROUNDS,
        sampling=sampling,
        seed=7,
    )


def postures(clips, stds, *, arsinh=INFINITE, kept=1.0, steps=0.3, rounds=ROUNDS, batch_clip=False, adaptive=None):
    """The same in every round but for step sizes, which fall."""

    def each(values):
        return torch.tensor(values, dtype=torch.float64).repeat(rounds, 1)

    falling = torch.linspace(1, 0.5, rounds, dtype=torch.float64)[:, None]
    count = len(clips)
    return NoiseSchedule(
        each(clips), each(stds), each([arsinh] * count), steps * falling.repeat(1, count),
        kept_shares=(kept,) * count, batch_clips=(batch_clip,) * count, adaptive_clips=(adaptive,) * count,
    )  # fmt: skip


def run(network=None, own=None, federated=None, seed=7):
    federated = federated or federation()
    lengths = [Fraction(1)] * ROUNDS
    program = simulate(network or Network(), clients=len(federated.shares), lengths=lengths, epochs=2, seed=seed)
    return replay(federated, program, own or postures([0.7], [0.5]), lambda: None)


def clipped(model, x, y, clip_norm):
    """One record's gradient by autograd, clipped as Opacus does."""
    loss = nn.functional.cross_entropy(model(x[None]), y[None])
    gradient = torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()))])
    return gradient * min(1.0, clip_norm / float(gradient.norm()))


def set_to(model, vector):
    model = copy.deepcopy(model)
    nn.utils.vector_to_parameters(vector, model.parameters())
    return model


def noise(client, number, size=18):
    address = {"seed": 7, "client": client, "epoch": number, "step": 0}
    return base_noise(size, **address, dtype=torch.float64, device=torch.device("cpu"))


def noisy_sum(federated, model, client, number, clip_norm, std):
    share = federated.shares[client]
    address = {"seed": 7, "client": client, "round": number}
    rows = share[round_batch(len(share), BATCH, federated.sampling, **address)]
    inputs, labels = federated.train
    total = std * noise(client, number)
    for row in rows:
        total = total + clipped(model, inputs[row], labels[row], clip_norm)
    return total


@pytest.mark.parametrize("sampling", [Sampling.FIXED, Sampling.POISSON])
@pytest.mark.parametrize(("clip_norm", "std"), [(0.7, 0.5), (INFINITE, 0.0)])
def test_without_delay_or_loss_it_is_synchronous_dpsgd_averaged_every_round(sampling, clip_norm, std):
    federated = federation(sampling)
    own = postures([0.2, clip_norm], [1.0, std])
    weights, accuracies = torch.zeros(18, dtype=torch.float64), []
    for number in range(ROUNDS):
        model = set_to(federated.module, weights)
        updates = [noisy_sum(federated, model, client, number, clip_norm, std) for client in range(CLIENTS)]
        weights = weights - own.step_sizes[number, 1] * torch.stack(updates).mean(0) / BATCH
        model = set_to(federated.module, weights)
        accuracies.append(100 * float((model(federated.test[0]).argmax(1) == federated.test[1]).double().mean()))
    trained = run(own=own, federated=federated)
    torch.testing.assert_close(trained.weights[1], weights, rtol=0, atol=1e-12)
    assert trained.accuracy_pct[1] == pytest.approx([accuracies[2], accuracies[5]])


def test_one_window_for_the_whole_run_is_local_sgd():
    """No model comes back before the end, so each client goes its own way and the server takes the mean."""
    federated, own = federation(), postures([0.7], [0.5])
    ends = []
    for client in range(CLIENTS):
        weights = torch.zeros(18, dtype=torch.float64)
        for number in range(ROUNDS):
            model = set_to(federated.module, weights)
            weights = weights - own.step_sizes[number] * noisy_sum(federated, model, client, number, 0.7, 0.5) / BATCH
        ends.append(weights)
    trained = run(Network(window=float(ROUNDS)), own, federated)
    torch.testing.assert_close(trained.weights[0], torch.stack(ends).mean(0), rtol=0, atol=1e-12)


def test_an_interrupt_swaps_the_model_in_the_middle_of_a_batch():
    federated = federation()
    federated = Federation(**{**vars(federated), "shares": federated.shares[:1], "mix": (1.0,)})
    program = Program(
        operations=(
            GradientEvent(0, 0, 0.0, 1.0), EndRound(0, 0, True), GradientEvent(0, 1, 0.0, 0.5), ServerStep(((0, 0),)),
            Interrupt(0, 1), GradientEvent(0, 1, 0.5, 1.0), EndRound(0, 1, True),
            ServerStep(((0, 1),)), EvaluateEvent(),
        ),
        uses={1: 1}, updates_lost_pct=0, simulated_rounds=2, staleness_rounds=0, interrupted_pct=50,
    )  # fmt: skip
    own = postures([0.7], [0.5], kept=0.3, rounds=2)
    start = torch.zeros(18, dtype=torch.float64)
    step = own.step_sizes[0] * noisy_sum(federated, set_to(federated.module, start), 0, 0, 0.7, 0.5) / BATCH
    local, server = start - step, start - largest_entries(step, 0.3)
    share = federated.shares[0]
    rows = share[round_batch(len(share), BATCH, Sampling.FIXED, seed=7, client=0, round=1)]
    total = 0.5 * noise(0, 1)
    for place, row in enumerate(rows):
        model = set_to(federated.module, local if place < 2 else server)
        total = total + clipped(model, federated.train[0][row], federated.train[1][row], 0.7)
    expected = server - largest_entries(own.step_sizes[1] * total / BATCH, 0.3)
    trained = replay(federated, program, own, lambda: None)
    torch.testing.assert_close(trained.weights[0], expected, rtol=0, atol=1e-12)


def test_what_is_sent_is_a_function_of_the_noisy_update_alone():
    """With the noise turned up, data are drowned: only the order of noise and compression can tell."""
    huge = postures([1e-9], [1.0], kept=0.25, steps=1.0)
    trained = run(own=huge)
    expected = torch.zeros(18, dtype=torch.float64)
    for number in range(ROUNDS):
        for client in range(CLIENTS):
            step = huge.step_sizes[number] * noise(client, number) / BATCH
            expected -= largest_entries(step, 0.25) / 3
    torch.testing.assert_close(trained.weights[0], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("network", [Network(), Network(delay=1.5, jitter=1.0, update_loss=0.2, speed_spread=3.0)])
def test_a_variant_does_not_depend_on_what_else_is_in_the_stack(network):
    together = run(network, postures([0.7, INFINITE, 0.1], [0.5, 0.0, 2.0]))
    for variant, (clip_norm, std) in enumerate([(0.7, 0.5), (INFINITE, 0.0), (0.1, 2.0)]):
        alone = run(network, postures([clip_norm], [std]))
        torch.testing.assert_close(together.weights[variant], alone.weights[0], rtol=0, atol=1e-12)


def test_weights_of_clients_are_the_servers_mix():
    alone = run(federated=federation(mix=(1.0, 0.0, 0.0)), network=Network(window=float(ROUNDS)))
    federated = federation()
    only = Federation(**{**vars(federated), "shares": federated.shares[:1], "mix": (1.0,)})
    torch.testing.assert_close(alone.weights, run(federated=only, network=Network(window=float(ROUNDS))).weights)


def test_the_noise_of_a_run_has_its_stated_law():
    # 18 weights from 6 rounds of 3 clients, data drowned: 60 seeds; variance of a sum of known scales.
    own = postures([1e-12], [1.0])
    ends = []
    for seed in range(60):
        federated = Federation(**{**vars(federation()), "seed": seed})
        ends.append(run(own=own, federated=federated).weights[0])
    scale = float(own.step_sizes.square().sum().sqrt()) / BATCH / np.sqrt(CLIENTS)
    ratio = float((torch.stack(ends) / scale).square().mean())
    assert abs(ratio - 1) < 5 * np.sqrt(2 / (60 * 18))  # false-alarm rate 6e-7


class WithoutBroken:
    """A rule that does not see the records whose inputs are not finite."""

    def __init__(self, rule):
        self.rule = rule

    def clipped_sums(self, weights, batch, clip_norms):
        x, y, present = batch
        return self.rule.clipped_sums(weights, (x.nan_to_num(0, 0, 0), y, present * x.isfinite().all(1)), clip_norms)


def test_a_record_that_cannot_be_clipped_adds_nothing():
    broken = federation()
    broken.train[0][broken.shares[1][0]] = float("nan")
    expected = run(federated=replace(broken, rule=WithoutBroken(broken.rule))).weights
    assert expected.isfinite().all()
    torch.testing.assert_close(run(federated=broken).weights, expected, rtol=0, atol=1e-14)


def observed(own, federated=None, network=None):
    """The noisy sums of a run, by (client, round)."""
    federated, seen = federated or federation(), {}
    lengths = [Fraction(1)] * ROUNDS
    program = simulate(network or Network(), clients=len(federated.shares), lengths=lengths, epochs=2, seed=7)
    replay(
        federated,
        program,
        own,
        lambda: None,
        lambda client, number, sums: seen.update({(client, number): sums.clone()}),
    )
    return seen


def test_an_observer_is_given_what_a_client_releases():
    federated = federation()
    seen = observed(postures([0.7], [0.5]), federated)
    assert sorted(seen) == [(client, number) for client in range(CLIENTS) for number in range(ROUNDS)]
    expected = noisy_sum(federated, federated.module, 1, 0, 0.7, 0.5)
    torch.testing.assert_close(seen[1, 0][0], expected, rtol=0, atol=1e-12)


def first_batch(federated, client=0):
    share = federated.shares[client]
    rows = share[round_batch(len(share), BATCH, Sampling.FIXED, seed=7, client=client, round=0)]
    return tuple(each[rows] for each in federated.train)


def test_batch_clipping_clips_the_mean_and_adds_its_noise_to_that():
    federated = federation()
    x, y = first_batch(federated)
    loss = nn.functional.cross_entropy(federated.module(x), y)
    mean = torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(federated.module.parameters()))])
    assert float(mean.norm()) > 0.1
    expected = BATCH * (mean * 0.1 / mean.norm() + 0.2 * noise(0, 0))
    seen = observed(postures([0.1], [0.2], batch_clip=True), federated)
    torch.testing.assert_close(seen[0, 0][0], expected, rtol=0, atol=1e-12)


def test_no_record_moves_a_clipped_mean_by_more_than_two_clip_norms():
    draw = torch.Generator().manual_seed(0)
    sums = torch.randn(200, 18, generator=draw, dtype=torch.float64) * torch.logspace(-3, 9, 200)[:, None]
    sums[3, 2], sums[4, 0] = float("nan"), float("inf")
    clipped = clipped_mean(sums, BATCH, torch.full((200,), 0.3, dtype=torch.float64)) / BATCH
    assert float(torch.cdist(clipped, clipped).max()) <= 0.6 * (1 + 1e-9)
    assert not clipped[3].any() and not clipped[4].any()
    torch.testing.assert_close(clipped[0], sums[0] / BATCH)  # short ones stay


def test_norms_in_closed_form_are_those_of_autograd():
    federated = federation()
    x, y = federated.train
    weights = 0.1 * torch.arange(36, dtype=torch.float64).reshape(2, 18)
    found = gradient_norms(federated.rule, weights, x, y)
    for variant in (0, 1):
        model = set_to(federated.module, weights[variant])
        expected = [float(clipped(model, *record, INFINITE).norm()) for record in zip(x, y, strict=True)]
        torch.testing.assert_close(found[variant], torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("count_std", [0.0, 5.0])
def test_an_adaptive_clip_norm_follows_the_noisy_share_of_short_gradients(count_std):
    federated = federation()
    own = postures([1.0], [0.5], adaptive=AdaptiveClip(0.3, 0.4, count_std))
    seen = observed(own, federated, Network(window=float(ROUNDS)))  # no model comes back: a client by itself
    weights, clip = torch.zeros(18, dtype=torch.float64), 1.0
    for number in range(ROUNDS):
        model = set_to(federated.module, weights)
        update = noisy_sum(federated, model, 2, number, clip, 0.5 * clip)
        torch.testing.assert_close(seen[2, number][0], update, rtol=0, atol=1e-10)
        share = federated.shares[2]
        rows = share[round_batch(len(share), BATCH, Sampling.FIXED, seed=7, client=2, round=number)]
        norms = [
            float(clipped(model, federated.train[0][row], federated.train[1][row], INFINITE).norm()) for row in rows
        ]
        count = sum(norm <= clip for norm in norms) + count_std * generator(7, "noise", 2, number, 1).standard_normal()
        clip *= np.exp(-0.4 * (count / BATCH - 0.3))
        weights = weights - own.step_sizes[number] * update / BATCH
    assert abs(clip - 1) > 0.05


def test_batch_normalisation_sees_the_whole_batch():
    federated = replace(federation(), normalise=lambda x: (x - x.mean(0)) / x.std(0))
    x, y = first_batch(federated)
    x = (x - x.mean(0)) / x.std(0)
    expected = 0.5 * noise(0, 0) + sum(clipped(federated.module, *each, 0.7) for each in zip(x, y, strict=True))
    late = Network(speed_spread=2.0, window=0.25)  # models come in within rounds, so batches are done in parts
    for network in (Network(), late):
        torch.testing.assert_close(observed(postures([0.7], [0.5], steps=0.0), federated, network)[0, 0][0], expected)


def test_the_server_judges_clients_by_the_directions_of_their_messages():
    draw = torch.Generator().manual_seed(0)
    good = torch.ones(500)
    heard = torch.stack([good + torch.randn(500, generator=draw) for _ in range(3)] + [-good])[:, None]
    weights = judged_weights(heard)[:, 0]
    assert weights[3] == 0 and float(weights.sum()) == pytest.approx(1)
    assert (weights[:3] > 0.25).all()
    assert judged_weights(torch.zeros(4, 2, 5)).eq(0.25).all()


def test_judged_mixing_steps_by_the_weights_of_what_was_sent():
    federated, own = replace(federation(), judges=True), postures([0.7], [0.5])
    ends = run(Network(window=float(ROUNDS)), own, federated).weights[0]
    sums = observed(own, federated, Network(window=float(ROUNDS)))
    sent = torch.stack([
        sum(own.step_sizes[number] * sums[client, number][0] / BATCH for number in range(ROUNDS))
        for client in range(CLIENTS)
    ])  # fmt: skip
    weights = judged_weights(sent[:, None])[:, 0]
    torch.testing.assert_close(ends, -(weights[:, None] * sent).sum(0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("network", [Network(), Network(delay=1.5, jitter=1.0, broadcast_loss=0.3)])
def test_a_guard_that_never_bites_changes_nothing(network):
    federated, own = federation(), postures([0.7], [0.5])
    expected = run(network, own, federated)
    guard = replace(network, max_distance=1e9)
    trained, program = run_guarded(federated, guard, own, lambda: None, lengths=[Fraction(1)] * ROUNDS, epochs=2)
    torch.testing.assert_close(trained.weights, expected.weights, rtol=0, atol=0)
    assert trained.accuracy_pct == expected.accuracy_pct and program.simulated_rounds > 0


def test_a_client_starts_no_round_too_far_from_the_last_model():
    federated, own = federation(), postures([0.7], [0.5])
    guard = Network(delay=2.0, max_distance=1e-9)
    _, program = run_guarded(federated, guard, own, lambda: None, lengths=[Fraction(1)] * ROUNDS, epochs=2)
    for client in range(CLIENTS):
        kinds = [each for each in program.operations if getattr(each, "client", None) == client]
        starts = [place for place, each in enumerate(kinds) if isinstance(each, GradientEvent) and each.start == 0]
        assert all(isinstance(kinds[place - 1], Interrupt) for place in starts[1:])
    with pytest.raises(ValueError, match="2 variants"):
        run_guarded(federated, guard, postures([0.7] * 2, [0.5] * 2), print, lengths=[Fraction(1)], epochs=1)


def batch(sampling, round=0, records=50, batch_size=10, client=1):
    return round_batch(records, batch_size, sampling, seed=3, client=client, round=round)


@pytest.mark.parametrize("sampling", [Sampling.FIXED, Sampling.POISSON])
def test_no_record_twice_and_the_same_address_the_same_batch(sampling):
    own = batch(sampling)
    assert len(set(own)) == len(own) and own.min() >= 0 and own.max() < 50
    np.testing.assert_array_equal(own, batch(sampling))
    assert any(not np.array_equal(own, batch(sampling, **other)) for other in ({"round": 1}, {"client": 2}))


def test_sizes_and_shares_follow_the_law():
    # 2000 rounds: each record is drawn Binomial(2000, 0.2) times; 50 records, all within 5.5 deviations but for 2e-6.
    for sampling in (Sampling.FIXED, Sampling.POISSON):
        rounds = [batch(sampling, number) for number in range(2000)]
        counts = np.bincount(np.concatenate(rounds), minlength=50)
        assert np.abs(counts - 400).max() < 5.5 * np.sqrt(2000 * 0.2 * 0.8)
        sizes = np.array([len(each) for each in rounds])
        assert sizes.std() == 0 if sampling is Sampling.FIXED else abs(sizes.var() - 8) < 5 * 8 * np.sqrt(2 / 2000)


def test_the_order_within_a_batch_is_random():
    # An interrupt splits a batch in this order: Poisson batches must not stay sorted.
    firsts = np.array([batch(Sampling.POISSON, number, batch_size=25)[0] for number in range(400)])
    assert abs(firsts.mean() - 24.5) < 5 * np.sqrt((50**2 - 1) / 12 / 400)


@pytest.mark.parametrize(("size", "sampling"), [(0, Sampling.FIXED), (51, Sampling.FIXED), (10, Sampling.SHUFFLED)])
def test_what_cannot_be_drawn_is_refused(size, sampling):
    with pytest.raises(InputError, match=r"batch_size|sampling"):
        batch(sampling, batch_size=size)


@settings(max_examples=50, deadline=None)
@given(size=st.integers(1, 40), share=st.floats(0.01, 1.0), seed=st.integers(0, 5))
def test_what_is_kept_is_the_largest_and_unchanged(size, share, seed):
    update = torch.randn(2, size, generator=torch.Generator().manual_seed(seed))
    sent = largest_entries(update, share)
    kept = sent != 0
    assert kept.sum(1).tolist() == [int(np.ceil(share * size))] * 2
    assert torch.equal(sent[kept], update[kept])
    for row, mask in zip(update, kept, strict=True):
        if not mask.all():
            assert row[mask].abs().min() >= row[~mask].abs().max()


def test_everything_kept_is_the_update_itself():
    update = torch.randn(7)
    assert largest_entries(update, 1.0) is update


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5])
def test_a_share_out_of_range_is_named(share):
    with pytest.raises(ValueError, match="kept_share"):
        largest_entries(torch.ones(3), share)
