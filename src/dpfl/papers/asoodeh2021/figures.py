"""Figure 2 of the paper: as published, what is drawn at q = 0.3, and the same formula at smaller shares of users."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpfl.accounting import contraction
from dpfl.catalog import load
from dpfl.papers.asoodeh2021.aggregator_figures import RUN_FIGURES
from dpfl.papers.asoodeh2021.dimension_figure import DIMENSION
from dpfl.papers.asoodeh2021.trust_figure import COMPARISON
from dpfl.reporting import style
from dpfl.reporting.figures import FigureRecipe
from dpfl.reporting.results import Results

KEY = "asoodeh2021"
CLOSED_FORM, WHOLE_ROUNDS, ONE_ROUND = "closed form", "sum over whole rounds", "one round alone"
LOOK = ((style.BLUE, "-"), (style.RED, "--"), (style.GREEN, "-."))


def parameters() -> dict[str, Any]:
    """Return the keywords of the accounting functions at Figure 2, except m."""
    return dict(load(KEY).settings["figure_2"])


def users(rate: float) -> int:
    """Return how many of Figure 2's users a share of them is."""
    return round(rate * parameters()["n"])


def whole_rounds(epsilon: np.ndarray | float, m: int, rounds: int) -> np.ndarray:
    """Return Theorem 2's sum over `rounds` rounds of m users at Figure 2, be they all users or not."""
    values = parameters()
    head = 2 * values["lipschitz"] / (math.sqrt(m) * values["sigma"])
    link = 2 * values["radius"] * math.sqrt(m) / (values["eta"] * values["sigma"])
    kept = sum(contraction.theta(epsilon, link) ** later for later in range(rounds))
    return m / values["n"] * contraction.theta(epsilon, head) * kept


def one_round(epsilon: np.ndarray | float, m: int) -> np.ndarray:
    """Return delta of one round alone at Figure 2's parameters."""
    values = parameters()
    arguments = {name: values[name] for name in ("n", "sigma", "lipschitz")}
    return contraction.federated_unamplified_delta(epsilon, m=m, **arguments)


def data(results: Results) -> pd.DataFrame:
    """Return columns panel, form, q, users, rounds, epsilon, delta; `rounds` is n/m, integer or not."""
    settings, n = load(KEY).settings, parameters()["n"]
    epsilon = np.linspace(*(settings["epsilon_axis"][name] for name in ("first", "last", "points")))
    parts = []

    def add(panel: str, form: str, m: int, rounds: float, epsilon: np.ndarray, delta: np.ndarray) -> None:
        columns = {"panel": panel, "form": form, "q": m / n, "users": m, "rounds": rounds}
        parts.append(pd.DataFrame(columns | {"epsilon": epsilon, "delta": delta}))

    for m in map(users, settings["sample_rates"]):
        closed = contraction.federated_delta(epsilon, m=m, **parameters())
        add("published", CLOSED_FORM, m, n / m, epsilon, closed)
        add("published", ONE_ROUND, m, n / m, epsilon, one_round(epsilon, m))
        if n % m:
            for rounds in (n // m, n // m + 1):
                add("published", WHOLE_ROUNDS, m, rounds, epsilon, whole_rounds(epsilon, m, rounds))
    few = np.array(settings["small_rate_epsilons"])
    for m in settings["users_a_round"]:
        add("other shares", CLOSED_FORM, m, n / m, few, contraction.federated_delta(few, m=m, **parameters()))
    return pd.concat(parts)


def draw(table: pd.DataFrame) -> Figure:
    """Draw the published curves, the choice of rounds at q = 0.3, and delta by share of users."""
    figure, axes = style.panels(3, height=3.7, width=11)
    published = table[table["panel"] == "published"]
    _draw_published(axes[0], published)
    _draw_rounds(axes[1], published)
    _draw_shares(axes[2], table[table["panel"] == "other shares"])
    style.footer(
        figure, "Right: only shares whose number of users divides n = 100. Shaded: the shares of the published figure."
    )
    return figure


def _draw_published(axis: Axes, rows: pd.DataFrame) -> None:
    """Delta against epsilon, one curve per share, with the one-round value as dots."""
    for (q, group), (colour, dash) in zip(rows.groupby("q"), LOOK, strict=True):
        closed, alone = (group[group["form"] == form] for form in (CLOSED_FORM, ONE_ROUND))
        axis.plot(closed["epsilon"], closed["delta"], color=colour, linestyle=dash, label=f"q = {q:g}")
        axis.plot(alone["epsilon"][::8], alone["delta"][::8], ".", color=style.BLACK, markersize=4)
    axis.plot([], [], ".", color=style.BLACK, label="one round alone")
    axis.set(title="as published", xlabel="epsilon", ylabel="delta", yscale="log", ylim=(1e-12, 1), xlim=(0, 2))
    axis.legend(loc="lower left", frameon=False)


def _draw_rounds(axis: Axes, rows: pd.DataFrame) -> None:
    """Each curve over the one-round value of the same share: what contraction and the number of rounds do.

    Curves that coincide are drawn once, with the names of all.
    """
    alone = rows[rows["form"] == ONE_ROUND].set_index(["q", "epsilon"])["delta"]
    names: dict[tuple[float, ...], list[str]] = {}
    for (form, q, rounds), group in rows[rows["form"] != ONE_ROUND].groupby(["form", "q", "rounds"]):
        ratio = (group.set_index(["q", "epsilon"])["delta"] / alone).dropna()
        name = f"q = {q:g}, T = {rounds:.3g}" + ("" if form == CLOSED_FORM else " (whole rounds)")
        names.setdefault(tuple(sorted(set(ratio.round(2)))), []).append(name)
    for levels, (colour, dash) in zip(names, LOOK, strict=False):
        for level in levels:
            axis.axhline(level, color=colour, linestyle=dash)
        label = "\n".join(names[levels])
        axis.annotate(label, (0.05, max(levels)), xytext=(0, 3), textcoords="offset points", color=colour, fontsize=8)
    axis.set(title="over one round alone", xlabel="epsilon", ylabel="delta / theta", ylim=(0.8, 1.3), xlim=(0, 2))


def _draw_shares(axis: Axes, rows: pd.DataFrame) -> None:
    """Delta against the share of users per round, one curve per epsilon."""
    for (epsilon, group), (colour, dash), marker in zip(rows.groupby("epsilon"), LOOK, style.MARKERS, strict=False):
        look = {"color": colour, "linestyle": dash, "marker": marker}
        axis.plot(group["q"], group["delta"], label=f"epsilon = {epsilon:g}", **look)
    axis.axvspan(0.1, 0.3, color=style.YELLOW, alpha=0.25, linewidth=0)
    axis.set(title="other shares of users", xlabel="share q of the users a round", ylabel="delta")
    axis.set(xscale="log", yscale="log", ylim=(1e-7, 1))
    axis.legend(loc="lower left", frameon=False)


FIGURES = {"figure_2": FigureRecipe(data, draw), **RUN_FIGURES, **DIMENSION, **COMPARISON}
