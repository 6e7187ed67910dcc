"""Write files completely or not at all; read, parse and hash what a stranger may have written, behind limits.

Whatever is packed, shown, compared or parsed is a regular file (`is_regular`) that lies in the project (`is_inside`),
is no longer than files of its kind (`read_bytes`), and as JSON no deeper than ours (`parse_json`).
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import Any, BinaryIO

from dpfl.errors import InputError

_PARTIAL = ".partial"
LONGEST_PAGE = 1 << 26
"""Bytes of a page, a picture or a code file that is read whole; the longest of ours has a tenth."""
_DEEPEST_JSON = 64
"""Levels of a JSON text; ours have six. Python prints a few hundred, and fails beyond."""
_LARGEST_INTEGER = 1 << 63
_MOST_DIGITS = 19


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
    """Remove the partial files that killed writers of `path` have left, but no file of a process that lives."""
    for left in path.parent.glob(f".{escape(path.name)}.*{_PARTIAL}"):
        writer = left.name.removeprefix(f".{path.name}.").removesuffix(_PARTIAL)
        if writer.isdigit() and (int(writer) == os.getpid() or not _is_alive(int(writer))):
            shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    """Return whether this machine runs a process of that number, ours or another user's."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


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


def is_inside(path: Path, *folders: Path) -> bool:
    """Return whether `path` is a regular file that resolves below one of `folders`: no folder on its way is a link that
    leads out of them."""
    return is_regular(path) and is_folder_inside(path.parent, *folders)


def is_folder_inside(folder: Path, *folders: Path) -> bool:
    """Return whether `folder`, there or not, resolves to one of `folders` or to a place below."""
    try:
        place = folder.resolve()
        return any(place.is_relative_to(each.resolve()) for each in folders)
    except (OSError, RuntimeError):  # a circle of links
        return False


@contextmanager
def opened(path: Path, most: int) -> Iterator[BinaryIO]:
    """Yield a regular file of at most `most` bytes, opened to be read.

    Raises InputError, one line, where it is missing, a link, folder, pipe or device, longer, or cannot be read.
    """
    try:
        # A pipe is not waited for, and a link that has come into the place of a file since is not followed.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as stream:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise InputError(f"{path} is not a regular file: delete it and run make again")
            if found.st_size > most:
                raise InputError(f"{path} has more than {most} bytes, so dpfl did not write it: delete it")
            yield stream
    except FileNotFoundError:
        raise InputError(f"{path} is not there: an earlier stage has to write it (dpfl run)") from None
    except PermissionError:
        raise InputError(f"{path} cannot be read: its permissions forbid it") from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENODEV):
            raise InputError(f"{path} is not a regular file: delete it and run make again") from None
        if error.errno is None:  # of the content, as a damaged archive's
            raise
        raise InputError(f"{path} cannot be read: {error.strerror}") from None


def read_bytes(path: Path, most: int = LONGEST_PAGE) -> bytes:
    """Return the content of a regular file of at most `most` bytes; raises InputError as `opened` does."""
    with opened(path, most) as stream:
        return stream.read(most)


def parse_json(text: str | bytes) -> Any:
    """Return what a JSON text says.

    Raises ValueError, one line, for a text that is no JSON, or that nothing of ours is: nested deeper than 64 levels,
    or with an integer of more than 64 bits, which take long to print or cannot be made a float.
    """
    try:
        value = json.loads(text, parse_int=_integer)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    level, depth = [value], 0
    while level := [inner for outer in level for inner in _parts(outer)]:
        depth += 1
        if depth > _DEEPEST_JSON:
            raise ValueError(f"the JSON is nested deeper than {_DEEPEST_JSON} levels")
    return value


def read_given_json(path: Path, kind: str, most: int = LONGEST_PAGE) -> Any:
    """Return the content of a JSON file that a user names, of at most `most` bytes, as `kind` ("ledger of clients").

    Raises InputError, one line, where it cannot be read, is no file (a pipe may never end), longer, no JSON, nested too
    deeply, or has a key twice in one object.
    """
    if path.exists() and not (path.is_file() and path.stat().st_size <= most):
        raise InputError(f"{path} is not a {kind}: it is not a file of at most {most} bytes")
    try:
        return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=unique_keys)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except RecursionError:
        raise InputError(f"{path} is not a {kind}: it is nested too deeply") from None
    except ValueError as error:
        raise InputError(f"{path} is not a {kind}: {error}") from None


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of a JSON text, as `object_pairs_hook`. Raises ValueError naming a key that stands twice."""
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {next(key for key in keys if keys.count(key) > 1)!r} stands twice in one object")
    return result


def _integer(digits: str) -> int:
    """Return an integer of a JSON text; raises ValueError for one of more than 64 bits."""
    if len(digits) > _MOST_DIGITS + 1 or not -_LARGEST_INTEGER <= int(digits) < _LARGEST_INTEGER:
        raise ValueError(f"the integer {digits[:_MOST_DIGITS]}... of the JSON has more than 64 bits")
    return int(digits)


def _parts(value: Any) -> Iterable[Any]:
    """Return the values inside a list or an object."""
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, as 64 hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def has_bytes(path: Path, stated: Mapping[str, Any]) -> bool:
    """Return whether `path` is a regular file with the size `bytes` and the hash `sha256` that a record states.

    One of another size is not read. Raises OSError where it cannot be read.
    """
    return is_regular(path) and path.stat().st_size == stated["bytes"] and file_sha256(path) == stated["sha256"]


_FORMAT = b"dpfl sealed 1"
_LONGEST_LINE = 80


def with_checksum(content: bytes) -> bytes:
    """Prefix bytes with the format's name and their SHA-256, a line each, to detect corruption."""
    return b"\n".join((_FORMAT, hashlib.sha256(content).hexdigest().encode(), content))


def is_intact_sealed(path: Path) -> bool:
    """Return whether a file has what `with_checksum` stored, unchanged, without holding it in memory.

    Raises OSError where it cannot be read.
    """
    with path.open("rb") as stream:
        name, checksum = (stream.readline(_LONGEST_LINE).removesuffix(b"\n") for _ in range(2))
        return name == _FORMAT and hashlib.file_digest(stream, "sha256").hexdigest().encode() == checksum


def checked_content(stored: bytes) -> bytes | None:
    """Return the content that `with_checksum` stored, or None where a byte has changed."""
    name, _, rest = stored.partition(b"\n")
    checksum, _, content = rest.partition(b"\n")
    intact = name == _FORMAT and hashlib.sha256(content).hexdigest().encode() == checksum
    return content if intact else None
