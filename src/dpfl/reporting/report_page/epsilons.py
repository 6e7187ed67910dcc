"""Epsilons of a paper's private settings: what is claimed, what is proven, and what an attack or a pair refutes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from dpfl.grid.expansion import noise_table
from dpfl.reporting.results import read_csv
from dpfl.reporting.standing import Standing, standing

_STATEMENT = [
    "privacy_sampling", "privacy_neighbouring", "privacy_observer", "privacy_records", "privacy_steps",
    "privacy_delta", "privacy_noise_multiplier", "privacy_proven_by", "privacy_refuted_by",
]  # fmt: skip


@dataclass(frozen=True)
class EpsilonStatement:
    """One private setting; `sampling`, `neighbouring` and `observer` say what its epsilons belong to.

    `proven` is inf where nothing is proven, `refuted` is 0 where nothing is exceeded.
    """

    sampling: str
    neighbouring: str
    observer: str
    records: int
    steps: int
    delta: float
    noise_multiplier: float
    claimed: float
    proven: float
    proven_by: str
    refuted: float
    refuted_by: str
    standing: Standing


def statements(folder: Path, paper: str) -> list[EpsilonStatement]:
    """Return each different private setting of results/<scale> that claims an epsilon, once, from its table of noise.

    Settings without noise and those that are given a noise instead of an epsilon claim nothing. Where only the last
    model is released, what the contraction bounds prove counts.
    """
    csv = noise_table(folder, paper)
    if not csv.is_file():
        return []
    rows = read_csv(csv)
    if "epsilon" not in rows:
        return []
    rows = rows[(rows["epsilon"] < math.inf) & (rows["privacy_noise_multiplier"] > 0)]
    last_model = rows.get("privacy_epsilon_contraction", pd.Series(math.inf, rows.index)).fillna(math.inf)
    rows = rows.assign(proven=rows["privacy_epsilon_proven"].fillna(math.inf), last_model=last_model)
    columns = [*_STATEMENT, "epsilon", "proven", "privacy_epsilon_refuted", "last_model"]
    unique = rows[columns].drop_duplicates().sort_values(["privacy_sampling", "epsilon"], kind="stable")
    return [_statement(row) for _, row in unique.iterrows()]


def _statement(row: pd.Series) -> EpsilonStatement:
    hidden = row["last_model"] < row["proven"]
    proven = min(row["proven"], row["last_model"])
    return EpsilonStatement(
        sampling=_words(row["privacy_sampling"]),
        neighbouring=_words(row["privacy_neighbouring"]),
        observer="last model" if hidden else _words(row["privacy_observer"]),
        records=int(row["privacy_records"]),
        steps=int(row["privacy_steps"]),
        delta=float(row["privacy_delta"]),
        noise_multiplier=float(row["privacy_noise_multiplier"]),
        claimed=float(row["epsilon"]),
        proven=float(proven),
        proven_by="contraction, last model alone" if hidden else str(row["privacy_proven_by"]),
        refuted=float(row["privacy_epsilon_refuted"]),
        refuted_by=str(row["privacy_refuted_by"]),
        standing=standing(row["epsilon"], proven, row["privacy_epsilon_refuted"]),
    )


def _words(name: object) -> str:
    return str(name).replace("_", " ")


def counts(known: Iterable[EpsilonStatement]) -> dict[Standing, int]:
    """Return how many statements have each standing."""
    standings = [each.standing for each in known]
    return {each: standings.count(each) for each in Standing}


def counts_in_words(known: Iterable[EpsilonStatement]) -> str:
    """Return how many statements have each standing, without those that none has, as text."""
    return ", ".join(f"{count} {each}" for each, count in counts(known).items() if count)


def by_sampling(known: Iterable[EpsilonStatement]) -> dict[tuple[str, str, str], list[EpsilonStatement]]:
    """Return the statements by sampler, neighbouring relation and observer, in alphabetical order."""
    groups: dict[tuple[str, str, str], list[EpsilonStatement]] = {}
    for each in known:
        groups.setdefault((each.sampling, each.neighbouring, each.observer), []).append(each)
    return dict(sorted(groups.items()))
