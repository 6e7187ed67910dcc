"""A crate that would fill memory or disk is damaged: nothing of it is unpacked beyond what a crate can hold."""

import tracemalloc
import zipfile
from pathlib import Path

import pytest

from dpfl.provenance.audit import files
from dpfl.provenance.audit.files import audit
from dpfl.provenance.crate import write

DAMAGED = [("results/demo.crate.zip", "is no crate, or a damaged one")]


def problems():
    """Everything that an audit finds."""
    return [(finding.path, finding.problem) for finding in audit(Path("results/demo")).findings]


@pytest.mark.parametrize("declared", ["true", "small", "nothing"])
@pytest.mark.parametrize("members", [1, 50])
def test_a_crate_that_grows_beyond_measure_is_damaged_and_not_unpacked(crate, monkeypatch, declared, members):
    """100 MB of zeros in 100 kB; the archive says what is in it, or less."""
    monkeypatch.setattr(files, "_LARGEST_CRATE", 4 << 20)
    with zipfile.ZipFile(crate, "a", zipfile.ZIP_DEFLATED) as archive:
        for number in range(members):
            archive.writestr(f"zeros {number}", bytes(100_000_000 // members))
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
