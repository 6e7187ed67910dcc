"""The errata, Fig. 2 in numbers, and what the published noise really spends."""

from __future__ import annotations

import math

import pandas as pd

from dpfl.papers.lowy2021.errata import all_errata
from dpfl.papers.lowy2021.summary import TASK, mean_interval, trials
from dpfl.reporting.evidence import errata_page, table
from dpfl.reporting.results import Results
from dpfl.reporting.tables import Page, TableRecipe


def _paired_differences(results: Results) -> pd.DataFrame:
    """Return a row a (task, epsilon): mean test losses, and local minus minibatch within trials with its interval."""
    runs = trials(results)
    rows = []
    for (*task, epsilon), group in runs.groupby([*TASK, "epsilon"], sort=False):
        pairs = group.pivot(index="seed", columns="algorithm", values="test_loss").reindex(
            columns=["minibatch", "local"]
        )
        pairs = pairs.dropna()
        difference = mean_interval(pairs["local"] - pairs["minibatch"])
        better = int((pairs["local"] > pairs["minibatch"]).sum())
        rows.append((*task, epsilon, pairs["minibatch"].mean(), pairs["local"].mean(), *difference, better))
    columns = [*TASK, "epsilon", "minibatch_test_loss", "local_test_loss", "trials", "difference", "interval"]
    return pd.DataFrame(rows, columns=[*columns, "minibatch_better_trials"]).astype({"trials": int})


def _differences_page(data: pd.DataFrame) -> Page:
    """Lay the paired differences out."""
    body = pd.DataFrame(
        {
            "data": data["dataset"],
            "N": data["clients"].astype(str),
            "ε": data["epsilon"].map(_budget),
            "minibatch": data["minibatch_test_loss"].map("{:.4g}".format),
            "local": data["local_test_loss"].map("{:.4g}".format),
            "local − minibatch": [
                f"{d:+.3g} ± {i:.2g}" for d, i in zip(data["difference"], data["interval"], strict=True)
            ],
            "minibatch better": [
                f"{b} of {t} trials" for b, t in zip(data["minibatch_better_trials"], data["trials"], strict=True)
            ],
        }
    )
    return Page(body, ["Test loss in the target's unit squared; ±: 90 % interval of the mean.", *_stand_ins(data)])


def _noise(results: Results) -> pd.DataFrame:
    """Return a row a private (task, algorithm, epsilon): the noise, and the most that it spends."""
    runs = trials(results)
    private = runs[runs["epsilon"] < math.inf].drop_duplicates([*TASK, "algorithm", "epsilon"])
    columns = [*TASK, "algorithm", "epsilon", "privacy_records", "batch_size", "privacy_steps", "privacy_delta"]
    spent = private[[*columns, "noise_multiplier", "privacy_epsilon_pld"]].rename(
        columns=lambda name: name.removeprefix("privacy_")
    )
    return spent.assign(times_looser=spent["epsilon"] / spent["epsilon_pld"])


def _noise_page(data: pd.DataFrame) -> Page:
    """Lay the noise table out."""
    body = pd.DataFrame(
        {
            "data": data["dataset"],
            "N": data["clients"].astype(str),
            "algorithm": data["algorithm"],
            "ε asked": data["epsilon"].map(_budget),
            "records": data["records"].astype(str),
            "K": data["batch_size"].astype(str),
            "noisy messages": data["steps"].astype(str),
            "noise multiplier": data["noise_multiplier"].map("{:.4g}".format),
            "ε spent (at most)": data["epsilon_pld"].map("{:.3g}".format),
            "times looser (at least)": data["times_looser"].map("{:.3g}".format),
        }
    )
    notes = [
        "Noise multiplier: standard deviation over the norm bound of one record's share in what is released.",
        "ε spent: composed from the privacy profile of sampling with replacement, an upper bound.",
    ]
    return Page(body, [*notes, *_stand_ins(data)])


def _budget(epsilon: float) -> str:
    """Return a budget as text."""
    return "none" if math.isinf(epsilon) else f"{epsilon:g}"


def _stand_ins(data: pd.DataFrame) -> list[str]:
    """Return a note for every stand-in among the data."""
    pairs = sorted(set(zip(data["dataset"], data["stand_in_for"], strict=True)))
    return [f"{dataset} stands in for {real}: not the paper's numbers." for dataset, real in pairs if real]


TABLES = {
    "errata": TableRecipe(lambda results: table(all_errata()), errata_page),
    "paired_differences": TableRecipe(_paired_differences, _differences_page),
    "noise": TableRecipe(_noise, _noise_page),
}
