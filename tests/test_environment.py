import re
import sys
import tomllib
from importlib.metadata import packages_distributions, version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version


def test_conda_and_pip_have_the_same_pins(repository):
    conda = yaml.safe_load((repository / "environment.yml").read_text())
    [pip] = [entry["pip"] for entry in conda["dependencies"] if isinstance(entry, dict)]
    assert pip == (repository / "requirements.lock").read_text().split()


def test_every_dependency_is_pinned_exactly_and_none_needs_cuda(repository):
    pins = (repository / "requirements.lock").read_text().split()
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9.]+", pin) for pin in pins)
    assert not [pin for pin in pins if pin.startswith(("nvidia", "triton", "cuda"))]
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = project["dependencies"] + extras["pipeline"] + extras["test"]
    pinned = {pin.split("==")[0].lower().replace("_", "-") for pin in pins}
    assert {re.split(r"[\[<>=]", need)[0].lower() for need in wanted} <= pinned


def test_every_place_that_names_the_versions_of_python_names_the_same(repository):
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    classified = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    assert f"{sys.version_info[0]}.{sys.version_info[1]}" in classified
    last = int(classified[-1].removeprefix("3."))
    assert project["requires-python"] == f">={classified[0]},<3.{last + 1}"
    job = yaml.safe_load((repository / ".github" / "workflows" / "ci.yml").read_text())["jobs"]["test"]
    assert job["strategy"]["matrix"]["python"] == classified == [f"3.{minor}" for minor in range(11, last + 1)]
    makefile = (repository / "Makefile").read_text()
    [fit] = re.findall(r"version_info\[:2\] not in \((.+?)\)\)\)", makefile)
    assert [f"{each[0]}.{each[1]}" for each in re.findall(r"\((\d), (\d+)", fit)] == classified
    tried = re.findall(r"set -- python3 python (.+?);", makefile)
    assert tried == [" ".join(f"python{each}" for each in reversed(classified))]
    said = f"{', '.join(classified[:-1])} or {classified[-1]}"
    for name in ("README.md", "docs/tutorial.md"):
        assert re.findall(r"You need Python (.+?), `make`", (repository / name).read_text()) == [said], name
    assert f"is not Python {said} with venv" in makefile
    assert f"Python {', '.join(classified[:-1])} and {classified[-1]}" in (repository / "CONTRIBUTING.md").read_text()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands[0] == "make env PYTHON=python${{ matrix.python }}"
    assert commands[1].startswith(".venv/bin/python -c 'import sys; assert ") and "${{ matrix.python }}" in commands[1]


def hashed(path):
    """Return the packages of a file of hashes, each as (name==version, hashes), without markers."""
    text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").strip().split("\n")
    return {line.split()[0].lower().replace("_", "-"): re.findall(r"--hash=\S+", line) for line in lines}


HASHED = ["requirements.hashes", "requirements.torch.hashes", "requirements.cuda.hashes", "requirements.cpu.hashes"]
HASHED += [
    "benchmarks/peers.lock",
    "tests/pyright.lock",
    "tests/provenance/validator.lock",
    "tests/mutants/mutants.lock",
]


@pytest.mark.parametrize("name", HASHED)
def test_every_package_has_hashes_that_pip_requires(repository, name):
    for package, hashes in hashed(repository / name).items():
        assert re.fullmatch(r"[a-z0-9.\[\]-]+==[a-z0-9.+]+", package)
        assert hashes and all(re.fullmatch("--hash=sha256:[0-9a-f]{64}", each) for each in hashes), package


def test_every_pin_has_its_hashes(repository):
    pins = set((repository / "requirements.lock").read_text().lower().replace("_", "-").split())
    assert pins == {*hashed(repository / HASHED[0]), *hashed(repository / HASHED[1])}
    assert all(name.startswith(("cuda-", "nvidia-", "triton")) for name in hashed(repository / HASHED[2]))
    [torch] = hashed(repository / HASHED[1])
    assert [*hashed(repository / HASHED[3])] == [f"{torch}+cpu"]


def test_nothing_is_installed_without_a_hash_but_what_a_test_of_versions_needs(repository):
    text = (repository / "Makefile").read_text().replace("\\\n", " ")
    [by_hash] = re.findall("^override BY_HASH := (.+)$", text, re.MULTILINE)
    [own] = re.findall("^override SELF := (.+)$", text, re.MULTILINE)
    assert (
        "--no-deps --require-hashes --requirement" in by_hash and "--no-deps --no-build-isolation --editable ." in own
    )
    calls = re.findall(r"^(?!.*LOWEST).*pip\"? (\S+)", text, re.MULTILINE)
    assert len(calls) >= 8 and set(calls) == {"$(BY_HASH)", "$(SELF)"}
    container = (repository / "Containerfile").read_text().replace("\\\n", " ")
    for each in re.findall(r"pip install ([^&;\n]+)", container):
        assert "--require-hashes" in each or "--no-deps --no-build-isolation --editable ." in each
    for path in (repository / ".github" / "workflows").glob("*.yml"):
        uses = re.findall(r"uses: (\S+)", path.read_text())
        assert uses and all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", each) for each in uses)


def imported(files):
    """Return what import statements name, those in long texts left out; a syntax tree of all files takes seconds."""
    texts = [re.sub(r'"""(?:.|\n)*?"""', "", path.read_text()) for path in files]
    absolute = re.compile(
        r"^ *(?:import|from) +([A-Za-z_]\w*)(?=[\w.]* import |[\w.]*(?: as \w+)?(?:,|$))", re.MULTILINE
    )
    return {name for text in texts for name in absolute.findall(text)}


def test_everything_that_is_imported_is_a_declared_dependency(repository):
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    distributions = packages_distributions()

    def undeclared(sources, needs):
        declared = {re.split(r"[\[<>=]", need)[0].lower().replace("_", "-") for need in needs} | {"dpfl"}
        paths = [repository / source for source in sources]
        files = [path for source in paths for path in ([source] if source.is_file() else source.rglob("*.py"))]
        apart = ("validate_crate.py", "jax_peer.py", "draw.py")  # they run in environments of their own
        modules = imported(path for path in files if path.name not in apart)
        beside = {path.stem for path in files} | {path.name for path in (repository / "src").iterdir()}
        owners = {name: distributions.get(name, [name]) for name in modules - sys.stdlib_module_names - beside}
        names = {name: {one.lower().replace("_", "-") for one in packages} for name, packages in owners.items()}
        return {name for name, packages in names.items() if not declared & packages}

    accountants, extras = project["dependencies"], project["optional-dependencies"]
    alone = [
        f"src/dpfl/{part}" for part in ("accounting", "errors.py", "files.py", "cli/app.py", "cli/account_commands.py")
    ]
    assert undeclared(alone, accountants) == {"matplotlib", "opacus"}  # at their first use
    assert len(accountants) <= 6
    assert not undeclared(["src"], accountants + extras["pipeline"] + extras["cluster"])
    slurm = {"snakemake_executor_plugin_slurm"}
    assert undeclared(["src"], accountants + extras["pipeline"]) == slurm  # a site's options alone ask for it
    needs = accountants + extras["pipeline"] + extras["cluster"] + extras["test"]
    assert not undeclared(["tests", "benchmarks"], needs)


def test_the_workflow_asks_for_the_snakemake_that_is_declared(repository):
    extras = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    [floor] = re.findall(r"snakemake\[reports\]>=([\d.]+)", "\n".join(extras["pipeline"]))
    assert f'min_version("{floor}")' in (repository / "workflow" / "Snakefile").read_text()


def test_the_run_with_the_lowest_versions_has_the_floors_that_are_declared(repository):
    """In the environment of `make test-lowest`: another package may need a newer version than we declare."""
    if Path(sys.prefix).name != ".venv-lowest":
        pytest.skip("not the environment of make test-lowest")
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needs = map(Requirement, [*project["dependencies"], *extras["pipeline"], *extras["test"]])
    floors = {need.name: [each.version for each in need.specifier if each.operator in (">=", "==")] for need in needs}
    assert {name: [version(name)] for name in floors if Version(version(name)) != Version(floors[name][0])} == {}
