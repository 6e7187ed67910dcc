"""Compare the commit, source digest and lock file of every record with the git repository of this source tree."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from dpfl.commands import git
from dpfl.provenance import environment
from dpfl.provenance.audit.findings import Audit, Finding
from dpfl.provenance.source_digest import source_digest

_REPOSITORY = Path(__file__).parents[4]
_COMMIT = re.compile("[0-9a-f]{40}")
_LOCK = "requirements.lock"
_PACKAGE = "src/dpfl"


def check_commits(report: Audit, records: Iterable[dict[str, Any]], repository: Path = _REPOSITORY) -> None:
    """Add records whose commit git does not have, whose code is not the commit's, or whose versions not the lock's.

    Where the source tree is no git checkout, or a shallow one that lacks a commit, that is a note. Run tables that were
    trained from a changed tree or without a commit are noted with their number: nothing ties their code to a commit.
    """
    known = list({record["outputs"][0]["path"]: record for record in records}.values())
    _note_unclean(report, [record for record in known if record["stage"] == "train"])
    if git(repository, "rev-parse", "--verify", "HEAD") is None:
        report.notes.append("commits were not checked: the source tree here is no git checkout")
    by_commit: dict[str | None, list[dict[str, Any]]] = {}
    for record in known:
        by_commit.setdefault(record["source"]["commit"], []).append(record)
    for commit, own in by_commit.items():
        with tempfile.TemporaryDirectory() as scratch:
            tree = _extracted(repository, commit, Path(scratch)) if commit else None
            if commit and tree is None and (words := _absence(repository, commit)):
                report.findings += [Finding(record["outputs"][0]["path"], words) for record in own]
            for record in own:
                for problem in (*_against_tree(record, tree), *_against_lock(record, tree)):
                    report.findings.append(Finding(record["outputs"][0]["path"], problem))
            if tree:
                report.count("records compared with their commit", len(own))


def _note_unclean(report: Audit, runs: list[dict[str, Any]]) -> None:
    """Note how many run tables no commit accounts for, and how many state other versions than their lock file's."""
    commitless = [run for run in runs if run["source"]["commit"] is None or run["source"].get("dirty")]
    unlocked = [run for run in runs if run["software"]["not_as_locked"] or run["software"]["lock"] is None]
    for words, found in (
        ("trained from a changed tree or without a commit", commitless),
        (f"trained in an environment that is not that of {_LOCK}", unlocked),
    ):
        if found:
            report.notes.append(f"{words}: {len(found)} of {len(runs)} run tables")


def _absence(repository: Path, commit: str) -> str:
    """Return the finding for a commit that git does not have; empty where git cannot know."""
    if not _COMMIT.fullmatch(commit):
        return f"has a record of a commit that cannot be one: {commit!r}"
    full = git(repository, "rev-parse", "--is-shallow-repository") == b"false\n"
    return f"has a record of commit {commit}, which the repository does not have" if full else ""


def _against_tree(record: dict[str, Any], tree: Path | None) -> Iterator[str]:
    """Yield that a record's source digest is not that of its commit; a changed tree has another one."""
    source = record["source"]
    if tree is None or source.get("dirty"):
        return
    try:
        digest = source_digest(*source["modules"], root=tree / _PACKAGE)
    except (ModuleNotFoundError, SyntaxError, TypeError, AttributeError) as error:
        yield f"has a record of modules that commit {source['commit'][:10]} does not have: {error}"
        return
    if digest != source["digest"]:
        yield f"has a record of source digest {source['digest']}; commit {source['commit'][:10]} has {digest}"


def _against_lock(record: dict[str, Any], tree: Path | None) -> Iterator[str]:
    """Yield the versions that contradict the lock file that the record names."""
    software = record["software"]
    lock = (tree / _LOCK) if tree else environment.LOCK
    if software["lock"] is None and tree and lock.is_file() and not record["source"].get("dirty"):
        yield f"has a record that names no {_LOCK}, which its commit has"
    if software["lock"] is None or not lock.is_file():
        return
    content = lock.read_bytes()
    if hashlib.sha256(content).hexdigest() != software["lock"]:
        if tree and not record["source"].get("dirty"):
            yield f"has a record of another {_LOCK} than that of its commit"
        return
    pinned = environment.locked_versions(content.decode("utf-8"))
    for name in environment.DECIDING:
        wanted = software["not_as_locked"].get(name, pinned.get(name, ""))
        if not environment.is_locked(str(software.get(name)), str(wanted)):
            yield f"has a record of {name} {software.get(name)}, where its environment has {wanted}"


def _extracted(repository: Path, commit: str, scratch: Path) -> Path | None:
    """Return a folder with source and lock file of a commit, or None where git does not have it."""
    if not _COMMIT.fullmatch(commit):
        return None
    names = [name for name in (_PACKAGE, _LOCK) if git(repository, "cat-file", "-e", f"{commit}:{name}") is not None]
    packed = git(repository, "archive", "--format=tar", commit, "--", *names) if names else None
    if packed is None:
        return None
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            path = scratch / member.name
            if member.isfile() and path.resolve().is_relative_to(scratch.resolve()):  # no link, so none leads out
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.extractfile(member).read())
    return scratch
