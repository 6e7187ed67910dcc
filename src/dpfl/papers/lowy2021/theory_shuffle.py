"""Gain of a trusted shuffler: noise that clients need for one central budget, and the risk that it buys."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.figure import Figure

from dpfl.accounting.shuffling.published_noise import least_reports
from dpfl.papers.lowy2021.theory_runs import by_seed, interval, seeds_text, study
from dpfl.papers.lowy2021.trial_statistics import paired
from dpfl.reporting import style
from dpfl.reporting.results import Results

FIGURE = "theory_shuffle"
_NAMES = {"nobody": "nobody trusted (local)", "shuffler": "shuffler trusted", "server": "server trusted (central)"}


def data(results: Results) -> pd.DataFrame:
    """Return one row per (trust, clients, rounds): noise_multiplier, epsilon and what is spent, risk with its interval.

    theorem: whether the rounds are those of Theorem 4.1. nobody_minus_this: the paired difference of risks, with its
    interval. implied_constant: the C with which Theorem 4.1's noise would be this one. least_reports: the clients that
    the theorem asks for.
    """
    runs = study(results, ("shuffle", "shuffle_theorem"))
    rows = []
    for (clients, rounds), group in runs.groupby(["clients", "rounds"], sort=False):
        risks = by_seed(group, ["trust"])
        bars = interval(risks)
        for trust, seeds in risks.iterrows():
            first = group[group["trust"] == trust].iloc[0]
            gap = paired(seeds, risks.loc["nobody"]) if trust != "nobody" else {}
            rows.append(
                {
                    "trust": trust,
                    "clients": clients,
                    "rounds": rounds,
                    "theorem": bool(pd.notna(first["theorem"])),
                    "epsilon": first["epsilon"],
                    "delta": first["delta"],
                    "epsilon_spent": first["privacy_epsilon_proven"],
                    "noise_multiplier": first["noise_multiplier"],
                    "seeds": len(seeds),
                    "excess_risk": seeds.mean(),
                    "interval": bars[trust],
                    "start_risk": first["start_risk"],
                    "nobody_minus_this": gap.get("difference", math.nan),
                    "difference_interval": gap.get("interval", math.nan),
                    "implied_constant": _constant(first),
                    "least_reports": _floor(first),
                }
            )
    return pd.DataFrame(rows)


def draw(points: pd.DataFrame) -> Figure:
    """Draw noise on the left and risk on the right, against the clients; the theorem's rounds solid, others faint."""
    figure, axes = style.panels(2, width=9.0, height=3.6)
    lines = points["rounds"].where(~points["theorem"], math.inf)
    most = lines.max()
    for number, (trust, name) in enumerate(_NAMES.items()):
        for rounds, line in points[points["trust"] == trust].groupby(lines, sort=False):
            line = line.sort_values("clients")
            look = {"color": style.COLOURS[number], "marker": style.MARKERS[number], "linestyle": style.DASHES[number]}
            look |= {"alpha": 1.0, "label": f"{name}, {_rounds_text(rounds)}"} if rounds == most else {"alpha": 0.3}
            axes[0].plot(line["clients"], line["noise_multiplier"], **look)
            axes[1].errorbar(line["clients"], line["excess_risk"], line["interval"], **look)
    axes[1].axhline(points["start_risk"].mean(), color=style.BLACK, linestyle=":", label="w = 0")
    for panel, label in zip(axes, ("noise multiplier σn/L of a client", "excess population risk"), strict=True):
        panel.set(xscale="log", yscale="log", xlabel="clients M = N", ylabel=label)
        style.ticks_at(panel, points["clients"])
    figure.legend(*axes[1].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    others = ", ".join(_rounds_text(rounds) for rounds in sorted(set(lines)) if rounds < most)
    budgets = points.drop_duplicates(["epsilon", "delta"])
    asked = " or ".join(f"ε = {row.epsilon:g}, δ = {row.delta:g}" for row in budgets.itertuples())
    sizes = ", ".join(f"{n:g}" for n in sorted(set(points.loc[points["theorem"], "clients"])))
    text = f" {asked} in each trust model." + (f" Faint: {others}." if others else "")
    text += f" With {sizes} clients: 8 records each, elsewhere 64." if sizes and others else ""
    style.footer(figure, seeds_text(points) + text)
    return figure


def _rounds_text(rounds: float) -> str:
    """Return a line's number of rounds as text, inf for the theorem's own."""
    return f"R = {rounds:g}" if math.isfinite(rounds) else "R of Theorem 4.1"


def _constant(run: pd.Series) -> float:
    """Return the C of Theorem 4.1's variance at which it is this run's, L = 1: sigma n / L is the noise multiplier."""
    clients, rounds, delta = run["clients"], run["rounds"], run["delta"]
    logarithms = math.log(rounds * clients / delta) * math.log(rounds / delta) * math.log(1 / delta)
    return run["noise_multiplier"] ** 2 * clients * run["epsilon"] ** 2 / (rounds * logarithms)


def _floor(run: pd.Series) -> float:
    """Return the number of clients that Theorem 4.1 asks for."""
    federation = {"clients_per_round": run["clients"], "clients": run["clients"]}
    return float(least_reports(**federation, rounds=run["rounds"], delta=run["delta"]))
