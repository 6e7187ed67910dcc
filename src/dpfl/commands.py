"""Ask other programs: git, SLURM, the GPU's driver."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

_SECONDS = 60.0


def output_of(*words: str | Path, environment: Mapping[str, str] | None = None) -> bytes | None:
    """Return what a command prints; None where it is not installed, fails, or does not answer within a minute."""
    try:
        done = subprocess.run(words, capture_output=True, timeout=_SECONDS, env=environment)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def git(tree: Path, *words: str) -> bytes | None:
    """Return what git prints of the working tree whose top folder is `tree`, without taking its locks.

    None as for `output_of`, and where `tree` is no such folder: an archive that was unpacked inside another repository
    would be taken for a part of it. So would any folder by the variables that git sets for its hooks (GIT_DIR): none of
    them is passed on.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ("git", "--no-optional-locks", "-C", tree)
    top = output_of(*command, "rev-parse", "--show-toplevel", environment=environment)
    if top is None or Path(os.fsdecode(top.removesuffix(b"\n"))).resolve() != tree.resolve():
        return None
    return output_of(*command, *words, environment=environment)
