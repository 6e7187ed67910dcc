"""Tables: the errata, and the exponents that the runs show."""

from __future__ import annotations

import pandas as pd

from dpfl.papers.asoodeh2021.figures import slopes
from dpfl.reporting.display_names import count_range, stand_ins
from dpfl.reporting.errata import errata_recipe
from dpfl.reporting.tables import TableLayout, TableRecipe


def rates_page(data: pd.DataFrame) -> TableLayout:
    """Lay the exponents out for a reader."""
    body = pd.DataFrame(
        {
            "Study": data["study"],
            "Data": data["dataset"],
            "m": data["batch_size"].map("{:g}".format),
            "Against": data["against"],
            "At": data["fixed"],
            "Exponent": [
                f"{value:.3f} ± {half:.3f}" for value, half in zip(data["slope"], data["interval"], strict=True)
            ],
            "Claimed": data["expected"].map("{:g}".format),
            "Points": data["points"].map(str),
        }
    )
    notes = [f"Mean of the seeds' exponents ± half-width of the 90 % interval, {count_range(data['runs'])} seeds."]
    notes += [f"Stand-in data: {name}." for name in stand_ins(data)]
    return TableLayout(body, notes)


TABLES = {
    "errata": errata_recipe("asoodeh2021"),
    "rates": TableRecipe(slopes, rates_page),
}
