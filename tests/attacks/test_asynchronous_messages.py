"""Messages of asynchronous DP-SGD on chosen records and with canaries: their law, and faults that they show."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp

from dpfl.asynchronous import async_sgd
from dpfl.asynchronous.events import Network
from dpfl.asynchronous.schedules import normalised
from dpfl.attacks.lower_bounds import log_likelihood_ratio, simulate
from dpfl.attacks.messages import AsyncMessageRun, canary_scores, chosen_law, chosen_observations
from dpfl.attacks.one_run import coins, right_guesses

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
    seen = chosen_observations(run, RECORDS, TRIALS)
    assert seen.shape == (2, TRIALS, 1, ROUNDS)
    for world in (0, 1):
        simulated = simulate(law, (4000, 1, ROUNDS), world=world, seed=5)
        assert ks_2samp(*(log_likelihood_ratio(each, law) for each in (seen[world], simulated))).pvalue > 1e-4


def test_without_noise_a_message_shows_whether_the_record_was_drawn():
    seen = chosen_observations(setting("interrupted", noise_multiplier=0.0), RECORDS, 40)
    assert set(np.round(seen[0], 4).ravel()) == {0, 2} and set(np.round(seen[1], 4).ravel()) == {0}
    assert abs((np.round(seen[0]) == 2).mean() - BATCH / RECORDS) < 0.12


def test_batch_normalisation_shows_the_record_by_more_than_its_own_gradient():
    run = setting(normalise=partial(normalised, axis=0))
    p, q = chosen_law(run, RECORDS).shifts
    assert p == pytest.approx(-q, rel=1e-5) and abs(p - q) > 2.5
    quiet = chosen_observations(replace(run, noise_multiplier=0.0), RECORDS, 40)
    assert set(np.round(quiet[0], 3).ravel()) == {0, np.float64(np.round(p, 3))}


@pytest.mark.parametrize(("forgotten", "found"), [(False, False), (True, True)])
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
    seen = chosen_observations(run, RECORDS, TRIALS)
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
    scores = canary_scores(run, inputs, labels, shares, included, 3)
    assert scores.shape == (80,)
    assert least <= right_guesses(scores, included, 40) <= most
