"""Minibatch against local SGD, trial by trial: Fig. 2 and MNIST, at every noise, and what privacy costs."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy import stats

from dpfl import accounting
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.statements import decode
from dpfl.reporting.results import ORIGINS, NotRunError, Results, origins
from dpfl.reporting.statistics import holm, mean_interval

if TYPE_CHECKING:
    from dpfl.accounting.guarantees import Guarantee

# Summarise the trials of an experiment: paired differences, their tests, and names for readers.

REGRESSION, CLASSIFICATION = "ldp_regression", "ldp_classification"
NOISES = {
    "advanced_composition": "noise of Theorem 2.1",
    "moments": "noise of the later script",
    "tight": "tight noise",
}
# Columns that other experiments lack become floats when the run tables are read as one.
_COUNTS = ("clients", "participating", "rounds", "batch_size", "privacy_records", "privacy_steps", "seed")


def trials(results: Results, experiment: str) -> pd.DataFrame:
    """Return the runs of an experiment, one row per (algorithm, epsilon, trial). Raises NotRunError without runs."""
    runs = results.runs("lowy2021", experiment=experiment).dropna(axis="columns", how="all")
    if runs.empty:
        raise NotRunError(f"no run of lowy2021's {experiment} in this configuration")
    runs = runs.astype({name: int for name in _COUNTS if name in runs})
    order = runs["noise"].map(list(NOISES).index)
    by = [name for name in ("dataset", "clients") if name in runs]
    return runs.assign(order=order).sort_values([*by, "order"], kind="stable", ignore_index=True).drop(columns="order")


def paired(first: pd.Series, second: pd.Series) -> dict[str, float]:
    """Compare two series of the same trials: second minus first.

    Returns trials (with both finished), the mean difference, the half-width of its 90 % interval, the two-sided
    p-value of Student's paired t-test (nan below two trials; 0 or 1 where all differences are equal), and in how many
    trials the first is the smaller.
    """
    differences = (second - first).dropna()
    count, mean, half = mean_interval(differences)
    if len(differences) < 2:
        p_value = math.nan
    elif np.ptp(differences) == 0:
        p_value = float(mean == 0)
    else:
        p_value = float(stats.ttest_1samp(differences, 0.0).pvalue)
    return {
        "trials": count,
        "difference": mean,
        "interval": half,
        "p_value": p_value,
        "first_smaller": int((differences > 0).sum()),
    }


def stand_in_notes(data: pd.DataFrame) -> list[str]:
    """Return a note for every stand-in among the data."""
    pairs = sorted(set(zip(data["dataset"], data["stand_in_for"], strict=True)))
    return [
        f"{dataset} stands in for {real}. Do not compare it with the paper's numbers."
        for dataset, real in pairs
        if real
    ]


def noise_name(noise: str, clipping: str = "record") -> str:
    """Return a noise as text, and whether the authors' clipping of means went with it."""
    return NOISES[noise] + (", means clipped" if clipping == "mean" else "")


TASK = ["dataset", "stand_in_for", "clients"]
"""Columns that identify a regression task."""
MNIST_TASK = ["dataset", "stand_in_for", "split", "participating", "rounds"]
"""Columns that identify a classification task."""


def paired_differences(results: Results) -> pd.DataFrame:
    """Return one row per (task, noise, clipping, epsilon): mean test losses, local minus minibatch, tests, spending.

    With clipping "mean" the runs are those of the authors' protocol.
    """
    return _differences(trials(results, REGRESSION), [*TASK, "noise", "clipping"], "test_loss")


def mnist_pairs(results: Results) -> pd.DataFrame:
    """Return one row per (task, noise, epsilon): mean errors in percent, local less minibatch, tests, spending."""
    return _differences(trials(results, CLASSIFICATION), [*MNIST_TASK, "noise"], "test_error_pct")


def mnist_differences(results: Results) -> pd.DataFrame:
    """Return `mnist_pairs` with free_*: minibatch SGD at this epsilon against local SGD without privacy.

    For each of both, <algorithm>_epsilon_of_rows_proven and _refuted bound what it spends on rows no longer than the
    longest of its data: clipping at that norm, where it is below the clip norm, would change no step of the runs.
    """
    by, runs = [*MNIST_TASK, "noise"], trials(results, CLASSIFICATION)
    rows = _of_rows(runs, by)
    pairs = mnist_pairs(results).drop(columns=ORIGINS)
    pairs = pairs.merge(_against_free(runs, by), on=[*by, "epsilon"], validate="one_to_one")
    return pairs.merge(rows, on=[*by, "epsilon"], how="left", validate="one_to_one")


def price(results: Results) -> pd.DataFrame:
    """Return one row per private (task, noise, clipping, algorithm, epsilon): test loss minus that without privacy by
    trial."""
    rows, by = [], [*TASK, "noise", "clipping", "algorithm"]
    for keys, group in trials(results, REGRESSION).groupby(by, sort=False):
        losses = group.pivot(index="seed", columns="epsilon", values="test_loss")
        if math.inf not in losses:
            raise NotRunError(
                "the price of privacy needs runs without it (epsilon .inf), which this configuration leaves out"
            )
        for epsilon in sorted(losses.columns[losses.columns < math.inf]):
            compared = paired(losses[math.inf], losses[epsilon])
            free, private = losses[math.inf].mean(), losses[epsilon].mean()
            spent = group.loc[group["epsilon"] == epsilon, "privacy_epsilon_proven"].iloc[0]
            made_of = origins(group[group["epsilon"].isin([epsilon, math.inf])])
            rows.append((*keys, epsilon, spent, private, free, *(compared[name] for name in _COMPARED), made_of))
    columns = [*by, "epsilon", "epsilon_spent", "test_loss", "free_test_loss", *_COMPARED, ORIGINS]
    return pd.DataFrame(rows, columns=columns)


_COMPARED = ("trials", "difference", "interval", "p_value", "first_smaller")


def _differences(runs: pd.DataFrame, by: list[str], metric: str) -> pd.DataFrame:
    """Return local minus minibatch by (by, epsilon); Holm's families are the private budgets of one `by`."""
    rows = []
    for (*keys, epsilon), group in runs.groupby([*by, "epsilon"], sort=False):
        pairs = group.pivot(index="seed", columns="algorithm", values=metric).reindex(columns=["minibatch", "local"])
        both = pairs.dropna()
        compared = paired(both["minibatch"], both["local"])
        spent = group.groupby("algorithm")["privacy_epsilon_proven"].first()
        spends = [spent.get(name, math.nan) for name in ("minibatch", "local")]
        means = both["minibatch"].mean(), both["local"].mean()
        rows.append((*keys, epsilon, *means, *compared.values(), *spends, origins(group)))
    names = [f"minibatch_{metric}", f"local_{metric}", *_COMPARED[:-1]]
    names += ["minibatch_better_trials", "minibatch_epsilon_spent", "local_epsilon_spent", ORIGINS]
    data = pd.DataFrame(rows, columns=[*by, "epsilon", *names])
    return data.assign(holm_p_value=_holm_by(data, by))


def _of_rows(runs: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return the epsilons of `mnist_differences` for rows no longer than the data's, by (by, epsilon); nan for an
    algorithm that did not run, and no row without a private run."""
    found: dict[tuple, dict[str, float]] = {}
    for (*keys, epsilon, algorithm), group in runs[runs["epsilon"] < math.inf].groupby([*by, "epsilon", "algorithm"]):
        run, longest = group.iloc[0], group["largest_record"].max()
        noise = run["noise_multiplier"] * max(1.0, run["privacy_clip_norm"] / longest)
        spent = _spent(run["privacy_sampler"], noise, int(run["privacy_steps"]), run["privacy_delta"])
        name = f"{algorithm}_epsilon_of_rows"
        found.setdefault((*keys, epsilon), {}).update({f"{name}_proven": spent.upper, f"{name}_refuted": spent.lower})
    rows = [{**dict(zip([*by, "epsilon"], keys, strict=True)), **row} for keys, row in found.items()]
    bounds = [f"{name}_epsilon_of_rows_{end}" for name in ("local", "minibatch") for end in ("proven", "refuted")]
    kinds = {**runs[[*by, "epsilon"]].dtypes, **dict.fromkeys(bounds, float)}
    return pd.DataFrame(rows, columns=list(kinds)).astype(kinds)


@cache
def _spent(sampler: str, noise_multiplier: float, steps: int, delta: float) -> Guarantee:
    """Return what a client's messages spend, by its sampler as a privacy statement writes it."""
    run = {"noise_multiplier": noise_multiplier, "steps": steps, "delta": delta}
    return accounting.guarantee(decode(sampler), neighbouring=Neighbouring.REPLACE_ONE, **run)


def _against_free(runs: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return minibatch SGD's error at each budget against that of local SGD without privacy.

    `origins` names the runs of a row of `mnist_differences`: both algorithms at the budget, local SGD without privacy.
    """
    rows = []
    for keys, group in runs.groupby(by, sort=False):
        pairs = group.pivot(index="seed", columns=["algorithm", "epsilon"], values="test_error_pct")
        if ("local", math.inf) not in pairs or "minibatch" not in pairs:
            raise NotRunError(
                "this table needs minibatch SGD, and local SGD without privacy (epsilon .inf), in one configuration"
            )
        for epsilon in pairs["minibatch"].columns:
            compared = paired(pairs["minibatch", epsilon], pairs["local", math.inf])
            free = (group["algorithm"] == "local") & (group["epsilon"] == math.inf)
            measured = (compared[name] for name in ("difference", "interval", "p_value"))
            rows.append((*keys, epsilon, *measured, origins(group[free | (group["epsilon"] == epsilon)])))
    names = ["free_difference", "free_interval", "free_p_value", ORIGINS]
    return pd.DataFrame(rows, columns=[*by, "epsilon", *names])


def _holm_by(data: pd.DataFrame, by: list[str]) -> pd.Series:
    """Return Holm's p-values within each group over its private budgets, nan without privacy."""
    private = data[data["epsilon"] < math.inf]
    return private.groupby(by, sort=False)["p_value"].transform(holm).reindex(data.index)
