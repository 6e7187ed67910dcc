"""Evidence for the claims of lowy2021, a function a claim: theorems, the two experiments, and noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dpfl.accounting import local_privacy
from dpfl.papers.lowy2021.comparisons import TASK, noise_name
from dpfl.papers.lowy2021.theory import NOT_SMOOTH
from dpfl.papers.lowy2021.theory_rates import FREE, NO_PRIVACY, NOISES, STUDIES, slope
from dpfl.reporting.display_names import at_most
from dpfl.reporting.rules import Case, ClaimEvidence, from_interval, interval_cases
from dpfl.reporting.statistics import LEVEL

if TYPE_CHECKING:
    from dpfl.reporting.claims import Check
    from dpfl.reporting.results import Results

# Evidence for the theorems of lowy2021, from the data of the theory studies' figures: synthetic problems alone.

Array = NDArray[np.float64]
POINT = "{problem}, {axis} = {value:g}"
"""Name of a point of the one-pass study."""


def _rate_cases(
    results: Results, figure: str, studies: tuple[str, ...], noise: str, *, lower: bool = False
) -> ClaimEvidence:
    """Return the power of the risk on each axis, a case a study and axis, under one noise.

    Its target is the larger power of the rate's terms, for a `lower` bound the smaller one: what a sum of both with any
    constants allows. Beside it: the same under the other noise, where it was run, and the least and largest quotient of
    risk and rate. An axis with a point of which the theorem does not speak stands beside too.
    """
    points = results.figure("lowy2021", figure)
    points = points[points["study"].isin(studies)]
    speaks = points.groupby(["study", "axis"])["applies"].transform("all")
    both = points[["statistical_power", "private_power"]]
    points = points.assign(
        problem=points["study"].map(lambda name: STUDIES[name].problem),
        noise_name=points["noise"].map(NOISES),
        counts=(points["noise"] == noise) & speaks,
        allowed=both.min(axis=1) if lower else both.max(axis=1),
    )
    fits = points.dropna(subset="risk_power").drop_duplicates(["study", "axis", "noise"])
    text = "{problem}, {axis}, {noise_name}"
    counted, others = (
        interval_cases(
            each, text, each["risk_power"], each["risk_interval"], runs="seeds", target=each["allowed"].to_numpy()
        )
        for each in (fits[fits["counts"]], fits[~fits["counts"]])
    )
    over = points["excess_risk"] / (points["statistical"] + points["private"])
    ends = over.groupby([points["problem"], points["noise_name"]], sort=False).agg(["min", "max"])
    quotients = [
        Case(f"{end} risk over the rate: {problem}, {noise_name}", row[column])
        for (problem, noise_name), row in ends.iterrows()
        for end, column in (("least", "min"), ("largest", "max"))
    ]
    return ClaimEvidence(counted, beside=[*others, *quotients])


def convex_rate(results: Results) -> ClaimEvidence:
    """Hold the risk against (4)."""
    return _rate_cases(results, "theory_rates", ("rates_convex",), "theorem")


def strongly_convex_rate(results: Results) -> ClaimEvidence:
    """Hold the risk against (5)."""
    return _rate_cases(results, "theory_rates", ("rates_strongly_convex",), "theorem")


def one_pass_rate(results: Results) -> ClaimEvidence:
    """Hold the risk against (6)."""
    return _rate_cases(results, "theory_one_pass_rates", ("rates_one_pass_convex",), "theorem")


def convex_lower_bound_measured(results: Results) -> ClaimEvidence:
    """Hold the risk against (10)."""
    return _rate_cases(results, "theory_lower_bounds", ("bounds_convex",), "tight", lower=True)


def strongly_convex_lower_bound_measured(results: Results) -> ClaimEvidence:
    """Hold the risk against (11)."""
    return _rate_cases(results, "theory_lower_bounds", ("bounds_strongly_convex",), "tight", lower=True)


def privacy_for_free(problem: str, axis: str) -> Case:
    """Return the power with which the upper bound over the non-private lower bound grows along an axis.

    Both are the paper's formulas, (4) over (10) or (5) over (11), at d/epsilon^2 = n and M = N.
    """
    ends, features = np.array([16.0, 2.0**20]), 4.0
    sizes = {"records": np.full(2, 64.0), "clients": np.full(2, 64.0)} | {axis: ends}
    ratio = _upper_over_lower(problem, features=features, epsilon=np.sqrt(features / sizes["records"]), **sizes)
    power = float(np.diff(np.log(ratio))[0] / np.diff(np.log(ends))[0])
    return Case(f"{problem}, along {axis}", power, target=0.0)


def _upper_over_lower(problem: str, *, clients: Array, records: Array, features: float, epsilon: Array) -> Array:
    """Return Theorem 2.1's bound for privacy over Theorem 3.1's without it, with L = D = mu = 1 and delta = 1e-6."""
    private = {"clients_per_round": clients, "records": records, "features": features, "epsilon": epsilon}
    open_data = {"clients": clients, "records": records, "features": features, "epsilon": NO_PRIVACY}
    private |= {"lipschitz": 1.0, "delta": 1e-6}
    open_data |= {"lipschitz": 1.0, "radius": 1.0}
    if problem == "convex":
        return local_privacy.iid_convex_rate(radius=1.0, **private) / local_privacy.lower_bound_convex(**open_data)
    upper = local_privacy.iid_strongly_convex_rate(strong_convexity=1.0, **private)
    return upper / local_privacy.lower_bound_strongly_convex(strong_convexity=1.0, **open_data)


def privacy_for_free_measured(results: Results) -> ClaimEvidence:
    """Return the power of private over non-private risk on each axis, without the logarithm of the private step size;
    beside it the power with this logarithm and the ratio itself at every point."""
    points = results.figure("lowy2021", "theory_free")
    points = points.assign(problem=points["study"].map(FREE))
    fits = points.dropna(subset="power").drop_duplicates(["study", "axis"])
    other = fits[(fits["power"] - fits["power_over_logarithm"]).abs() > 1e-9]
    with_logarithm = interval_cases(
        other, "with its logarithm: {problem}, {axis}", other["power"], other["power_interval"], runs="seeds"
    )
    ratios = interval_cases(
        points, "private over non-private risk: {problem}, {axis} = {value:g}", points["ratio"],
        points["ratio_interval"], runs="seeds", target=1.0,
    )  # fmt: skip
    without = fits["power_over_logarithm"], fits["power_over_logarithm_interval"]
    cases = interval_cases(fits, "{problem}, {axis}", *without, runs="seeds")
    return ClaimEvidence(cases, beside=[*with_logarithm, *ratios])


def _accelerated(results: Results) -> pd.DataFrame:
    """Return the private points of Algorithm 2."""
    points = results.figure("lowy2021", "theory_acceleration")
    return points[(points["epsilon"] < math.inf) & points["curve"].str.startswith("accelerated")]


def acceleration(results: Results) -> ClaimEvidence:
    """Compare Algorithm 1 with Algorithm 2 in as many rounds, at the theorem's R a case a loss that is not smooth."""
    return _ahead(results, smooth=False)


def acceleration_smooth(results: Results) -> ClaimEvidence:
    """Compare Algorithm 1 with Algorithm 2 in as many rounds, at the theorem's R a case a smooth problem."""
    return _ahead(results, smooth=True)


def _ahead(results: Results, *, smooth: bool) -> ClaimEvidence:
    """Return what Algorithm 1 has in excess of Algorithm 2's risk in as many rounds, as a share of it, by problem.

    The theorem's R is a case; other rounds stand beside.
    """
    fast = _accelerated(results).dropna(subset="plain_minus_this")
    fast = fast[fast["task"].str.startswith(NOT_SMOOTH) != smooth]
    share, half = (fast[name] / fast["excess_risk"] for name in ("plain_minus_this", "difference_interval"))
    cases = interval_cases(fast, "{task}, {rounds:g} rounds", share, half, runs="seeds")
    pairs = list(zip(cases, fast["theorem"], strict=True))
    return ClaimEvidence([each for each, at in pairs if at], beside=[each for each, at in pairs if not at])


def acceleration_more_rounds(results: Results) -> ClaimEvidence:
    """Compare Algorithm 2 in the theorem's R rounds with Algorithm 1 in the most that were run, a case a loss that is
    not smooth; smooth problems stand beside."""
    fast = _accelerated(results)
    fast = fast[fast["theorem"]].dropna(subset="more_minus_this")
    share, half = (fast[name] / fast["excess_risk"] for name in ("more_minus_this", "more_interval"))
    cases = interval_cases(fast, "{task}, {rounds:g} rounds against {more_rounds:g}", share, half, runs="seeds")
    pairs = list(zip(cases, fast["task"].str.startswith(NOT_SMOOTH), strict=True))
    return ClaimEvidence([each for each, rough in pairs if rough], beside=[each for each, rough in pairs if not rough])


def _one_pass_points(results: Results) -> pd.DataFrame:
    """Return the points of the one-pass algorithm with the least noise on clients that differ."""
    points = results.figure("lowy2021", "theory_one_pass")
    return points[(points["noise"] == "tight") & (points["federation"] == "different")]


def _one_pass_settings(results: Results) -> pd.DataFrame:
    """Return the points of `_one_pass_points`, those once that two axes share: the same runs are one case."""
    return _one_pass_points(results).drop_duplicates(["problem", "excess_risk", "interval", "ratio"])


def one_pass(results: Results) -> ClaimEvidence:
    """Return how many times the risk of alike clients different ones have, under the same noise."""
    rows = _one_pass_settings(results)
    return ClaimEvidence(interval_cases(rows, POINT, rows["ratio"], rows["ratio_interval"], runs="seeds", target=1.0))


def one_pass_falls(results: Results) -> ClaimEvidence:
    """Return the powers with which risk falls, a case per problem and axis, and the powers of the private term."""
    fits = _one_pass_points(results).drop_duplicates(["problem", "axis"])
    return ClaimEvidence(
        interval_cases(fits, "{problem}, {axis}", -fits["slope"], fits["slope_interval"], runs="seeds"),
        beside=[
            Case(f"power of the theorem's private term: {fit.problem}, {fit.axis}", -fit.exponent)
            for fit in fits.itertuples(index=False)
        ],
    )


def one_pass_learns(results: Results) -> ClaimEvidence:
    """Return by how much the risk is below that of w = 0, as a share of the latter."""
    rows = _one_pass_settings(results)
    risk, half = (rows[name] / rows["start_risk"] for name in ("excess_risk", "interval"))
    return ClaimEvidence(interval_cases(rows, POINT, 1 - risk, half, runs="seeds"))


def _shuffled(results: Results) -> pd.DataFrame:
    """Return the points with a shuffler, with noise_over_central and local_over_noise: ratios of noise multipliers."""
    points = results.figure("lowy2021", "theory_shuffle")
    setting = ["rounds", "clients"]
    noise = points.pivot(index=setting, columns="trust", values="noise_multiplier")
    rows = points[points["trust"] == "shuffler"].set_index(setting)
    return rows.assign(
        noise_over_central=noise["shuffler"] / noise["server"], local_over_noise=noise["nobody"] / noise["shuffler"]
    ).reset_index()


def shuffle_constant(results: Results) -> ClaimEvidence:
    """Compare the constant C at which the theorem's noise is the least noise with C at the fewest clients, where the
    theorem's condition on M holds; beside it C itself, and the clients that the theorem asks for elsewhere."""
    rows = _shuffled(results)
    meets = rows["clients"] >= rows["least_reports"]
    fewest = rows.loc[rows["least_reports"].idxmin()]
    absent = (
        f"The theorem asks for {fewest['least_reports']:.0f} clients a round where there are {fewest['clients']:g}, "
        f"and for more where there are more; no setting that was run has over {rows['clients'].max():g}."
    )
    least = [Case(f"clients that the theorem asks for, M = {r.clients:g}, R = {r.rounds:g}", r.least_reports)
             for r in rows[~meets].itertuples(index=False)]  # fmt: skip
    enough = rows[meets].sort_values("clients")
    implied = [
        Case(f"C that the noise implies, M = {row.clients:g}, R = {row.rounds:g}", row.implied_constant)
        for row in enough.itertuples(index=False)
    ]
    growth = [
        Case(f"M = {row.clients:g}, R = {row.rounds:g}", row.implied_constant / implied[0].estimate, target=1.0)
        for row in enough.iloc[1:].itertuples(index=False)
    ]
    return ClaimEvidence(growth, beside=[*implied, *least], absent=absent)


def shuffle_near_central(results: Results) -> ClaimEvidence:
    """Compare the least noise with a shuffler with the central one's where the theorem's condition on M holds."""
    rows = _shuffled(results)
    return ClaimEvidence(_shuffle_cases(rows[rows["clients"] >= rows["least_reports"]]))


def _shuffle_cases(rows: pd.DataFrame) -> list[Case]:
    """Return how many times the central model's noise a client adds with a shuffler, a case a setting."""
    return [
        Case(f"M = {row.clients:g}, R = {row.rounds:g}", row.noise_over_central, target=1.0)
        for row in rows.itertuples(index=False)
    ]


def shuffle_by_accountant(results: Results) -> ClaimEvidence:
    """Compare the least noise with a shuffler with the central model's where the theorem's condition on M fails.

    Beside it: by how much shuffling divides a client's noise, and the power of M with which the noise falls.
    """
    rows = _shuffled(results)
    rows = rows[rows["clients"] < rows["least_reports"]]
    divides = [
        Case(
            f"a client's local noise over its shuffled one, M = {row.clients:g}, R = {row.rounds:g}",
            row.local_over_noise,
        )
        for row in rows.itertuples(index=False)
    ]
    powers = [
        Case(
            f"power of M of the shuffled noise, R = {rounds:g}",
            slope(line["clients"], line[["noise_multiplier"]].to_numpy())[0],
            target=-0.5,
        )
        for rounds, line in rows.groupby("rounds")
        if len(line) > 1
    ]
    return ClaimEvidence(_shuffle_cases(rows), beside=[*divides, *powers])


def shuffle_beats_local(results: Results) -> ClaimEvidence:
    """Return what the local model's risk has in excess of the shuffled one's, as a share of it."""
    rows = _shuffled(results)
    share, half = (rows[name] / rows["excess_risk"] for name in ("nobody_minus_this", "difference_interval"))
    return ClaimEvidence(interval_cases(rows, "M = {clients:g}, R = {rounds:g}", share, half, runs="seeds"))


def _availability_ratios(results: Results, twin: str) -> list[Case]:
    """Return the risk of each random law over that of the fixed M_r with the same mean of 1/M_r or of M_r."""
    points = results.figure("lowy2021", "theory_availability")
    laws = points[(points["law"] == "random") & points[f"same_{twin}_ratio"].notna()]
    ratio, half = laws[f"same_{twin}_ratio"], laws[f"same_{twin}_ratio_interval"]
    return interval_cases(laws, "M_r uniform on {participants}", ratio, half, runs="seeds", target=1.0)


def availability(results: Results) -> ClaimEvidence:
    """Compare each random law with the fixed M_r of the same mean of 1/M_r."""
    return ClaimEvidence(_availability_ratios(results, "inverse"))


def availability_not_mean(results: Results) -> ClaimEvidence:
    """Compare each random law with the fixed M_r of the same mean."""
    return ClaimEvidence(_availability_ratios(results, "mean"))


FREE_FROM = 12.5
"""Budget from which minibatch SGD is claimed to beat local SGD without privacy."""
Rows = Callable[[pd.DataFrame], pd.Series]


def _insurance(rows: Rows) -> Check:
    """Return the check of the paired differences on the insurance data in the rows that are selected.

    The number is what local SGD's test loss has in excess of minibatch SGD's, as a share of it.
    """

    def check(results: Results) -> ClaimEvidence:
        data = results.table("lowy2021", "paired_differences")
        data = data[data["epsilon"] < math.inf]
        chosen = rows(data)
        return ClaimEvidence(_insurance_cases(data[chosen]), beside=_insurance_cases(data[~chosen]))

    return check


def _insurance_cases(data: pd.DataFrame) -> list[Case]:
    """Return a case a row: by how much local SGD's loss is larger, as a share of minibatch SGD's.

    The name says what each of them is proven to spend at most, which in the authors' protocol is far from the budget.
    A row of which one algorithm did not run is no case.
    """
    columns = {"minibatch": "minibatch_epsilon_spent", "local": "local_epsilon_spent"}
    data = data.dropna(subset=list(columns.values()))
    noises = [noise_name(*each) for each in zip(data["noise"], data["clipping"], strict=True)]
    share, half = (data[name] / data["minibatch_test_loss"] for name in ("difference", "interval"))
    spent = {name: [at_most(epsilon, 3) for epsilon in data[column]] for name, column in columns.items()}
    name = "N = {clients}, {noise}, ε = {epsilon:g} (spent at most {minibatch} by minibatch SGD, {local} by local SGD)"
    return interval_cases(data.assign(noise=noises, **spent), name, share, half, runs="trials")


def _authors_protocol(data: pd.DataFrame) -> pd.Series:
    """Select the authors' protocol: Theorem 2.1's noise, the mean gradient of a batch clipped."""
    return (data["noise"] == "advanced_composition") & (data["clipping"] == "mean")


def _least_noise(data: pd.DataFrame) -> pd.Series:
    """Select the least noise that an accountant allows, every record clipped: a budget that is kept."""
    return data["noise"] == "tight"


def _mnist(rows: Rows) -> Check:
    """Return the check of the paired differences on MNIST in the rows that are selected, in points of test error."""

    def check(results: Results) -> ClaimEvidence:
        data = results.table("lowy2021", "mnist_differences")
        data = data[data["epsilon"] < math.inf]
        chosen = rows(data)
        others = data[~chosen & ~(_published(data) | _least_noise(data))]
        return ClaimEvidence(_mnist_cases(data[chosen], ""), beside=_mnist_cases(others, ""))

    return check


def _mnist_against_free(rows: Rows) -> Check:
    """Return the check of minibatch SGD at FREE_FROM and above against local SGD without privacy."""

    def check(results: Results) -> ClaimEvidence:
        data = results.table("lowy2021", "mnist_differences")
        large = data[(data["epsilon"] >= FREE_FROM) & (data["epsilon"] < math.inf)]
        return ClaimEvidence(_mnist_cases(large[rows(large)], "free_"))

    return check


def _mnist_cases(data: pd.DataFrame, prefix: str) -> list[Case]:
    """Return a case a row, from the columns <prefix>difference and <prefix>interval."""
    rows = data.assign(noise=data["noise"].map(noise_name))
    name = "M = {participating:g}, R = {rounds:g}, ε = {epsilon:g}, {noise}, {split} split"
    return interval_cases(rows, name, rows[f"{prefix}difference"], rows[f"{prefix}interval"], runs="trials")


def _published(data: pd.DataFrame) -> pd.Series:
    """Select MNIST as the authors' script has it: its noise, its split."""
    return (data["noise"] == "moments") & (data["split"] == "published")


def _prices(results: Results) -> dict[tuple, pd.DataFrame]:
    """Return minibatch SGD's price of privacy by (dataset, stand-in, N, noise, clipping), sorted by budget."""
    data = results.table("lowy2021", "price").query("algorithm == 'minibatch'")
    return {key: task.sort_values("epsilon") for key, task in data.groupby([*TASK, "noise", "clipping"], sort=False)}


def _price_share(row: pd.Series, case: str) -> Case:
    """Return a price as a share of the loss without privacy."""
    free = row["free_test_loss"]
    name = f"{case}, ε = {row['epsilon']:g}"
    facts = {"level": LEVEL, "stand_in": row["dataset"] if row["stand_in_for"] else ""}
    return from_interval(name, row["trials"], row["difference"] / free, row["interval"] / free, **facts)


def price_shrinks(results: Results) -> ClaimEvidence:
    """Compare the price at the smallest budget with that at the largest, in the authors' protocol, which clips means.

    Beside it the same with every record clipped. The two prices are of the same trials, but their covariance is not
    in the table. They share the loss without privacy, so that it is positive, and errors added up as if they were
    independent are cautious.
    """
    counted, beside = [], []
    for (_, _, clients, noise, clipping), task in _prices(results).items():
        first, last = (_price_share(task.iloc[index], "") for index in (0, -1))
        low, high = task["epsilon"].iloc[[0, -1]]
        (counted if clipping == "mean" else beside).append(
            Case(
                f"N = {clients}, {noise_name(noise, clipping)}, ε = {low:g} to {high:g}",
                first.estimate - last.estimate,
                math.hypot(first.error, last.error),
                min(first.n, last.n),
                min(first.freedom, last.freedom),
                stand_in=first.stand_in,
            )
        )
    return ClaimEvidence(counted, beside=beside)


def _price_vanishes(noise: str) -> Check:
    """Return the check of the price at the largest budget with one noise, every record clipped.

    The smaller budgets are shown beside it, and the authors' protocol, which clips means.
    """

    def check(results: Results) -> ClaimEvidence:
        cases, beside = [], []
        for (_, _, clients, name, clipping), task in _prices(results).items():
            if name == noise:
                place = f"N = {clients}{', means clipped' if clipping == 'mean' else ''}"
                *smaller, last = (_price_share(row, place) for _, row in task.iterrows())
                (cases if clipping == "record" else beside).append(last)
                beside += smaller
        return ClaimEvidence(cases, beside=beside)

    return check


def noise_suffices(results: Results) -> ClaimEvidence:
    """Hold the epsilon that Theorem 2.1's noise spends at most the one asked for; beside it the later script's."""
    data = results.table("lowy2021", "noise").query("algorithm == 'minibatch' and clipping == 'record'")

    def spent(noise: str) -> list[Case]:
        return [
            Case(
                f"N = {row.clients}, {noise_name(noise)}, {row.sampling.replace('_', ' ')}, ε = {row.epsilon:g}",
                row.epsilon_proven,
                target=row.epsilon,
            )
            for row in data[data["noise"] == noise].itertuples(index=False)
        ]

    return ClaimEvidence(spent("advanced_composition"), beside=spent("moments"))


insurance_minibatch_beats_local = _insurance(_authors_protocol)
insurance_least_noise = _insurance(_least_noise)
price_vanishes = _price_vanishes("advanced_composition")
price_vanishes_least_noise = _price_vanishes("tight")
mnist_minibatch_beats_local = _mnist(_published)
mnist_least_noise = _mnist(_least_noise)
mnist_beats_nonprivate_local = _mnist_against_free(_published)
mnist_beats_nonprivate_least_noise = _mnist_against_free(_least_noise)
