"""Flipped bits and odd files in finished, sealed results: the audit of files names each, and nothing where all is well.

The files are those of a small project that the stages made: data, features, noise, run tables, pages, records, manifest
and crate. What the audit does not read is left out: config.yaml and audit.txt, and records of data below data/, whose
copies below results/<scale>/sources are what counts.
"""

import os
import random
import runpy
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import yaml
from harness import REPOSITORY, dpfl

from dpfl.provenance import manifest, record, trace
from dpfl.provenance.audit.files import audit
from dpfl.provenance.audit.findings import Audit
from dpfl.reporting.pages import DERIVED

RESULTS = Path("results/demo")
LEFT_OUT = ("config.yaml", "audit.txt")
KINDS = {"bit": 12, "byte": 2, "cut": 2, "longer": 1, "empty": 1, "zeros": 1, "gone": 1}
KINDS |= {"folder": 1, "pipe": 1, "dead link": 1, "link": 1, "swapped": 1}
"""What is injected, and how often relative to the others."""
ROUND = 50
"""After so many faults the audit must find nothing."""


def _make(folder: Path) -> None:
    """Make the project by its stages, and seal it."""
    tests = SimpleNamespace(**runpy.run_path(str(REPOSITORY / "tests" / "provenance" / "conftest.py")))
    os.chdir(folder)
    for name in ("Snakefile", "README.md", "config.yaml"):
        shutil.copy(REPOSITORY / name, folder)
    RESULTS.mkdir(parents=True)
    (RESULTS / "config.yaml").write_text(yaml.safe_dump(tests.CONFIG))
    tests.small_digits(Path("data/arrays/digits"))
    of_paper = ("--paper", "bhaskar2025", *tests.SETTINGS)
    stages = [("features", "--dataset", "digits", *tests.SETTINGS), ("calibrate", *of_paper)]
    stages += [("train", "--job", f"digits_scatter_linear_k10_seed{seed}", *of_paper) for seed in (0, 1)]
    stages += [(kind, "--name", name, *of_paper) for kind, name in tests.MADE]
    stages += [("audit", "--files-only", "--seal", str(RESULTS)), ("crate", str(RESULTS))]
    for stage in stages:
        ended = dpfl(*stage, folder=folder, seconds=1200)
        if ended.status:
            raise SystemExit(f"{stage} ended with {ended.status}: {ended.err[-2000:]}")


def _audited() -> Audit:
    """Audit the files as a process of its own would."""
    record._outputs.cache_clear()
    trace.writers.cache_clear()
    return audit(RESULTS)


def _targets() -> list[Path]:
    """The files that are damaged, one after the other."""
    found = [path for part in ("data", "results") for path in sorted(Path(part).rglob("*")) if path.is_file()]
    of_data = [path for path in found if path.parts[0] == "data" and path.name.endswith(".record.json")]
    return [path for path in found if path.name not in LEFT_OUT and path not in of_data]


def _damage(path: Path, kind: str, draw: random.Random, others: list[Path]) -> None:
    """Put a fault where a file is."""
    content = bytearray(path.read_bytes())
    if kind in ("bit", "byte"):
        place = draw.randrange(len(content))
        content[place] ^= 1 << draw.randrange(8) if kind == "bit" else draw.randint(1, 255)
        path.write_bytes(content)
    elif kind in ("cut", "longer", "empty", "zeros"):
        changed = {"cut": content[: draw.randrange(len(content))], "longer": content + b"\n", "empty": b""}
        path.write_bytes(changed.get(kind, bytes(len(content))))
    elif kind == "swapped":
        shutil.copyfile(draw.choice([other for other in others if other.read_bytes() != bytes(content)]), path)
    else:
        path.unlink()
        if kind == "folder":
            path.mkdir()
        elif kind == "pipe":
            os.mkfifo(path)
        elif kind != "gone":
            path.symlink_to("nowhere" if kind == "dead link" else draw.choice(others).absolute())


def _restore(path: Path, kept: Path) -> None:
    """Put a file back as it was."""
    path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    shutil.copy2(kept, path)


def _is_named(path: Path, kind: str, report: Audit) -> bool:
    """Return whether the audit names the file, or the record of its stage; a page or data may be noted as not there."""
    names = {finding.path for finding in report.findings}
    if kind == "gone" and (path.suffix in DERIVED or path.parts[0] == "data" or path.name.endswith(".zip")):
        return True
    if path.name == manifest.MANIFEST:  # a changed name in it is a record that is gone, and one that was added
        return bool(names) or (kind == "gone" and any(manifest.MANIFEST in note for note in report.notes))
    return bool(names & {str(path), f"{path}.record.json", str(path).removesuffix(".record.json")})


def inject(count: int, seed: int, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield what was injected and what went wrong."""
    draw, kept = random.Random(seed), folder.parent / "kept"
    _make(folder)
    targets = _targets()
    for number in range(count):
        path = draw.choice(targets)
        kind = draw.choices(list(KINDS), list(KINDS.values()))[0]
        shutil.copy2(path, kept)
        _damage(path, kind, draw, targets)
        found = _audited()
        problem = "" if _is_named(path, kind, found) else f"not named; found: {found.lines()[:3]}"
        _restore(path, kept)
        if number % ROUND == ROUND - 1 and (alarms := _audited().findings):
            problem = problem or f"false alarm: {alarms[:2]}"
        yield f"{kind}: {number}, {path}", problem
