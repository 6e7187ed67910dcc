"""The figure of the candidates: what each open setting changes, a line a candidate, beside what is missing to print."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dpfl.papers.bhaskar2025.identification import CHOSEN
from dpfl.papers.bhaskar2025.paper_runs import published_cells
from dpfl.reporting import style
from dpfl.reporting.notes import count_range, data_name, model_name
from dpfl.reporting.results import NotRunError
from dpfl.reporting.signs import with_signs

PUBLISHED = "published"
PANELS = 3  # side by side
_WORDS = {
    "normalisation none": "inputs not normalised",
    "normalisation groups27": "inputs normalised in 27 groups",
    "accountant pld": "accountant of loss distributions",
    "sampling shuffled epochs": "shuffled epochs",
    "sampling balls in bins": "balls in bins",
    "initialisation per client": "an initial model for each client",
}
LINEAR_PCT = 0.5  # within which the scale is linear
_TICKS = (-50, -5, -0.5, 0, 0.5, 5, 50)
_LOOKS = (
    (math.inf, "no privacy", style.BLUE, "o"),
    (2, "larger ε", style.ORANGE, "s"),
    (1, "smaller ε", style.RED, "^"),
)


def draw_candidates(cells: pd.DataFrame) -> Figure:
    """Draw one panel per dataset and model that has more than the chosen settings, those with most candidates first."""
    order = list(dict.fromkeys(published_cells()["dataset"]))
    cells = cells.sort_values("dataset", key=lambda names: names.map(order.index), kind="stable")
    groups = cells.groupby(["ran_on", "model"], sort=False)
    panels = [(key, group) for key, group in groups if group["candidate"].nunique() > 1]
    if not panels:
        raise NotRunError("no candidate other than the chosen settings was run at this scale")
    panels.sort(key=lambda panel: -panel[1]["candidate"].nunique())
    across = min(PANELS, len(panels))
    rows = [panels[start : start + across] for start in range(0, len(panels), across)]
    names = [_names([group for _, group in row]) for row in rows]
    heights = [len(row) + 1.6 for row in names]
    figure, axes = style.panels(
        across, len(rows), width=3.3 * across + 0.1, height=0.25 * sum(heights) / len(rows) + 0.5,
        squeeze=False, height_ratios=heights, sharex=True,
    )  # fmt: skip
    for line, row, order in zip(axes, rows, names, strict=True):
        for axis in line[len(row) :]:
            axis.set_axis_off()
        for number, (axis, ((ran_on, model), group)) in enumerate(zip(line, row, strict=False)):
            _panel(axis, group, order)
            axis.set_title(f"{data_name(ran_on)},\n{model_name(model)}\n{_counts(group)}", fontsize=8.5, loc="left")
            names_of = [in_words(name) if number == 0 else "" for name in order]
            axis.set_yticks(range(len(order)), labels=names_of, fontsize=8)
    for axis in axes.flat:
        axis.tick_params(axis="x", labelbottom=True)
        axis.set_xlabel("points of accuracy", fontsize=8)
    figure.legend(handles=_keys(), loc="outside upper center", ncols=4, fontsize=8)
    style.footer(figure, _footer(cells))
    return figure


def in_words(candidate: str) -> str:
    """Return a candidate as a reader knows it: "balls in bins, δ = 10⁻⁶"."""
    return with_signs(", ".join(map(_part_in_words, candidate.split(", "))))


def _part_in_words(part: str) -> str:
    """Return one setting of a candidate in words, δ always as a power of ten."""
    name, _, value = part.partition(" ")
    return f"delta = {float(value):.0e}" if name == "delta" else _WORDS.get(part, part)


def _counts(cells: pd.DataFrame) -> str:
    """Return how many runs the marks of a panel are means of: "n = 1 to 10; published 10"."""
    chosen = cells["candidate"] == CHOSEN
    published = cells.loc[chosen & cells["residual_pct"].notna(), "runs"]
    others = cells[~chosen]
    text = f"n = {count_range(others['shared_runs'].where(others['shared_runs'] > 0, others['runs']))}"
    return text + (f"; published {count_range(published)}" if len(published) else "")


def _names(groups: list[pd.DataFrame]) -> list[str]:
    """Return the candidates of a row of panels from bottom to top: the largest effects at the top, the print above."""
    cells = pd.concat(groups)
    others = cells[cells["candidate"] != CHOSEN]
    size = others["effect_pct"].abs().groupby(others["candidate"]).mean().sort_values()
    return [*size.index, *([PUBLISHED] if cells["residual_pct"].notna().any() else [])]


def _panel(axis: Axes, cells: pd.DataFrame, order: list[str]) -> None:
    """Draw a point for each cell of each candidate, and on the top line for each cell of the published tables."""
    chosen = cells[cells["candidate"] == CHOSEN]
    print_less_ours = chosen.assign(candidate=PUBLISHED, effect_pct=-chosen["residual_pct"]).dropna(
        subset="residual_pct"
    )
    points = pd.concat([cells[cells["candidate"] != CHOSEN], print_less_ours])
    budgets = sorted(points["epsilon"].unique(), reverse=True)
    private = [epsilon for epsilon in budgets if not math.isinf(epsilon)]
    for epsilon in budgets:
        rank = math.inf if math.isinf(epsilon) else 2 - private.index(epsilon)
        place, look = next((number, look) for number, look in enumerate(_LOOKS) if look[0] == rank)
        for single, fill in ((False, "none"), (True, look[2])):
            part = points[(points["epsilon"] == epsilon) & ((points["rounds"] == 1) == single)]
            heights = [order.index(name) + 0.22 * (1 - place) for name in part["candidate"]]
            shape = {
                "color": look[2],
                "marker": look[3],
                "markerfacecolor": fill,
                "markersize": 3.5,
                "linestyle": "none",
            }
            axis.plot(part["effect_pct"], heights, **shape, markeredgewidth=0.8)
    axis.set_xscale("symlog", linthresh=LINEAR_PCT, linscale=0.8)
    axis.set_xlim(-100, 100)
    axis.set_xticks(_TICKS, [f"{tick:+g}" if tick else "0" for tick in _TICKS], fontsize=7.5)
    axis.minorticks_off()
    axis.axvline(0, color=style.BLACK, linewidth=0.8)
    axis.set_ylim(-0.6, len(order) - 0.4)
    axis.tick_params(axis="y", length=0)
    if PUBLISHED in order:
        axis.axhspan(len(order) - 1.5, len(order) - 0.4, color=style.BLACK, alpha=0.06, linewidth=0)


def _keys() -> list[Line2D]:
    """Return what colours and fillings mean."""
    keys = [
        Line2D([], [], color=colour, marker=marker, markerfacecolor="none", linestyle="none", label=name)
        for _, name, colour, marker in _LOOKS
    ]
    return [*keys, Line2D([], [], color=style.BLACK, marker="o", linestyle="none", label="filled: (20, 1)")]


def _footer(cells: pd.DataFrame) -> str:
    """Say how many runs there are, and what was run on stand-in data."""
    text = (
        "Candidates: accuracy minus that of the chosen settings, on the n seeds that both ran. Published (grey): the "
        "printed value minus the mean of our runs, as many as the title says. No interval is drawn."
    )
    if cells["stand_in"].any():
        names = ", ".join(data_name(name) for name in sorted(set(cells.loc[cells["stand_in"], "ran_on"])))
        text += f" Not comparable with the published values: {names}."
    return text
