"""Any part of a paper's grid has its pages: drawn from what was run, or with the reason why they are empty.

The runs are those that are shipped, at scale paper; a part is what `only` keeps of them by one value of one axis.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from dpfl.catalog import keys, load, recipe
from dpfl.errors import InputError
from dpfl.grid import configuration, expansion
from dpfl.reporting import figures, tables
from dpfl.reporting.claims import evaluate
from dpfl.reporting.results import Results, compute_or_placeholder, read_csv, write_csv

AXES = tuple(configuration.schema()["properties"]["only"]["properties"])
pytestmark = pytest.mark.slow


def parts(key: str, axis: str) -> Iterator[tuple[dict, set]]:
    """Yield the configurations that keep one value of an axis that the paper's runs have, and the other values."""
    jobs = expansion.expand(configuration.resolve({"scale": "paper", "papers": [key]}))
    rows = [row for job in jobs for row in (job.settings, *job.cells)]
    values = {row[axis] for row in rows if axis in row} | ({"none"} if axis == "study" else set())
    if not values:
        pytest.skip(f"{key} has no value of {axis} to keep")
    for value in sorted(values, key=str):
        yield configuration.resolve({"scale": "paper", "papers": [key], "only": {axis: [value]}}), values - {value}


def part_of(shipped: Path, folder: Path, config: dict, axis: str, others: set) -> Results:
    """Write the shipped runs of a configuration below `folder`, without rows of other values; return them as results.

    A run whose noise is given, not its epsilon, has an epsilon that no cell names: it is kept.
    """
    [key] = config["papers"]
    written = []
    for job in expansion.expand(config):
        source = expansion.run_table_path(shipped, key, job.name)
        if source.is_file():
            runs = read_csv(source)
            written.append(folder / f"{job.name}.csv")
            write_csv(runs[~runs[axis].isin(others)] if axis in job.cells[0] and axis in runs else runs, written[-1])
    return Results(folder / "paper", {key: tuple(written)})


def make(results: Results, key: str, kind: str, name: str, data: pd.DataFrame | None) -> None:
    """Write a page from the results; only the data where they are given, for those follow from no run."""
    csv = results.folder / kind / f"{key}_{name}.csv"
    csv.parent.mkdir(parents=True, exist_ok=True)
    if kind == "tables" and data is None:
        tables.make(key, name, results, csv.parent)
        return
    write_csv(compute_or_placeholder(recipe(key, kind, name).data, results, key, name) if data is None else data, csv)
    if data is None:
        figures.write_pictures(key, name, csv, (".png",))


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("key", keys())
def test_any_part_of_the_grid_has_every_page(repository, tmp_path, computed, key, axis):
    made = 0
    for number, (config, others) in enumerate(parts(key, axis)):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            results = part_of(repository / "results" / "paper", folder, config, axis, others)
        except InputError as reason:  # the paper has no run outside of its studies, say
            assert "leaves no run" in str(reason)
            continue
        made += 1
        for kind in ("tables", "figures"):
            for name in getattr(load(key), kind):
                make(results, key, kind, name, computed(key, kind, name))
        evaluate(key, results)
    assert made
