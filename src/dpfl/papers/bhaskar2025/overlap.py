"""Budget of a record when the data of more than ten clients overlap: what Table 5 leaves out."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cache

import numpy as np
import pandas as pd
from scipy import stats

from dpfl.accounting import dpsgd
from dpfl.accounting.samplers import Sampling
from dpfl.catalog import load
from dpfl.data import datasets
from dpfl.engine.batches import BatchSampler
from dpfl.papers.bhaskar2025.published_cells import table_settings
from dpfl.reporting.tables import TableLayout


@dataclass(frozen=True)
class Training:
    """Training of every client of one dataset: the calibrated noise, its steps in all and their sample rate."""

    noise_multiplier: float
    sample_rate: float
    steps: int
    delta: float


@dataclass(frozen=True)
class Holders:
    """Number of clients that a record is with: the mean, the most (median over draws), the share with two or more."""

    mean: float
    most: int
    share_above_one: float
    law: tuple[float, ...]
    """Probability of 0, 1, ..., k clients."""


@cache
def training(dataset: str, epsilon: float) -> Training:
    """Return a client's training on its share of `dataset`, calibrated as the runs of Table 5 are."""
    settings, (local_epochs, rounds) = load("bhaskar2025").settings, table_settings(5)["split"]
    records = round(settings["client_share"] * datasets.load(dataset).training_records)
    sampler = BatchSampler(Sampling(settings["sampling"]), settings["batch_size"], records)
    steps = local_epochs * rounds * sampler.steps_per_epoch
    run = {"sample_rate": sampler.sample_rate, "steps": steps, "delta": settings["delta"]}
    sigma = dpsgd.noise_multiplier(target_epsilon=epsilon, accountant=settings["accountant"], **run)
    return Training(noise_multiplier=float(sigma), **run)


@cache
def spent(run: Training, holders: int, accountant: str) -> float:
    """Return epsilon of a record that is with `holders` clients: the composition of all their steps."""
    if holders == 0:
        return 0.0
    return float(dpsgd.epsilon(**{**asdict(run), "steps": holders * run.steps}, accountant=accountant))


def holders(clients: int, share: float, records: int) -> Holders:
    """Return the law of the number of `clients` that hold a record of `records`, each client a random `share`.

    Disjoint where clients * share <= 1 (dpfl.data.partition.random_shares), else binomial. `most` is the median of
    the largest number over all records, taken as independent. Shares are in (0, 1].
    """
    if clients * share <= 1 + 1e-9:
        return Holders(clients * share, 1, 0.0, (1 - min(1.0, clients * share), min(1.0, clients * share)))
    numbers = np.arange(clients + 1)
    law = stats.binom.pmf(numbers, clients, share)
    below = records * stats.binom.logcdf(numbers, clients, share)
    most = int(numbers[below >= math.log(0.5)][0])
    return Holders(clients * share, most, float(1 - law[0] - law[1]), tuple(law.tolist()))


def budgets(*names: str) -> pd.DataFrame:
    """Return a row for each dataset and number of clients above 1 of Table 5: what a record spends, delta as stated.

    `names`: the datasets, all of the table where none is named.

    Columns: dataset, epsilon (the budget of one client), delta, noise_multiplier, clients, holders_mean, holders_most,
    share_above_one, epsilon_mean_rdp (mean over records), epsilon_typical_rdp, epsilon_typical_pld (a record with the
    mean number of clients, rounded up), epsilon_most_rdp, epsilon_most_pld (one with the most).
    """
    settings, published = load("bhaskar2025").settings, load("bhaskar2025").tables["table_5"]["published_accuracy_pct"]
    rows = []
    for dataset in names or published:
        epsilon = published[dataset]["epsilon"]
        run = training(dataset, epsilon)
        for clients in (number for number in table_settings(5)["clients"] if number > 1):
            law = holders(clients, settings["client_share"], datasets.load(dataset).training_records)
            typical = math.ceil(law.mean)
            rows.append(
                {
                    "dataset": dataset,
                    "epsilon": epsilon,
                    "delta": run.delta,
                    "noise_multiplier": run.noise_multiplier,
                    "clients": clients,
                    "holders_mean": law.mean,
                    "holders_most": law.most,
                    "share_above_one": law.share_above_one,
                    "epsilon_mean_rdp": _mean_epsilon(run, law),
                    "epsilon_typical_rdp": spent(run, typical, "rdp"),
                    "epsilon_typical_pld": spent(run, typical, "pld"),
                    "epsilon_most_rdp": spent(run, law.most, "rdp"),
                    "epsilon_most_pld": spent(run, law.most, "pld"),
                }
            )
    return pd.DataFrame(rows)


def _mean_epsilon(run: Training, law: Holders) -> float:
    """Return the mean over records of epsilon by RDP; numbers of clients that hardly occur weigh nothing."""
    likely = [(number, chance) for number, chance in enumerate(law.law) if chance > 1e-12]
    return sum(chance * spent(run, number, "rdp") for number, chance in likely)


def overlap_page(data: pd.DataFrame) -> TableLayout:
    """Lay the budgets out for a reader."""
    body = pd.DataFrame(
        {
            "Data": data["dataset"],
            "ε of a client": data["epsilon"].map("{:g}".format),
            "k": data["clients"].map(str),
            "Clients of a record, mean": data["holders_mean"].map("{:g}".format),
            "most": data["holders_most"].map(str),
            "Records with two or more": (100 * data["share_above_one"]).map("{:.1f} %".format),
            "ε, mean over records": data["epsilon_mean_rdp"].map("{:.2f}".format),
            "ε at the mean number": _both(data, "typical"),
            "ε at the most": _both(data, "most"),
        }
    )
    notes = [
        f"δ = {', '.join(f'{delta:g}' for delta in sorted(set(data['delta'])))} for the whole composition; ε by RDP, "
        "and by PLD after the stroke. The mean number is rounded up for its ε.",
        "The most: the median, over draws of the clients' shares, of the largest number of clients of any record.",
        "Accounted for Poisson batches and for a server that sees what every client sends; add or remove one record.",
    ]
    return TableLayout(body, notes)


def _both(data: pd.DataFrame, which: str) -> pd.Series:
    """Return epsilon by both accountants as text."""
    rdp, pld = (data[f"epsilon_{which}_{name}"].map("{:.2f}".format) for name in ("rdp", "pld"))
    return rdp + " / " + pld
