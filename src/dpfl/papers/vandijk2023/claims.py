"""Verdicts on the chapter's claims, from the data of the figures and of the table of checks."""

from __future__ import annotations

import numpy as np

from dpfl.papers.vandijk2023 import training_claims
from dpfl.papers.vandijk2023.reference_run import KEY
from dpfl.reporting.claims import Check, Verdict, counted
from dpfl.reporting.evidence import checks_of, errors, passed
from dpfl.reporting.results import Results

NEAR = 0.1
"""A statement with "about" counts as met within this relative distance."""


def all_routes_agree(claim: str, routes: str) -> Check:
    """Return the check of a claim whose every case compares two routes to one number."""

    def check(results: Results) -> Verdict:
        rows = checks_of(results, KEY, claim)
        evidence = f"{routes}; the largest difference is {errors(rows).max():.1e}."
        return counted(int(passed(rows).sum()), len(rows), evidence)

    return check


def subsampling(results: Results) -> Verdict:
    """The closed form is the double conjugate, and a pair of inputs attains it outside the chord."""
    rows = checks_of(results, KEY, "subsampling")
    attained = rows["case"].str.startswith("a pair attains")
    return counted(
        int(passed(rows).sum()),
        len(rows),
        f"C_p by the numeric double conjugate and by its loss distribution agree within "
        f"{errors(rows[~attained]).max():.1e}; a pair of inputs attains it in {passed(rows[attained]).sum()} of "
        f"{attained.sum()} cases below the fixed point, so no larger operator is valid for one round.",
    )


def dpsgd_tight(results: Results) -> Verdict:
    """Valid for the run, tight in one round; over many rounds no single pair of data sets reaches it."""
    rows = checks_of(results, KEY, "dpsgd_tight")
    case = rows["case"].str
    valid, run, one = (rows[case.startswith(text)] for text in ("valid", "tight: ", "tight in one round"))
    middle = run.iloc[len(run) // 2]
    return counted(
        int(passed(rows).sum()),
        len(rows),
        f"the composed curve is valid in {passed(valid).sum()} of {len(valid)} cases and tight in one round in "
        f"{passed(one).sum()} of {len(one)}; over the run it is reached in {passed(run).sum()} of {len(run)}: it says "
        f"epsilon = {middle['ours']:.2f} where a pair of data sets reaches {middle['independent']:.2f} "
        f"({middle['case'].rsplit(', ', 1)[-1]}), which is also exactly what Poisson batches spend. For fixed batches "
        "the truth lies between the two.",
    )


def epochs_not_rounds(results: Results) -> Verdict:
    """A1's epsilon hardly depends on the batch; how near sqrt(E)/sigma is depends on the epochs."""
    data = results.figure(KEY, "epochs_not_rounds")
    exact = data[data["curve"] == "A1"]
    batches, epochs = (exact[exact["panel"] == panel] for panel in ("batches", "epochs"))
    smallest = batches.loc[batches["batch"].idxmin(), "epsilon"]
    steady = (batches["epsilon"] / smallest - 1).abs() <= NEAR
    near = (epochs["mu_over_simple"] - 1).abs() <= NEAR
    limits = data[data["panel"] == "epochs"].pivot(index="epochs", columns="curve", values="mu_over_simple")
    within = (limits["h_bar"] <= limits["A1"]) & (limits["A1"] <= limits["h"])
    sampled = data[(data["panel"] == "batches") & (data["curve"] == "A0")]["epsilon"]
    first, last = (epochs.loc[index] for index in (epochs["epochs"].idxmin(), epochs["epochs"].idxmax()))
    return counted(
        int(steady.sum() + near.sum() + within.sum()),
        len(steady) + len(near) + len(within),
        f"A1's epsilon stays within {NEAR:.0%} over batch sizes in {steady.sum()} of {len(steady)} (A0's varies by a "
        f"factor {sampled.max() / sampled.min():.0f}); mu is within {NEAR:.0%} of sqrt(E)/sigma at {near.sum()} of "
        f"{len(near)} numbers of epochs ({first['mu_over_simple']:.2f} times at E = {first['epochs']}, "
        f"{last['mu_over_simple']:.2f} at E = {last['epochs']}) and between h-bar and h at {within.sum()}.",
    )


def group(results: Results) -> Verdict:
    """sqrt(g) as long as two records of the group seldom share a batch."""
    data = results.figure(KEY, "group_privacy")
    growth = data[(data["panel"] == "growth") & (data["group"] > 1)]
    near = (growth["mu_ratio"] / np.sqrt(growth["group"]) - 1).abs() <= NEAR
    exponents = ", ".join(
        f"{np.polyfit(np.log(rows['group']), np.log(rows['mu_ratio']), 1)[0]:.2f} with batches of {batch}"
        for batch, rows in data[data["panel"] == "growth"].groupby("batch")
    )
    below = (growth["mu_ratio"] < growth["group"]).sum()
    return counted(
        int(near.sum()),
        len(near),
        f"mu grows within {NEAR:.0%} of sqrt(g), and by less than g in {below}; the fitted powers of g are "
        f"{exponents}: once two of the group often share a batch, the growth nears g.",
    )


def fixed_batches_cost_two(results: Results) -> Verdict:
    """By their own accountant fixed batches need a little more than twice the noise of Poisson batches."""
    data = results.figure(KEY, "fixed_against_poisson")
    needed = data[data["sampler"] == "fixed"]["noise_over_poisson"]
    replaced = data[data["sampler"] == "poisson_replace"]["noise_over_poisson"]
    about_two = needed.round() == 2
    return counted(
        int(about_two.sum()),
        len(about_two),
        f"for the same epsilon fixed batches, accounted by C_p, need {needed.min():.2f} to {needed.max():.2f} times "
        "the noise of Poisson batches: 2 from the sensitivity, the rest from C_p. Much of it is the relation, not the "
        f"sampler: Poisson batches with a record replaced need {replaced.min():.2f} to {replaced.max():.2f} times. "
        + training_claims.samplers_trained(results),
    )


CLAIMS: dict[str, Check] = {
    "gdp_duality": all_routes_agree("gdp_duality", "curve and (epsilon, delta) turned into each other numerically"),
    "composition": all_routes_agree("composition", "sampled curves and loss distributions composed numerically"),
    "subsampling": subsampling,
    "dpsgd_tight": dpsgd_tight,
    "epochs_not_rounds": epochs_not_rounds,
    "group": group,
    "fixed_batches_cost_two": fixed_batches_cost_two,
    "batch_scaling": training_claims.batch_scaling,
    "last_epoch_noise": training_claims.last_epoch_noise,
    "arsinh_noise": training_claims.arsinh_noise,
    "asynchronous": training_claims.asynchronous,
    "private_normalisation": training_claims.private_normalisation,
}
