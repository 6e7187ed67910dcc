"""Choose the second accountant that checks the epsilon of a privacy statement, by its mechanism and sampler.

Statements are read back from the columns of a run table, mechanism and sampler as the JSON that
dpfl.accounting.statements.encode writes; no prose is read.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import FixedBatches, WithReplacement
from dpfl.files import parse_json
from dpfl.provenance.audit.second_accountants import (
    AuditedSteps,
    EpsilonInterval,
    Hidden,
    gaussian,
    gaussian_sigma,
    hidden,
    laplace,
    poisson_pld,
    poisson_pld_replaced,
    sampled_replacement,
    shuffled,
    stepwise,
)

if TYPE_CHECKING:
    from dpfl.provenance.trace import Row

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
