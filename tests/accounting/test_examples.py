"""Every example of the accountants' docstrings runs, and each public function has one."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

from dpfl import accounting

MODULES = ["dpfl.accounting", *(found.name for found in pkgutil.walk_packages(accounting.__path__, "dpfl.accounting."))]
EXAMPLES = [
    example
    for module in map(importlib.import_module, MODULES)
    for example in doctest.DocTestFinder(exclude_empty=True).find(module)
    if example.examples
]


def test_each_public_function_has_an_example():
    names = {example.name.rpartition(".")[2] for example in EXAMPLES}
    functions = {name for name in accounting.__all__ if inspect.isfunction(getattr(accounting, name))}
    assert {"guarantee", "guarantee_of_phases", "noise_multiplier"} <= functions <= names


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_the_example_prints_what_it_says(example):
    assert doctest.DocTestRunner().run(example).failed == 0
