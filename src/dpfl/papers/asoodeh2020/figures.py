"""Figures 2 and 3 of the paper, with comparators it does not have, and its Theorem 5 by record."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from dpfl.accounting import contraction
from dpfl.catalog import load
from dpfl.papers.asoodeh2020.hidden_state_figure import HIDDEN_STATE_FIGURES
from dpfl.papers.asoodeh2020.pnsgd_figures import RUN_FIGURES
from dpfl.reporting import style
from dpfl.reporting.figures import FigureRecipe
from dpfl.reporting.results import Results

KEY = "asoodeh2020"
ROUTES = {
    "theorem_4": ("Theorem 4 (the paper)", style.BLUE, "-"),
    "proposition_1": ("Renyi route, Proposition 1", style.RED, "--"),
    "optimal_shift": ("Renyi route, optimal shift", style.ORANGE, ":"),
    "shifted_gdp": ("Gaussian DP by shifted interpolation", style.GREEN, "-."),
}
STOPPING = {
    "theorem_4": ("no random stopping (Theorem 4)", style.BLUE, "-"),
    "bound": ("Theorem 5, eq. (16)", style.RED, "--"),
    "sum": ("sum before Theorem 5's last step", style.GREEN, "-."),
    "renyi": ("Renyi route, Feldman et al. (2018), Theorem 26", style.ORANGE, ":"),
}
STOPPING_EPSILON = 0.5
WEAK_ETA = 0.05
"""A step at which the noise is a tenth of the diameter: the projection hardly contracts."""


def parameters(name: str) -> tuple[list[int], dict[str, Any]]:
    """Return the records that a figure shows, and the keywords of the accounting functions."""
    values = dict(load(KEY).settings[name])
    return values.pop("i"), values


def epsilons() -> np.ndarray:
    """Return the epsilons of Figures 2 and 3."""
    axis = load(KEY).settings["epsilon_axis"]
    return np.linspace(axis["first"], axis["last"], axis["points"])


def routes(epsilon: np.ndarray, i: int, values: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return delta at `epsilon` by each of ROUTES for record `i`."""
    unbounded = {name: value for name, value in values.items() if name != "diameter"}
    return {
        "theorem_4": contraction.pnsgd_gaussian_delta(epsilon, i=i, **values),
        "proposition_1": contraction.pnsgd_renyi_delta(epsilon, i=i, **unbounded),
        "optimal_shift": contraction.pnsgd_renyi_optimal_shift_delta(epsilon, i=i, **unbounded),
        "shifted_gdp": contraction.pnsgd_shifted_gdp_delta(epsilon, i=i, **unbounded),
    }


def curves(name: str, results: Results) -> pd.DataFrame:
    """Return columns i, route, epsilon, delta for one of the paper's figures."""
    records, values = parameters(name)
    epsilon = epsilons()
    return pd.concat(
        pd.DataFrame({"i": i, "route": route, "epsilon": epsilon, "delta": delta})
        for i in records
        for route, delta in routes(epsilon, i, values).items()
    )


def draw_curves(floor: float, data: pd.DataFrame) -> Figure:
    """Draw one panel per record, delta on a logarithmic axis that ends at `floor`."""
    records = sorted(data["i"].unique())
    figure, axes = style.panels(len(records), sharey=True, height=3.5)
    for axis, i in zip(axes, records, strict=True):
        for route, (label, colour, dash) in ROUTES.items():
            rows = data[(data["i"] == i) & (data["route"] == route)]
            axis.plot(rows["epsilon"], rows["delta"], color=colour, linestyle=dash, label=label)
        axis.set(title=f"record {i} of 40", xlabel="epsilon", yscale="log", ylim=(floor, 2), xlim=(0, 4))
    axes[0].set_ylabel("delta")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(ROUTES), frameon=False)
    return figure


def stopping(results: Results) -> pd.DataFrame:
    """Return columns contraction, i, route, delta at STOPPING_EPSILON for every record."""
    _, values = parameters("figure_2")
    rows = []
    for strength, eta in (("figure_2", values["eta"]), ("weak", WEAK_ETA)):
        chosen = values | {"eta": eta}
        bound = float(contraction.pnsgd_random_stop_bound(STOPPING_EPSILON, **chosen))
        loss = {name: chosen[name] for name in ("n", "sigma", "lipschitz")}
        renyi = float(contraction.pnsgd_random_stop_renyi_delta(STOPPING_EPSILON, **loss))
        for i in range(1, values["n"] + 1):
            fixed = contraction.pnsgd_gaussian_delta(STOPPING_EPSILON, i=i, **chosen)
            stopped = contraction.pnsgd_random_stop_delta(STOPPING_EPSILON, i=i, **chosen)
            for route, delta in (("theorem_4", fixed), ("bound", bound), ("sum", stopped), ("renyi", renyi)):
                rows.append({"contraction": strength, "i": i, "route": route, "delta": float(delta)})
    return pd.DataFrame(rows)


def draw_stopping(data: pd.DataFrame) -> Figure:
    """Draw delta by record, one panel per strength of contraction."""
    figure, axes = style.panels(2, height=3.4, width=9)
    titles = {"figure_2": "parameters of Figure 2 (eta = 0.5)", "weak": f"weak contraction (eta = {WEAK_ETA})"}
    for axis, (strength, title) in zip(axes, titles.items(), strict=True):
        for route, (label, colour, dash) in STOPPING.items():
            rows = data[(data["contraction"] == strength) & (data["route"] == route)]
            axis.plot(rows["i"], rows["delta"], color=colour, linestyle=dash, label=label)
        axis.set(title=title, xlabel="position i of the record among 40", yscale="log", xlim=(1, 40))
    axes[0].set_ylim(1e-15, 2)
    axes[1].axhline(1, color=style.BLACK, linewidth=0.7, linestyle="-")
    axes[1].annotate("a delta above 1 says nothing", (2, 1.3), fontsize=7)
    axes[0].set_ylabel(f"delta at epsilon = {STOPPING_EPSILON}")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False)
    return figure


FIGURES = {
    "figure_2": FigureRecipe(partial(curves, "figure_2"), partial(draw_curves, 1e-40)),
    "figure_3": FigureRecipe(partial(curves, "figure_3"), partial(draw_curves, 1e-20)),
    "random_stopping": FigureRecipe(stopping, draw_stopping),
    **RUN_FIGURES,
    **HIDDEN_STATE_FIGURES,
}
