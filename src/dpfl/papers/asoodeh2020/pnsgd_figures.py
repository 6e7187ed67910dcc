"""Figures from runs of PNSGD: delta of each record by its place, and the utility of a pass."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpfl.accounting.contraction.pnsgd_orders import Law, place_deltas
from dpfl.experiments.pnsgd.pnsgd_tasks import MEAN_INK, LossConstants
from dpfl.reporting import style
from dpfl.reporting.figures import FigureRecipe
from dpfl.reporting.notes import data_note
from dpfl.reporting.results import Results
from dpfl.reporting.statistics import mean_interval

KEY = "asoodeh2020"
PLACES = 40
EPSILONS = np.linspace(0.0, 2.0, 41)
SHOWN_EPSILON = 1.0
VARIANTS = {
    "last": "last model, public order",
    "permuted": "last model, secret order",
    "random": "random stop, public order",
}
LEAST = 1e-12
"""Smaller deltas are not drawn."""
POINT = ["dataset", "stand_in_for", "model", "users", "law", "order", "release", "epsilon"]


def theory(run: pd.Series) -> dict[str, Any]:
    """Return the keywords of the accounting functions of one run."""
    constants = LossConstants.of(run["model"], run["radius"], 0.0)
    return {
        "n": int(run["users"]),
        "eta": run["step"],
        "scale": run["scale"],
        "lipschitz": constants.lipschitz,
        "smoothness": constants.smoothness,
        "strong_convexity": constants.strong_convexity,
        "diameter": 2.0 * constants.radius,
    }


def places(results: Results) -> pd.DataFrame:
    """Return delta by place and epsilon at the noise of runs of the mean in public order.

    The runs are those with the budget nearest to SHOWN_EPSILON and, among these, the largest step.
    Columns: law, variant, n, step, scale, later (records behind the place), epsilon, delta.
    """
    columns = ["law", "variant", "n", "step", "scale", "later", "epsilon", "delta"]
    runs = results.runs(KEY)
    if not runs.empty:
        runs = runs[(runs["model"] == MEAN_INK) & (runs["epsilon"] < math.inf)]
        runs = runs[(runs["order"] == "sorted") & (runs["release"] == "last")]
    if runs.empty:
        return pd.DataFrame(columns=columns)
    parts = []
    for law, group in runs.groupby("law"):
        away = (group["epsilon"] - SHOWN_EPSILON).abs()
        run = group[away == away.min()].sort_values("step").iloc[-1]
        values = theory(run)
        later = np.unique(np.geomspace(1, values["n"], PLACES).round().astype(int)) - 1
        for variant in VARIANTS if law == Law.GAUSSIAN else ("last",):
            how = {"permuted": variant == "permuted", "random_stop": variant == "random"}
            for epsilon in EPSILONS if variant == "last" else (SHOWN_EPSILON,):
                deltas = place_deltas(float(epsilon), law=Law(law), **how, **values)[-1 - later]
                row = {"law": law, "variant": variant, "n": values["n"], "step": run["step"], "scale": run["scale"]}
                parts.append(pd.DataFrame({**row, "later": later, "epsilon": epsilon, "delta": deltas}))
    return pd.concat(parts, ignore_index=True)[columns]


def draw_places(data: pd.DataFrame) -> Figure:
    """Draw two heat maps over (place, epsilon), and delta by place for three ways of releasing."""
    maps = list(data[data["variant"] == "last"].groupby("law"))
    figure, axes = style.panels(len(maps) + 1, height=3.7, width=11)
    for axis, (law, rows) in zip(axes, maps, strict=False):
        table = rows.pivot(index="epsilon", columns="later", values="delta")
        exponents = np.log10(table.where(table >= LEAST))
        # thousands of tiles as one picture within the drawing: they would be seven tenths of a megabyte
        look = {"vmin": -12, "vmax": 0, "shading": "nearest", "rasterized": True}
        mesh = axis.pcolormesh(table.columns + 1, table.index, exponents, **look)
        first = rows.iloc[0]
        noise = f"{law.capitalize()}, n = {first['n']:g}\nscale {first['scale']:.3g}, step {first['step']:g}"
        axis.set(title=noise, xscale="log")
        axis.set(xlabel="places from the end (1: last record)", ylabel="epsilon", xlim=(_shown_places(rows), 1))
        axis.text(0.03, 0.96, "white: delta < 1e-12", transform=axis.transAxes, va="top", fontsize=8)
        axis.grid(visible=False)
    figure.colorbar(mesh, ax=axes[: len(maps)], label="delta, as a power of ten", shrink=0.9)
    _by_place(axes[-1], data[(data["law"] == Law.GAUSSIAN) & np.isclose(data["epsilon"], SHOWN_EPSILON)])
    return figure


def _shown_places(rows: pd.DataFrame) -> float:
    """Return how many places from the end a map shows: up to thrice the last with a delta to draw."""
    last = rows.loc[rows["delta"] >= LEAST, "later"].max() + 1
    return float(min(rows["n"].iloc[0], 3 * last)) if last == last else float(rows["n"].iloc[0])


def _by_place(axis: Axes, rows: pd.DataFrame) -> None:
    """Draw delta at SHOWN_EPSILON by place, one line per variant."""
    axis.set_title("Gaussian, what evens it out")
    if not (rows["delta"] >= LEAST).any():
        axis.text(0.5, 0.5, f"no delta above {LEAST:g}", transform=axis.transAxes, ha="center", fontsize=8)
        return
    for number, (variant, name) in enumerate(VARIANTS.items()):
        line = rows[rows["variant"] == variant].sort_values("later")
        look = {"color": style.COLOURS[number], "linestyle": style.DASHES[number]}
        axis.plot(line["later"] + 1, line["delta"].where(line["delta"] >= LEAST), label=name, **look)
    axis.set(xscale="log", yscale="log", xlabel="places from the end", ylabel=f"delta at epsilon = {SHOWN_EPSILON:g}")
    axis.set_xlim(rows["later"].max() + 1, 1)
    axis.legend(fontsize=7)


def utility(results: Results) -> pd.DataFrame:
    """Return the best step of every (model, law, order, release, epsilon).

    Columns: POINT, runs, excess_risk, interval, step, scale, least_step and most_step (the ends of the grid of steps).
    """
    columns = [*POINT, "runs", "excess_risk", "interval", "step", "scale", "least_step", "most_step"]
    runs = results.runs(KEY)
    if runs.empty:
        return pd.DataFrame(columns=columns)
    rows = []
    for key, group in runs.groupby(POINT, sort=False):
        step = group.groupby("step")["excess_risk"].mean().idxmin()
        best = group[group["step"] == step]
        ends = group["step"].min(), group["step"].max()
        rows.append((*key, *mean_interval(best["excess_risk"]), step, best["scale"].iloc[0], *ends))
    return pd.DataFrame(rows, columns=columns)


def draw_utility(data: pd.DataFrame) -> Figure:
    """Draw excess risk against epsilon, one panel per (model, law), one line per (order, release)."""
    panels = list(data.groupby(["dataset", "model", "law"], sort=False))
    figure, axes = style.panels(len(panels), height=3.8, width=4.1 * len(panels) + 0.4, squeeze=False)
    for axis, ((_, model, law), rows) in zip(axes[0], panels, strict=True):
        silent = []
        for number, ((order, release), line) in enumerate(rows.groupby(["order", "release"])):
            private = line[line["epsilon"] < math.inf].sort_values("epsilon")
            name = f"{order}, {'last model' if release == 'last' else 'random stop'}"
            look = {"color": style.COLOURS[number], "marker": style.MARKERS[number], "linestyle": style.DASHES[number]}
            axis.errorbar(private["epsilon"], private["excess_risk"], private["interval"], label=name, **look)
            for value in line.loc[line["epsilon"] == math.inf, "excess_risk"]:
                axis.axhline(value, color=style.COLOURS[number], linestyle=":", linewidth=0.8)
                silent.append((value, name.replace(" model", "").replace("random ", ""), style.COLOURS[number]))
        budgets = set(rows["epsilon"]) - {math.inf}
        title = f"{model.replace('_', ' ')}, {law.capitalize()} noise"
        axis.set(title=title, xlabel="epsilon of the worst record", xscale="log", yscale="log")
        style.ticks_at(axis, budgets)
        style.name_lines(axis, axis.get_xlim()[1], silent, size=6.5)
    axes[0][0].set_ylabel("excess risk")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=4, fontsize=8)
    text = "Dotted, named at the margin: the same without noise."
    style.footer(figure, f"{text} {_steps_at_ends(data)} {data_note(data)}")
    return figure


def _steps_at_ends(data: pd.DataFrame) -> str:
    """Say at how many points the best step is an end of the grid: one beyond it might do better."""
    private = data[data["epsilon"] < math.inf]
    if private.empty:
        return ""
    least, most = (int((private["step"] == private[f"{end}_step"]).sum()) for end in ("least", "most"))
    return f"Of the {len(private)} best steps with noise {least} are the smallest of their grid and {most} the largest."


RUN_FIGURES = {"places": FigureRecipe(places, draw_places), "utility": FigureRecipe(utility, draw_utility)}
