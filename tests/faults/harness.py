"""Run `dpfl` in a child process of this one, and judge how it ended."""

import os
import re
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dpfl.cli import main

REPOSITORY = Path(__file__).parents[2]
SECONDS = 240.0
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit status (None where it hung), and what it printed."""

    status: int | None
    out: str
    err: str

    @property
    def has_traceback(self) -> bool:
        """True where Python's own words on an exception were printed."""
        return "Traceback (most recent call last)" in self.out + self.err


def dpfl(*arguments: str, folder: Path, seconds: float = SECONDS) -> Ended:
    """Run `dpfl` with these arguments in a folder, as a process group of its own that is ended after `seconds`."""
    outputs = [folder.parent / f"{folder.name}.{name}" for name in ("out", "err")]
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        _become(arguments, folder, outputs)
    until = time.monotonic() + seconds
    status = None
    while status is None and time.monotonic() < until:
        ended, code = os.waitpid(child, os.WNOHANG)
        status = os.waitstatus_to_exitcode(code) if ended else None
        time.sleep(0.01)
    if status is None:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return Ended(status, *(path.read_text(encoding="utf-8", errors="replace") for path in outputs))


def _become(arguments: tuple[str, ...], folder: Path, outputs: list[Path]) -> None:
    """Turn this child into a run of `dpfl`; does not return."""
    status = 1
    try:
        os.setsid()
        os.chdir(folder)
        for number, path in zip((1, 2), outputs, strict=True):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8") for number in (1, 2))
        sys.argv = ["dpfl", *arguments]
        main()
        status = 0
    except SystemExit as asked:
        status = asked.code if isinstance(asked.code, int) else int(asked.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def refused_in_one_line(ended: Ended) -> str:
    """Return what is wrong with a refusal: it should be status 2 and one line of dpfl's, and nothing else."""
    if ended.status is None:
        return "hung"
    lines = ended.err.splitlines()
    if (
        ended.status != 2
        or ended.out
        or len(lines) != 1
        or not lines[0].startswith("dpfl: ")
        or _CONTROL.search(lines[0])
    ):
        return f"status {ended.status}, {len(lines)} lines: {(ended.out + ended.err)[-600:]!r}"
    return ""


def report(kind: str, outcomes: Iterable[tuple[str, str]]) -> bool:
    """Print a line for every failure, then the counts by what was injected; return whether there was none.

    `outcomes`: what was injected, and what went wrong ("" where it was survived, found or refused).
    """
    injected: Counter[str] = Counter()
    failed = 0
    for what, problem in outcomes:
        injected[what.partition(":")[0]] += 1
        if problem:
            failed += 1
            print(f"FAILED {what}: {problem}", flush=True)
    print(f"{kind}: {injected.total()} injected, {failed} failed", flush=True)
    for what, count in sorted(injected.items()):
        print(f"  {count:4d} {what}")
    return failed == 0


def files_of(folder: Path) -> dict[str, int]:
    """Return every entry below a folder with the time of its last change."""
    return {str(path.relative_to(folder)): path.lstat().st_mtime_ns for path in sorted(_walk(folder))}


def _walk(folder: Path) -> Iterator[Path]:
    """Yield every entry below a folder; links are not followed."""
    for place, folders, files in os.walk(folder):
        yield from (Path(place, name) for name in (*folders, *files))
