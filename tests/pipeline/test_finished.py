"""What a run asks first: whether noise is up to date, and which targets are finished."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dpfl.cli import app
from dpfl.files import record_path
from dpfl.grid import configuration, expansion
from dpfl.pipeline import run, status
from dpfl.pipeline.run import engine_options
from dpfl.provenance.record import StageRecorder
from dpfl.provenance.run_identity import noise_identity


@pytest.fixture
def config(repository, tmp_path, monkeypatch):
    """The demo of two papers, in a folder with the workflow's configuration and profiles."""
    monkeypatch.chdir(tmp_path)
    for name in ("config.yaml", "workflow"):
        Path(name).symlink_to(repository / name)
    Path("mine.yaml").write_text("papers: [bhaskar2025, lowy2021]\n")
    return configuration.overlaid(Path("config.yaml"), Path("mine.yaml"), "demo")


@pytest.fixture
def calibrate(config):
    """A function that writes the noise of a paper without rows, as calibrating it today would."""

    def write(paper):
        table = Path("results/demo/accounting") / f"{paper}.csv"
        table.parent.mkdir(parents=True, exist_ok=True)
        table.write_text("calibration_key\n")
        jobs = [job for job in expansion.expand(config) if job.paper == paper]
        StageRecorder("account", ("dpfl.randomness",), identity=noise_identity(jobs)).write(record_path(table), [table])
        return table

    return write


@pytest.fixture
def two(config, finish):
    """The first job of bhaskar2025, finished, and its last, which is not."""
    own = [job for job in expansion.expand(config) if job.paper == "bhaskar2025"]
    first, last = own[0], own[-1]
    tables = [expansion.run_table(Path("results/demo"), each.paper, each.name) for each in (first, last)]
    return finish(first, Path("results/demo")) and tables


@pytest.fixture
def asked(monkeypatch):
    """The arguments of every call of Snakemake; none is made."""
    calls = []
    monkeypatch.setattr(run, "run", lambda arguments, **_: calls.append(arguments) or 0)
    return calls


def test_noise_is_made_anew_where_there_are_runs_and_it_is_of_other_code(config, calibrate, two):
    assert status.noise_made_anew(config) == [Path("results/demo/accounting/bhaskar2025.csv")]
    table = calibrate("bhaskar2025")
    assert status.noise_made_anew(config) == []
    place = record_path(table)
    place.write_text(place.read_text().replace('"code": "', '"code": "0'))
    assert status.noise_made_anew(config) == [table]


def test_a_run_calibrates_first_and_asks_then_what_is_left(config, calibrate, two, asked, monkeypatch):
    assert CliRunner().invoke(app, ["run", "--config", "mine.yaml", "--", "--cores", "1"]).exit_code == 0
    first, second = asked
    assert first[-3:] == ["results/demo/accounting/bhaskar2025.csv", "--cores", "1"]
    assert second[-2:] == ["--cores", "1"] and first[:-3] == second[:-2]
    asked.clear()
    CliRunner().invoke(app, ["run", "--config", "mine.yaml", "--", "--resources", "gpu=4"])  # takes any number of words
    assert engine_options(asked[0]).targets == {"results/demo/accounting/bhaskar2025.csv"}
    asked.clear()
    dry = CliRunner().invoke(app, ["run", "--config", "mine.yaml", "--dry-run"])
    plan = CliRunner().invoke(app, ["plan", "--config", "mine.yaml"])
    for told in (dry, plan):
        assert len(asked) == 1 and "calibrated anew first: results/demo/accounting/bhaskar2025.csv;" in told.output
    monkeypatch.setattr(run, "run", lambda arguments, **_: asked.append(arguments) or 3)
    asked.clear()
    assert CliRunner().invoke(app, ["run", "--config", "mine.yaml"]).exit_code == 3 and len(asked) == 1
    calibrate("bhaskar2025")
    asked.clear()
    CliRunner().invoke(app, ["run", "--config", "mine.yaml"])
    assert len(asked) == 1 and "anew" not in CliRunner().invoke(app, ["plan", "--config", "mine.yaml"]).output


def test_a_finished_target_is_named_and_no_other_left_out(config, calibrate, two, asked):
    done, other = map(str, two)
    calibrate("bhaskar2025")
    words = ["run", "--config", "mine.yaml", "--"]
    only = CliRunner().invoke(app, [*words, "--cores", "2", done, f"./{record_path(two[0])}"])
    assert only.exit_code == 0 and asked == []
    assert only.output.splitlines() == [
        f"dpfl: {path} is finished: training it again would give the same" for path in (done, record_path(two[0]))
    ]
    assert CliRunner().invoke(app, [*words, "--keep-going", done, other]).exit_code == 0
    assert [call[-2:] for call in asked] == [["--keep-going", other]]
    os.unlink(done)
    CliRunner().invoke(app, [*words, done])
    assert asked[-1][-2:] == ["workflow/profiles/default", done]
