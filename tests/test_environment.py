import re
import sys
import tomllib
from importlib.metadata import packages_distributions

import yaml


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


def test_every_pin_but_torch_has_the_hashes_that_pip_requires(repository):
    pins = set((repository / "requirements.lock").read_text().lower().replace("_", "-").split())
    text = re.sub(r"^#.*\n", "", (repository / "requirements.hashes").read_text(), flags=re.MULTILINE)
    entries = [entry.split() for entry in text.replace("\\\n", " ").strip().split("\n")]
    assert {entry[0].lower().replace("_", "-") for entry in entries} == {
        pin for pin in pins if not pin.startswith("torch==")
    }
    for name, *hashes in entries:
        assert hashes and all(re.fullmatch("--hash=sha256:[0-9a-f]{64}", each) for each in hashes), name
    assert "--no-deps --require-hashes --requirement requirements.hashes" in (repository / "Makefile").read_text()


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
        apart = ("validate_crate.py", "jax_peer.py")  # they run in environments of their own
        modules = imported(path for path in files if path.name not in apart)
        beside = {path.stem for path in files}  # scripts that import one another
        owners = {name: distributions.get(name, [name]) for name in modules - sys.stdlib_module_names - beside}
        names = {name: {one.lower().replace("_", "-") for one in packages} for name, packages in owners.items()}
        return {name for name, packages in names.items() if not declared & packages}

    accountants, extras = project["dependencies"], project["optional-dependencies"]
    alone = [
        f"src/dpfl/{part}" for part in ("accounting", "errors.py", "files.py", "cli/app.py", "cli/account_commands.py")
    ]
    assert undeclared(alone, accountants) == {"opacus"}  # at its first use
    assert len(accountants) <= 6
    assert not undeclared(["src"], accountants + extras["pipeline"] + extras["cluster"])
    slurm = {"snakemake_executor_plugin_slurm"}
    assert undeclared(["src"], accountants + extras["pipeline"]) == slurm  # a site's options alone ask for it
    needs = accountants + extras["pipeline"] + extras["cluster"] + extras["test"]
    assert not undeclared(["tests", "benchmarks"], needs)
