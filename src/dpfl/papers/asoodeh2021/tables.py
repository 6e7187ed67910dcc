"""Tables: the errata, and the theorems against other forms and exact one-dimensional runs."""

from __future__ import annotations

from dpfl.papers.asoodeh2021.checks import all_checks
from dpfl.papers.asoodeh2021.errata import all_errata
from dpfl.reporting.evidence import checks_page, errata_page, table
from dpfl.reporting.tables import TableRecipe

TABLES = {
    "errata": TableRecipe(lambda results: table(all_errata()), errata_page),
    "checks": TableRecipe(lambda results: table(all_checks()), checks_page),
}
