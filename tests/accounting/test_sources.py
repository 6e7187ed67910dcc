"""Every public function of the accounting names where it comes from: a paper and a place in it, or a derivation."""

import importlib
import inspect
import pkgutil
import re

import pytest

from dpfl import accounting

# Checks of arguments and arithmetic: they state nothing about privacy.
PLUMBING = {
    *("arguments", "elementwise", "roots", "contraction.stable_arithmetic"),
    *("contraction.rounds.read_rounds", "contraction.rounds.read_users", "contraction.rounds.non_negative"),
}
# Without a source as yet: to be emptied, never to be added to.
PENDING = {
    "conversions.gaussian_zcdp",
    *("dpsgd.epsilon", "dpsgd.statement"),
    *(f"gaussian_divergence.{name}" for name in ("log_theta", "one_minus_theta", "divergence", "log_divergence")),
    *("gaussian_divergence.complement", "gaussian_divergence.log_complement", "gaussian_dp.loss_exceeds"),
    *(f"isrl_dp.{name}" for name in ("least_batch_advanced", "least_batch_moments", "largest_moments_epsilon")),
    *("isrl_dp.epsilon", "isrl_dp.clipped_mean_epsilon", "isrl_dp.with_replacement_known_epsilon"),
    *("privacy_profiles.composed_epsilon", "privacy_profiles.composed_pair_epsilon"),
    *("shuffling.blanket.blanket_delta", "shuffling.blanket.blanket_rounds_epsilon"),
    *(f"shuffling.gaussian_rounds.{name}" for name in ("local_noise_multiplier", "central_noise_multiplier")),
    *("shuffling.gaussian_rounds.noise_multiplier", "shuffling.positive_part.positive_part"),
    *("tradeoff.approximations.sufficient_sigma", "tradeoff.arsinh.arsinh_delta"),
    "tradeoff.arsinh.arsinh_tails",
    *(f"tradeoff.privacy_loss.{name}" for name in ("gaussian_tails", "largest_loss", "loss_std", "connected_dots")),
}
# A paper of the five, an author with a year, another function, or that it is worked out here.
NAMED = re.compile(
    r"[Ss]ource\b.*?(asoodeh20|lowy2021|vandijk2023|bhaskar2025|[A-Z]\w+.{0,60}\b(19|20)\d\d\b|`\w+`|"
    r"derived|elementary|as those)",
    re.DOTALL,
)


def public_functions():
    """Name within dpfl.accounting and function, for every public function where it is defined."""
    for info in pkgutil.walk_packages(accounting.__path__, accounting.__name__ + "."):
        module = importlib.import_module(info.name)
        for name, function in vars(module).items():
            if inspect.isfunction(function) and not name.startswith("_") and function.__module__ == info.name:
                yield f"{info.name}.{name}".removeprefix(accounting.__name__ + "."), function


FUNCTIONS = dict(public_functions())
EXPECTED = [name for name in FUNCTIONS if not {name, name.rpartition(".")[0]} & (PLUMBING | PENDING)]


def test_the_functions_are_found():
    assert len(EXPECTED) > 100
    assert {"contraction.federated.federated_delta", "hidden_state.last_iterate.last_iterate_epsilon"} <= set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_public_function_names_its_source(name):
    assert NAMED.search(FUNCTIONS[name].__doc__ or ""), f"{name} names no source"


@pytest.mark.parametrize("text", ["Return a number.", "Source: see above.", "Raises ValueError. Source:"])
def test_a_docstring_without_a_source_is_found_out(text):
    assert not NAMED.search(text)
