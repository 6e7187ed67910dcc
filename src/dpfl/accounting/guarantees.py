"""Upper and lower bounds on epsilon of a run of noisy steps, for any sampler, relation and observer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple, cast

from scipy.special import ndtri

from dpfl.accounting import gaussian_dp
from dpfl.accounting.neighbouring import HidesSteps, Neighbouring, Observer
from dpfl.accounting.numerics import integer, least_noise, member, real
from dpfl.accounting.phases import phases_interval
from dpfl.accounting.privacy_curves import PrivacyCurve
from dpfl.accounting.sampler_accountants import EpsilonBound, Run, accountant, unamplified
from dpfl.accounting.samplers import (
    Accountable,
    FixedBatches,
    FullBatch,
)

# The least noise that keeps a target, by few evaluations of what a noise spends.

LEAST_NOISE = 1e-3
"""Least noise multiplier that a search looks at; closed forms may answer less."""
TOLERANCE = 1e-5
"""Most that the upper bound at the noise returned may fall below its target, relative to it."""
_JUMP = 30.0  # a steeper curve at the ends of a narrow bracket is a jump
_STALLED = 0.5  # a look that leaves a larger share of the least distance so far is followed by halving
_ROUGHLY = 2e-3
"""How near to the target a search by rough answers ends, relative to it: they are about as far off themselves."""
_STEEPNESS = 1.3
"""Approximate fall of ln epsilon per unit of ln noise, for the second look of a search."""


def no_less(spent: Callable[[float], float], target: float, start: float) -> float:
    """Return `start`, or a little more where rounding asks for it. Source: elementary."""
    noise = start
    while spent(noise) > target:
        noise *= 1 + 1e-11
    return noise


def corrected_search(spent: Callable[..., float], target: float, enough: float, likely: float) -> float:
    """Return what `search` does, by few evaluations of `spent`: `rough` ones show where to begin, and the slope.

    Source: the secant rule.
    """
    looks: dict[float, float] = {}

    def rough(noise: float) -> float:
        looks[math.log(noise)] = value = spent(noise, rough=True)
        return value

    start = search(rough, target * (1 + _ROUGHLY), enough, likely, tolerance=2 * _ROUGHLY, longest=0.7)
    if start <= LEAST_NOISE:
        return search(spent, target, enough, likely)
    highest = math.log(enough)
    here = min(math.log(start), highest - 1e-3)

    def excess(x: float) -> float:
        value = spent(math.exp(x))
        return math.log(value / target) if value > 0 else -math.inf

    try:
        found = least_noise(
            excess,
            here,
            slope=_slope(looks, here),
            room=TOLERANCE,
            longest=0.05,
            low=math.log(LEAST_NOISE),
            high=highest,
            known=True,
            tries=60,
        )
    except ZeroDivisionError:  # two looks at one place: a jump between neighbouring floats
        return search(spent, target, enough, likely)
    return no_less(spent, target, enough) if found is None else math.exp(found)  # None: enough but for rounding


def _slope(looks: dict[float, float], here: float) -> float:
    """Return the slope of ln epsilon between the two looks, epsilon by ln noise, that are nearest to `here`."""
    points = sorted((abs(x - here), x, value) for x, value in looks.items() if 0 < value < math.inf)[:2]
    if len(points) < 2:
        return -2 * _STEEPNESS
    (_, x, value), (_, other, of_other) = points
    slope = math.log(value / of_other) / (x - other)
    return slope if -16 * _STEEPNESS <= slope <= -_STEEPNESS / 4 else -2 * _STEEPNESS  # rough answers may be uneven


def search(
    spent: Callable[[float], float],
    target: float,
    enough: float,
    likely: float,
    *,
    tolerance: float = TOLERANCE,
    longest: float = math.inf,
) -> float:
    """Return noise that spends between (1 - tolerance) target and target: secants in logarithms, within a bracket.

    `spent` falls; at the noise `enough` it is at most `target`; the search starts at `likely`, and takes no step over
    `longest` in ln noise. Where LEAST_NOISE is enough, that is the answer; 0.0 if nothing is spent even there.
    Source: the secant rule.
    """
    high, low, step = math.log(enough), -math.inf, 0.7
    best, points, ends, narrow = None, [], [math.inf, 0.0], max(1e-4, tolerance)
    least = math.log(LEAST_NOISE)
    here = max(min(math.log(likely), high - 1e-3), least)
    for _ in range(60):
        value = spent(math.exp(here))
        if here == least and value <= target:
            return LEAST_NOISE if value else 0.0
        if value <= target:
            high, ends[1] = min(here, high), value
            best = math.exp(high)  # what was looked at, to the last bit
            if value >= target * (1 - tolerance):
                break
        else:
            low, ends[0] = max(here, low), value
        stalled = False
        if 0 < value < math.inf:
            stalled = bool(points) and abs(math.log(value / target)) > _STALLED * points[0][0]
            points = sorted([*points, (abs(math.log(value / target)), here, math.log(value / target))])[:3]
        if high - low < (1e-7 if ends[0] < (1 + _JUMP * narrow) * ends[1] else narrow):
            break
        there = _next([] if stalled and low > -math.inf else points, low, high, step, tolerance)
        here = max(min(max(there, here - longest), here + longest), least)
        step *= 2
    return no_less(spent, target, enough) if best is None else best


def _next(points: list[tuple[float, float, float]], low: float, high: float, step: float, tolerance: float) -> float:
    """Return where to look next: by a curve through the nearest points if that is inside, else by halving."""
    aim = math.log1p(-tolerance / 2)
    least = low if math.isfinite(low) else high - 8
    for count in range(len(points), 0, -1):
        guess = _through(points[:count], aim)
        if least < guess < high:
            return guess
    return (low + high) / 2 if math.isfinite(low) else high - step


def _through(points: list[tuple[float, float, float]], aim: float) -> float:
    """Return where the curve through the points is `aim`, its place a polynomial of its value; NaN where it is none."""
    if len(points) == 1:
        return points[0][1] + (points[0][2] - aim) / _STEEPNESS
    guess = 0.0
    for _, place, value in points:
        others = [other for _, _, other in points if other != value]
        if len(others) < len(points) - 1:
            return math.nan
        guess += place * math.prod((aim - other) / (value - other) for other in others)
    return guess


_SMALLEST_NOISE = 1e-300  # the inverse of less is beyond floats
_MOST_NOISE = 1e150
_UNPROVEN = "nothing is proven for this sampler and relation"
_SMALLEST_DELTA = 1e-15
_ROUNDING = 1e-6  # by which a lower bound may exceed an upper one
_MOST_STEPS = 2**46  # the grids of composed losses reach no further


@dataclass(frozen=True)
class Guarantee:
    """Bounds proven at one delta: the run is (`upper`, delta)-DP, and not (e, delta)-DP for any e < `lower`.

    `upper` is inf and `lower` is 0 if nothing is proven. `upper_by` and `lower_by` name the proof.
    """

    upper: float
    lower: float
    upper_by: str
    lower_by: str


class Phase(NamedTuple):
    """A part of a run with settings of its own: `steps` steps of one sampler and one noise multiplier."""

    sampler: Accountable
    noise_multiplier: float
    steps: int


def guarantee(
    sampler: Accountable,
    *,
    noise_multiplier: float,
    steps: int,
    delta: float,
    neighbouring: Neighbouring | str = Neighbouring.ZERO_OUT,
    observer: Observer | str = Observer.EVERY_STEP,
    convex: HidesSteps | None = None,
) -> Guarantee:
    """Return bounds on epsilon for `steps` noisy steps on batches of `sampler`, at `delta` in [1e-290, 1).

    `noise_multiplier` > 0 is the standard deviation of the noise on a batch's sum over the norm bound of one
    record's contribution, under every relation; integer `steps` >= 0. Where the last epoch is cut short, the upper
    bound counts it as complete and the lower bound leaves it out: seeing less is post-processing.
    Guarantee: that of `Guarantee`, under `neighbouring`, against an adversary who knows all other records and sees
    what `observer` says; losses and clipped gradients are arbitrary. An observer of less than every step has
    the same upper bound, but for that of the last iterate where `convex` states a problem that contracts: then the
    steps before it hide the record (`ConvexProblem`, without clipping; full, fixed and shuffled batches).
    Sources: `poisson_gaussian`, `fixed_batches`, `shuffled_batches`, `balls_in_bins`, each with its derivation;
    `last_iterate_epsilon` for `convex`.
    Raises ValueError naming the argument, also where the relation makes no sense for the sampler.

    >>> from dpfl.accounting import FullBatch, Poisson, ShuffledEpochs, guarantee
    >>> run = {"noise_multiplier": 1.0072, "steps": 1880, "delta": 1e-5}
    >>> found = guarantee(Poisson(1 / 94), **run)
    >>> round(found.lower, 3), round(found.upper, 3)
    (2.642, 2.642)

    Edge cases: no step; a record that is used with a chance of at most delta; a number of steps that changes with the
    record; an observer from whom nothing is known below.

    >>> guarantee(FullBatch(), noise_multiplier=1, steps=0, delta=1e-5).upper
    0.0
    >>> guarantee(Poisson(1e-9), **run).upper
    0.0
    >>> guarantee(ShuffledEpochs(64, 6017), **run, neighbouring="add_or_remove").lower
    inf
    >>> guarantee(Poisson(1 / 94), **run, observer="last_iterate").lower
    0.0
    """
    run = _run(sampler, noise_multiplier, steps, delta, neighbouring)
    view = _view(observer, convex, sampler)
    if run.steps == 0:
        return Guarantee(0.0, 0.0, "no step", "no step")
    upper, lower = _upper(run, convex), EpsilonBound(0.0, f"nothing is known for {view.value}")
    if convex is not None and isinstance(run.sampler, FullBatch) and convex.attained and math.isfinite(upper.epsilon):
        lower = EpsilonBound(
            upper.epsilon * (1 - 1e-9), "a quadratic attains shifted interpolation without a set (bok2024)"
        )
    elif convex is None and _sees_all(run, view):
        lower = accountant(run).lower()
    return _between(lower, upper)


def guarantee_of_phases(
    phases: Sequence[Phase],
    *,
    delta: float,
    neighbouring: Neighbouring | str = Neighbouring.ZERO_OUT,
    observer: Observer | str = Observer.EVERY_STEP,
    convex: HidesSteps | None = None,
) -> Guarantee:
    """Return bounds on epsilon for `phases` one after another on the same records; else as `guarantee`.

    Their losses are added on one grid, each order of the pair separately. Where `convex` states one problem for all
    phases, full batches hide all iterates but the last of each phase: given it, the next phase starts again, so the
    phases' Gaussian DP composes. With it, equal phases in a row are one. Of several phases `round_ends` and
    `last_iterate` have the lower bound 0.
    Source: `guarantee`, composed. Raises ValueError naming the argument: convex too, for phases of another sampler,
    whose last iterates have no proof that composes.

    >>> from dpfl.accounting import FullBatch, Phase, Poisson, guarantee_of_phases
    >>> phases = [Phase(Poisson(0.01), noise_multiplier=1.2, steps=500), Phase(FullBatch(), 40.0, 10)]
    >>> round(guarantee_of_phases(phases, delta=1e-5).upper, 3)
    0.965

    Edge cases: one phase is `guarantee`; phases without a step spend nothing.

    >>> round(guarantee_of_phases(phases[1:], delta=1e-5).upper, 3)
    0.264
    >>> guarantee_of_phases([Phase(FullBatch(), 1.0, 0)], delta=1e-5).upper
    0.0
    """
    view = member("observer", Observer, observer)
    runs = _checked_runs(phases, delta, neighbouring)
    _view(observer, convex, *(phase.sampler for phase in phases))
    if convex is not None:
        runs = _joined(runs)
    if len(runs) <= 1:
        only = runs[0] if runs else _run(FullBatch(), 1.0, 0, delta, neighbouring)
        return guarantee(
            only.sampler,
            noise_multiplier=only.noise_multiplier,
            steps=only.steps,
            delta=delta,
            neighbouring=neighbouring,
            observer=observer,
            convex=convex,
        )
    everything = convex is None and all(_sees_all(run, view) for run in runs) and (view is Observer.EVERY_STEP)
    lower, upper = phases_interval(runs, both=everything)
    if convex is not None:
        upper = min(upper, _hidden_phases(runs, convex))
        return Guarantee(upper.epsilon, 0.0, upper.by, f"nothing is known for {view.value}")
    if not everything:
        lower = EpsilonBound(0.0, f"nothing is known for {view.value}")
    return _between(lower, upper)


def privacy_curve(phases: Sequence[Phase], *, neighbouring: Neighbouring | str = Neighbouring.ZERO_OUT) -> PrivacyCurve:
    """Return the whole privacy of `phases` one after another on the same records, every step seen.

    It answers delta at an epsilon, the errors of tests, their true positive rate and their advantage, each with both
    ends. A run of one setting is one phase. Source: `PrivacyCurve`. Raises ValueError naming the argument.

    >>> from dpfl.accounting import Phase, Poisson, privacy_curve
    >>> curve = privacy_curve([Phase(Poisson(1 / 94), noise_multiplier=1.0072, steps=1880)])
    >>> [round(float(end), 3) for end in curve.true_positive_rate(0.01)]
    [0.043, 0.043]
    >>> [round(end, 3) for end in curve.advantage()]
    [0.231, 0.231]
    >>> lower, upper = curve.delta(2.6424)
    >>> lower <= 1.0002e-5 and upper >= 0.9998e-5
    True

    Edge case: no step.

    >>> privacy_curve([Phase(Poisson(0.1), 1.0, 0)]).advantage()
    Interval(lower=0.0, upper=0.0)
    """
    return PrivacyCurve(tuple(_checked_runs(phases, _SMALLEST_DELTA, neighbouring)))


def noise_multiplier(  # noqa: PLR0913
    sampler: Accountable,
    *,
    steps: int,
    target_epsilon: float | None = None,
    delta: float | None = None,
    target_advantage: float | None = None,
    target_tpr: float | None = None,
    fpr: float | None = None,
    neighbouring: Neighbouring | str = Neighbouring.ZERO_OUT,
    observer: Observer | str = Observer.EVERY_STEP,
    convex: HidesSteps | None = None,
) -> float:
    """Return the least noise multiplier whose proven upper bound is at most the one target that is given.

    `target_epsilon` > 0 at `delta` is for the upper bound of `guarantee`; `target_advantage` in (0, 1) for that of a
    test's advantage; `target_tpr` in (`fpr`, 1) for that of a test's true positive rate at the false positive rate
    `fpr` in (0, 1). The last two are of `privacy_curve`, where `convex` is of no use. Guarantee: that bound is at most
    the target and, but for rounding, within 1e-5 of it, relative (the rate relative to its excess over `fpr`); 0.0
    where any noise at all is enough (a record that is used with a chance below delta, or the advantage), and for
    samplers that amplify 0.001 where less would do. Other arguments as for `guarantee`; `steps` >= 1. Source:
    `guarantee` or `privacy_curve`, solved for the noise. Raises ValueError naming the argument, the target if no
    noise meets it.

    >>> from dpfl.accounting import BallsInBins, Poisson, guarantee, noise_multiplier
    >>> sigma = noise_multiplier(BallsInBins(94), target_epsilon=2.93, steps=1880, delta=1e-5)
    >>> round(sigma, 3), guarantee(BallsInBins(94), noise_multiplier=sigma, steps=1880, delta=1e-5).upper <= 2.93
    (0.931, True)
    >>> round(noise_multiplier(Poisson(1 / 94), target_tpr=0.03, fpr=0.01, steps=1880), 2)
    1.25

    Edge case: a record that is used with a chance of at most delta needs no noise.

    >>> noise_multiplier(Poisson(1e-9), target_epsilon=1, steps=10, delta=1e-5)
    0.0
    """
    targets = {"target_epsilon": target_epsilon, "target_advantage": target_advantage, "target_tpr": target_tpr}
    given = [name for name, target in targets.items() if target is not None]
    if len(given) != 1:
        raise ValueError(f"{', '.join(targets)}: one must be given, got {' and '.join(given) or 'none'}")
    for name, value, target in (("delta", delta, "target_epsilon"), ("fpr", fpr, "target_tpr")):
        if (value is None) == (target in given):
            raise ValueError(f"{name} must be given with {target}, and with no other target, got {value}")
    run = _run(
        sampler, 1.0, integer("steps", steps, at_least=1), _SMALLEST_DELTA if delta is None else delta, neighbouring
    )
    _view(observer, convex, sampler)
    if target_epsilon is not None:
        return _noise_for_epsilon(run, real("target_epsilon", target_epsilon, above=0), convex)
    if convex is not None:
        raise ValueError(f"convex is of use with target_epsilon only, not with {given[0]}")
    if target_advantage is not None:
        return _noise_for_tests(run, real("target_advantage", target_advantage, above=0, below=1), None)
    rate = real("fpr", cast("float", fpr), above=0, below=1)
    return _noise_for_tests(run, real("target_tpr", cast("float", target_tpr), above=rate, below=1), rate)


def _noise_for_epsilon(run: Run, target: float, convex: HidesSteps | None) -> float:
    """Return the noise that keeps epsilon at the run's delta. Raises ValueError naming target_epsilon."""

    def spent(noise: float, *, rough: bool = False) -> float:
        return _upper(replace(run, noise_multiplier=noise), convex, rough=rough).epsilon

    known = accountant(run)
    if not math.isfinite(known.unamplified_mu()):
        enough = _doubled(spent, target)
        return search(spent, target, enough, enough)
    # Without amplification the noise is a closed form, and enough.
    mu = float(gaussian_dp.mu(target, run.delta))
    enough = _unamplified_mu(run, f"target_epsilon {target}") / mu * (1 + 1e-12)
    if not known.amplifies:
        return no_less(spent, target, enough) if convex is None else search(spent, target, enough, enough)
    return (corrected_search if known.has_rough_answers else search)(spent, target, enough, known.likely_noise(mu))


def _doubled(spent: Callable[[float], float], target: float) -> float:
    """Return a noise that spends at most `target`, where no closed form has one. Raises ValueError if none does."""
    noise = 1.0
    while (least := spent(noise)) > target:
        noise *= 2
        if noise > _MOST_NOISE:
            known = f"any spends at least {least:.3g}" if math.isfinite(least) else _UNPROVEN
            raise ValueError(f"target_epsilon {target} is met by no noise: {known}")
    return noise


def _noise_for_tests(run: Run, target: float, fpr: float | None) -> float:
    """Return the noise that keeps the true positive rate at `fpr`, or the advantage; errors naming the target."""
    known, most = accountant(run), target - (fpr or 0.0)
    name, mu = "target_advantage", 2 * float(ndtri((1 + target) / 2))
    if fpr is not None:
        name, mu = "target_tpr", float(ndtri(target) - ndtri(fpr))
    enough = _unamplified_mu(run, f"{name} {target}") / mu * (1 + 1e-8 + 1e-12 / most)
    if known.chance_of_use() * (1 + 1e-9) <= most:
        return 0.0

    def spent(noise: float) -> float:
        curve = PrivacyCurve((replace(run, noise_multiplier=noise),))
        if fpr is None:
            return curve.proven_delta(0.0)
        reached = 1 - float(curve.proven_error(fpr))
        return min(reached - fpr, most) if reached <= target else max(reached - fpr, math.nextafter(most, 1.0))

    if not known.amplifies:
        return no_less(spent, most, enough)
    return search(spent, most, enough, known.likely_noise(mu))


def _unamplified_mu(run: Run, target: str) -> float:
    """Return the mu that the run has at the noise 1 without amplification. Raises ValueError where it has none."""
    mu = accountant(run).unamplified_mu()
    if not math.isfinite(mu):
        raise ValueError(f"{target} is met by no noise: {_UNPROVEN}")
    return mu


def _run(
    sampler: Accountable, noise_multiplier: float, steps: int, delta: float, neighbouring: Neighbouring | str
) -> Run:
    """Check the arguments that all questions share. Raises ValueError naming the argument."""
    relation = member("neighbouring", Neighbouring, neighbouring)
    sigma = real("noise_multiplier", real("noise_multiplier", noise_multiplier, above=0), at_least=_SMALLEST_NOISE)
    count, failure = _count("steps", steps), real("delta", delta, at_least=1e-290, below=1)
    run = Run(sampler, sigma, count, failure, relation)
    accountant(run)  # refuses what is no sampler
    run = replace(run, sampler=_in_plain_numbers(sampler))
    while (simpler := accountant(run).simplified()) != run:
        run = simpler
    return run


def _checked_runs(phases: Sequence[Phase], delta: float, neighbouring: Neighbouring | str) -> list[Run]:
    """Return the runs of the phases that have steps. Raises ValueError naming the argument."""
    if not isinstance(phases, Sequence) or not phases or not all(isinstance(phase, Phase) for phase in phases):
        raise ValueError(f"phases must be one Phase or more, as a list, got {phases!r}")
    runs = [_run(phase.sampler, phase.noise_multiplier, phase.steps, delta, neighbouring) for phase in phases]
    return [run for run in runs if run.steps]


def _between(lower: EpsilonBound, upper: EpsilonBound) -> Guarantee:
    """Return both bounds, the lower one cut to the upper one within rounding. Raises ArithmeticError where they
    contradict each other: one of the proofs, or its code, is wrong."""
    if lower.epsilon > upper.epsilon * (1 + _ROUNDING) + _ROUNDING:
        raise ArithmeticError(
            f"epsilon is at least {lower.epsilon!r} ({lower.by}) and at most {upper.epsilon!r} ({upper.by}): "
            "an accountant of dpfl is wrong here; please report it"
        )
    return Guarantee(upper.epsilon, min(lower.epsilon, upper.epsilon), upper.by, lower.by)


def _count(name: str, value: float) -> int:
    """Return a number of steps. Raises ValueError naming it where it is none, or too large to be composed."""
    return integer(name, real(name, value, at_most=_MOST_STEPS))


def _in_plain_numbers(sampler: Accountable) -> Accountable:
    """Return the sampler with Python's numbers: unsigned ones of numpy wrap around, its short ones round."""
    given = {}
    for each in fields(sampler):
        read = real if each.type in (float, "float") else _count
        given[each.name] = read(each.name, getattr(sampler, each.name))
    return replace(sampler, **given)


def _view(observer: Observer | str, convex: HidesSteps | None, *samplers: object) -> Observer:
    """Check the observer. Raises ValueError naming `observer`, and `convex` where it is of no use or its number of
    records is not the samplers'."""
    view = member("observer", Observer, observer)
    if convex is not None and not hasattr(convex, "last_iterate"):
        raise ValueError(f"convex must be a problem, as ConvexProblem, got {convex!r}")
    if convex is not None and view is not Observer.LAST_ITERATE:
        raise ValueError(f"convex is of use against the observer last_iterate only, not {view.value}")
    stated = getattr(convex, "records", None)
    for known in (getattr(sampler, "records", None) for sampler in samplers):
        if None not in (stated, known) and stated != known:
            raise ValueError(f"convex: records is {stated}, but the sampler has {known}")
    return view


def _upper(run: Run, convex: HidesSteps | None, *, rough: bool = False) -> EpsilonBound:
    """Return the lesser of the sampler's bound and that of the last iterate of a convex problem."""
    everything = accountant(run).upper(rough=rough)
    if convex is None:
        return everything
    setting = {"noise_multiplier": run.noise_multiplier, "steps": run.steps, "delta": run.delta}
    hidden = convex.last_iterate(run.sampler, **setting, neighbouring=run.neighbouring)
    return min(everything, EpsilonBound(*hidden)) if hidden else everything


def _joined(runs: Sequence[Run]) -> list[Run]:
    """Return the runs with equal ones in a row joined, where each step draws its batch for itself."""
    joined: list[Run] = []
    for run in runs:
        like = joined and replace(joined[-1], steps=run.steps) == run
        if like and isinstance(run.sampler, FullBatch | FixedBatches):
            run = replace(run, steps=joined.pop().steps + run.steps)
        joined.append(run)
    return joined


def _hidden_phases(runs: Sequence[Run], convex: HidesSteps) -> EpsilonBound:
    """Return the bound of the last iterates of all phases. Raises ValueError naming convex."""
    mus = []
    for run in runs:
        setting = {"noise_multiplier": run.noise_multiplier, "steps": run.steps, "neighbouring": run.neighbouring}
        mu = convex.last_iterate_mu(run.sampler, **setting)
        if mu is None:
            raise ValueError(f"convex: no proof composes the last iterates of phases of {run.sampler}")
        mus.append(mu)
    epsilon = unamplified(math.hypot(*mus), runs[0].delta).epsilon
    return EpsilonBound(
        epsilon, "last iterates of the phases, shifted interpolation (bok2024), composed as Gaussian DP"
    )


def _sees_all(run: Run, observer: Observer) -> bool:
    """Return whether the worst pair of the run shows itself to the observer.

    Under full batches and a linear loss the gradients are constants: the last iterate is their sum, a sufficient one.
    """
    return observer is Observer.EVERY_STEP or run.steps == 1 or isinstance(run.sampler, FullBatch)
