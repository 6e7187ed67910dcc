"""Ask other programs: git, SLURM, the GPU's driver."""

from __future__ import annotations

import subprocess
from pathlib import Path

_SECONDS = 60.0


def output_of(*words: str | Path) -> bytes | None:
    """Return what a command prints; None where it is not installed, fails, or does not answer within a minute."""
    try:
        done = subprocess.run(words, capture_output=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def git(folder: Path, *words: str) -> bytes | None:
    """Return what git prints in `folder`, without taking its locks; None as for `output_of`."""
    return output_of("git", "--no-optional-locks", "-C", folder, *words)
