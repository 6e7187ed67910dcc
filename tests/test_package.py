"""The package as others get it: the source distribution is the checkout, and an index can follow its links."""

import re
import subprocess
import sys
import tarfile
import tomllib

import pytest
import yaml


@pytest.mark.slow
def test_the_source_distribution_has_every_file_of_the_checkout(repository, tmp_path):
    pytest.importorskip("setuptools", "77")
    listed = subprocess.run(["git", "ls-files"], cwd=repository, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("no clone: this is a source distribution")
    names = listed.stdout.split("\n")[:-1]
    copy = tmp_path / "copy"
    for name in names:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((repository / name).read_bytes())
    (copy / "results/paper/logs").mkdir()
    (copy / "results/paper/logs/own.log").touch()
    code = "import sys; from setuptools.build_meta import build_sdist; print(build_sdist(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    with tarfile.open(tmp_path / done.stdout.split()[-1]) as archive:
        packed = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    made = {name for name in packed - set(names) if "egg-info" not in name}
    assert set(names) <= packed and made == {"PKG-INFO", "setup.cfg"}


def test_an_index_can_follow_every_link_of_the_description(repository):
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    text = (repository / project["readme"]).read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)]*)\)", text)
    assert len(targets) == 5 and all(target.startswith("https://") for target in targets)


def test_actions_are_pinned_by_hash_and_may_only_read(repository):
    ci = yaml.safe_load((repository / ".github/workflows/ci.yml").read_text())
    used = [step["uses"] for job in ci["jobs"].values() for step in job["steps"] if "uses" in step]
    assert used and all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", name) for name in used)
    assert ci["permissions"] == {"contents": "read"}


def test_the_container_begins_from_a_digest_and_does_not_run_as_root(repository):
    recipe = (repository / "Containerfile").read_text()
    steps = [line.split() for line in recipe.splitlines() if re.match("[A-Z]+ ", line)]
    users = [step[1] for step in steps if step[0] == "USER"]
    assert users == ["dpfl"] and [step[0] for step in steps][-3:] == ["USER", "WORKDIR", "ENTRYPOINT"]
    assert "ENV HOME=/tmp USER=dpfl\n" in recipe
    [base] = [step[1] for step in steps if step[0] == "ARG" and step[1].startswith("BASE=")]
    assert re.fullmatch(r"BASE=docker\.io/library/python@sha256:[0-9a-f]{64}", base)
    assert [step[1] for step in steps if step[0] == "FROM"] == ["${BASE}"]
