"""Tables: the errata, and statements on trade-off functions by two routes."""

from __future__ import annotations

from dpfl.papers.vandijk2023.checks import all_checks
from dpfl.reporting.errata import errata_recipe
from dpfl.reporting.evidence import checks_page, table
from dpfl.reporting.tables import TableRecipe

TABLES = {
    "errata": errata_recipe("vandijk2023"),
    "checks": TableRecipe(lambda results: table(all_checks()), checks_page),
}
