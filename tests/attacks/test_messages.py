"""Messages of clients as an attacker reads them: their law, scores of canaries, and faults that they show."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from scipy.stats import binom, ks_2samp, kstest, norm

from dpfl.accounting.samplers import Sampling
from dpfl.asynchronous import async_sgd
from dpfl.asynchronous.events import Network
from dpfl.asynchronous.schedules import normalised
from dpfl.attacks.lower_bounds import log_likelihood_ratio, simulate
from dpfl.attacks.messages import (
    AsyncMessageRun,
    MessageRun,
    canary_scores,
    chosen_evidence,
    chosen_law,
    chosen_observations,
    log_law,
    message_law,
    message_observations,
    message_pair,
    message_scores,
)
from dpfl.attacks.one_run import coins, right_guesses
from dpfl.convex.federated_rounds import Clipping
from dpfl.engine.per_record_gradients import LinearGradients

FALSE_ALARM = 1e-6
"""Chance that correct code fails one of the statistical tests below (their seeds are fixed)."""


@pytest.mark.parametrize("drawn", [0.1, 1.0])
def test_the_law_of_a_message_is_the_mixture_s(drawn):
    seen, shift = np.array([-1.0, 0.0, 2.5]), 1.3
    mixture = (1 - drawn) * norm.pdf(seen) + drawn * norm.pdf(seen, shift)
    np.testing.assert_allclose(log_law(seen, np.array(shift), drawn), np.log(mixture / norm.pdf(seen)), atol=1e-12)


@pytest.mark.parametrize("clipping", list(Clipping))
def test_messages_without_noise_tell_every_coin_that_was_drawn(clipping):
    included = np.array([1, 0, 1, 1, 0, 0])
    message = MessageRun(3, 10, Sampling.FIXED, clipping, 2.0, (0.0,), 1)
    scores, [evidence] = message_scores(message, np.ones((4, 3)), np.ones(4), included)
    assert ((scores[0] > 0) == included.astype(bool)).all()
    assert (evidence.draws, evidence.values) == (18, 0)  # batches of all 10 records
    if clipping is Clipping.RECORD:
        assert evidence.total == pytest.approx(18)


@pytest.mark.parametrize(("clipping", "share"), [(Clipping.RECORD, 1 / 500), (Clipping.MEAN, 1 / math.sqrt(500))])
def test_scores_of_canaries_that_are_always_in_are_normal(clipping, share):
    """Full batches of 500 canaries, no other record: each moves every message by s = share * 2 / noise deviations.

    The log likelihood ratio of a coordinate z is then 2 s z with z ~ N(+-s, 1): over three rounds N(+-6 s^2, 12 s^2).
    """
    included = np.arange(500) % 2
    noise = (0.004, 0.05)
    run = MessageRun(3, 500, Sampling.FULL, clipping, 2.0, noise, 4)
    scores, _ = message_scores(run, np.zeros((0, 1)), np.zeros(0), included)
    for own, std in zip(scores, noise, strict=True):
        s = share * 2.0 / std
        for coin, sign in ((1, 1), (0, -1)):
            standard = (own[included == coin] - sign * 6 * s**2) / math.sqrt(12 * s**2)
            assert kstest(standard, norm.cdf).pvalue > FALSE_ALARM


def test_a_canary_that_is_drawn_now_and_then_scores_by_how_often():
    """Hardly any noise: a message with the canary adds 2 s^2 and ln of the mixture's weights, one without it nothing.

    Batches of 10 of 400 records, 20 rounds: the number of uses is Binomial(20, 1/40).
    """
    included = np.arange(396) % 2
    run = MessageRun(20, 10, Sampling.FIXED, Clipping.RECORD, 2.0, (0.01,), 2)
    [scores], [evidence] = message_scores(run, np.ones((4, 2)), np.zeros(4), included)
    s = 2.0 / 10 / 0.01
    each = s**2 / 2 + math.log(1 / 40) - math.log(39 / 40)  # against the other coin, which has to be no draw at all
    uses = np.abs(scores) / each
    whole = np.round(uses)
    assert np.abs(uses - whole).max() < 6 * math.sqrt(20) * s / each
    assert (np.sign(scores)[whole > 0] == (2 * included - 1)[whole > 0]).all()
    seen, chance = int((whole == 0).sum()), binom.pmf(0, 20, 1 / 40)
    assert evidence.draws == whole.sum() and evidence.values == 20 * 396 - evidence.draws
    far = norm.isf(FALSE_ALARM)
    assert abs(evidence.total / evidence.draws - 1) < far / s / math.sqrt(evidence.draws)
    assert abs(evidence.squares * s**2 - evidence.values) < far * math.sqrt(2 * evidence.values)
    # Canaries exclude each other in a batch: counts vary less than independent ones.
    assert abs(seen - 396 * chance) < norm.isf(FALSE_ALARM / 2) * math.sqrt(396 * chance * (1 - chance))


# Messages of minibatch SGD on chosen records: sums written out, and the law that the statistics assume.


CHOSEN = MessageRun(3, 5, Sampling.FIXED, Clipping.RECORD, 2.0, (0.0,), 1)


@pytest.mark.parametrize(
    ("clipping", "values"),
    [(Clipping.RECORD, ({0, 2}, {0})), (Clipping.MEAN, ({0, 5}, {0, -5}))],  # the mean is clipped to 1, which is 5/5
)
def test_without_noise_a_message_shows_whether_the_record_was_drawn(clipping, values):
    seen = message_observations(
        replace(CHOSEN, clipping=clipping),
        20,
        200,
    )
    assert seen.shape == (1, 2, 200, 1, 3)
    for world in (0, 1):
        assert set(np.round(seen[0, world], 4).ravel()) == values[world]
    drawn = (np.round(seen[0, 0]) != 0).mean()
    assert abs(drawn - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 600)


@pytest.mark.parametrize("sampling", [Sampling.FIXED, Sampling.WITH_REPLACEMENT, Sampling.FULL])
@pytest.mark.parametrize("clipping", list(Clipping))
def test_messages_have_the_law_that_is_simulated(sampling, clipping):
    # Twelve comparisons, each with a false-alarm rate of 1e-4. The noise is 3 clip norms over the batch size.
    records = 5 if sampling is Sampling.FULL else 12
    run = replace(CHOSEN, sampling=sampling, clipping=clipping, noise_stds=(9.9, 3 * 2.0 / 5))
    law = message_law(run, records, run.noise_stds[1])
    assert law.noise_multiplier == pytest.approx(3)
    seen = message_observations(run, records, 1500)[1]
    for world in (0, 1):
        if sampling is Sampling.WITH_REPLACEMENT and clipping is Clipping.MEAN:
            continue  # drawn twice, the record moves a clipped mean no further; the law is a guide there
        simulated = simulate(law, (6000, 1, 3), world=world, seed=5)
        assert ks_2samp(*(log_likelihood_ratio(each, law) for each in (seen[world], simulated))).pvalue > 1e-4


def test_mates_are_hostile_unless_the_mean_is_clipped():
    assert message_pair(CHOSEN).mates == -1
    assert message_pair(replace(CHOSEN, clipping=Clipping.MEAN)).mates == 0


# Messages of asynchronous DP-SGD on chosen records and with canaries: their law, and faults that they show.


RECORDS, BATCH, ROUNDS, TRIALS = 24, 4, 6, 300
NETWORKS = {
    "synchronous": Network(),
    "interrupted": Network(delay=1.5, jitter=1.0, broadcast_loss=0.3, speed_spread=3.0, window=0.25),
    "guarded": Network(broadcast_loss=0.5, max_distance=0.5, participation=0.5),
}


def setting(network="synchronous", noise_multiplier=1.5, **changed) -> AsyncMessageRun:
    return AsyncMessageRun(
        network=NETWORKS[network], rounds=ROUNDS, epochs=1, batch_size=BATCH, clip_norm=0.5,
        noise_multiplier=noise_multiplier, learning_rate=0.5, seed=3, **changed,
    )  # fmt: skip


@pytest.mark.parametrize("network", sorted(NETWORKS))
def test_messages_have_the_law_that_the_statement_assumes(network):
    # Six comparisons, each with a false-alarm rate of 1e-4.
    run = setting(network)
    law = chosen_law(run, RECORDS)
    assert law.shifts == (2.0, 0.0) and law.noise_multiplier == 1.5
    seen, _ = chosen_observations(run, RECORDS, TRIALS)
    assert seen.shape == (2, TRIALS, 1, ROUNDS)
    for world in (0, 1):
        simulated = simulate(law, (4000, 1, ROUNDS), world=world, seed=5)
        assert ks_2samp(*(log_likelihood_ratio(each, law) for each in (seen[world], simulated))).pvalue > 1e-4


def test_without_noise_an_asynchronous_message_shows_it_too():
    seen, drawn = chosen_observations(setting("interrupted", noise_multiplier=0.0), RECORDS, 40)
    assert ((np.round(seen[0]) == 2) == (drawn[0] == 1)).all()
    assert set(np.round(seen[0], 4).ravel()) == {0, 2} and set(np.round(seen[1], 4).ravel()) == {0}
    assert abs((np.round(seen[0]) == 2).mean() - BATCH / RECORDS) < 0.12


@pytest.mark.parametrize("network", sorted(NETWORKS))
def test_messages_show_the_pull_of_every_record_and_the_noise_elsewhere(network):
    clients, quiet = 40, chosen_evidence(setting(network, noise_multiplier=0.0), RECORDS, 5)
    assert quiet.total == pytest.approx(quiet.draws, rel=1e-5) and quiet.squares < 1e-12
    found = chosen_evidence(setting(network), RECORDS, clients)
    assert found.draws == clients * ROUNDS * BATCH
    assert found.draws + found.values == clients * ROUNDS * RECORDS
    within = norm.isf(FALSE_ALARM)
    assert found.total == pytest.approx(found.draws, abs=within * 1.5 * math.sqrt(found.draws))
    assert found.squares / 1.5**2 == pytest.approx(found.values, abs=within * math.sqrt(2 * found.values))


def test_messages_show_a_client_that_clips_to_twice_its_norm(monkeypatch):
    """A planted fault."""
    right = LinearGradients.clipped_sums
    monkeypatch.setattr(LinearGradients, "clipped_sums", lambda rule, w, batch, norms: right(rule, w, batch, 2 * norms))
    found = chosen_evidence(setting(noise_multiplier=0.0), RECORDS, 4)
    assert found.total == pytest.approx(2 * found.draws, rel=1e-5)


def test_batch_normalisation_shows_the_record_by_more_than_its_own_gradient():
    run = setting(normalise=partial(normalised, axis=0))
    p, q = chosen_law(run, RECORDS).shifts
    assert p == pytest.approx(-q, rel=1e-5) and abs(p - q) > 2.5
    quiet, _ = chosen_observations(replace(run, noise_multiplier=0.0), RECORDS, 40)
    assert set(np.round(quiet[0], 3).ravel()) == {0, np.float64(np.round(p, 3))}


@pytest.mark.parametrize(("forgotten", "found"), [pytest.param(False, False, marks=pytest.mark.slow), (True, True)])
def test_a_client_that_keeps_its_sum_for_the_next_round_is_told_from_one_that_does_not(monkeypatch, forgotten, found):
    """A planted fault: the sum of a round is not cleared, so a record that was drawn stays in all later messages."""
    if forgotten:
        original = async_sgd._Executor.end_round

        def end_round(self, end):
            kept = self.sums[end.client].clone()
            original(self, end)
            self.sums[end.client] += kept

        monkeypatch.setattr(async_sgd._Executor, "end_round", end_round)
    run = setting("interrupted")
    seen, _ = chosen_observations(run, RECORDS, TRIALS)
    law = chosen_law(run, RECORDS)
    simulated = simulate(law, (4000, 1, ROUNDS), world=0, seed=5)
    p_value = ks_2samp(*(log_likelihood_ratio(each, law) for each in (seen[0], simulated))).pvalue
    assert (p_value < 1e-4) == found


@pytest.mark.parametrize(("noise_multiplier", "least", "most"), [(0.0, 40, 40), (200.0, 8, 32)])
def test_canaries_are_guessed_without_noise_and_not_through_it(noise_multiplier, least, most):
    draw = torch.Generator().manual_seed(0)
    inputs, labels = torch.rand(120, 5, generator=draw), torch.arange(120) % 3
    included = coins(0, 80)
    run = replace(setting("interrupted", noise_multiplier), batch_size=20, rounds=12)
    shares = np.split(np.arange(120), 3)
    scores, evidence = canary_scores(run, inputs, labels, shares, included, 3)
    assert scores.shape == (80,)
    # 12 rounds of 3 clients draw 20 of 40 records each, of which the canaries are two thirds.
    assert evidence.draws + evidence.values == 12 * 80 and abs(evidence.draws - 480) < 90
    if noise_multiplier == 0:
        assert 0.95 * evidence.draws < evidence.total <= evidence.draws and evidence.squares < 1e-9
    else:
        # The record's pull is a hundredth of the noise.
        variance = evidence.squares / evidence.values
        assert variance == pytest.approx(noise_multiplier**2, rel=norm.isf(FALSE_ALARM) * math.sqrt(2 / 480))
    assert least <= right_guesses(scores, included, 40) <= most
