"""Excess risk of Algorithm 1 against clients, records, epsilon, features and rounds, with the theorems' exponents."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from dpfl.papers.lowy2021.theory_runs import FAMILY, by_seed, interval, seeds_text, slope, study, worst
from dpfl.reporting import style
from dpfl.reporting.results import Results
from dpfl.reporting.tables import TableLayout

STUDIES = {"rates_convex": "convex, worst of the family", "rates_strongly_convex": "strongly convex"}
AXES = {"clients": "clients M = N", "records": "records n a client", "epsilon": "ε", "features": "features d"}
AXES |= {"rounds": "rounds R"}
EXPONENTS = {
    "rates_convex": {"clients": -0.5, "records": -1.0, "epsilon": -1.0, "features": 0.5, "rounds": 0.0},
    "rates_strongly_convex": {"clients": -1.0, "records": -2.0, "epsilon": -2.0, "features": 1.0, "rounds": 0.0},
}
"""Of the private term of Theorem 2.1 (equations 4 and 5), without logarithms; R has none once it is large enough."""
NOISES = {"tight": "tight noise", "theorem": "noise of Theorem 2.1"}


def lower_bound(study_name: str, row: pd.Series) -> float:
    """Return the private term of Theorem 3.1, equations 10 and 11, with constant 1: only its slope says anything."""
    scale = row["clip_norm"] * row["radius"]
    ratio = row["features"] / (row["epsilon"] * row["records"]) ** 2 / row["clients"]
    return scale * min(1.0, math.sqrt(ratio) if study_name == "rates_convex" else ratio)


def lower_bound_applies(row: pd.Series) -> bool:
    """Return whether Theorem 3.1's conditions hold: a round spends 1/n at most, and N >= 16 ln(2/(delta n))."""
    round_epsilon = row["epsilon"] / math.sqrt(row["rounds"])
    enough = row["clients"] >= 16.0 * math.log(2.0 / (row["delta"] * row["records"]))
    return bool(round_epsilon <= 1.0 / row["records"] and enough)


def data(results: Results) -> pd.DataFrame:
    """Return one row per point: study, axis, value, noise, seeds, excess_risk, interval, start_risk, fit and bound."""
    runs = study(results, "rates_")
    rows = []
    for (name, axis, noise), group in runs.groupby(["study", "axis", "noise"], sort=False):
        risks = worst(by_seed(group, [axis, FAMILY])).sort_index()
        fitted, half = slope(risks.index.to_numpy(), risks.to_numpy())
        bars = interval(risks)
        for value, seeds in risks.iterrows():
            first = group[group[axis] == value].iloc[0]
            start = group.loc[group[axis] == value, "start_risk"].max()
            rows.append(
                {
                    "study": name,
                    "axis": axis,
                    "value": float(value),
                    "noise": noise,
                    "seeds": len(seeds),
                    "excess_risk": seeds.mean(),
                    "interval": bars[value],
                    "start_risk": start,
                    "slope": fitted,
                    "slope_interval": half,
                    "exponent": EXPONENTS[name][axis],
                    "lower_bound": lower_bound(name, first),
                    "lower_bound_applies": lower_bound_applies(first),
                }
            )
    return pd.DataFrame(rows)


def draw(points: pd.DataFrame) -> Figure:
    """Draw one row per study and one column per axis, logarithmic."""
    studies = [name for name in STUDIES if (points["study"] == name).any()]
    axes_names = [axis for axis in AXES if (points["axis"] == axis).any()]
    figure, axes = style.panels(len(axes_names), len(studies), width=11, height=3.1, squeeze=False)
    for row, name in zip(axes, studies, strict=True):
        for panel, axis in zip(row, axes_names, strict=True):
            _panel(panel, points[(points["study"] == name) & (points["axis"] == axis)])
            panel.set_xlabel(AXES[axis])
        row[0].set_ylabel(f"excess population risk\n({STUDIES[name]})")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    note = f"{seeds_text(points)} Slopes: ± 90 % interval. "
    applies = int(points["lower_bound_applies"].sum())
    note += f"Theorem 3.1's conditions hold at {applies} of {len(points)} points."
    style.footer(figure, note)
    return figure


def _panel(panel, points: pd.DataFrame) -> None:
    """Draw one axis of one study."""
    texts = []
    for number, (noise, label) in enumerate(NOISES.items()):
        rows = points[points["noise"] == noise].sort_values("value")
        if rows.empty:
            continue
        look = {"color": style.COLOURS[number], "marker": style.MARKERS[number], "linestyle": style.DASHES[number]}
        panel.errorbar(rows["value"], rows["excess_risk"], rows["interval"], label=label, **look)
        first = rows.iloc[0]
        name = "tight" if noise == "tight" else "theorem's"
        texts.append(f"slope {first['slope']:+.2f} ± {first['slope_interval']:.2f} ({name})")
    rows = points[points["noise"] == points["noise"].iloc[0]].sort_values("value")
    panel.plot(rows["value"], rows["start_risk"], ":", color=style.GREEN, label="w = 0, which spends nothing")
    panel.plot(
        rows["value"], rows["lower_bound"], "-", color=style.BLACK, linewidth=0.8, label="Theorem 3.1, constant 1"
    )
    panel.set(xscale="log", yscale="log")
    style.ticks_at(panel, rows["value"])
    exponent = rows["exponent"].iloc[0]
    panel.set_title("\n".join([*texts, f"claimed {f'{exponent:+g}' if exponent else '0'}"]), fontsize=7)


def slopes(results: Results) -> pd.DataFrame:
    """Return one row per fitted slope."""
    columns = ["study", "axis", "noise", "seeds", "slope", "slope_interval", "exponent"]
    points = data(results)
    fits = points.drop_duplicates(["study", "axis", "noise"])[columns]
    worse = points.assign(worse=points["excess_risk"] > points["start_risk"])
    counts = worse.groupby(["study", "axis", "noise"], sort=False)["worse"].agg(["sum", "size"]).reset_index(drop=True)
    return fits.reset_index(drop=True).assign(worse_than_start=counts["sum"], points=counts["size"])


def slopes_page(fits: pd.DataFrame) -> TableLayout:
    """Lay the slopes out."""
    gap = np.abs(fits["slope"] - fits["exponent"])
    body = pd.DataFrame(
        {
            "problem": fits["study"].map(STUDIES),
            "axis": fits["axis"].map(AXES),
            "noise": fits["noise"].map(NOISES),
            "fitted slope": [f"{s:+.2f} ± {i:.2f}" for s, i in zip(fits["slope"], fits["slope_interval"], strict=True)],
            "theorem": fits["exponent"].map("{:+g}".format),
            "within": np.where(gap <= fits["slope_interval"], "interval", gap.map("{:.2f}".format)),
            "worse than w = 0": [f"{w} of {p}" for w, p in zip(fits["worse_than_start"], fits["points"], strict=True)],
        }
    )
    seeds = int(fits["seeds"].min())
    return TableLayout(
        body, [f"±: 90 % interval by the jackknife over {seeds} seeds. Synthetic data; tight noise is exact."]
    )
