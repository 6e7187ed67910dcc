"""Verdicts that trained models decide, from the data of their figures. Accuracies are compared within a seed."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from dpfl.papers.vandijk2023.reference_run import KEY
from dpfl.reporting.claims import Outcome, Verdict, counted, on_stand_in
from dpfl.reporting.evidence import checks_of, passed
from dpfl.reporting.notes import stand_ins
from dpfl.reporting.results import Results

EQUAL_POINTS = 1.0
"""A run costs accuracy where the whole 95 % interval of its difference lies more than this below 0."""
LARGE_SHARE = 0.05
"""A delay is large where it is more than this share of the client's rounds."""


def decided(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with an interval: two seeds at least."""
    return rows[rows["difference_interval_pct"].notna()]


def no_worse(rows: pd.DataFrame) -> pd.Series:
    """Return which rows are not clearly below their baseline by more than EQUAL_POINTS."""
    return rows["difference_pct"] + rows["difference_interval_pct"] >= -EQUAL_POINTS


def better(rows: pd.DataFrame) -> pd.Series:
    """Return which rows lie above their baseline by more than the interval."""
    return rows["difference_pct"] - rows["difference_interval_pct"] > 0


def with_accuracy(checks: pd.Series, gains: pd.Series, evidence: str) -> Verdict:
    """Return the verdict on a claim with a half about privacy (checks passed) and one about accuracy (clear gains).

    Without a run that has an interval the claim holds in part at best.
    """
    verdict = counted(int(checks.sum() + gains.sum()), len(checks) + len(gains), evidence)
    if gains.empty and verdict.outcome is Outcome.HOLDS:
        return Verdict(Outcome.IN_PART, f"Half about privacy only, no run has an interval. {verdict.evidence}")
    return verdict


def span(rows: pd.DataFrame) -> str:
    """Say between what the differences lie, and over how many seeds."""
    if rows.empty:
        return "no run has an interval"
    low, high, runs = rows["difference_pct"].min(), rows["difference_pct"].max(), int(rows["runs"].min())
    widest = rows["difference_interval_pct"].max()
    return f"{low:+.1f} to {high:+.1f} points, 95 % intervals up to ±{widest:.1f}, {runs} seeds"


def batch_scaling(results: Results) -> Verdict:
    """Equal accuracy at a times the batch and the noise: with as many rounds, and with as many epochs."""
    data = results.figure(KEY, "batch_scaling")
    noisy = decided(data[data["private"].astype(bool) & (data["batch_factor"] > 1)])
    rounds, epochs = (noisy[noisy["scaling"] == kind] for kind in ("rounds", "epochs"))
    spent = data[data["private"].astype(bool) & (data["scaling"] == "rounds")]["privacy_epsilon_proven"]
    evidence = (
        f"with as many rounds accuracy is not clearly lower by more than {EQUAL_POINTS:g} point ({span(rounds)}), "
        f"while epsilon falls from {spent.max():.3g} to {spent.min():.3g}. With as many epochs, so a times fewer "
        f"rounds, that is so in {no_worse(epochs).sum()} of {len(epochs)} ({span(epochs)})."
    )
    return on_stand_in(stand_ins(data), counted(int(no_worse(rounds).sum()), len(rounds), evidence))


def asynchronous(results: Results) -> Verdict:
    """The statement is the same in every scenario; short delays cost nothing, long ones may."""
    data = results.figure(KEY, "asynchrony")
    private = data[np.isfinite(data["epsilon"].astype(float)) & (data["scenario"] != "synchronous")]
    same = private.groupby(["dataset", "epsilon"])["privacy_epsilon_proven"].nunique().eq(1).all()
    rows = decided(private[private["panel"].isin(["delay", "broadcast_loss"])])
    # A broadcast that gets through every 1/(1 - loss) rounds is late by one less.
    silence = 1 / (1 - rows["x"].where(rows["panel"] == "broadcast_loss", 0.0).astype(float) / 100) - 1
    late = rows["x"].where(rows["panel"] == "delay", silence).astype(float)
    large = late > LARGE_SHARE * rows["rounds"]
    small, costly = rows[~large], rows[large & ~no_worse(rows)]
    evidence = (
        f"the privacy statement is {'the same in' if same else 'NOT the same in'} every scenario. Delays and silences "
        f"up to {LARGE_SHARE:.0%} of the run's rounds do not clearly cost more than {EQUAL_POINTS:g} point "
        f"({span(small)}); of {int(large.sum())} longer ones {len(costly)} do (worst "
        f"{rows.loc[large, 'difference_pct'].min():+.1f} points). Lost updates: {_lost(private)}."
    )
    verdict = counted(int(no_worse(small).sum()), len(small), evidence)
    return on_stand_in(stand_ins(data), verdict if same else Verdict(Outcome.FAILS, verdict.evidence))


def _lost(private: pd.DataFrame) -> str:
    """Say what lost updates cost."""
    rows = private[private["panel"] == "update_loss"]
    return ", ".join(f"{row.difference_pct:+.1f} at {row.x:g} % ({row.dataset})" for row in rows.itertuples())


def last_epoch_noise(results: Results) -> Verdict:
    """Three parts: sqrt(2) in mu by composition; accuracy with the smaller last sigma, on top and within the budget."""
    checks = checks_of(results, KEY, "last_epoch_noise")
    data = results.figure(KEY, "strategies")
    unpaid, paid = (decided(data[data["strategy"] == name]) for name in ("last_epoch_unpaid", "last_epoch"))
    raised = unpaid["privacy_epsilon_proven"] / unpaid["epsilon"]
    gains = pd.concat([better(unpaid), better(paid)])
    price = f"{raised.min():.1f} to {raised.max():.1f}" if len(unpaid) else "unknown"
    evidence = (
        f"the factor sqrt(2) in mu is met in {passed(checks).sum()} of {len(checks)} numbers of epochs, every record "
        f"used once an epoch; for batches drawn afresh, as trained here, epsilon by C_p grows by a factor {price}. "
        f"Accuracy rises clearly in {better(unpaid).sum()} of {len(unpaid)} where the budget grows along "
        f"({span(unpaid)}), and in {better(paid).sum()} of {len(paid)} at equal budget ({span(paid)})."
    )
    return on_stand_in(stand_ins(data), with_accuracy(passed(checks), gains, evidence))


def arsinh_noise(results: Results) -> Verdict:
    """Lighter tails, at a price in privacy; accuracy at equal budget decides on convergence."""
    checks = checks_of(results, KEY, "arsinh_noise")
    lighter = checks["case"].str.startswith("lighter tail")
    tails, spent = checks[lighter], checks[~lighter]
    data = results.figure(KEY, "strategies")
    rows = decided(data[data["strategy"].str.startswith("arsinh")])
    evidence = (
        f"tails are lighter than those of Gaussian noise of equal deviation in {passed(tails).sum()} of {len(tails)}, "
        f"but one round's epsilon is up to {(spent['independent'] / spent['ours']).max():.1f} times as large; at equal "
        f"budget accuracy is clearly better in {better(rows).sum()} of {len(rows)} ({span(rows)})."
    )
    return on_stand_in(stand_ins(data), with_accuracy(passed(tails), better(rows), evidence))


def private_normalisation(results: Results) -> Verdict:
    """Paying shows as more noise at the same epsilon; the evidence also says what normalisation is worth."""
    data = results.figure(KEY, "preparation")
    keys = ["dataset", "epsilon"]
    plain, own, exact = (
        data[data["preparation"] == name].set_index(keys) for name in ("none", "normalised", "normalised_exactly")
    )
    both = own.join(plain["noise_multiplier"].rename("plain_noise")).join(exact["accuracy_pct"].rename("exact_pct"))
    both = both[both["plain_noise"].notna()]
    dearer = both["noise_multiplier"] > both["plain_noise"]
    leaks = np.isinf(exact["privacy_epsilon_proven"].astype(float)).all()
    ratio = (both["noise_multiplier"] / both["plain_noise"]).max() if len(both) else math.nan
    names = ", ".join(stand_ins(data)) or "no stand-in data"
    evidence = (
        f"budgets in which noisy moments raise the updates' noise (up to {ratio:.2f} times); exact moments have "
        f"{'no guarantee' if leaks else 'a guarantee, which is wrong'}. Within the same epsilon private normalisation "
        f"changes accuracy by {span(both)}, and ends {(both['accuracy_pct'] - both['exact_pct']).min():+.1f} points "
        f"or better from exact normalisation ({names})."
    )
    return counted(int(dearer.sum()), len(both), evidence)


def samplers_trained(results: Results) -> str:
    """Say what fixed batches cost in accuracy at equal epsilon."""
    data = results.figure(KEY, "samplers")
    rows = data[data["sampler"] == "poisson"]
    names = stand_ins(data)
    note = f" on stand-in data ({', '.join(names)})" if names else ""
    return f"Trained at equal epsilon{note}, Poisson batches change accuracy by {span(decided(rows))}."
