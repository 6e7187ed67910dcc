"""Verdicts on the claims of lowy2021 about the insurance regression and its noise."""

from __future__ import annotations

import math

import pandas as pd

from dpfl.reporting.claims import Outcome, Verdict, counted, on_stand_in
from dpfl.reporting.results import Results


def _stand_ins(data: pd.DataFrame) -> pd.Series:
    """Return the names of the stand-ins among the data."""
    return data.loc[data["stand_in_for"] != "", "dataset"]


def insurance_minibatch_beats_local(results: Results) -> Verdict:
    """Count the budgets at which the 90 % interval of local minus minibatch lies above zero."""
    data = results.table("lowy2021", "paired_differences").query("epsilon < inf")
    above = data["difference"] - data["interval"] > 0
    below = data["difference"] + data["interval"] < 0
    evidence = (
        f"budgets at which minibatch is better (90 % interval of the paired difference above 0, "
        f"{data['trials'].min()} trials); local is better at {below.sum()}, undecided {(~above & ~below).sum()}."
    )
    verdict = counted(int(above.sum()), len(data), evidence)
    if not (above | below).any():
        verdict = Verdict(Outcome.NOT_TESTABLE, f"Undecided with so few trials. {verdict.evidence}")
    return on_stand_in(_stand_ins(data), verdict)


def price_vanishes(results: Results) -> Verdict:
    """Compare the ratio of private to non-private test loss of minibatch SGD at the smallest and largest budget."""
    data = results.figure("lowy2021", "figure_2").query("algorithm == 'minibatch'")
    lines = []
    shrinks = nothing = tasks = 0
    for (dataset, clients), task in data.groupby(["dataset", "clients"]):
        free = task[task["epsilon"] == math.inf].iloc[0]
        private = task[task["epsilon"] < math.inf].sort_values("epsilon")
        ratios = private["test_loss"] / free["test_loss"]
        last = private.iloc[-1]
        tasks += 1
        shrinks += ratios.iloc[-1] < ratios.iloc[0]
        nothing += last["test_loss"] - last["interval"] <= free["test_loss"] + free["interval"]
        lines.append(f"{dataset}, N = {clients}: {ratios.iloc[0]:.2f} times at ε = {private['epsilon'].iloc[0]:g}, ")
        lines[-1] += f"{ratios.iloc[-1]:.2f} times at ε = {last['epsilon']:g}"
    outcome = Outcome.HOLDS if nothing == tasks else Outcome.IN_PART if shrinks else Outcome.FAILS
    evidence = f"Test loss against the same algorithm without privacy: {'; '.join(lines)}."
    return on_stand_in(_stand_ins(data), Verdict(outcome, evidence))


def noise_suffices(results: Results) -> Verdict:
    """Count the private runs of minibatch SGD whose tight epsilon is at most the one that was asked for."""
    data = results.table("lowy2021", "noise").query("algorithm == 'minibatch'")
    holds = data["epsilon_pld"] <= data["epsilon"]
    loose = data["times_looser"]
    range_ = f"{loose.min():.0f} to {loose.max():.0f}"
    evidence = f"settings in which the noise suffices; it is at least {range_} times looser than needed."
    return counted(int(holds.sum()), len(data), evidence)


CLAIMS = {
    "insurance_minibatch_beats_local": insurance_minibatch_beats_local,
    "price_vanishes": price_vanishes,
    "noise_suffices": noise_suffices,
}
