"""Epsilon of one record when each client draws its data independently, beside what one client's messages spend."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from dpfl.accounting import dpsgd
from dpfl.accounting.samplers import Sampling
from dpfl.catalog import load
from dpfl.data import datasets
from dpfl.engine.batches import BatchSampler
from dpfl.reporting.display_names import at_most, data_name
from dpfl.reporting.tables import TableLayout, TableRecipe

QUARTER = 0.25
"""The share of the records for which a row says what they spend at least."""


@dataclass(frozen=True)
class Training:
    """Training of every client of one dataset: the calibrated noise, its steps in all and their sample rate."""

    noise_multiplier: float
    sample_rate: float
    steps: int
    delta: float


@dataclass(frozen=True)
class Holders:
    """Number of clients that hold a record.

    law: the probability of 0, 1, ..., k clients; mean; quarter: so many or more hold a quarter of the records; most:
    the most of any record (median over draws).
    """

    law: tuple[float, ...]
    mean: float
    quarter: int
    most: int


def _table_5() -> dict[str, Any]:
    """Return what paper.yaml says of Table 5."""
    return load("bhaskar2025").tables["table_5"]


def _smaller(dataset: str) -> float:
    """Return the smaller budget of a dataset's table of Tables 2 to 4."""
    tables = load("bhaskar2025").tables
    (own,) = (
        tables[f"table_{number}"] for number in (2, 3, 4) if tables[f"table_{number}"]["settings"]["dataset"] == dataset
    )
    return min(epsilon for model in own["published_accuracy_pct"].values() for epsilon in model)


@cache
def training(dataset: str, epsilon: float) -> Training:
    """Return a client's training on its share of `dataset`, calibrated to `epsilon` as the published cells are."""
    settings, (local_epochs, rounds) = load("bhaskar2025").settings, _table_5()["settings"]["split"]
    records = round(settings["client_share"] * datasets.load(dataset).training_records)
    sampler = BatchSampler(Sampling(settings["sampling"]), settings["batch_size"], records)
    steps = local_epochs * rounds * sampler.steps_per_epoch
    run = {"sample_rate": sampler.sample_rate, "steps": steps, "delta": settings["delta"]}
    sigma = dpsgd.noise_multiplier(target_epsilon=epsilon, accountant=settings["accountant"], **run)
    return Training(noise_multiplier=float(sigma), **run)


@cache
def spent(run: Training, holders: int) -> float:
    """Return epsilon by PLD of a record that `holders` clients hold: the composition of all their steps.

    At the delta of the run for the whole composition; the same under add_or_remove and zero_out, whose dominating pair
    is one for Poisson batches at a given rate.
    """
    if holders == 0:
        return 0.0
    return float(dpsgd.epsilon(**{**asdict(run), "steps": holders * run.steps}, accountant="pld"))


def holders(clients: int, share: float, records: int) -> Holders:
    """Return the law of the number of `clients` that hold a record of `records`: Binomial(clients, share).

    Each client draws a `share` in (0, 1] of the records, independently of the others. `most` is the median of the
    largest number over all records, taken as independent.
    """
    numbers = np.arange(clients + 1)
    law = stats.binom.pmf(numbers, clients, share)
    at_least = stats.binom.sf(numbers - 1, clients, share)
    below = records * stats.binom.logcdf(numbers, clients, share)
    return Holders(
        law=tuple(law.tolist()),
        mean=clients * share,
        quarter=int(numbers[at_least >= QUARTER][-1]),
        most=int(numbers[below >= math.log(0.5)][0]),
    )


def budgets(*names: str) -> pd.DataFrame:
    """Return a row for each dataset, budget and number of clients above 1 of Tables 2 to 5: what a client and a record
    spend. The smaller budget is published for ten clients only.

    `names`: the datasets, all of them if none is named.

    Columns: dataset, epsilon (published, the budget of one client), delta, noise_multiplier, clients, share_none and
    share_several (of the records: with no client, with two or more), holders_mean, holders_quarter, holders_most
    (`Holders`), epsilon_client (Claim 1: proven of all that one client sends), epsilon_mean (of a record, mean over
    records), epsilon_quarter (that a quarter of the records spend at least), epsilon_most (of the record with the
    most), share_above (of the records: that spend more than printed). Epsilons are by PLD.
    """
    settings, published = load("bhaskar2025").settings, _table_5()["published_accuracy_pct"]
    rows = []
    for dataset in names or published:
        larger, several = published[dataset]["epsilon"], sorted(set(_table_5()["settings"]["clients"]) - {1})
        places = [(larger, clients) for clients in several] + [(_smaller(dataset), several[0])]
        for epsilon, clients in places:
            run = training(dataset, epsilon)
            law = holders(clients, settings["client_share"], datasets.load(dataset).training_records)
            likely = {number: chance for number, chance in enumerate(law.law) if chance > 1e-12}
            rows.append(
                {
                    "dataset": dataset,
                    "epsilon": epsilon,
                    "delta": run.delta,
                    "noise_multiplier": run.noise_multiplier,
                    "clients": clients,
                    "share_none": law.law[0],
                    "share_several": 1 - law.law[0] - law.law[1],
                    "holders_mean": law.mean,
                    "holders_quarter": law.quarter,
                    "holders_most": law.most,
                    "epsilon_client": spent(run, 1),
                    "epsilon_mean": sum(chance * spent(run, number) for number, chance in likely.items()),
                    "epsilon_quarter": spent(run, law.quarter),
                    "epsilon_most": spent(run, law.most),
                    "share_above": sum(chance for number, chance in likely.items() if spent(run, number) > epsilon),
                }
            )
    return pd.DataFrame(rows)


def overlap_page(data: pd.DataFrame) -> TableLayout:
    """Lay the budgets out for a reader."""
    body = pd.DataFrame(
        {
            "Data": data["dataset"].map(data_name),
            "k": data["clients"].map(str),
            "ε published": data["epsilon"].map("{:g}".format),
            "ε of a client (Claim 1)": [at_most(value, places=2) for value in data["epsilon_client"]],
            "Records with no client": _percent(data["share_none"]),
            "with two clients or more": _percent(data["share_several"]),
            "ε of a record, mean of all records": [at_most(value, places=2) for value in data["epsilon_mean"]],
            "ε of a record, upper quartile (clients)": _with_number(data, "quarter"),
            "ε of the record with the most clients (their number)": _with_number(data, "most"),
            "Records above the published ε": _percent(data["share_above"]),
        }
    )
    deltas = ", ".join(f"{delta:g}" for delta in sorted(set(data["delta"])))
    notes = [
        "Each client draws its tenth of the records independently, so the number of clients that hold a record is "
        "binomial. ε of a client: for all messages of one client, if only this client holds the record. ε of a "
        "record: for the messages of all clients that hold it, composed; their number is in brackets. A record without "
        "a client spends nothing.",
        f"By PLD, δ = {deltas} for the whole composition; Poisson batches; a server that sees what every client sends. "
        "The same under zero out and under add or remove (the paper's Definition 1) at a given sampling rate.",
        "The record with the most: the median, over draws of the clients' shares, of the largest number of any record.",
    ]
    return TableLayout(body, notes)


def record_notes(cells: pd.DataFrame) -> list[str]:
    """Return what a record spends that several clients hold, for each data set and number of clients that ran.

    `cells` has columns dataset, clients, epsilon, runs and stand_in.
    """
    ran = cells[(cells["runs"] > 0) & ~cells["stand_in"].eq(True) & (cells["clients"] > 1)]
    notes, share = [], load("bhaskar2025").settings["client_share"]
    for dataset, own in ran[np.isfinite(ran["epsilon"])].groupby("dataset", sort=False):
        records = datasets.load(str(dataset)).training_records
        laws = {clients: holders(clients, share, records) for clients in sorted(own["clients"].unique())}
        spend = []
        for epsilon in sorted(own["epsilon"].unique(), reverse=True):
            run = training(str(dataset), float(epsilon))
            most = [at_most(spent(run, law.quarter), places=2) for law in laws.values()]
            spend.append(f"{' and '.join(most)} where {epsilon:g} is published")
        several = ", ".join(f"{100 * (1 - sum(law.law[:2])):.1f} % with {each} clients" for each, law in laws.items())
        quarter = ", ".join(f"{law.quarter} of {each}" for each, law in laws.items())
        notes.append(
            f"{data_name(str(dataset))}: each client draws a tenth of the records. Records with two clients or more: "
            f"{several}. A quarter of the records are with at least {quarter} clients. A record with just this number "
            f"spends an ε of at most {', '.join(spend)} for one client."
        )
    return notes


def _percent(shares: pd.Series) -> list[str]:
    """Return shares as per cents."""
    return [f"{100 * share:.1f} %" for share in shares]


def _with_number(data: pd.DataFrame, which: str) -> list[str]:
    """Return an epsilon with the number of clients that it is for."""
    pairs = zip(data[f"epsilon_{which}"], data[f"holders_{which}"], strict=True)
    return [f"{at_most(epsilon, places=2)} ({number})" for epsilon, number in pairs]


TABLES = {"overlap": TableRecipe(lambda results: budgets(), overlap_page)}
