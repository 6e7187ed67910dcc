"""A run: its options, its lock, what it asks first, its end on a cluster, and what it says last."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from dpfl.cli import app
from dpfl.errors import InputError
from dpfl.files import record_path
from dpfl.grid import configuration, expansion
from dpfl.pipeline import process_cleanup, run, status
from dpfl.pipeline.job_batches import keep, kept_folder
from dpfl.pipeline.live_line import StartedJob
from dpfl.pipeline.run import ASK_SECONDS, Ending, engine_options, explain
from dpfl.provenance.audit import files
from dpfl.provenance.record import StageRecorder
from dpfl.provenance.run_identity import is_finished, noise_identity
from snakemake_logger_plugin_dpfl import EVENTS


def snakemake(tmp_path, monkeypatch, body):
    """Put a script in the place of Snakemake, in a folder with a Snakefile."""
    (tmp_path / "Snakefile").touch()
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\n{body}\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))


def test_the_rule_and_the_last_lines_of_its_log_are_named(tmp_path):
    own = tmp_path / "a folder" / "train.log"
    own.parent.mkdir()
    own.write_text("".join(f"line {number}\n" for number in range(20)))
    lines = list(explain([StartedJob("train", "train x", (own, tmp_path / "slurm.log"))]))
    assert lines == [f"dpfl: rule train failed; {own} ends with:", *(f"  line {number}" for number in range(15, 20))]


def test_a_log_that_is_not_there_and_a_job_without_one():
    gone = StartedJob("train", "train x", (Path("gone.log"),))
    assert list(explain([gone])) == ["dpfl: rule train failed; gone.log ends with:"]
    assert list(explain([StartedJob("all", "all", ())])) == ["dpfl: rule all failed"] and list(explain([])) == []


def test_a_failure_that_the_plugin_tells_is_told_last(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    Path("own.log").write_text("dpfl: no such data\n")
    event = '{"event": "job_error", "job": 3, "rule": "arrays", "wildcards": {}, "log": ["own.log"]}'
    snakemake(tmp_path, monkeypatch, f"echo '{event}' > {EVENTS}; exit 1")
    assert run.run([], again="make demo") == 1
    assert capfd.readouterr().err.splitlines()[-3:] == [
        "dpfl: rule arrays failed; own.log ends with:",
        "  dpfl: no such data",
        "dpfl: not finished; what is done is kept. Continue with: make demo",
    ]


def test_a_snakemake_that_was_killed_is_told_with_the_command_to_continue(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    snakemake(tmp_path, monkeypatch, "kill -9 $$")
    assert run.run([], again="make demo") == -9
    said = capfd.readouterr().err.splitlines()
    assert said[-2:] == [
        "dpfl: Snakemake was ended by SIGKILL",
        "dpfl: not finished; what is done is kept. Continue with: make demo",
    ]


@pytest.mark.parametrize("target", ["downlod", "results/a table (new).csv"])
def test_a_target_that_nothing_makes_is_one_line(tmp_path, monkeypatch, target):
    monkeypatch.chdir(tmp_path)
    Path("Snakefile").write_text("rule download:\n    output: 'made'\n    shell: 'touch {output}'\n")
    with pytest.raises(InputError, match=re.escape(f"nothing makes {target}: ")):
        run.run(["--cores", "1", target], again="make demo")
    assert not Path("made").exists()


@pytest.mark.parametrize("spelling", ["-n", "-np", "--dryrun", "--dry-run"])
def test_a_dry_run_of_any_spelling_removes_nothing_and_takes_no_lock(tmp_path, monkeypatch, spelling):
    monkeypatch.chdir(tmp_path)
    words = tmp_path / "words"
    snakemake(tmp_path, monkeypatch, f'echo "$@" > {words}')
    monkeypatch.setattr(files, "remove_damaged_pages", lambda _: pytest.fail("pages were looked for, to be removed"))
    assert run.run(["--cores", "1", spelling], again="make demo", results=tmp_path / "results") == 0
    assert words.read_text() == f"-m snakemake --cores 1 {spelling}\n" and not (tmp_path / ".snakemake").exists()


@pytest.mark.parametrize("cores", ["-c0", "--cores=-5"])
def test_a_run_on_no_core_does_not_begin(tmp_path, monkeypatch, cores):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Snakefile").touch()
    with pytest.raises(InputError, match="at least 1"):
        run.run([cores], again="make demo")
    assert [path.name for path in tmp_path.iterdir()] == ["Snakefile"]


@pytest.mark.parametrize(
    ("options", "again"),
    [
        ([], "make demo"),
        (["--scale", "paper", "--profile", "slurm"], "make paper PROFILE=slurm"),
        (["--config", "my own.yaml"], "make demo 'CONFIG=my own.yaml'"),
    ],
)
def test_the_command_to_continue_is_the_one_that_was_given(repository, tmp_path, monkeypatch, options, again):
    told = []
    monkeypatch.chdir(tmp_path)
    for name in ("Snakefile", "config.yaml", "workflow"):
        Path(name).symlink_to(repository / name)
    Path("my own.yaml").write_text("seeds: [1]")
    monkeypatch.setattr(run, "run", lambda arguments, again, **_: told.append(again) or 0)
    assert CliRunner().invoke(app, ["run", *options]).exit_code == 0
    assert told == [again]


def touch_when(name, is_true):
    """Make a file once something is true."""
    while not is_true():
        time.sleep(0.01)
    Path(name).touch()


def test_ctrl_c_is_said_once_by_the_command_line(tmp_path, monkeypatch, capfd):
    """Stages and the engine say it as well, each in its own words: nothing of that is repeated."""
    monkeypatch.chdir(tmp_path)
    said = "echo 'dpfl: interrupted; run the same'; while ! [ -e waits ]; do sleep 0.05; done; "
    snakemake(tmp_path, monkeypatch, said + "kill -INT $PPID; sleep 0.2; exit 1")
    monkeypatch.setattr(run, "_POLL_SECONDS", 0.1)
    before = signal.getsignal(signal.SIGINT)
    is_ready = "waits", lambda: signal.getsignal(signal.SIGINT) != before
    threading.Thread(target=touch_when, args=is_ready, daemon=True).start()
    assert run.run([], again="make demo") == 130
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("name", ["a {b", "a}"])
def test_a_brace_in_the_path_is_one_line(tmp_path, monkeypatch, name):
    folder = tmp_path / name
    folder.mkdir()
    (folder / "Snakefile").touch()
    monkeypatch.chdir(folder)
    with pytest.raises(InputError, match="brace in its path"):
        run.run([], again="make demo")


# Words for Snakemake are read as Snakemake reads them.


@pytest.mark.parametrize("option", ["--cores", "-c", "--core", "--cor", "-kc", "--jobs", "-j", "--local-cores"])
@pytest.mark.parametrize("number", ["0", "00", "+0", "-0", "-1", "-5", "0_0", " 0 "])
def test_fewer_than_one_core_is_refused_in_every_spelling(option, number):
    attached = f"{option}={number}" if option.startswith("--") else f"{option}{number}"
    for words in ([attached], [option, number], ["x.csv", option, number], ["-k", attached, "--forceall"]):
        with pytest.raises(InputError, match="must be at least 1") as caught:
            engine_options(words)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "words", [["--cores", "all"], ["-call"], ["--core=3"], ["-c2"], ["-j", "unlimited"], ["-j2"], ["--", "-c0"], []]
)
def test_other_numbers_of_cores_are_taken(words):
    assert not engine_options(words).only_asks


@pytest.mark.parametrize(
    "words",
    [["-n"], ["-np"], ["-pn"], ["-kn"], ["--dry-run"], ["--dryrun"], ["--dry-r"], ["--executor", "dryrun"]],
)
def test_a_dry_run_is_one_in_every_spelling(words):
    assert engine_options(["--cores", "2", *words, "--forcerun", "train"]).only_asks


@pytest.mark.parametrize(
    "words", [["--list-rules"], ["--summary"], ["-D"], ["--dag"], ["--rulegraph"], ["--lint"], ["--report", "x.html"]]
)
def test_a_question_only_asks(words):
    assert engine_options(["--cores", "2", *words]).only_asks


@pytest.mark.parametrize(
    "words",
    [
        ["--", "-n"],
        ["--forcerun", "n"],
        ["--config", "n=1"],
        ["-p"],
        ["--nolock"],
        ["--report", "x.html", "--report-after-run"],
        ["--unlock"],
    ],
)
def test_no_other_word_is_a_dry_run(words):
    assert not engine_options(words).only_asks


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cores", "few"], "integer"),
        (["--cores", "0.5"], "integer"),
        (["--cores"], "--cores"),
        (["-j", "0x1"], "integer"),
        (["--nonsense"], "--nonsense"),
        (["--dry"], "ambiguous"),
        (["--retries", "x"], "--retries"),
        (["a.csv", "--cores", "1", "b.csv"], "b.csv"),
        (["--resources", "gpu"], "used: dictionary"),
        (["--set-threads", "train"], "used: Invalid threads"),
    ],
)
def test_what_snakemake_cannot_read_is_one_line_without_its_usage(capsys, words, said):
    with pytest.raises(InputError, match=said) as caught:
        engine_options(words)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["--config", "papers=[]"], ("--config",)),
        (["--config"], ("--config",)),
        (["--configfiles", "mine.yaml"], ("--configfile",)),
        (["-s", "other.smk", "-d", "elsewhere"], ("--snakefile", "--directory")),
        (["--configfile=mine.yaml", "--profile", "slurm"], ("--configfile", "--profile")),
        (["--logger", "dpfl"], ("--logger",)),
        (["--cores", "2", "a.csv"], ()),
    ],
)
def test_options_that_would_replace_dpfl_s_own_are_known(words, given):
    assert engine_options(words).ours == given


def test_a_profile_of_the_environment_is_none_that_was_asked_for(monkeypatch, tmp_path):
    (tmp_path / "config.yaml").write_text("cores: 1\n")
    monkeypatch.setenv("SNAKEMAKE_PROFILE", str(tmp_path))
    assert engine_options(["--cores", "2"]).ours == ()


def test_targets_are_what_is_to_be_made():
    assert engine_options(["a.csv", "b.csv", "--forcerun", "train", "-c", "1"]).targets == {"a.csv", "b.csv"}
    assert engine_options(["--forcerun", "train", "--cores", "1"]).targets == set()


# What a run asks first: whether noise is up to date, and which targets are finished.


@pytest.fixture
def config(repository, tmp_path, monkeypatch):
    """The demo of two papers, in a folder with the workflow's configuration and profiles."""
    monkeypatch.chdir(tmp_path)
    for name in ("Snakefile", "config.yaml", "workflow"):
        Path(name).symlink_to(repository / name)
    Path("mine.yaml").write_text("papers: [bhaskar2025, lowy2021]\n")
    return configuration.overlaid(Path("config.yaml"), Path("mine.yaml"), "demo")


@pytest.fixture
def calibrate(config):
    """A function that writes the noise of a paper without rows, as calibrating it today would."""

    def write(paper):
        table = Path("results/demo/accounting") / f"{paper}.csv"
        table.parent.mkdir(parents=True, exist_ok=True)
        table.write_text("calibration_key\n")
        jobs = [job for job in expansion.expand(config) if job.paper == paper]
        StageRecorder("account", ("dpfl.randomness",), identity=noise_identity(jobs)).write(record_path(table), [table])
        return table

    return write


@pytest.fixture
def two(config, finish):
    """The first job of bhaskar2025, finished, and its last, which is not."""
    own = [job for job in expansion.expand(config) if job.paper == "bhaskar2025"]
    first, last = own[0], own[-1]
    tables = [expansion.run_table_path(Path("results/demo"), each.paper, each.name) for each in (first, last)]
    return finish(first, Path("results/demo")) and tables


@pytest.fixture
def asked(monkeypatch):
    """The arguments of every call of Snakemake; none is made."""
    calls = []
    monkeypatch.setattr(run, "run", lambda arguments, **_: calls.append(arguments) or 0)
    return calls


def test_noise_is_made_anew_where_there_are_runs_and_it_is_of_other_code(config, calibrate, two):
    assert status.noise_made_anew(config) == [Path("results/demo/accounting/bhaskar2025.csv")]
    table = calibrate("bhaskar2025")
    assert status.noise_made_anew(config) == []
    place = record_path(table)
    place.write_text(place.read_text().replace('"code": "', '"code": "0'))
    assert status.noise_made_anew(config) == [table]


def test_a_run_calibrates_first_and_asks_then_what_is_left(config, calibrate, two, asked, monkeypatch):
    assert CliRunner().invoke(app, ["run", "--config", "mine.yaml", "--", "--cores", "1"]).exit_code == 0
    first, second = asked
    assert first[-3:] == ["results/demo/accounting/bhaskar2025.csv", "--cores", "1"]
    assert second[-2:] == ["--cores", "1"] and first[:-3] == second[:-2]
    asked.clear()
    CliRunner().invoke(app, ["run", "--config", "mine.yaml", "--", "--resources", "gpu=4"])  # takes any number of words
    assert engine_options(asked[0]).targets == {"results/demo/accounting/bhaskar2025.csv"}
    asked.clear()
    dry = CliRunner().invoke(app, ["run", "--config", "mine.yaml", "--dry-run"])
    plan = CliRunner().invoke(app, ["plan", "--config", "mine.yaml"])
    for told in (dry, plan):
        assert len(asked) == 1 and "calibrated anew first: results/demo/accounting/bhaskar2025.csv;" in told.output
    monkeypatch.setattr(run, "run", lambda arguments, **_: asked.append(arguments) or 3)
    asked.clear()
    assert CliRunner().invoke(app, ["run", "--config", "mine.yaml"]).exit_code == 3 and len(asked) == 1
    calibrate("bhaskar2025")
    asked.clear()
    CliRunner().invoke(app, ["run", "--config", "mine.yaml"])
    assert len(asked) == 1 and "anew" not in CliRunner().invoke(app, ["plan", "--config", "mine.yaml"]).output


def test_a_finished_target_is_named_and_no_other_left_out(config, calibrate, two, asked):
    done, other = map(str, two)
    calibrate("bhaskar2025")
    words = ["run", "--config", "mine.yaml", "--"]
    only = CliRunner().invoke(app, [*words, "--cores", "2", done, f"./{record_path(two[0])}"])
    assert only.exit_code == 0 and asked == []
    assert only.output.splitlines() == [
        f"dpfl: {path} is finished: training it again would give the same" for path in (done, record_path(two[0]))
    ]
    assert CliRunner().invoke(app, [*words, "--keep-going", done, other]).exit_code == 0
    assert [call[-2:] for call in asked] == [["--keep-going", other]]
    os.unlink(done)
    CliRunner().invoke(app, [*words, done])
    assert asked[-1][-2:] == ["workflow/profiles/default", done]


# A run that is asked to end, on a clock of its own.


NOBODY = 2**22 - 5  # a process id that is not there


@pytest.fixture
def clock(queue, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return [1000.0]


@pytest.fixture
def ending(clock):
    return Ending(lambda: clock[0])


def in_vain_after(ending, clock, seconds, snakemake=NOBODY):
    """Whether Snakemake waits in vain at any time within the next `seconds`."""
    found = []
    for _ in range(int(seconds / ASK_SECONDS) + 1):
        found.append(ending.is_in_vain(snakemake))
        clock[0] += ASK_SECONDS
    return any(found)


def test_snakemake_has_longer_than_it_takes_to_ask_again(ending, clock):
    assert not in_vain_after(ending, clock, 600), "nobody asked it to end"
    ending.begin()
    assert not in_vain_after(ending, clock, 200), "the plug-in asks every three minutes"
    assert in_vain_after(ending, clock, 100)


def test_a_job_in_the_queue_is_cancelled_and_begins_the_wait_anew(ending, clock, queue, tmp_path):
    ending.begin()
    assert not in_vain_after(ending, clock, 200)
    queue.write_text(f"1|RUNNING|rule_train|{tmp_path}\n")
    assert not in_vain_after(ending, clock, 200) and queue.read_text() == ""
    assert in_vain_after(ending, clock, 60)


def test_a_queue_that_does_not_answer_and_a_run_without_slurm_end_nothing(ending, clock, tmp_path):
    ending.begin()
    (tmp_path / "down").touch()
    assert not in_vain_after(ending, clock, 600)
    (tmp_path / "down").unlink()
    (tmp_path / ".snakemake" / "slurm_logs").rmdir()
    assert not in_vain_after(ending, clock, 600), "jobs of another batch system are not seen"


def test_a_stage_on_this_machine_is_waited_for(ending, clock):
    shell = subprocess.Popen(["sh", "-c", "sleep 60; true"])
    ending.begin()
    clock[0] += 1
    assert not ending.is_in_vain(shell.pid)
    clock[0] += 600
    assert not ending.is_in_vain(shell.pid)
    for child in psutil.Process(shell.pid).children():
        child.kill()
    shell.wait()


def test_a_snakemake_that_waits_for_its_own_lock_is_seen_without_slurm(ending, clock, tmp_path):
    (tmp_path / ".snakemake" / "slurm_logs").rmdir()
    locked, asks = subprocess.Popen(["sleep", "60"]), subprocess.Popen(["sh", "-c", "while :; do :; done"])
    try:
        ending.begin()
        assert not in_vain_after(ending, clock, 200, locked.pid)
        assert in_vain_after(ending, clock, 100, locked.pid)
        for _ in range(5):
            assert not ending.is_in_vain(asks.pid)
            clock[0] += 100
            before = psutil.Process(asks.pid).cpu_times()
            while psutil.Process(asks.pid).cpu_times() == before:
                time.sleep(0.01)
    finally:
        for each in (locked, asks):
            each.kill()
            each.wait()


# What a run on a cluster does with finished run tables of batches, with commands that stand in for SLURM's.


RESULTS = Path("results/demo")


@pytest.fixture
def batch(queue, tmp_path, monkeypatch, finish):
    """A job that a batch has finished, with its copy; the batch is job 1, and deletes its outputs as it ends."""
    monkeypatch.chdir(tmp_path)
    Path("Snakefile").touch()
    job = expansion.expand(configuration.resolve({}))[0]
    table = finish(job, RESULTS)
    keep(job, RESULTS)
    queue.write_text(f"1|RUNNING|rule_train_x|{tmp_path}\n")
    ends = f"rm -f {table}*; sed -i '/^1|/d' {queue}"
    # SLURM's scancel comes back at once; the job ends when its processes have.
    (tmp_path / "fake" / "scancel").write_text(
        f"#!/bin/sh\n[ -s {queue} ] || exit 1\nsed -i 's/RUNNING/COMPLETING/' {queue}\n"
        f"(sleep 0.5; {ends}) >/dev/null 2>&1 &\n"
    )
    monkeypatch.setattr(process_cleanup, "_ASK_SECONDS", 0.2)
    return job


def at_work(tmp_path, monkeypatch, body):
    """Put a script in the place of Snakemake, whose batch finishes a job before the `body`."""
    Path("jobs").rename("submitted")
    Path("checkpoints").rename("finished")
    Path("jobs").touch()
    snakemake(tmp_path, monkeypatch, f"cp submitted jobs; cp -r finished checkpoints; {body}")


def kept():
    return list(kept_folder(RESULTS).rglob("*.record.json"))


def test_what_a_batch_of_a_killed_controller_finished_stays(batch, tmp_path, monkeypatch):
    # As its onstart does: what is in the queue is cancelled, and gone when the first job starts.
    snakemake(tmp_path, monkeypatch, "scancel 1; while [ -s jobs ]; do sleep 0.1; done")
    assert run.run([], again="make demo", results=RESULTS, jobs=[batch]) == 0
    assert is_finished(batch, RESULTS) and not kept()


def test_what_an_interrupted_batch_finished_stays(batch, tmp_path, monkeypatch):
    at_work(tmp_path, monkeypatch, "scancel 1; exit 1")
    assert run.run([], again="make demo", results=RESULTS, jobs=[batch]) == 1
    while Path("jobs").read_text():
        time.sleep(0.2)
    assert is_finished(batch, RESULTS) and not kept()


def test_copies_stay_where_the_queue_does_not_say_that_the_batch_has_ended(batch, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(process_cleanup, "_ANSWER_SECONDS", 0.3)
    at_work(tmp_path, monkeypatch, "touch down; exit 1")
    assert run.run([], again="make demo", results=RESULTS, jobs=[batch]) == 1
    assert kept() and "squeue fails" in capfd.readouterr().err


def test_of_another_batch_system_copies_stay_until_a_run_ends_well(batch, tmp_path, monkeypatch):
    """Nothing says when its jobs have ended."""
    (tmp_path / ".snakemake" / "slurm_logs").rmdir()
    table = expansion.run_table_path(RESULTS, batch.paper, batch.name)
    at_work(tmp_path, monkeypatch, f"rm jobs; touch jobs; rm {table}; exit 1")
    assert run.run([], again="make demo", results=RESULTS, jobs=[batch]) == 1
    assert kept() and is_finished(batch, RESULTS)
    snakemake(tmp_path, monkeypatch, "exit 0")
    assert run.run([], again="make demo", results=RESULTS, jobs=[batch]) == 0
    assert not kept() and is_finished(batch, RESULTS)


def test_no_run_starts_next_to_jobs_that_may_live(batch, tmp_path, monkeypatch):
    monkeypatch.setattr(process_cleanup, "_ANSWER_SECONDS", 0.3)
    snakemake(tmp_path, monkeypatch, "touch started")
    Path("down").touch()
    with pytest.raises(InputError, match="squeue fails"):
        run.run([], again="make demo", results=RESULTS, jobs=[batch])
    assert kept() and not Path("started").exists()


def terminate_when_there_is(name):
    """Send SIGTERM to this process, as to `dpfl run`, once there is a file of this name."""

    def wait():
        while not Path(name).exists():
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


@pytest.mark.timeout(120)
def test_sigterm_cancels_the_jobs_and_waits_until_snakemake_has_seen_it(batch, tmp_path, monkeypatch, capfd):
    """Snakemake asks now and then whether its jobs have ended."""
    monkeypatch.setattr(run, "ASK_SECONDS", 0.2)
    monkeypatch.setattr(run, "PATIENCE_SECONDS", 20.0)
    monkeypatch.setattr(run, "_POLL_SECONDS", 0.2)
    at_work(tmp_path, monkeypatch, "trap '' TERM; touch ready; while [ -s jobs ]; do sleep 0.1; done; sleep 2; exit 1")
    terminate_when_there_is("ready")
    assert run.run([], again="make demo", results=RESULTS, jobs=[batch]) == 1
    assert is_finished(batch, RESULTS) and "killed" not in capfd.readouterr().err


@pytest.mark.timeout(60)
def test_a_snakemake_that_waits_for_forgotten_jobs_ends_after_sigterm(queue, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    Path("Snakefile").touch()
    monkeypatch.setattr(run, "ASK_SECONDS", 0.1)
    monkeypatch.setattr(run, "PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr(run, "_POLL_SECONDS", 0.2)
    fake = tmp_path / "python"
    fake.write_text(f"#!{sys.executable}\nimport signal, time\nsignal.signal(15, signal.SIG_IGN)\n")
    with fake.open("a") as stream:
        stream.write("open('ready', 'w').close()\nwhile True: time.sleep(1)\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    terminate_when_there_is("ready")
    assert run.run([], again="make demo") == -9
    assert "waits for nothing that there is" in capfd.readouterr().err
