"""A release is signed by a key, and a signature holds for one manifest, one key and one purpose."""

import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dpfl.cli import app
from dpfl.errors import InputError
from dpfl.files import record_path
from dpfl.provenance import manifest
from dpfl.provenance.audit import release
from dpfl.provenance.audit.findings import Audit

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")


def new_key(folder, name):
    """A throw-away key and the file of those who trust it."""
    key, signers = folder / name, folder / f"{name}.signers"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", key], check=True)
    signers.write_text(f"{name}@example.org {key.with_suffix('.pub').read_text()}")
    return key, signers


@pytest.fixture
def signed(chain, tmp_path):
    """Results whose manifest is signed: their folder, the statement, the key and who trusts it."""
    manifest.write(chain)
    key, signers = new_key(tmp_path, "author")
    return chain, release.sign(chain, key), key, signers


def problems(folder, statement, signers):
    report = Audit()
    release.check_signature(report, folder, statement, signers)
    return [finding.problem for finding in report.findings], report.notes


def test_a_release_is_the_author_s(signed):
    folder, statement, _, signers = signed
    assert problems(folder, statement, signers) == ([], [f"signed by author@example.org: {folder / 'manifest.json'}"])


def test_a_key_that_is_not_trusted_is_found(signed, tmp_path):
    folder, statement, _, _ = signed
    _, others = new_key(tmp_path, "forger")
    assert "no valid signature" in problems(folder, statement, others)[0][0]


def test_an_edited_statement_is_found(signed):
    folder, statement, _, signers = signed
    statement.write_text(statement.read_text().replace("0.2.0", "0.2.1"))
    assert "no valid signature" in problems(folder, statement, signers)[0][0]


def test_a_manifest_written_again_is_found(signed):
    folder, statement, _, signers = signed
    record_path(folder / "table.csv").unlink()
    manifest.write(folder)
    assert "another manifest.json" in problems(folder, statement, signers)[0][0]
    (folder / "manifest.json").unlink()
    assert "another manifest.json" in problems(folder, statement, signers)[0][0]


def test_a_signature_for_another_purpose_is_found(signed):
    folder, statement, key, signers = signed
    release.signature_of(statement).unlink()
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", "file", statement], check=True)
    assert "no valid signature" in problems(folder, statement, signers)[0][0]


def test_records_that_the_manifest_does_not_list_are_not_signed(signed):
    folder, _, key, _ = signed
    record_path(folder / "table.csv").unlink()
    with pytest.raises(InputError, match=r"not as manifest\.json lists"):
        release.sign(folder, key)


def test_a_key_that_cannot_sign_leaves_the_earlier_release(signed, tmp_path):
    folder, statement, _, signers = signed
    with pytest.raises(InputError, match="cannot be signed"):
        release.sign(folder, tmp_path / "no-such-key")
    assert problems(folder, statement, signers)[0] == []


def test_the_commands_sign_and_check(signed):
    _, statement, key, signers = signed
    statement.unlink()
    done = CliRunner().invoke(app, ["release", "results/demo", "--key", str(key)])
    assert done.exit_code == 0, (done.output, done.exception)
    command = ["audit", "--files-only", "results/demo", "--signature", "results/demo.release.json"]
    done = CliRunner().invoke(app, [*command, "--signers", str(signers)])
    assert done.exit_code == 0 and "signed by author@example.org" in done.output, (done.output, done.exception)
    assert isinstance(CliRunner().invoke(app, command).exception, InputError)
    assert Path("results/demo.release.json.sig").exists()
