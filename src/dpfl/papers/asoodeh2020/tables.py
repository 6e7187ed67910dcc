"""Tables: the errata, and the theorems against exact one-dimensional runs."""

from __future__ import annotations

from dpfl.papers.asoodeh2020.checks import all_checks
from dpfl.reporting.errata import errata_recipe
from dpfl.reporting.evidence import checks_page, table
from dpfl.reporting.tables import TableRecipe

TABLES = {
    "errata": errata_recipe("asoodeh2020"),
    "checks": TableRecipe(lambda results: table(all_checks()), checks_page),
}
