"""Every public function of the accounting refuses a wrong argument: a ValueError that names it, and no warning."""

import inspect
import math
import warnings

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import identity

from dpfl.accounting import contraction, conversions, dpsgd, gaussian_dp, isrl_dp, shuffling, tradeoff
from dpfl.accounting.contraction import federated_release, pnsgd_orders
from dpfl.accounting.samplers import Sampling
from dpfl.accounting.shuffling import published_noise
from dpfl.accounting.tradeoff import segments

PLACES = (
    *(contraction, shuffling, tradeoff, conversions, dpsgd, gaussian_dp, isrl_dp, published_noise),
    *(federated_release, pnsgd_orders, segments),
)

# What no argument that is a number may be, and what each kind of argument may not be beside it.
NO_NUMBER = (math.nan, -math.inf, 10**400, 1j, True, "1", None, object(), [math.nan, 1.0])
REAL = (*NO_NUMBER, math.inf)
NONNEGATIVE = (*REAL, -1)
POSITIVE = (*NONNEGATIVE, 0)
COUNT = (*POSITIVE, 1.5)
STEPS = (*NONNEGATIVE, 1.5)
SHARE = (*NONNEGATIVE, 1.5)
ABOVE_ZERO = (*SHARE, 0)
BELOW_ONE = (*SHARE, 1)
INSIDE = (*SHARE, 0, 1)
CHOICE = ("nonsense", None, ["pld"], np.empty((3, 0)), 1.5)
OR_INFINITE = (*NO_NUMBER, -1)
UNTOUCHED = ()  # functions, switches, texts and objects

# Each argument's ordinary value and its kind; then the functions, or all those of a module, in which it differs.
ARGUMENTS = {
    **dict.fromkeys(("rounds", "epochs", "batch_size", "group_size", "first_stop", "i", "g", "steps"), (2, COUNT)),
    **dict.fromkeys(("clients", "clients_per_round"), (1000, COUNT)),
    **dict.fromkeys(("sigma", "scale", "shift", "noise_multiplier", "sigma_over_lipschitz"), (1.0, POSITIVE)),
    **dict.fromkeys(("last_sigma", "target_epsilon", "smoothness", "clip_norm", "constant"), (1.0, POSITIVE)),
    **dict.fromkeys(("radius", "diameter", "gradient_bound", "gradient_variance", "lipschitz"), (1.0, NONNEGATIVE)),
    **dict.fromkeys(("epsilon", "epsilon0", "mu", "r", "rho", "t", "distance"), (1.0, NONNEGATIVE)),
    **dict.fromkeys(("m1", "m2", "slope"), (0.5, REAL)),
    **dict.fromkeys(("p", "sample_rate", "batch_share"), (0.1, ABOVE_ZERO)),
    **dict.fromkeys(("permuted", "random_stop", "tight"), (False, UNTOUCHED)),
    **dict.fromkeys(("n", "records"), (4, COUNT)),
    "order": (2, POSITIVE),
    "dimension": (1, COUNT),
    "m": (2, COUNT),
    "knots": (11, COUNT),
    "eta": (0.1, POSITIVE),
    "strong_convexity": (0.5, NONNEGATIVE),
    "alpha": (0.5, SHARE),
    "delta": (0.01, INSIDE),
    "delta0": (0.0, NONNEGATIVE),
    "slack": (0.01, ABOVE_ZERO),
    "omega": (5.0, (*OR_INFINITE, 1)),
    "mus": ([1.0, 2.0], (*REAL, [1.0, -1.0])),
    "orders": ([2.0, 3.0], (*REAL, [2.0, 1.0])),
    "divergences": ([0.1, 0.2], (*NO_NUMBER, [0.1, -1.0], [0.1])),
    "kernel": ([[0.5, 0.5], [0.2, 0.8]], (*REAL, [[0.5, 0.6]], [0.5, 0.5])),
    "q": ([0.5, 0.5], NONNEGATIVE),
    "accountant": ("pld", CHOICE),
    "neighbouring": ("add_or_remove", CHOICE),
    "adversary": ("A1", CHOICE),
    "conversion": ("tight", CHOICE),
    "law": ("laplace", CHOICE),
    "sampling": (Sampling.FIXED, (*CHOICE, "with_replacement", Sampling.SHUFFLED)),
    "f": (lambda alpha: gaussian_dp.tradeoff(alpha, 1.0), UNTOUCHED),
    "tails": (tradeoff.gaussian_tails(1.0), UNTOUCHED),
    "run": (lambda sigma: [segments.Segment(2, sigma, 0.1)], UNTOUCHED),
    "segments": ([segments.Segment(2, 1.0, 0.1)], ([],)),
    "pld": (identity(), (None, 1.0, "pld")),
    "note": ("", UNTOUCHED),
}
DIFFERENT = {
    "published.n": (1000, COUNT),
    "published.lipschitz": (1.0, POSITIVE),
    "local_noise.lipschitz": (1.0, POSITIVE),
    "pnsgd_orders.lipschitz": (1.0, POSITIVE),
    "dpsgd.noise_multiplier": (20.0, POSITIVE),
    "dpsgd.steps": (2, STEPS),
    "dpsgd.noise_multiplier.steps": (2, COUNT),
    "shuffling.blanket_rounds_epsilon.rounds": (1, COUNT),
    "conversions.delta": (0.01, ABOVE_ZERO),
    "gaussian_dp.delta": (0.01, SHARE),
    "gaussian_dp.tradeoff.mu": (1.0, OR_INFINITE),
    "pnsgd_orders.step_epsilon.delta": (0.01, BELOW_ONE),
    "pnsgd_orders.place_deltas.lipschitz": (1.0, NONNEGATIVE),
    **dict.fromkeys(
        [f"federated_release.{name}.lipschitz" for name in ("round_epsilon", "round_sigma", "release_sigma")],
        (1.0, POSITIVE),
    ),
    **dict.fromkeys(
        [f"conversions.{name}.delta" for name in ("group_delta", "group_delta_bound", "group_delta_as_printed")],
        (0.01, SHARE),
    ),
    "conversions.advanced_composition.delta": (0.01, SHARE),
    "contraction.federated_sigma.lipschitz": (1.0, POSITIVE),
    "contraction.federated_suffix_stop_delta.alpha": (0.5, INSIDE),
    "contraction.last_iterate_rate.sigma": (1.0, NONNEGATIVE),
    "contraction.last_iterate_rate_as_printed.sigma": (1.0, NONNEGATIVE),
    "contraction.average_iterate_rate.smoothness": (1.0, NONNEGATIVE),
    "contraction.average_iterate_rate_as_printed.smoothness": (1.0, NONNEGATIVE),
    "contraction.hockey_stick.p": ([0.5, 0.5], NONNEGATIVE),
    **dict.fromkeys(
        [f"contraction.federated_harmonic_delta{end}.smoothness" for end in ("", "_as_printed")], (None, UNTOUCHED)
    ),
    "tradeoff.subsample.p": (0.1, SHARE),
    "tradeoff.subsampled_delta.p": (0.1, SHARE),
    "tradeoff.poisson_add_delta.p": (0.1, SHARE),
    "tradeoff.poisson_renyi.order": (2, COUNT),
    "tradeoff.poisson_renyi.p": (0.1, INSIDE),
    "tradeoff.clt_mu.p": (0.1, SHARE),
    "tradeoff.poisson_clt_mu.p": (0.1, SHARE),
    "tradeoff.sufficient_sigma.delta": (0.01, ABOVE_ZERO),
    "tradeoff.gaussian_tails.mu": (1.0, POSITIVE),
    "tradeoff.from_delta.delta": (lambda epsilon: gaussian_dp.delta(epsilon, 1.0), UNTOUCHED),
    "tradeoff.last_epoch_mu.last_sigma": (1.0, tuple(value for value in POSITIVE if value is not None)),
    **dict.fromkeys([f"tradeoff.epsilon_delta{end}.epsilon" for end in ("", "_as_printed")], (1.0, OR_INFINITE)),
    **dict.fromkeys([f"tradeoff.epsilon_delta{end}.delta" for end in ("", "_as_printed")], (0.01, SHARE)),
}
# What the functions of these modules pass on by **keywords.
PASSED_ON = {
    "federated_release": ("eta", "radius", "smoothness", "strong_convexity", "first_stop"),
    "pnsgd_orders": ("n", "eta", "lipschitz", "smoothness", "strong_convexity", "diameter"),
}


def functions():
    """All public functions: (module.function, function)."""
    for place in PLACES:
        module = place.__name__.rsplit(".", 1)[-1]
        for name in getattr(place, "__all__", vars(place)):
            found = getattr(place, name)
            if not inspect.isfunction(found) or name.startswith("_"):
                continue
            if hasattr(place, "__all__") or found.__module__ == place.__name__:
                yield f"{module}.{name}", found


def arguments(name, function):
    """The function's arguments: name to (ordinary value, wrong values)."""
    module = name.split(".")[0]
    names = []
    for parameter in inspect.signature(function).parameters.values():
        names += PASSED_ON[module] if parameter.kind is parameter.VAR_KEYWORD else [parameter.name]
    return {
        each: DIFFERENT.get(f"{name}.{each}") or DIFFERENT.get(f"{module}.{each}") or ARGUMENTS[each] for each in names
    }


FUNCTIONS = dict(functions())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_wrong_argument_is_named(name):
    known = arguments(name, FUNCTIONS[name])
    right = {each: ordinary for each, (ordinary, _) in known.items()}
    for argument, (_, few) in known.items():
        wrong = list(few)
        if argument in ("eta", "sigma") and {"n", "m", "eta"} <= set(right) and wrong:
            wrong += [[0.1] * 3, [[0.1, 0.1]]]  # n/m = 2 rounds
        for value in wrong:
            with warnings.catch_warnings(), pytest.raises(ValueError, match=rf"^{argument}\b"):
                warnings.simplefilter("error")
                FUNCTIONS[name](**{**right, argument: value})
                pytest.fail(f"{argument} = {value!r} is taken")


SLOW = "shuffling.blanket_rounds_epsilon"  # 97 lattices


@pytest.mark.parametrize("name", [pytest.param(f, marks=[pytest.mark.slow] * (f == SLOW)) for f in FUNCTIONS])
def test_the_ordinary_arguments_are_taken_without_a_warning(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FUNCTIONS[name](**{each: ordinary for each, (ordinary, _) in arguments(name, FUNCTIONS[name]).items()})
