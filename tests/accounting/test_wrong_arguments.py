"""Every public function of the accounting refuses a wrong argument by a ValueError that names it, without warning."""

import importlib
import inspect
import math
import pkgutil
import warnings
from importlib.util import find_spec

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import identity

import dpfl.accounting
from dpfl.accounting import gaussian_dp, tradeoff
from dpfl.accounting.contraction.federated import FederatedRelease
from dpfl.accounting.contraction.pnsgd import Law, NoisyPass
from dpfl.accounting.samplers import FullBatch, Poisson, Sampling, WithReplacement
from dpfl.accounting.tradeoff import curves
from dpfl.catalog import keys

# What says that it refuses a wrong argument, and is tried by the tests of its own module instead of here.
TRIED_ELSEWHERE = {
    *("numerics", "guarantees", "sampler_accountants", "external_claims", "statements"),
    *("federated.non_negative", "federated.last_model", "federated.stopped_model", "hidden_state.shuffled_delta"),
    *("pnsgd.first_shift", "pnsgd.later_shift", "curves.Curve", "curves.Segment"),
}

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
    **dict.fromkeys(("target_epsilon", "smoothness", "constant"), (1.0, POSITIVE)),
    **dict.fromkeys(("radius", "diameter", "gradient_bound", "gradient_variance", "lipschitz"), (1.0, NONNEGATIVE)),
    **dict.fromkeys(("epsilon", "epsilon0", "mu", "r", "rho", "xi", "distance"), (1.0, NONNEGATIVE)),
    **dict.fromkeys(("m1", "m2", "slope"), (0.5, REAL)),
    **dict.fromkeys(("p", "sample_rate", "batch_share"), (0.1, ABOVE_ZERO)),
    **dict.fromkeys(("permuted", "random_stop", "rough"), (False, UNTOUCHED)),
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
    "mus": ([1.0, 2.0], (*REAL, [1.0, -1.0])),
    "orders": ([2.0, 3.0], (*REAL, [2.0, 1.0])),
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
    "run": (lambda sigma: [curves.Segment(2, sigma, 0.1)], UNTOUCHED),
    "segments": ([curves.Segment(2, 1.0, 0.1)], ([],)),
    "pld": (identity(), (None, 1.0, "pld")),
}
DIFFERENT = {
    "pnsgd.step_epsilon.lipschitz": (1.0, POSITIVE),
    "pnsgd.NoisyPass.law": (Law.LAPLACE, CHOICE),
    "pnsgd.run": (NoisyPass(4, Law.LAPLACE, 0.1, 1.0, 1.0, 0.5, 1.0), UNTOUCHED),
    "renyi.sampler": (Poisson(0.1), ("nonsense", None, 1.5, WithReplacement(2, 4))),
    "renyi.epsilon": (10.0, POSITIVE),
    "renyi.filter_order.sampler": (None, ("nonsense", 1.5, WithReplacement(2, 4))),
    "renyi.order": (2.0, (*POSITIVE, 1, 1.005, 1e5)),
    "renyi.sums": ([0.1, 0.2], (*NO_NUMBER, [0.1, -1.0], [0.1])),
    "clients.ClientRound.sampler": (FullBatch(), ("nonsense", None, 1.5, WithReplacement(2, 4))),
    "clients.ClientRound.cohort": (("a", "b"), ("a", (), 1.0, ("a", "a"), ("a", 1), ("a", ""))),
    "clients.ClientRound.distributed": (True, (None, 1, "yes")),
    "clients.ClientRound.dropped": (2, STEPS),
    "clients.ClientRound.colluding": (1, (*STEPS, 2)),
    **{f"discrete_noise.{name}": (1.0, NONNEGATIVE) for name in ("l1", "l2")},
    **{f"discrete_noise.{name}": (2, COUNT) for name in ("shares", "dimension")},
    "discrete_noise.order": (2, (*COUNT, 1)),
    "discrete_noise.share_variance": (1.0, POSITIVE),
    "gaussian_dp.noise_multipliers": ([1.0, 2.0], (*REAL, [1.0, -1.0], 0)),
    "pure_mechanisms.buckets": (2, (*COUNT, 1)),
    "random_allocation.uses": (1, (*COUNT, 3)),
    "dpsgd.noise_multiplier": (20.0, POSITIVE),
    "dpsgd.steps": (2, STEPS),
    "dpsgd.noise_multiplier.steps": (2, COUNT),
    "shuffling.blanket_rounds_epsilon.rounds": (1, COUNT),
    "dpsgd.delta": (0.01, ABOVE_ZERO),
    **{f"dpsgd.{name}.delta": (0.01, INSIDE) for name in ("epsilon", "noise_multiplier")},
    "gaussian_dp.delta": (0.01, SHARE),
    "gaussian_dp.tradeoff.mu": (1.0, OR_INFINITE),
    "gaussian_dp.epsilon_or_inf.mu": (1.0, OR_INFINITE),
    "pnsgd.step_epsilon.delta": (0.01, BELOW_ONE),
    **dict.fromkeys([f"federated.{name}.lipschitz" for name in ("round_epsilon", "round_sigma")], (1.0, POSITIVE)),
    "federated.release": (FederatedRelease(4, 2, 0.1, 1.0, 1.0, 1.0, 0.5, 2), UNTOUCHED),
    **{f"dpsgd.{name}.delta": (0.01, SHARE) for name in ("group_delta", "group_delta_bound", "advanced_composition")},
    **{f"shuffling.{name}.clients": (2, COUNT) for name in ("central_noise_multiplier", "noise_multiplier")},
    "hidden_state.ConvexProblem.diameter": (1.0, (*OR_INFINITE, 0)),
    "hidden_state.ConvexProblem.lipschitz": (1.0, POSITIVE),
    "hidden_state.ConvexProblem.records": (4, tuple(value for value in COUNT if value is not None)),
    "hidden_state.diameter": (1.0, (*OR_INFINITE, 0)),
    **{f"local_privacy.{name}": (1.0, POSITIVE) for name in ("lipschitz", "radius", "strong_convexity", "epsilon")},
    "local_privacy.clients_per_round": (1000, POSITIVE),
    **{
        f"local_privacy.{name}.smoothness": (1.0, NONNEGATIVE)
        for name in ("one_pass_convex_rate", "shuffled_convex_rounds")
    },
    "local_privacy.round_epsilon": (1.0, POSITIVE),
    "local_privacy.round_delta": (0.01, INSIDE),
    "hidden_state.lipschitz": (1.0, POSITIVE),
    "hidden_state.steps": (2, STEPS),
    "hidden_state.neighbouring": ("zero_out", CHOICE),
    "hidden_state.last_iterate_epsilon.neighbouring": ("zero_out", (*CHOICE, "add_or_remove")),
    "hidden_state.last_iterate_epsilon.batches": ("cyclic", (*CHOICE, "poisson")),
    "poisson_gaussian.steps": (2, STEPS),
    "poisson_gaussian.delta": (0.01, (*INSIDE, 1e-291)),
    "federated.federated_sigma.lipschitz": (1.0, POSITIVE),
    "federated.federated_suffix_stop_delta.alpha": (0.5, INSIDE),
    **dict.fromkeys([f"pnsgd.{name}_iterate_rate.sigma" for name in ("last", "convex")], (1.0, NONNEGATIVE)),
    "pnsgd.average_iterate_rate.smoothness": (1.0, NONNEGATIVE),
    "kernels.hockey_stick.p": ([0.5, 0.5], NONNEGATIVE),
    "federated.federated_harmonic_delta.smoothness": (None, UNTOUCHED),
    "curves.subsample.p": (0.1, SHARE),
    "poisson_gaussian.subsampled_delta.p": (0.1, SHARE),
    "poisson_gaussian.poisson_add_delta.p": (0.1, SHARE),
    "curves.poisson_renyi.order": (2, COUNT),
    "curves.poisson_renyi.p": (0.1, INSIDE),
    "curves.clt_mu.p": (0.1, SHARE),
    "curves.poisson_clt_mu.p": (0.1, SHARE),
    "curves.sufficient_sigma.delta": (0.01, ABOVE_ZERO),
    "privacy_loss.gaussian_tails.mu": (1.0, POSITIVE),
    "curves.from_delta.delta": (lambda epsilon: gaussian_dp.delta(epsilon, 1.0), UNTOUCHED),
    "curves.last_epoch_mu.last_sigma": (1.0, tuple(value for value in POSITIVE if value is not None)),
    **{f"curves.epsilon_delta{end}.epsilon": (1.0, OR_INFINITE) for end in ("", "_lines")},
    **{f"curves.epsilon_delta{end}.delta": (0.01, SHARE) for end in ("", "_lines")},
    "errata.delta": (0.01, SHARE),
    "errata.epsilon_delta_as_printed.epsilon": (1.0, OR_INFINITE),
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
    *(f"pnsgd.average_iterate_rate.{name}" for name in ("eta", "strong_convexity")),
    *("federated.federated_harmonic_delta.strong_convexity", "pnsgd.last_iterate_rate.strong_convexity"),
    *(f"local_privacy.{name}.batch_size" for name in ("largest_moments_epsilon", "clipped_mean_epsilon")),
    *(f"local_privacy.{name}_known_epsilon.batch_size" for name in ("with_replacement", "clipped_mean")),
    "federated.step_diameter.eta",
    "federated.FederatedRelease.eta",
}
# What else an argument of a function, or of a module's, may not be.
ALSO = {
    **dict.fromkeys([f"federated.federated_{name}.radius" for name in ("delta", "delta_relaxed")], ([1.0, 2.0],)),
    **dict.fromkeys(
        [f"federated.federated_{name}.m" for name in ("random_stop_delta", "random_stop_bound", "harmonic_delta")],
        (3,),
    ),
    "federated.federated_sigma.epsilon": ([1.0, 2.0],),
    "federated.federated_suffix_stop_delta.alpha": ([0.5, 0.6],),
    "federated.federated_harmonic_delta.smoothness": (0.0,),
    "federated.federated_harmonic_delta.sigma": ([1.0],),
    "kernels.contraction_coefficient.kernel": ([[1.2, -0.2]],),
    **dict.fromkeys([f"federated.{name}.m" for name in ("FederatedRelease", "whole_rounds", "harmonic_rounds")], (3,)),
    "federated.first_stop": (3,),
    "local_privacy.one_pass_variance.epsilon": (1.5,),
    "pnsgd.average_iterate_rate.m": (3, 4),
    "privacy_loss.revealed_shuffled.m": (3,),
    "shuffling.mu": (101,),
    "shuffling.delta0": (0.1,),
    "dpsgd.group_delta_bound.delta": (2.0,),
    "curves.dpsgd.m": (3,),
    "privacy_loss.arsinh_tails.scale": (1e-3,),
}


def functions():
    """All that refuses wrong arguments: (module.function, function), of the accountants and the formulas as printed."""
    accountants = (each.name for each in pkgutil.walk_packages(dpfl.accounting.__path__, "dpfl.accounting."))
    errata = (f"dpfl.papers.{key}.errata" for key in keys() if find_spec(f"dpfl.papers.{key}.errata"))
    for module in map(importlib.import_module, (*accountants, *errata)):
        for name, found in vars(module).items():
            ours = getattr(found, "__module__", None) == module.__name__ and not name.startswith("_")
            if ours and (name.endswith("_as_printed") or ("papers" not in module.__name__ and refuses(module, found))):
                yield f"{module.__name__.rsplit('.', 1)[-1]}.{name}", found


def refuses(module, found):
    """Whether a function, or a class by its fields, says that it raises ValueError, or its module says so of all."""
    stated, everywhere = (" ".join((inspect.getdoc(each) or "").split()) for each in (found, module))
    if inspect.isclass(found):
        return "__post_init__" in vars(found) and "ValueError" in stated
    if not inspect.isfunction(found) or "not checked" in stated:
        return False
    of_all = "raise ValueError naming" in everywhere.replace("raises", "raise")
    return of_all or "ValueError" in stated or "errors" in stated


def arguments(name, function):
    """The function's arguments: name to (ordinary value, wrong values)."""
    module = name.split(".")[0]
    return {
        each: DIFFERENT.get(f"{name}.{each}") or DIFFERENT.get(f"{module}.{each}") or ARGUMENTS[each]
        for each in inspect.signature(function).parameters
    }


FUNCTIONS = {name: found for name, found in functions() if not {name, name.split(".")[0]} & TRIED_ELSEWHERE}


def test_what_refuses_a_wrong_argument_is_found():
    assert len(FUNCTIONS) > 130
    assert {"local_privacy.erm_convex_rate", "hidden_state.ConvexProblem", "errata.renyi_as_printed"} <= set(FUNCTIONS)
    assert {each.partition(".")[0] for each in TRIED_ELSEWHERE} <= {name.split(".")[0] for name, _ in functions()}


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
