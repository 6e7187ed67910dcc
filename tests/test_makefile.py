"""The Makefile: what a user sets on its command line is text, which neither make nor the shell executes."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

# Make's automatic variables that recipes use: names of targets and prerequisites.
AUTOMATIC = {"@", "<"}
FAKE = f"""#!{sys.executable}
import json, sys
with open("calls", "a") as calls:
    calls.write(json.dumps(sys.argv) + "\\n")
"""
MARK = "broken_in"
ODD = [
    f"x`touch {MARK}`",
    f"x$(touch {MARK})",
    f"x$$(touch {MARK})",
    f"$(shell touch {MARK})",
    f"${{shell touch {MARK}}}",
    f"x;touch {MARK};#",
    f'x";touch {MARK};"',
    f"x';touch {MARK};'",
    f"x\ntouch {MARK}",
    f"x & touch {MARK}",
    "a$b.yaml",
]
# The variables that the recipe of a target reads.
READS = {
    "quick": ["CONFIG", "PROFILE"],
    "dry-run": ["SCALE", "CONFIG", "PROFILE"],
    "plan": ["SCALE", "CONFIG", "PROFILE"],
    "pages": ["SCALE"],
    "verify": ["SCALE", "RERUN"],
    "release": ["SCALE", "KEY"],
    "test-slow": ["PART"],
    "torture": ["KILLS", "CONFIG"],
    "faults": ["KIND", "COUNT", "SEED"],
    "mutants": ["COUNT", "SEED"],
}
USUAL = {
    ("torture", "KILLS=5", "CONFIG=tests/workflow/torture.yaml"): [
        "python tests/workflow/torture.py --kills 5 --config tests/workflow/torture.yaml"
    ],
    ("torture",): ["python tests/workflow/torture.py --kills 100"],
    ("test-slow", "PART=3/8"): ["pytest -m slow and not slurm --numprocesses 2 --dist loadfile --part 3/8"],
    ("test-slow",): ["pytest -m slow and not slurm --numprocesses 2 --dist loadfile"],
    ("test-lowest",): [
        "python -m pytest -m not slow and not slurm and not workflow --numprocesses 2 --dist loadfile",
        "python -m pytest tests/test_notebooks.py",
        "python -m pytest tests/workflow/test_workflow.py -k sixth_paper",
    ],
    ("pages", "SCALE=paper"): ["dpfl pages --config results/paper/config.yaml", "dpfl crate results/paper"],
    ("pages",): ["dpfl pages --config results/demo/config.yaml", "dpfl crate results/demo"],
    ("verify", "RERUN=5"): ["dpfl audit --quick --rerun 5 results/paper"],
    ("verify", "SCALE=demo"): ["dpfl audit --quick results/demo"],
    ("release", "KEY=my key"): [
        "dpfl pages --config results/paper/config.yaml",
        "dpfl audit --files-only results/paper",
        "dpfl release results/paper --key my key",
    ],
    ("release",): [
        "dpfl pages --config results/paper/config.yaml",
        "dpfl audit --files-only results/paper",
        "dpfl release results/paper --key /home/of a user/.ssh/id_ed25519",
    ],
    ("faults",): ["python tests/faults/inject.py configurations --seed 0"],
    ("faults", "KIND=files", "COUNT=3", "SEED=7"): ["python tests/faults/inject.py files --count 3 --seed 7"],
    ("mutants", "COUNT=10", "SEED=202648"): [
        "python tests/mutants/draw.py --count 10 --seed 202648 .mutants/drawn.json",
        "python tests/mutants/run.py .mutants/drawn.json",
    ],
    ("mutants",): [
        "python tests/mutants/draw.py --count 300 --seed 0 .mutants/drawn.json",
        "python tests/mutants/run.py .mutants/drawn.json",
    ],
    ("plan", "SCALE=paper", "PROFILE=slurm"): ["dpfl plan --scale paper --profile slurm"],
    ("dry-run",): ["dpfl run --dry-run --scale demo --profile default"],
    ("quick", "CONFIG=my own.yaml"): [
        "dpfl run --scale quick --profile default --config my own.yaml",
        "dpfl crate results/quick",
        "dpfl report --config results/quick/config.yaml",
    ],
}


HASHES = [f"requirements.{name}hashes" for name in ("", "cpu.", "torch.", "cuda.")]


@pytest.fixture
def make(repository, tmp_path):
    """A function that runs make in a folder whose commands write down their arguments; returns those."""
    (tmp_path / "Makefile").write_bytes((repository / "Makefile").read_bytes())
    for name in ("requirements.lock", *HASHES, "pyproject.toml", "tests/mutants/mutants.lock"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for folder in (".venv", ".venv-mutants", ".venv-lowest"):
        commands = tmp_path / folder / "bin"
        commands.mkdir(parents=True)
        for name in ("dpfl", "python", "pytest"):
            (commands / name).write_text(FAKE)
            (commands / name).chmod(0o755)
        (tmp_path / folder / "ready").touch()
    environment = {"PATH": os.defpath, "HOME": "/home/of a user"}

    def run(*words, env=()):
        (tmp_path / "calls").unlink(missing_ok=True)
        done = subprocess.run(
            ["make", *words], cwd=tmp_path, env=environment | dict(env), capture_output=True, text=True, check=False
        )
        calls = tmp_path / "calls"
        lines = calls.read_text().splitlines() if calls.exists() else []
        return done, [[os.path.basename(call[0]), *call[1:]] for call in map(json.loads, lines)]

    return run


def recipes(text):
    return [line for line in text.replace("\\\n", " ").splitlines() if line.startswith("\t")]


def test_no_recipe_expands_what_a_user_may_set(repository):
    text = (repository / "Makefile").read_text()
    own = set(re.findall(r"^override (\w+) :=", text, re.MULTILINE))
    settable = set(re.findall(r"^(?:\S+: )?(?:export )?(\w+) *[?:+]?=", text, re.MULTILINE)) - own
    read = set(re.findall(r"\$\$\{?([A-Z]+)\b", "".join(recipes(text)))) - {"HOME", "PATH"}
    [declared] = re.findall(r"^override SET_BY_USER := (.+)$", text, re.MULTILINE)
    installed = {"PYTHON", "TORCH"}
    assert read | {"TORCH"} == set(declared.split()) == installed.union(*READS.values())
    assert "$$TORCH" in text
    for line in recipes(text):
        expanded = set(re.findall(r"(?<!\$)\$[({]([^(){}$ ]+)[)}]", line)) | set(re.findall(r"(?<!\$)\$([^$({])", line))
        assert expanded <= own | AUTOMATIC, line
        assert not expanded & (settable | read), line
        calls = re.findall(r"(?<!\$)\$[({](\w[\w-]*) ", line)
        assert set(calls) <= {"filter-out", "wildcard"}, line


def test_every_use_that_is_described_gives_its_command(make):
    for words, commands in USUAL.items():
        done, calls = make(*words)
        assert done.returncode == 0, done.stderr
        assert [" ".join(call) for call in calls] == commands, words


def test_a_variable_of_the_environment_is_taken(make):
    _, calls = make("plan", env={"SCALE": "quick", "CONFIG": "a$b.yaml"})
    assert calls == [["dpfl", "plan", "--scale", "quick", "--profile", "default", "--config", "a$b.yaml"]]


@pytest.mark.parametrize("odd", ODD)
def test_what_a_user_sets_arrives_as_it_is_and_runs_no_command(make, tmp_path, odd):
    names = sorted({name for names in READS.values() for name in names})
    done, calls = make(*READS, *(f"{name}={name}{odd}" for name in names))
    assert done.returncode == 0 and not (tmp_path / MARK).exists(), done.stderr
    for name in names:
        assert any(f"{name}{odd}" in word for call in calls for word in call), name


@pytest.mark.parametrize("name", ["VENV", "READY", "SIDE_BY_SIDE", "MAKEFILE_LIST"])
def test_what_is_no_setting_stays_as_it_is(make, tmp_path, name):
    for target in ("test", "help", "plan"):
        make(target, f"{name}=x`touch {MARK}`")
        assert not (tmp_path / MARK).exists()


def test_help_lists_the_targets(make):
    done, _ = make("help")
    assert {"pages", "torture", "release", "demo", "help"} <= {line.split()[0] for line in done.stdout.splitlines()}


INTERPRETER = """#!/bin/sh
case "$1" in
  -c) exit {unfit} ;;
  --version) echo "Python of {name}" ;;
  -m) mkdir -p "$3/bin"; printf '#!/bin/sh\\n%s\\n' '{pip}' > "$3/bin/pip"; chmod +x "$3/bin/pip" ;;
esac
"""


@pytest.fixture
def interpreters(make, tmp_path):
    """A function that makes `make env` of interpreters on PATH, those that do not fit with an exclamation mark."""
    (tmp_path / ".venv" / "ready").unlink()
    (tmp_path / ".venv" / "bin" / "python").unlink()

    def env(*names, words=(), pip=""):
        folder = tmp_path / "interpreters"
        folder.mkdir()
        for name in names:
            plain = name.removesuffix("!")
            (folder / plain).write_text(INTERPRETER.format(name=plain, unfit=int(name != plain), pip=pip))
            (folder / plain).chmod(0o755)
        for tool in ("sh", "make", "grep", "tail", "ls", "mkdir", "touch", "chmod", "printf"):
            (folder / tool).symlink_to(shutil.which(tool))
        return make("env", *words, env={"PATH": str(folder)})[0]

    return env


@pytest.mark.parametrize(
    ("names", "words", "taken"),
    [
        (["python3", "python3.11", "python3.12"], (), "python3"),
        (["python3!", "python3.11", "python3.12", "python3.13"], (), "python3.13"),
        (["python3!", "python3.11", "python3.12", "python3.13!"], (), "python3.12"),
        (["python3!", "python!", "python3.11"], (), "python3.11"),
        (["python3", "python3.12"], ("PYTHON=python3.12",), "python3.12"),
    ],
)
def test_the_interpreter_that_is_named_or_first_on_the_path_is_taken(interpreters, names, words, taken):
    done = interpreters(*names, words=words)
    assert done.returncode == 0, done.stderr
    assert f"with Python of {taken}\n" in done.stdout


VERSIONED = """#!/bin/sh
case "$1" in
  -c) echo {version} ;;
  --version) echo "Python {version}" ;;
  -m) echo "$@" > calls; mkdir -p "$3/bin"; ln -sf /bin/true "$3/bin/pip" ;;
esac
"""


@pytest.mark.parametrize(
    ("words", "version", "called"),
    [
        ((), "3.11", "-m venv .venv"),  # begun or out of date, it keeps its Python
        (("PYTHON=python3.11",), "3.11", "-m venv .venv"),
        (("PYTHON=python3.12",), "3.12", "-m venv .venv --clear"),
    ],
)
def test_an_unfinished_environment_never_mixes_two_pythons(make, tmp_path, words, version, called):
    (tmp_path / ".venv/ready").unlink()
    folder = tmp_path / "interpreters"
    folder.mkdir()
    names = {".venv/bin/python": "3.11", "interpreters/python3": "3.12"}
    for name, own in {**names, "interpreters/python3.11": "3.11", "interpreters/python3.12": "3.12"}.items():
        (tmp_path / name).write_text(VERSIONED.format(version=own))
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{folder}:{os.defpath}"}
    done = subprocess.run(["make", "env", *words], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"with Python {version}\n" in done.stdout and (tmp_path / "calls").read_text() == f"{called}\n"


def test_the_size_is_said_before_anything_is_installed(interpreters):
    said = interpreters("python3", words=("TORCH=cpu",)).stdout
    assert said.index("1.7 GB on disk with the CPU build of torch, 5.4 GB with CUDA") < said.index("pip")


FAILS = 'case "$*" in *requirements.cpu.hashes*) echo "ERROR: no such hash" >&2; exit 1;; esac'


def test_where_the_cpu_build_is_named_no_other_is_installed_and_the_reason_is_said(interpreters):
    done = interpreters("python3", words=("TORCH=cpu",), pip=FAILS)
    assert done.returncode == 2 and "ERROR: no such hash" in done.stderr
    assert "dpfl: the CPU build of torch could not be installed" in done.stderr
    assert "the build of PyPI; on Linux" not in done.stdout


def test_where_no_build_is_named_that_of_pypi_is_taken_and_the_reason_is_said(interpreters):
    done = interpreters("python3", pip=FAILS)
    assert done.returncode == 0 and "ERROR: no such hash" in done.stderr
    assert "torch: the build of PyPI" in done.stdout


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["PYTHON=python3.12"], "dpfl: .venv was set up with another Python than python3.12; remove .venv"),
        (["PYTHON=no-such"], "dpfl: .venv was set up with another Python than no-such; remove .venv"),
        (["TORCH=cuda"], "dpfl: .venv has torch without CUDA; remove .venv"),
        (["PYTHON=python3.11"], ""),
        (["TORCH=cpu"], ""),
    ],
)
def test_an_environment_that_is_there_must_fit_what_is_named(make, tmp_path, words, error):
    own, folder = tmp_path / ".venv/bin/python", tmp_path / "interpreters"
    folder.mkdir()
    for path, version in ((own, "3.11"), (folder / "python3.11", "3.11"), (folder / "python3.12", "3.12")):
        path.write_text(f"#!/bin/sh\necho {version}\n")
        path.chmod(0o755)
    done, calls = make("pages", *words, env={"PATH": f"{folder}:{os.defpath}"})
    assert done.returncode == (2 if error else 0) and error in done.stderr
    assert bool(calls) is not bool(error)


@pytest.mark.parametrize("named", ["python3.10", f"x`touch {MARK}`", f"x;touch {MARK}"])
def test_an_interpreter_that_does_not_fit_is_named(interpreters, tmp_path, named):
    done = interpreters("python3", "python3.10!", words=(f"PYTHON={named}",))
    assert done.returncode == 2 and f"dpfl: {named} is not Python 3.11, 3.12 or 3.13" in done.stderr
    assert not (tmp_path / MARK).exists() and not (tmp_path / ".venv" / "ready").exists()


def test_an_unknown_build_of_torch_is_refused_before_anything_is_made(make, tmp_path):
    (tmp_path / ".venv" / "ready").unlink()
    before = sorted(tmp_path.rglob("*"))
    done, _ = make("env", "TORCH=gpu")
    assert done.returncode == 2 and "dpfl: TORCH is gpu; it must be cpu or cuda" in done.stderr
    assert sorted(tmp_path.rglob("*")) == before
