"""Risk against the rates of Theorems 2.1, 2.2 and 3.1, each in its theorem's settings, and privacy for free."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from dpfl.accounting import gaussian_dp, local_privacy
from dpfl.reporting import style
from dpfl.reporting.display_names import all_or, count_range, in_words, listed, span
from dpfl.reporting.figures import FigureRecipe
from dpfl.reporting.results import ORIGINS, NotRunError, Results, origins
from dpfl.reporting.statistics import half_width, t_quantile
from dpfl.reporting.tables import TableLayout, TableRecipe

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Summarise the theory studies' runs: mean risks with intervals, the worst of a family, fitted slopes.

EXPERIMENT = "ldp_theory"
FAMILY = "signal"
"""Problems that differ in it make up a family; the theorems speak of the worst of one."""


def study(results: Results, names: Sequence[str] = ()) -> pd.DataFrame:
    """Return the finished runs of the studies `names` (all, if empty); raises NotRunError if there is none."""
    runs = results.runs("lowy2021", experiment=EXPERIMENT)
    runs = runs[runs["study"].isin(list(names))] if len(runs) and names else runs
    if runs.empty:
        told = f" {', '.join(names)}" if names else ""
        raise NotRunError(f"no run of lowy2021's theory studies{told} in this configuration")
    return runs[runs["status"] == "finished"].reset_index(drop=True)


def by_seed(runs: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Return one row per setting (index `keys`), one column per seed; seeds that a setting lacks are left out."""
    return runs.pivot_table(index=list(keys), columns="seed", values="excess_risk", sort=False).dropna(axis=1)


def worst(table: pd.DataFrame) -> pd.DataFrame:
    """Return, of a `by_seed` table whose index ends in FAMILY, the member with the largest mean in each setting."""
    means = table.mean(axis=1)
    keys = [name for name in table.index.names if name != FAMILY]
    return table.loc[means.groupby(level=keys, sort=False).idxmax().to_list()]


def interval(table: pd.DataFrame) -> pd.Series:
    """Return the half-width of the 90 % interval of each row's mean over the seeds, by Student's t."""
    return half_width(table.std(axis=1), table.shape[1])


def slope(axis: Sequence[float], risks: np.ndarray, against: np.ndarray | None = None) -> tuple[float, float]:
    """Return the slope of log mean risk by log axis, and the half-width of its 90 % interval.

    risks (settings, seeds); with `against`, (settings,) numbers or the (settings, seeds) risks of the same seeds, of
    the log of their quotient. Least squares through the means; the interval is the jackknife's over the seeds, by
    Student's t, so it holds the runs' chance and not the curve's departure from a power. nan below two settings.
    """
    logs, count = np.log(np.asarray(axis, dtype=np.float64)), risks.shape[1]
    below = np.ones((len(logs), 1)) if against is None else np.asarray(against).reshape(len(logs), -1)
    if len(logs) < 2 or np.any(risks.mean(axis=1) <= 0):
        return math.nan, math.nan
    centred = logs - logs.mean()

    def fit(values: np.ndarray, others: np.ndarray) -> float:
        heights = np.log(values.mean(axis=1)) - np.log(others.mean(axis=1))
        return float(centred @ heights / (centred @ centred))

    exponent = fit(risks, below)
    if count < 3:
        return exponent, math.nan
    fixed = below.shape[1] == 1
    left = np.array(
        [
            fit(np.delete(risks, seed, axis=1), below if fixed else np.delete(below, seed, axis=1))
            for seed in range(count)
        ]
    )
    error = math.sqrt((count - 1) / count * float(np.sum((left - left.mean()) ** 2)))
    return exponent, float(t_quantile(count)) * error


def ratio(left: pd.Series, right: pd.Series) -> tuple[float, float]:
    """Return mean(left)/mean(right) over the seeds that both have, and the half-width of its 90 % interval.

    The interval is the jackknife's: `slope` of two settings, whose log ratio it is, carried to the ratio.
    """
    both = pd.concat([right, left], axis=1).dropna().to_numpy().T
    log_ratio, half = slope([1.0, math.e], both)
    return math.exp(log_ratio), math.exp(log_ratio) * half


def seeds_text(points: pd.DataFrame) -> str:
    """Return what the bars are and how many seeds are behind each point."""
    number = count_range(points["seeds"])
    return f"Synthetic data. Means over {number} seeds; bars: 90 % interval of the mean (Student's t)."


# The theory studies' noise twice: by the paper's formulas, and by the exact accounting that the tight runs use.

_SETTING = ["study", "algorithm", "epsilon", "delta", "records", "rounds"]


def noise_data(results: Results) -> pd.DataFrame:
    """Return one row per private setting of an untrusting study: both noise multipliers, and what either spends."""
    runs = study(results)
    chosen = (runs["trust"] == "nobody") & (runs["noise"] == "tight") & (runs["epsilon"] < math.inf)
    made_of = [origins(group) for _, group in runs[chosen].groupby(_SETTING, sort=False)]
    rows = runs[chosen].drop_duplicates(_SETTING)[[*_SETTING, "noise_multiplier", "privacy_epsilon_proven"]]
    rows = rows.rename(columns={"noise_multiplier": "tight", "privacy_epsilon_proven": "tight_spends"})
    formula = np.array([_formula(row) for row in rows.itertuples()])
    uses = np.where(rows["algorithm"] == "one_pass", 1, rows["rounds"])
    spent = gaussian_dp.epsilon(rows["delta"].to_numpy(), 2.0 * np.sqrt(uses) / formula)
    return rows.assign(theorem=formula, theorem_spends=spent, **{ORIGINS: made_of}).reset_index(drop=True)


def noise_page(rows: pd.DataFrame) -> TableLayout:
    """Lay the ranges of each study, algorithm and budget out."""
    body = []
    for (name, algorithm, epsilon), group in rows.groupby(["study", "algorithm", "epsilon"], sort=False):
        spends = group["theorem_spends"]
        body.append(
            {
                "study": in_words(name),
                "algorithm": in_words(algorithm),
                "ε asked": f"{epsilon:g}",
                "settings": str(len(group)),
                "noise, tight": _range(group["tight"]),
                "noise, theorem": _range(group["theorem"]),
                "ε spent, tight": _range(group["tight_spends"]),
                "ε spent, theorem": _range(spends),
                "times looser": _range(epsilon / spends),
            }
        )
    notes = [
        "Noise multiplier: standard deviation over the norm bound of one record's share of a message, sigma K / L."
    ]
    deltas = " or ".join(f"{delta:g}" for delta in sorted(set(rows["delta"]), reverse=True))
    notes += [f"ε at δ = {deltas}; one record is replaced, and the attacker sees every message of a client."]
    notes += ["Full batches, or each record once: both accountings are exact for records whose gradients reach L."]
    return TableLayout(pd.DataFrame(body), notes)


def _formula(row: Any) -> float:
    """Return the paper's sigma K / L: Theorem 2.2's for one pass, else Theorem 2.1's and 2.3's."""
    budget = {"epsilon": row.epsilon, "delta": row.delta, "lipschitz": 1.0}
    if row.algorithm == "one_pass":
        return math.sqrt(local_privacy.one_pass_variance(**budget))
    variance = local_privacy.advanced_composition_variance(**budget, rounds=row.rounds, records=row.records)
    return row.records * math.sqrt(variance)


def _range(values: pd.Series) -> str:
    """Return one number, or two that span the values."""
    low, high = f"{values.min():.3g}", f"{values.max():.3g}"
    return low if low == high else f"{low} to {high}"


CONVEX, STRONGLY = "convex, worst of the family", "strongly convex"
AXES = {"clients": "clients M = N", "records": "records n a client", "epsilon": "ε", "features": "features d"}
NOISES = {"theorem": "the theorem's noise", "tight": "least noise"}
DELTA_SHARE = 0.01
"""Most that delta (n N)^2 may be where the o(1/(n N)^2) of Theorem 3.1 is taken to be met."""


NO_PRIVACY = 1e12
"""Epsilon at which the private term of a rate is nothing beside the other."""


@dataclass(frozen=True)
class Study:
    """A study and its equation: the rate, and which of the logarithms that a tilde hides are counted in its terms."""

    equation: int
    problem: str
    rate: str
    arguments: tuple[str, ...]
    noise_power: float = 0.0
    """Power of ln(2.5 R/delta), the logarithm of Theorem 2.1's noise, in the private term under that noise."""
    has_step: bool = False
    """True where the risk has the logarithm of the step size for mu > 0."""


_LOCAL = ("lipschitz", "clients_per_round", "records", "features", "epsilon", "delta")
_LOWER = ("lipschitz", "radius", "clients", "records", "features", "epsilon")
_ONE_PASS = (*_LOCAL, "radius", "smoothness")
STUDIES = {
    "rates_convex": Study(4, CONVEX, "iid_convex_rate", (*_LOCAL, "radius"), noise_power=0.5),
    "rates_strongly_convex": Study(
        5, STRONGLY, "iid_strongly_convex_rate", (*_LOCAL, "strong_convexity"), noise_power=1.0, has_step=True
    ),
    "rates_one_pass_convex": Study(6, CONVEX, "one_pass_convex_rate", _ONE_PASS),
    "rates_one_pass_strongly_convex": Study(
        7, STRONGLY, "one_pass_strongly_convex_rate", (*_ONE_PASS, "strong_convexity")
    ),
    "bounds_convex": Study(10, CONVEX, "lower_bound_convex", _LOWER),
    "bounds_strongly_convex": Study(
        11, STRONGLY, "lower_bound_strongly_convex", (*_LOWER, "strong_convexity"), has_step=True
    ),
}
FREE = {"free_convex": CONVEX, "free_strongly_convex": STRONGLY}
_FIGURES = {"theory_rates": (4, 5), "theory_one_pass_rates": (6, 7), "theory_lower_bounds": (10, 11)}


def terms(name: str, run: pd.Series) -> tuple[float, float]:
    """Return the statistical and the private term of the rate that a study is about, at the settings of a run.

    The statistical one is what is left without privacy, beta D^2/n^2 or the exponential for one pass. Both with their
    logarithms: that of the step size in both, that of Theorem 2.1's noise in the private one under that noise.
    """
    about, names = STUDIES[name], {"lipschitz": "clip_norm"}
    given = {each: run[names.get(each, each)] for each in about.arguments if each != "clients_per_round"}
    if "clients_per_round" in about.arguments:
        given["clients_per_round"] = 1.0 / run["mean_inverse_participants"]
    rate = getattr(local_privacy, about.rate)
    free = float(rate(**{**given, "epsilon": NO_PRIVACY}))
    private = float(rate(**given)) - free
    if run["noise"] == "theorem":
        private *= math.log(2.5 * run["rounds"] / run["delta"]) ** about.noise_power
    step = run["step_logarithm"] if about.has_step else 1.0
    return free * step, private * step


def lower_bound_applies(run: pd.Series) -> bool:
    """Return whether Theorem 3.1 speaks of a run of full batches, each round spending delta / R of delta."""
    each = run["delta"] / run["rounds"]
    speaks = local_privacy.lower_bound_applies(
        clients=run["clients"],
        records=run["records"],
        epsilon=run["epsilon"],
        round_epsilon=max(float(gaussian_dp.epsilon(each, 2.0 / run["noise_multiplier"])), 1e-12),
        round_delta=each,
    )
    return bool(speaks and run["delta"] * (run["records"] * run["clients"]) ** 2 <= DELTA_SHARE)


def points(results: Results, studies: tuple[str, ...] = tuple(STUDIES)) -> pd.DataFrame:
    """Return one row per point of the studies: study, axis, value, noise, seeds, excess_risk, interval, start_risk.

    excess_risk is the worst of the family, start_risk that of w = 0 on the same problem; statistical and private are
    the `terms` of the rate. risk_power, with risk_interval, statistical_power and private_power are the fitted powers
    of the axis, nan for a term that is nothing. shape is the sum of the terms with the two constants, 0 or above, that
    bring it nearest to the study's risks under this noise. applies: whether Theorem 3.1 speaks of the point (true for
    other studies).
    """
    runs = study(results, tuple(studies))
    rows = []
    for (name, axis, noise), group in runs.groupby(["study", "axis", "noise"], sort=False):
        table = worst(by_seed(group, [axis, FAMILY])).sort_index()
        places, risks = table.index.get_level_values(0).to_numpy(), table.to_numpy()
        own = [group[(group[axis] == value) & (group[FAMILY] == member)].iloc[0] for value, member in table.index]
        each = np.array([terms(name, run) for run in own])
        power, half = slope(places, risks)
        fits = {"risk_power": power, "risk_interval": half}
        for place, term in enumerate(("statistical", "private")):
            there = np.all(each[:, place] > 1e-9 * each.sum(axis=1))
            fits[f"{term}_power"] = slope(places, each[:, [place]])[0] if there else math.nan
        for value, run, mean, bar, (statistical, private) in zip(
            places, own, table.mean(axis=1), interval(table), each, strict=True
        ):
            row = {"study": name, "axis": axis, "value": float(value), "noise": noise, "seeds": risks.shape[1]}
            row |= {"excess_risk": mean, "interval": bar, "start_risk": run["start_risk"]}
            row |= {"statistical": statistical, "private": private, **fits}
            rows.append({**row, "applies": lower_bound_applies(run) if name.startswith("bounds") else True})
    data = pd.DataFrame(rows)
    return data.assign(shape=data.groupby(["study", "noise"], sort=False)["excess_risk"].transform(_shape, data=data))


def _shape(risks: pd.Series, data: pd.DataFrame) -> pd.Series:
    """Return the sum of both terms that is nearest to these risks, in shares of them, with constants of 0 or above."""
    both = data.loc[risks.index, ["statistical", "private"]].to_numpy()
    constants, _ = nnls(both / risks.to_numpy()[:, None], np.ones(len(risks)))
    return pd.Series(both @ constants, index=risks.index)


def free(results: Results) -> pd.DataFrame:
    """Return one row per point of the free studies: study, axis, value, seeds, private, non_private (worst risks),
    ratio with ratio_interval, power (the ratio's, of the axis) with power_interval, the same of the ratio over the
    logarithm in the private step size, epsilon, features, records."""
    runs = study(results, tuple(FREE))
    rows = []
    for (name, axis), group in runs.groupby(["study", "axis"], sort=False):
        private = group["epsilon"] < math.inf
        if private.all() or not private.any():
            raise NotRunError(f"no run of {name} with and without privacy in this configuration")
        tables = [worst(by_seed(group[which], [axis, FAMILY])).sort_index() for which in (private, ~private)]
        ours, theirs = (table.droplevel(FAMILY) for table in tables)
        shared = ours.index.intersection(theirs.index)
        seeds = ours.columns.intersection(theirs.columns)
        ours, theirs = ours.loc[shared, seeds], theirs.loc[shared, seeds]
        logarithm = group[private].groupby(axis)["step_logarithm"].first().loc[shared].to_numpy()[:, None]
        power, half = slope(shared.to_numpy(), ours.to_numpy(), theirs.to_numpy())
        plain_power, plain_half = slope(shared.to_numpy(), ours.to_numpy() / logarithm, theirs.to_numpy())
        for value in shared:
            first = group[private & (group[axis] == value)].iloc[0]
            quotient, bar = ratio(ours.loc[value], theirs.loc[value])
            row = {"study": name, "axis": axis, "value": float(value), "seeds": len(seeds)}
            row |= {"private": ours.loc[value].mean(), "non_private": theirs.loc[value].mean()}
            row |= {"ratio": quotient, "ratio_interval": bar, "power": power, "power_interval": half}
            row |= {"power_over_logarithm": plain_power, "power_over_logarithm_interval": plain_half}
            rows.append(
                {**row, "epsilon": first["epsilon"], "features": first["features"], "records": first["records"]}
            )
    return pd.DataFrame(rows)


def draw(data: pd.DataFrame) -> Figure:
    """Draw one row per study and one column per axis, logarithmic, with the rate's terms, scaled, as a line."""
    studies = [name for name in STUDIES if (data["study"] == name).any()]
    axes_names = [axis for axis in AXES if (data["axis"] == axis).any()]
    figure, axes = style.panels(len(axes_names), len(studies), height=2.8, squeeze=False, sharey="row")
    for row, name in zip(axes, studies, strict=True):
        for panel, axis in zip(row, axes_names, strict=True):
            rows = data[(data["study"] == name) & (data["axis"] == axis)]
            if rows.empty:
                panel.set_axis_off()
                continue
            _panel(panel, rows)
            panel.set_xlabel(AXES[axis])
        row[0].set_ylabel(f"{STUDIES[name].problem}:\nexcess population risk", fontsize=9)
        style.plain_heights(row[0])
    style.legend(figure, axes.flat, ncols=2)
    style.footer(
        figure,
        f"{seeds_text(data)} Titles: fitted power of the risk, ± 90 % interval, and those of the terms. "
        "It differs if its interval meets neither power nor what lies between them.",
    )
    return figure


def _agrees(fits: pd.DataFrame) -> pd.Series:
    """Return for each row of `points` whether its fitted power of the risk, with its interval, meets the range from the
    power of one term of the rate to that of the other."""
    low, high = (fits[["statistical_power", "private_power"]].agg(how, axis=1) for how in ("min", "max"))
    half = fits["risk_interval"].fillna(0.0)
    return (fits["risk_power"] + half >= low) & (fits["risk_power"] - half <= high)


def rates_message(data: pd.DataFrame, names: Mapping[str, str]) -> str:
    """Say in how many panels the fitted power of the risk lies between the powers of the rate's terms."""
    fits = data.drop_duplicates(["study", "axis", "noise"])
    inside = _agrees(fits)
    texts = [
        f"{all_or(int(inside[fits['noise'] == noise].sum()), int((fits['noise'] == noise).sum()))} panels with {name}"
        for noise, name in names.items()
        if (fits["noise"] == noise).any()
    ]
    text = f"Within its interval, the risk's power lies between the powers of the rate's terms in {listed(texts)}"
    bounds = data[data["study"].str.startswith("bounds")]
    if len(bounds):
        text += f"; {all_or(int(bounds['applies'].sum()), len(bounds))} points are within the theorem's conditions"
    return text


def _panel(panel: Axes, data: pd.DataFrame) -> None:
    """Draw one axis of one study."""
    texts, powers, equation = [], [], STUDIES[data["study"].iloc[0]].equation
    for number, (noise, label) in enumerate(NOISES.items()):
        rows = data[data["noise"] == noise].sort_values("value")
        if rows.empty:
            continue
        look = {"color": style.COLOURS[number]}
        panel.errorbar(
            rows["value"], rows["excess_risk"], rows["interval"], marker=style.MARKERS[number], linestyle="none",
            label=f"measured, {label}", **look,
        )  # fmt: skip
        name = f"terms of the rate, fitted, {label}"
        panel.plot(rows["value"], rows["shape"], style.DASHES[number], linewidth=0.9, label=name, **look)
        first = rows.iloc[0]
        differs = "" if _agrees(rows).iloc[0] else " (differs)"
        digits = 3 if differs else 2
        power, half = (f"{first[name]:{sign}.{digits}f}" for name, sign in (("risk_power", "+"), ("risk_interval", "")))
        texts.append(f"{_SHORT[noise]}: {power} ± {half}{differs}")
        known = [
            first[f"{term}_power"] for term in ("statistical", "private") if not math.isnan(first[f"{term}_power"])
        ]
        powers.append(f"eq. ({equation}): {' and '.join(f'{power:+.2f}' for power in known)}")
    if len(set(powers)) == 1:
        texts.append(powers[0])
    else:  # the logarithm of the theorem's noise is a part of its terms
        texts = [line for pair in zip(texts, powers, strict=True) for line in pair]
    panel.set(xscale="log", yscale="log")
    style.ticks_at(panel, data["value"])
    panel.set_title("\n".join(texts), fontsize=style.SMALL)


_SHORT = {"theorem": "theorem's noise", "tight": "least noise"}
"""Names of the noises in the titles of panels."""


def draw_free(data: pd.DataFrame) -> Figure:
    """Draw the ratio of private to non-private risk, one panel per axis."""
    axes_names = list(dict.fromkeys(data["axis"]))
    figure, axes = style.panels(len(axes_names), width=style.WIDTH, height=2.9, squeeze=False, sharey=True)
    for panel, axis in zip(axes[0], axes_names, strict=True):
        texts = []
        for number, (name, label) in enumerate(FREE.items()):
            rows = data[(data["study"] == name) & (data["axis"] == axis)].sort_values("value")
            if rows.empty:
                continue
            look = {"color": style.COLOURS[number], "marker": style.MARKERS[number], "label": label}
            panel.errorbar(rows["value"], rows["ratio"], rows["ratio_interval"], linestyle=style.DASHES[number], **look)
            first = rows.iloc[0]
            texts.append(f"{label.split(',')[0]}: power {first['power']:+z.2f} ± {first['power_interval']:.2f}")
            power, half = first["power_over_logarithm"], first["power_over_logarithm_interval"]
            if abs(power - first["power"]) > 1e-9:
                texts.append(f"without its logarithm: {power:+z.2f} ± {half:.2f}")
        panel.set(xscale="log", yscale="log", xlabel=AXES[axis])
        panel.set_title("\n".join(texts), fontsize=9)
        style.plain_heights(panel)
        style.ticks_at(panel, data.loc[data["axis"] == axis, "value"])
    axes[0][0].set_ylabel("risk with privacy over\nrisk without")
    style.legend(figure, axes[0], ncols=2)
    edge = span(data["features"] / data["epsilon"] ** 2 / data["records"])
    setting = "d/ε² = n" if edge == "1" else f"d/ε² is {edge} times n"
    bars = f"Synthetic data. Ratios of means over {count_range(data['seeds'])} seeds; bars: 90 % interval (jackknife)."
    style.footer(figure, f"{bars} {setting} at every point. Titles: fitted power of the ratio.")
    return figure


def free_message(data: pd.DataFrame) -> str:
    """Say how many times the risk without privacy the risk with it is, and whether the ratio grows."""
    fits = data.drop_duplicates(["study", "axis"])
    grows = int((fits["power_over_logarithm"] - fits["power_over_logarithm_interval"] > 0).sum())
    return (
        f"At d/ε² = n the risk with privacy is {span(data['ratio'], '{:.0f}')} times the risk without, and up to a "
        f"logarithm the ratio grows beyond chance in {grows} of {len(fits)} lines"
        if (data["ratio"] > data["ratio_interval"].fillna(0.0) + 1).all()
        else f"At d/ε² = n the risk with privacy is {span(data['ratio'], '{:.2g}')} times the risk without"
    )


def slopes(results: Results) -> pd.DataFrame:
    """Return one row per fitted power of all studies."""
    data, keys = points(results), ["study", "axis", "noise"]
    columns = [*keys, "seeds", "risk_power", "risk_interval", "statistical_power", "private_power"]
    fits = data.drop_duplicates(keys)[columns].reset_index(drop=True)
    over = data["excess_risk"] / (data["statistical"] + data["private"])
    groups = data.assign(worse=data["excess_risk"] > data["start_risk"], over=over).groupby(keys, sort=False)
    counts = groups["worse"].agg(["sum", "size"]).reset_index(drop=True)
    ends = groups["over"].agg(["min", "max"]).reset_index(drop=True)
    runs = study(results, tuple(STUDIES)).groupby(keys)
    made_of = [origins(runs.get_group(key)) for key in fits[keys].itertuples(index=False, name=None)]
    return fits.assign(
        least_ratio=ends["min"],
        largest_ratio=ends["max"],
        worse_than_start=counts["sum"],
        points=counts["size"],
        **{ORIGINS: made_of},
    )


def slopes_page(fits: pd.DataFrame) -> TableLayout:
    """Lay the powers out."""
    powers = {
        f"{name} term": fits[f"{name}_power"].map(lambda power: "" if math.isnan(power) else f"{power:+.2f}")
        for name in ("statistical", "private")
    }
    pairs = zip(fits["risk_power"], fits["risk_interval"], strict=True)
    body = pd.DataFrame(
        {
            "equation": fits["study"].map(lambda name: f"({STUDIES[name].equation})"),
            "problem": fits["study"].map(lambda name: STUDIES[name].problem),
            "axis": fits["axis"].map(AXES),
            "noise": fits["noise"].map(NOISES),
            "power in the risk": [f"{power:+.2f} ± {half:.2f}" for power, half in pairs],
            **powers,
            "risk over rate": [
                f"{low:.3g} to {high:.3g}" for low, high in zip(fits["least_ratio"], fits["largest_ratio"], strict=True)
            ],
            "worse than w = 0": [f"{w} of {p}" for w, p in zip(fits["worse_than_start"], fits["points"], strict=True)],
        }
    )
    seeds = int(fits["seeds"].min())
    notes = [f"±: 90 % interval by the jackknife over {seeds} or more seeds. Synthetic data."]
    notes += [
        "Rates with constant 1, and with the logarithms of the theorem's noise (in the private term) and of the step "
        "size, which the paper's notation hides."
    ]
    return TableLayout(body, notes)


def _figure(equations: tuple[int, ...]) -> FigureRecipe:
    """Return the figure of the studies about these equations."""
    names = tuple(name for name, each in STUDIES.items() if each.equation in equations)
    return FigureRecipe(partial(points, studies=names), draw, partial(rates_message, names=NOISES))


FIGURES = {name: _figure(equations) for name, equations in _FIGURES.items()}
FIGURES |= {"theory_free": FigureRecipe(free, draw_free, free_message)}


TABLES = {
    "theory_slopes": TableRecipe(slopes, slopes_page),
    "theory_noise": TableRecipe(noise_data, noise_page),
}
