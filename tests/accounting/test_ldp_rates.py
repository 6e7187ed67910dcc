"""Every rate and number of rounds of lowy2021 against its formula, copied anew from the print into mpmath."""

import inspect
import math

import mpmath
import numpy as np
import pytest

from dpfl.accounting import gaussian_dp, local_privacy

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
    "shuffled_convex_rate": "L*D*(1/sqrt(n*M) + sqrt(d*ln(1/delta))/(eps*n*N))",
    "shuffled_strongly_convex_rate": "L**2/mu * (1/(n*M) + d*ln(1/delta)/(eps**2*n**2*N**2))",
    "iid_convex_rounds": "M*min(n, eps**2*n**2/d)",
    "iid_strongly_convex_rounds": "M*min(n, eps**2*n**2/d) * ln(D**2*mu**2*M**2*eps**2*n**3/(d*L**2))",
    "erm_convex_rounds": "max(sqrt(M)*eps*n/sqrt(d), eps**2*n**2/d * (1/k if M == N else 1))",
    "erm_strongly_convex_rounds": (
        "max(sqrt(M)*eps*n/sqrt(d) * ln(D*mu*M*eps**2*n**2/(L*d)), eps**2*n**2/d * (1/k if M == N else 1))"
    ),
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


def given(name: str, setting: dict) -> dict:
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
    assert getattr(local_privacy, name)(**given(name, setting)) == pytest.approx(
        float(printed(name, setting)), rel=1e-13
    )


@pytest.mark.parametrize("name", PRINTED)
def test_arrays_broadcast(name):
    arguments = {each: np.array([s[LETTERS[each]] for s in SETTINGS]) for each in given(name, SETTINGS[0])}
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
