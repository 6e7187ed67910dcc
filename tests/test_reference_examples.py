"""The examples of the accountants' reference: each public function has some, and a wrong or missing one is found out.

`make docs` runs them all; here only those of two modules, which take no time.
"""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from dpfl.accounting import gaussian_dp, hidden_state

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def examples():
    """The script docs/run_examples.py as a module."""
    sys.path.insert(0, str(DOCS))
    try:
        return importlib.import_module("run_examples")
    finally:
        sys.path.remove(str(DOCS))


def test_every_public_function_has_examples_and_every_file_a_module(examples):
    modules = examples.modules()
    assert len(modules) > 20 and gaussian_dp in modules
    places = {examples.place(module): module for module in modules}
    files = {path.relative_to(examples.EXAMPLES) for path in examples.EXAMPLES.rglob("*.yaml")}
    assert files <= places.keys()
    for place, module in places.items():
        entries = examples.read(examples.EXAMPLES / place) if place in files else {}
        assert list(examples.unfilled(module, entries)) == [], place


@pytest.mark.parametrize("module", [gaussian_dp, hidden_state], ids=lambda module: module.__name__)
def test_the_rows_hold(examples, module):
    entries = examples.read(examples.EXAMPLES / examples.place(module))
    assert sum(map(len, entries.values())) > 5
    assert list(examples.wrong(module, entries)) == []


def test_a_missing_example_and_one_of_nothing_are_found_out(examples):
    entries = examples.read(examples.EXAMPLES / "gaussian_dp.yaml")
    missing = {name: rows for name, rows in entries.items() if name != "mu"}
    assert list(examples.unfilled(gaussian_dp, missing)) == ["mu: has no example"]
    assert list(examples.unfilled(gaussian_dp, entries | {"mu": []})) == ["mu: has no example"]
    (extra,) = examples.unfilled(gaussian_dp, entries | {"sigma": [("sigma(1)", "1.0")]})
    assert extra.startswith("sigma: ") and "no such public name" in extra


def test_each_method_of_a_class_needs_a_call(examples):
    module = importlib.import_module("dpfl.accounting.tradeoff.curves")
    entries = examples.read(examples.EXAMPLES / examples.place(module))
    fewer = [row for row in entries["Curve"] if ".inverse" not in row[0]]
    assert list(examples.unfilled(module, entries | {"Curve": fewer})) == ["Curve.inverse: has no example"]


@pytest.mark.parametrize(
    ("call", "gives"),
    [
        ("delta(epsilon=1, mu=1)", "0.126947"),
        ("delta(epsilon=1, mu=0)", "1e-12"),
        ("epsilon(delta=0, mu=1)", "1e300"),
        ("delta(epsilon=[1], mu=1)", "0.126937"),
        ("delta(epsilon=-1, mu=1)", "0.0"),
        ("delta(epsilon=-1, mu=1)", "ValueError: mu must be at least 0, got -1.0"),
    ],
)
def test_a_wrong_result_is_found_out(examples, call, gives):
    (problem,) = examples.wrong(gaussian_dp, {"delta": [(call, gives)]})
    assert problem.startswith(call) and problem.endswith(f"not {gives}")


@pytest.mark.parametrize("call", ["delta(1)", "unknown(1)", "np.log(np.array([0.0]))"])
def test_an_error_or_a_warning_that_is_not_meant_stops_the_docs(examples, call):
    with pytest.raises((TypeError, NameError, RuntimeWarning)):
        list(examples.wrong(gaussian_dp, {"delta": [(call, "0.0")]}))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.array([0.5, 1 / 3, 0.0]), "[0.5, 0.333333, 0.0]"),
        (np.float64(-np.inf), "-inf"),
        (123456.7, "123457.0"),
        (1.23456789e-30, "1.23457e-30"),
        ((True, 3, "n = 0.123456789"), "(True, 3, 'n = 0.123457')"),
    ],
)
def test_results_are_written_to_six_digits(examples, value, text):
    assert examples.shown(value) == text
    assert examples.agree(text, text)


def test_an_entry_that_stands_twice_is_refused(examples, tmp_path):
    file = tmp_path / "gaussian_dp.yaml"
    file.write_text("mu:\n  mu(0, 0): 0.0\nmu:\n  mu(0, 1): inf\n")
    with pytest.raises(ValueError, match="mu stands twice"):
        examples.read(file)


def test_a_bar_in_a_call_does_not_end_its_cell(examples):
    assert examples.table([("f(**run | dict(n=1))", "0.5")])[2] == r"| `f(**run \| dict(n=1))` | `0.5` |"
