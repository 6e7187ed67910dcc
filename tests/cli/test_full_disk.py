"""A full disk, or a file that may not grow, is one line and status 2 wherever it strikes."""

import errno
import os
import shutil
import subprocess
import sys
from collections import namedtuple

import pytest

from dpfl import cli
from dpfl.pipeline import run as pipeline_run


@pytest.fixture
def project(repository, tmp_path):
    """A folder with the workflow alone."""
    for name in ("Snakefile", "workflow"):
        (tmp_path / name).symlink_to(repository / name)
    shutil.copy(repository / "config.yaml", tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", [pytest.param("run", marks=pytest.mark.slow), "plan > plan.txt"])
def test_a_command_that_cannot_write_says_so_in_one_line(project, command):
    line = f'ulimit -f 0; exec "{sys.executable}" -m dpfl {command}'
    done = subprocess.run(["bash", "-c", line], cwd=project, capture_output=True, text=True, timeout=300)
    [said] = done.stderr.splitlines()
    assert done.returncode == 2 and said.startswith("dpfl: ") and "File too large" in said


@pytest.fixture
def failing(monkeypatch):
    """Return a function that has the command line meet an error of the operating system."""

    def fail(number):
        def app(**_):
            raise OSError(number, os.strerror(number), "results/x\n.csv")

        monkeypatch.setattr(cli, "app", app)
        cli.main()

    return fail


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "make room"),
        (errno.EDQUOT, "make room"),
        (errno.EFBIG, "make room"),
        (errno.EACCES, "change its permissions"),
    ],
)
def test_what_the_user_can_mend_is_one_line_with_advice(failing, capsys, number, advice):
    with pytest.raises(SystemExit) as caught:
        failing(number)
    [line] = capsys.readouterr().err.splitlines()
    assert caught.value.code == 2 and "results/x\\n.csv" in line and os.strerror(number) in line
    assert [each for each in ("make room", "change its permissions") if each in line] == [advice]


def test_other_errors_of_the_system_are_not_taken_for_a_full_disk(failing):
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        failing(errno.EIO)


def test_a_run_that_failed_on_a_full_disk_says_so_at_its_end(project, monkeypatch, capsys):
    usage = namedtuple("usage", "total used free")
    monkeypatch.chdir(project)
    monkeypatch.setattr(pipeline_run.shutil, "disk_usage", lambda _: usage(10**9, 10**9 - 1, 1))
    monkeypatch.setattr(pipeline_run, "_wait", lambda process: (process.kill(), process.wait(), 1)[-1])
    assert pipeline_run.run(["--cores", "1"], again="make demo") == 1
    assert f"dpfl: the disk of {project} is full: make room first" in capsys.readouterr().err.splitlines()


def test_features_that_do_not_fit_on_the_disk_are_one_line(tmp_path, monkeypatch):
    """A write to memory that has no room on the disk ends the process by SIGBUS, without a word."""
    from dpfl.data.arrays import build_arrays
    from dpfl.errors import InputError
    from dpfl.features import scattering

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    build_arrays("digits", tmp_path / "arrays")
    monkeypatch.setattr(scattering.os, "posix_fallocate", full, raising=False)
    with pytest.raises(InputError, match=r"cannot write .*train_x.*No space left"):
        scattering.build_features(tmp_path / "arrays", tmp_path / "features", lambda done, total: None)
    assert not list((tmp_path / "features").iterdir())


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [("MPLBACKEND", "nosuch", 0), ("SOURCE_DATE_EPOCH", "abc", 2), ("SOURCE_DATE_EPOCH", "253402300800", 2)],
)
def test_a_variable_that_drawing_cannot_use_is_no_traceback(name, value, status):
    code = "import sys; from dpfl.cli import main\ntry: main()\n"
    code += "except SystemExit as end: import matplotlib; sys.exit(end.code)"
    environment = {**os.environ, name: value}
    done = subprocess.run([sys.executable, "-c", code, "--version"], env=environment, capture_output=True, text=True)
    assert done.returncode == status and "Traceback" not in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == (status != 0)
