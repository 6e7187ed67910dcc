"""Figures 2 and 3 of the paper, with comparators it does not have, and its Theorem 5 by record."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.colors import ListedColormap
from numpy.typing import ArrayLike, NDArray

from dpfl.accounting import contraction, gaussian_dp
from dpfl.accounting.contraction.kernels import contraction_factor
from dpfl.accounting.contraction.pnsgd import Law, NoisyPass, linear_renyi_delta, place_deltas, pnsgd_renyi_coefficient
from dpfl.accounting.hidden_state import diameter_in_shifts, place_energy, step_contraction
from dpfl.accounting.neighbouring import MOVES, Neighbouring
from dpfl.accounting.numerics import by_element, integers, power, reals, root
from dpfl.catalog import load
from dpfl.convex.pnsgd import MEAN_INK, LossConstants
from dpfl.reporting import style
from dpfl.reporting.display_names import all_or, data_note, listed, span
from dpfl.reporting.figures import FigureRecipe
from dpfl.reporting.statistics import mean_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dpfl.reporting.results import Results

# Map of the smallest bound on the last iterate, over settings of asoodeh2020's one pass in a public order.

Array = NDArray[np.float64]

LATER_STEPS = (0, 1, 4, 20, 100)
STRONG_CONVEXITIES = (0.0, 0.5)
SIGMAS = tuple(np.geomspace(0.5, 32.0, 10))
DIAMETERS = tuple(np.geomspace(0.1, 51.2, 10))
"""5 x 2 x 10 x 10 = 1,000 settings."""
BOUNDS = ("composition", "theorem_4", "shifted_interpolation", "proposition_1")
"""Columns of `bounds`; the first of those that tie is named smallest."""
_TIE = 1e-9  # relative


def one_pass_epsilons(
    *,
    later_steps: ArrayLike,
    sigma: ArrayLike,
    diameter: ArrayLike,
    eta: ArrayLike,
    smoothness: ArrayLike,
    strong_convexity: ArrayLike,
    delta: ArrayLike,
    lipschitz: ArrayLike = 1.0,
) -> dict[str, Array]:
    """Return epsilon at `delta` in (0, 1) by each of BOUNDS for a record that `later_steps` >= 0 steps follow.

    The pass w <- project(w - eta (grad f_i(w) + sigma Z)) takes one record per step in a public order; the record is
    replaced. Shapes broadcast; the other arguments are those of `contraction.pnsgd_gaussian_delta`. Each bound is an
    (epsilon, delta)-DP guarantee of the last iterate. Raises ValueError naming the argument.
    Source: composition is the Gaussian mechanism (the record's own step); asoodeh2020 Theorem 4; asoodeh2020
    Proposition 1, converted at its best order; bok2024, section 4.
    """
    later = integers("later_steps", later_steps, at_least=0)
    sigma, diameter = reals("sigma", sigma, above=0), reals("diameter", diameter, above=0)
    delta = reals("delta", delta, above=0, below=1)
    first = MOVES[Neighbouring.REPLACE_ONE] * reals("lipschitz", lipschitz, above=0) / sigma
    later, sigma, diameter, delta, first = np.broadcast_arrays(later, sigma, diameter, delta, first)
    alone = np.asarray(gaussian_dp.epsilon(delta, first))
    link = contraction_factor(eta, smoothness, strong_convexity) * diameter / (np.asarray(eta) * sigma)
    loss = {"eta": eta, "smoothness": smoothness, "strong_convexity": strong_convexity}
    kappa = pnsgd_renyi_coefficient(i=1, n=later + 1, sigma=sigma, lipschitz=lipschitz, **loss)
    reach = kappa + 2 * np.sqrt(-kappa * np.log(delta))
    shifts = diameter_in_shifts(
        diameter, step_size=eta, lipschitz=lipschitz, batch_size=1, neighbouring=Neighbouring.REPLACE_ONE
    )
    energy = _energies(step_contraction(eta, smoothness, strong_convexity), later, shifts)
    return {
        "composition": alone,
        "theorem_4": root(_theorem_4_gap, 0.0, alone, first, link, later, np.log(delta)),
        "shifted_interpolation": np.asarray(gaussian_dp.epsilon(delta, np.sqrt(energy) * first)),
        "proposition_1": root(_proposition_1_gap, 0.0, reach, kappa, np.log(delta)),
    }


def bounds(results: Results) -> pd.DataFrame:
    """Return a row for each of 1,000 settings of `one_pass_epsilons`: the setting, four epsilons, and `smallest`.

    Columns: later_steps, strong_convexity, sigma, diameter (eta is 0.5, smoothness and lipschitz are 1), then BOUNDS
    in epsilon at delta 1e-5, and `smallest`, the bound with the least epsilon; among those within 1e-9 of it, relative,
    the first of BOUNDS.
    Source: `one_pass_epsilons`.
    """
    names = ["later_steps", "strong_convexity", "sigma", "diameter"]
    table = pd.DataFrame(list(product(LATER_STEPS, STRONG_CONVEXITIES, SIGMAS, DIAMETERS)), columns=names)
    setting = {name: table[name].to_numpy() for name in names}
    result = one_pass_epsilons(**setting, eta=0.5, smoothness=1.0, delta=1e-5)
    epsilons = np.column_stack([result[name] for name in BOUNDS])
    least = epsilons.min(axis=1, keepdims=True)
    table[list(BOUNDS)] = epsilons
    table["smallest"] = np.array(BOUNDS)[np.argmax(epsilons <= least * (1 + _TIE), axis=1)]
    return table


def _energies(contraction: Array, later: Array, diameter: Array) -> Array:
    """mu^2 over that of the record's own step, for one use that `later` steps follow."""

    def one(contraction: float, later: float, diameter: float) -> float:
        return float(place_energy(contraction, 1, period=1, diameter=diameter, tail=int(later)))

    return by_element(one, contraction=contraction, later=later, diameter=diameter)


def _theorem_4_gap(epsilon: Array, first: Array, link: Array, later: Array, log_delta: Array) -> Array:
    """ln delta of asoodeh2020 Theorem 4 less its target; falls in epsilon."""
    log_later = power(gaussian_dp.log_divergence(epsilon, link), later)
    return gaussian_dp.log_divergence(epsilon, first) + log_later - log_delta


def _proposition_1_gap(epsilon: Array, kappa: Array, log_delta: Array) -> Array:
    """ln delta of asoodeh2020 Proposition 1 at its best order less its target; falls in epsilon."""
    return np.log(np.maximum(linear_renyi_delta(epsilon, kappa, "tight"), 1e-300)) - log_delta


# Figure of the bound on the last iterate that is smallest, over settings of the paper's pass.

LOOKS = {
    "composition": ("no gain:\ncomposition", style.PALE),
    "theorem_4": ("Theorem 4", style.SKY),
    "proposition_1": ("Proposition 1", style.PURPLE),
    "shifted_interpolation": ("shifted\ninterpolation", style.YELLOW),
}
"""Label and colour of each bound; the regions differ in lightness, too."""
_LEAST_TILES = 8  # of a region that is labelled


def draw_bounds(data: pd.DataFrame) -> Figure:
    """Draw a panel of tiles over noise and diameter for each number of later steps, 1 or more, and strong convexity."""
    alone = data[data["later_steps"] == 0]
    data = data[data["later_steps"] > 0]
    convexities, later = sorted(data["strong_convexity"].unique()), sorted(data["later_steps"].unique())
    figure, axes = style.panels(len(later), len(convexities), height=2.6, sharex=True, sharey=True, squeeze=False)
    for row, convexity in zip(axes, convexities, strict=True):
        for axis, steps in zip(row, later, strict=True):
            rows = data[(data["strong_convexity"] == convexity) & (data["later_steps"] == steps)]
            _tiles(axis, rows)
            axis.set_title(f"{steps} later step{'s' if steps != 1 else ''}, rho = {convexity:g}", fontsize=9)
        row[0].set_ylabel("diameter (units of L)")
    for axis in axes[-1]:
        axis.set_xlabel("noise sigma (units of L)")
    text = (
        f"{len(data):,} settings, one tile each, with the name of the smallest bound; δ = 1e-5, η = 0.5, β = 1, L = 1."
    )
    if len(alone) and (alone["smallest"] == BOUNDS[0]).all():
        text += f" Not drawn: {len(alone)} settings without a later step, in which nothing beats composition."
    style.footer(figure, text)
    return figure


def bounds_message(data: pd.DataFrame) -> str:
    """Say how often each bound is the smallest, among settings in which later steps hide a record."""
    names = {"theorem_4": "Theorem 4", "proposition_1": "Proposition 1"}
    hidden = data[data["later_steps"] > 0]
    counts = hidden["smallest"].value_counts()
    parts = [f"{names.get(name, name.replace('_', ' '))} in {count}" for name, count in counts.items()]
    return f"Smallest of four bounds on ε, in {len(hidden)} settings: {listed(parts)}"


def _tiles(axis: Axes, rows: pd.DataFrame) -> None:
    """Draw one panel and write each region's name into it."""
    table = rows.pivot(index="diameter", columns="sigma", values="smallest")
    kinds = table.map(BOUNDS.index).to_numpy()
    colours = ListedColormap([LOOKS[name][1] for name in BOUNDS])
    axis.pcolormesh(
        table.columns, table.index, kinds, cmap=colours, vmin=-0.5, vmax=len(BOUNDS) - 0.5, shading="nearest",
        edgecolors="white", linewidth=0.4, rasterized=True,
    )  # fmt: skip
    axis.set(xscale="log", yscale="log")
    axis.set_xticks([1, 10], ["1", "10"])
    axis.set_yticks([0.1, 1, 10], ["0.1", "1", "10"])
    axis.grid(visible=False)
    for number, name in enumerate(BOUNDS):
        cells = np.argwhere(kinds == number)
        if len(cells) >= _LEAST_TILES:
            height, width = _roomiest(kinds == number)
            where = (table.columns[width], table.index[height])
            axis.annotate(LOOKS[name][0], where, ha="center", va="center", fontsize=style.SMALL, color=style.ON_LIGHT)


def _roomiest(region: np.ndarray) -> tuple[int, int]:
    """Return the tile with most of its region beside it, in its row and the next ones; of several the most central."""
    padded = np.pad(region, 1)
    block = padded[:-2] & padded[1:-1] & padded[2:]  # a name takes three rows
    block = block[:, 1:-1] if block.any() else region
    room = np.zeros(region.shape, dtype=int)
    for steps in range(1, region.shape[1]):
        beside = np.pad(block, ((0, 0), (steps, steps)))
        block_around = np.all([beside[:, k : k + region.shape[1]] for k in range(2 * steps + 1)], axis=0)
        room[block_around] = steps
    places = np.argwhere(block & (room == room[block].max()))
    middle = np.argwhere(region).mean(axis=0)
    return tuple(places[np.argmin(np.sum((places - middle) ** 2, axis=1))])


HIDDEN_STATE_FIGURES = {"hidden_state_map": FigureRecipe(bounds, draw_bounds, bounds_message)}


# Figures from runs of PNSGD: delta of each record by its place, and the utility of a pass.

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
    """Return the fields of the pass of one run, its law and its release apart."""
    constants = LossConstants.of(run["model"], run["radius"], 0.0)
    return {
        "n": int(run["users"]),
        "eta": run["step"],
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
                released = NoisyPass(law=Law(law), **how, **values)
                deltas = place_deltas(float(epsilon), released, scale=run["scale"])[-1 - later]
                row = {"law": law, "variant": variant, "n": values["n"], "step": run["step"], "scale": run["scale"]}
                parts.append(pd.DataFrame({**row, "later": later, "epsilon": epsilon, "delta": deltas}))
    return pd.concat(parts, ignore_index=True)[columns]


def draw_places(data: pd.DataFrame) -> Figure:
    """Draw two heat maps over (place, epsilon), and delta by place for three ways of releasing."""
    maps = list(data[data["variant"] == "last"].groupby("law"))
    figure, axes = style.panels(len(maps) + 1, height=3.4, width=style.WIDTH, width_ratios=[1.0] * len(maps) + [1.3])
    for axis, (law, rows) in zip(axes, maps, strict=False):
        table = rows.pivot(index="epsilon", columns="later", values="delta")
        exponents = np.log10(table.where(table >= LEAST))
        # thousands of tiles as one picture within the drawing: they would be seven tenths of a megabyte
        look = {"vmin": -12, "vmax": 0, "shading": "nearest", "rasterized": True}
        mesh = axis.pcolormesh(table.columns + 1, table.index, exponents, **look)
        first = rows.iloc[0]
        axis.set_title(f"{law.capitalize()} noise {first['scale']:.3g},\nstep {first['step']:g}", fontsize=9)
        axis.set(xscale="log", xlabel="places from the end", xlim=(_shown_places(rows), 1))
        axis.grid(visible=False)
    axes[0].set_ylabel("ε")
    figure.colorbar(mesh, ax=axes[: len(maps)], label="δ, as a power of ten", shrink=0.9)
    _by_place(axes[-1], data[(data["law"] == Law.GAUSSIAN) & np.isclose(data["epsilon"], SHOWN_EPSILON)])
    style.footer(
        figure,
        f"Left: last model, public order. Empty where δ < {LEAST:g}. Place 1 is the last of "
        f"n = {data['n'].iloc[0]:,} records. Computed at the noise of the runs.",
    )
    return figure


def places_message(data: pd.DataFrame, *, shown_epsilon: float, least_delta: float) -> str:
    """Say how fast delta falls from the last record on in public order, and what evens it out."""
    rows = data[(data["law"] == "gaussian") & ((data["epsilon"] - shown_epsilon).abs() < 1e-9)]
    last = rows[rows["variant"] == "last"]
    seen = last[last["delta"] >= least_delta].sort_values("later")
    if seen.empty:
        return ""
    worst, end = seen["delta"].max(), seen.iloc[-1]
    text = f"In public order with Gaussian noise, the last of {int(end['n']):,} records has δ = {worst:.1g}"
    if end["later"]:
        text += f", number {int(end['later']) + 1:,} from the end {end['delta']:.1g}"
    text += f" at ε = {shown_epsilon:g}"
    even = rows[rows["variant"] != "last"].groupby("variant")["delta"].max()
    if even.empty or not (even < worst).all():
        return text
    return f"{text}; a secret order or a random stop spreads it, to at most {even.max():.1g}"


def _shown_places(rows: pd.DataFrame) -> float:
    """Return how many places from the end a map shows: up to thrice the last with a delta to draw."""
    last = rows.loc[rows["delta"] >= LEAST, "later"].max() + 1
    return float(min(rows["n"].iloc[0], 3 * last)) if last == last else float(rows["n"].iloc[0])


def _by_place(axis: Axes, rows: pd.DataFrame) -> None:
    """Draw delta at SHOWN_EPSILON by place, one line per variant; a line that another may hide is a broad one."""
    axis.set_title(f"Gaussian noise,\nε = {SHOWN_EPSILON:g}", fontsize=9)
    if not (rows["delta"] >= LEAST).any():
        axis.text(0.5, 0.5, f"no delta above {LEAST:g}", transform=axis.transAxes, ha="center", fontsize=style.SMALL)
        return
    for (variant, name), number in zip(VARIANTS.items(), (0, 4, 2), strict=True):
        line = rows[rows["variant"] == variant].sort_values("later")
        broad = variant == "permuted"
        look = {"color": style.COLOURS[number], "linestyle": "-" if broad else style.DASHES[number]}
        look |= {"linewidth": 5 if broad else 1.5, "alpha": 0.5 if broad else 1.0}
        axis.plot(line["later"] + 1, line["delta"].where(line["delta"] >= LEAST), label=name, **look)
    axis.set(xscale="log", yscale="log", xlabel="places from the end", ylabel=f"delta at epsilon = {SHOWN_EPSILON:g}")
    axis.set_xlim(rows["later"].max() + 1, 1)
    axis.legend(fontsize=style.SMALL, loc="upper left")


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


WAYS = {
    ("permuted", "last"): "last model of a secret order",
    ("permuted", "random"): "random stop of a secret order",
    ("sorted", "last"): "last model of a public order",
    ("sorted", "random"): "random stop of a public order",
}
"""Name of each way to order the records and to choose the released model."""
_BEYOND = 3.0
"""Ratio of the place of the runs without noise, on the axis of epsilon, to the largest epsilon."""


def draw_utility(data: pd.DataFrame) -> Figure:
    """Draw excess risk against epsilon, one panel per (model, law), one line per way; without noise at the right end.

    A point is hollow if its step is an end of the grid of steps.
    """
    panels = list(data.groupby(["dataset", "model", "law"], sort=False))
    figure, axes = style.panels(len(panels), height=3.6, squeeze=False)
    for axis, ((_, model, law), rows) in zip(axes[0], panels, strict=True):
        budgets = sorted(set(rows["epsilon"]) - {math.inf})
        silent = _BEYOND * max(budgets, default=1.0)
        for number, ((order, release), name) in enumerate(WAYS.items()):
            line = rows[(rows["order"] == order) & (rows["release"] == release)].sort_values("epsilon")
            look = {"color": style.COLOURS[number], "label": name}
            private = line[line["epsilon"] < math.inf]
            axis.errorbar(
                private["epsilon"], private["excess_risk"], private["interval"], linestyle=style.DASHES[number], **look
            )
            places = line["epsilon"].replace(math.inf, silent)
            edge = _at_an_end(line)
            marks = {"color": look["color"], "marker": style.MARKERS[number], "linestyle": "none", "markersize": 5}
            axis.plot(places[~edge], line.loc[~edge, "excess_risk"], **marks)
            axis.plot(places[edge], line.loc[edge, "excess_risk"], markerfacecolor=style.WHITE, **marks)
        axis.set_title(f"{model.replace('_', ' ')}, {law.capitalize()} noise", fontsize=9)
        axis.set(xlabel="ε of the worst record", xscale="log", yscale="log")
        style.ticks_at(axis, [*budgets, silent])
        axis.set_xticks([*budgets, silent], [*(f"{each:g}" for each in budgets), "no\nnoise"])
    axes[0][0].set_ylabel("excess risk")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=2, fontsize=9)
    style.footer(
        figure,
        f"Hollow: the best step is an end of its grid. {_steps_at_ends(data)} {data_note(data)} No bars without noise.",
    )
    return figure


def utility_message(data: pd.DataFrame, names: Mapping[tuple[str, str], str]) -> str:
    """Say which way has the least excess risk at the largest epsilon of each panel, and by how much."""
    private = data[data["epsilon"] < math.inf]
    if private.empty:
        return ""
    winners, factors = [], []
    for _, panel in private.groupby(["dataset", "model", "law"]):
        end = panel[panel["epsilon"] == panel["epsilon"].max()].set_index(["order", "release"])["excess_risk"]
        winners.append(end.idxmin())
        factors.append(end.max() / end.min())
    best = max(winners, key=winners.count)
    times = span((factor for factor, winner in zip(factors, winners, strict=True) if winner == best), "{:,.0f}")
    return (
        f"At the largest ε, the {names[best]} has the least excess risk in {all_or(winners.count(best), len(winners))} "
        f"panels, {times} times below the worst way"
    )


def _at_an_end(rows: pd.DataFrame) -> pd.Series:
    """Return in which rows the best step is an end of the grid of steps."""
    return (rows["step"] == rows["least_step"]) | (rows["step"] == rows["most_step"])


def _steps_at_ends(data: pd.DataFrame) -> str:
    """Say at how many points the best step is an end of the grid: one beyond it might do better."""
    private = data[data["epsilon"] < math.inf]
    if private.empty:
        return ""
    least, most = (int((private["step"] == private[f"{end}_step"]).sum()) for end in ("least", "most"))
    points = f"Of the {len(private)} points with noise"
    return f"{points}, the best step is the smallest of its grid at {least} and the largest at {most}."


RUN_FIGURES = {
    "places": FigureRecipe(
        places, draw_places, partial(places_message, shown_epsilon=SHOWN_EPSILON, least_delta=LEAST)
    ),
    "utility": FigureRecipe(utility, draw_utility, partial(utility_message, names=WAYS)),
}


ROUTES = {
    "theorem_4": ("Theorem 4 (the paper)", style.BLUE, "-"),
    "proposition_1": ("Rényi bound, Proposition 1", style.RED, "--"),
    "optimal_shift": ("Rényi bound, best shift (ours)", style.ORANGE, ":"),
    "shifted_gdp": ("shifted interpolation (later work)", style.GREEN, "-."),
}
STOPPING = {
    "theorem_4": ("fixed stop (Theorem 4)", style.BLUE, "-"),
    "bound": ("random stop, Theorem 5", style.RED, "--"),
    "sum": ("random stop, sum before Theorem 5's last step", style.GREEN, "-."),
    "renyi": ("random stop, Rényi bound (Feldman et al. 2018)", style.ORANGE, ":"),
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
    figure, axes = style.panels(len(records), sharey=True, height=3.0)
    for axis, i in zip(axes, records, strict=True):
        for route, (label, colour, dash) in ROUTES.items():
            rows = data[(data["i"] == i) & (data["route"] == route)]
            axis.plot(rows["epsilon"], rows["delta"], color=colour, linestyle=dash, label=label)
        axis.set(title=f"record {i} of 40", xlabel="epsilon", yscale="log", ylim=(floor, 2), xlim=(0, 4))
    axes[0].set_ylabel("delta")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return figure


_ROUTES = {
    "proposition_1": "the Rényi bound of Proposition 1",
    "optimal_shift": "the Rényi bound with its best shift",
    "shifted_gdp": "shifted interpolation",
}


def curves_message(data: pd.DataFrame) -> str:
    """Say for which records, and up to which epsilon, Theorem 4 is the smallest of the bounds; else what is smaller."""
    wide = data.pivot(index=["i", "epsilon"], columns="route", values="delta")
    rivals = wide[list(_ROUTES)]
    lost = rivals[rivals.min(axis=1) < wide["theorem_4"]]
    if lost.empty:
        return "Theorem 4 proves the smallest δ of the four bounds, for every record and ε shown"
    first = lost.idxmin(axis=1).reset_index(name="route").sort_values("epsilon").drop_duplicates("i")
    parts = [f"record {row.i} from ε = {row.epsilon:g} on ({_ROUTES[row.route]})" for row in first.itertuples()]
    kept = [f"{i}" for i in sorted(data["i"].unique()) if i not in set(first["i"])]
    always = f"always for record {listed(kept)}" if kept else "for no record at every ε"
    return f"Theorem 4 proves the smallest δ {always}; a later bound beats it for {listed(parts)}"


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


_TOP, _BOTTOM = 1e5, 1e-15


def draw_stopping(data: pd.DataFrame) -> Figure:
    """Draw delta by record, one panel per strength of contraction, both on one scale."""
    figure, axes = style.panels(2, height=3.3, width=style.WIDTH, sharey=True)
    titles = {"figure_2": "parameters of Figure 2 (η = 0.5)", "weak": f"weak contraction (η = {WEAK_ETA})"}
    for axis, (strength, title) in zip(axes, titles.items(), strict=True):
        for route, (label, colour, dash) in STOPPING.items():
            rows = data[(data["contraction"] == strength) & (data["route"] == route)]
            broad = route == "bound"
            look = {"linewidth": 5, "alpha": 0.45, "linestyle": "-"} if broad else {"linestyle": dash}
            axis.plot(rows["i"], rows["delta"], color=colour, label=label, **look)
        axis.axhspan(1, _TOP, color=style.PALE, alpha=0.35, linewidth=0)
        axis.annotate("δ of 1 or more says nothing", (2, 1e2), fontsize=style.SMALL)
        axis.set(title=title, xlabel="position i of the record among 40", yscale="log", xlim=(1, 40))
        axis.set_ylim(_BOTTOM, _TOP)
    axes[0].set_ylabel(f"δ at ε = {STOPPING_EPSILON}")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return figure


def stopping_message(data: pd.DataFrame) -> str:
    """Say what a random stop does to the worst record's delta, and where Theorem 5's bound says nothing."""
    worst = data.groupby(["contraction", "route"])["delta"].max()
    texts = []
    for case, name in (("figure_2", "at the parameters of Figure 2"), ("weak", "with weak contraction")):
        fixed, bound = worst[case, "theorem_4"], worst[case, "bound"]
        texts.append(
            f"{name} it bounds the worst record's δ by {bound:.2g} instead of {fixed:.2g}"
            if bound < 1
            else f"{name} it gives {bound:,.0f}, which says nothing"
        )
    return f"Theorem 5's random stop: {', '.join(texts)}"


FIGURES = {
    "figure_2": FigureRecipe(partial(curves, "figure_2"), partial(draw_curves, 1e-40), curves_message),
    "figure_3": FigureRecipe(partial(curves, "figure_3"), partial(draw_curves, 1e-20), curves_message),
    "random_stopping": FigureRecipe(stopping, draw_stopping, stopping_message),
    **RUN_FIGURES,
    **HIDDEN_STATE_FIGURES,
}
