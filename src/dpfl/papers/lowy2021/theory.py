"""The theory of lowy2021 in figures: acceleration, availability, one pass, shuffling."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from dpfl.accounting.shuffling import least_reports
from dpfl.papers.lowy2021.comparisons import paired
from dpfl.papers.lowy2021.theory_rates import by_seed, interval, ratio, seeds_text, slope, study
from dpfl.reporting import style
from dpfl.reporting.display_names import all_or, span
from dpfl.reporting.figures import FigureRecipe

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dpfl.reporting.results import Results

# Algorithm 2 against Algorithm 1 at equal privacy: excess risk of runs of R rounds, each calibrated to its own R.

ACCELERATION = "theory_acceleration"
STUDIES = ("acceleration", "acceleration_theorem", "acceleration_noise")
_CURVES = {
    "minibatch": "Algorithm 1",
    "minibatch_smoothed": "Algorithm 1, smoothed loss",
    "accelerated": "Algorithm 2",
    "accelerated_smoothed": "Algorithm 2",
}
_TASKS = {
    ("least_squares", False): "least squares, convex",
    ("least_squares", True): "least squares, strongly convex",
    ("logistic", False): "logistic regression, convex",
    ("absolute", False): "absolute loss, condition {condition:g}",
}
NOT_SMOOTH = "absolute loss"
"""Begins the names of the problems that Theorem 2.3, as the main text has it, is about."""
_COLUMNS = 4


def acceleration_data(results: Results) -> pd.DataFrame:
    """Return one row per point: task, curve, epsilon, rounds, theorem, seeds, excess_risk, interval, start_risk.

    theorem: whether the rounds are those of Theorem 2.3 or, if the loss is strongly convex, of Algorithm 2's stages. In
    rows of Algorithm 2 plain_minus_this is the paired difference of the better Algorithm 1 in as many rounds, and
    more_minus_this that of the better one in more_rounds, the most that were run; each with its interval, nan if there
    is none.
    """
    runs = study(results, STUDIES)
    strong = runs["strong_convexity"] > 0
    named = zip(runs["kind"], strong, runs["condition"], strict=True)
    tasks = [_TASKS[kind, strongly].format(condition=condition) for kind, strongly, condition in named]
    noise = [", the theorem's noise" if noise == "theorem" else "" for noise in runs["noise"]]
    runs["task"] = [task + more for task, more in zip(tasks, noise, strict=True)]
    runs["curve"] = runs["algorithm"] + (runs["sharpness"] > 0).map({True: "_smoothed", False: ""})
    runs["of_theorem"] = runs["theorem"].notna() & (runs["rounds_factor"] == 1)
    rows = []
    for (task, epsilon), every in runs.groupby(["task", "epsilon"], sort=False):
        table = by_seed(every, ["rounds", "curve"])
        known = set(every.loc[every["of_theorem"], "rounds"])
        most = every["rounds"].max()
        for rounds, risks in table.groupby(level="rounds", sort=True):
            risks = risks.droplevel("rounds")
            bars, start = interval(risks), every.loc[every["rounds"] == rounds, "start_risk"].mean()
            for curve, seeds in risks.iterrows():
                point = {"task": task, "curve": curve, "epsilon": epsilon, "rounds": rounds, "theorem": rounds in known}
                point |= {
                    "seeds": len(seeds),
                    "excess_risk": seeds.mean(),
                    "interval": bars[curve],
                    "start_risk": start,
                }
                fast = curve.startswith("accelerated")
                point |= _against(seeds, risks if fast else None, "plain", "difference_interval")
                later = table.loc[[most]].droplevel("rounds") if fast and most > rounds else None
                rows.append({**point, **_against(seeds, later, "more", "more_interval"), "more_rounds": most})
    return pd.DataFrame(rows)


def _against(seeds: pd.Series, risks: pd.DataFrame | None, name: str, bar: str) -> dict[str, float]:
    """Return the paired difference of the better Algorithm 1 among `risks`, less the `seeds` of Algorithm 2."""
    plain = pd.Series(dtype=float) if risks is None else risks[risks.index.str.startswith("minibatch")].mean(axis=1)
    if plain.empty:
        return {f"{name}_minus_this": math.nan, bar: math.nan}
    gap = paired(seeds, risks.loc[plain.idxmin()])
    return {f"{name}_minus_this": gap["difference"], bar: gap["interval"]}


def draw_acceleration(points: pd.DataFrame) -> Figure:
    """Draw one panel per task; noisy runs with bars, others as thin lines, and crosses where Algorithm 2 lost."""
    tasks = list(points.groupby("task", sort=False))
    rows = -(-len(tasks) // _COLUMNS)
    figure, axes = style.panels(min(_COLUMNS, len(tasks)), rows, width=style.WIDTH, height=3.0, squeeze=False)
    for panel in axes.flat[len(tasks) :]:
        panel.set_axis_off()
    lost = _lost(points)
    for panel, (task, group) in zip(axes.flat, tasks, strict=False):
        for (curve, epsilon), line in group.groupby(["curve", "epsilon"], sort=False):
            number = {"minibatch": 0, "minibatch_smoothed": 2}.get(curve, 1)
            line = line.sort_values("rounds")
            look = {"color": style.COLOURS[number], "label": _CURVES[curve]}
            private = {"marker": style.MARKERS[number], "linestyle": style.DASHES[number]}
            if math.isinf(epsilon):
                look["label"] += ", no noise"
                panel.plot(line["rounds"], line["excess_risk"], ":", linewidth=1.0, **look)
            else:
                panel.errorbar(line["rounds"], line["excess_risk"], line["interval"], **private, **look)
        worse = lost[lost["task"] == task]
        if len(worse):
            cross = {"color": style.BLACK, "marker": "x", "markersize": 8, "linestyle": "none", "zorder": 5}
            panel.plot(worse["rounds"], worse["excess_risk"], label="Algorithm 2 worse, beyond chance", **cross)
        staged = "strongly" in task
        mark = {"linestyle": ":", "label": "stages Rₖ"} if staged else {"linestyle": "-.", "label": "R of Theorem 2.3"}
        for place in sorted(set(group.loc[group["theorem"], "rounds"])):
            panel.axvline(place, color=style.BLACK, linewidth=0.7, **mark)
        panel.axhline(group["start_risk"].mean(), color=style.BLACK, linestyle="--", linewidth=0.8, label="w = 0")
        panel.set(xscale="log", yscale="log")
        panel.set_title(task.replace(", ", ",\n"), fontsize=9)
        panel.set_xlabel("rounds R")
        style.ticks_at(panel, group["rounds"])
        panel.tick_params(axis="x", labelsize=style.SMALL, labelrotation=45)
        style.plain_heights(panel)
    for row in axes:
        row[0].set_ylabel("excess empirical risk")
    style.legend(figure, axes.flat, ncols=3)
    budgets = " or ".join(f"{e:g}" for e in sorted(set(points["epsilon"])) if math.isfinite(e))
    text = (
        f"{seeds_text(points)} ε asked for over a point's own R rounds: {budgets}. Tight noise spends it, the "
        "theorem's noise less. Cross: above the better"
    )
    text += " Algorithm 1 in as many rounds, same seeds, by more than the 90 % interval of the difference."
    style.footer(figure, text)
    return figure


def acceleration_message(points: pd.DataFrame) -> str:
    """Say in how many problems Algorithm 2 is better than the better Algorithm 1 at the marked rounds: in those whose
    loss is not smooth, which the theorem is about, and in the others."""
    rows = points[points["theorem"] & (points["epsilon"] < math.inf)].dropna(subset="difference_interval")
    not_smooth = rows["task"].str.startswith(NOT_SMOOTH)
    wins, losses = [], []
    for group, where in (
        (rows[not_smooth], "where the loss is not smooth (as in Theorem 2.3)"),
        (rows[~not_smooth], "where it is smooth"),
    ):
        if len(group):
            better = int((group["plain_minus_this"] > group["difference_interval"]).sum())
            wins.append(f"in {better} of {len(group)} problems {where}")
            losses.append(str(int((group["plain_minus_this"] < -group["difference_interval"]).sum())))
    if not wins:
        return ""
    text = f"After the marked rounds Algorithm 2 beats Algorithm 1, beyond chance, {' and '.join(wins)}"
    text += f"; it loses in {' and '.join(losses)}"
    return text + ("; after other rounds it can lose (crosses)" if len(_lost(points[~points["theorem"]])) else "")


def _lost(points: pd.DataFrame) -> pd.DataFrame:
    """Return the points of Algorithm 2 above the better Algorithm 1 by more than the interval of the difference."""
    compared = points[(points["epsilon"] < math.inf) & points["difference_interval"].notna()]
    return compared[compared["plain_minus_this"] < -compared["difference_interval"]]


# Participation: test whether the mean of 1/M_r decides the risk, and not the mean of M_r.

AVAILABILITY = "theory_availability"
_TICKS = (0.025, 0.05, 0.1, 0.2, 0.5)


def availability_data(results: Results) -> pd.DataFrame:
    """Return one row per law of M_r: participants, law (fixed, random), mean_inverse, mean, seeds, risk, interval.

    In rows of random laws also the ratio of the risk to that of the fixed M_r with the same mean of 1/M_r
    (same_inverse_ratio), and to that with the same mean (same_mean_ratio), with intervals; nan if none was run.
    """
    runs = study(results, ("availability",))
    risks = by_seed(runs, ["participants"])
    bars = interval(risks)
    laws = {text: json.loads(text) for text in risks.index}
    rows = []
    for text, sizes in laws.items():
        inverse, mean = float(np.mean([1 / size for size in sizes])), float(np.mean(sizes))
        row = {"participants": text, "law": "random" if len(sizes) > 1 else "fixed"}
        row |= {"mean_inverse": inverse, "mean": mean, "seeds": risks.shape[1]}
        row |= {"excess_risk": risks.loc[text].mean(), "interval": bars[text]}
        row["start_risk"] = runs.loc[runs["participants"] == text, "start_risk"].mean()
        for name, wanted in (("same_inverse", 1 / inverse), ("same_mean", mean)):
            twin = json.dumps([round(wanted)])
            known = len(sizes) > 1 and twin in laws and math.isclose(wanted, round(wanted), rel_tol=1e-9)
            result = ratio(risks.loc[text], risks.loc[twin]) if known else (math.nan, math.nan)
            row |= {f"{name}_ratio": result[0], f"{name}_ratio_interval": result[1]}
        rows.append(row)
    return pd.DataFrame(rows)


def draw_availability(points: pd.DataFrame) -> Figure:
    """Draw the risk against the mean of 1/M_r on the left, against 1 over the mean of M_r on the right."""
    figure, axes = style.panels(2, width=9.0, height=3.6, sharey=True)
    names = {"fixed": "fixed Mᵣ", "random": "random Mᵣ"}
    labels = ("mean of 1/Mᵣ", "1 / mean of Mᵣ")
    for panel, axis, label in zip(axes, (points["mean_inverse"], 1 / points["mean"]), labels, strict=True):
        for number, (law, name) in enumerate(names.items()):
            rows = points.assign(place=axis)[points["law"] == law].sort_values("place")
            look = {"color": style.COLOURS[number], "marker": style.MARKERS[number], "label": name}
            look |= {"linestyle": "-" if law == "fixed" else "none", "fillstyle": "none" if law == "random" else "full"}
            panel.errorbar(rows["place"], rows["excess_risk"], rows["interval"], markersize=6, **look)
        panel.set(xscale="log", yscale="log", xlabel=label)
        style.ticks_at(panel, _TICKS)
        style.plain_heights(panel)
    axes[0].set_ylabel("excess population risk")
    style.legend(figure, axes[:1], ncols=2)
    laws = "; ".join(f"one of {text.strip('[]')}" for text in points.loc[points["law"] == "random", "participants"])
    style.footer(figure, f"{seeds_text(points)} Random Mᵣ: {laws}; each as likely.")
    return figure


def availability_message(points: pd.DataFrame) -> str:
    """Say how far random participation is from a fixed number with the same mean of 1/M, and with the same mean."""
    random = points[points["law"] == "random"]
    known = random.dropna(subset=["same_inverse_ratio", "same_mean_ratio"])
    if known.empty:
        return ""
    inverse, mean = (span(known[f"same_{name}_ratio"], "{:.2f}") for name in ("inverse", "mean"))
    apart = (known["same_inverse_ratio"] - 1).abs() > known["same_inverse_ratio_interval"]
    verdict = "does not decide" if apart.any() else "decides"
    return (
        f"The mean of 1/M {verdict} the risk: random M has {inverse} times the risk of a fixed M with the same mean of "
        f"1/M, and {mean} times the risk of a fixed M with the same mean of M"
    )


# One-pass Algorithm 2: excess population risk with clients that are alike and with clients that differ.

ONE_PASS = "theory_one_pass"
EXPONENTS = {
    "convex": {"clients": -0.5, "records": -0.5, "epsilon": -1.0},
    "strongly convex": {"clients": -1.0, "records": -1.0, "epsilon": -2.0},
}
"""Of Theorem 2.2, equations 6 and 7: of their private terms."""
_LABELS = {"clients": "clients M = N", "records": "records n = rounds", "epsilon": "ε"}


def one_pass_data(results: Results) -> pd.DataFrame:
    """Return one row per point: problem, axis, value, clients (alike, different), noise, seeds, excess_risk, interval,
    start_risk, v_star_squared, the curve's fit and exponent, and the paired ratio different/alike with its interval."""
    runs = study(results, ("one_pass",))
    runs["problem"] = (runs["strong_convexity"] > 0).map({True: "strongly convex", False: "convex"})
    runs["federation"] = (runs["spread"] > 0).map({True: "different", False: "alike"})
    rows = []
    for (problem, axis, noise), group in runs.groupby(["problem", "axis", "noise"], sort=False):
        table = by_seed(group, ["federation", axis])
        for federation, risks in table.groupby(level=0, sort=False):
            risks = risks.droplevel(0).sort_index()
            fitted, half = slope(risks.index.to_numpy(), risks.to_numpy())
            bars = interval(risks)
            for value, seeds in risks.iterrows():
                selected = group[(group[axis] == value) & (group["federation"] == federation)]
                against = ratio(table.loc[("different", value)], table.loc[("alike", value)])
                rows.append(
                    {
                        "problem": problem,
                        "axis": axis,
                        "value": float(value),
                        "federation": federation,
                        "noise": noise,
                        "seeds": len(seeds),
                        "excess_risk": seeds.mean(),
                        "interval": bars[value],
                        "start_risk": selected["start_risk"].mean(),
                        "v_star_squared": selected["v_star_squared"].mean(),
                        "slope": fitted,
                        "slope_interval": half,
                        "exponent": EXPONENTS[problem][axis],
                        "ratio": against[0],
                        "ratio_interval": against[1],
                    }
                )
    return pd.DataFrame(rows)


def draw_one_pass(points: pd.DataFrame) -> Figure:
    """Draw one row per problem and one column per axis, logarithmic; a colour a noise, a marker a federation."""
    problems = list(dict.fromkeys(points["problem"]))
    axes_names = [axis for axis in _LABELS if (points["axis"] == axis).any()]
    figure, axes = style.panels(
        len(axes_names), len(problems), width=style.WIDTH, height=2.5, squeeze=False, sharey="row"
    )
    for row, problem in zip(axes, problems, strict=True):
        for panel, axis in zip(row, axes_names, strict=True):
            rows = points[(points["problem"] == problem) & (points["axis"] == axis)]
            _panel(panel, rows)
            panel.set_xlabel(_LABELS[axis])
        row[0].set_ylabel(f"{problem}:\nexcess population risk")
        style.plain_heights(row[0])
    style.legend(figure, [axes[0][0]], ncols=2)
    text = "Titles: fitted power for clients that differ under the tight noise, ± 90 % interval, and the theorem's."
    text += " Beyond chance: outside the 90 % interval."
    style.footer(figure, f"{seeds_text(points)} Points of one value stand side by side. {text}")
    return figure


def one_pass_message(points: pd.DataFrame) -> str:
    """Say what clients that differ cost, and the range of fitted slopes beside the theorem's."""
    different = points[points["federation"] == "different"]
    if different.empty:
        return ""
    cost = 100 * (different["ratio"] - 1)
    fits = different[different["noise"] == "tight"].drop_duplicates(["problem", "axis"])
    flatter = int((fits["slope"] - fits["slope_interval"] > fits["exponent"]).sum())
    apart = int(((different["ratio"] - 1).abs() > different["ratio_interval"]).sum())
    return (
        f"Clients that differ change the risk of one pass by {span(cost, '{:+z.0f}')} % ({apart} of {len(different)} "
        "points beyond chance); in "
        f"{all_or(flatter, len(fits))} panels it falls more slowly, beyond chance, than the private term of the "
        "theorem's upper bound, which does not contradict the theorem"
    )


_APART = 1.05
"""Ratio of the places of neighbouring points of one value, which would lie on one another."""


def _panel(panel: Axes, rows: pd.DataFrame) -> None:
    """Draw one axis of one problem."""
    for number, (noise, noise_name) in enumerate((("tight", "tight noise"), ("theorem", "noise of Theorem 2.2"))):
        for side, federation in enumerate(("alike", "different")):
            line = rows[(rows["federation"] == federation) & (rows["noise"] == noise)].sort_values("value")
            if line.empty:
                continue
            look = {"color": style.COLOURS[number], "marker": style.MARKERS[side], "linestyle": style.DASHES[side]}
            look |= {"markerfacecolor": style.WHITE if side == 0 else style.COLOURS[number], "markersize": 5}
            label = f"clients {federation}, {noise_name}"
            places = line["value"] * _APART ** (2 * side - 1)
            panel.errorbar(places, line["excess_risk"], line["interval"], label=label, **look)
    first = rows[(rows["federation"] == "different") & (rows["noise"] == "tight")].iloc[0]
    panel.axhline(rows["start_risk"].mean(), color=style.BLACK, linestyle=":", label="w = 0, which spends nothing")
    panel.set(xscale="log", yscale="log")
    style.ticks_at(panel, rows["value"])
    panel.set_title(
        f"power {first['slope']:+.2f} ± {first['slope_interval']:.2f}, theorem {first['exponent']:+g}", fontsize=9
    )


# Gain of a trusted shuffler: noise that clients need for one central budget, and the risk that it buys.

SHUFFLE = "theory_shuffle"
_NAMES = {"nobody": "nobody trusted (local)", "shuffler": "shuffler trusted", "server": "server trusted (central)"}


def shuffle_data(results: Results) -> pd.DataFrame:
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


def draw_shuffle(points: pd.DataFrame) -> Figure:
    """Draw noise above and risk below, against the clients; a column for each number of rounds, the theorem's last."""
    lines = points["rounds"].where(~points["theorem"], math.inf)
    columns = sorted(set(lines))
    figure, axes = style.panels(
        len(columns), 2, width=min(3.0 * len(columns) + 0.6, style.WIDTH), height=2.4, squeeze=False, sharey="row",
        sharex="col",
    )  # fmt: skip
    for (above, below), rounds in zip(axes.T, columns, strict=True):
        own = points[lines == rounds]
        for number, (trust, name) in enumerate(_NAMES.items()):
            line = own[own["trust"] == trust].sort_values("clients")
            look = {"color": style.COLOURS[number], "marker": style.MARKERS[number], "linestyle": style.DASHES[number]}
            above.plot(line["clients"], line["noise_multiplier"], label=name, **look)
            below.errorbar(line["clients"], line["excess_risk"], line["interval"], **look)
        below.axhline(own["start_risk"].mean(), color=style.BLACK, linestyle=":")
        above.set(title=_rounds_text(rounds), xscale="log", yscale="log")
        below.set(xscale="log", yscale="log", xlabel="clients M = N")
        style.ticks_at(below, own["clients"])
    axes[0][0].plot([], [], color=style.BLACK, linestyle=":", label="w = 0 (below)")
    axes[0][0].set_ylabel("noise multiplier σn/L\nof a client")
    axes[1][0].set_ylabel("excess population risk")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    budgets = points.drop_duplicates(["epsilon", "delta"])
    asked = " or ".join(f"ε = {row.epsilon:g}, δ = {row.delta:g}" for row in budgets.itertuples())
    text = f" {asked} in each trust model."
    if points["theorem"].any() and not points["theorem"].all():
        text += " Clients have 8 records each at the rounds of Theorem 4.1, else 64."
    style.footer(figure, seeds_text(points) + text)
    return figure


def shuffle_message(points: pd.DataFrame) -> str:
    """Say how the risks with a trusted shuffler and with no trust compare with a trusted server's."""
    wide = points.pivot(index=["clients", "rounds"], columns="trust", values="excess_risk")
    if not {"nobody", "shuffler", "server"} <= set(wide.columns):
        return ""
    wide = wide.dropna()
    shuffler, nobody = (
        span(wide["shuffler"] / wide["server"], "{:.2g}"),
        span(wide["nobody"] / wide["server"], "{:.0f}"),
    )
    return (
        f"With a trusted shuffler the risk is {shuffler} times that with a trusted server; if nobody is trusted, "
        f"{nobody} times"
    )


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


FIGURES = {
    ACCELERATION: FigureRecipe(acceleration_data, draw_acceleration, acceleration_message),
    ONE_PASS: FigureRecipe(one_pass_data, draw_one_pass, one_pass_message),
    SHUFFLE: FigureRecipe(shuffle_data, draw_shuffle, shuffle_message),
    AVAILABILITY: FigureRecipe(availability_data, draw_availability, availability_message),
}
