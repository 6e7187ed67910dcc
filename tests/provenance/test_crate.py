"""The crate: same bytes from the same results, every term known, every required check of the validator."""

import io
import json
import os
import subprocess
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpfl.errors import InputError
from dpfl.files import record_path
from dpfl.provenance import input_checks, manifest
from dpfl.provenance.audit.file_hashes import audit
from dpfl.provenance.crate import write
from dpfl.provenance.record import StageRecorder
from dpfl.provenance.record_format import METADATA

HERE = Path(__file__).parent
VALIDATOR = Path(os.environ.get("DPFL_VALIDATOR", HERE.parents[1] / ".venv-validator")) / "bin" / "python"


@pytest.fixture
def crate(chain):
    for name in ("Snakefile", "config.yaml", "README.md", "LICENSE"):
        Path(name).write_text(f"{name}\n")
    path, made = write(Path("results/demo"))
    assert made
    return path


def described(path):
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read(METADATA))


def test_what_says_the_same_is_not_written_again_and_has_the_same_bytes(crate):
    before = crate.read_bytes()
    assert write(Path("results/demo")) == (crate, False)
    crate.unlink()
    write(Path("results/demo"))
    assert crate.read_bytes() == before


def test_every_term_is_in_the_contexts_that_the_validator_is_given(crate):
    known = {"@id", "@type"}
    for name in ("ro-crate-1.1.json", "workflow-run.json"):
        known |= set(json.loads((HERE / "contexts" / name).read_text())["@context"])
    for entity in described(crate)["@graph"]:
        types = entity["@type"] if isinstance(entity["@type"], list) else [entity["@type"]]
        assert set(entity) | set(types) <= known, (set(entity) | set(types)) - known


def test_the_audit_finds_a_crate_that_holds_something_else(crate):
    assert audit(Path("results/demo")).findings == []
    with zipfile.ZipFile(crate) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(crate, "w") as archive:
        for name, data in held.items():
            archive.writestr(name, b"other" if name.endswith("/table.csv") else data)
    assert any("contains another" in finding.problem for finding in audit(Path("results/demo")).findings)


def test_results_made_anew_since_are_a_note_and_no_finding(crate):
    table = Path("results/demo/table.csv")
    table.write_text("another\n")
    StageRecorder("table.csv", ("dpfl.grid.expansion",)).write(record_path(table), [table])
    manifest.write(Path("results/demo"))
    seen = audit(Path("results/demo"))
    assert seen.findings == []
    assert seen.notes == [
        "results/demo.crate.zip is of an earlier state of 1 files, as results/demo/table.csv: "
        "renew it with dpfl crate results/demo"
    ]
    input_checks._outputs.cache_clear()
    assert write(Path("results/demo")) == (crate, True)
    assert audit(Path("results/demo")).notes == []


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_crate_is_found_or_holds_what_it_says(crate, data):
    whole = crate.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    change = data.draw(st.sampled_from(["flip", "cut", "absurd"]))
    damaged = (
        whole[:place] + {"flip": bytes([whole[place] ^ 1 << place % 8]), "cut": b"", "absurd": b"\xff" * 4}[change]
    )
    crate.write_bytes(damaged if change == "cut" else damaged + whole[len(damaged) :])
    findings = audit(Path("results/demo")).findings
    if not findings:
        with zipfile.ZipFile(crate) as now, zipfile.ZipFile(io.BytesIO(whole)) as before:
            assert now.namelist() == before.namelist()
            assert all(now.read(name) == before.read(name) for name in now.namelist())
    crate.write_bytes(whole)


def test_a_result_that_is_not_its_record_s_is_not_taken_along(crate):
    Path("results/demo/table.csv").write_text("x")
    with pytest.raises(InputError, match=r"table\.csv is not what its record says"):
        write(Path("results/demo"))


@pytest.mark.slow
@pytest.mark.skipif(not VALIDATOR.exists(), reason="needs .venv-validator: make test-crate")
@pytest.mark.parametrize("broken", [False, True])
def test_every_required_check_of_the_validator_passes_offline(crate, tmp_path, broken):
    folder = tmp_path / "crate"
    with zipfile.ZipFile(crate) as archive:
        archive.extractall(folder)
    if broken:
        text = (folder / METADATA).read_text()
        (folder / METADATA).write_text(text.replace('"HowToStep"', '"HowToSteep"'))
    done = subprocess.run([VALIDATOR, HERE / "validate_crate.py", folder], capture_output=True, text=True)
    assert (done.returncode != 0) == broken, done.stdout[-3000:]
