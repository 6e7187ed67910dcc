"""A stranger's folder: links that lead out of it, files without end, and texts that none of our stages writes.

Nothing outside the project is opened or packed, nothing is read to an end that it does not have, and no traceback ends
a command: each is one line, a finding or a refusal.
"""

import csv
import gzip
import io
import json
import os
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dpfl.cli import app
from dpfl.errors import InputError
from dpfl.files import file_sha256, parse_json, read_bytes, record_path
from dpfl.grid.configuration import read
from dpfl.grid.expansion import expand, run_table_path
from dpfl.provenance import crate as crates
from dpfl.provenance import manifest
from dpfl.provenance.audit.files import _first_difference, audit
from dpfl.provenance.audit.findings import Audit
from dpfl.provenance.audit.records import against_itself, check_epsilons, check_runs
from dpfl.provenance.audit.release import check_signature
from dpfl.provenance.audit.verify_results import verify_results
from dpfl.provenance.record import read_record
from dpfl.provenance.trace import lineage, statement, trace
from dpfl.reporting.results import table_text

RESULTS = Path("results/demo")
ENDLESS = 1 << 43  # bytes of a sparse file: days to read


def endless(path):
    """Put a sparse file in the place of a file."""
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream:
        stream.truncate(ENDLESS)


def rewrite(path, change):
    """Change a record."""
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


def problems():
    """Everything that an audit of hashes finds."""
    return [f"{finding.path} {finding.problem}" for finding in audit(RESULTS).findings]


# Crates


@pytest.fixture
def secret(tmp_path_factory):
    path = tmp_path_factory.mktemp("home") / "secret.txt"
    path.write_text("SECRET\n")
    return path


@pytest.mark.parametrize("name", ["LICENSE", "README.md", "Snakefile", "workflow/report/claims.rst", "src/dpfl/x.py"])
def test_a_crate_packs_nothing_that_a_link_leads_to(crate, secret, name):
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).unlink(missing_ok=True)
    Path(name).symlink_to(secret)
    crate.unlink()
    with pytest.raises(InputError, match=f"{name} is not a regular file of the project"):
        crates.write(RESULTS)
    assert not crate.exists()


@pytest.mark.parametrize("name", ["workflow", "workflow/report", "src/dpfl/more"])
def test_a_crate_packs_nothing_of_a_linked_folder(crate, secret, name):
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).symlink_to(secret.parent)
    with pytest.raises(InputError, match="is not a regular file of the project"):
        crates.write(RESULTS)


def test_a_crate_packs_no_recorded_file_behind_a_link(crate, secret):
    shutil.move(RESULTS / "runs", secret.parent / "runs")
    (RESULTS / "runs").symlink_to(secret.parent / "runs")
    with pytest.raises(InputError):
        crates.write(RESULTS)


def test_the_authors_of_a_crate_are_plain_text_whatever_the_citation_holds(crate):
    for text in ("authors: 3", "authors: [a]", "authors: []", "title: x"):
        Path("CITATION.cff").write_text(text)
        crates.write(RESULTS)
        with zipfile.ZipFile(crate) as packed:
            assert "The dpfl authors" in packed.read("ro-crate-metadata.json").decode()


# Links out of the project


@pytest.fixture
def opened(monkeypatch):
    """The real paths of all files that this process opens from now on, and of all folders that it lists."""
    seen = []

    def note(event, arguments):
        if seen_now and event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], str | os.PathLike):
            seen.append(os.path.realpath(arguments[0]))

    seen_now = [True]
    sys.addaudithook(note)
    yield seen
    seen_now.clear()


@pytest.fixture
def away(chain, tmp_path_factory):
    """Files of a victim, with a record, behind a link of the project that a record names as an input."""
    victim = tmp_path_factory.mktemp("victim")
    shutil.copy(chain / "raw.csv", victim / "y.csv")
    shutil.copy(record_path(chain / "raw.csv"), record_path(victim / "y.csv"))
    entry = {"path": "away/y.csv", "bytes": 13, "sha256": file_sha256(victim / "y.csv")}
    rewrite(record_path(victim / "y.csv"), lambda record: record.update(inputs=[], outputs=[entry]))
    Path("away").symlink_to(victim)
    rewrite(record_path(chain / "table.csv"), lambda record: record["inputs"].append(entry))
    return victim


def test_nothing_behind_a_link_of_an_input_is_opened(chain, away, opened):
    report = audit(RESULTS)
    top = trace(chain / "table.csv")
    assert [path for path in opened if Path(path).is_relative_to(away.resolve())] == []
    assert report.findings == [] and report.linked == ["away/y.csv"]
    assert any("behind a link that leads out of the project, so not opened: 1 files" in line for line in report.lines())
    assert [node.record for node in top.walk() if node.path == "away/y.csv"] == [None]


def test_the_data_of_ones_own_project_may_lie_on_another_disk(chain, away):
    manifest.write(RESULTS)
    assert (RESULTS / "sources" / "away" / "y.csv.record.json").is_file()
    assert any(place.name == "y.csv.record.json" for place, _ in lineage(RESULTS))  # the copy is read, not the link


def test_a_folder_of_results_behind_a_link_is_a_finding_and_not_opened(chain, opened, tmp_path_factory):
    disk = tmp_path_factory.mktemp("disk")
    (chain / "runs").rename(disk / "runs")
    (chain / "runs").symlink_to(disk / "runs")
    found = problems()
    assert [path for path in opened if Path(path).is_relative_to(disk.resolve())] == []
    assert "results/demo/runs is not a regular file" in found
    assert any(each.startswith("results/demo/runs/run.csv lies behind a link") for each in found)
    with pytest.raises(InputError, match="runs is a link to a folder"):
        verify_results(Audit(), RESULTS)


def test_a_linked_configuration_is_not_read(chain, secret, opened):
    (chain / "config.yaml").symlink_to(secret)
    found = problems()
    assert str(secret.resolve()) not in opened
    assert "results/demo/config.yaml is not a regular file" in found
    with pytest.raises(InputError, match=r"config\.yaml is not a regular file"):
        verify_results(Audit(), RESULTS)
    assert str(secret.resolve()) not in opened


# Files without end


@pytest.mark.parametrize("name", ["runs/run.csv", "runs/run.csv.record.json", "raw.csv", "manifest.json", "table.csv"])
def test_a_file_without_end_is_a_finding(chain, name):
    manifest.write(RESULTS)
    endless(chain / name)
    assert any(each.startswith(f"results/demo/{name} ") for each in problems())


def test_what_records_state_is_not_hashed_beyond_what_a_project_has(chain):
    endless(chain / "runs" / "run.csv")
    rewrite(record_path(chain / "runs" / "run.csv"), lambda record: record["outputs"][0].update(bytes=ENDLESS))
    with pytest.raises(InputError, match=r"name files of 8192 GiB.*nothing was hashed"):
        audit(RESULTS)


def test_a_checkpoint_without_end_is_damaged(chain):
    checkpoint = Path("checkpoints/demo/bhaskar2025") / f"x-{'0' * 32}.pt"
    endless(checkpoint)
    assert any("is damaged: training would start from the beginning" in each for each in problems())
    with checkpoint.open("r+b") as stream:  # begins as one of ours does
        stream.write(b"dpfl sealed 1\n" + b"0" * 64 + b"\n")
    assert any("is damaged: training would start from the beginning" in each for each in problems())


def test_more_files_than_a_stage_has_are_no_record(chain):
    entry = {"path": "data/x", "bytes": 1, "sha256": "0" * 64}
    place = record_path(chain / "table.csv")
    rewrite(place, lambda record: record["inputs"].extend(entry | {"path": f"data/{n}"} for n in range(10_001)))
    with pytest.raises(InputError, match="is damaged"):
        read_record(place)


def test_a_statement_of_a_release_without_end_is_refused(chain):
    manifest.write(RESULTS)
    for name in ("s.json", "s.json.sig", "keys"):
        Path(name).write_text("x")
    endless(Path("s.json"))
    with pytest.raises(InputError, match=r"s\.json has more than"):
        check_signature(Audit(), RESULTS, Path("s.json"), Path("keys"))


def test_a_page_without_end_differs_in_its_first_line(tmp_path):
    endless(tmp_path / "README.md")
    assert _first_difference("right\n", tmp_path / "README.md") == 1


@pytest.mark.parametrize("name", ["claims.json", "log.csv", "log.jsonl"])
def test_claims_without_end_are_one_line(tmp_path, name):
    endless(tmp_path / name)
    done = CliRunner().invoke(app, ["check", str(tmp_path / name), "--sampler", "poisson", "--delta", "1e-5",
                                    "--claimed-epsilon", "3"])  # fmt: skip
    assert isinstance(done.exception, InputError) and f"{ENDLESS} bytes" in str(done.exception)


@pytest.mark.parametrize(
    "content",
    [b"a\n" + b"\n" * 2_000_000, b"," * 5_000_000 + b"\n", b"a\n" + b"1" * (65 << 20)],
    ids=["rows", "columns", "bytes"],
)
def test_a_table_that_unpacks_to_more_than_ours_have_is_none(tmp_path, content):
    path = tmp_path / "runs.csv.gz"
    path.write_bytes(gzip.compress(content, 1))
    with pytest.raises(InputError, match="is not a table: it has more than"):
        table_text(path)
    with path.open("r+b") as stream:  # zeros behind a packed file are skipped one by one
        stream.truncate(ENDLESS)
    with pytest.raises(InputError, match="has more than"):
        table_text(path)


@pytest.mark.parametrize("kind", ["link", "dead link", "pipe", "folder", "device", "missing"])
def test_only_a_regular_file_is_read(tmp_path, kind):
    (tmp_path / "secret").write_text("x")
    path = tmp_path / "path"
    make = {
        "link": lambda: path.symlink_to(tmp_path / "secret"), "dead link": lambda: path.symlink_to("gone"),
        "pipe": lambda: os.mkfifo(path), "folder": path.mkdir, "device": lambda: path.symlink_to("/dev/zero"),
    }  # fmt: skip
    make.get(kind, lambda: None)()
    with pytest.raises(InputError, match="is not there" if kind == "missing" else "is not a regular file"):
        read_bytes(path)


# Texts that none of our stages writes


DEEP, LONG = "[" * 100_000, "[" + "9" * 5000 + "]"


@pytest.mark.parametrize("text", [DEEP, "[" * 66 + "]" * 66, LONG, "[18446744073709551616]", "{", ""])
def test_json_that_none_of_our_stages_writes_is_one_line(text):
    with pytest.raises(ValueError, match=r"^[^\n]{1,200}$"):
        parse_json(text)


def test_json_of_ours_is_read_as_ever():
    value = {"a": [1, -(1 << 63), (1 << 63) - 1, 1.5, None, True, "x", {"b": []}]}
    assert parse_json(json.dumps(value)) == value and parse_json("[" * 60 + "]" * 60)


@pytest.mark.parametrize("cell", [DEEP, LONG, '{"a":1}', "null", "[]", "3", '["a"]', "[[1]]", '"abc"', "[1,", "nan"])
def test_a_metric_by_round_that_is_no_list_of_numbers_is_a_problem(cell):
    run = {"seed": "0", "status": "finished", "accuracy_pct": "3.0", "accuracy_pct_by_round": cell}
    assert against_itself([run]) == ["accuracy_pct_by_round of seed 0 is no list of numbers"]
    assert against_itself([run | {"accuracy_pct_by_round": "[1.0, 3.0]"}]) == []


@pytest.fixture
def with_cell(chain, tiny_project):
    """A function that puts a cell into a run of the tiny project, and returns what the checks of run tables find."""
    (job, *_) = expand(read(tiny_project / RESULTS / "config.yaml"))
    header, cells, *_ = csv.reader(table_text(run_table_path(tiny_project / RESULTS, job.paper, job.name)))
    path = run_table_path(chain, job.paper, job.name)
    path.parent.mkdir(parents=True)

    def put(column, cell):
        row = dict(zip(header, cells, strict=True)) | {column: cell}
        stream = io.StringIO()
        csv.writer(stream, lineterminator="\n").writerows([list(row), list(row.values())])
        path.write_bytes(gzip.compress(stream.getvalue().encode()))
        report = Audit()
        report.join(check_epsilons(Path.cwd(), check_runs(report, Path.cwd(), "demo", [job]).items()))
        return row, [finding.problem for finding in report.findings]

    return put


@pytest.mark.parametrize("column", ["mechanism", "sampler", "steps", "delta", "noise_multiplier", "records"])
@pytest.mark.parametrize("cell", [DEEP, LONG, "[1]", "{}", "null", "x", "1e999", '{"kind": [1]}'])
def test_a_privacy_statement_of_a_stranger_is_a_finding_and_no_traceback(with_cell, column, cell):
    row, found = with_cell(f"privacy_{column}", cell)
    assert [each for each in found if not each.startswith("has no run of")]
    assert "\n" not in statement(row)


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("steps", "1e15"), ("records", "1e12"),
        ("sampler", '{"kind": "WithReplacement", "batch_size": 10000000, "records": 100000000}'),
        ("sampler", '{"kind": "FixedBatches", "batch_size": 10, "records": 1000000000000}'),
        ("mechanism", '{"kind": "ShuffledGaussian", "clients": 1000000000000, "records": 1, "dimension": 2}'),
    ],
)  # fmt: skip
def test_a_statement_that_would_take_hours_or_all_memory_is_a_finding(with_cell, column, cell):
    _, found = with_cell(f"privacy_{column}", cell)
    assert any("which no run of ours has" in each for each in found), found
