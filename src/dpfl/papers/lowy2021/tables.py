"""Fig. 2 and MNIST in numbers, and what the noise really spends."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd

from dpfl.convex.ldp_classification import UNACCOUNTED
from dpfl.papers.lowy2021.comparisons import (
    NOISES,
    REGRESSION,
    TASK,
    mnist_differences,
    noise_name,
    paired_differences,
    price,
    stand_in_notes,
    trials,
)
from dpfl.reporting.canary_table import canaries, canaries_page, control_notes
from dpfl.reporting.display_names import EpsilonVerdict, at_least, at_most, budget_cell, epsilon_verdict
from dpfl.reporting.privacy_card import in_plain_words, with_known_bounds
from dpfl.reporting.results import ORIGINS, origins
from dpfl.reporting.tables import TableLayout, TableRecipe

if TYPE_CHECKING:
    from dpfl.reporting.results import Results

_TESTS = (
    "±: 90 % interval of the mean difference within trials (Student's t). p: paired t-test, two-sided, "
    "with Holm's correction over the budgets of one column of noise."
)
_FORM = (
    "Noise of Theorem 2.1: in the form of the authors' scripts, with K/n inside the logarithm, which is 6 to 8 % less "
    "than the theorem's."
)
_SPENT = (
    "ε spent: at most, by composing the privacy profile of the mechanism with exactly this noise, at δ = 1/n² for a "
    "client's n training records; one record is replaced, and the attacker sees every message of a client."
)


def _differences_page(data: pd.DataFrame) -> TableLayout:
    """Lay the paired differences of the regression out."""
    body = pd.DataFrame(
        {
            "data": data["dataset"],
            "N": data["clients"].astype(str),
            "noise": [noise_name(*each) for each in zip(data["noise"], data["clipping"], strict=True)],
            "ε asked": data["epsilon"].map(budget_cell),
            "ε spent, minibatch": data["minibatch_epsilon_spent"].map(_spent),
            "ε spent, local": data["local_epsilon_spent"].map(_spent),
            "minibatch": data["minibatch_test_loss"].map("{:.4g}".format),
            "local": data["local_test_loss"].map("{:.4g}".format),
            **_compared(data, "{:+.3g} ± {:.2g}"),
        }
    )
    notes = ["Test loss in the target's unit squared.", _TESTS, _FORM, _SPENT]
    return TableLayout(body, [*notes, *stand_in_notes(data)])


def _mnist_page(data: pd.DataFrame) -> TableLayout:
    """Lay the paired differences of the classification out."""
    free = [f"{d:+.2f} ± {i:.2f}" for d, i in zip(data["free_difference"], data["free_interval"], strict=True)]
    body = pd.DataFrame(
        {
            "data": data["dataset"],
            "split": data["split"],
            "noise": data["noise"].map(NOISES),
            "M": data["participating"].astype(str),
            "R": data["rounds"].astype(str),
            "ε asked": data["epsilon"].map(budget_cell),
            "ε spent, minibatch": data["minibatch_epsilon_spent"].map(_spent),
            "ε spent, local": data["local_epsilon_spent"].map(_spent),
            "on the data's rows, minibatch": data["minibatch_epsilon_of_rows_proven"].fillna(math.inf).map(_spent),
            "on the data's rows, local": data["local_epsilon_of_rows_proven"].fillna(math.inf).map(_spent),
            "minibatch %": data["minibatch_test_error_pct"].map("{:.2f}".format),
            "local %": data["local_test_error_pct"].map("{:.2f}".format),
            **_compared(data, "{:+.2f} ± {:.2f}"),
            "local without privacy − minibatch": free,
        }
    )
    notes = ["Misclassified test records in percent, pooled over the clients.", _TESTS, f"{_SPENT} {_rows_note(data)}"]
    notes += [
        f"{split.capitalize()} split: {in_plain_words(UNACCOUNTED[split])}." for split in dict.fromkeys(data["split"])
    ]
    return TableLayout(body, [*notes, *stand_in_notes(data)])


def _rows_note(data: pd.DataFrame) -> str:
    """Say what the epsilons on the data's rows are, and what they make of the later script's."""
    script = data[(data["noise"] == "moments") & (data["epsilon"] < math.inf)]
    verdicts = [
        epsilon_verdict(*row)
        for name in ("minibatch", "local")
        for row in script[["epsilon", f"{name}_epsilon_of_rows_proven", f"{name}_epsilon_of_rows_refuted"]]
        .drop_duplicates()
        .itertuples(index=False)
    ]
    counts = ", ".join(f"{count} {each}" for each in EpsilonVerdict if (count := verdicts.count(each)))
    said = f" So counted, the later script's budgets, each once for every split, are: {counts}." if counts else ""
    return (
        "On the data's rows: at most, for records no longer than the longest row of the data. No gradient is longer, "
        "so clipping there would change no step. The later script does not clip. Its bound is twice the longest row, "
        f"and we clip there.{said}"
    )


def _compared(data: pd.DataFrame, form: str) -> dict[str, object]:
    """Return the columns that set minibatch and local side by side."""
    differences = zip(data["difference"], data["interval"], strict=True)
    better = zip(data["minibatch_better_trials"], data["trials"], strict=True)
    return {
        "local − minibatch": [form.format(difference, interval) for difference, interval in differences],
        "p": ["" if math.isnan(p) else f"{p:.2g}" for p in data["holm_p_value"]],
        "minibatch better": [f"{b} of {t} trials" for b, t in better],
    }


def _price_page(data: pd.DataFrame) -> TableLayout:
    """Lay out what privacy costs."""
    differences = zip(data["difference"], data["interval"], data["free_test_loss"], strict=True)
    body = pd.DataFrame(
        {
            "data": data["dataset"],
            "N": data["clients"].astype(str),
            "noise": [noise_name(*each) for each in zip(data["noise"], data["clipping"], strict=True)],
            "algorithm": data["algorithm"],
            "ε asked": data["epsilon"].map(budget_cell),
            "ε spent": data["epsilon_spent"].map(_spent),
            "test loss": data["test_loss"].map("{:.4g}".format),
            "without privacy": data["free_test_loss"].map("{:.4g}".format),
            "price": [f"{100 * d / free:+.1f} ± {100 * i / free:.1f} %" for d, i, free in differences],
        }
    )
    note = "Price: the mean difference within trials, with its 90 % interval, over the mean loss without privacy."
    return TableLayout(body, [note, _FORM, _SPENT, *stand_in_notes(data)])


def _noise(results: Results) -> pd.DataFrame:
    """Return one row per private (task, noise, clipping, algorithm, epsilon): the noise, and what it spends."""
    runs = trials(results, REGRESSION)
    kinds = [*TASK, "noise", "clipping", "algorithm", "epsilon"]
    private = with_known_bounds(runs[runs["epsilon"] < math.inf])
    made_of = [origins(group) for _, group in private.groupby(kinds, sort=False)]
    columns = [*kinds, "privacy_sampling", "privacy_records", "batch_size", "privacy_steps", "privacy_delta"]
    ends = ["privacy_epsilon_proven", "privacy_epsilon_refuted"]
    spent = private.drop_duplicates(kinds)[[*columns, "noise_multiplier", *ends]].rename(
        columns=lambda name: name.removeprefix("privacy_")
    )
    return spent.assign(times_looser=spent["epsilon"] / spent["epsilon_proven"], **{ORIGINS: made_of})


def _noise_page(data: pd.DataFrame) -> TableLayout:
    """Lay the noise table out."""
    body = pd.DataFrame(
        {
            "data": data["dataset"],
            "N": data["clients"].astype(str),
            "noise": data["noise"].map(NOISES),
            "clipped": data["clipping"],
            "algorithm": data["algorithm"],
            "ε asked": data["epsilon"].map(budget_cell),
            "records": data["records"].astype(str),
            "K": data["batch_size"].astype(str),
            "sampling": data["sampling"],
            "noisy messages": data["steps"].astype(str),
            "noise multiplier": data["noise_multiplier"].map("{:.4g}".format),
            "ε spent": data["epsilon_proven"].map(_spent),
            "ε at least": data["epsilon_refuted"].map(partial(at_least, digits=3)),
            "asked / spent": data["times_looser"].map("{:.3g}".format),
            "ε asked is": [
                epsilon_verdict(*ends)
                for ends in zip(data["epsilon"], data["epsilon_proven"], data["epsilon_refuted"], strict=True)
            ],
        }
    )
    notes = ["Noise multiplier: standard deviation over the norm bound of one record's share in what is released."]
    notes += [_FORM, _SPENT, '"ε at least": for the worst pair of data sets that is known.']
    return TableLayout(body, [*notes, *stand_in_notes(data)])


def _spent(epsilon: float) -> str:
    """Return an upper bound on what a run spends; a dash if there is no such run."""
    return "–" if math.isnan(epsilon) else at_most(epsilon, 3)


TABLES = {
    "paired_differences": TableRecipe(paired_differences, _differences_page),
    "noise": TableRecipe(_noise, _noise_page),
    "price": TableRecipe(price, _price_page),
    "mnist_differences": TableRecipe(mnist_differences, _mnist_page),
    "canaries": TableRecipe(partial(canaries, paper="lowy2021"), canaries_page, privacy_notes=control_notes),
}
