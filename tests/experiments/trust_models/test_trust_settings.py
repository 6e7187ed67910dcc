import math

import pytest

from dpfl.accounting import gaussian_dp, isrl_dp
from dpfl.accounting.contraction import pnsgd_gaussian_delta
from dpfl.accounting.samplers import Sampling
from dpfl.errors import InputError
from dpfl.experiments.trust_models.trust_settings import (
    LOCAL,
    TRUST_MODEL,
    TrustAlgorithm,
    TrustCell,
    noise_scale,
    privacy,
)

SETTINGS = {
    "users": 400,
    "clients": 5,
    "batch_size": 20,
    "local_batch_size": 8,
    "rounds": 6,
    "passes": 2,
    "radius": 1.0,
    "regularisation": 0.1,
    "delta": 1e-4,
    "step": 1.0,
    "epsilon": 2.0,
}
DIMENSION = 1


def plan(way, **changes) -> TrustCell:
    return TrustCell.of(SETTINGS | changes, {"way": way})


@pytest.mark.parametrize("way", TrustAlgorithm)
def test_every_way_spends_the_budget_and_says_so(way):
    chosen = plan(way)
    columns = privacy(chosen, noise_scale(chosen, DIMENSION), DIMENSION)
    spent = (
        columns["privacy_epsilon_contraction"]
        if "last model" in TRUST_MODEL[way]
        else columns["privacy_epsilon_proven"]
    )
    assert 0.98 * 2.0 <= spent <= 2.0 * (1 + 1e-9)
    assert columns["privacy_trust"] == TRUST_MODEL[way]
    assert columns["privacy_records"] == (
        80 if way in (*LOCAL, TrustAlgorithm.SHUFFLED, TrustAlgorithm.MINIBATCH) else 400
    )


def test_pnsgd_is_theorem_4_averaged_over_places():
    chosen = plan(TrustAlgorithm.PNSGD)
    theory = {"eta": 1.0, "lipschitz": 1.0, "smoothness": 0.35, "strong_convexity": 0.1, "diameter": 2.0}
    places = range(1, 401)
    sigma = noise_scale(chosen, DIMENSION)
    mean = sum(float(pnsgd_gaussian_delta(2.0, i=i, n=400, sigma=sigma, **theory)) for i in places) / 400
    assert mean == pytest.approx(1e-4, rel=1e-6)


def test_the_mean_of_the_messages_has_the_noise_of_its_clients():
    chosen = plan(TrustAlgorithm.MINIBATCH)
    # One client's mean of 80 records, six rounds: mu = 2 sqrt(6)/(80 sigma), sigma the message's deviation.
    message = noise_scale(chosen, DIMENSION) * math.sqrt(5)
    assert float(gaussian_dp.epsilon(1e-4, 2 * math.sqrt(6) / (80 * message))) == pytest.approx(2.0, rel=1e-9)
    assert noise_scale(plan(TrustAlgorithm.SHUFFLED), DIMENSION) < noise_scale(chosen, DIMENSION)
    central = noise_scale(plan(TrustAlgorithm.CENTRAL_FULL), DIMENSION)
    assert central * math.sqrt(5) == pytest.approx(noise_scale(chosen, DIMENSION), rel=1e-12)


@pytest.mark.parametrize("way", LOCAL)
def test_a_clients_own_steps_compose(way):
    chosen = plan(way)
    draws = {"batch_size": 8, "records": 80, "steps": 20, "delta": 1e-4, "sampling": Sampling.FIXED}
    spent = isrl_dp.epsilon(noise_multiplier=8 * noise_scale(chosen, DIMENSION), **draws)
    assert 2.0 * (1 - 2e-3) <= spent <= 2.0


@pytest.mark.parametrize("way", TrustAlgorithm)
def test_without_a_budget_there_is_no_noise(way):
    chosen = plan(way, epsilon=math.inf)
    assert noise_scale(chosen, DIMENSION) == 0
    assert privacy(chosen, 0.0, DIMENSION)["privacy_epsilon_proven"] == math.inf


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clients": 7}, "clients"),
        ({"batch_size": 401}, "batch_size"),
        ({"local_batch_size": 81}, "local_batch_size"),
        ({"epsilon": 0}, "epsilon"),
        ({"radius": -1.0}, "radius"),
        ({"rounds": 0}, "rounds"),
    ],
)
def test_bad_input_is_named(changes, words):
    with pytest.raises(InputError, match=words):
        plan(TrustAlgorithm.CENTRAL, **changes)
    with pytest.raises(InputError, match="way"):
        plan("trusting")
