"""Table: the errata."""

from __future__ import annotations

from dpfl.reporting.errata import errata_recipe

TABLES = {"errata": errata_recipe("asoodeh2020")}
