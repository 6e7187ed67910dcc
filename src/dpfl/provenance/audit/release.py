"""Sign the manifest of results as a release, and check such a signature. No network: ssh-keygen does both.

The statement is an in-toto statement v1 (https://github.com/in-toto/attestation) about one file, the manifest, which
lists the hash of every record, which states the hash of every file.
"""

from __future__ import annotations

import json
import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Any

from dpfl import __version__
from dpfl.errors import InputError
from dpfl.files import is_regular, parse_json, read_bytes, write_atomically
from dpfl.provenance import manifest
from dpfl.provenance.audit.findings import Audit, Finding

NAMESPACE = "dpfl-release"
"""What the signature is for (ssh-keygen -n): one made for another purpose is not accepted."""
_TYPE = "https://in-toto.io/Statement/v1"
_PREDICATE = "urn:dpfl:release:1"
_LONGEST = 1 << 20
"""Bytes of a statement, its signature or a list of keys."""


def sign(folder: Path, key: Path) -> Path:
    """Write <folder>.release.json with the manifest's hash, and its signature by an SSH key; return its path.

    Raises InputError if there is no manifest, it does not list what is there, or ssh-keygen fails: then an earlier
    release is left as it was.
    """
    manifest.require_current(folder)
    path = folder.parent / f"{folder.name}.release.json"
    statement = json.dumps(_statement(folder), indent=1) + "\n"
    done = _ssh_keygen("sign", "-f", str(key), "-n", NAMESPACE, content=statement.encode())
    if done.returncode:
        raise InputError(f"{path} cannot be signed with {key}: {_last_line(done)}")
    write_atomically(path, statement)
    write_atomically(signature_of(path), done.stdout.decode("ascii"))
    return path


def check_signature(report: Audit, folder: Path, statement: Path, signers: Path) -> None:
    """Add a finding if no trusted key signed the statement, or it is about another manifest than the one here.

    `signers`: keys that the auditor trusts, in the format ALLOWED SIGNERS of ssh-keygen(1). Raises InputError where a
    file is missing.
    """
    signature = signature_of(statement)
    for path in (statement, signature, signers):
        if not is_regular(path):
            raise InputError(
                f"{path} is not a regular file: a release has a statement, its .sig, and keys that you trust"
            )
        if path.stat().st_size > _LONGEST:  # ssh-keygen would read on
            raise InputError(
                f"{path} has more than {_LONGEST} bytes, which no statement, signature or list of keys has"
            )
    found = _ssh_keygen("find-principals", "-f", str(signers), "-s", str(signature))
    signer = (found.stdout.decode("utf-8", "replace").split() or [""])[0]
    options = ("-f", str(signers), "-I", signer, "-n", NAMESPACE, "-s", str(signature))
    content = read_bytes(statement, _LONGEST)
    if found.returncode or _ssh_keygen("verify", *options, content=content).returncode:
        report.findings.append(Finding(str(statement), f"has no valid signature by a key of {signers}"))
        return
    if _subject(content) != _statement(folder)["subject"]:
        report.findings.append(Finding(str(statement), f"was signed for another {manifest.MANIFEST} than the one here"))
        return
    report.count("signatures")
    report.notes.append(f"signed by {signer}: {folder / manifest.MANIFEST}")


def signature_of(statement: Path) -> Path:
    """Return where ssh-keygen writes the signature of a file."""
    return statement.with_name(statement.name + ".sig")


def _statement(folder: Path) -> dict[str, Any]:
    """Return the statement about the manifest of results/<scale>."""
    name = f"results/{folder.absolute().name}/{manifest.MANIFEST}"
    path = folder / manifest.MANIFEST
    digest = sha256(read_bytes(path)).hexdigest() if is_regular(path) else ""
    return {
        "_type": _TYPE,
        "subject": [{"name": name, "digest": {"sha256": digest}}],
        "predicateType": _PREDICATE,
        "predicate": {"dpfl": __version__},
    }


def _subject(content: bytes) -> Any:
    """Return what a statement is about, None where it is none."""
    try:
        return parse_json(content)["subject"]
    except (ValueError, KeyError, TypeError):
        return None


def _ssh_keygen(action: str, *options: str, content: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    """Return how `ssh-keygen -Y` ended; raises InputError where it is not installed."""
    given: dict[str, Any] = {"stdin": None} if content is None else {"input": content}
    try:
        return subprocess.run(["ssh-keygen", "-Y", action, *options], capture_output=True, check=False, **given)
    except FileNotFoundError:
        raise InputError("ssh-keygen was not found: install OpenSSH (Debian: openssh-client)") from None


def _last_line(done: subprocess.CompletedProcess[bytes]) -> str:
    """Return the last line of what a command said."""
    return (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"])[-1]
