"""Privacy cards of a run or of a table's private cells: in plain English an epsilon, and all that it rests on."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pandas as pd

from dpfl import __version__
from dpfl.accounting.neighbouring import Neighbouring, Observer
from dpfl.accounting.statements import decode
from dpfl.catalog import load
from dpfl.reporting.display_names import (
    at_least,
    at_most,
    data_name,
    epsilon_verdict,
    in_words,
    model_name,
    with_greek_symbols,
)

_RELATIONS = {
    Neighbouring.ADD_OR_REMOVE: "one record more or one fewer",
    Neighbouring.REPLACE_ONE: "one record becomes another",
    Neighbouring.ZERO_OUT: "one record's contribution becomes zero; the number of records is public",
}
_OBSERVERS = {
    Observer.EVERY_STEP: "sees the model after every step, and knows all other records",
    Observer.LAST_ITERATE: "sees the last model only, and knows all other records",
    Observer.ROUND_ENDS: "sees the model after every round, and knows all other records",
}


def card(
    title: str,
    facts: Mapping[str, str],
    notes: Sequence[str],
    epsilons: pd.DataFrame | None = None,
    condition: str | None = None,
) -> str:
    """Return a card as Markdown: its title, a row for each fact, notes, and below them a table of several epsilons.

    `condition` is what every epsilon of the card depends on: it comes first.
    """
    parts = [
        f"**{title}**",
        *([condition] if condition else []),
        _markdown(pd.DataFrame({"what": list(facts), "value": list(facts.values())})),
    ]
    parts += ["\n".join(f"- {note}" for note in notes)] + ([] if epsilons is None else [_markdown(epsilons)])
    return "\n\n".join(parts) + "\n"


def _markdown(body: pd.DataFrame) -> str:
    return body.to_markdown(index=False, disable_numparse=True)


def statement_facts(stated: Mapping[str, Any], claimed: float | None) -> dict[str, str]:
    """Return the facts of a privacy statement, given by its columns `privacy_...`, and what becomes of a claim.

    Proven epsilons are rounded up, exceeded ones down. `claimed` is None, nan or inf if nothing is claimed.
    """
    own = {name.removeprefix("privacy_"): value for name, value in stated.items() if name.startswith("privacy_")}
    proven, exceeded, noise = own["epsilon_proven"], own["epsilon_refuted"], own["noise_multiplier"]
    known = claimed is not None and math.isfinite(claimed)
    verdict = epsilon_verdict(claimed, proven, exceeded) if known else ""
    clipped = "nothing is clipped" if math.isinf(own["clip_norm"]) else f"clip norm {own['clip_norm']:g}"
    return {
        "Mechanism": f"DP-SGD: Gaussian noise on a batch's sum of gradients; {clipped}; noise multiplier {noise:.6g}"
        if noise
        else f"no noise: no privacy; {clipped}",
        "Sampler": f"{in_words(own['sampling'])}; a step uses a record with probability {own['sample_rate']:.4g}",
        "Noisy steps": f"{own['steps']}",
        "Neighbouring data": f"{in_words(own['neighbouring'])}: {_RELATIONS[Neighbouring(own['neighbouring'])]}",
        "Adversary": _OBSERVERS[Observer(own["observer"])],
        "delta": f"{own['delta']:g}",
        "epsilon, claimed": f"{claimed:.6g} ({verdict})" if known else "none",
        "epsilon, proven": f"at most {at_most(proven)}, by: {own['proven_by']}" if proven < math.inf else "none",
        "epsilon, exceeded": f"at least {at_least(exceeded)}, by: {own['refuted_by']}" if exceeded else "none is known",
    }


_SETTING = [
    "privacy_sampling", "epsilon", "privacy_epsilon_proven", "privacy_epsilon_refuted", "privacy_clip_norm",
    "privacy_noise_multiplier", "privacy_steps", "privacy_records", "privacy_delta", "privacy_neighbouring",
    "privacy_observer",
]  # fmt: skip
_EPSILON = r"\bepsilon \d[\d.e+-]*(?<!\.)"
_IN_WORDS = {
    r"noise as published \(moments\) for epsilon [^;, ]+": "noise of the authors' later script",
    r"noise as published \(advanced_composition\) for epsilon [^;, ]+": "noise of Theorem 2.1",
    "neither that nor the choice of step size is": "the principal components and the choice of step size are not",
    r"\b1 rounds step beyond 2/beta and are accounted for by": "one round has a step above 2/beta, and its bound uses",
    "rounds step beyond 2/beta and are accounted for by": "rounds have a step above 2/beta, and their bound uses",
}
"""What notes of the training code say, in the words of the pages."""
_PUBLIC = "Data and seeds are public: the epsilons are those of the method, and no record is protected by these runs."


def private_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of a run table that have noise, calibrated for an epsilon or given as it is, with known bounds.

    Left out are controls of attacks (`known_bad`), which state an epsilon that is false on purpose.
    """
    if "privacy_noise_multiplier" not in runs:
        return runs.iloc[:0]
    noisy = runs[runs["privacy_noise_multiplier"] > 0]
    return with_known_bounds(noisy[~noisy["known_bad"].eq(True)] if "known_bad" in noisy else noisy)


def with_known_bounds(runs: pd.DataFrame) -> pd.DataFrame:
    """Return runs with the lower bounds on epsilon that are known today in place of those that say "nothing".

    A run table has the bounds that were known when it was trained. A bound that is found later needs no training.
    """
    unknown = runs["privacy_refuted_by"] == "nothing"
    if not unknown.any():
        return runs
    found = [_known_bound(*setting) for setting in runs.loc[unknown, _BOUND].itertuples(index=False)]
    known = runs.copy()
    known.loc[unknown, ["privacy_epsilon_refuted", "privacy_refuted_by"]] = found
    return known


_BOUND = [
    "privacy_mechanism", "privacy_sampler", "privacy_neighbouring", "privacy_noise_multiplier", "privacy_steps",
    "privacy_delta",
]  # fmt: skip


@cache
def _known_bound(
    mechanism: str, sampler: str, neighbouring: str, noise_multiplier: float, steps: float, delta: float
) -> tuple[float, str]:
    """Return the lower bound of a statement, and what gives it, once for all runs that share it."""
    run = {"noise_multiplier": noise_multiplier, "steps": int(steps), "delta": delta}
    found = decode(mechanism).guarantee(decode(sampler), **run, neighbouring=Neighbouring(neighbouring))
    return found.lower, found.lower_by


def table_card(paper: str, name: str, own: pd.DataFrame, limits: Sequence[str] = ()) -> str:
    """Return the card of a paper's table that was made of `own`, private runs of its run tables.

    It has a row for each private setting that differs in the digits shown, with the epsilon that the paper claims for
    it, if any. `limits`: sentences on what limits these epsilons.
    """
    if "epsilon" not in own:
        own = own.assign(epsilon=math.nan)
    facts, settings = load(paper), own.drop_duplicates(_SETTING).sort_values(_SETTING, kind="stable")
    data = own[["dataset", "stand_in_for"]].drop_duplicates().itertuples(index=False)
    rows = [
        {
            "sampler": in_words(row["privacy_sampling"]),
            "ε claimed": "none" if math.isnan(row["epsilon"]) else f"{row['epsilon']:g}",
            "proven": at_most(row["privacy_epsilon_proven"]),
            "exceeded": at_least(row["privacy_epsilon_refuted"]),
            "the claim is": _verdict(row),
            "clip norm": "not stated" if math.isnan(row["privacy_clip_norm"]) else f"{row['privacy_clip_norm']:g}",
            "noise multiplier": f"{row['privacy_noise_multiplier']:.5g}",
            "steps": f"{row['privacy_steps']:.0f}",
            "records of a client": f"{row['privacy_records']:.0f}",
            "δ": f"{row['privacy_delta']:g}",
            "neighbouring": in_words(row["privacy_neighbouring"]),
            "adversary sees": in_words(row["privacy_observer"]),
        }
        for row in settings.to_dict("records")
    ]
    shown = {
        "Table": with_greek_symbols(facts.tables[name]["title"]),
        "Paper": f"{facts.authors}: {facts.title}. {facts.published}. {facts.url}",
        "Data": "; ".join(data_name(dataset, stand_in) for dataset, stand_in in data),
        "Model": ", ".join(_models(own)),
        "Runs": f"{len(own)} with noise",
        "Neighbouring data": "; ".join(
            f"{in_words(each)}: {_RELATIONS[Neighbouring(each)]}" for each in sorted(set(own["privacy_neighbouring"]))
        ),
        "Adversary": "; ".join(_OBSERVERS[Observer(each)] for each in sorted(set(own["privacy_observer"]))),
        "Cite": f"the paper, and dpfl {__version__} for the epsilons that are proven and exceeded",
    }
    notes = [*_run_notes(own["privacy_note"]), *limits, _PUBLIC]
    return card(f"Privacy of {paper}, {name}", shown, notes, pd.DataFrame(rows).drop_duplicates())


def _verdict(setting: Mapping[str, Any]) -> str:
    """Return what becomes of the epsilon that a setting claims, "" where its noise is given and it claims none."""
    bounds = setting["privacy_epsilon_proven"], setting["privacy_epsilon_refuted"]
    return "" if math.isnan(setting["epsilon"]) else epsilon_verdict(setting["epsilon"], *bounds)


def _models(own: pd.DataFrame) -> list[str]:
    """Return the names of the models, that of the experiment where it trains one kind of model only."""
    named = own["model"].fillna("") if "model" in own else pd.Series("", own.index)
    names = named.map(model_name).where(named != "", "that of experiment " + own["experiment"].map(in_words))
    return list(dict.fromkeys(names))


def in_plain_words(note: str) -> str:
    """Return a note of the training code in the words of the pages."""
    for pattern, words in _IN_WORDS.items():
        note = re.sub(pattern, words, note)
    return note


def _run_notes(notes: pd.Series) -> list[str]:
    """Return each fact that runs note about their epsilons, with how many of them it is true of, unless of all.

    A fact that names the epsilon of its run is one for all epsilons, which the card's rows have.
    """
    facts = notes.map(in_plain_words).str.replace(_EPSILON, "its epsilon", regex=True).str.split("; ").explode()
    counts = facts[facts != ""].value_counts(sort=False)
    return [
        f"{fact[0].upper()}{fact[1:]}." if runs == len(notes) else f"{runs} of {len(notes)} runs: {fact}."
        for fact, runs in counts.items()
    ]
