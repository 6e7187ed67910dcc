"""The injectors themselves: a few faults of each kind, and that a refusal that is none is counted as a failure."""

from importlib import import_module
from pathlib import Path

import pytest

from dpfl import catalog
from dpfl.data import datasets


@pytest.fixture(autouse=True)
def shipped_datasets():
    """Put the list of datasets back after an injector has put its own in the place."""
    shipped = catalog.DATASETS
    yield
    catalog.DATASETS = shipped
    catalog.dataset_entries.cache_clear()
    datasets.load.cache_clear()


@pytest.fixture
def harness(monkeypatch):
    """The injectors as `python tests/faults/inject.py` finds them."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return import_module("harness")


@pytest.mark.parametrize(
    "kind",
    [
        "configurations",
        "command_lines",
        "mirrors",
        pytest.param("files", marks=pytest.mark.slow),
        pytest.param("commands", marks=pytest.mark.slow),
    ],
)
def test_a_few_faults_are_survived_found_or_refused(harness, tmp_path, monkeypatch, capsys, kind):
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert harness.report(kind, import_module(kind).inject(5, 3, folder)), capsys.readouterr().out


@pytest.mark.parametrize(
    "ended",
    [
        (0, "", ""),
        (1, "", "dpfl: x\n"),
        (2, "", "dpfl: x\nmore\n"),
        (2, "said", "dpfl: x\n"),
        (2, "", "x\n"),
        (2, "", "dpfl: \x1b[31m\n"),
        (None, "", ""),
    ],
)
def test_what_is_no_refusal_in_one_line_is_a_failure(harness, capsys, ended):
    assert harness.refused_in_one_line(harness.Ended(*ended))
    assert harness.refused_in_one_line(harness.Ended(2, "", "dpfl: x\n")) == ""
    assert not harness.report("x", [("kind: 1", "problem"), ("kind: 2", "")])
    assert "2 injected, 1 failed" in capsys.readouterr().out
