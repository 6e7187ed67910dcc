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
    """Return one row per attacked run, as every paper's table of canaries, with scenario and preparation."""
    runs = results.runs(KEY, experiment=EXPERIMENT).reindex(columns=["scenario", "preparation"])
    return canaries(results, KEY).assign(**{name: runs[name].to_numpy() for name in runs})


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
