"""Epsilon by accountants that share no code with those that wrote it into a privacy statement."""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, rdp
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr, logsumexp
from scipy.stats import binom, norm

from dpfl.accounting import dpsgd
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import FixedBatches, WithReplacement
from dpfl.accounting.tradeoff import curves
from dpfl.files import parse_json

if TYPE_CHECKING:
    from dpfl.provenance.trace import Row

# Privacy profiles of single steps, ln delta(epsilon) for epsilon >= 0, from their densities: what the audit composes.
#
# Each holds in both directions of its neighbouring relation.

Array = NDArray[np.float64]
Profile = Callable[[Array], Array]
"""epsilon >= 0, shape (n,), to ln delta of one step, (n,): below -690 where there is none."""
_DEVIATIONS = 13.0
_CELLS = 400_001


def gaussian_log_delta(epsilon: Array, shift: Array) -> Array:
    """Return ln(Phi(shift/2 - epsilon/shift) - e^epsilon Phi(-shift/2 - epsilon/shift)), shift > 0; shapes broadcast.

    Source: asoodeh2020, eq. (10).
    """
    first = log_ndtr(shift / 2 - epsilon / shift)
    second = np.minimum(epsilon + log_ndtr(-shift / 2 - epsilon / shift) - first, -1e-300)
    return first + np.log(np.maximum(-np.expm1(second), 1e-300))


def laplace_log_delta(epsilon: float, shift: float) -> float:
    """Return ln delta of Laplace noise of scale 1 that a record moves by `shift`: where the loss exceeds epsilon."""
    if epsilon >= shift:
        return -math.inf
    cut = (shift - epsilon) / 2
    return math.log1p(-math.exp(-cut) / 2 - math.exp(epsilon + cut - shift) / 2)


def sampled_gaussian(shifts: Array, weights: Array) -> Profile:
    """Return the profile of a mixture: with `weights`[j] the step moves by `shifts`[j] deviations, else not at all.

    balle2018, Theorems 2 and 10, where the laws that differ are `rate` of the whole.
    """
    rate = float(weights.sum())

    def log_delta(epsilon: Array) -> Array:
        moved = gaussian_log_delta(_inner(epsilon, rate)[:, None], shifts)
        return np.asarray(logsumexp(moved, b=weights, axis=1))

    return log_delta


def sampled_arsinh(scale: float, sigma: float, rate: float) -> Profile:
    """Return the profile of noise scale * arsinh(N/scale), N of deviation `sigma`, that a record drawn with probability
    `rate` moves by 1; one coordinate."""
    reach = scale * math.asinh(_DEVIATIONS * sigma / scale)
    points = np.linspace(-reach, reach + 1, _CELLS)

    def log_density(y: Array) -> Array:
        normal = norm.logpdf(scale * np.sinh(y / scale), scale=sigma)
        return normal + np.logaddexp(y / scale, -y / scale) - math.log(2)

    alone = _of_densities(log_density(points - 1), log_density(points), points)
    return lambda epsilon: alone(_inner(epsilon, rate)) + math.log(rate)


def poisson_replaced(sigma: float, rate: float) -> Profile:
    """Return the profile of one Gaussian step on a Poisson sample, a record replaced by its opposite: the laws
    (1 - rate) N(0, sigma^2) + rate N(+-1, sigma^2)."""
    reach = 1 + _DEVIATIONS * sigma
    points = np.linspace(-reach, reach, _CELLS)

    def log_density(side: float) -> Array:
        still, moved = norm.logpdf(points, 0, sigma), norm.logpdf(points, side, sigma)
        return np.logaddexp(np.log1p(-rate) + still, math.log(rate) + moved) if rate < 1 else moved

    return _of_densities(log_density(1.0), log_density(-1.0), points)


def _inner(epsilon: Array, rate: float) -> Array:
    """Return where the profile without sampling is read: ln(1 + (e^epsilon - 1)/rate)."""
    return epsilon + np.log1p(-np.expm1(-epsilon) * (1 - rate) / rate)


def _of_densities(log_p: Array, log_q: Array, points: Array) -> Profile:
    """Return ln of the integral of (p - e^epsilon q)_+ by sums over even points, sorted by their loss."""
    losses = log_p - log_q
    order = np.argsort(-losses)
    width = points[1] - points[0]
    above = np.append(0.0, np.cumsum(np.exp(log_p[order]))) * width
    below = np.append(0.0, np.cumsum(np.exp(log_q[order]))) * width
    falling = -losses[order]

    def log_delta(epsilon: Array) -> Array:
        count = np.searchsorted(falling, -epsilon)
        with np.errstate(over="ignore", invalid="ignore"):
            left = above[count] - np.exp(epsilon) * below[count]
        return np.log(np.maximum(np.nan_to_num(left, nan=0.0, neginf=0.0), 1e-300))

    return log_delta


# Composition without convolution: delta of many steps, by inverting the moment generating function of their loss.
#
# The loss L of a step that is known by its privacy profile delta(epsilon), the same in both directions, has
#
#     E exp(s L) = 1 + s (s + 1) integral_0^inf (e^(s x) + e^(-(s + 1) x)) delta(x) dx        (sason2016, eq. 79)
#
# for complex s too; steps multiply; and for every t > 0 the whole has, by Laplace inversion (the contour integral of
# alghamdi2023),
#
#     delta(epsilon) = (1/pi) integral_0^inf Re[exp(K(t + iy) - (t + iy) epsilon) / ((t + iy)(t + iy + 1))] dy,
#
# with K the logarithm of the product. The trapezoidal rule in y converges faster than any power of its step, where t is
# the Renyi order less 1 that serves epsilon best: no grid of losses, no truncation, nothing rounded up or down.

_TILTS = np.geomspace(2e-3, 5e4, 120)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_SILENT = -690.0
_STEPS_IN_TILT = (64, 128, 256, 512)
"""Step in y: t over this. The rule folds in what is 2 pi 64/t above and below epsilon: rare large losses, so that the
step is halved until every second point gives the same."""
_SAME = 1e-4
_BLOCK = 64
_PANELS_IN_TILT = (1, 4)
"""Panels of the integral over epsilon in 1/t: more where K takes long to fall."""
_TILTS_FAR = 20
"""Largest y over t and over that: e^(iyx) turns faster beyond than the nodes of a panel follow."""
_NEGLIGIBLE = 1e-6
_ROUNDING = -30.0  # logarithm of what the moments' own rounding leaves
_FARTHEST = 2e4
_LARGEST = 2e4
"""Largest epsilon that is inverted: above it the rule would need too many points."""


@dataclass(frozen=True)
class InvertedComposition:
    """Steps that one after the other see the same record: each profile as often as its number says. `delta` > 0."""

    steps: tuple[tuple[Profile, int], ...]
    delta: float

    @property
    def bound(self) -> float:
        """Epsilon by Renyi divergences, never below what is spent; infinite where a step loses too much to be
        integrated. Conversion: canonne2020, Proposition 12."""
        return self._renyi[1]

    def epsilon(self, blur: float = 0.0) -> float:
        """Return what the steps spend together with one Gaussian mechanism that the record moves by `blur` deviations.

        Accurate to 1e-4 of epsilon if the profiles are, mostly far better. nan where the integral does not settle (few
        steps, each of which hardly ever sees the record, so that the loss has an atom at 0) and where epsilon may be
        above `_LARGEST`.
        """
        tilt, alone = self._renyi
        bound = alone + (tilt + 1) * blur**2 / 2
        if alone > _LARGEST:
            return math.nan
        if bound <= 0:
            return 0.0
        for steps in _STEPS_IN_TILT:
            logs, points = _logs(self.steps, tilt, steps, tilt * alone)
            logs = logs + points * (points + 1) * blur**2 / 2
            if not len(logs):
                return math.nan
            fine, coarse = (_solved(logs[::each], points[::each], bound, self.delta) for each in (1, 2))
            if abs(fine - coarse) <= _SAME * fine + 1e-6:
                return fine
        return math.nan

    @cached_property
    def _renyi(self) -> tuple[float, float]:
        """The tilt (Renyi order less 1) that gives the least epsilon, and that epsilon."""
        total = np.zeros(len(_TILTS))
        for profile, count in self.steps:
            reach = _reach(profile)
            if reach > _FARTHEST:
                return math.nan, math.inf
            points = np.concatenate([[0.0], np.geomspace(1e-9, reach, 2000)])
            logs, widths = profile(points), np.diff(points)
            with np.errstate(divide="ignore"):
                middles = np.log(widths / 2)
            values = np.logaddexp(_TILTS[:, None] * points + logs, -(_TILTS[:, None] + 1) * points + logs)
            integrals = logsumexp(np.logaddexp(values[:, :-1], values[:, 1:]) + middles, axis=1)
            total += count * np.logaddexp(0.0, np.log(_TILTS * (_TILTS + 1)) + integrals)
        orders = _TILTS + 1
        spent = (total - math.log(self.delta) - np.log(orders)) / _TILTS + np.log1p(-1 / orders)
        best = int(np.argmin(spent))
        return float(_TILTS[best]), float(spent[best])


@lru_cache(maxsize=len(_STEPS_IN_TILT))
def _logs(
    steps: tuple[tuple[Profile, int], ...], tilt: float, steps_in_tilt: int, cancelled: float
) -> tuple[NDArray[np.complex128], NDArray[np.complex128]]:
    """Return K at tilt + iy, y in even steps until its real part has fallen to nothing, and those points; none where it
    does not. Nothing is relative to delta, which is less than the first term by up to e^-`cancelled`."""
    for panels_in_tilt in _PANELS_IN_TILT:
        known = [(_log_moments(profile, tilt, tilt / steps_in_tilt, panels_in_tilt), count) for profile, count in steps]
        values: list[NDArray[np.complex128]] = []
        points: list[NDArray[np.complex128]] = []
        for block in range(_TILTS_FAR * panels_in_tilt * steps_in_tilt // _BLOCK):
            places = np.arange(block * _BLOCK, (block + 1) * _BLOCK)
            at = np.asarray(tilt + 1j * tilt / steps_in_tilt * places, dtype=np.complex128)
            values.append(np.sum([count * log_moments(at) for log_moments, count in known], axis=0))
            points.append(at)
            size = values[-1].real - values[0][0].real - 2 * np.log(np.abs(at) / tilt)
            if size.max() < max(math.log(_NEGLIGIBLE) - cancelled, _ROUNDING):
                return np.concatenate(values), np.concatenate(points)
    return np.empty(0, dtype=complex), np.empty(0, dtype=complex)


def _solved(logs: NDArray[np.complex128], points: NDArray[np.complex128], bound: float, delta: float) -> float:
    """Return the epsilon, at most `bound`, at which the trapezoidal rule over `points` gives delta; nan where the terms
    that it leaves out may matter."""
    tilt, step, scale = points[0].real, float(points[1].imag), logs[0].real

    def terms(epsilon: float) -> NDArray[np.complex128]:
        # The factor keeps what is logged in range.
        return np.exp(logs - scale - 1j * points.imag * epsilon) / (points * (points + 1))

    def excess(epsilon: float) -> float:
        each = terms(epsilon)
        sum_ = float(each[0].real / 2 + each[1:].real.sum()) * step / math.pi
        return math.log(max(sum_, 1e-300)) + scale - tilt * epsilon - math.log(delta)

    # Far below the answer the terms cancel, so the bracket is walked down to, not started at 0.
    low = bound
    if excess(low) > 0:
        return math.nan  # epsilon cannot be above its bound
    while excess(low) <= 0:
        low *= 0.9
        if low < 1e-6:
            return 0.0
    result = _zero(excess, low, min(bound, low / 0.9))
    each = terms(result)
    left_out = len(each) * np.abs(each[-_BLOCK:]).mean()  # where terms fall as 1/y^2
    return result if left_out < _SAME * abs(each[0] / 2 + each[1:].sum().real) else math.nan


def _zero(excess: Callable[[float], float], low: float, high: float, xtol: float = 1e-10) -> float:
    """Return the zero of a function whose signs at both ends differ, to `xtol`."""
    return cast("float", brentq(excess, low, high, xtol=xtol))


def _reach(profile: Profile) -> float:
    """Return an epsilon beyond which a step's delta is nothing."""
    largest = 1.0
    while profile(np.array([largest]))[0] > _SILENT and largest <= _FARTHEST:
        largest *= 1.5
    return largest


def _nodes(profile: Profile, tilt: float, panels_in_tilt: int) -> tuple[Array, Array]:
    """Return nodes of the integral over epsilon and ln(weight delta) there: panels grow to a width of 1/tilt, or that
    over `panels_in_tilt`."""
    reach = _reach(profile)
    widest = min(1 / (panels_in_tilt * tilt), max(0.5, reach / 500))
    scan = np.linspace(0.0, reach, 4000)
    heights = profile(scan) + tilt * scan
    reach = scan[min(len(scan) - 1, int(np.flatnonzero(heights > heights.max() - 60).max()) + 1)]
    narrow = widest * 2.0 ** -np.arange(24, -1, -1.0)
    edges = np.concatenate([[0.0], narrow, np.arange(2 * widest, reach + widest, widest)])
    half = np.diff(edges) / 2
    nodes = ((edges[:-1] + half)[:, None] + half[:, None] * _NODES).ravel()
    return nodes, np.log((half[:, None] * _WEIGHTS).ravel()) + profile(nodes)


def _log_moments(
    profile: Profile, tilt: float, step: float, panels_in_tilt: int
) -> Callable[[NDArray[np.complex128]], NDArray[np.complex128]]:
    """Return what gives ln E exp(s L) at `_BLOCK` points s = tilt + iy, y in steps of `step`.

    e^(iyx) is that of the block's first y times one that all blocks share, which costs most.
    """
    nodes, mass = _nodes(profile, tilt, panels_in_tilt)
    sizes = np.exp(np.stack([tilt * nodes + mass, -(tilt + 1) * nodes + mass], axis=1))
    turns = np.exp(1j * step * np.arange(_BLOCK)[:, None] * nodes)

    def log_moments(at: NDArray[np.complex128]) -> NDArray[np.complex128]:
        up, down = (turns @ (sizes * np.exp(1j * at[0].imag * nodes)[:, None])).T
        return np.log1p(at * (at + 1) * (up + down.conj()))

    return log_moments


# Check a privacy statement by another accountant: which one answers for which mechanism and sampler.
#
# Statements are read back from the columns of a run table, mechanism and sampler as the JSON that
# dpfl.accounting.statements.encode writes; no prose is read.

PRIVACY = "privacy_"
_MOVES = {Neighbouring.ADD_OR_REMOVE: 1.0, Neighbouring.ZERO_OUT: 1.0, Neighbouring.REPLACE_ONE: 2.0}
_FACTS = (
    "radius", "regularisation", "step", "release", "order", "law", "model", "batch_size", "batch_factor", "scaling",
    "epochs", "preparation", "clipping",
)  # fmt: skip
_EXACT = ("normalised_exactly", "exact_pca", "batch_normalised")
"""Preparations of the inputs by statistics of other records, without noise: no guarantee."""
_NOISY = ("normalised", "dp_pca")
"""Preparations that release noisy statistics; those of a record alone (layer_normalised) release nothing."""
_MEAN = ("clipping", "mean")
_FAULTS = (_MEAN, *(("preparation", each) for each in _EXACT))
"""What controls do that their statement leaves out."""
_LOGISTIC_CURVATURE = 0.25
_LARGEST_NUMBER = 10_000_000
"""Of records or steps of a statement; ours have 220,000. Composing more may take hours, or all memory."""
_LARGEST_BATCH = 50_000


@dataclass(frozen=True)
class StatedPrivacy:
    """Parts of a run's privacy statement and settings that decide its epsilon; None if nothing is stated.

    `mechanism` and `sampler` are JSON objects with the key `kind`; `facts` are settings by name, as text; `strategy` is
    the definition of the run's, as JSON. An infinite bound of a run with noise states nothing. `is_control`: its
    epsilon is false on purpose, for an attack to refute.
    """

    mechanism: str
    sampler: str
    neighbouring: str
    records: int
    sample_rate: float
    clip_norm: float
    noise_multiplier: float
    steps: int
    delta: float
    epsilon_proven: float | None
    epsilon_refuted: float | None
    epsilon_contraction: float | None
    facts: tuple[tuple[str, str], ...]
    strategy: str
    preparation_epsilon: float
    is_control: bool = False

    @classmethod
    def of(cls, run: Row, settings: Mapping[str, Any], *, is_control: bool = False) -> StatedPrivacy:
        """Return the statement of a row of a run table, and of its job's settings.

        Raises ValueError for larger numbers than any run of ours has.
        """
        strategies = settings.get("strategies", {})
        prepares = run.get("preparation", "none") in _NOISY
        sizes = [(name, float(run[f"{PRIVACY}{name}"])) for name in ("records", "steps")]
        for part in ("mechanism", "sampler"):
            sizes += [each for each in parse_json(run[f"{PRIVACY}{part}"]).items() if _is_size(each[1])]
        for name, size in sizes:
            if size > (_LARGEST_BATCH if name == "batch_size" else _LARGEST_NUMBER):
                raise ValueError(f"{name} is {size:g}, which no run of ours has")
        return cls(
            mechanism=run[f"{PRIVACY}mechanism"],
            sampler=run[f"{PRIVACY}sampler"],
            neighbouring=run[f"{PRIVACY}neighbouring"],
            records=int(float(run[f"{PRIVACY}records"])),
            sample_rate=float(run[f"{PRIVACY}sample_rate"]),
            clip_norm=float(run[f"{PRIVACY}clip_norm"]),
            noise_multiplier=float(run[f"{PRIVACY}noise_multiplier"]),
            steps=int(float(run[f"{PRIVACY}steps"])),
            delta=float(run[f"{PRIVACY}delta"]),
            epsilon_proven=_stated(run, "proven"),
            epsilon_refuted=_stated(run, "refuted"),
            epsilon_contraction=_stated(run, "contraction"),
            facts=tuple((name, run[name]) for name in _FACTS if run.get(name, "") not in ("", "nan")),
            strategy=json.dumps(strategies[run["strategy"]]) if run.get("strategy") in strategies else "",
            preparation_epsilon=float(settings["preparation_share"]) * float(run["epsilon"]) if prepares else 0.0,
            is_control=is_control,
        )

    @property
    def title(self) -> str:
        """The kinds of mechanism and sampler."""
        return f"{parse_json(self.mechanism)['kind']}, {parse_json(self.sampler)['kind']}"

    @property
    def drawn(self) -> int:
        """Number of records that a step draws."""
        return round(self.sample_rate * self.records)

    @property
    def epsilons(self) -> dict[str, float]:
        """Stated epsilons by kind: proven, refuted, or of the last model by contraction."""
        stated = {"proven": self.epsilon_proven, "contraction": self.epsilon_contraction}
        known = {
            which: epsilon
            for which, epsilon in stated.items()
            if epsilon is not None and (math.isfinite(epsilon) or self.noise_multiplier == 0)
        }
        return known | ({"refuted": self.epsilon_refuted} if self.epsilon_refuted else {})


def _is_size(value: object) -> bool:
    """Return whether a value of a mechanism or sampler is a number that can be compared."""
    return isinstance(value, int | float) and not math.isnan(value)


def _stated(run: Row, which: str) -> float | None:
    """Return an epsilon of a run's statement; None instead of nan, which is not equal to itself."""
    epsilon = float(run.get(f"{PRIVACY}epsilon_{which}") or "nan")
    return None if math.isnan(epsilon) else epsilon


def interval(stated: StatedPrivacy, which: str) -> EpsilonInterval | None:
    """Return another accountant's `which` epsilon ("proven", "refuted" or "contraction") of a statement; None
    where it has no answer.

    Statements without noise, about statistics without noise, or about arsinh noise, which is bounded for moves along
    one axis alone, have to say that epsilon is infinite. What is refuted must not exceed what is proven, or bounded. A
    control states bounds on epsilon for its run without the fault.
    """
    stated = _without_fault(stated) if stated.is_control else stated
    if stated.noise_multiplier == 0:
        return EpsilonInterval(math.inf, math.inf, "no noise, no guarantee")
    if which == "contraction":
        return hidden(_hidden(stated), stated.delta)
    if dict(stated.facts).get("preparation") in _EXACT:
        return EpsilonInterval(
            0.0 if which == "refuted" else math.inf, math.inf, "statistics without noise, no guarantee"
        )
    proven = _proven(stated)
    if which == "refuted" and proven is not None:
        return EpsilonInterval(0.0, proven.upper, proven.accountant)
    if stated.strategy and "arsinh_scale" in parse_json(stated.strategy):
        return EpsilonInterval(math.inf, math.inf, "arsinh noise, no guarantee for moves over several axes")
    return proven


def _without_fault(stated: StatedPrivacy) -> StatedPrivacy:
    """Return the statement of a run that has none of the faults which are planted in controls."""
    facts = [(name, value) for name, value in stated.facts if (name, value) not in _FAULTS]
    return replace(stated, facts=tuple(facts))


def control_problem(stated: StatedPrivacy) -> str:
    """Return why a statement belongs to no control: its epsilon is proven of what the run does, or may be. "" if it
    is one.
    """
    epsilon, limits = stated.epsilons.get("proven"), interval(replace(stated, is_control=False), "proven")
    if epsilon is None:
        return "is marked known_bad, but states no epsilon"
    if limits is None:
        return f"is marked known_bad, but no accountant here can tell whether its epsilon_proven {epsilon:.6g} is false"
    if limits.proves(epsilon):
        between = f"{limits.accountant} gives {limits.lower:.6g} to {limits.upper:.6g}"
        return f"is marked known_bad, but its epsilon_proven {epsilon:.6g} is proven; {between}"
    return ""


def _proven(stated: StatedPrivacy) -> EpsilonInterval | None:
    """Return where an upper bound has to be, by the kind of the mechanism."""
    mechanism = parse_json(stated.mechanism)
    kind, move = mechanism["kind"], _MOVES[Neighbouring(stated.neighbouring)]
    run = {"noise_multiplier": stated.noise_multiplier, "steps": stated.steps, "delta": stated.delta}
    if kind == "Gaussian":
        return _turned_mean(stated, run) or _gaussian(stated, run, move)
    if kind == "SummedGaussian":
        return gaussian(**run, move=move / math.sqrt(mechanism["clients"]))
    if kind == "ShuffledGaussian":
        return shuffled(**run, move=move, clients=mechanism["clients"], records=mechanism["records"])
    if stated.neighbouring != Neighbouring.REPLACE_ONE:
        return None
    if kind == "ClippedMeanGaussian":
        return _replaced(stated, run, "mean_")
    if kind == "Laplace":
        once = {"noise_multiplier": stated.noise_multiplier, "delta": stated.delta}
        return laplace(**once, move=move)
    if kind == "Segmented" and stated.strategy:
        return stepwise(_steps(stated), stated.delta)
    return None


def _gaussian(stated: StatedPrivacy, run: dict[str, Any], move: float) -> EpsilonInterval | None:
    """Return the interval of Gaussian noise, by the kind of the sampler."""
    sampler = parse_json(stated.sampler)["kind"]
    replaces = stated.neighbouring == Neighbouring.REPLACE_ONE
    if sampler == "Poisson":
        rate = {"sample_rate": stated.sample_rate}
        poisson = poisson_pld_replaced if replaces else poisson_pld
        return poisson(**run, **rate)
    if sampler == "FullBatch" or (sampler == "FixedBatches" and stated.sample_rate >= 1):
        return gaussian(**run, move=move)
    if sampler in ("ShuffledEpochs", "BallsInBins") and stated.neighbouring != Neighbouring.ADD_OR_REMOVE:
        # A record is in one message per epoch: what is spent is at most as many messages.
        epochs = math.ceil(stated.steps / math.ceil(round(1 / stated.sample_rate, 9)))
        once = gaussian(**{**run, "steps": epochs}, move=move)
        return once if sampler == "ShuffledEpochs" else replace(once, lower=0.0)  # drawn apart, they hide each other
    return _replaced(stated, run) if replaces else None


def _turned_mean(stated: StatedPrivacy, run: dict[str, Any]) -> EpsilonInterval | None:
    """Return the interval of a mean that is clipped as a whole, with the noise of one whose records are: a record that
    is drawn moves it by the batch size times as much. None for another run."""
    size = parse_json(stated.sampler).get("batch_size", 1)
    if _MEAN not in stated.facts or stated.neighbouring != Neighbouring.REPLACE_ONE or size <= 1:
        return None
    return _replaced(stated, run | {"noise_multiplier": stated.noise_multiplier / size}, "mean_")


_REPLACED = {kind.__name__: kind.sampling for kind in (FixedBatches, WithReplacement)}


def _replaced(stated: StatedPrivacy, run: dict[str, Any], kind: str = "") -> EpsilonInterval | None:
    """Return the interval of batches of a fixed size with one record replaced; `kind` is "mean_" for clipped means."""
    sampler = parse_json(stated.sampler)
    if sampler["kind"] not in _REPLACED:
        return None
    sizes = {"batch_size": sampler["batch_size"], "records": sampler["records"]}
    return sampled_replacement(**run, **sizes, replaced=f"{kind}{_REPLACED[sampler['kind']]}")


def _hidden(stated: StatedPrivacy) -> Hidden:
    """Return the run behind an epsilon by contraction."""
    facts = dict(stated.facts)
    single = "law" in facts  # asoodeh2020: one record per step
    squared = facts.get("model") == "mean_ink"
    convexity = 1.0 if squared else float(facts["regularisation"])
    release, _, share = facts.get("release", "last").partition("_")
    first = {"last": stated.steps, "random": 1}.get(release)
    return Hidden(
        noise_multiplier=stated.noise_multiplier,
        rounds=stated.steps,
        batch_size=stated.drawn,
        step=None if facts["step"] == "harmonic" else float(facts["step"]),
        lipschitz=stated.clip_norm,
        radius=float(facts["radius"]),
        smoothness=1.0 if squared else _LOGISTIC_CURVATURE + convexity,
        strong_convexity=convexity,
        first_stop=first or max(1, math.ceil(float(share) * stated.steps - 1e-9)),
        permuted=facts.get("order", "permuted") == "permuted",
        laplace=facts.get("law") == "laplace",
        relaxed=not single,
    )


def _steps(stated: StatedPrivacy) -> tuple[AuditedSteps, ...]:
    """Return the releases of a run of vandijk2023: its preparation, and rounds whose noise and batches change as the
    strategy says, in parts of equal length."""
    facts, strategy = dict(stated.facts), parse_json(stated.strategy)
    factor = int(float(facts["batch_factor"]))
    epochs = int(float(facts["epochs"])) * (factor if facts["scaling"] == "rounds" else 1)
    sizes = int(float(facts["batch_size"])) * factor * _parts(strategy.get("batch_factors", [1.0]), epochs)
    by_round = [(round(size), epoch) for epoch, size in enumerate(sizes) for _ in range(stated.records // round(size))]
    noise = _parts(strategy.get("noise_factors", [1.0]), len(by_round))
    ending = math.sqrt(epochs + 1) if strategy.get("last_epoch") else 1.0
    sigma = stated.noise_multiplier / _MOVES[Neighbouring(stated.neighbouring)]
    kinds = Counter(
        (size, float(of) / (ending if epoch == epochs - 1 else 1.0))
        for (size, epoch), of in zip(by_round, noise, strict=True)
    )
    scale = float(strategy.get("arsinh_scale", math.inf))
    steps = [
        AuditedSteps(count, sigma * of, size / stated.records, scale) for (size, of), count in sorted(kinds.items())
    ]
    if stated.preparation_epsilon:
        steps.append(AuditedSteps(1, gaussian_sigma(stated.preparation_epsilon, stated.delta), 1.0))
    return tuple(steps)


def _parts(factors: list[float], count: int) -> np.ndarray:
    """Return the factor of each of `count` places, cut into as equal parts as can be."""
    parts = np.array_split(np.arange(count), len(factors))
    return np.repeat(factors, [len(part) for part in parts])


# Epsilon of a model whose earlier models stay secret (asoodeh2020, asoodeh2021), round by round.
#
# A record opens the divergence h_t = theta(move of its own round) in the round that reads it; every later round
# multiplies what is left of it by c_t = theta(how far apart two models may enter that round). A secret order puts the
# record into each of T rounds with probability 1/T, so S_t = c_t S_(t-1) + h_t/T is that of the model after round t,
# and a secret stop averages S over the rounds after which it may come. The numbers that runs state come from closed
# forms and sums in logarithms; here the recursion itself is walked.

_LAPLACE_DEVIATION = math.sqrt(2.0)


@dataclass(frozen=True)
class Hidden:
    """A run whose released model hides the others. `noise_multiplier` is the deviation of the noise in a round's sum of
    `batch_size` gradients over `lipschitz`; `step` is the step size, None for 1/(strong_convexity t) in round t.

    `first_stop` is the first round after which the model may be taken, `rounds` for the last one. `permuted`: the order
    is secret. `relaxed`: steps beyond those that bring models nearer count too (asoodeh2021, after Theorem 2).
    Raises ValueError for a public order whose worst place is not known: stops from a later round on, or unequal steps.
    """

    noise_multiplier: float
    rounds: int
    batch_size: int
    step: float | None
    lipschitz: float
    radius: float
    smoothness: float
    strong_convexity: float
    first_stop: int
    permuted: bool = True
    laplace: bool = False
    relaxed: bool = True

    def __post_init__(self) -> None:
        if not self.permuted and self.first_stop < self.rounds and (self.first_stop > 1 or self.step is None):
            raise ValueError("permuted: a public order is followed for one stop or any stop, and for equal steps only")

    @property
    def own_move(self) -> float:
        """Move of the record's own round, in noise scales."""
        return 2.0 / self._scale

    @property
    def _scale(self) -> float:
        """The noise's scale parameter over lipschitz: a Laplace law's deviation is sqrt(2) of it."""
        return self.noise_multiplier / (_LAPLACE_DEVIATION if self.laplace else 1.0)

    @cached_property
    def moves(self) -> tuple[Array, NDArray[np.intp]]:
        """Return the noise scales by which two models may differ when they enter a round's noise: the numbers that
        occur, and which of them each round has, (rounds,)."""
        rounds = np.arange(1, self.rounds + 1)
        steps = 1 / (self.strong_convexity * rounds) if self.step is None else np.full(self.rounds, self.step)
        wide = np.array([self._diameter(eta) for eta in steps]) if self.step is None else self._diameter(self.step)
        return np.unique(wide * self.batch_size / (steps * self._scale * self.lipschitz), return_inverse=True)

    def _diameter(self, eta: float) -> float:
        """Return the diameter of the set that a step reaches from the ball: the least of the applicable bounds."""
        beta, rho = self.smoothness, self.strong_convexity
        known = []
        if self.relaxed:
            known.append(2 * (abs(1 - eta * rho) * self.radius + eta * self.lipschitz))
        if self.relaxed and eta * beta <= 2:
            known.append(2 * self.radius)
        if eta * (beta + rho) <= 2:
            known.append(2 * self.radius * math.sqrt(max(0.0, 1 - 2 * eta * beta * rho / (beta + rho))))
        return min(known)

    def log_delta(self, epsilon: float) -> float:
        """Return ln delta of the record with the least privacy."""
        moves, which = self.moves
        round_divergence, factors = self.theta(epsilon, np.asarray(self.own_move)), self.theta(epsilon, moves)[which]
        stops = self.first_stop < self.rounds
        if not (self.permuted or stops):
            return _log(float(round_divergence))  # the last record, whom no later step hides
        left = _walk(float(round_divergence) / self.rounds, factors, constant=len(moves) == 1)
        # In a public order the first record has the least privacy: the sum over stops of the divergence left of it.
        return _log(float(left[self.first_stop - 1 :].mean() if self.permuted else left[-1]))

    def theta(self, epsilon: float, move: Array) -> Array:
        """Return the divergence of the noise from itself moved by `move`."""
        if self.laplace:
            return np.maximum(-np.expm1((epsilon - move) / 2), 0.0)
        return np.exp(gaussian_log_delta(np.asarray(epsilon), move))


def _walk(share: float, factors: Array, *, constant: bool) -> Array:
    """Return S_t = factor_t S_(t-1) + share after every round; where `factors` are `constant`, as sums of powers."""
    if constant:
        powers = np.cumprod(np.concatenate([[1.0], factors[1:]]))
        return np.asarray(share * np.cumsum(powers), dtype=np.float64)
    return np.fromiter(accumulate(factors.tolist(), lambda left, factor: factor * left + share, initial=0.0), float)[1:]


@cache
def hidden_epsilon(run: Hidden, delta: float) -> float:
    """Return epsilon at `delta`, in (0, 1), of the released model, at most the epsilon of the record's own round.

    Source: asoodeh2020, Theorems 3 to 5, and asoodeh2021, Theorem 2, as recursions.
    """
    alone = _root(lambda epsilon: _log(float(run.theta(epsilon, np.asarray(run.own_move)))) - math.log(delta))
    return min(alone, _root(lambda epsilon: run.log_delta(epsilon) - math.log(delta), alone))


def _root(excess: Callable[[float], float], largest: float = 1.0) -> float:
    """Return where a falling function reaches 0; 0 where it starts below, `largest` doubled until it is beyond."""
    if excess(0.0) <= 0:
        return 0.0
    while excess(largest) > 0:
        largest *= 2
    return _zero(excess, 0.0, largest)


def _log(value: float) -> float:
    """Return the logarithm of a probability that may have underflowed."""
    return math.log(max(value, 1e-300))


# Epsilon by another accountant than the one that wrote it into a privacy statement.
#
# Everywhere `noise_multiplier` > 0 is the noise's deviation over one record's norm bound, `move` by how many such
# bounds replacing or removing the record moves what is released, `sample_rate` in (0, 1], `steps` >= 1, `delta` in (0,
# 1).

_RARE = 1e-3
_PROFILE_GRID = 1e-4  # of dpfl.accounting.local_privacy
_POISSON_INTERVAL = 1e-4
_LARGEST_PRV = 100.0
_WIDE = 1.5
_INVERTED = "inversion of the moment generating function"


@dataclass(frozen=True)
class EpsilonInterval:
    """The interval in which a stated epsilon has to be, and the accountant that gave it."""

    lower: float
    upper: float
    accountant: str

    def holds(self, epsilon: float) -> bool:
        """Return whether epsilon is in the interval."""
        return self.lower <= epsilon <= self.upper

    def proves(self, epsilon: float) -> bool:
        """Return whether epsilon is proven: not below the interval, nor in it where that only bounds it."""
        return epsilon >= (self.upper if self.wide else self.lower)

    @property
    def wide(self) -> bool:
        """True where the accountant only bounds epsilon: a change of the noise may stay hidden between its ends."""
        return math.isfinite(self.lower) and self.upper > _WIDE * self.lower + 1e-3


@dataclass(frozen=True)
class AuditedSteps:
    """`count` steps of one kind: noise of `sigma` sensitivities on a batch of a share `rate` of the records, drawn
    without replacement. `arsinh_scale`: a over sigma of the noise a arsinh(N/a), infinite for Gaussian noise."""

    count: int
    sigma: float
    rate: float
    arsinh_scale: float = math.inf

    def profile(self) -> Profile:
        """Return what one of the steps spends."""
        if math.isinf(self.arsinh_scale):
            return sampled_gaussian(np.array([1 / self.sigma]), np.array([self.rate]))
        return sampled_arsinh(self.arsinh_scale * self.sigma, self.sigma, self.rate)


@cache
def poisson_rdp(*, noise_multiplier: float, sample_rate: float, steps: int, delta: float) -> EpsilonInterval:
    """Return the interval of Opacus's Renyi epsilon: around dp_accounting's, whose orders differ. Relation: add or
    remove one."""
    accountant = rdp.RdpAccountant()
    absl = logging.getLogger("absl")
    level, absl.level = absl.level, logging.ERROR  # it logs every order that it leaves out
    try:
        accountant.compose(PoissonSampledDpEvent(sample_rate, GaussianDpEvent(noise_multiplier)), steps)
        epsilon = float(accountant.get_epsilon(delta))
    finally:
        absl.level = level
    return EpsilonInterval(0.98 * epsilon - 1e-3, 1.02 * epsilon + 1e-3, "dp_accounting's Renyi accountant")


@cache
def poisson_pld(*, noise_multiplier: float, sample_rate: float, steps: int, delta: float) -> EpsilonInterval:
    """Return the interval of a PLD epsilon: within the error of Opacus's accountant of privacy random variables; where
    epsilon is too large for that, at most at the Renyi epsilon."""
    run = {"noise_multiplier": noise_multiplier, "sample_rate": sample_rate, "steps": steps, "delta": delta}
    renyi = poisson_rdp(**run)
    if renyi.upper > _LARGEST_PRV:
        return EpsilonInterval(0.0, renyi.upper, renyi.accountant)
    epsilon = float(dpsgd.epsilon(**run, accountant="prv"))
    slack = 2 * dpsgd.PRV_EPSILON_ERROR
    return EpsilonInterval(epsilon - slack, epsilon + slack / 2, "Opacus's PRV accountant")


@cache
def poisson_pld_replaced(*, noise_multiplier: float, sample_rate: float, steps: int, delta: float) -> EpsilonInterval:
    """Return the interval of a PLD epsilon for replacing a record of Poisson samples."""
    return _inverted(((poisson_replaced(noise_multiplier, sample_rate), steps),), delta, _POISSON_INTERVAL)


def gaussian(*, noise_multiplier: float, move: float, steps: int, delta: float) -> EpsilonInterval:
    """Return the interval of epsilon of `steps` Gaussian mechanisms that a record moves by `move` norm bounds: around
    the closed form of balle2018gaussian, Theorem 8, solved here. Statements round up, so there is more room above."""
    shift = move * math.sqrt(steps) / noise_multiplier

    def excess(epsilon: float) -> float:
        return float(gaussian_log_delta(np.array([epsilon]), np.array([shift]))[0]) - math.log(delta)

    if excess(0.0) <= 0:
        return EpsilonInterval(0.0, 1e-6, "the closed form")
    largest = shift**2 + shift * math.sqrt(2 * math.log(1 / delta)) + 1
    epsilon = _zero(excess, 0.0, largest)
    return EpsilonInterval(epsilon * (1 - 1e-3) - 1e-4, epsilon * (1 + 2e-3) + 2e-4, "the closed form")


def gaussian_sigma(epsilon: float, delta: float) -> float:
    """Return the noise, over what a record moves, with which one Gaussian mechanism spends `epsilon` at `delta`."""

    def excess(log_shift: float) -> float:
        return float(gaussian_log_delta(np.array([epsilon]), np.exp([log_shift]))[0]) - math.log(delta)

    return math.exp(-_zero(excess, -20.0, 10.0, xtol=1e-12))


def laplace(*, noise_multiplier: float, move: float, delta: float) -> EpsilonInterval:
    """Return the interval of epsilon of one Laplace mechanism, its deviation sqrt(2) scales: from the masses of its
    tails. The slack is that of the root."""
    shift = move * math.sqrt(2) / noise_multiplier
    if laplace_log_delta(0.0, shift) <= math.log(delta):
        return EpsilonInterval(0.0, 1e-6, "the tails of two Laplace laws")
    epsilon = _zero(lambda x: max(laplace_log_delta(x, shift), -1e3) - math.log(delta), 0.0, shift)
    return EpsilonInterval(epsilon * (1 - 1e-6) - 1e-6, epsilon * (1 + 1e-6) + 1e-6, "the tails of two Laplace laws")


def shuffled(
    *, noise_multiplier: float, move: float, clients: int, records: int, steps: int, delta: float
) -> EpsilonInterval:
    """Return the interval of epsilon behind a trusted shuffler: at least the messages' mean has, which can be
    computed from what is shuffled, and at most that of a client's own messages, from which the shuffle is computed.

    At least the latter where the client can be told apart: all gradients of the others are -C, all of its own +C but
    the one that is replaced, so its message is the largest in every round but for a chance that is counted here.
    """
    run = {"noise_multiplier": noise_multiplier, "steps": steps}
    mean = gaussian(**run, delta=delta, move=move / math.sqrt(clients))
    local = gaussian(**run, delta=delta, move=move)
    apart = (records - 1) * move / noise_multiplier / math.sqrt(2)
    confused = steps * (clients - 1) * norm.sf(apart) * (1 + math.exp(min(local.upper, 600.0)))
    lower = mean.lower
    if confused <= _CONFUSED * delta:
        lower = max(lower, gaussian(**run, delta=(1 + _CONFUSED) * delta, move=move).lower)
    return EpsilonInterval(lower, local.upper, "the closed forms for trust in the server and in nobody")


_CONFUSED = 1e-3
"""Share of delta that the chance of taking one client's message for another's may cost."""


@cache
def sampled_replacement(
    *, noise_multiplier: float, batch_size: int, records: int, steps: int, delta: float, replaced: str
) -> EpsilonInterval:
    """Return the interval of epsilon of subsampled Gaussian steps under replace_one.

    `replaced`: "with_replacement" (a record fills Bin(K, 1/n) slots), "fixed_without_replacement" (one slot, with
    probability K/n), or either after "mean_" (the batch's mean is clipped: the complete message turns wherever the
    record is drawn). Multiplicities that cost a thousandth of delta in all steps are left out.
    """
    if replaced.endswith("fixed_without_replacement"):
        times, weights = np.ones(1), np.array([min(1.0, batch_size / records)])
    elif replaced == "mean_with_replacement":
        times, weights = np.ones(1), np.array([-math.expm1(batch_size * math.log1p(-1 / records))])
    else:
        most = max(1, int(binom.isf(_RARE * delta / steps, batch_size, 1 / records)))
        times = np.arange(1.0, most + 1)
        weights = binom.pmf(times, batch_size, 1 / records)
    return _inverted(((sampled_gaussian(times * 2 / noise_multiplier, weights), steps),), delta, _PROFILE_GRID)


@cache
def stepwise(steps: tuple[AuditedSteps, ...], delta: float) -> EpsilonInterval:
    """Return the interval of epsilon of steps of several kinds, one record replaced, each with the pair of laws that
    sampling without replacement makes of its noise (vandijk2023, section 4.2)."""
    return _inverted(tuple((each.profile(), each.count) for each in steps), delta, curves.INTERVAL)


def hidden(run: Hidden, delta: float) -> EpsilonInterval:
    """Return the interval of epsilon of a model whose earlier models stay secret. Both routes solve the same equation
    without discretising anything, so the slack is that of two roots."""
    epsilon = hidden_epsilon(run, delta)
    return EpsilonInterval(epsilon * (1 - 1e-5) - 1e-6, epsilon * (1 + 1e-5) + 1e-6, "the recursion over rounds")


def _inverted(steps: tuple[tuple[Profile, int], ...], delta: float, grid: float) -> EpsilonInterval:
    """Return the interval around what steps spend, for an accountant that keeps losses on a grid.

    It splits each loss between its neighbours on the grid, masses under both laws kept: that adds at most grid^2/4 of
    variance per step, as one Gaussian mechanism of that loss would in all. Beyond it: 0.2 per cent and 2e-4 for what
    either side leaves out of delta. Where the inversion has no answer, Renyi divergences bound epsilon.
    """
    count = sum(number for _, number in steps)
    composition = InvertedComposition(steps, delta)
    least, most = composition.epsilon(), composition.epsilon(blur=grid * math.sqrt(count) / 2)
    if math.isnan(least + most):
        alone = max(_alone(profile, delta) for profile, _ in steps)
        return EpsilonInterval(alone * (1 - 2e-3) - 2e-4, composition.bound, "Renyi divergences of the privacy profile")
    return EpsilonInterval(least * (1 - 2e-3) - 2e-4, most * (1 + 2e-3) + 2e-4, _INVERTED)


def _alone(profile: Profile, delta: float) -> float:
    """Return what one step spends, by its profile: at most what all steps spend."""
    return _root(lambda epsilon: float(profile(np.array([epsilon]))[0]) - math.log(delta))
