"""Participation: test whether the mean of 1/M_r decides the risk, and not the mean of M_r."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from dpfl.papers.lowy2021.theory_runs import by_seed, interval, ratio, seeds_text, study
from dpfl.reporting import style
from dpfl.reporting.results import Results

FIGURE = "theory_availability"
_TICKS = (0.025, 0.05, 0.1, 0.2, 0.5)


def data(results: Results) -> pd.DataFrame:
    """Return one row per law of M_r: participants, law (fixed, random), mean_inverse, mean, seeds, risk, interval.

    In rows of random laws also the ratio of the risk to that of the fixed M_r with the same mean of 1/M_r
    (same_inverse_ratio), and to that with the same mean (same_mean_ratio), with intervals; nan where none was run.
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


def draw(points: pd.DataFrame) -> Figure:
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
    axes[0].set_ylabel("excess population risk")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    laws = "; ".join(f"one of {text.strip('[]')}" for text in points.loc[points["law"] == "random", "participants"])
    style.footer(figure, f"{seeds_text(points)} Random Mᵣ: {laws}; each as likely.")
    return figure
