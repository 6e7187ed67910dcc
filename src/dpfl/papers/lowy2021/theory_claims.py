"""Evidence for the theorems of lowy2021, from the data of the theory studies' figures: synthetic problems alone."""

from __future__ import annotations

import math

import pandas as pd

from dpfl.papers.lowy2021.theory_acceleration import NOT_SMOOTH
from dpfl.papers.lowy2021.theory_rates import FREE, NOISES, STUDIES
from dpfl.papers.lowy2021.theory_runs import slope
from dpfl.reporting.cases import Case, interval_cases
from dpfl.reporting.results import Results
from dpfl.reporting.rules import ClaimEvidence

POINT = "{problem}, {axis} = {value:g}"
"""Name of a point of the one-pass study."""


def rate_cases(
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
    return rate_cases(results, "theory_rates", ("rates_convex",), "theorem")


def strongly_convex_rate(results: Results) -> ClaimEvidence:
    """Hold the risk against (5)."""
    return rate_cases(results, "theory_rates", ("rates_strongly_convex",), "theorem")


def one_pass_rate(results: Results) -> ClaimEvidence:
    """Hold the risk against (6)."""
    return rate_cases(results, "theory_one_pass_rates", ("rates_one_pass_convex",), "theorem")


def convex_lower_bound(results: Results) -> ClaimEvidence:
    """Hold the risk against (10)."""
    return rate_cases(results, "theory_lower_bounds", ("bounds_convex",), "tight", lower=True)


def strongly_convex_lower_bound(results: Results) -> ClaimEvidence:
    """Hold the risk against (11)."""
    return rate_cases(results, "theory_lower_bounds", ("bounds_strongly_convex",), "tight", lower=True)


def privacy_for_free(results: Results) -> ClaimEvidence:
    """Return the power of private over non-private risk on each axis; beside it the ratio itself at every point."""
    points = results.figure("lowy2021", "theory_free")
    points = points.assign(problem=points["study"].map(FREE))
    fits = points.dropna(subset="power").drop_duplicates(["study", "axis"])
    return ClaimEvidence(
        interval_cases(fits, "{problem}, {axis}", fits["power"], fits["power_interval"], runs="seeds"),
        beside=interval_cases(
            points, "private over non-private risk: {problem}, {axis} = {value:g}", points["ratio"],
            points["ratio_interval"], runs="seeds", target=1.0,
        ),
    )  # fmt: skip


def accelerated(results: Results) -> pd.DataFrame:
    """Return the private points of Algorithm 2."""
    points = results.figure("lowy2021", "theory_acceleration")
    return points[(points["epsilon"] < math.inf) & points["curve"].str.startswith("accelerated")]


def acceleration(results: Results) -> ClaimEvidence:
    """Compare Algorithm 1 with Algorithm 2 in as many rounds, at the theorem's R a case a loss that is not smooth."""
    return ahead(results, smooth=False)


def acceleration_smooth(results: Results) -> ClaimEvidence:
    """Compare Algorithm 1 with Algorithm 2 in as many rounds, at the theorem's R a case a smooth problem."""
    return ahead(results, smooth=True)


def ahead(results: Results, *, smooth: bool) -> ClaimEvidence:
    """Return what Algorithm 1 has in excess of Algorithm 2's risk in as many rounds, as a share of it, by problem.

    The theorem's R is a case; other rounds stand beside.
    """
    fast = accelerated(results).dropna(subset="plain_minus_this")
    fast = fast[fast["task"].str.startswith(NOT_SMOOTH) != smooth]
    share, half = (fast[name] / fast["excess_risk"] for name in ("plain_minus_this", "difference_interval"))
    cases = interval_cases(fast, "{task}, {rounds:g} rounds", share, half, runs="seeds")
    pairs = list(zip(cases, fast["theorem"], strict=True))
    return ClaimEvidence([each for each, at in pairs if at], beside=[each for each, at in pairs if not at])


def acceleration_more_rounds(results: Results) -> ClaimEvidence:
    """Compare Algorithm 2 in the theorem's R rounds with Algorithm 1 in the most that were run, a case a problem."""
    fast = accelerated(results)
    fast = fast[fast["theorem"]].dropna(subset="more_minus_this")
    share, half = (fast[name] / fast["excess_risk"] for name in ("more_minus_this", "more_interval"))
    text = "{task}, {rounds:g} rounds against {more_rounds:g}"
    return ClaimEvidence(interval_cases(fast, text, share, half, runs="seeds"))


def one_pass_points(results: Results) -> pd.DataFrame:
    """Return the points of the one-pass algorithm with the least noise on clients that differ."""
    points = results.figure("lowy2021", "theory_one_pass")
    return points[(points["noise"] == "tight") & (points["federation"] == "different")]


def one_pass_settings(results: Results) -> pd.DataFrame:
    """Return the points of `one_pass_points`, those once that two axes share: the same runs are one case."""
    return one_pass_points(results).drop_duplicates(["problem", "excess_risk", "interval", "ratio"])


def one_pass(results: Results) -> ClaimEvidence:
    """Return how many times the risk of alike clients different ones have, under the same noise."""
    rows = one_pass_settings(results)
    return ClaimEvidence(interval_cases(rows, POINT, rows["ratio"], rows["ratio_interval"], runs="seeds", target=1.0))


def one_pass_falls(results: Results) -> ClaimEvidence:
    """Return the powers with which risk falls, a case a problem and axis; beside them those of the private term."""
    fits = one_pass_points(results).drop_duplicates(["problem", "axis"])
    return ClaimEvidence(
        interval_cases(fits, "{problem}, {axis}", -fits["slope"], fits["slope_interval"], runs="seeds"),
        beside=[
            Case(f"power of the theorem's private term: {fit.problem}, {fit.axis}", -fit.exponent)
            for fit in fits.itertuples(index=False)
        ],
    )


def one_pass_learns(results: Results) -> ClaimEvidence:
    """Return by how much the risk is below that of w = 0, as a share of the latter."""
    rows = one_pass_settings(results)
    risk, half = (rows[name] / rows["start_risk"] for name in ("excess_risk", "interval"))
    return ClaimEvidence(interval_cases(rows, POINT, 1 - risk, half, runs="seeds"))


def shuffled(results: Results) -> pd.DataFrame:
    """Return the points with a shuffler, with noise_over_central and local_over_noise: ratios of noise multipliers."""
    points = results.figure("lowy2021", "theory_shuffle")
    setting = ["rounds", "clients"]
    noise = points.pivot(index=setting, columns="trust", values="noise_multiplier")
    rows = points[points["trust"] == "shuffler"].set_index(setting)
    return rows.assign(
        noise_over_central=noise["shuffler"] / noise["server"], local_over_noise=noise["nobody"] / noise["shuffler"]
    ).reset_index()


def shuffle(results: Results) -> ClaimEvidence:
    """Compare the least noise with a shuffler with the central one's where the theorem's condition on M holds.

    Beside it: the constant C of the theorem's noise at which that would be this noise, and the clients it asks for.
    """
    rows = shuffled(results)
    meets = rows["clients"] >= rows["least_reports"]
    fewest = rows.loc[rows["least_reports"].idxmin()]
    absent = (
        f"The theorem asks for {fewest['least_reports']:.0f} clients a round where there are {fewest['clients']:g}, "
        f"and for more where there are more; no setting that was run has over {rows['clients'].max():g}."
    )
    least = [Case(f"clients that the theorem asks for, M = {r.clients:g}, R = {r.rounds:g}", r.least_reports)
             for r in rows[~meets].itertuples(index=False)]  # fmt: skip
    implied = [
        Case(f"C that the noise implies, M = {row.clients:g}, R = {row.rounds:g}", row.implied_constant)
        for row in rows[meets].itertuples(index=False)
    ]
    return ClaimEvidence(shuffle_cases(rows[meets]), beside=[*implied, *least], absent=absent)


def shuffle_cases(rows: pd.DataFrame) -> list[Case]:
    """Return how many times the central model's noise a client adds with a shuffler, a case a setting."""
    return [
        Case(f"M = {row.clients:g}, R = {row.rounds:g}", row.noise_over_central, target=1.0)
        for row in rows.itertuples(index=False)
    ]


def shuffle_by_accountant(results: Results) -> ClaimEvidence:
    """Compare the least noise with a shuffler with the central model's where the theorem's condition on M fails.

    Beside it: by how much shuffling divides a client's noise, and the power of M with which the noise falls.
    """
    rows = shuffled(results)
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
    return ClaimEvidence(shuffle_cases(rows), beside=[*divides, *powers])


def shuffle_beats_local(results: Results) -> ClaimEvidence:
    """Return what the local model's risk has in excess of the shuffled one's, as a share of it."""
    rows = shuffled(results)
    share, half = (rows[name] / rows["excess_risk"] for name in ("nobody_minus_this", "difference_interval"))
    return ClaimEvidence(interval_cases(rows, "M = {clients:g}, R = {rounds:g}", share, half, runs="seeds"))


def availability_ratios(results: Results, twin: str) -> list[Case]:
    """Return the risk of each random law over that of the fixed M_r with the same mean of 1/M_r or of M_r."""
    points = results.figure("lowy2021", "theory_availability")
    laws = points[(points["law"] == "random") & points[f"same_{twin}_ratio"].notna()]
    ratio, half = laws[f"same_{twin}_ratio"], laws[f"same_{twin}_ratio_interval"]
    return interval_cases(laws, "M_r uniform on {participants}", ratio, half, runs="seeds", target=1.0)


def availability(results: Results) -> ClaimEvidence:
    """Compare each random law with the fixed M_r of the same mean of 1/M_r."""
    return ClaimEvidence(availability_ratios(results, "inverse"))


def availability_not_mean(results: Results) -> ClaimEvidence:
    """Compare each random law with the fixed M_r of the same mean."""
    return ClaimEvidence(availability_ratios(results, "mean"))
