"""Long schedules: mixtures of nodes above and below each step by its own profile, and the sum by both routes."""

import math
import time

import numpy as np
import pytest
from scipy.stats import norm

from dpfl.accounting import Phase, Poisson, guarantee_of_phases, privacy_curve, schedules
from dpfl.accounting.loss_grids import GridLaw, optimistic, pessimistic
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.phases import loss_search
from dpfl.accounting.poisson_gaussian import Step
from dpfl.accounting.sampler_accountants import Run, accountant

DELTA, TOGETHER = 1e-5, 200


def profile(step, losses):
    """sup over events of P - e^loss Q of a step, from scipy's normal law at the place where the loss is reached."""
    x = step.place(losses)
    moved, rate = step.shift if step.order == "remove" else -step.shift, step.rate
    mixed = (1 - rate) * norm.sf(x) + rate * norm.sf(x - moved)
    p, q = (mixed, norm.sf(x)) if step.order == "remove" else (norm.sf(x), mixed)
    return np.maximum(p - np.exp(losses) * q, np.maximum(1 - np.exp(losses), 0.0))


def law_profile(law: GridLaw, losses):
    """The same of a law on a grid: what of P is above the loss, less what of Q."""
    gains = law.masses * np.maximum(-np.expm1(np.minimum(losses[:, None] - law.losses, 700.0)), 0.0)
    return gains.sum(axis=1) + law.lost


@pytest.mark.parametrize("order", ["remove", "add"])
@pytest.mark.parametrize(("rate", "low", "high"), [(0.01, 0.8, 0.85), (0.3, 2.0, 2.1), (0.001, 0.2, 0.203)])
def test_a_mixture_of_nodes_dominates_a_step_between_and_another_is_dominated(order, rate, low, high):
    nodes = [Step(shift, rate, order) for shift in (low, high)]
    shifts = np.linspace(low, high, 5)[1:-1]
    above, below, trimmed = schedules._shares(*nodes, shifts, DELTA, TOGETHER)
    assert np.all((below < above) & (below > 0) & (above < 1))
    end = float(nodes[1].loss(np.array(9.0)))
    losses = np.linspace(-min(end, 1.0), end, 61)
    grids = [node.part(1, DELTA, TOGETHER, merged=False).cells(max(end, 1e-2) / 600) for node in nodes]
    uppers, lowers = [pessimistic(each) for each in grids], [trimmed(optimistic(each)) for each in grids]
    for shift, share, other in zip(shifts, above, below, strict=True):
        truth = profile(Step(float(shift), rate, order), losses)
        chord = (1 - share) * profile(nodes[0], losses) + share * profile(nodes[1], losses)
        assert np.all(chord >= truth - 1e-15)
        over = (1 - share) * law_profile(uppers[0], losses) + share * law_profile(uppers[1], losses)
        under = (1 - other) * law_profile(lowers[0], losses) + other * law_profile(lowers[1], losses)
        assert np.all(over >= truth * (1 - 1e-11) - 1e-16) and np.all(under <= truth * (1 + 1e-11) + 1e-16)
        middle = truth > 1e-6
        assert np.all(under[middle] > 0.7 * truth[middle])


@pytest.mark.parametrize("order", ["remove", "add"])
@pytest.mark.parametrize("rate", [0.001, 0.05])
def test_the_losses_of_all_nodes_are_on_multiples_of_the_step(order, rate):
    """Also of a step in which most losses of a node are one: a blend of two nodes needs them on one grid."""
    steps = schedules.SampledSteps(rate, np.geomspace(2.8, 3.0, 40), np.ones(40))
    for between in schedules.between_nodes([steps], order, DELTA, 40):
        for node in (between.low, between.high):
            for step in (1e-3, 0.01, 0.1, 0.7):
                origin = node.cells(step).origin / step
                assert origin == pytest.approx(round(origin), abs=1e-9)


def test_the_chord_in_the_noise_itself_would_not_dominate():
    """Why nodes are matched by the total variation: the profile is no convex function of the shift."""
    low, high = (Step(shift, 0.3, "remove") for shift in (2.0, 3.0))
    between = float(profile(Step(2.5, 0.3, "remove"), np.zeros(1))[0])
    assert between > float(profile(low, np.zeros(1))[0] + profile(high, np.zeros(1))[0]) / 2 + 1e-3


STEPS = [(1.1 * 0.998**step, 2) for step in range(130)]


def search(order, relation=Neighbouring.ADD_OR_REMOVE):
    runs = [Run(Poisson(0.05), noise, count, DELTA, relation) for noise, count in STEPS]
    return loss_search([accountant(run).above() for run in runs], order, DELTA)


@pytest.mark.parametrize("order", [0, 1])
def test_both_routes_agree_on_a_sum(monkeypatch, order):
    blended = search(order)
    assert blended.between and not blended.parts and blended.steps == 260
    low, high = blended.interval(0.0, both=True)
    monkeypatch.setattr(schedules, "_WORTH", 1000)
    alone = search(order)
    assert len(alone.parts) == 130 and not alone.between
    least, most = alone.interval(0.0, both=True)
    assert least < high and low < most
    assert high / low - 1 < 6e-4 and high == pytest.approx(most, rel=2e-4)


@pytest.mark.slow
def test_curves_of_a_schedule_are_those_of_a_sum_of_losses():
    """The advantage and delta against an even sum of the losses, without guarantees, by numpy's transform."""
    phases = [Phase(Poisson(0.05), noise, count) for noise, count in STEPS]
    width, size = 2e-4, 1 << 18
    spectrum = np.ones(size // 2 + 1, dtype=complex)
    x = np.linspace(-9, 11, 40_001)
    for noise, count in STEPS:
        loss = np.log1p(0.05 * np.expm1(x / noise - 0.5 / noise**2))
        masses = (0.95 * norm.pdf(x) + 0.05 * norm.pdf(x, 1 / noise)) * (x[1] - x[0])
        place = np.floor(loss / width).astype(int)
        up = loss / width - place
        one = np.bincount(place % size, masses * (1 - up), size) + np.bincount((place + 1) % size, masses * up, size)
        spectrum *= np.fft.rfft(one) ** count
    total = np.roll(np.fft.irfft(spectrum, size), size // 2)
    losses = (np.arange(size) - size // 2) * width
    curve = privacy_curve(phases, neighbouring="add_or_remove")
    for epsilon, tolerance in ((0.0, 1e-3), (2.0, 2e-3)):
        truth = float(total @ np.maximum(-np.expm1(np.minimum(epsilon - losses, 0)), 0))
        lower, upper = curve.delta(epsilon)
        assert lower * (1 - tolerance) <= truth <= upper * (1 + tolerance)
        assert upper / lower - 1 < 5e-3


@pytest.mark.slow
def test_three_thousand_noises_take_seconds_and_have_a_narrow_interval():
    phases = [Phase(Poisson(0.01), 1.5 * 0.9998**step, 1) for step in range(3000)]
    start = time.process_time()
    found = guarantee_of_phases(phases, delta=DELTA)
    assert time.process_time() - start < 15  # 4 on an idle machine
    assert found.lower <= 3.0001 <= found.upper  # by an independent transform of the losses
    assert found.upper / found.lower - 1 < 1e-3


def test_few_noises_rare_uses_and_full_batches_stand_for_themselves():
    def parts(phases):
        sources = [accountant(Run(*phase, DELTA, Neighbouring.ADD_OR_REMOVE)).above() for phase in phases]
        plain, grouped = schedules.in_schedules(sources)
        return len(plain), [each.shifts.size for each in grouped]

    many = [Phase(Poisson(0.01), 1.0 + step / 1000, 1) for step in range(100)]
    assert parts(many) == (0, [100])
    assert parts(many[::10]) == (10, [])
    assert parts([Phase(Poisson(1e-5), phase.noise_multiplier, 1) for phase in many]) == (100, [])
    assert parts([Phase(Poisson(0.01), phase.noise_multiplier / 100, 1) for phase in many]) == (100, [])
    assert math.isclose(schedules._nodes(np.array([1.0, 1.0]))[0], 1.0, rel_tol=1e-5)
