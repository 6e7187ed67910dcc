"""The verdict on a claim: on each side of a known epsilon, and for each sampler by name."""

import math
from dataclasses import fields

import pytest
from scipy.stats import norm

from dpfl.accounting.external_claims import Claim, ClaimVerdict, check, judge, sampler_named
from dpfl.accounting.guarantees import Guarantee, Phase
from dpfl.accounting.samplers import SAMPLERS, FullBatch, Poisson, Sampling, ShuffledEpochs

INTERVAL = Guarantee(upper=3.0, lower=1.0, upper_by="a proof", lower_by="a pair")


@pytest.mark.parametrize(
    ("epsilon", "verdict", "why"),
    [
        (0.99, ClaimVerdict.REFUTED, "a pair"),
        (1.0, ClaimVerdict.UNKNOWN, "not proven by: a proof; not refuted by: a pair"),
        (2.99, ClaimVerdict.UNKNOWN, "not proven by: a proof; not refuted by: a pair"),
        (3.0, ClaimVerdict.PROVEN, "a proof"),
    ],
)
def test_the_verdict_follows_from_the_interval(epsilon, verdict, why):
    found = judge(epsilon, INTERVAL)
    assert (found.verdict, found.why) == (verdict, why)


@pytest.mark.parametrize("epsilon", [-1.0, math.nan, math.inf, "3", None])
def test_an_epsilon_that_is_none_is_refused(epsilon):
    with pytest.raises(ValueError, match="epsilon"):
        judge(epsilon, INTERVAL)
    with pytest.raises(ValueError, match="epsilon"):
        Claim("no number", (Phase(FullBatch(), 1.0, 1),), 1e-5, epsilon)


def test_a_claim_needs_a_phase():
    with pytest.raises(ValueError, match="phases"):
        Claim("empty", (), 1e-5, 1.0)


def test_full_batches_are_decided_by_the_closed_form():
    # Two phases of one Gaussian step each: mu = sqrt(1/4 + 1/9), delta(eps) = Phi(mu/2 - eps/mu) - e^eps Phi(...).
    mu, epsilon = math.sqrt(1 / 4 + 1 / 9), 2.0
    delta = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    phases = (Phase(FullBatch(), 2.0, 1), Phase(FullBatch(), 3.0, 1))
    verdicts = [check(Claim("", phases, delta, claimed)).verdict for claimed in (0.999 * epsilon, 1.001 * epsilon)]
    assert verdicts == [ClaimVerdict.REFUTED, ClaimVerdict.PROVEN]


def test_an_observer_of_the_last_iterate_leaves_a_claim_open():
    run = (Phase(ShuffledEpochs(batch_size=10, records=100), 1.0, 30),)
    assert check(Claim("", run, 1e-5, 2.0)).verdict is ClaimVerdict.REFUTED
    assert check(Claim("", run, 1e-5, 2.0, observer="last_iterate")).verdict is ClaimVerdict.UNKNOWN


def test_samplers_are_made_by_name():
    settings = {"sample_rate": 0.1, "batch_size": 10, "records": 100, "steps_per_epoch": 10}
    assert set(SAMPLERS) == set(Sampling)
    for name, kind in SAMPLERS.items():
        needed = {field.name: settings[field.name] for field in fields(kind)}
        assert sampler_named(name, **needed) == kind(**needed)
    assert sampler_named("poisson", sample_rate=0.1) == Poisson(0.1)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("bingo", {}, "sampler must be one of"),
        ("poisson", {}, "poisson needs sample_rate, got none"),
        ("full_batch", {"records": 3}, "no setting of its own, got records"),
        ("poisson", {"sample_rate": 2.0}, "sample_rate must be at most 1"),
    ],
)
def test_a_wrong_sampler_is_named(name, settings, message):
    with pytest.raises(ValueError, match=message):
        sampler_named(name, **settings)
