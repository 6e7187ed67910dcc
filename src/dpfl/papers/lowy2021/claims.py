"""Verdicts on the claims of lowy2021 about its two experiments and its noise."""

from __future__ import annotations

import math

import pandas as pd

from dpfl.papers.lowy2021 import theory
from dpfl.papers.lowy2021.comparisons import TASK
from dpfl.papers.lowy2021.trial_statistics import FAMILY_ERROR, NOISES, holm, noise_name
from dpfl.reporting.claims import Outcome, Verdict, counted, on_stand_in
from dpfl.reporting.results import Results

NEGLIGIBLE = 0.05
"""Share of the loss without privacy up to which a price counts as nothing."""
_FREE_FROM = 12.5


def insurance_minibatch_beats_local(results: Results) -> Verdict:
    """Count, by noise, the budgets at which the paired test finds minibatch better."""
    data = results.table("lowy2021", "paired_differences")
    names = [f"{noise_name(each.noise, each.clipping)}, N = {each.clients}" for each in data.itertuples()]
    return _minibatch_beats_local(data.assign(case=names))


def mnist_minibatch_beats_local(results: Results) -> Verdict:
    """Count, by noise and split, the budgets at which the paired test finds minibatch better."""
    data = results.table("lowy2021", "mnist_differences")
    return _minibatch_beats_local(data.assign(case=data["noise"].map(NOISES) + ", " + data["split"] + " split"))


def mnist_beats_nonprivate_local(results: Results) -> Verdict:
    """Test minibatch SGD at epsilon 12.5 and above against local SGD without privacy."""
    data = results.table("lowy2021", "mnist_differences")
    large = data[(data["epsilon"] >= _FREE_FROM) & (data["epsilon"] < math.inf)].reset_index(drop=True)
    if large.empty:
        return Verdict(Outcome.NOT_TESTABLE, f"No run with ε of {_FREE_FROM:g} or more was made.")
    p = pd.Series(holm(large["free_p_value"]), index=large.index)
    better = (p < FAMILY_ERROR) & (large["free_difference"] > 0)
    keeps = large["minibatch_epsilon_spent"] <= large["epsilon"]
    lines = []
    for (noise, split), own in large.groupby(["noise", "split"], sort=False):
        kept = "keeps ε" if keeps[own.index].all() else "is not shown to keep ε"
        lines.append(f"{NOISES[noise]} ({kept}), {split} split: {better[own.index].sum()} of {len(own)}")
    evidence = (
        f"settings (M, R, ε ≥ {_FREE_FROM:g}) with noise that keeps ε in which noisy minibatch SGD errs less than "
        f"local SGD without privacy (paired t-tests, family error {FAMILY_ERROR:.0%}). {'; '.join(lines)}."
    )
    return on_stand_in(_stand_ins(data), _by_protection(better, keeps, evidence))


def price_vanishes(results: Results) -> Verdict:
    """Compare what privacy costs minibatch SGD at the smallest and at the largest budget, where the noise protects."""
    data = results.table("lowy2021", "price").query("algorithm == 'minibatch'")
    lines, nothing, shrinks, cases = [], 0, 0, 0
    for (dataset, _, clients, noise), task in data.groupby([*TASK, "noise"], sort=False):
        first, last = task.loc[task["epsilon"].idxmin()], task.loc[task["epsilon"].idxmax()]
        keeps = last["epsilon_spent"] <= last["epsilon"]
        shares = [f"{100 * _share(row):.0f} % at ε = {row['epsilon']:g}" for row in (first, last)]
        remark = "" if keeps else f" (there up to ε = {last['epsilon_spent']:.3g} is spent: not counted)"
        lines.append(f"{dataset}, N = {clients}, {NOISES[noise]}: {shares[0]}, {shares[1]}{remark}")
        if not keeps:
            continue
        cases += 1
        nothing += last["difference"] + last["interval"] <= NEGLIGIBLE * last["free_test_loss"]
        shrinks += last["difference"] + last["interval"] < first["difference"] - first["interval"]
    evidence = (
        f"columns of noise that keep ε in which the price at the largest budget, with its 90 % interval, lies within "
        f"{NEGLIGIBLE:.0%} of the loss without privacy. Price in that loss: {'; '.join(lines)}."
    )
    verdict = counted(int(nothing), cases, evidence)
    if verdict.outcome is Outcome.FAILS and shrinks:
        verdict = Verdict(Outcome.IN_PART, f"{verdict.evidence} It shrinks in {shrinks}.")
    return on_stand_in(_stand_ins(data), verdict)


def noise_suffices(results: Results) -> Verdict:
    """Count the private runs of minibatch SGD with Theorem 2.1's noise whose epsilon is at most the one asked for."""
    data = results.table("lowy2021", "noise").query("algorithm == 'minibatch' and clipping == 'record'")
    own = data[data["noise"] == "advanced_composition"]
    later = data[data["noise"] == "moments"]
    loose = own["times_looser"]
    enough = (later["epsilon_proven"] <= later["epsilon"]).sum()
    evidence = (
        f"settings in which the noise suffices; it is at least {loose.min():.0f} to {loose.max():.0f} times looser "
        f"than needed. The later script's noise is shown to suffice in {enough} of {len(later)}, and may spend up to "
        f"ε = {later['epsilon_proven'].max():.3g}."
    )
    return counted(int((own["epsilon_proven"] <= own["epsilon"]).sum()), len(own), evidence)


def _minibatch_beats_local(data: pd.DataFrame) -> Verdict:
    """Return the verdict on paired differences; only noise that keeps epsilon for both algorithms counts."""
    private = data[data["epsilon"] < math.inf].reset_index(drop=True)
    if private.empty:
        return Verdict(Outcome.NOT_TESTABLE, "No private run was made.")
    found = private["holm_p_value"] < FAMILY_ERROR
    minibatch, local = found & (private["difference"] > 0), found & (private["difference"] < 0)
    spent = private[["minibatch_epsilon_spent", "local_epsilon_spent"]].max(axis=1)
    keeps = spent <= private["epsilon"]
    lines, unprotected = [], []
    for case, own in private.groupby("case", sort=False):
        here = own.index
        lines.append(
            f"{case}: minibatch {minibatch[here].sum()}, local {local[here].sum()}, undecided "
            f"{(~found[here]).sum()}, of {len(own)} (ε kept by both in {keeps[here].sum()})"
        )
        if minibatch[here].all() and not keeps[here].any():
            unprotected.append(case)
    evidence = (
        f"settings with noise that keeps ε in which minibatch is better (paired t-tests over "
        f"{private['trials'].min():.0f} trials or more, family error {FAMILY_ERROR:.0%} by Holm). {'; '.join(lines)}."
    )
    if unprotected:
        evidence += f" It holds at every budget, but with noise that does not protect: {'; '.join(unprotected)}."
    if not found.any():
        verdict = Verdict(Outcome.NOT_TESTABLE, f"Undecided with so few trials. Of the {evidence}")
    else:
        verdict = _by_protection(minibatch, keeps, evidence)
    return on_stand_in(_stand_ins(data), verdict)


def _by_protection(holds: pd.Series, keeps: pd.Series, evidence: str) -> Verdict:
    """Count where the noise keeps epsilon; say so where the claim holds only with noise that does not."""
    unprotected = f"in {holds[~keeps].sum()} of {(~keeps).sum()} settings"
    if not keeps.any():
        remark = f"No noise that was run keeps ε; with noise that does not protect it holds {unprotected}."
        return Verdict(Outcome.NOT_TESTABLE, f"{remark} Of the {evidence}")
    verdict = counted(int((holds & keeps).sum()), int(keeps.sum()), evidence)
    if holds[~keeps].any() and not holds[keeps].any():
        remark = f"It holds only with noise that does not protect: {unprotected}."
        return Verdict(verdict.outcome, f"{remark} {verdict.evidence}")
    return verdict


def _share(row: pd.Series) -> float:
    """A price as a share of the loss without privacy."""
    return row["difference"] / row["free_test_loss"]


def _stand_ins(data: pd.DataFrame) -> pd.Series:
    """Return the names of the stand-ins among the data."""
    return data.loc[data["stand_in_for"] != "", "dataset"]


CLAIMS = {
    "insurance_minibatch_beats_local": insurance_minibatch_beats_local,
    "price_vanishes": price_vanishes,
    "mnist_minibatch_beats_local": mnist_minibatch_beats_local,
    "mnist_beats_nonprivate_local": mnist_beats_nonprivate_local,
    "noise_suffices": noise_suffices,
    **theory.CLAIMS,
}
