"""Figures of exact adversaries: samplers, epochs against rounds, groups, and a last epoch with less noise."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from dpfl.accounting import FixedBatches, dpsgd, gaussian_dp, guarantee, tradeoff
from dpfl.papers.vandijk2023.reference_run import epsilon_of, equivalent_mu, run, settings
from dpfl.reporting import style
from dpfl.reporting.display_names import listed, span
from dpfl.reporting.figures import FigureRecipe

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dpfl.reporting.results import Results

# Figures about one run under different adversaries and samplers.

CURVES = {
    "A0": ("A0, knows how batches are drawn: exact", style.BLUE, "-"),
    "clt": ("central limit for A0", style.SKY, "--"),
    "A1": ("A1, also knows which rounds used the record: exact", style.RED, "-"),
    "h": ("h, claimed to hold against A1", style.ORANGE, "--"),
    "h_bar": ("h-bar, the claimed limit", style.PURPLE, "-."),
    "shuffled": ("Gaussian with μ = √E/σ", style.GREEN, (0, (5, 1, 1, 1, 1, 1))),
}
APPROXIMATIONS = {"h": "h", "shuffled": "the Gaussian of √E/σ"}
"""What the chapter has as a guarantee against A1, as a sentence names it; no guarantee exceeds h-bar."""
SAMPLERS = {
    "fixed": ("fixed size, record replaced: proven (operator C_p)", style.BLUE, "-", "o"),
    "fixed_pair": ("fixed size, record replaced: at least", style.SKY, ":", "v"),
    "poisson": ("Poisson, record added or removed", style.RED, "--", "s"),
    "poisson_replace": ("Poisson, record replaced", style.GREEN, "-.", "^"),
}


def tradeoff_data(results: Results) -> pd.DataFrame:
    """Return columns curve, alpha, beta: type II against type I error of the best test."""
    alpha = np.unique(np.concatenate([np.geomspace(1e-6, 1e-2, 61), np.linspace(0.0, 1.0, 101)]))
    sigma = settings("tradeoff_sigma")
    betas = {name: tradeoff.dpsgd(alpha, sigma=sigma, adversary=name, **run()) for name in CURVES if name != "shuffled"}
    betas["shuffled"] = gaussian_dp.tradeoff(alpha, tradeoff.shuffled_mu(run()["epochs"], sigma))
    return pd.concat(pd.DataFrame({"curve": name, "alpha": alpha, "beta": betas[name]}) for name in CURVES)


def draw_tradeoff(data: pd.DataFrame) -> Figure:
    """Draw the exact curves of both adversaries, and near small type I errors what each approximation makes of them."""
    figure, (all_errors, tail) = style.panels(2, height=3.5, width=style.WIDTH)
    power = 1 - data.pivot(index="alpha", columns="curve", values="beta")
    small = power[(power.index > 0) & (power.index <= _SMALL)]
    for name, (label, colour, dash) in CURVES.items():
        rows, look = data[data["curve"] == name], {"color": colour, "linestyle": dash, "label": label}
        if name in ("A0", "A1"):
            all_errors.plot(rows["alpha"], rows["beta"], **look)
        else:
            exact = "A0" if name == "clt" else "A1"
            tail.plot(small.index, small[name] / small[exact], **look)
    guess = np.array([0.0, 1.0])
    all_errors.plot(guess, 1 - guess, color=style.BLACK, linestyle=":", linewidth=1, label="guessing")
    tail.axhline(1, color=style.BLACK, linestyle="-", linewidth=0.8)
    all_errors.set(xlabel="type I error α", ylabel="type II error β", xlim=(0, 1), ylim=(0, 1))
    all_errors.set_title("exact curves: lower is worse for privacy", fontsize=9)
    tail.set(xlabel="type I error α", ylabel="power claimed / exact power", xscale="log", xlim=(1e-6, _SMALL))
    tail.set_ylim(0, None)
    tail.set_title("approximations: a guarantee below 1 is false", fontsize=9)
    handles = {}
    for axis in (all_errors, tail):
        handles |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles, loc="outside upper center", ncols=2)
    values = run()
    style.footer(
        figure,
        f"One run: {values['n']} records, batches of {values['m']}, E = {values['epochs']} epochs, "
        f"σ = {settings('tradeoff_sigma')} sensitivities. The power of a test is 1 - β.",
    )
    return figure


_SMALL = 0.1
"""Largest type I error of the panel of small errors."""
SHOWN_ALPHA = 1e-3
"""Type I error at which the powers of two adversaries are compared."""


def tradeoff_message(data: pd.DataFrame, names: Mapping[str, str]) -> str:
    """Say how often either adversary finds a record, and by how much the approximations understate adversary A1."""
    power = 1 - data.pivot(index="alpha", columns="curve", values="beta")
    at = power.loc[float(power.index[np.argmin(np.abs(power.index - SHOWN_ALPHA))])]
    small = power[(power.index > 0) & (power.index <= _SMALL)]
    lacks_pct = {name: round(100 * (1 - float((small[curve] / small["A1"]).min()))) for curve, name in names.items()}
    under = [f"{name} grants up to {lack} % less" for name, lack in lacks_pct.items() if lack > 0]
    text = (
        f"Who knows which rounds used a record (A1) finds it with power {at['A1']:.2g}, not {at['A0']:.2g} (A0), at a "
        f"type I error of {SHOWN_ALPHA:g}"
    )
    return f"{text}; at small errors {listed(under)}" if under else text


def sampler_data(results: Results) -> pd.DataFrame:
    """Return columns sampler, noise_multiplier, epsilon, noise_over_poisson.

    Of fixed batches, `fixed` is the epsilon that C_p proves and `fixed_pair` the one that a pair of data sets exceeds.
    noise_over_poisson is the noise over that of Poisson batches (add or remove) with the same epsilon; it is
    interpolated on logarithms, and missing rows mean that the Poisson curve does not reach that epsilon.
    """
    noises, delta = np.array(settings("fixed_against_poisson")["noise_multipliers"]), settings("delta")
    values = run()
    rate, steps = values["m"] / values["n"], values["n"] // values["m"] * values["epochs"]
    fixed = [epsilon_of(tradeoff.dpsgd_guarantee(sigma=z / 2, adversary="A0", **values)) for z in noises]
    replaced_run = {"steps": steps, "delta": delta, "neighbouring": "replace_one"}
    batches = FixedBatches(values["m"], values["n"])
    pair = [guarantee(batches, noise_multiplier=z, **replaced_run).lower for z in noises]
    # Poisson batches reach the fixed ones' epsilons at about half the noise.
    finer = np.unique(np.concatenate([noises, noises / 2, noises / 2.4]))
    poisson = dpsgd.epsilon(noise_multiplier=finer, sample_rate=rate, steps=steps, delta=delta)
    replaced = dpsgd.epsilon(noise_multiplier=noises, sample_rate=rate, **replaced_run)
    epsilons = {
        "fixed": np.array(fixed),
        "fixed_pair": np.array(pair),
        "poisson": poisson[np.isin(finer, noises)],
        "poisson_replace": replaced,
    }
    parts = []
    for sampler, epsilon in epsilons.items():
        matching = np.exp(np.interp(np.log(epsilon), np.log(poisson[::-1]), np.log(finer[::-1])))
        columns = {"noise_multiplier": noises, "epsilon": epsilon, "noise_over_poisson": noises / matching}
        parts.append(pd.DataFrame({"sampler": sampler} | columns))
    return pd.concat(parts)


def draw_samplers(data: pd.DataFrame) -> Figure:
    """Draw epsilon against noise, and the noise needed over that of Poisson batches."""
    figure, (spent, needed) = style.panels(2, height=3.3, width=style.WIDTH)
    for sampler, (label, colour, dash, marker) in SAMPLERS.items():
        rows = data[data["sampler"] == sampler]
        look = {"color": colour, "linestyle": dash, "marker": marker, "label": label}
        spent.plot(rows["noise_multiplier"], rows["epsilon"], **look)
        needed.plot(rows["epsilon"], rows["noise_over_poisson"], **look)
    spent.set(xlabel="noise standard deviation / C", ylabel=f"epsilon at delta = {settings('delta'):g}")
    spent.set(xscale="log", yscale="log", title="epsilon spent")
    style.ticks_at(spent, (1.6, 2.4, 3.2, 4.8, 6.4))
    style.plain_heights(spent)
    needed.axhline(2, color=style.BLACK, linestyle=":", linewidth=1)
    needed.annotate(
        "the claim: 2", (0.99, 1.98), xycoords=("axes fraction", "data"), ha="right", va="top", fontsize=style.SMALL
    )
    needed.set(xlabel="epsilon", xscale="log", ylabel="noise / noise of Poisson batches", ylim=(0.8, 2.6))
    needed.set_title("noise needed for the same epsilon")
    style.ticks_at(needed, (0.5, 1, 2, 5, 10))
    figure.legend(*spent.get_legend_handles_labels(), loc="outside upper center", ncols=2)
    values = run()
    text = f"{values['n']} records, batches of {values['m']} on average, {values['epochs']} epochs. C: the clip norm."
    style.footer(figure, text)
    return figure


def samplers_message(data: pd.DataFrame) -> str:
    """Say how much more noise fixed batches need than Poisson ones."""
    least, enough = (data.loc[data["sampler"] == name, "noise_over_poisson"] for name in ("fixed_pair", "fixed"))
    return (
        f"For the same ε, batches of fixed size (a record replaced) need at least {span(least, '{:.2f}')} times the "
        f"noise of Poisson batches (a record added or removed), and {span(enough, '{:.2f}')} times is enough"
    )


# Figures about adversary A1: epochs against rounds, groups, and a last epoch with less noise.

COLOURS = (style.BLUE, style.RED, style.GREEN, style.ORANGE, style.PURPLE)
DASHES = ("-", "--", "-.")
DRAWN = ("A1", "h", "h_bar", "shuffled", "A0")
"""Guarantees in the figure on epochs and rounds, those that depend on the batch last."""


def guarantee_of(name: str, *, m: int, epochs: int, sigma: float) -> tradeoff.Guarantee:
    """Return one of DRAWN for the run with other batches, epochs or noise."""
    if name == "shuffled":
        return tradeoff.Gaussian(float(tradeoff.shuffled_mu(epochs, sigma)))
    return tradeoff.dpsgd_guarantee(n=run()["n"], m=m, epochs=epochs, sigma=sigma, adversary=name)


def epochs_data(results: Results) -> pd.DataFrame:
    """Return columns panel, curve, batch, epochs, epsilon, mu_over_simple (mu over sqrt(E)/sigma at equal epsilon)."""
    chosen, rows = settings("epochs_not_rounds"), []
    sigma = chosen["sigma"]

    def add(panel: str, name: str, m: int, epochs: int) -> None:
        result = guarantee_of(name, m=m, epochs=epochs, sigma=sigma)
        ratio = equivalent_mu(result) / float(tradeoff.shuffled_mu(epochs, sigma))
        columns = {"panel": panel, "curve": name, "batch": m, "epochs": epochs}
        rows.append(columns | {"epsilon": epsilon_of(result), "mu_over_simple": ratio})

    for name in DRAWN:
        for m in chosen["sampled" if name == "A0" else "batches"]:
            add("batches", name, m, run()["epochs"])
    for name in DRAWN[:-1]:
        for epochs in chosen["epochs"]:
            add("epochs", name, run()["m"], epochs)
    return pd.DataFrame(rows)


def draw_epochs(data: pd.DataFrame) -> Figure:
    """Draw epsilon against the batch size, and the error of the approximations against the epochs."""
    figure, (batches, epochs) = style.panels(2, height=3.3, width=style.WIDTH)
    for name in DRAWN:
        label, colour, dash = CURVES[name]
        marker = {"A1": "o", "A0": "s"}.get(name, "")
        look = {"color": colour, "linestyle": dash, "marker": marker, "label": label}
        left = data[(data["panel"] == "batches") & (data["curve"] == name)]
        right = data[(data["panel"] == "epochs") & (data["curve"] == name)]
        batches.plot(left["batch"], left["epsilon"], **look)
        epochs.plot(right["epochs"], right["mu_over_simple"], **look)
    batches.set(xlabel=f"batch size among {run()['n']} records", xscale="log", title=f"{run()['epochs']} epochs")
    batches.set(ylabel=f"epsilon at delta = {settings('delta'):g}", ylim=(0, None))
    epochs.set(xlabel="epochs E", xscale="log", ylabel="μ at the same ε, over √E/σ", title=f"batches of {run()['m']}")
    style.ticks_at(batches, (1, 10, 100, 1000, run()["n"]))
    style.ticks_at(epochs, data.loc[data["panel"] == "epochs", "epochs"])
    figure.legend(*batches.get_legend_handles_labels(), loc="outside upper center", ncols=2)
    sigma = settings("epochs_not_rounds")["sigma"]
    style.footer(figure, f"σ = {sigma} sensitivities. μ: parameter of the Gaussian trade-off curve with the same ε.")
    return figure


def epochs_message(data: pd.DataFrame) -> str:
    """Say between which numbers epsilon lies over the batch sizes computed for both adversaries, for either one."""
    rows = data[data["panel"] == "batches"]
    both = set.intersection(*(set(rows.loc[rows["curve"] == curve, "batch"]) for curve in ("A1", "A0")))
    rows = rows[rows["batch"].isin(both)]
    ends = {curve: span(rows.loc[rows["curve"] == curve, "epsilon"], "{:.2f}") for curve in ("A1", "A0")}
    sizes = span(sorted(both), "{:g}")
    return (
        f"For an adversary who knows the rounds (A1) ε is {ends['A1']} over batches of {sizes}; for one who does not "
        f"(A0) it is {ends['A0']}"
    )


def group_data(results: Results) -> pd.DataFrame:
    """Return columns panel, batch, group, mu_ratio (mu over that of one record), alpha, beta; unused ones are 0."""
    chosen, values = settings("group_privacy"), run()
    rows = []
    for m in chosen["batches"]:
        mus = [equivalent_mu(_group(m, g)) for g in chosen["groups"]]
        rows += [
            {"panel": "growth", "batch": m, "group": g, "mu_ratio": mu / mus[0], "alpha": 0.0, "beta": 0.0}
            for g, mu in zip(chosen["groups"], mus, strict=True)
        ]
    alpha = np.linspace(0.0, 1.0, 101)
    for g in chosen["groups"]:
        simple = gaussian_dp.tradeoff(alpha, tradeoff.shuffled_mu(values["epochs"], chosen["sigma"], g))
        for panel, beta in (("exact", _group(values["m"], g).tradeoff(alpha)), ("simple", simple)):
            columns = {"panel": panel, "batch": values["m"], "group": g, "mu_ratio": 0.0}
            rows += [columns | {"alpha": a, "beta": b} for a, b in zip(alpha, beta, strict=True)]
    return pd.DataFrame(rows)


def _group(m: int, g: int) -> tradeoff.Guarantee:
    """Return what A1 learns of a group of g records with batches of m."""
    values, sigma = run(), settings("group_privacy")["sigma"]
    return tradeoff.dpsgd_guarantee(
        n=values["n"], m=m, epochs=values["epochs"], sigma=sigma, adversary="A1", group_size=g
    )


def draw_groups(data: pd.DataFrame) -> Figure:
    """Draw the growth of mu with the group, and the trade-off curves."""
    figure, (growth, curves) = style.panels(2, height=3.4, width=style.WIDTH)
    groups = np.array(sorted(data["group"].unique()))
    rows = data[data["panel"] == "growth"]
    for (m, part), colour, dash, marker in zip(
        rows.groupby("batch"), COLOURS, DASHES, style.MARKERS[: len(DASHES)], strict=False
    ):
        growth.plot(
            part["group"], part["mu_ratio"], color=colour, linestyle=dash, marker=marker, label=f"batches of {m}"
        )
    growth.plot(groups, np.sqrt(groups), color=style.BLACK, linestyle=":", linewidth=1, label="√g, the claim")
    growth.plot(groups, groups, color=style.BLACK, linestyle=(0, (1, 4)), linewidth=1, label="g, the general rule")
    growth.set(xlabel="group size g", ylabel="μ / μ of one record", xscale="log", yscale="log")
    growth.set_xticks(groups, [str(g) for g in groups])
    growth.set_yticks((1, 2, 4, 8, 16), ["1", "2", "4", "8", "16"])
    growth.minorticks_off()
    growth.legend(loc="upper left", frameon=False, fontsize=style.SMALL)
    for g, colour in zip(groups, COLOURS, strict=True):
        for panel, dash in (("exact", "-"), ("simple", ":")):
            part = data[(data["panel"] == panel) & (data["group"] == g)]
            curves.plot(part["alpha"], part["beta"], color=colour, linestyle=dash)
        _name_curve(curves, data[(data["panel"] == "exact") & (data["group"] == g)], f"g = {g}", colour)
    curves.set(xlabel="type I error alpha", ylabel="type II error beta", xlim=(0, 1), ylim=(0, 1))
    values, sigma = run(), settings("group_privacy")["sigma"]
    style.footer(
        figure,
        f"Adversary A1; {values['n']} records, E = {values['epochs']} epochs, σ = {sigma} sensitivities of one record. "
        f"Right: batches of {values['m']}, exact (solid) and the Gaussian with √(gE)/σ (dotted). "
        "μ: parameter of the Gaussian curve with the same ε.",
    )
    return figure


def groups_message(data: pd.DataFrame) -> str:
    """Say how far from sqrt(g) the growth with the group is, by batch size."""
    rows = data[data["panel"] == "growth"]
    last = rows[rows["group"] == rows["group"].max()]
    ratios = [(row.mu_ratio / row.group**0.5, row.batch) for row in last.itertuples()]
    texts = [f"{ratio:.1f} times the claim for batches of {batch}" for ratio, batch in ratios]
    largest = last["group"].iloc[0]
    return (
        f"For groups of {largest} the claimed μ is √{largest} times that of one record; the exact μ is {listed(texts)}"
    )


def _name_curve(axis: Axes, curve: pd.DataFrame, name: str, colour: str) -> None:
    """Write the name of a trade-off curve onto it, where beta is 1.5 times alpha: at their ends all curves meet."""
    place = curve.loc[(1.5 * curve["alpha"] - curve["beta"]).abs().idxmin(), ["alpha", "beta"]]
    box = {"facecolor": style.WHITE, "edgecolor": "none", "pad": 0.5}
    axis.annotate(name, tuple(place), ha="center", va="center", color=colour, fontsize=style.SMALL, bbox=box)


def last_epoch_data(results: Results) -> pd.DataFrame:
    """Return columns panel, epochs, kept (share of sigma in the last epoch), mu_ratio, epsilon, equal_sigma.

    `equal_sigma` is the sigma that, used in all epochs, gives the same mu.
    """
    chosen = settings("last_epoch_noise")
    sigma, delta = chosen["sigma"], settings("delta")
    rows = []

    def add(panel: str, epochs: int, share: float) -> None:
        plain = float(tradeoff.shuffled_mu(epochs, sigma))
        mu = float(tradeoff.last_epoch_mu(epochs, sigma, last_sigma=share * sigma))
        columns = {"panel": panel, "epochs": epochs, "kept": share, "mu_ratio": mu / plain}
        rows.append(columns | {"epsilon": float(gaussian_dp.epsilon(delta, mu)), "equal_sigma": sigma * plain / mu})

    for epochs in chosen["drawn"]:
        for share in np.geomspace(0.05, 1.0, 40):
            add("share kept", epochs, float(share))
    for epochs in chosen["epochs"]:
        add("unchanged", epochs, 1.0)
        add("chapter", epochs, 1 / np.sqrt(epochs + 1))
    return pd.DataFrame(rows)


def draw_last_epoch(data: pd.DataFrame) -> Figure:
    """Draw what a smaller last sigma costs in mu, and in epsilon."""
    figure, (cost, spent) = style.panels(2, height=3.2, width=style.WIDTH)
    chapter, unchanged = data[data["panel"] == "chapter"], data[data["panel"] == "unchanged"]
    rows = data[data["panel"] == "share kept"]
    for (epochs, part), colour, dash in zip(rows.groupby("epochs"), COLOURS, DASHES, strict=False):
        cost.plot(part["kept"], part["mu_ratio"], color=colour, linestyle=dash, label=f"E = {epochs}")
        mark = chapter[chapter["epochs"] == epochs]
        cost.plot(mark["kept"], mark["mu_ratio"], "X", color=colour, markersize=7)
    cost.axhline(np.sqrt(2), color=style.BLACK, linestyle=":", linewidth=1, label="√2, the claim")
    cost.set(xlabel="σ of the last epoch / σ of the others", ylabel="μ / μ with one σ", xscale="log", ylim=(0.9, 4))
    cost.set_xticks((0.05, 0.1, 0.2, 0.5, 1), ["0.05", "0.1", "0.2", "0.5", "1"])
    cost.minorticks_off()
    cost.legend(frameon=False)
    for part, colour, dash, marker, label in (
        (chapter, style.RED, "--", "s", "σ/√(E+1) in the last epoch"),
        (unchanged, style.BLUE, "-", "o", "σ in every epoch"),
    ):
        spent.plot(part["epochs"], part["epsilon"], color=colour, linestyle=dash, marker=marker, label=label)
    spent.set(xlabel="epochs E", ylabel=f"epsilon at delta = {settings('delta'):g}", xscale="log", ylim=(0, None))
    style.ticks_at(spent, chapter["epochs"])
    spent.legend(loc="upper left", frameon=False)
    sigma = settings("last_epoch_noise")["sigma"]
    same = chapter["equal_sigma"].iloc[0]
    style.footer(
        figure,
        f"σ = {sigma} sensitivities. Crosses: the chapter's 1/√(E+1), which spends as much as σ = {same:.2f} in all.",
    )
    return figure


def last_epoch_message(data: pd.DataFrame) -> str:
    """Say what the chapter's smaller noise in the last epoch costs."""
    chapter, unchanged = (data[data["panel"] == name].set_index("epochs") for name in ("chapter", "unchanged"))
    factors = span(chapter["mu_ratio"], "{:.2f}")
    epsilons = span(chapter["epsilon"] / unchanged["epsilon"], "{:.2f}")
    return f"A last epoch with σ/√(E+1) multiplies μ by {factors} for every E, and ε by {epsilons}"


FIGURES = {
    "tradeoff": FigureRecipe(
        tradeoff_data,
        draw_tradeoff,
        partial(tradeoff_message, names=APPROXIMATIONS),
    ),
    "epochs_not_rounds": FigureRecipe(epochs_data, draw_epochs, epochs_message),
    "group_privacy": FigureRecipe(group_data, draw_groups, groups_message),
    "fixed_against_poisson": FigureRecipe(sampler_data, draw_samplers, samplers_message),
    "last_epoch_noise": FigureRecipe(last_epoch_data, draw_last_epoch, last_epoch_message),
}
