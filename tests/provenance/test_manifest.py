"""The manifest lists every record, has the same bytes each time, and keeps the records of the data."""

import json
import shutil
import sys

import pytest
import yaml

from dpfl.cli import main
from dpfl.errors import InputError
from dpfl.files import file_sha256, record_path
from dpfl.provenance import manifest, trace
from dpfl.provenance.audit.files import audit
from dpfl.provenance.record import StageRecorder


@pytest.fixture
def with_data(chain):
    """raw file -> arrays -> table, the first two outside the results."""
    raw, arrays = (chain.parents[1] / "data" / kind / "x" / "x.npy" for kind in ("raw", "arrays"))
    before = []
    for path in (raw, arrays, chain / "table.csv"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{path.parent.parent.name}")
        stage = StageRecorder(path.parent.parent.name, ("dpfl.grid.expansion",))
        stage.reads(before)
        stage.write(record_path(path), [path])
        before = [path]
    trace.writers.cache_clear()
    return chain


def test_every_record_is_listed_with_its_hash_and_the_bytes_are_the_same(with_data):
    path = manifest.write(with_data)
    text = path.read_bytes()
    listed = manifest.read(with_data)
    assert listed["table.csv.record.json"] == file_sha256(with_data / "table.csv.record.json")
    assert set(listed) == {
        "raw.csv.record.json", "runs/run.csv.record.json", "table.csv.record.json",
        "sources/data/raw/x/x.npy.record.json", "sources/data/arrays/x/x.npy.record.json",
    }  # fmt: skip
    assert manifest.write(with_data).read_bytes() == text and str(with_data.parents[1]).encode() not in text


def test_the_jobs_without_a_run_table_are_stated_as_not_run(with_data):
    config = {"scale": "demo", "papers": ["bhaskar2025"], "seeds": [0, 1]}
    config |= {"only": {"dataset": ["digits"], "model": ["scatter_linear"], "clients": [10], "study": ["none"]}}
    (with_data / "config.yaml").write_text(yaml.safe_dump(config))
    manifest.write(with_data)
    first, second = (f"bhaskar2025/digits_scatter_linear_k10_seed{seed}" for seed in (0, 1))
    assert manifest.stated_not_run(with_data) == [first, second] == manifest.not_run_below(with_data)
    manifest.require_current(with_data)
    table = with_data / "runs" / f"{first}.csv.gz"
    table.parent.mkdir()
    table.write_bytes(b"runs")
    assert manifest.not_run_below(with_data) == [second]
    with pytest.raises(InputError, match=r"seed0 is not as manifest\.json lists it"):
        manifest.require_current(with_data)


def test_without_the_data_the_trace_reaches_the_raw_file_and_the_manifest_is_the_same(with_data):
    text = manifest.write(with_data).read_bytes()
    raw = with_data.parents[1] / "data" / "raw" / "x" / "x.npy"
    digest = file_sha256(raw)
    shutil.rmtree(with_data.parents[1] / "data")
    trace.writers.cache_clear()
    nodes = list(trace.trace(with_data / "table.csv").walk())
    assert [node.path for node in nodes][-1] == "data/raw/x/x.npy" and nodes[-1].sha256 == digest
    assert manifest.write(with_data).read_bytes() == text
    seen = audit(with_data)
    assert seen.findings == [] and seen.absent == ["data/arrays/x/x.npy", "data/raw/x/x.npy"]


def test_data_of_other_bytes_than_the_shipped_records_state_are_found(with_data):
    manifest.write(with_data)
    for kind in ("raw", "arrays"):
        record_path(with_data.parents[1] / "data" / kind / "x" / "x.npy").unlink()
    assert audit(with_data).findings == []
    (with_data.parents[1] / "data" / "arrays" / "x" / "x.npy").write_text("other")
    assert [finding.path for finding in audit(with_data).findings] == ["data/arrays/x/x.npy"]


def test_a_shipped_record_stays_where_the_data_were_made_again_to_the_same_bytes(with_data):
    text = manifest.write(with_data).read_bytes()
    place = record_path(with_data.parents[1] / "data" / "arrays" / "x" / "x.npy")
    place.write_text(json.dumps(json.loads(place.read_text()) | {"seconds": 99.0}))
    assert manifest.write(with_data).read_bytes() == text


HEAD = '{"format": "dpfl-manifest/2", "scale": "demo", '


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        HEAD + '"not_run": [], "records": {"a": "b"}}',
        HEAD + '"not_run": [1], "records": {}}',
        HEAD + '"records": {}}',
    ],
)
def test_what_is_no_manifest_is_refused(with_data, text):
    (with_data / manifest.MANIFEST).write_text(text)
    with pytest.raises(InputError, match=r"manifest\.json"):
        manifest.read(with_data)


def test_an_appendix_is_damage(with_data):
    path = manifest.write(with_data)
    path.write_text(path.read_text() + "\n")
    with pytest.raises(InputError, match=r"manifest\.json is damaged"):
        manifest.read(with_data)


# A stage run by hand after the manifest was written is named by the audit, and by sealing anew.


RECORD = "tables/bhaskar2025_table_2.csv.record.json"
AUDIT = ("audit", "--files-only", "results/demo")


@pytest.fixture
def sealed(tiny_project, tmp_path, monkeypatch, capsys):
    """A copy of the tiny project with a manifest, and a runner of `dpfl` that gives status, output and errors."""
    shutil.copytree(tiny_project, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["dpfl", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        return (caught.value.code or 0, *capsys.readouterr())

    assert run(*AUDIT, "--seal")[0] == 0
    return run


def test_a_stage_run_by_hand_is_found_until_its_record_is_sealed_by_name(sealed, pipeline):
    assert sealed(*AUDIT)[0] == 0
    pipeline.run("tables", "--paper", "bhaskar2025", "--name", "table_2", *pipeline.settings)
    status, said, _ = sealed(*AUDIT)
    assert status == 1 and f"results/demo/{RECORD} is not the record that manifest.json lists" in said
    status, _, errors = sealed(*AUDIT, "--seal")
    assert status == 0 and errors == f"dpfl: 1 records were added, changed or removed since the last time: {RECORD}\n"
    assert sealed(*AUDIT)[0] == 0 and sealed(*AUDIT, "--seal")[2] == ""


def test_a_damaged_manifest_is_not_replaced_in_silence(sealed, tmp_path):
    (tmp_path / "project/results/demo/manifest.json").write_text("{")
    status, _, errors = sealed(*AUDIT, "--seal")
    assert status == 2 and errors == "dpfl: results/demo/manifest.json is damaged or unreadable\n"
