"""Derived pages: files for readers that show finished CSV files and add no number.

Git stores the CSV, Markdown and PNG files; LaTeX, HTML, SVG, PDF and captions are made from them, without run tables.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from dpfl.catalog import load
from dpfl.grid.expansion import page_path, verdicts_path
from dpfl.reporting import claims, figures, tables

DERIVED = (".tex", ".html", ".svg", ".pdf", ".rst")


def derive(folder: Path, paper: str, but: Collection[Path] = ()) -> list[Path]:
    """Write the derived pages of a paper's tables, figures and claims in results/<scale>; return their paths.

    A page whose CSV file is not there is left out, and so are those of the CSV files in `but`.
    """
    paths = []
    for kind, write in (("tables", tables.write_pages), ("figures", figures.write_pictures)):
        for name in getattr(load(paper), kind):
            csv = page_path(folder, kind, paper, name)
            paths += write(paper, name, csv, DERIVED) if csv.exists() and csv not in but else []
    verdicts = verdicts_path(folder, paper)
    return [*paths, claims.write_page(paper, verdicts)] if verdicts.exists() and verdicts not in but else paths
