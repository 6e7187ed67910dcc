"""The main door: whatever is wrong with a run is said in one line, with status 2, before anything is written."""

import errno
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from dpfl import cli
from dpfl.cli import main
from dpfl.pipeline import devices, process_cleanup
from dpfl.pipeline import run as pipeline_run

WRONG = {
    "unknown key": ("seedz: [0]", "seedz"),
    "clients that nothing has": ("only: {clients: [11]}", "clients"),
    "dataset of another scale": ("only: {dataset: [cifar10]}", "cifar10"),
    "epsilon that nothing has": ("only: {epsilon: [2.931]}", "epsilon"),
    "one of two matches": ("only: {clients: [10, 11]}", "11"),
    "folder absolute": ("data: {folder: /tmp/data}", "data.folder"),
    "folder above": ("data: {folder: ../data}", "data.folder"),
    "folder within results": ("data: {folder: results}", "data.folder"),
    "folder with newline": ('data: {folder: "a\\nb"}', "data.folder"),
    "folder with braces": ('data: {folder: "{x}"}', "data.folder"),
    "folder with nul": ('data: {folder: "a\\0b"}', "data.folder"),
    "folder with half a character": ('data: {folder: "a\\ud800b"}', "mine.yaml"),
    "folder with a line separator": ('data: {folder: "a\\u2028b"}', "data.folder"),
    "folder with a next line": ('data: {folder: "a\\Nb"}', "data.folder"),
    "folder that a terminal turns round": ('data: {folder: "a\\u202eb"}', "data.folder"),
    "folder of a home": ("data: {folder: ~/data}", "data.folder"),
    "folder that is a file": ("data: {folder: Snakefile}", "Snakefile"),
    "folder below a file": ("data: {folder: config.yaml/data}", "config.yaml"),
    "folder with a long name": ("data: {folder: " + "é" * 200 + "}", "too long"),
    "mirror with a port that is none": ('data: {mirror: "http://a:99999999/"}', "mirror"),
    "mirror with a port that is no number": ('data: {mirror: "http://a:b/"}', "mirror"),
    "mirror with a line separator": ('data: {mirror: "http://a/\\u2028"}', "mirror"),
    "mirror": ('data: {mirror: "http://["}', "mirror"),
    "mirror missing": ("data: {mirror: /nowhere/at/all}", "mirror"),
    "device": ("training: {device: tpu}", "device"),
    "no cuda": ("training: {device: cuda}", "no GPU"),
    "binary": ("\udcff", "mine.yaml"),
}
"""Of the text and the schema one fault each: tests/grid/test_configuration.py has them all."""


@pytest.fixture
def project(repository, tmp_path, monkeypatch):
    """A folder with the workflow alone; returns a runner of `dpfl` that gives status and standard error."""
    for name in ("Snakefile", "workflow"):
        (tmp_path / name).symlink_to(repository / name)
    shutil.copy(repository / "config.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPFL_MIRROR", raising=False)
    monkeypatch.setattr(devices, "visible_gpus", list)
    monkeypatch.setattr(pipeline_run, "_wait", lambda process: process.kill() or process.wait())

    def run(capsys, *arguments):
        monkeypatch.setattr(sys, "argv", ["dpfl", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        return caught.value.code, capsys.readouterr().err.splitlines()

    return run


OF_A_PLAN = ("unknown key", "binary", "clients that nothing has", "folder above")
"""One of the text, of the schema, of the grid and of the folders: a plan reads its configuration as a run does."""


@pytest.mark.parametrize(("command", "name"), [*(("run", name) for name in WRONG), *(("plan", n) for n in OF_A_PLAN)])
def test_a_wrong_configuration_is_one_line_and_nothing_is_written(project, tmp_path, capsys, command, name):
    text, word = WRONG[name]
    (tmp_path / "mine.yaml").write_bytes(text.encode("utf-8", "surrogateescape"))
    status, lines = project(capsys, command, "--config", "mine.yaml")
    assert status == 2 and len(lines) == 1 and lines[0].startswith("dpfl: ") and word in lines[0], lines
    assert sorted(path.name for path in tmp_path.iterdir()) == ["Snakefile", "config.yaml", "mine.yaml", "workflow"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["run", "--profile", "nowhere"], "profile"),
        (["run", "demo"], "demo is a scale: write dpfl run --scale demo"),
        (["run", "--", "--cores", "0"], "--cores"),
        (["run", "--", "--cores", "few"], "must be integer"),
        (["run", "--", "--cores"], "--cores"),
        (["run", "--", "--nonsense"], "--nonsense"),
        (["run", "--config", "a" * 300], "too long"),
        (["plan", "--profile", "a" * 300], "too long"),
        (["trace", "a" * 5000], "is not there"),
        (["audit", "a" * 5000], "too long"),
        (["check", "a" * 5000], "too long"),
        (["audit", "--files-only", "--quick", "results/demo"], "--quick"),
        (["audit", "--files-only", "--rerun", "3", "results/demo"], "--rerun"),
        (["audit", "--files-only", "--rerun-cell", "lowy2021/x", "results/demo"], "--rerun-cell"),
        (["audit", "--signers", "keys", "results/demo"], "--signature"),
        (["audit", "--signature", "x.json", "results/demo"], "--signers"),
        (["audit", "--seed", "3", "results/demo"], "--rerun"),
        (
            ["audit", "--seal", "--signature", "x.json", "--signers", "keys", "results/demo"],
            "audit with --signature first",
        ),
        (["audit", "--where", "seed=3", "results/demo"], "--rerun-cell"),
        (["audit", "--where", "", "results/demo"], "--rerun-cell"),
        (["audit", "--files-only", "--rerun-cell", "", "results/demo"], "--rerun-cell"),
        (["plan", "--scale", "tiny"], "scale"),
        (["run", "--scale", ""], "scale"),
        (["audit", "results/nowhere"], "no record"),
        (["trace", "results/nowhere.csv"], "results/nowhere.csv is not there"),
        (["trace", "config.yaml"], "no record of how config.yaml"),
        (["crate", "results/nowhere"], "no record"),
        (["audit", "--seal", "/"], "results/<scale>"),
        (["crate", "/"], "results/<scale>"),
        (["status", "--config", "nowhere.yaml"], "nowhere.yaml"),
        (
            ["train", "--paper", "nobody2020", "--job", "x"],
            "nothing of nobody2020 is trained at scale demo; its papers are asoodeh2020",
        ),
        (["train", "--paper", "bhaskar2025", "--job", "nonsense"], "no job nonsense"),
        (["train-batch", "bhaskar2025/nonsense"], "no job bhaskar2025/nonsense"),
        (["gpu"], "finds no GPU"),
        (["tables", "--paper", "nobody2020"], "nobody2020"),
        (["tables", "--paper", "bhaskar2025", "--name", "table_9"], "no table table_9"),
        (["figures", "--paper", "lowy2021", "--name", "x"], "no figure x"),
        (["claims", "--paper", "lowy2021"], "is not there"),
        (["pages", "--config", "results/quick/config.yaml"], "is not there: make quick makes it"),
        (["claims", "--paper", "/etc/passwd"], "no paper /etc/passwd"),
        (["calibrate", "--paper", "nobody2020"], "nobody2020"),
        (["calibrate", "--paper", "bhaskar2025"], "digits"),
        (["data", "arrays", "--dataset", "nothing"], "nothing"),
        (["data", "arrays", "--dataset", "mnist"], "is not there"),
        (["data", "fetch", "--dataset", "nothing", "--file", "x"], "nothing"),
        (["data", "fetch", "--dataset", "mnist", "--file", "x"], "train-images"),
        (["features", "--dataset", "nothing"], "nothing"),
        (["features", "--dataset", "digits"], "digits"),
        (["nothing"], "No such command 'nothing' (see dpfl --help)"),
        (["features"], "Missing option '--dataset' (see dpfl features --help)"),
        (["features", "--dataset"], "requires an argument"),
        (["features", "--data", "mnist"], "No such option: --data"),
        (["audit", "--rerun", "three", "results/demo"], "'--rerun'"),
        (["status", "extra"], "unexpected extra argument"),
    ],
)
def test_a_wrong_argument_is_one_line(project, tmp_path, capsys, arguments, word):
    status, lines = project(capsys, *arguments)
    assert status == 2 and len(lines) == 1 and lines[0].startswith("dpfl: ") and word in lines[0], lines
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("name", ["pipe.json", "pipe.csv", "pipe.jsonl", "folder.json", "device.csv"])
def test_claims_are_read_from_a_regular_file(project, tmp_path, capsys, name):
    path = tmp_path / name
    path.mkdir() if "folder" in name else path.symlink_to("/dev/zero") if "device" in name else os.mkfifo(path)
    status, lines = project(capsys, "check", name)
    assert status == 2 and len(lines) == 1 and lines[0] == f"dpfl: {name} is a folder or no regular file", lines


def test_a_data_folder_on_a_disk_that_is_gone_is_one_line(project, tmp_path, capsys):
    (tmp_path / "data").symlink_to("gone")
    status, lines = project(capsys, "run")
    assert status == 2 and len(lines) == 1 and "data cannot be written" in lines[0], lines
    assert not (tmp_path / ".snakemake").exists()


@pytest.mark.parametrize("words", [["--config", "papers=[]"], ["--configfile", "other.yaml"], ["--profile", "slurm"]])
def test_options_that_would_run_something_else_than_dpfl_looks_at_are_refused(project, capsys, words):
    status, lines = project(capsys, "run", "--scale", "quick", "--", *words)
    assert status == 2 and len(lines) == 1 and f"{words[0]} cannot stand after --" in lines[0]


@pytest.mark.parametrize(("option", "scale"), [([], "quick"), (["--scale", "paper"], "paper")])
def test_a_run_has_the_scale_of_its_configuration_where_no_option_names_one(
    project, tmp_path, monkeypatch, capsys, option, scale
):
    started = []
    monkeypatch.setattr(pipeline_run, "run", lambda words, **given: started.append((words, given)) or 0)
    (tmp_path / "mine.yaml").write_text("scale: quick\npapers: [asoodeh2020]\n")
    assert project(capsys, "run", "--config", "mine.yaml", *option)[0] == 0
    ((words, given),) = started
    assert f"scale={scale}" in words and given["results"] == Path("results") / scale
    assert given["again"] == f"make {scale} CONFIG=mine.yaml"


@pytest.mark.parametrize("command", ["run", "plan", "status"])
def test_outside_the_project_that_is_said(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["dpfl", command])
    with pytest.raises(SystemExit) as caught:
        main()
    lines = capsys.readouterr().err.splitlines()
    assert caught.value.code == 2 and len(lines) == 1 and "folder of the project" in lines[0]
    assert list(tmp_path.iterdir()) == []


def test_what_ctrl_c_says_begins_as_status_and_the_live_line_expect():
    assert cli._INTERRUPTED.startswith(process_cleanup.INTERRUPTED)


def test_ctrl_c_says_how_to_go_on(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("sys.argv", ["dpfl", "status"])
    monkeypatch.setattr("dpfl.grid.configuration.overlaid", interrupted)
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 130 and "run the same command again" in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "status"), [([], 2), (["--help"], 0), (["status", "--help"], 0)])
def test_help_is_all_that_a_command_may_say_at_length(monkeypatch, capsys, arguments, status):
    monkeypatch.setattr("sys.argv", ["dpfl", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    assert (caught.value.code or 0) == status and "Usage: dpfl" in "".join(capsys.readouterr())


# A full disk, or a file that may not grow, is one line and status 2 wherever it strikes.


@pytest.fixture
def folder(repository, tmp_path):
    """A folder with the workflow alone."""
    for name in ("Snakefile", "workflow"):
        (tmp_path / name).symlink_to(repository / name)
    shutil.copy(repository / "config.yaml", tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", [pytest.param("run", marks=pytest.mark.slow), "plan > plan.txt"])
def test_a_command_that_cannot_write_says_so_in_one_line(folder, command):
    line = f'ulimit -f 0; exec "{sys.executable}" -m dpfl {command}'
    done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, timeout=300)
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


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("TABLES = {", "SyntaxError: '{' was never closed"),
        ("import pandsa", "ModuleNotFoundError: No module named 'pandsa'"),
        ("from dpfl.errors import InputErorr", "ImportError: cannot import name 'InputErorr' from 'dpfl.errors'"),
        ("TABLES = {'a': recipe}", "NameError: name 'recipe' is not defined"),
    ],
)
def test_a_module_of_ours_that_cannot_run_is_one_line_and_anothers_a_traceback(monkeypatch, capsys, code, said):
    def met(path):
        monkeypatch.setattr(cli, "app", lambda **_: exec(compile(f"\n{code}", path, "exec")))
        cli.main()

    own = str(Path(cli.__file__).parents[1] / "papers" / "smith2026" / "tables.py")
    with pytest.raises(SystemExit) as caught:
        met(own)
    [line] = capsys.readouterr().err.splitlines()
    assert caught.value.code == 2
    assert line.startswith(f"dpfl: {own}:2: {said}") and line.endswith("; mend this line")
    with pytest.raises((SyntaxError, ImportError, NameError)):
        met("/elsewhere/tables.py")


@pytest.mark.parametrize("words", ["print('a line')", "typer.echo('a line')", "typer.echo('a line' * 10**5)"])
def test_who_stops_reading_ends_a_command_without_a_word(words):
    """As `dpfl status | head -1` does; a result that is cut off is no success, and no finding."""
    code = f"import sys, typer\nfrom dpfl import cli\ncli.app = lambda **_: typer_run()\ndef body(): {words}\n"
    code += "def typer_run():\n    own = typer.Typer()\n    own.command()(body)\n"
    code += "    return own([], standalone_mode=False)\n"
    code += "cli.Commands.ran = True\ncli.main()"
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-c", code, "status"], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_another_broken_pipe_is_not_taken_for_a_reader_who_left(failing):
    with pytest.raises(BrokenPipeError):
        failing(errno.EPIPE)


def test_a_run_that_failed_on_a_full_disk_says_so_at_its_end(folder, monkeypatch, capsys):
    usage = namedtuple("usage", "total used free")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(pipeline_run.shutil, "disk_usage", lambda _: usage(10**9, 10**9 - 1, 1))
    monkeypatch.setattr(pipeline_run, "_wait", lambda process: (process.kill(), process.wait(), 1)[-1])
    assert pipeline_run.run(["--cores", "1"], again="make demo") == 1
    assert f"dpfl: the disk of {folder} is full: make room first" in capsys.readouterr().err.splitlines()


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
    assert len(done.stderr.splitlines()) == (status != 0) and (status == 0 or repr(value) in done.stderr)


def test_ctrl_c_before_everything_is_imported_is_one_line(tmp_path):
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    words = [sys.executable, "-m", "dpfl", "run"]
    done = subprocess.run(words, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 130
    assert done.stderr == "dpfl: interrupted; run the same command again to continue\n"
