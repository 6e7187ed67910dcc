"""A run makes anew what is damaged or replaced by a link, and needs nobody's help for it."""

import hashlib
import shutil

import pytest

pytestmark = [pytest.mark.workflow, pytest.mark.slow]

RESULTS, CRATE = "results/demo", "results/demo.crate.zip"
PAGES = ("smith2026_risk.md", "smith2026_risk.html")


@pytest.fixture
def project(small_run, runner, tmp_path):
    """A copy of a finished run with its crate; folder and runner."""
    folder = shutil.copytree(small_run[0], tmp_path / "a copy", symlinks=True)
    run = runner(folder)
    for command in (("dpfl", "run", "--config", "tiny.yaml"), ("dpfl", "crate", RESULTS)):
        done = run(*command)
        assert done.returncode == 0, done.stderr[-3000:]
    return folder, run


def flip(path):
    """Change a bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def link(path, target):
    """Put a link in the place of a file."""
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_run_mends_a_damaged_crate_and_links_beside_a_lost_page(project):
    folder, run = project
    results, crate, victim = folder / RESULTS, folder / CRATE, folder / "victim"
    pages = [results / "tables" / name for name in PAGES]
    before = [sha256(path) for path in pages]
    for crate_is in ("flipped", "a dead link"):
        flip(crate) if crate_is == "flipped" else link(crate, "nowhere")
        victim.write_text("years of work")
        link(pages[1], "nowhere" if crate_is == "flipped" else victim)
        link(results / "README.md", "nowhere")
        link(results / "report.html", victim)
        link(results / "audit.txt", folder / "made")
        link(results / "logs" / "audit.log", victim)
        link(results / "benchmarks" / "audit.tsv", folder / "made")
        pages[0].unlink()
        for command in (("dpfl", "run", "--config", "tiny.yaml"), ("dpfl", "crate", RESULTS)):
            done = run(*command)
            assert done.returncode == 0, (crate_is, done.stderr[-3000:])
        assert not [path for path in (folder / "results").rglob("*") if path.is_symlink()]
        assert victim.read_text() == "years of work" and not (folder / "made").exists()
        assert [sha256(path) for path in pages] == before
        audited = run("dpfl", "audit", RESULTS, "--files-only")
        assert audited.returncode == 0, (crate_is, audited.stdout)
