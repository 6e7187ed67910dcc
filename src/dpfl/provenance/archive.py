"""Write and read the archive of a crate. What is read may come from a stranger, so it is unpacked within limits."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from dpfl.files import read_bytes

LARGEST = 1 << 28
"""Bytes of a crate, packed or unpacked; that of the paper's results has a tenth."""
UNREADABLE = (
    zipfile.BadZipFile, zlib.error, EOFError, OSError, KeyError, ValueError, TypeError, AttributeError, RuntimeError,
    OverflowError,
)  # fmt: skip
"""What reading a damaged archive or its description raises, by the kind of damage."""
_BY_PIECES = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Compressions that zipfile unpacks no further than it is asked to; dpfl writes the second."""
_AGE = (1980, 1, 1, 0, 0, 0)  # of every member: the same run gives the same bytes


def packed(members: Mapping[str, bytes]) -> bytes:
    """Return the archive of a crate's members, in their order."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(_header(name), content)
    return stream.getvalue()


def _header(name: str) -> zipfile.ZipInfo:
    """Return the header of a member of the archive."""
    info = zipfile.ZipInfo(name, _AGE)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    return info


def members(path: Path) -> dict[str, bytes]:
    """Return the content of an archive by name; raises one of `UNREADABLE`, also where it is larger than any of dpfl's.

    A member that declares more than is left is not unpacked, and one that declares less is unpacked no further.
    """
    content: dict[str, bytes] = {}
    left = LARGEST
    if path.stat().st_size > left:
        raise zipfile.BadZipFile(f"it has more than {LARGEST >> 20} MiB")
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.file_size > left:
                raise zipfile.BadZipFile(f"it unpacks to more than {LARGEST >> 20} MiB")
            if member.filename in content:
                raise zipfile.BadZipFile("it has a member twice")
            if member.compress_type not in _BY_PIECES:
                raise zipfile.BadZipFile("a member is compressed in another way")
            with archive.open(member) as stream:
                content[member.filename] = stream.read(member.file_size + 1)  # one more: its checksum is compared
            left -= member.file_size
    return content


def require_own_bytes(path: Path, content: dict[str, bytes]) -> None:
    """Raise BadZipFile where the bytes around an archive's members are not those that dpfl writes.

    Where another version of zlib has compressed the members, their streams differ: then nothing can be said.
    """
    whole, again = read_bytes(path, LARGEST), packed(content)
    if whole != again and _streams(whole) == _streams(again):
        raise zipfile.BadZipFile("other bytes around the members")


def _streams(archive: bytes) -> list[bytes]:
    """Return the compressed members of an archive of dpfl's, whose headers have no extra field."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        starts = [
            (each.header_offset + 30 + len(each.filename.encode()), each.compress_size) for each in opened.infolist()
        ]
    return [archive[start : start + size] for start, size in starts]
