import json
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from filelock import FileLock
from hypothesis import settings

from dpfl.data.arrays import build_arrays, write_dataset
from dpfl.files import record_path
from dpfl.grid.training_job import Folders
from dpfl.reporting.results import write_table

# The same examples every time: a test that fails here fails everywhere.
settings.register_profile("dpfl", derandomize=True, deadline=None, max_examples=40)
settings.load_profile("dpfl")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--part K/N`: the tests of one of N parts, a file always in the same part."""
    parser.addoption("--part", default="1/1", help="run the files of part K of N, as 3/8")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the files of the other parts."""
    asked = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", config.getoption("part"))
    if not asked or int(asked[1]) > int(asked[2]):
        raise pytest.UsageError(f"--part {config.getoption('part')}: give K/N with K from 1 to N, as 3/8")
    part, parts = int(asked[1]), int(asked[2])
    mine = {item: zlib.crc32(item.nodeid.split("::")[0].encode()) % parts == part - 1 for item in items}
    config.hook.pytest_deselected(items=[item for item in items if not mine[item]])
    items[:] = [item for item in items if mine[item]]


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return Path(__file__).parents[1]


@pytest.fixture(scope="session", autouse=True)
def remembered_renyi_divergences() -> Iterator[None]:
    """Compute Opacus's Renyi divergence of one step once per (rate, noise, order): a calibration takes seconds.

    The function is pure, so no answer changes; the same calibrations are asked for by many tests.
    """
    try:
        from opacus.accountants.analysis import rdp  # seconds, that the process which only hands out tests can spare
    except ImportError:  # tests/gpu runs without Opacus
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rdp, "_compute_rdp", cache(rdp._compute_rdp))
        yield


@pytest.fixture(autouse=True)
def no_figure_stays_open() -> Iterator[None]:
    """Close the figures that a test has drawn: matplotlib warns of the twenty-first that is open in a process."""
    yield
    if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
        pyplot.close("all")


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], None]], Path]:
    """A function (name, make) that returns a folder which `make` filled once, for all processes of pytest-xdist.

    No test may change the folder.
    """
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    def once(name: str, make: Callable[[Path], None]) -> Path:
        folder, finished = shared / name, shared / f"{name}.finished"
        with FileLock(shared / f"{name}.lock"):
            if not finished.exists():
                folder.mkdir()
                make(folder)
                finished.touch()
        return folder

    return once


@pytest.fixture(scope="session")
def own_run() -> Callable[..., Path]:
    """Write a run of `dpfl fedavg` to a folder, without training: its table and the record of its settings."""

    def write(folder: Path, seed: int | str, accuracies: list[float], **settings: Any) -> Path:
        recorded = {"data_sha256": "a" * 64, "model_source_sha256": "b" * 64, "noise_multiplier": None}
        recorded |= {name: settings.pop(name) for name in [*recorded] if name in settings}
        identity = {"paper": "none", "job": "my.npz_net:Net", "experiment": "own_federation", "dataset": "my.npz"}
        described = {"stand_in_for": "", "data_note": "", "model": "net:Net", "sampler": "poisson", "epsilon": 3.0}
        measured = {"accuracy_pct": accuracies[-1], "accuracy_pct_by_round": json.dumps(accuracies)}
        row = {**identity, **described, **settings, "seed": seed, "status": "finished", **measured}
        write_table(pd.DataFrame([{**row, "noise_multiplier": 1.5}]), folder / "runs.csv")
        record_path(folder / "runs.csv").write_text(json.dumps({"settings": recorded}))
        return folder

    return write


@pytest.fixture(scope="session")
def digits(tmp_path_factory) -> Folders:
    """The digits of scikit-learn; no features."""
    folder = tmp_path_factory.mktemp("data")
    build_arrays("digits", folder / "arrays" / "digits")
    return Folders.of(folder, "digits")


@pytest.fixture(scope="session")
def bars(tmp_path_factory) -> Path:
    """Ten classes, each a bright bar at its own place on noise: easy, so that learning can be told from chance."""
    folder = tmp_path_factory.mktemp("bars") / "arrays"
    draw = np.random.default_rng(0)
    records = {"train": 300, "test": 100}
    arrays = {}
    for part, count in records.items():
        labels = np.arange(count, dtype=np.int64) % 10
        images = draw.integers(0, 60, (count, 1, 28, 28), dtype=np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[0, :, 2 + 2 * label : 5 + 2 * label] += 150
        arrays |= {f"{part}_x": images, f"{part}_y": labels}
    description = {"name": "digits", "title": "Bars", "stand_in_for": "mnist", "note": "Not MNIST.", "licence": "none"}
    write_dataset(folder, arrays, {**description, "records": records})
    return folder
