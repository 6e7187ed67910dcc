"""Write the record of a stage next to its outputs: inputs, outputs, settings, code, software, host."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from dpfl import __version__, gpu
from dpfl.catalog import keys, load
from dpfl.commands import git
from dpfl.errors import InputError
from dpfl.files import file_sha256, is_regular, parse_json, read_bytes, write_atomically
from dpfl.provenance.source_digest import source_digest

# Read a record from disk. Records are input from strangers: whatever is no record is refused in one line.

FORMAT = "dpfl-record/2"
_EARLIER = "dpfl-record/1"
METADATA = "ro-crate-metadata.json"
"""Where a crate describes itself."""

_LONGEST_NAME, _LONGEST_PATH = 255, 2000
LONGEST_RECORD = 1 << 22
"""Bytes of a record; the longest of ours has a hundredth."""
_MOST_FILES = 10_000
"""Inputs or outputs of a stage; the most of ours has a hundredth."""
_PARTS = {"stage": str, "started": str, "settings": dict, "seeds": list, "inputs": list, "outputs": list}
_PARTS |= {"source": dict, "software": dict, "host": dict, "seconds": int | float}
_FILE = {"path": str, "bytes": int, "sha256": str}
_SOURCE = {"modules": list, "digest": str, "commit": str | None}
_SOFTWARE = {"python": str, "torch": str, "lock": str | None, "not_as_locked": dict, "container": str | None}
_HOST = {"device": str, "threads": int, "cpu": str, "blas": list}
COMMIT_HASH = re.compile("[0-9a-f]{40}")
_MODULE = re.compile(r"dpfl(\.\w+)*(:\w+)?")
_LONGEST_SECONDS = 1e9
"""Of a stage: thirty years."""
_FIRST_YEAR, _LAST_YEAR = 2000, 2200
"""Of a stage's beginning: every time that is computed from it can be represented."""


class EarlierFormatError(InputError):
    """A record that an earlier version of dpfl wrote, in a format that this version does not read."""


def read_record(path: Path) -> dict[str, Any]:
    """Return the record at `path`.

    Raises InputError where it is missing, no regular file, no record of this format, incomplete, or larger than any
    record; where its time is none that a run can have; and where it names a file outside the project: an absolute path,
    or one with `..`. Raises EarlierFormatError for a record that dpfl 0.1 wrote.
    """
    content = read_bytes(path, LONGEST_RECORD)
    try:
        record = parse_json(content.decode("utf-8"))
        json.dumps(record, ensure_ascii=False).encode()  # fails for a lone surrogate, which is no text
    except ValueError:
        raise InputError(f"{path} is damaged or unreadable: delete it and run make again") from None
    if isinstance(record, dict) and record.get("format") == _EARLIER:
        raise EarlierFormatError(f"{path} {_of_an_earlier_version(record)}")
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise InputError(f"{path} is not a record of format {FORMAT}: delete it and run make again")
    if not _is_complete(record):
        raise InputError(f"{path} is damaged: delete it and run make again")
    return record


def _of_an_earlier_version(record: dict[str, Any]) -> str:
    """Return what is to be done with a record of the earlier format."""
    source = record.get("source")
    commit = source.get("commit") if isinstance(source, dict) else None
    named = f", {commit}" if isinstance(commit, str) and COMMIT_HASH.fullmatch(commit) else " (the record names none)"
    words = f"was written by an earlier version of dpfl ({_EARLIER})"
    return f"{words}: verify it with that version's commit{named}, or delete it to make it anew"


def _is_complete(record: dict[str, Any]) -> bool:
    """Return whether every part that readers of a record rely on is present and of its type."""
    return (
        _has(record, _PARTS)
        and _is_a_time(record["started"])
        and _has(record["source"], _SOURCE)
        and all(isinstance(each, str) and _MODULE.fullmatch(each) for each in record["source"]["modules"])
        and _has(record["software"], _SOFTWARE)
        and _has(record["host"], _HOST)
        and 0 <= record["seconds"] <= _LONGEST_SECONDS
        and 0 < len(record["outputs"]) <= _MOST_FILES
        and len(record["inputs"]) <= _MOST_FILES
        and all(map(_is_a_file, record["inputs"] + record["outputs"]))
    )


def _is_a_file(entry: Any) -> bool:
    """Return whether an entry names a file of the project, with its size and hash."""
    return _has(entry, _FILE) and entry["bytes"] >= 0 and _names_a_file(entry["path"])


def _has(part: Any, kinds: dict[str, Any]) -> bool:
    """Return whether `part` is a mapping with these keys, each of its kind."""
    return isinstance(part, dict) and all(name in part and isinstance(part[name], kinds[name]) for name in kinds)


def _is_a_time(text: str) -> bool:
    """Return whether a text is a time with its zone, in a year in which a stage can have run."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return False
    return time.tzinfo is not None and _FIRST_YEAR <= time.year <= _LAST_YEAR


def _names_a_file(path: str) -> bool:
    """Return whether a text can be the path of a file below the project."""
    try:
        raw = os.fsencode(path)
    except UnicodeEncodeError:
        return False
    parts = raw.split(b"/")
    below = bool(raw) and not raw.startswith(b"/") and not {b"", b".", b".."} & set(parts)
    return below and len(raw) <= _LONGEST_PATH and b"\0" not in raw and max(map(len, parts)) <= _LONGEST_NAME


# Describe what a stage runs on: packages compared with the lock file, processor, BLAS, threads, container.

LOCK = Path(__file__).parents[3] / "requirements.lock"
CONTAINER = "DPFL_CONTAINER"
"""Environment variable that names the container image, with its digest: image@sha256:..."""
DECIDING = (
    "numpy", "scipy", "pandas", "matplotlib", "torch", "opacus", "dp-accounting", "scikit-learn", "snakemake",
)  # fmt: skip
"""Packages whose versions decide numbers, pages or the crate."""
SAME_NUMBERS = {
    "numpy": ">=2,<3", "scipy": ">=1.14,<2", "torch": ">=2.6,<3", "scikit-learn": ">=1.4,<2", "opacus": "==1.6.0",
    "dp-accounting": "==0.6.0",
}  # fmt: skip
"""Versions whose runs count as the same: within them numbers differ by rounding at most. Runs of others train anew."""

_UNLOCKED = {"dpfl", "pip", "setuptools", "wheel"}
"""Packages that an environment has without being named by the lock file."""
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;#]+)", re.MULTILINE)


def software() -> dict[str, Any]:
    """Return the versions that decide numbers, and how the environment differs from the lock file.

    `lock`: SHA-256 of requirements.lock, None where dpfl runs without it. `not_as_locked`: packages of another version
    than the lock file's, with theirs; empty where the environment is the lock's. `container`: digest of the image.
    """
    from importlib import metadata  # slow, and every command imports this file

    named = _DIGEST.search(os.environ.get(CONTAINER, ""))
    return {
        "python": platform.python_version(),
        "dpfl": __version__,
        **{name: metadata.version(name) for name in DECIDING},
        "lock": hashlib.sha256(LOCK.read_bytes()).hexdigest() if LOCK.exists() else None,
        "not_as_locked": _not_as_locked(),
        "container": named[0] if named else None,
    }


def gives_these_numbers(recorded: Mapping[str, Any]) -> bool:
    """Return whether a run with the versions of a record's `software` need not be trained again: each is of
    SAME_NUMBERS, or is installed here."""
    from importlib import metadata

    return all(
        _is_within(str(recorded.get(name)), versions) or recorded.get(name) == metadata.version(name)
        for name, versions in SAME_NUMBERS.items()
    )


def _is_within(version: str, versions: str) -> bool:
    """Return whether a version is one of a specification's; a text that is no version is not."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion

    try:
        return SpecifierSet(versions).contains(version.partition("+")[0], prereleases=True)
    except InvalidVersion:
        return False


def host(device: str, threads: int) -> dict[str, Any]:
    """Return device and threads of a stage, system, processor, and the threads in force: of every linear algebra
    library that is loaded (`blas`), of torch where it is loaded, and OMP_NUM_THREADS; of a GPU what decides its bits.
    Neither user nor host name."""
    from threadpoolctl import threadpool_info

    libraries = [each for each in threadpool_info() if each["user_api"] == "blas"]
    torch = sys.modules.get("torch")
    return {
        "device": device,
        "threads": threads,
        "system": sys.platform,
        "cpu": _processor(),
        "blas": sorted({f"{each['internal_api']} {each['version']} x {each['num_threads']}" for each in libraries}),
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
        "torch_threads": torch.get_num_threads() if torch else None,
        **(gpu.facts() if device == "cuda" else {}),
    }


CLOCKS = timedelta(seconds=60)
"""By how much the clocks of two machines of a run may differ."""


def started(record: Mapping[str, Any]) -> datetime:
    """Return when a stage began."""
    return datetime.fromisoformat(record["started"])


def is_before(record: Mapping[str, Any], maker: Mapping[str, Any]) -> bool:
    """Return whether a stage began before another had ended, whose files it says that it read."""
    return started(record) + CLOCKS < started(maker) + timedelta(seconds=maker["seconds"])


def machine(record: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a record notes of the machine that may decide the last digits of a computed array: system, processor,
    and the versions of torch and numpy."""
    parts = {"host": ("system", "cpu"), "software": ("torch", "numpy")}
    return tuple(str(record[part].get(name)) for part, names in parts.items() for name in names)


def locked_versions(lock: str) -> dict[str, str]:
    """Return the version of every package that the text of a lock file pins, by its normalised name."""
    return {_normal(name): version for name, version in _PINNED.findall(lock)}


def is_locked(version: str, pinned: str) -> bool:
    """Return whether an installed version is the pinned one; a build's label (2.13.0+cpu) does not count."""
    return version.partition("+")[0] == pinned.partition("+")[0]


@cache
def _not_as_locked() -> dict[str, str]:
    """Return the packages that differ from the lock file: their version here, or "not installed"."""
    from importlib import metadata

    if not LOCK.exists():
        return {}
    pinned = locked_versions(LOCK.read_text(encoding="utf-8"))
    here = {_normal(each.metadata["Name"]): each.version for each in metadata.distributions()}
    other = {
        name: version
        for name, version in here.items()
        if name not in _UNLOCKED and not (name in pinned and is_locked(version, pinned[name]))
    }
    return dict(sorted((other | dict.fromkeys(set(pinned) - set(here), "not installed")).items()))


def _normal(name: str) -> str:
    """Return a package's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def _processor() -> str:
    """Return the model of the processor, as far as the system tells it."""
    table = Path("/proc/cpuinfo")
    text = table.read_text(encoding="utf-8", errors="replace") if table.exists() else ""
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return model[1].strip() if model else platform.processor() or platform.machine()


# Check the inputs of a stage against the records of the stages that wrote them, before they are used.


def check(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Return path (relative to the working folder), size in bytes and SHA-256 of every file, in order.

    Every file is hashed, however old it looks: the hash in a record is that of the bytes that were there. Raises
    InputError naming the first file that is missing, no regular file, or not what the record next to it says.
    """
    return [_checked(path) for path in paths]


def _checked(path: Path) -> dict[str, Any]:
    """Describe one file."""
    if not path.exists():
        raise InputError(f"{path} is not there: an earlier stage has to write it (dpfl run)")
    if not is_regular(path):
        raise InputError(f"{path} is not a regular file: delete it and run make again")
    written, size = _outputs(path.parent.absolute()).get(path.name), path.stat().st_size
    if written is None or written["bytes"] == size:
        entry = {"path": os.path.relpath(path), "bytes": size, "sha256": file_sha256(path)}
        if written is None or written["sha256"] == entry["sha256"]:
            return entry
    raise InputError(
        f"{path} is not what its record says: it is damaged or was edited; "
        "have it made again with dpfl audit --rebuild results/<scale>, then run make again"
    )


@cache
def _outputs(folder: Path) -> dict[str, dict[str, Any]]:
    """Return, by file name, the outputs that the records of a folder list; a stage reads the records once.

    `folder` is absolute: a process that changes its working folder must not find the records of the one before.
    """
    outputs = {}
    for record in sorted(folder.glob("*.record.json")):
        for output in read_record(record)["outputs"]:
            outputs.setdefault(Path(output["path"]).name, output)
    return outputs


COMMIT = "DPFL_COMMIT"
"""Environment variable that names the commit of a source tree without git: on a borrowed machine, in a container."""


@dataclass
class StageRecorder:
    """A running stage and the modules that do its work: it `reads` its inputs, and `write`s the record at its end.

    `identity` is what decides the outputs, where they are not made again as long as it is the same (run_identity).
    Paths in the record are relative to the working folder; neither user nor host names are written.
    """

    name: str
    modules: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    device: str = "cpu"
    threads: int = 1
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    clock: float = field(default_factory=time.perf_counter)
    inputs: list[dict[str, Any]] = field(default_factory=list)
    identity: dict[str, str] | None = None
    source: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        """Note the code when the stage begins: a checkout may change while it runs."""
        self.source = {"modules": list(self.modules), "digest": source_digest(*self.modules), **_commit()}

    def reads(self, paths: Iterable[Path]) -> None:
        """Note the files that the stage is about to read.

        Raises InputError where one is not what its record says, or is outside the project, if no record may point.
        """
        paths = list(paths)
        if outside := [path for path in paths if os.path.relpath(path).startswith("..")]:
            raise InputError(f"{outside[0]} is outside the project: copy it here, for its record to name it")
        self.inputs += check(paths)

    def write(self, path: Path, outputs: Iterable[Path]) -> None:
        """Write the record to `path`, with size and SHA-256 of every input and output file."""
        record = {
            "format": FORMAT,
            "stage": self.name,
            "started": self.started,
            "settings": self.settings,
            "seeds": list(self.seeds),
            "inputs": self.inputs,
            **({"identity": self.identity} if self.identity else {}),
            "outputs": [_describe(file) for file in outputs],
            "source": {**self.source, **_published(self.settings)},
            "software": software(),
            "host": host(self.device, self.threads),
            "seconds": round(time.perf_counter() - self.clock, 3),
        }
        write_atomically(path, json.dumps(record, indent=1) + "\n")


def _describe(path: Path) -> dict[str, Any]:
    """Return path (relative to the working folder), size in bytes and SHA-256 of a file that was just written."""
    return {"path": os.path.relpath(path), "bytes": path.stat().st_size, "sha256": file_sha256(path)}


def _published(settings: dict[str, Any]) -> dict[str, str]:
    """Return the hash of a paper's facts, for a stage that reads them."""
    return {"published": published_digest(settings["paper"])} if settings.get("paper") in keys() else {}


def published_digest(paper: str) -> str:
    """Return a hash of what a paper says: settings, published numbers, figures, claims and errata."""
    facts = load(paper)
    text = json.dumps([facts.settings, facts.tables, facts.figures, facts.claims, facts.errata], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def _commit() -> dict[str, Any]:
    """Return the commit of the source tree and whether it had changes.

    Where the source tree is no git checkout of its own: the commit that DPFL_COMMIT names, if any, whose code the audit
    compares with the digest.
    Asked for once, as the code of a process is loaded once.
    """
    here = Path(__file__).parent
    tree = here.parents[2]
    commit = git(tree, "rev-parse", "HEAD")
    if commit is None:
        named = os.environ.get(COMMIT, "")
        return {"commit": named if COMMIT_HASH.fullmatch(named) else None, "dirty": None}
    changes = git(tree, "status", "--porcelain", "--untracked-files=all", "--", str(here.parent))
    return {"commit": commit.decode().strip(), "dirty": changes is None or bool(changes)}  # None: git did not answer
