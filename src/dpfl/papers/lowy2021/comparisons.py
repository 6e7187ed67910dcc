"""Minibatch against local SGD, trial by trial: Fig. 2 and MNIST, at every noise, and what privacy costs."""

from __future__ import annotations

import math

import pandas as pd

from dpfl.papers.lowy2021.trial_statistics import CLASSIFICATION, REGRESSION, paired, trials
from dpfl.reporting.results import NotRunError, Results
from dpfl.reporting.statistics import holm

TASK = ["dataset", "stand_in_for", "clients"]
"""Columns that identify a regression task."""
MNIST_TASK = ["dataset", "stand_in_for", "split", "participating", "rounds"]
"""Columns that identify a classification task."""


def regression(results: Results) -> pd.DataFrame:
    """Return the regression's runs with every record clipped."""
    runs = trials(results, REGRESSION)
    return runs[runs["clipping"] == "record"]


def paired_differences(results: Results) -> pd.DataFrame:
    """Return one row per (task, noise, clipping, epsilon): mean test losses, local minus minibatch, tests, spending.

    With clipping "mean" the runs are those of the authors' protocol.
    """
    return _differences(trials(results, REGRESSION), [*TASK, "noise", "clipping"], "test_loss")


def mnist_pairs(results: Results) -> pd.DataFrame:
    """Return one row per (task, noise, epsilon): mean errors in percent, local less minibatch, tests, spending."""
    return _differences(trials(results, CLASSIFICATION), [*MNIST_TASK, "noise"], "test_error_pct")


def mnist_differences(results: Results) -> pd.DataFrame:
    """Return `mnist_pairs` with free_*: minibatch SGD at this epsilon against local SGD without privacy."""
    by = [*MNIST_TASK, "noise"]
    free = _against_free(trials(results, CLASSIFICATION), by)
    return mnist_pairs(results).merge(free, on=[*by, "epsilon"], validate="one_to_one")


def price(results: Results) -> pd.DataFrame:
    """Return one row per private (task, noise, algorithm, epsilon): test loss minus that without privacy by trial."""
    rows = []
    for keys, group in regression(results).groupby([*TASK, "noise", "algorithm"], sort=False):
        losses = group.pivot(index="seed", columns="epsilon", values="test_loss")
        if math.inf not in losses:
            raise NotRunError(
                "the price of privacy needs runs without it (epsilon .inf), which this configuration leaves out"
            )
        for epsilon in sorted(losses.columns[losses.columns < math.inf]):
            compared = paired(losses[math.inf], losses[epsilon])
            free, private = losses[math.inf].mean(), losses[epsilon].mean()
            spent = group.loc[group["epsilon"] == epsilon, "privacy_epsilon_proven"].iloc[0]
            rows.append((*keys, epsilon, spent, private, free, *(compared[name] for name in _COMPARED)))
    columns = [*TASK, "noise", "algorithm", "epsilon", "epsilon_spent", "test_loss", "free_test_loss", *_COMPARED]
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
        rows.append((*keys, epsilon, both["minibatch"].mean(), both["local"].mean(), *compared.values(), *spends))
    means = [f"minibatch_{metric}", f"local_{metric}"]
    ends = ["minibatch_better_trials", "minibatch_epsilon_spent", "local_epsilon_spent"]
    data = pd.DataFrame(rows, columns=[*by, "epsilon", *means, *_COMPARED[:-1], *ends])
    return data.assign(holm_p_value=_holm_by(data, by))


def _against_free(runs: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return minibatch SGD's error at each budget against that of local SGD without privacy."""
    rows = []
    for keys, group in runs.groupby(by, sort=False):
        pairs = group.pivot(index="seed", columns=["algorithm", "epsilon"], values="test_error_pct")
        if ("local", math.inf) not in pairs or "minibatch" not in pairs:
            raise NotRunError(
                "this table needs minibatch SGD, and local SGD without privacy (epsilon .inf), in one configuration"
            )
        for epsilon in pairs["minibatch"].columns:
            compared = paired(pairs["minibatch", epsilon], pairs["local", math.inf])
            rows.append((*keys, epsilon, *(compared[name] for name in ("difference", "interval", "p_value"))))
    names = ["free_difference", "free_interval", "free_p_value"]
    return pd.DataFrame(rows, columns=[*by, "epsilon", *names])


def _holm_by(data: pd.DataFrame, by: list[str]) -> pd.Series:
    """Return Holm's p-values within each group over its private budgets, nan without privacy."""
    private = data[data["epsilon"] < math.inf]
    return private.groupby(by, sort=False)["p_value"].transform(holm).reindex(data.index)
