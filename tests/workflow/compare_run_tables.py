"""Compare run tables of two trees of the source, to show that a change of the code leaves the numbers alone.

    OMP_NUM_THREADS=1 PYTHONPATH=<tree>/src python tests/workflow/compare_run_tables.py write FOLDER
    python tests/workflow/compare_run_tables.py compare OLD NEW sigma=noise_std ...

`write` trains the first job of every experiment of the demo, two cells and one seed of it, and writes calibration and
run table as CSV. `compare` names every column that only one side has, after the renames, and every column whose text
differs; it exits 1 where one differs. Threads change sums of floats, so their number is one.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from pathlib import Path

import pandas as pd

CELLS, SEEDS = 2, 1


def write(folder: Path) -> None:
    """Train one small job of every experiment, canaries of both kinds, and write its tables to `folder`."""
    from dpfl import experiments
    from dpfl.data.arrays import build_arrays
    from dpfl.features.scattering import build_features
    from dpfl.grid import configuration, expansion
    from dpfl.grid.training_job import Folders

    done = set()
    for job in expansion.expand(configuration.resolve({"scale": "demo"})):
        name = job.experiment + (job.settings.get("model", "") if job.experiment == "canaries" else "")
        if name in done:
            continue
        done.add(name)
        small = dataclasses.replace(job, cells=job.cells[:CELLS], seeds=job.seeds[:SEEDS])
        folders = Folders.of(folder / "data", job.dataset)
        if not folders.arrays.exists():
            build_arrays(job.dataset, folders.arrays)
        if job.needs_features and not folders.features.exists():
            build_features(folders.arrays, folders.features, lambda done, total: None)
        _train(experiments.load(job.experiment), small, folders, folder / name)


def _train(experiment, job, folders, output: Path) -> None:
    """Calibrate and train one job and write both tables."""
    from dpfl.engine.memory_budget import with_memory

    description = importlib.import_module("dpfl.data.loading").load_description(folders.arrays)
    job = with_memory(job)
    calibration = experiment.calibrate(job, description)
    calibration.to_csv(output.with_suffix(".noise.csv"), index=False)
    table = experiment.train(job, folders, calibration, None, lambda done, total: None)
    table.to_csv(output.with_suffix(".runs.csv"), index=False)


def differences(old: Path, new: Path, renames: dict[str, str]) -> tuple[list[str], list[str]]:
    """Return what the tables of two folders differ by: columns that only one side has, and columns whose text differs.

    `renames` maps columns of `old` to those of `new`. Raises ValueError where the folders hold other tables.
    """
    names = sorted(path.name for path in old.glob("*.csv"))
    if not names or names != sorted(path.name for path in new.glob("*.csv")):
        raise ValueError(f"{old} and {new} hold other tables, or none")
    alone, changed = [], []
    for name in names:
        before, after = (pd.read_csv(folder / name, dtype=str, keep_default_na=False) for folder in (old, new))
        before = before.rename(columns=renames)
        alone += [f"{name}: only old has {column}" for column in before if column not in after]
        alone += [f"{name}: only new has {column}" for column in after if column not in before]
        common = [column for column in before if column in after]
        changed += [f"{name}: {column}" for column in common if not before[column].equals(after[column])]
    return alone, changed


def main(arguments: list[str]) -> int:
    """Run one of the two commands; return 1 where numbers differ."""
    if arguments[0] == "write":
        folder = Path(arguments[1])
        folder.mkdir(parents=True, exist_ok=True)
        write(folder)
        return 0
    old, new, *renames = arguments[1:]
    alone, changed = differences(Path(old), Path(new), dict(each.split("=") for each in renames))
    print("\n".join([*alone, *(f"differs: {each}" for each in changed)]) or "the same")
    return int(bool(changed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
