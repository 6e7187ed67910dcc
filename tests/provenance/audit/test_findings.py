"""Removing damage takes along what was made from it, and nothing that a stranger's record names elsewhere."""

import json
import os

import pytest
from typer.testing import CliRunner

from dpfl.cli import app
from dpfl.errors import InputError, printable
from dpfl.files import record_path
from dpfl.pipeline.lock import only_run
from dpfl.provenance.audit.files import audit
from dpfl.provenance.audit.findings import Audit, Finding, remove_damaged
from dpfl.provenance.trace import readable_records


def rebuild(folder):
    """What `dpfl audit --files-only --rebuild` prints."""
    return CliRunner().invoke(app, ["audit", "--files-only", "--rebuild", str(folder)]).output


@pytest.mark.parametrize("name", ["../victim/thesis.docx", "/tmp/thesis.docx", "results/demo/../../victim/thesis.docx"])
def test_a_record_that_names_a_foreign_file_removes_only_itself(chain, name):
    victim = chain.parents[2] / "victim"
    victim.mkdir(exist_ok=True)
    for ending in ("docx", "csv", "tex"):
        (victim / f"thesis.{ending}").write_text("mine")
    place = record_path(chain / "table.csv")
    record = json.loads(place.read_text())
    record["outputs"][0]["path"] = name
    place.write_text(json.dumps(record))
    assert "damaged" in rebuild(chain)
    assert sorted(path.name for path in victim.iterdir()) == ["thesis.csv", "thesis.docx", "thesis.tex"]
    assert not place.exists()


def test_a_link_is_a_finding_and_what_it_points_at_stays(chain):
    victim = chain.parents[2] / "victim.csv"
    (chain / "table.csv").rename(victim)
    (chain / "table.csv").symlink_to(victim)
    assert "table.csv is not a regular file" in rebuild(chain)
    assert victim.exists()


def test_what_was_made_from_damage_goes_and_what_read_the_right_bytes_stays(chain):
    root, run = chain.parents[1], chain / "runs" / "run.csv"
    run.write_bytes(run.read_bytes() + b"x")
    records = readable_records(chain)
    assert remove_damaged(audit(chain), root, records) == (2, [])
    assert (chain / "table.csv").exists() and not run.exists()


def test_a_table_made_from_damage_goes_with_it(chain):
    root, run, table = chain.parents[1], chain / "runs" / "run.csv", chain / "table.csv"
    place = record_path(table)
    record = json.loads(place.read_text())
    for entry in record["inputs"]:
        entry["sha256"] = "0" * 64 if entry["path"].endswith("run.csv") else entry["sha256"]
    place.write_text(json.dumps(record))
    finding = Finding("results/demo/runs/run.csv", "changed", (run, record_path(run)))
    assert remove_damaged(Audit(findings=[finding]), root, readable_records(chain)) == (4, [])
    assert not table.exists()


@pytest.mark.parametrize("spelling", [".", "../demo", "../../results/demo/", "absolute"])
def test_a_folder_is_the_same_however_it_is_spelled(chain, monkeypatch, spelling):
    monkeypatch.chdir(chain)
    there = sorted(chain.rglob("*"))
    assert rebuild(chain if spelling == "absolute" else spelling).endswith(
        "0 files deleted; run make to have them made again\n"
    )
    assert sorted(chain.rglob("*")) == there


@pytest.mark.parametrize("spelling", ["runs", "..", "../.."])
def test_a_folder_that_is_no_scale_loses_nothing(chain, monkeypatch, spelling):
    monkeypatch.chdir(chain)
    there = sorted(chain.rglob("*"))
    done = CliRunner().invoke(app, ["audit", "--files-only", "--rebuild", spelling])
    assert isinstance(done.exception, InputError) and "results/" in str(done.exception)
    assert sorted(chain.rglob("*")) == there


def test_a_renamed_scale_loses_nothing(chain):
    moved = chain.rename(chain.with_name("old"))
    there = sorted(moved.rglob("*"))
    done = CliRunner().invoke(app, ["audit", "--files-only", "--rebuild", str(moved)])
    assert isinstance(done.exception, InputError) and "results/demo" in str(done.exception)
    assert sorted(moved.rglob("*")) == there


def test_nothing_is_deleted_while_a_run_is_at_work(chain):
    (chain / "runs" / "run.csv").write_text("x")
    with only_run(chain.parents[1]):
        done = CliRunner().invoke(app, ["audit", "--files-only", "--rebuild", str(chain)])
    assert isinstance(done.exception, InputError) and "another run is at work" in str(done.exception)
    assert (chain / "runs" / "run.csv").exists()


def test_damage_on_another_disk_is_named_and_left(chain, tmp_path_factory):
    disk, run = tmp_path_factory.mktemp("disk"), chain / "runs" / "run.csv"
    (chain / "runs").rename(disk / "runs")
    (chain / "runs").symlink_to(disk / "runs")
    run.write_text("x")
    said = rebuild(chain)
    assert f"not deleted, as it lies outside the project: {disk / 'runs' / 'run.csv'}" in said and run.exists()


def test_texts_of_strangers_stay_on_their_line():
    assert printable("a\nb\x1b[31mc\u202e") == "a\\nb\\x1b[31mc\\u202e"
    audit_ = Audit(findings=[Finding("x\ny", "is missing")])
    assert audit_.lines()[0] == "x\\ny is missing"


def test_damaged_data_go_though_no_result_has_read_them_yet(project):
    """A run that is to be trained asks for this audit: without it there was no way on but by hand."""
    features = project.root / "data" / "features" / "digits" / "train_x.npy"
    before, content = features.stat(), bytearray(features.read_bytes())
    content[-1] ^= 1
    features.write_bytes(content)
    os.utime(features, ns=(before.st_atime_ns, before.st_mtime_ns))
    for path in project.runs:
        path.unlink()
        record_path(path).unlink()
    assert "data/features/digits/train_x.npy changed since stage" in rebuild(project.results)
    assert not features.exists() and (project.root / "data/arrays/digits/train_x.npy").exists()
