"""Archives of crates: the same bytes for the same members, and none of a stranger's beyond the limits."""

import zipfile

import pytest

from dpfl.errors import InputError
from dpfl.provenance import archive
from dpfl.results import tables


def test_the_same_members_in_the_same_order_give_the_same_bytes():
    members = {"results/b.csv": b"b" * 100, "results/a.csv": b""}
    assert archive.packed(members) == archive.packed(members) != archive.packed(dict(reversed(members.items())))


def test_a_written_archive_is_its_own(tmp_path):
    path, members = tmp_path / "a.zip", {"results/b.csv": b"b" * 100, "results/a.csv": b""}
    path.write_bytes(archive.packed(members))
    assert archive.members(path) == members
    archive.require_own_bytes(path, members)
    with zipfile.ZipFile(path, "a") as made:
        made.comment = b"another"
    with pytest.raises(zipfile.BadZipFile, match="other bytes"):
        archive.require_own_bytes(path, members)


def plain(path):
    """An archive that dpfl could have written."""
    path.write_bytes(archive.packed({"results/demo/tables/x.csv": b"a"}))


def encrypted(path):
    """An archive whose member says that it is encrypted."""
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("results/demo/tables/x.csv", "a")
    content = bytearray(path.read_bytes())
    for header, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(header) + flags] |= 1
    path.write_bytes(content)


def packed_otherwise(path):
    """An archive compressed as dpfl never does."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as made:
        made.writestr("results/demo/tables/x.csv", "a" * 100)


def twice(path):
    """An archive with one name twice."""
    with zipfile.ZipFile(path, "w") as made, pytest.warns(UserWarning, match="Duplicate name"):
        made.writestr("results/demo/tables/x.csv", "a")
        made.writestr("results/demo/tables/x.csv", "b")


@pytest.mark.parametrize(
    ("write", "largest", "why"),
    [
        (encrypted, 1000, "is encrypted"),
        (packed_otherwise, 1000, "a member is compressed in another way"),
        (twice, 1000, "it has a member twice"),
        (plain, 10, "it has more than 0 MiB"),
    ],
)
def test_a_strangers_archive_is_refused_in_one_line(tmp_path, monkeypatch, write, largest, why):
    write(tmp_path / "a.zip")
    monkeypatch.setattr(archive, "LARGEST", largest)
    with pytest.raises(archive.UNREADABLE, match=why):
        archive.members(tmp_path / "a.zip")
    with pytest.raises(InputError, match=rf"a\.zip is not a crate: .*{why}"):
        tables(tmp_path / "a.zip")
