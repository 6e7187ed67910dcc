"""Privacy card: one page of plain English that says what a run's epsilon is, and all that it rests on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from dpfl.accounting.neighbouring import Neighbouring, Observer
from dpfl.reporting.bounds import at_least, at_most
from dpfl.reporting.display_names import epsilon_verdict
from dpfl.reporting.tables import TableLayout, markdown

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


def card(title: str, facts: Mapping[str, str], notes: Sequence[str]) -> str:
    """Return a card as Markdown: its title, a row a fact, and notes on what the epsilon does not cover."""
    body = pd.DataFrame({"what": list(facts), "value": list(facts.values())})
    return markdown(TableLayout(body, list(notes)), title)


def statement_facts(stated: Mapping[str, Any], claimed: float | None) -> dict[str, str]:
    """Return the facts of a privacy statement, given by its columns `privacy_...`, and what becomes of a claim.

    Proven epsilons are rounded up, exceeded ones down. `claimed` is None, nan or inf where nothing is claimed.
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
        "Sampler": f"{_words(own['sampling'])}; a step uses a record with probability {own['sample_rate']:.4g}",
        "Noisy steps": f"{own['steps']}",
        "Neighbouring data": f"{_words(own['neighbouring'])}: {_RELATIONS[Neighbouring(own['neighbouring'])]}",
        "Adversary": _OBSERVERS[Observer(own["observer"])],
        "delta": f"{own['delta']:g}",
        "epsilon, claimed": f"{claimed:.6g} ({verdict})" if known else "none",
        "epsilon, proven": f"at most {at_most(proven)}, by: {own['proven_by']}" if proven < math.inf else "none",
        "epsilon, exceeded": f"at least {at_least(exceeded)}, by: {own['refuted_by']}" if exceeded else "none is known",
    }


def _words(name: str) -> str:
    return str(name).replace("_", " ")
