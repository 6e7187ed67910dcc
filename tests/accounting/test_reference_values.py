"""The vectors are complete, our library meets them all, and other libraries can be checked against them."""

import importlib
import json
import math
from dataclasses import replace
from importlib import resources

import pytest
from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss

from dpfl.accounting import guarantee
from dpfl.accounting.external_claims import sampler_named
from dpfl.accounting.reference_values import SCHEMA, Quantity, quantities

QUANTITIES = quantities()
CLOSED_FORMS = [each for each in QUANTITIES.values() if each.dpfl]
EPSILONS = [each for each in QUANTITIES.values() if not each.dpfl]
RELATIVE_ERROR = 1e-12
# Where the two ends are closer than our certified rounding: relative error of the upper end.
EPSILON_ERROR = 2e-4
SETTINGS = {"sample_rate", "batch_size", "records", "steps_per_epoch"}


def test_the_files_say_their_format_and_sources():
    files = [
        file for file in resources.files("dpfl.accounting.reference_values").iterdir() if file.name.endswith(".json")
    ]
    assert len(files) == 5
    assert all(json.loads(file.read_text())["schema"] == SCHEMA for file in files)
    assert sum(len(each.vectors) for each in CLOSED_FORMS) == 255 and sum(len(each.vectors) for each in EPSILONS) == 165
    for each in QUANTITIES.values():
        assert each.meaning and each.formula and each.source and each.vectors
        assert len({vector.id for vector in each.vectors}) == len(each.vectors)
        assert all(vector.low <= vector.high for vector in each.vectors)


@pytest.mark.parametrize("quantity", CLOSED_FORMS, ids=lambda quantity: quantity.name)
def test_our_closed_forms_meet_them(quantity):
    module, _, name = quantity.dpfl.rpartition(".")
    assert quantity.misses(getattr(importlib.import_module(module), name), RELATIVE_ERROR) == []


def _check_epsilons(quantity: Quantity) -> None:
    """Hold both ends of our interval against a quantity's vectors."""
    lowers = {}

    def proven(**arguments) -> float:
        sampler = {key: arguments.pop(key) for key in SETTINGS & set(arguments)}
        found = guarantee(sampler_named(quantity.name.removesuffix("_epsilon"), **sampler), **arguments)
        lowers[json.dumps({**sampler, **arguments}, sort_keys=True)] = found.lower
        return found.upper

    assert quantity.misses(proven, EPSILON_ERROR) == []
    for vector in quantity.vectors:
        assert lowers[json.dumps(vector.arguments, sort_keys=True)] <= vector.high * (1 + 1e-9)


@pytest.mark.parametrize("quantity", EPSILONS, ids=lambda quantity: quantity.name)
def test_our_epsilons_meet_every_twelfth(quantity):
    _check_epsilons(replace(quantity, vectors=quantity.vectors[::12]))


@pytest.mark.slow
@pytest.mark.parametrize("quantity", EPSILONS, ids=lambda quantity: quantity.name)
def test_our_epsilons_meet_all(quantity):
    _check_epsilons(quantity)


def test_another_library_is_checked_by_one_line():
    def gaussian_delta(epsilon: float, mu: float) -> float:
        return GaussianPrivacyLoss(1 / mu).get_delta_for_epsilon(epsilon)

    # All but the limit of infinite noise, mu = 0.
    misses = QUANTITIES["gaussian_delta"].misses(gaussian_delta, 1e-9)
    assert [miss.vector.id for miss in misses] == ["theta[0,0]"]
    assert "ZeroDivisionError" in misses[0].error


def test_a_wrong_function_misses_and_an_error_is_quoted():
    quantity = QUANTITIES["gaussian_epsilon"]
    assert len(quantity.misses(lambda delta, mu: 1.0)) == len(quantity.vectors)
    miss = quantity.misses(lambda wrong: 1.0)[0]
    assert math.isnan(miss.answer) and "unexpected keyword" in miss.error
