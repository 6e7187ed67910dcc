"""Write files completely or not at all, hash them, and refuse what is no regular file."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
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
    """Return the name under which this process writes `path`, a file or a folder, before it is complete."""
    return path.with_name(f".{path.name}.{os.getpid()}{_PARTIAL}")


def clear_unfinished(path: Path) -> None:
    """Remove the partial files that killed writers of `path` have left; a path has one writer at a time."""
    for left in path.parent.glob(f".{escape(path.name)}.*{_PARTIAL}"):
        if left.name.removeprefix(f".{path.name}.").removesuffix(_PARTIAL).isdigit():
            shutil.rmtree(left) if left.is_dir() else left.unlink()


def write_atomically(path: Path, text: str) -> None:
    """Write `text` as UTF-8 to `path`, completely or not at all. Raises InputError where it cannot be written."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def require_writable(*folders: Path) -> None:
    """Raise InputError naming the first folder, there already or still to be made, that cannot be written."""
    for folder in folders:
        places = (folder.absolute(), *folder.absolute().parents)
        existing = next(place for place in places if place.exists() or place.is_symlink())
        if not (existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)):
            raise InputError(f"{folder} cannot be written: {existing} is read-only or no folder")


def record_path(output: Path) -> Path:
    """Return the path of a stage's record: next to its (first) output."""
    return output.with_name(output.name + ".record.json")


def is_regular(path: Path) -> bool:
    """Return whether `path` is a regular file: no link, folder, device or pipe, and there."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, as 64 hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


_FORMAT = b"dpfl sealed 1"


def with_checksum(content: bytes) -> bytes:
    """Prefix bytes with the format's name and their SHA-256, a line each, to detect corruption."""
    return b"\n".join((_FORMAT, hashlib.sha256(content).hexdigest().encode(), content))


def checked_content(stored: bytes) -> bytes | None:
    """Return the content that `with_checksum` stored, or None where a byte has changed."""
    name, _, rest = stored.partition(b"\n")
    checksum, _, content = rest.partition(b"\n")
    intact = name == _FORMAT and hashlib.sha256(content).hexdigest().encode() == checksum
    return content if intact else None
