"""Table: attacks on what asynchronous clients send."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpfl.papers.vandijk2023.reference_run import KEY
from dpfl.reporting.canary_table import EXPERIMENT, canaries, canaries_page, control_notes
from dpfl.reporting.tables import TableLayout, TableRecipe

if TYPE_CHECKING:
    import pandas as pd

    from dpfl.reporting.results import Results


_NETWORKS = (
    "Networks, with the time of one round as unit: late d: every message takes d. Reordered d: it takes d on average, "
    "so messages overtake each other. Dropped, lost: this share in % of the broadcasts, of the updates, never arrives. "
    "Spread s: the fastest client is s times as fast as the slowest. Window w: the server steps once in w. Asked p: "
    "the server asks p % of the clients. Near: a client whose model is more than 5 from the last one received waits."
)


def attacks_data(results: Results) -> pd.DataFrame:
    """Return one row per attacked run, as every paper's table of canaries, with its network, preparation, batch and
    steps."""
    runs = results.runs(KEY, experiment=EXPERIMENT).rename(columns={"privacy_steps": "steps"})
    more = runs.reindex(columns=["scenario", "preparation", "batch_size", "steps"])
    return canaries(results, KEY).assign(**{name: more[name].to_numpy() for name in more})


def attacks_page(data: pd.DataFrame) -> TableLayout:
    """Lay the table out with the network in place of what is clipped."""
    layout = canaries_page(data)
    names = data["scenario"].where(data["preparation"] == "none", data["scenario"] + ", " + data["preparation"])
    body = layout.body.drop(columns=["what is clipped", "noise"])
    body.insert(1, "network", names.str.replace("_", " "))
    return TableLayout(body, [_NETWORKS, *layout.notes])


TABLES = {
    "canaries": TableRecipe(attacks_data, attacks_page, privacy_notes=control_notes),
}
