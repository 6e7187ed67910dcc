"""The crate: same bytes from the same results, every term known, every required check of the validator."""

import io
import json
import os
import shutil
import subprocess
import tracemalloc
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpfl.data import datasets
from dpfl.errors import InputError
from dpfl.files import record_path
from dpfl.provenance import archive, manifest, record
from dpfl.provenance.archive import packed
from dpfl.provenance.audit import files
from dpfl.provenance.audit.files import audit
from dpfl.provenance.crate import write
from dpfl.provenance.record import METADATA, StageRecorder

HERE = Path(__file__).parent
VALIDATOR = Path(os.environ.get("DPFL_VALIDATOR", HERE.parents[1] / ".venv-validator")) / "bin" / "python"


def described(path):
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read(METADATA))


def test_what_says_the_same_is_not_written_again_and_has_the_same_bytes(crate):
    before = crate.read_bytes()
    assert write(Path("results/demo")) == (crate, False)
    crate.unlink()
    write(Path("results/demo"))
    assert crate.read_bytes() == before


@pytest.fixture
def on_data(crate):
    """A crate of a table that was made from arrays of MNIST, which lie outside the results."""
    arrays, table = Path("data/arrays/mnist/train_x.npy"), Path("results/demo/table.csv")
    arrays.parent.mkdir(parents=True)
    arrays.write_text("pixels")
    StageRecorder("data arrays", ("dpfl.grid.expansion",)).write(record_path(arrays), [arrays])
    stage = StageRecorder("table.csv", ("dpfl.grid.expansion",))
    stage.reads([arrays])
    stage.write(record_path(table), [table])
    Path("requirements.lock").write_text("numpy==2.4.6\n")
    manifest.write(Path("results/demo"))
    assert write(Path("results/demo")) == (crate, True)
    return crate


def test_the_crate_has_the_same_bytes_with_or_without_the_data(on_data):
    before = on_data.read_bytes()
    place = record_path(Path("data/arrays/mnist/train_x.npy"))
    place.write_text(json.dumps(json.loads(place.read_text()) | {"seconds": 77.0}))
    assert write(Path("results/demo")) == (on_data, False)
    shutil.rmtree("data")
    assert write(Path("results/demo")) == (on_data, False) and on_data.read_bytes() == before


def test_the_crate_names_licence_and_address_of_every_dataset_and_contains_the_lock(on_data):
    by_id = {entity["@id"]: entity for entity in described(on_data)["@graph"]}
    dataset = by_id["#dataset-mnist"]
    entry = datasets.load("mnist")
    assert dataset["license"] == {"@id": entry.licence_url} and by_id[entry.licence_url]["name"] == entry.licence
    assert set(dataset["url"]) == {url for file in entry.files for url in file.urls}
    with zipfile.ZipFile(on_data) as archive:
        names = archive.namelist()
    assert {"requirements.lock", "results/demo/manifest.json"} <= set(names)
    assert "results/demo/sources/data/arrays/mnist/train_x.npy.record.json" in names


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 1.0])
def test_a_flipped_byte_anywhere_in_the_crate_is_mended(crate, share):
    good = crate.read_bytes()
    place = round(share * (len(good) - 1))
    crate.write_bytes(good[:place] + bytes([good[place] ^ 4]) + good[place + 1 :])
    assert write(Path("results/demo")) == (crate, True) and crate.read_bytes() == good


def test_every_term_is_in_the_contexts_that_the_validator_is_given(on_data):
    known = {"@id", "@type"}
    for name in ("ro-crate-1.1.json", "workflow-run.json"):
        known |= set(json.loads((HERE / "contexts" / name).read_text())["@context"])
    for entity in described(on_data)["@graph"]:
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
        "results/demo.crate.zip is of an earlier state of 2 files, as results/demo/manifest.json: "
        "renew it with dpfl crate results/demo"
    ]
    record._outputs.cache_clear()
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


@pytest.mark.parametrize("put", [os.mkfifo, os.mkdir, lambda place: os.symlink("/dev/zero", place)])
def test_an_odd_file_in_the_place_of_a_result_is_one_line(crate, put):
    Path("results/demo/table.csv").unlink()
    put("results/demo/table.csv")
    with pytest.raises(InputError, match=r"table\.csv is not what its record says"):
        write(Path("results/demo"))


def test_a_stage_that_ran_by_hand_since_is_not_sealed_by_the_crate(crate):
    before, table = crate.read_bytes(), Path("results/demo/table.csv")
    StageRecorder("table.csv", ("dpfl.grid.expansion",)).write(record_path(table), [table])
    for _ in range(2):
        with pytest.raises(InputError, match=r"table\.csv\.record\.json is not as manifest\.json lists it"):
            write(Path("results/demo"))
    assert crate.read_bytes() == before
    assert len(audit(Path("results/demo")).findings) == 1


@pytest.mark.parametrize("place", [None, -1, 10, 12])
def test_other_bytes_around_the_members_are_found(crate, place):
    """An appendix; and bytes of the comment's length, the time and the flags of a member."""
    content = bytearray(crate.read_bytes())
    if place is None:
        content += b"\n"
    else:
        content[place] ^= 1
    crate.write_bytes(content)
    [finding] = audit(Path("results/demo")).findings
    assert (finding.path, finding.problem) == ("results/demo.crate.zip", "is not a crate, or is damaged")


@pytest.mark.parametrize("level", [1, 9])
def test_members_that_another_zlib_has_compressed_are_no_finding(crate, level):
    with zipfile.ZipFile(crate) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(crate, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    assert audit(Path("results/demo")).findings == []


def only_problem(crate):
    """The one problem that an audit finds, which is the crate's."""
    [finding] = audit(Path("results/demo")).findings
    assert finding.path == "results/demo.crate.zip"
    return finding.problem


@pytest.mark.parametrize("gone", ["Snakefile", "results/demo/table.csv", "results/demo/manifest.json"])
def test_a_member_that_is_gone_is_found(on_data, gone):
    with zipfile.ZipFile(on_data) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    on_data.write_bytes(packed(members))
    assert audit(Path("results/demo")).findings == []
    on_data.write_bytes(packed({name: content for name, content in members.items() if name != gone}))
    assert only_problem(on_data) == f"lacks {gone}, which it describes"


def test_a_described_file_without_a_name_is_one_that_is_gone(crate):
    with zipfile.ZipFile(crate) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    about = json.loads(members[METADATA])
    about["@graph"].append({"@id": 7, "sha256": "0" * 64})
    crate.write_bytes(packed(members | {METADATA: json.dumps(about).encode()}))
    assert only_problem(crate) == "lacks 7, which it describes"


def test_a_member_twice_is_found(crate):
    """Programs that unpack it would not agree on which of them counts."""
    with zipfile.ZipFile(crate) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    name = next(name for name, _ in members if name.endswith("/table.csv"))
    with zipfile.ZipFile(crate, "w", zipfile.ZIP_DEFLATED) as archive, pytest.warns(UserWarning, match="Duplicate"):
        for each in ((name, b"other"), *members):
            archive.writestr(*each)
    assert only_problem(crate) == "is not a crate, or is damaged"


@pytest.mark.parametrize("kind", ["folder", "pipe", "link", "dead link"])
def test_what_is_no_file_in_the_place_of_the_crate_is_found(crate, kind):
    crate.rename("elsewhere")
    if kind == "folder":
        crate.mkdir()
    elif kind == "pipe":
        os.mkfifo(crate)
    else:
        crate.symlink_to(Path("elsewhere").absolute() if kind == "link" else "nowhere")
    [finding] = audit(Path("results/demo")).findings
    assert (finding.path, finding.problem) == ("results/demo.crate.zip", "is not a regular file")


@pytest.mark.parametrize("kind", ["flipped", "pipe", "link", "dead link"])
def test_a_run_does_not_stop_at_the_crate_that_it_is_about_to_write(crate, kind):
    content = crate.read_bytes()
    crate.rename("elsewhere")
    if kind == "flipped":
        crate.write_bytes(content[:500] + b"x" + content[501:])
    elif kind == "pipe":
        os.mkfifo(crate)
    else:
        crate.symlink_to(Path("elsewhere").absolute() if kind == "link" else "nowhere")
    assert audit(Path("results/demo"), sealed=False).findings == []
    assert len(audit(Path("results/demo")).findings) == 1
    assert write(Path("results/demo")) == (crate, True)
    assert crate.read_bytes() == content and not crate.is_symlink() and Path("elsewhere").read_bytes() == content
    assert audit(Path("results/demo")).findings == []


def test_outside_the_project_there_is_no_crate(crate):
    Path("Snakefile").unlink()
    with pytest.raises(InputError, match="is not of a project here"):
        write(Path("results/demo"))


@pytest.mark.slow
@pytest.mark.skipif(not VALIDATOR.exists(), reason="needs .venv-validator: make test-crate")
@pytest.mark.parametrize("broken", [False, True])
def test_every_required_check_of_the_validator_passes_offline(crate, tmp_path, broken):
    with zipfile.ZipFile(crate) as archive:
        archive.extractall(folder := tmp_path / "crate")
    if broken:
        text = (folder / METADATA).read_text()
        (folder / METADATA).write_text(text.replace('"HowToStep"', '"HowToSteep"'))
    done = subprocess.run([VALIDATOR, HERE / "validate_crate.py", folder], capture_output=True, text=True)
    assert (done.returncode != 0) == broken, done.stdout[-3000:]


# A crate that would fill memory or disk is damaged: nothing of it is unpacked beyond what a crate can hold.


DAMAGED = [("results/demo.crate.zip", "is not a crate, or is damaged")]


def problems():
    """Everything that an audit finds."""
    return [(finding.path, finding.problem) for finding in audit(Path("results/demo")).findings]


@pytest.mark.parametrize("declared", ["true", "small", "nothing"])
@pytest.mark.parametrize("members", [1, 50])
def test_a_crate_that_grows_beyond_measure_is_damaged_and_not_unpacked(crate, monkeypatch, declared, members):
    """100 MB of zeros in 100 kB; the archive says what is in it, or less."""
    monkeypatch.setattr(archive, "LARGEST", 4 << 20)
    with zipfile.ZipFile(crate, "a", zipfile.ZIP_DEFLATED) as opened:
        for number in range(members):
            opened.writestr(f"zeros {number}", bytes(100_000_000 // members))
    if declared != "true":
        true, said = (100_000_000 // members).to_bytes(4, "little"), 1000 if declared == "small" else 0
        crate.write_bytes(crate.read_bytes().replace(true, said.to_bytes(4, "little")))
    assert crate.stat().st_size < 1 << 20
    tracemalloc.start()
    assert problems() == DAMAGED
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20


@pytest.mark.parametrize("kind", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_crate_in_a_compression_that_cannot_be_unpacked_by_pieces_is_damaged(crate, kind):
    with zipfile.ZipFile(crate, "a", kind) as archive:
        archive.writestr("zeros", bytes(1000))
    assert problems() == DAMAGED


def test_a_description_beyond_measure_is_damaged(crate, monkeypatch):
    assert audit(Path("results/demo")).findings == []
    monkeypatch.setattr(files, "_LARGEST_METADATA", 1000)
    assert problems() == DAMAGED


def test_a_file_that_is_larger_than_any_crate_is_not_read(crate):
    with crate.open("r+b") as stream:
        stream.truncate(1 << 40)  # without any bytes on the disk
    assert problems() == DAMAGED
    assert write(Path("results/demo")) == (crate, True) and audit(Path("results/demo")).findings == []
