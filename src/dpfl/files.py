"""Files that are either complete or not there: written under another name, flushed, then renamed."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path

from dpfl.errors import InputError

_PARTIAL = ".partial"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it replaces `path`, on failure nothing is left.

    Raises InputError naming the file where the disk is full or the folder cannot be written.
    """
    temporary = unfinished(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        clear_unfinished(path)
        yield temporary
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}; nothing was left there") from None
    finally:
        if temporary.exists():
            temporary.unlink()


def unfinished(path: Path) -> Path:
    """Return the name under which this process writes `path`, a file or a folder, before it is whole."""
    return path.with_name(f".{path.name}.{os.getpid()}{_PARTIAL}")


def clear_unfinished(path: Path) -> None:
    """Remove what killed writers of `path` have left beside it; a path has one writer at a time."""
    for left in path.parent.glob(f".{escape(path.name)}.*{_PARTIAL}"):
        if left.name.removeprefix(f".{path.name}.").removesuffix(_PARTIAL).isdigit():
            shutil.rmtree(left) if left.is_dir() else left.unlink()


def write_atomically(path: Path, text: str) -> None:
    """Write `text` as UTF-8 to `path`, whole or not at all. Raises InputError where it cannot be written."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def require_writable(*folders: Path) -> None:
    """Raise InputError naming the first folder, there already or still to be made, that cannot be written."""
    for folder in folders:
        existing = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
        if not (existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)):
            raise InputError(f"{folder} cannot be written: {existing} is read-only or no folder")


def record_path(output: Path) -> Path:
    """Return where the record of a stage lies: beside its (first) output."""
    return output.with_name(output.name + ".record.json")


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, as 64 hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


_KIND = b"dpfl sealed 1"


def with_checksum(content: bytes) -> bytes:
    """Return `content` behind a line that names the format and one with its SHA-256."""
    return b"\n".join((_KIND, hashlib.sha256(content).hexdigest().encode(), content))


def checked_content(sealed: bytes) -> bytes | None:
    """Return the content of what `seal` returned, or None where a byte of it is not as it was."""
    kind, _, rest = sealed.partition(b"\n")
    checksum, _, content = rest.partition(b"\n")
    whole = kind == _KIND and hashlib.sha256(content).hexdigest().encode() == checksum
    return content if whole else None
