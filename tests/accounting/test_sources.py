"""Every public function of the accounting names where it comes from: a paper and a place in it, or a derivation."""

import importlib
import inspect
import pkgutil
import re

import pytest

from dpfl import accounting

# Checks of arguments, arithmetic and names: they state nothing about privacy.
PLUMBING = {
    "numerics",
    *("contraction.federated.read_rounds", "contraction.federated.read_users", "contraction.federated.non_negative"),
    "contraction.federated.whole_rounds",
    "statements.encode",
}
# A key of the bibliography or of a paper, another function or module, or that it is worked out here.
NAMED = re.compile(
    r"[Ss]ources?\b.*?(\b[a-z]{2,}(19|20)\d\d[a-z]*\b|`\w+`|derived|elementary|secant rule|the definition)", re.DOTALL
)


def public_functions():
    """Name within dpfl.accounting and function, for every public function where it is defined."""
    for info in pkgutil.walk_packages(accounting.__path__, accounting.__name__ + "."):
        module = importlib.import_module(info.name)
        for name, function in vars(module).items():
            if inspect.isfunction(function) and not name.startswith("_") and function.__module__ == info.name:
                yield f"{info.name}.{name}".removeprefix(accounting.__name__ + "."), function


FUNCTIONS = dict(public_functions())
EXPECTED = [name for name in FUNCTIONS if not {name, name.rpartition(".")[0]} & PLUMBING]


def test_the_functions_are_found():
    assert len(EXPECTED) > 100
    assert {"contraction.federated.federated_delta", "hidden_state.last_iterate_epsilon"} <= set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_public_function_names_its_source(name):
    assert NAMED.search(FUNCTIONS[name].__doc__ or ""), f"{name} names no source"
