"""Privacy of silos: what is spent against other accountants and Monte Carlo, rates against the print."""

import inspect
import math

import mpmath
import mpmath as mp
import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

from dpfl.accounting import dpsgd, gaussian_dp, local_privacy
from dpfl.accounting.samplers import Sampling

# The noise of lowy2021 and what it spends.

ROUNDS = 35


def run(n: int, epsilon: float, variance) -> tuple[float, float]:
    """The paper's delta = 1/n^2 and the noise deviation of that formula at L = 1."""
    delta = 1 / n**2
    return delta, math.sqrt(variance(epsilon=epsilon, delta=delta, lipschitz=1.0, rounds=ROUNDS, records=n))


@pytest.mark.parametrize(("epsilon", "spent"), [(0.125, 0.0023), (1, 0.024), (3, 0.081), (10, 0.30)])
def test_the_theorem_suffices_and_is_33_to_56_times_loose(epsilon, spent):
    n = 356
    delta, sigma = run(n, epsilon, local_privacy.advanced_composition_variance)
    ours = local_privacy.epsilon(
        noise_multiplier=sigma * n, batch_size=n, records=n, steps=ROUNDS, delta=delta, sampling=Sampling.FULL
    )
    assert ours == pytest.approx(spent, rel=0.03)
    assert 33 <= epsilon / ours <= 56


def test_local_sgd_is_far_outside_the_later_script():
    n, local_steps = 356, 65
    bound = local_privacy.largest_moments_epsilon(batch_size=1, steps=local_steps * ROUNDS, records=n)
    assert bound == pytest.approx(4 * local_steps * ROUNDS / n**2)
    assert bound < 0.1


@pytest.mark.parametrize(("batch", "records", "sigma"), [(10, 10, 1.0), (5, 10, 1.0), (50, 100, 2.0)])
def test_a_clipped_mean_of_a_fixed_batch_turns_with_the_chance_that_it_holds_the_record(batch, records, sigma):
    """One step, by the divergence of N(0, 1) and its mixture with N(2/sigma, 1), in closed form."""
    arguments = {"batch_size": batch, "records": records, "steps": 1, "delta": 1e-5, "sigma_over_lipschitz": sigma}
    spent = local_privacy.clipped_mean_epsilon(**arguments, sampling=Sampling.FIXED)
    rate, mu = batch / records, 2 / sigma
    inner = math.log1p(math.expm1(spent) / rate)
    assert rate * gaussian_dp.delta(inner, mu) == pytest.approx(1e-5, rel=1e-3)
    assert spent > local_privacy.clipped_mean_epsilon(**arguments)
    for sampling in (Sampling.FULL, "fixed"):
        with pytest.raises(ValueError, match="sampling must be FIXED or WITH_REPLACEMENT"):
            local_privacy.clipped_mean_epsilon(**arguments, sampling=sampling)


@pytest.mark.parametrize("sampling", [Sampling.FIXED, Sampling.WITH_REPLACEMENT])
@pytest.mark.parametrize(("sigma", "steps"), [(4.0, 10), (1.0, 35), pytest.param(20.0, 200, marks=pytest.mark.slow)])
def test_turning_a_clipped_mean_is_between_both_bounds(sigma, steps, sampling):
    """dp_accounting's own distributions of the pair, errors on either side, bracket what it spends."""
    run = {"batch_size": 20, "records": 100, "steps": steps, "delta": 1e-5, "sigma_over_lipschitz": sigma}
    chance = 0.2 if sampling is Sampling.FIXED else 1 - 0.99**20
    low, high = (
        from_gaussian_mechanism(sigma / 2, sampling_prob=chance, pessimistic_estimate=above)
        .self_compose(steps)
        .get_epsilon_for_delta(1e-5)
        for above in (False, True)
    )
    known = local_privacy.clipped_mean_known_epsilon(**run, sampling=sampling)
    most = local_privacy.clipped_mean_epsilon(**run, sampling=sampling)
    assert low * (1 - 1e-3) <= known <= high <= most * (1 + 1e-3)
    assert known > 0.9 * most


@pytest.mark.parametrize(
    ("n", "largest", "advanced", "moments"), [(446, 10, 37, 119), (134, 10, None, None), (134, 3, None, 19)]
)
def test_batch_sizes_of_the_scripts(n, largest, advanced, moments):
    if advanced:
        floor = local_privacy.least_batch_advanced(epsilon=largest, delta=1 / n**2, rounds=ROUNDS, records=n)
        assert math.floor(floor) == advanced
    if moments:
        assert math.floor(local_privacy.least_batch_moments(epsilon=largest, rounds=ROUNDS, records=n)) == moments


@settings(max_examples=25, deadline=None)
@given(epsilon=st.floats(0.01, 1), delta=st.floats(1e-12, 0.1), lipschitz=st.floats(0.1, 100))
def test_one_pass_noise_suffices(epsilon, delta, lipschitz):
    sigma = math.sqrt(local_privacy.one_pass_variance(epsilon=epsilon, delta=delta, lipschitz=lipschitz))
    assert gaussian_dp.delta(epsilon, 2 * lipschitz / sigma) <= delta


def test_formulas_are_the_printed_ones_and_broadcast():
    epsilon = np.array([[0.5], [2.0]])
    n = np.array([100, 200, 400])
    ours = local_privacy.advanced_composition_variance(epsilon=epsilon, delta=1e-5, lipschitz=3.0, rounds=35, records=n)
    assert ours == pytest.approx(256 * 9 * 35 * np.log(2.5 * 35 / 1e-5) * np.log(2e5) / (n * epsilon) ** 2)
    moments = local_privacy.moments_variance(epsilon=epsilon, delta=1e-5, lipschitz=3.0, rounds=35, records=n)
    assert moments == pytest.approx(8 * 9 * 35 * np.log(1e5) / (n * epsilon) ** 2)
    assert local_privacy.one_pass_variance(epsilon=0.5, delta=1e-5, lipschitz=3.0) == pytest.approx(
        8 * 9 * math.log(1.25e5) / 0.25
    )


def mixture_delta(epsilon: float, noise_multiplier: float, rate: float) -> float:
    """The divergence of (1 - rate) N(0) + rate N(2/noise_multiplier) from N(0), by its crossing point."""
    mu = 2 / noise_multiplier
    cut = math.log((math.exp(epsilon) - 1 + rate) / rate) / mu + mu / 2
    return (1 - rate - math.exp(epsilon)) * norm.sf(cut) + rate * norm.sf(cut - mu)


def test_one_step_without_replacement_is_the_mixture():
    arguments = {"noise_multiplier": 2.0, "batch_size": 10, "records": 100, "steps": 1, "delta": 1e-4}
    ours = local_privacy.epsilon(**arguments, sampling=Sampling.FIXED)
    assert mixture_delta(ours, 2.0, 0.1) == pytest.approx(1e-4, rel=3e-5)
    assert mixture_delta(ours, 2.0, 0.1) <= 1e-4


def test_many_steps_without_replacement_cover_the_poisson_mixture():
    arguments = {"steps": 30, "delta": 1e-5}
    ours = local_privacy.epsilon(noise_multiplier=3.0, batch_size=10, records=100, sampling=Sampling.FIXED, **arguments)
    half = dpsgd.epsilon(noise_multiplier=1.5, sample_rate=0.1, **arguments)
    assert half <= ours <= 1.15 * half


def test_with_replacement_one_step_is_the_group_profile():
    noise, batch, n, delta = 4.0, 8, 50, 1e-5
    ours = local_privacy.epsilon(
        noise_multiplier=noise, batch_size=batch, records=n, steps=1, delta=delta, sampling=Sampling.WITH_REPLACEMENT
    )
    rate = 1 - (1 - 1 / n) ** batch
    inner = math.log1p(math.expm1(ours) / rate)
    j = np.arange(1, batch + 1)
    assert binom.pmf(j, batch, 1 / n) @ gaussian_dp.delta(inner, 2 * j / noise) == pytest.approx(delta, rel=1e-4)


def test_the_known_loss_lies_below_the_bound_and_above_a_simulation():
    noise, batch, n, steps, delta, runs = 3.0, 6, 20, 5, 1e-2, 200_000
    arguments = {"noise_multiplier": noise, "batch_size": batch, "records": n, "steps": steps, "delta": delta}
    known = local_privacy.with_replacement_known_epsilon(**arguments)
    assert known <= local_privacy.epsilon(**arguments, sampling=Sampling.WITH_REPLACEMENT)
    draw, mu, loss = np.random.default_rng(2), 2 / noise, np.zeros(runs)
    weights = binom.pmf(np.arange(batch + 1), batch, 1 / n)
    for _ in range(steps):
        z = draw.standard_normal(runs) + mu * draw.binomial(batch, 1 / n, runs)
        loss += np.log(sum(w * np.exp(j * mu * z - (j * mu) ** 2 / 2) for j, w in enumerate(weights)))
    gains = np.maximum(0, -np.expm1(known - loss))
    # 4.75 standard errors: false alarm 2e-6
    assert abs(gains.mean() - delta) < 4.75 * gains.std() / math.sqrt(runs)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "noise", [pytest.param(0.2, marks=pytest.mark.slow), pytest.param(0.1, marks=pytest.mark.slow), 0.05]
)
def test_one_step_of_little_noise_against_80_digits(noise):
    """epsilon at delta in the hundreds and thousands: e^epsilon overflows, the loss does not."""
    batch, n, delta = 10, 100, 1e-5
    run = {"noise_multiplier": noise, "batch_size": batch, "records": n, "steps": 1, "delta": delta}
    known = local_privacy.with_replacement_known_epsilon(**run)
    with mp.workdps(80):
        shifts = [2 * j / mp.mpf(noise) for j in range(batch + 1)]
        weights = [mp.binomial(batch, j) * mp.mpf(n - 1) ** (batch - j) / mp.mpf(n) ** batch for j in range(batch + 1)]

        def spent(cut):
            loss = mp.fsum(w * mp.exp(s * cut - s**2 / 2) for w, s in zip(weights, shifts, strict=True))
            above = mp.fsum(w * mp.ncdf(s - cut) for w, s in zip(weights, shifts, strict=True))
            return above - loss * mp.ncdf(-cut), mp.log(loss)

        low, high = mp.mpf(0), shifts[-1] + 10
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if spent(middle)[0] > delta else (low, middle)
        exact = float(spent(low)[1])
    assert known == pytest.approx(exact, rel=1e-3)
    assert known <= local_privacy.epsilon(**run, sampling=Sampling.WITH_REPLACEMENT)


GOOD = {"noise_multiplier": 2.0, "batch_size": 10, "records": 100, "steps": 3, "delta": 1e-5}


def test_full_batches_of_fewer_records_are_refused():
    with pytest.raises(ValueError, match="batch_size"):
        local_privacy.epsilon(**GOOD, sampling=Sampling.FULL)


def test_local_epsilon_rises_as_delta_falls():
    deltas = 10.0 ** -np.arange(9.0, 40.0, 10.0)
    run = {"noise_multiplier": 2.0, "batch_size": 10, "records": 100, "steps": 35}
    for sampling in (Sampling.FIXED, Sampling.WITH_REPLACEMENT):
        spent = local_privacy.epsilon(**run, delta=deltas, sampling=sampling)
        assert np.all(np.diff(spent) > 0)
    # Without replacement the pair dominates that of Poisson batches and is dominated by that of full ones.
    spent = local_privacy.epsilon(**run, delta=deltas, sampling=Sampling.FIXED)
    assert np.all(spent >= dpsgd.epsilon(noise_multiplier=1.0, sample_rate=0.1, steps=35, delta=deltas) * (1 - 1e-5))
    assert np.all(spent <= gaussian_dp.epsilon(deltas, math.sqrt(35)))


def test_a_thousand_slots_are_about_their_root_mean_square():
    run = {"noise_multiplier": 100.0, "batch_size": 1000, "records": 1000, "steps": 35, "delta": 1e-6}
    known = local_privacy.with_replacement_known_epsilon(**run)
    # A thousand Poisson(1) multiplicities: about the Gaussian of their root mean square, and below the upper bound.
    assert known == pytest.approx(float(gaussian_dp.epsilon(1e-6, 2 * math.sqrt(35) / 100)), rel=0.2)
    assert known <= local_privacy.epsilon(**run, sampling=Sampling.WITH_REPLACEMENT)


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_more_slots_than_records_are_all_counted():
    run = {"noise_multiplier": 1000.0, "batch_size": 300, "records": 2, "steps": 1, "delta": 1e-5}
    known = local_privacy.with_replacement_known_epsilon(**run)
    assert known <= local_privacy.epsilon(**run, sampling=Sampling.WITH_REPLACEMENT) <= 1.05 * known
    # The only record fills every slot; of 3,000 slots, few of two records are next to impossible.
    run = {"noise_multiplier": 1000.0, "batch_size": 100, "records": 1, "steps": 1, "delta": 1e-5}
    full = float(gaussian_dp.epsilon(1e-5, 0.2))
    assert 0.999 * full <= local_privacy.with_replacement_known_epsilon(**run) <= full * (1 + 1e-9)
    assert local_privacy.with_replacement_known_epsilon(**run | {"batch_size": 3000, "records": 2}) > 9


def test_no_noise_is_looked_for_where_nothing_may_be_spent():
    with pytest.raises(ValueError, match="epsilon"):
        local_privacy.composed_sigma(0.0, 1e-5, 100, 100, 4, Sampling.FULL)


# Every rate and number of rounds of lowy2021 against its formula, copied anew from the print into mpmath.

# The print's own letters; k is K. One string a formula, so that a slip of the module is not copied.
PRINTED = {
    "iid_convex_rate": "L*D/sqrt(M) * (1/sqrt(n) + sqrt(d*ln(2/delta))/(eps*n))",
    "iid_strongly_convex_rate": "L**2/(mu*M) * (1/n + d*ln(2/delta)/(eps**2*n**2))",
    "one_pass_convex_rate": "beta*D**2/n**2 + L*D*sqrt(d*ln(1/delta))/(eps*sqrt(M*n))",
    "one_pass_strongly_convex_rate": "L*D*exp(-sqrt(mu/beta)*n) + L**2/mu * d*ln(1/delta)/(eps**2*M*n)",
    "erm_convex_rate": "L*D*(sqrt(d*ln(2/delta))/(eps*n*sqrt(M)))",
    "erm_strongly_convex_rate": "L**2/mu * (d*ln(2/delta)/(eps**2*n**2*M))",
    "lower_bound_convex": "L*D*(1/sqrt(N*n) + min(1, sqrt(d)/(eps*n*sqrt(N))))",
    "lower_bound_strongly_convex": "L**2/(mu*n*N) + L*D*min(1, d/(eps**2*n**2*N))",
    "iid_convex_rounds": "M*min(n, eps**2*n**2/d)",
    "iid_strongly_convex_rounds": "M*min(n, eps**2*n**2/d) * ln(D**2*mu**2*M**2*eps**2*n**3/(d*L**2))",
    "erm_convex_rounds": "max(sqrt(M)*eps*n/sqrt(d), eps**2*n**2/d * (1/k if M == N else 1))",
    "shuffled_convex_rounds": (
        "max(n**2*N**2*eps**2/M, N/M, min(n, eps**2*n**2*N**2/(d*M)), beta*D/L * min(sqrt(n*M), eps*n*N/sqrt(d)))"
    ),
    "shuffled_strongly_convex_rounds": (
        "max(n**2*N**2*eps**2/M, N/M, 8*beta/mu * ln(beta*D**2*mu*eps**2*n**2*N**2/(d*L**2)),"
        " min(n, eps**2*n**2*N**2/(d*M)))"
    ),
}
LETTERS = {"lipschitz": "L", "radius": "D", "smoothness": "beta", "strong_convexity": "mu", "clients": "N"}
LETTERS |= {"clients_per_round": "M", "records": "n", "features": "d", "epsilon": "eps", "delta": "delta"}
LETTERS |= {"batch_size": "k"}
SETTINGS = [
    {"L": 2.0, "D": 0.7, "beta": 3.0, "mu": 0.4, "N": 40, "M": 25, "n": 300, "d": 8, "eps": 0.6, "delta": 1e-6, "k": 9},
    {"L": 0.5, "D": 3.0, "beta": 1.0, "mu": 0.9, "N": 40, "M": 40, "n": 300, "d": 2, "eps": 5.0, "delta": 1e-4, "k": 3},
    {"L": 1.0, "D": 1.0, "beta": 90.0, "mu": 1.0, "N": 9, "M": 9, "n": 20, "d": 700, "eps": 0.2, "delta": 0.1, "k": 1},
    {"L": 4.0, "D": 5.0, "beta": 0.2, "mu": 0.1, "N": 900, "M": 2, "n": 7, "d": 3, "eps": 0.05, "delta": 1e-9, "k": 7},
    {"L": 1.0, "D": 1.0, "beta": 0.02, "mu": 0.01, "N": 9, "M": 9, "n": 20, "d": 3, "eps": 0.01, "delta": 0.1, "k": 2},
]


def arguments_of(name: str, setting: dict) -> dict:
    """The arguments of a function from the print's letters."""
    return {each: setting[LETTERS[each]] for each in inspect.signature(getattr(local_privacy, name)).parameters}


def printed(name: str, setting: dict) -> mpmath.mpf:
    """The print's formula to 30 digits."""
    with mpmath.workdps(30):
        words = {each: getattr(mpmath, each) for each in ("sqrt", "exp", "ln")} | {"min": min, "max": max}
        return eval(PRINTED[name], words, {key: mpmath.mpf(repr(value)) for key, value in setting.items()})


def test_every_public_function_has_a_printed_formula():
    rates = [n for n in vars(local_privacy) if n.startswith("lower_bound") or n.endswith(("_rate", "_rounds"))]
    assert {name for name in rates if not name.startswith("_")} - {"lower_bound_applies"} == set(PRINTED)


@pytest.mark.parametrize("setting", SETTINGS, ids=range(len(SETTINGS)))
@pytest.mark.parametrize("name", PRINTED)
def test_as_printed(name, setting):
    assert getattr(local_privacy, name)(**arguments_of(name, setting)) == pytest.approx(
        float(printed(name, setting)), rel=1e-13
    )


@pytest.mark.parametrize("name", PRINTED)
def test_arrays_broadcast(name):
    arguments = {each: np.array([s[LETTERS[each]] for s in SETTINGS]) for each in arguments_of(name, SETTINGS[0])}
    expected = [float(printed(name, setting)) for setting in SETTINGS]
    np.testing.assert_allclose(getattr(local_privacy, name)(**arguments), expected, rtol=1e-13)


def test_each_branch_of_a_minimum_and_a_maximum_is_in_the_settings():
    """Else a slip in one of them would show nowhere."""
    iid = [setting["eps"] ** 2 * setting["n"] / setting["d"] < 1 for setting in SETTINGS]
    private = [math.sqrt(s["d"] / s["N"]) / (s["eps"] * s["n"]) < 1 for s in SETTINGS]
    curved = [(s["n"] * s["N"] * s["eps"]) ** 2 / s["M"] < s["beta"] * s["D"] / s["L"] * math.sqrt(s["n"] * s["M"])
              for s in SETTINGS]  # fmt: skip
    assert {*iid} == {*private} == {*curved} == {True, False}


def test_the_centre_of_the_first_grid():
    """Issue 42: Theorem 2.1's R is 4,096 for 16 clients of 256 records, and Theorem 2.3's about 1,450 with 8 features,
    epsilon 4 and the least K at which the rounds are no more than the batches need."""
    centre = {"clients_per_round": 16, "records": 256}
    assert local_privacy.iid_convex_rounds(**centre, features=4, epsilon=1.0) == 4096
    erm = {**centre, "clients": 16, "features": 8, "epsilon": 4.0}
    assert local_privacy.erm_convex_rounds(**erm, batch_size=91) == pytest.approx(1448.15, abs=0.01)
    assert local_privacy.erm_convex_rounds(**erm, batch_size=90) > 1449


def test_tight_upper_and_lower_bounds_differ_by_the_logarithm_alone():
    """Text after (11): they match up to logarithms, and to mu D / L in the strongly convex case."""
    shared = {"lipschitz": 2.0, "radius": 0.5, "records": 64, "features": 4, "epsilon": 2.0}
    upper = local_privacy.iid_convex_rate(**shared, clients_per_round=700, delta=2 / math.e)
    assert upper == pytest.approx(local_privacy.lower_bound_convex(**shared, clients=700), rel=1e-12)
    strong = {**shared, "strong_convexity": 4.0}  # mu D = L
    lower = local_privacy.lower_bound_strongly_convex(**strong, clients=700)
    del strong["radius"]
    assert local_privacy.iid_strongly_convex_rate(**strong, clients_per_round=700, delta=2 / math.e) == pytest.approx(
        lower
    )


def test_where_the_lower_bound_speaks():
    good = {"clients": 700, "records": 16, "epsilon": 2.0, "round_epsilon": 1 / 16, "round_delta": 1e-17}
    assert local_privacy.lower_bound_applies(**good)
    least = 16 * math.log(2 / 16e-17)  # 593 clients
    for wrong in ({"round_epsilon": 0.0626}, {"clients": math.floor(least)}, {"epsilon": 26.5}):
        assert not local_privacy.lower_bound_applies(**{**good, **wrong})
    assert local_privacy.lower_bound_applies(**{**good, "clients": math.ceil(least)})


def test_a_round_of_full_batches_can_be_private_enough_for_the_lower_bound():
    """2^15 rounds of the Gaussian mechanism that together spend epsilon 4: each spends below 1/32 at delta / R."""
    rounds, delta = 2**15, 1e-13
    move = float(gaussian_dp.mu(4.0, delta)) / math.sqrt(rounds)
    assert gaussian_dp.epsilon(delta / rounds, move) < 1 / 32
    assert local_privacy.least_batch_advanced(epsilon=4.0, delta=delta, rounds=rounds, records=32) < 1
