"""Skip a command whose work is done: since it ended well, no byte that it reads or wrote has changed.

What a command reads is one hash for each part (`code_state`, `results_state`, `data_state`). A command that ended well
notes it outside the project, in the user's cache: no folder that comes from elsewhere can say of itself that it is up
to date. If anything differs, is new or is gone, all of the command runs, with all of its checks.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dpfl.errors import InputError
from dpfl.files import LONGEST_PAGE, file_sha256, has_bytes, is_regular, parse_json, read_bytes, write_atomically
from dpfl.provenance import ABOUT

READ_BY_NONE = ("report.html", "README.md", "workflow.html")
"""Pages below results/<scale> that `dpfl report` writes, and that no other command reads."""
_FOLDERS = ("src", "workflow", "config")
_PACKAGE = Path(__file__).parents[1]
_PASSING = "__pycache__"
_FORMAT = "dpfl-unchanged/1"


class _Unknown(Exception):
    """A folder holds what is not followed or cannot be read: nothing is known of it."""


def code_state(*facts: object) -> str:
    """Return a hash of the code, the workflow, the project's settings, the installed packages, and `facts`.

    Take it before the command begins: what is edited meanwhile has then changed since. "" if there is no Snakefile
    here, a link is among the files, or one cannot be read: that is never what was noted.
    """
    elsewhere = [] if _PACKAGE.is_relative_to(Path("src").resolve()) else [_PACKAGE]
    try:
        entries = [f"{sys.version} {facts!r}", *_installed(), _entry(Path("Snakefile"), by_content=True)]
        for folder in (*elsewhere, *map(Path, _FOLDERS)):
            entries += _entries(folder, by_content=True)
        entries += (_entry(path, by_content=True) for path in map(Path, ABOUT) if os.path.lexists(path))
    except (_Unknown, OSError):
        return ""
    return _hash(entries)


def results_state(scale: str) -> str:
    """Return a hash of results/<scale>, byte for byte but for `READ_BY_NONE`; "" as `code_state` has it."""
    try:
        return _hash(_entries(Path("results") / scale, by_content=True, but=READ_BY_NONE))
    except (_Unknown, OSError):
        return ""


def data_state(config: Mapping[str, Any]) -> str:
    """Return a hash of the data and of the scale's checkpoints, by sizes and times, as Snakemake goes by; "" as
    `code_state` has it."""
    folders = (Path(config["data"]["folder"]), Path("checkpoints") / config["scale"])
    try:
        return _hash(entry for folder in folders for entry in _entries(folder, by_content=False))
    except (_Unknown, OSError):
        return ""


def said_when_done(command: str, scale: str, states: Sequence[str]) -> list[str] | None:
    """Return what a command printed when it ended well with these states; None where it has to run: it has not, or what
    it wrote then is not there as it was."""
    try:
        noted = parse_json(read_bytes(_place(command, scale)))
        if noted["format"] != _FORMAT or noted["states"] != list(states) or not all(states):
            return None
        is_there = all(has_bytes(Path(path), stated) for path, stated in noted["written"].items())
        return noted["said"] if is_there else None
    except (InputError, OSError, ValueError, LookupError, TypeError):
        return None


def note(
    command: str, scale: str, states: Sequence[str], written: Iterable[Path] = (), said: Sequence[str] = ()
) -> None:
    """Note that a command ended well: what it read, wrote and printed. If a state is "", or the cache cannot be
    written, it will run again."""
    if not all(states):
        return
    stated = {str(path): {"bytes": path.stat().st_size, "sha256": file_sha256(path)} for path in written}
    noted = {"format": _FORMAT, "states": list(states), "written": stated, "said": list(said)}
    with suppress(InputError):
        write_atomically(_place(command, scale), json.dumps(noted, indent=1) + "\n")


def forget(command: str, scale: str) -> None:
    """Forget that a command ended well: it begins again, and may be killed."""
    with suppress(InputError, OSError):
        _place(command, scale).unlink(missing_ok=True)


def _place(command: str, scale: str) -> Path:
    """Return the file for a command in this project; raises InputError where the user has no home folder."""
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError as error:  # a container's user without an entry in passwd
        raise InputError(f"no cache folder: {error}; name one in XDG_CACHE_HOME") from None
    project = hashlib.sha256(os.fsencode(Path.cwd())).hexdigest()[:16]
    return cache / "dpfl" / project / f"{command}-{scale}.json"


def _installed() -> Iterator[str]:
    """Yield name and version of the installed packages, as their folders are named."""
    for place in map(Path, sys.path):
        if place.is_dir():
            yield from sorted(each.name for each in place.iterdir() if each.suffix in (".dist-info", ".egg-info"))


def _entries(folder: Path, *, by_content: bool, but: Sequence[str] = ()) -> Iterator[str]:
    """Yield an entry for each file below a folder, in order, without those in it that are named `but`."""
    for place, folders, names in os.walk(folder, onerror=_raise):
        if any(os.path.islink(os.path.join(place, name)) for name in folders):
            raise _Unknown
        folders[:] = sorted(name for name in folders if name != _PASSING)
        for name in sorted(names):
            if not (place == str(folder) and name in but):
                yield _entry(Path(place, name), by_content=by_content)


def _raise(error: OSError) -> None:
    """Raise what os.walk would pass over, but for a folder that is not there."""
    if not isinstance(error, FileNotFoundError):
        raise error


def _entry(path: Path, *, by_content: bool) -> str:
    """Return name and hash of a file; of a large one, or where `by_content` is false, its size and time."""
    if not is_regular(path):
        raise _Unknown
    found = path.stat()
    if by_content and found.st_size <= LONGEST_PAGE:
        return f"{path} {file_sha256(path)}"
    return f"{path} {found.st_size} {found.st_mtime_ns}"


def _hash(entries: Iterable[str]) -> str:
    """Return the hash of entries in their order."""
    return hashlib.sha256("\n".join(entries).encode("utf-8", "surrogateescape")).hexdigest()
