"""Every public function of the accounting refuses a wrong argument by a ValueError that names it, without warning."""

import inspect
import math
import warnings

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import identity

from dpfl.accounting import (
    contraction,
    dpsgd,
    gaussian_dp,
    hidden_state,
    local_privacy,
    poisson_gaussian,
    shuffling,
    tradeoff,
)
from dpfl.accounting.contraction import federated, pnsgd
from dpfl.accounting.hidden_state import ConvexProblem
from dpfl.accounting.samplers import SAMPLERS, Sampling
from dpfl.accounting.tradeoff import curves
from dpfl.papers.asoodeh2020 import errata as asoodeh2020
from dpfl.papers.asoodeh2021 import errata as asoodeh2021
from dpfl.papers.vandijk2023 import errata as vandijk2023

# What is tried, by a name of its subject: the names of a module, or those that are listed.
PLACES = {
    **{
        place.__name__.rsplit(".", 1)[-1]: (place, place.__all__)
        for place in (contraction, shuffling, tradeoff, hidden_state)
    },
    "conversions": (
        dpsgd,
        (
            "zcdp_to_epsilon",
            "tcdp_to_epsilon",
            "rdp_to_epsilon",
            "loss_tail",
            "gaussian_zcdp",
            "advanced_composition",
            "group_delta",
            "group_delta_bound",
        ),
    ),
    "dpsgd": (dpsgd, ("epsilon", "noise_multiplier")),
    "gaussian_dp": (gaussian_dp, ("delta", "epsilon", "mu", "tradeoff", "compose", "group", "renyi", "loss_exceeds")),
    "isrl_dp": (
        local_privacy,
        (
            "advanced_composition_variance",
            "moments_variance",
            "one_pass_variance",
            "least_batch_advanced",
            "least_batch_moments",
            "largest_moments_epsilon",
            "epsilon",
            "clipped_mean_epsilon",
            "with_replacement_known_epsilon",
            "composed_sigma",
        ),
    ),
    "ldp_rates": (
        local_privacy,
        (
            *tuple(name for name in vars(local_privacy) if name.endswith(("_rate", "_rounds")) and name[0] != "_"),
            "lower_bound_convex",
            "lower_bound_strongly_convex",
            "lower_bound_applies",
        ),
    ),
    "published_noise": (shuffling, ("least_reports", "shuffled_noise_variance")),
    "gaussian_rounds": (
        shuffling,
        ("local_noise_multiplier", "central_noise_multiplier", "epsilon", "noise_multiplier"),
    ),
    "federated_release": (
        federated,
        (
            "step_diameter",
            "federated_release_delta",
            "release_epsilon",
            "round_epsilon",
            "release_sigma",
            "round_sigma",
        ),
    ),
    "pnsgd_orders": (pnsgd, ("place_deltas", "worst_epsilon", "calibrated_scale", "step_epsilon")),
    "segments": (curves, ("segments_epsilon", "segments_sigma")),
    "poisson_gaussian": (poisson_gaussian, ("epsilon_interval", "epsilon_upper")),
    "asoodeh2020_printed": (asoodeh2020, ("iteration_renyi_as_printed", "pnsgd_laplace_pure_epsilon_as_printed")),
    "asoodeh2021_printed": (asoodeh2021, ("federated_harmonic_delta_as_printed",)),
    "printed_formulas": (vandijk2023, ("group_delta_as_printed", "renyi_as_printed", "epsilon_delta_as_printed")),
}
CLASSES = (*SAMPLERS.values(), ConvexProblem)

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
    **dict.fromkeys(("last_sigma", "target_epsilon", "smoothness", "constant"), (1.0, POSITIVE)),
    **dict.fromkeys(("radius", "diameter", "gradient_bound", "gradient_variance", "lipschitz"), (1.0, NONNEGATIVE)),
    **dict.fromkeys(("epsilon", "epsilon0", "mu", "r", "rho", "t", "distance"), (1.0, NONNEGATIVE)),
    **dict.fromkeys(("m1", "m2", "slope"), (0.5, REAL)),
    **dict.fromkeys(("p", "sample_rate", "batch_share"), (0.1, ABOVE_ZERO)),
    **dict.fromkeys(("permuted", "random_stop", "tight"), (False, UNTOUCHED)),
    **dict.fromkeys(("n", "records"), (4, COUNT)),
    "order": (2, POSITIVE),
    **dict.fromkeys(("dimension", "features"), (1, COUNT)),
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
    "contraction": (0.5, SHARE),
    **dict.fromkeys(("noise_over_shift", "step_size", "learning_rate"), (1.0, POSITIVE)),
    "diameter_over_shift": (1.0, (*OR_INFINITE, 0)),
    "steps_per_epoch": (2, COUNT),
    "batches": ("cyclic", CHOICE),
    "run": (lambda sigma: [curves.Segment(2, sigma, 0.1)], UNTOUCHED),
    "segments": ([curves.Segment(2, 1.0, 0.1)], ([],)),
    "pld": (identity(), (None, 1.0, "pld")),
}
DIFFERENT = {
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
    **dict.fromkeys([f"conversions.{name}.delta" for name in ("group_delta", "group_delta_bound")], (0.01, SHARE)),
    "conversions.advanced_composition.delta": (0.01, SHARE),
    "gaussian_rounds.clients": (2, COUNT),
    "hidden_state.ConvexProblem.diameter": (1.0, (*OR_INFINITE, 0)),
    "hidden_state.ConvexProblem.lipschitz": (1.0, POSITIVE),
    "hidden_state.ConvexProblem.records": (4, tuple(value for value in COUNT if value is not None)),
    "hidden_state.diameter": (1.0, (*OR_INFINITE, 0)),
    **{f"ldp_rates.{name}": (1.0, POSITIVE) for name in ("lipschitz", "radius", "strong_convexity", "epsilon")},
    "ldp_rates.clients_per_round": (1000, POSITIVE),
    **{
        f"ldp_rates.{name}.smoothness": (1.0, NONNEGATIVE)
        for name in ("one_pass_convex_rate", "shuffled_convex_rounds")
    },
    "ldp_rates.round_epsilon": (1.0, POSITIVE),
    "ldp_rates.round_delta": (0.01, INSIDE),
    "hidden_state.lipschitz": (1.0, POSITIVE),
    "hidden_state.steps": (2, STEPS),
    "hidden_state.neighbouring": ("zero_out", CHOICE),
    "hidden_state.last_iterate_epsilon.neighbouring": ("zero_out", (*CHOICE, "add_or_remove")),
    "hidden_state.last_iterate_epsilon.batches": ("cyclic", (*CHOICE, "poisson")),
    "poisson_gaussian.steps": (2, STEPS),
    "poisson_gaussian.delta": (0.01, (*INSIDE, 1e-291)),
    "contraction.federated_sigma.lipschitz": (1.0, POSITIVE),
    "contraction.federated_suffix_stop_delta.alpha": (0.5, INSIDE),
    **dict.fromkeys([f"contraction.{name}_iterate_rate.sigma" for name in ("last", "convex")], (1.0, NONNEGATIVE)),
    "contraction.average_iterate_rate.smoothness": (1.0, NONNEGATIVE),
    "contraction.hockey_stick.p": ([0.5, 0.5], NONNEGATIVE),
    "contraction.federated_harmonic_delta.smoothness": (None, UNTOUCHED),
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
    "tradeoff.epsilon_delta.epsilon": (1.0, OR_INFINITE),
    "tradeoff.epsilon_delta.delta": (0.01, SHARE),
    "printed_formulas.delta": (0.01, SHARE),
    "printed_formulas.epsilon_delta_as_printed.epsilon": (1.0, OR_INFINITE),
}
# What the first may not be beside the ordinary value of the second, in all functions that have both but those below.
TOGETHER = {
    **dict.fromkeys([("m", "n"), ("i", "n"), ("group_size", "n"), ("batch_size", "records")], (5,)),
    ("clients_per_round", "clients"): (1001,),
    ("strong_convexity", "smoothness"): (1.1,),
    **dict.fromkeys([(step, "smoothness") for step in ("eta", "step_size", "learning_rate")], (8.0, [0.1, 8.0])),
}
FREE = {
    "samplers.WithReplacement.batch_size",
    *(f"contraction.average_iterate_rate.{name}" for name in ("eta", "strong_convexity")),
    *("contraction.federated_harmonic_delta.strong_convexity", "contraction.last_iterate_rate.strong_convexity"),
    *(f"isrl_dp.{name}.batch_size" for name in ("largest_moments_epsilon", "clipped_mean_epsilon")),
    *("isrl_dp.with_replacement_known_epsilon.batch_size", "federated_release.step_diameter.eta"),
    *(f"federated_release.{name}.eta" for name in ("federated_release_delta", "release_epsilon", "release_sigma")),
}
# What else an argument of a function, or of a module's, may not be.
ALSO = {
    **dict.fromkeys([f"contraction.federated_{name}.radius" for name in ("delta", "delta_relaxed")], ([1.0, 2.0],)),
    **dict.fromkeys(
        [f"contraction.federated_{name}.m" for name in ("random_stop_delta", "random_stop_bound", "harmonic_delta")],
        (3,),
    ),
    "contraction.federated_sigma.epsilon": ([1.0, 2.0],),
    "contraction.federated_suffix_stop_delta.alpha": ([0.5, 0.6],),
    "contraction.federated_harmonic_delta.smoothness": (0.0,),
    "contraction.federated_harmonic_delta.sigma": ([1.0],),
    "contraction.contraction_coefficient.kernel": ([[1.2, -0.2]],),
    "federated_release.federated_release_delta.m": (3,),
    "federated_release.first_stop": (3,),
    "shuffling.mu": (101,),
    "shuffling.delta0": (0.1,),
    "published_noise.epsilon": (20.0,),
    "conversions.rdp_to_epsilon.orders": ([],),
    "conversions.group_delta_bound.delta": (2.0,),
    "tradeoff.dpsgd.m": (3,),
    "tradeoff.scale": (1e-3,),
}
# What the functions of these modules pass on by **keywords.
PASSED_ON = {
    "federated_release": ("eta", "radius", "smoothness", "strong_convexity", "first_stop"),
    "pnsgd_orders": ("n", "eta", "lipschitz", "smoothness", "strong_convexity", "diameter"),
}


def functions():
    """All public functions: (module.function, function)."""
    for found in CLASSES:
        yield f"{found.__module__.rsplit('.', 1)[-1]}.{found.__name__}", found
    for subject, (place, names) in PLACES.items():
        for name in names:
            if inspect.isfunction(found := getattr(place, name)):
                yield f"{subject}.{name}", found


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
        if f"{name}.{argument}" not in FREE:
            wrong += [value for other in right for value in TOGETHER.get((argument, other), ())]
        wrong += ALSO.get(f"{name}.{argument}", ALSO.get(f"{name.split('.')[0]}.{argument}", ()))
        for value in wrong:
            with warnings.catch_warnings(), pytest.raises(ValueError, match=rf"^{argument}\b"):
                warnings.simplefilter("error")
                FUNCTIONS[name](**{**right, argument: value})
                pytest.fail(f"{argument} = {value!r} is taken")


SLOW = ("shuffling.blanket_rounds_epsilon", "shuffling.noise_multiplier")  # many lattices


@pytest.mark.parametrize("name", [pytest.param(f, marks=[pytest.mark.slow] * (f in SLOW)) for f in FUNCTIONS])
def test_the_ordinary_arguments_are_taken_without_a_warning(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FUNCTIONS[name](**{each: ordinary for each, (ordinary, _) in arguments(name, FUNCTIONS[name]).items()})
