"""An audit finds every change, and nothing where nothing changed."""

import json
import shutil
from pathlib import Path

import pytest

from dpfl.errors import InputError
from dpfl.files import record_path, with_checksum
from dpfl.provenance.audit.files import audit
from dpfl.provenance.record import StageRecorder


def problems(folder):
    """What an audit says, as (path, problem)."""
    return [(finding.path, finding.problem) for finding in audit(folder).findings]


def test_an_untouched_folder_has_no_findings(chain):
    seen = audit(chain)
    assert len(seen.hashes) == 3 and seen.findings == [] and seen.absent == []


@pytest.mark.parametrize("name", ["raw.csv", "runs/run.csv", "table.csv"])
def test_one_flipped_byte_is_found_and_named_once(chain, name):
    data = bytearray((chain / name).read_bytes())
    data[0] ^= 1
    (chain / name).write_bytes(data)
    [(path, problem)] = problems(chain)
    assert path.endswith(name) and "changed" in problem


def test_a_missing_file_is_found(chain):
    (chain / "raw.csv").unlink()
    assert [problem for _, problem in problems(chain)] == ["is missing"]


def test_a_derived_page_may_be_absent_but_is_checked_where_it_is_there(chain):
    table, page = chain / "table.csv", chain / "table.html"
    page.write_text("<table>")
    stage = StageRecorder("tables", ("dpfl.grid.expansion",))
    stage.write(record_path(table), [table, page])
    assert problems(chain) == [] and len(audit(chain).hashes) == 4
    page.write_text("<p>")
    assert [problem for _, problem in problems(chain)] == ["changed since stage tables wrote it"]
    page.unlink()
    seen = audit(chain)
    assert seen.findings == [] and len(seen.hashes) == 3
    assert [path.rpartition("/")[2] for path in seen.not_made] == ["table.html"]


def test_a_table_made_from_another_run_is_found(chain):
    run = chain / "runs" / "run.csv"
    run.write_text("another\n")
    StageRecorder("runs/run.csv", ("dpfl.grid.expansion",)).write(record_path(run), [run])
    [(path, problem)] = problems(chain)
    assert "another" in problem and "table.csv" in path


def test_data_outside_the_folder_are_checked_where_they_are_there(chain):
    data, table = chain.parents[1] / "data", chain / "table.csv"
    data.mkdir()
    source = data / "x.npy"
    source.write_text("1")
    StageRecorder("data arrays", ("dpfl.grid.expansion",)).write(record_path(source), [source])
    stage = StageRecorder("tables", ("dpfl.grid.expansion",))
    stage.reads([source])
    stage.write(record_path(table), [table])
    assert problems(chain) == []
    source.write_text("2")
    assert [path for path, _ in problems(chain)] == ["data/x.npy"]
    shutil.rmtree(data)
    assert problems(chain) == [] and audit(chain).absent == ["data/x.npy"]


def test_a_folder_that_was_moved_with_its_project_is_still_intact(chain, tmp_path, monkeypatch):
    moved = tmp_path / "elsewhere" / "results" / "demo"
    shutil.copytree(chain, moved)
    shutil.rmtree(chain)
    monkeypatch.chdir("/")
    assert problems(moved) == []


def test_a_damaged_checkpoint_and_a_damaged_record_are_found(chain):
    kept = chain.parents[1] / "checkpoints" / "demo" / f"job-{'0a' * 16}.pt"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(with_checksum(b"state"))
    assert problems(chain) == []
    kept.write_bytes(with_checksum(b"state")[:-1] + b"x")
    record_path(chain / "raw.csv").write_text("{")
    kept.with_name("mine.pt").write_text("a file that no training wrote")
    found = problems(chain)
    assert [path for path, _ in found if path.endswith(".pt")] == [str(kept)]
    assert any("raw.csv.record.json" in path for path, _ in found)


@pytest.mark.parametrize("part", ["bytes", "sha256", "path"])
def test_a_record_that_describes_another_file_is_found(chain, part):
    place = record_path(chain / "table.csv")
    record = json.loads(place.read_text())
    record["outputs"][0][part] = {"bytes": 7, "sha256": "0" * 64, "path": "results/demo/tabel.csv"}[part]
    place.write_text(json.dumps(record))
    assert {Path(path).stem for path, _ in problems(chain)} <= {"table", "tabel", "table.csv.record"} and problems(
        chain
    )


def test_what_to_delete_is_the_damaged_stage_s_outputs_and_record(chain):
    (chain / "runs" / "run.csv").write_text("x")
    [finding] = audit(chain).findings
    assert {path.name for path in finding.remove} == {"run.csv", "run.csv.record.json"}


def test_a_folder_without_records_is_refused(tmp_path):
    with pytest.raises(InputError, match="no record below"):
        audit(tmp_path / "results" / "demo")


def test_noise_that_was_calibrated_anew_for_other_jobs_is_no_finding(chain):
    noise, run = chain / "accounting" / "paper.csv", chain / "runs" / "run.csv"
    noise.parent.mkdir()

    def calibrate(text):
        noise.write_text(text)
        StageRecorder("account", ("dpfl.grid.expansion",)).write(record_path(noise), [noise])

    calibrate("a")
    stage = StageRecorder("train", ("dpfl.grid.expansion",))
    stage.reads([noise])
    stage.write(record_path(run), [run])
    assert problems(chain) == []
    calibrate("b")
    assert problems(chain) == []
    noise.write_text("c")
    assert [path for path, _ in problems(chain)] == ["results/demo/accounting/paper.csv"]
