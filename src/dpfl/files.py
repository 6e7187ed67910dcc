"""Files that are either complete or not there: written under another name, flushed, then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpfl.errors import InputError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it replaces `path`, on failure nothing is left.

    Raises InputError naming the file where the disk is full or the folder cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}; nothing was left there") from None
    finally:
        if temporary.exists():
            temporary.unlink()


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
