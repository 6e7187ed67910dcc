import math

import pytest

from dpfl.accounting import gaussian_dp, local_privacy
from dpfl.accounting.contraction import pnsgd_gaussian_delta
from dpfl.accounting.samplers import Sampling
from dpfl.convex.trust_models import LOCAL, TRUST_MODEL, TrustAlgorithm, TrustCell, noise_std, privacy
from dpfl.errors import InputError

SETTINGS = {
    "model": "pooled_logistic",
    "dimension": 1,
    "delay": 3,
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


def plan(algorithm, **changes) -> TrustCell:
    return TrustCell.of(SETTINGS | changes, {"algorithm": algorithm})


@pytest.mark.parametrize("algorithm", TrustAlgorithm)
def test_every_algorithm_spends_the_budget_and_says_so(algorithm):
    chosen = plan(algorithm)
    columns = privacy(chosen, noise_std(chosen))
    spent = (
        columns["privacy_epsilon_contraction"]
        if "last model" in TRUST_MODEL[algorithm]
        else columns["privacy_epsilon_proven"]
    )
    assert 0.98 * 2.0 <= spent <= 2.0 * (1 + 1e-9)
    assert columns["privacy_trust"] == TRUST_MODEL[algorithm]
    assert columns["privacy_records"] == (
        80 if algorithm in (*LOCAL, TrustAlgorithm.SHUFFLED, TrustAlgorithm.MINIBATCH) else 400
    )


def test_pnsgd_is_theorem_4_averaged_over_places():
    chosen = plan(TrustAlgorithm.PNSGD)
    theory = {"eta": 1.0, "lipschitz": 1.0, "smoothness": 0.35, "strong_convexity": 0.1, "diameter": 2.0}
    places = range(1, 401)
    sigma = noise_std(chosen)
    mean = sum(float(pnsgd_gaussian_delta(2.0, i=i, n=400, sigma=sigma, **theory)) for i in places) / 400
    assert mean == pytest.approx(1e-4, rel=1e-6)


def test_the_mean_of_the_messages_has_the_noise_of_its_clients():
    chosen = plan(TrustAlgorithm.MINIBATCH)
    # One client's mean of 80 records, six rounds: mu = 2 sqrt(6)/(80 sigma), sigma the message's deviation.
    message = noise_std(chosen) * math.sqrt(5)
    assert float(gaussian_dp.epsilon(1e-4, 2 * math.sqrt(6) / (80 * message))) == pytest.approx(2.0, rel=1e-9)
    assert noise_std(plan(TrustAlgorithm.SHUFFLED)) < noise_std(chosen)
    central = noise_std(plan(TrustAlgorithm.CENTRAL_FULL))
    assert central * math.sqrt(5) == pytest.approx(noise_std(chosen), rel=1e-12)


@pytest.mark.parametrize("algorithm", LOCAL)
def test_a_clients_own_steps_compose(algorithm):
    chosen = plan(algorithm)
    draws = {"batch_size": 8, "records": 80, "steps": 20, "delta": 1e-4, "sampling": Sampling.FIXED}
    spent = local_privacy.epsilon(noise_multiplier=8 * noise_std(chosen), **draws)
    assert 2.0 * (1 - 2e-3) <= spent <= 2.0


@pytest.mark.parametrize("algorithm", TrustAlgorithm)
def test_without_a_budget_there_is_no_noise(algorithm):
    chosen = plan(algorithm, epsilon=math.inf)
    assert noise_std(chosen) == 0
    assert privacy(chosen, 0.0)["privacy_epsilon_proven"] == math.inf


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
    with pytest.raises(InputError, match="algorithm"):
        plan("trusting")
