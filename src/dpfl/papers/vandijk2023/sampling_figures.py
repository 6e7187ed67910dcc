"""Figures about one run under different adversaries and samplers."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from dpfl.accounting import FixedBatches, dpsgd, gaussian_dp, guarantee, tradeoff
from dpfl.papers.vandijk2023.reference_run import epsilon_of, run, settings
from dpfl.reporting import style
from dpfl.reporting.results import Results

CURVES = {
    "A0": ("A0, exact (C_p composed)", style.BLUE, "-"),
    "clt": ("A0, central limit", style.SKY, "--"),
    "A1": ("A1, exact", style.RED, "-"),
    "h": ("h, claimed to hold against A1", style.ORANGE, "--"),
    "h_bar": ("h-bar, claimed limit", style.PURPLE, "-."),
    "shuffled": ("G of sqrt(E)/sigma", style.GREEN, (0, (5, 1, 1, 1, 1, 1))),
}
SAMPLERS = {
    "fixed": ("fixed size, record replaced: enough (C_p)", style.BLUE, "-", "o"),
    "fixed_pair": ("fixed size, record replaced: needed", style.SKY, ":", "v"),
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
    """Draw the curves on linear axes, and 1 - beta on logarithmic ones near small type I errors."""
    figure, (all_errors, tail) = style.panels(2, height=3.9, width=9.5)
    for name, (label, colour, dash) in CURVES.items():
        rows = data[data["curve"] == name]
        small = rows[(rows["alpha"] > 0) & (rows["alpha"] <= 0.1)]
        all_errors.plot(rows["alpha"], rows["beta"], color=colour, linestyle=dash, label=label)
        tail.plot(small["alpha"], 1 - small["beta"], color=colour, linestyle=dash)
    guess = np.array([0.0, 1.0])
    all_errors.plot(guess, 1 - guess, color=style.BLACK, linestyle=":", linewidth=1, label="guessing")
    tail.plot([1e-6, 0.1], [1e-6, 0.1], color=style.BLACK, linestyle=":", linewidth=1)
    all_errors.set(xlabel="type I error alpha", ylabel="type II error beta", xlim=(0, 1), ylim=(0, 1))
    all_errors.set_title("all errors")
    tail.set(xlabel="type I error alpha", ylabel="power 1 - beta of the best test", xscale="log", yscale="log")
    tail.set(xlim=(1e-6, 0.1), title="small type I errors")
    figure.legend(*all_errors.get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)
    values = run()
    style.footer(
        figure,
        f"{values['n']} records, batches of {values['m']}, {values['epochs']} epochs, "
        f"sigma = {settings('tradeoff_sigma')} sensitivities.",
    )
    return figure


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
    figure, (spent, needed) = style.panels(2, height=3.6, width=9)
    for sampler, (label, colour, dash, marker) in SAMPLERS.items():
        rows = data[data["sampler"] == sampler]
        look = {"color": colour, "linestyle": dash, "marker": marker, "label": label}
        spent.plot(rows["noise_multiplier"], rows["epsilon"], **look)
        needed.plot(rows["epsilon"], rows["noise_over_poisson"], **look)
    spent.set(xlabel="noise standard deviation / C", ylabel=f"epsilon at delta = {settings('delta'):g}")
    spent.set(xscale="log", yscale="log", title="epsilon spent")
    style.ticks_at(spent, (1.6, 2.4, 3.2, 4.8, 6.4))
    needed.axhline(2, color=style.BLACK, linestyle=":", linewidth=1)
    needed.set(xlabel="epsilon", xscale="log", ylabel="noise / noise of Poisson batches", ylim=(0.8, 2.6))
    needed.set_title("noise needed for the same epsilon")
    figure.legend(*spent.get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False)
    values = run()
    style.footer(
        figure,
        f"{values['n']} records, batches of {values['m']} on average, {values['epochs']} epochs. Dotted: the claim.",
    )
    return figure
