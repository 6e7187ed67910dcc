"""One-pass Algorithm 2: excess population risk with clients that are alike and with clients that differ."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from dpfl.papers.lowy2021.theory_runs import by_seed, interval, ratio, seeds_text, slope, study
from dpfl.reporting import style
from dpfl.reporting.results import Results

FIGURE = "theory_one_pass"
EXPONENTS = {
    "convex": {"clients": -0.5, "records": -0.5, "epsilon": -1.0},
    "strongly convex": {"clients": -1.0, "records": -1.0, "epsilon": -2.0},
}
"""Of Theorem 2.2, equations 6 and 7: of their private terms."""
_LABELS = {"clients": "clients M = N", "records": "records n = rounds", "epsilon": "ε"}


def data(results: Results) -> pd.DataFrame:
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


def draw(points: pd.DataFrame) -> Figure:
    """Draw one row per problem and one column per axis, logarithmic; one curve per noise and federation."""
    problems = list(dict.fromkeys(points["problem"]))
    axes_names = [axis for axis in _LABELS if (points["axis"] == axis).any()]
    figure, axes = style.panels(len(axes_names), len(problems), width=9.5, height=2.9, squeeze=False)
    for row, problem in zip(axes, problems, strict=True):
        for panel, axis in zip(row, axes_names, strict=True):
            rows = points[(points["problem"] == problem) & (points["axis"] == axis)]
            _panel(panel, rows)
            panel.set_xlabel(_LABELS[axis])
        row[0].set_ylabel(f"excess population risk\n({problem})")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    text = "Slopes: clients that differ, tight noise, ± 90 % interval."
    style.footer(figure, f"{seeds_text(points)} {text}")
    return figure


def _panel(panel, rows: pd.DataFrame) -> None:
    """Draw one axis of one problem."""
    looks = {("alike", "tight"): 0, ("different", "tight"): 1, ("alike", "theorem"): 2, ("different", "theorem"): 3}
    for (federation, noise), number in looks.items():
        line = rows[(rows["federation"] == federation) & (rows["noise"] == noise)].sort_values("value")
        if line.empty:
            continue
        label = f"clients {federation}, {'tight noise' if noise == 'tight' else 'noise of Theorem 2.2'}"
        look = {"color": style.COLOURS[number], "marker": style.MARKERS[number], "linestyle": style.DASHES[number]}
        panel.errorbar(line["value"], line["excess_risk"], line["interval"], label=label, **look)
    first = rows[(rows["federation"] == "different") & (rows["noise"] == "tight")].iloc[0]
    panel.axhline(rows["start_risk"].mean(), color=style.BLACK, linestyle=":", label="w = 0, which spends nothing")
    panel.set(xscale="log", yscale="log")
    style.ticks_at(panel, rows["value"])
    fitted = f"slope {first['slope']:+.2f} ± {first['slope_interval']:.2f}"
    panel.set_title(f"{fitted}; theorem: {first['exponent']:+g}", fontsize=8)
