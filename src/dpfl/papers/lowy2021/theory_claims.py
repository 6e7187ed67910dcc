"""Evidence for the theorems of lowy2021, from the data of the theory studies' figures: synthetic problems alone."""

from __future__ import annotations

import math

import pandas as pd

from dpfl.papers.lowy2021.theory_runs import slope
from dpfl.reporting.cases import Case, from_interval
from dpfl.reporting.evidence import interval_cases
from dpfl.reporting.results import Results
from dpfl.reporting.rules import ClaimEvidence
from dpfl.reporting.statistics import LEVEL

POINT = "{problem}, {axis} = {value:g}"
"""Name of a point of the one-pass study."""


def acceleration(results: Results) -> ClaimEvidence:
    """Compare Algorithm 1 with Algorithm 2 where the latter is at its best, with as many rounds, a case a problem.

    The number is what Algorithm 1 has in excess of Algorithm 2's risk, as a share of it. Beside it: how many rounds
    Algorithm 1 needs for that risk (infinite where it never gets there).
    """
    points = results.figure("lowy2021", "theory_acceleration")
    private = points[points["epsilon"] < math.inf]
    cases, beside = [], []
    for task, group in private.groupby("task", sort=False):
        fast = group[group["curve"].str.startswith("accelerated") & group["plain_minus_this"].notna()]
        if fast.empty:
            continue
        best = fast.loc[fast["excess_risk"].idxmin()]
        gap, half = (best[name] / best["excess_risk"] for name in ("plain_minus_this", "difference_interval"))
        cases.append(from_interval(f"{task}, {best['rounds']:g} rounds", best["seeds"], gap, half, level=LEVEL))
        plain = group[group["curve"].str.startswith("minibatch") & (group["excess_risk"] <= best["excess_risk"])]
        needed = float(plain["rounds"].min()) if len(plain) else math.inf
        beside.append(Case(f"rounds that Algorithm 1 needs: {task}", needed, target=float(best["rounds"])))
    return ClaimEvidence(cases, beside=beside)


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
    """Compare the theorem's noise with the central one's in the settings where its condition on M holds, if any."""
    rows = shuffled(results)
    meets = rows["clients"] >= rows["least_reports"]
    fewest = rows.loc[rows["least_reports"].idxmin()]
    absent = (
        f"The theorem asks for {fewest['least_reports']:.0f} clients a round where there are {fewest['clients']:g}, "
        f"and for more where there are more; no setting that was run has over {rows['clients'].max():g}."
    )
    least = [Case(f"clients that the theorem asks for, M = {r.clients:g}, R = {r.rounds:g}", r.least_reports)
             for r in rows.itertuples(index=False)]  # fmt: skip
    return ClaimEvidence(shuffle_cases(rows[meets]), beside=least, absent=absent)


def shuffle_cases(rows: pd.DataFrame) -> list[Case]:
    """Return how many times the central model's noise a client adds with a shuffler, a case a setting."""
    return [
        Case(f"M = {row.clients:g}, R = {row.rounds:g}", row.noise_over_central, target=1.0)
        for row in rows.itertuples(index=False)
    ]


def shuffle_by_accountant(results: Results) -> ClaimEvidence:
    """Compare the least noise that an accountant allows with a shuffler with the central model's.

    Beside it: by how much shuffling divides a client's noise, and the power of M with which the noise falls.
    """
    rows = shuffled(results)
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
