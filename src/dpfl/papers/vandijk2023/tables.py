"""Table: attacks on what asynchronous clients send."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpfl.papers.vandijk2023.reference_run import KEY
from dpfl.reporting.canary_table import EXPERIMENT, canaries, canaries_page, control_notes
from dpfl.reporting.tables import TableLayout, TableRecipe

if TYPE_CHECKING:
    import pandas as pd

    from dpfl.reporting.results import Results


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
    return TableLayout(body, layout.notes)


TABLES = {
    "canaries": TableRecipe(attacks_data, attacks_page, privacy_notes=control_notes),
}
