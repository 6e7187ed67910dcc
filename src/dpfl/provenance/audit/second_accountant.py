"""Which accountant of the audit answers for which privacy statement."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import Sampling
from dpfl.provenance.audit import independent_epsilon
from dpfl.provenance.audit.hidden_state import Hidden
from dpfl.provenance.cell_trace import Row

PRIVACY = "privacy_"
_SUBSAMPLED = "subsampled Gaussian"
_PER_CLIENT = "subsampled Gaussian, per client"
_SHUFFLED = "shuffled Gaussian"
_GAUSSIANS = ("Gaussian", "Gaussian, per client", "Gaussian, per user, trusted aggregator", _SHUFFLED)
_EVERY_GRADIENT = {f"{law} noise on every gradient": law for law in ("gaussian", "laplace")}
_MOVES = {Neighbouring.ADD_OR_REMOVE: 1.0, Neighbouring.ZERO_OUT: 1.0, Neighbouring.REPLACE_ONE: 2.0}
_FACTS = (
    "radius", "regularisation", "step", "release", "order", "model", "batch_factor", "scaling", "epochs", "preparation",
)  # fmt: skip
_EXACT = ("normalised_exactly", "exact_pca")
_LOGISTIC_CURVATURE = 0.25


@dataclass(frozen=True)
class StatedPrivacy:
    """What of a run's privacy statement, and of its settings, decides its epsilon; None where it states none.

    `facts` are settings by name, as text; `strategy` is the definition of the run's, as JSON.
    """

    mechanism: str
    sampling: str
    neighbouring: str
    records: int
    sample_rate: float
    clip_norm: float
    noise_multiplier: float
    steps: int
    delta: float
    epsilon_rdp: float | None
    epsilon_pld: float | None
    epsilon_contraction: float | None
    clipping: str
    batch_size: int
    trust: str
    clients: int
    facts: tuple[tuple[str, str], ...]
    strategy: str
    preparation_epsilon: float

    @classmethod
    def of(cls, run: Row, settings: Mapping[str, Any]) -> StatedPrivacy:
        """Return the statement of a row of a run table, and of its sweep's settings."""
        rate, records = float(run[f"{PRIVACY}sample_rate"]), int(float(run[f"{PRIVACY}records"]))
        local = run[f"{PRIVACY}mechanism"] == _PER_CLIENT and run.get("algorithm") == "local"
        strategies = settings.get("strategies", {})
        prepares = run.get("preparation", "none") != "none"
        return cls(
            *(run[f"{PRIVACY}{name}"] for name in ("mechanism", "sampling", "neighbouring")),
            records,
            rate,
            float(run[f"{PRIVACY}clip_norm"]),
            float(run[f"{PRIVACY}noise_multiplier"]),
            int(float(run[f"{PRIVACY}steps"])),
            float(run[f"{PRIVACY}delta"]),
            *(_stated(run.get(f"{PRIVACY}epsilon_{name}") or "nan") for name in ("rdp", "pld", "contraction")),
            # What is known to be broken states what its sound twin claims.
            "" if run.get("known_bad") == "True" else run.get("clipping", ""),
            1 if local else int(float(run.get("batch_size") or round(rate * records))),
            run.get("trust", ""),
            int(float(run.get("clients") or 1)),
            tuple((name, run[name]) for name in _FACTS if run.get(name, "") not in ("", "nan")),
            json.dumps(strategies[run["strategy"]]) if run.get("strategy") in strategies else "",
            float(settings["preparation_share"]) * float(run["epsilon"]) if prepares else 0.0,
        )

    @property
    def drawn(self) -> int:
        """How many records a step draws."""
        return round(self.sample_rate * self.records)

    @property
    def epsilons(self) -> dict[str, float]:
        """What is stated, by accountant."""
        told = {"rdp": self.epsilon_rdp, "pld": self.epsilon_pld, "contraction": self.epsilon_contraction}
        return {which: epsilon for which, epsilon in told.items() if epsilon is not None}


def _stated(epsilon: str) -> float | None:
    """Return an epsilon of a statement; None instead of nan, which is not equal to itself."""
    return None if math.isnan(float(epsilon)) else float(epsilon)


def interval(stated: StatedPrivacy, which: str) -> independent_epsilon.EpsilonInterval | None:
    """Return where another accountant puts `which` epsilon ("rdp", "pld" or "contraction") of a statement; None where
    it has no word.

    Statements without noise, or about statistics without noise, have to say that epsilon is infinite.
    """
    if stated.noise_multiplier == 0:
        return independent_epsilon.EpsilonInterval(math.inf, math.inf, "no noise, no guarantee")
    if which == "contraction":
        return independent_epsilon.hidden(_hidden(stated), stated.delta)
    if dict(stated.facts).get("preparation") in _EXACT:
        return independent_epsilon.EpsilonInterval(math.inf, math.inf, "statistics without noise, no guarantee")
    run = {"noise_multiplier": stated.noise_multiplier, "steps": stated.steps, "delta": stated.delta}
    poisson = stated.sampling in (Sampling.POISSON, Sampling.SHUFFLED)
    if stated.mechanism == _SUBSAMPLED and poisson and stated.neighbouring != Neighbouring.REPLACE_ONE:
        rate = {"sample_rate": stated.sample_rate}
        return (
            independent_epsilon.poisson_rdp(**run, **rate)
            if which == "rdp"
            else independent_epsilon.poisson_pld(**run, **rate)
        )
    if which == "rdp":
        return None
    if stated.mechanism == _SUBSAMPLED and stated.sampling == Sampling.POISSON:
        return independent_epsilon.poisson_pld_replaced(**run, sample_rate=stated.sample_rate)
    if stated.mechanism in _GAUSSIANS:
        return _gaussian(stated, run)
    if stated.neighbouring != Neighbouring.REPLACE_ONE:
        return None
    if stated.mechanism in _EVERY_GRADIENT:
        once = {"noise_multiplier": stated.noise_multiplier, "move": 2.0, "delta": stated.delta}
        laplace = _EVERY_GRADIENT[stated.mechanism] == "laplace"
        return independent_epsilon.laplace(**once) if laplace else independent_epsilon.gaussian(**once, steps=1)
    if stated.mechanism == _PER_CLIENT:
        return _per_client(stated, run)
    if stated.strategy and stated.sampling == Sampling.FIXED:
        return independent_epsilon.stepwise(_steps(stated), stated.delta)
    return None


def _gaussian(stated: StatedPrivacy, run: dict[str, Any]) -> independent_epsilon.EpsilonInterval | None:
    """Return the interval of Gaussian noise on a client's, a user's or all records."""
    move = _MOVES[Neighbouring(stated.neighbouring)]
    if stated.sampling == Sampling.FULL:
        if stated.trust == "server":
            return independent_epsilon.gaussian(**run, move=move / math.sqrt(stated.clients))
        if stated.trust == "shuffler" or stated.mechanism == _SHUFFLED:
            return independent_epsilon.shuffled(**run, move=move, clients=stated.clients)
        return independent_epsilon.gaussian(**run, move=move)
    if stated.sampling == Sampling.SHUFFLED and stated.steps * stated.sample_rate <= 1 + 1e-9:
        # No record is in two messages: what is spent is one message.
        return independent_epsilon.gaussian(**{**run, "steps": 1}, move=move)
    drawn = stated.sampling in (Sampling.FIXED, Sampling.WITH_REPLACEMENT)
    if drawn and stated.neighbouring == Neighbouring.REPLACE_ONE:
        sizes = {"batch_size": stated.drawn, "records": stated.records}
        return independent_epsilon.sampled_replacement(**run, **sizes, replaced=stated.sampling)
    return None


def _per_client(stated: StatedPrivacy, run: dict[str, Any]) -> independent_epsilon.EpsilonInterval | None:
    """Return the interval of a client's own noisy messages."""
    whole = stated.batch_size >= stated.records and stated.sampling == Sampling.FIXED
    if whole or stated.sampling == Sampling.FULL:
        return independent_epsilon.gaussian(**run, move=2.0)
    if stated.sampling not in (Sampling.FIXED, Sampling.WITH_REPLACEMENT):
        return None
    turned = stated.clipping == "mean" and stated.batch_size > 1
    how = "clipped_mean" if turned else stated.sampling
    return independent_epsilon.sampled_replacement(
        **run, batch_size=stated.batch_size, records=stated.records, replaced=how
    )


def _hidden(stated: StatedPrivacy) -> Hidden:
    """Return the run behind an epsilon by contraction."""
    facts = dict(stated.facts)
    single = stated.mechanism in _EVERY_GRADIENT  # asoodeh2020: one record a step
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
        laplace=_EVERY_GRADIENT.get(stated.mechanism) == "laplace",
        relaxed=not single,
    )


def _steps(stated: StatedPrivacy) -> tuple[independent_epsilon.Step, ...]:
    """Return what a run of vandijk2023 releases: its preparation, and rounds whose noise and batches change as the
    strategy says, in parts of equal length."""
    facts, strategy = dict(stated.facts), json.loads(stated.strategy)
    factor = int(float(facts["batch_factor"]))
    epochs = int(float(facts["epochs"])) * (factor if facts["scaling"] == "rounds" else 1)
    sizes = stated.batch_size * factor * _parts(strategy.get("batch_factors", [1.0]), epochs)
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
        independent_epsilon.Step(count, sigma * of, size / stated.records, scale)
        for (size, of), count in sorted(kinds.items())
    ]
    if stated.preparation_epsilon:
        steps.append(
            independent_epsilon.Step(
                1, independent_epsilon.gaussian_sigma(stated.preparation_epsilon, stated.delta), 1.0
            )
        )
    return tuple(steps)


def _parts(factors: list[float], count: int) -> np.ndarray:
    """Return the factor of each of `count` places, cut into as equal parts as can be."""
    parts = np.array_split(np.arange(count), len(factors))
    return np.repeat(factors, [len(part) for part in parts])
