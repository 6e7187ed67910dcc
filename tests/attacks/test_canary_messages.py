"""Scores of canaries in messages: the law of a message, coins without noise, and the laws of whole scores."""

import math

import numpy as np
import pytest
from scipy.stats import binom, kstest, norm

from dpfl.accounting.samplers import Sampling
from dpfl.attacks.messages import MessageRun, log_law, message_scores
from dpfl.convex.federated_rounds import Clipping

FALSE_ALARM = 1e-6
"""Chance that correct code fails one of the statistical tests below (their seeds are fixed)."""
RUN = MessageRun(3, 10, Sampling.FIXED, Clipping.RECORD, 2.0, (0.0,), 1)


@pytest.mark.parametrize("drawn", [0.1, 1.0])
def test_the_law_of_a_message_is_the_mixture_s(drawn):
    seen, shift = np.array([-1.0, 0.0, 2.5]), 1.3
    mixture = (1 - drawn) * norm.pdf(seen) + drawn * norm.pdf(seen, shift)
    np.testing.assert_allclose(log_law(seen, np.array(shift), drawn), np.log(mixture / norm.pdf(seen)), atol=1e-12)


@pytest.mark.parametrize("clipping", list(Clipping))
def test_messages_without_noise_tell_every_coin_that_was_drawn(clipping):
    included = np.array([1, 0, 1, 1, 0, 0])
    message = MessageRun(3, 10, Sampling.FIXED, clipping, 2.0, (0.0,), 1)
    scores = message_scores(message, np.ones((4, 3)), np.ones(4), included)
    assert ((scores[0] > 0) == included.astype(bool)).all()


@pytest.mark.parametrize(("clipping", "share"), [(Clipping.RECORD, 1 / 500), (Clipping.MEAN, 1 / math.sqrt(500))])
def test_scores_of_canaries_that_are_always_in_are_normal(clipping, share):
    """Full batches of 500 canaries, no other record: each moves every message by s = share * 2 / noise deviations.

    The log likelihood ratio of a coordinate z is then 2 s z with z ~ N(+-s, 1): over three rounds N(+-6 s^2, 12 s^2).
    """
    included = np.arange(500) % 2
    noise = (0.004, 0.05)
    run = MessageRun(3, 500, Sampling.FULL, clipping, 2.0, noise, 4)
    scores = message_scores(run, np.zeros((0, 1)), np.zeros(0), included)
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
    [scores] = message_scores(run, np.ones((4, 2)), np.zeros(4), included)
    s = 2.0 / 10 / 0.01
    each = s**2 / 2 + math.log(1 / 40) - math.log(39 / 40)  # against the other coin, which has to be no draw at all
    uses = np.abs(scores) / each
    whole = np.round(uses)
    assert np.abs(uses - whole).max() < 6 * math.sqrt(20) * s / each
    assert (np.sign(scores)[whole > 0] == (2 * included - 1)[whole > 0]).all()
    seen, chance = int((whole == 0).sum()), binom.pmf(0, 20, 1 / 40)
    # Canaries exclude each other in a batch: counts vary less than independent ones.
    assert abs(seen - 396 * chance) < norm.isf(FALSE_ALARM / 2) * math.sqrt(396 * chance * (1 - chance))
