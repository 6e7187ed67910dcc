"""The line that says how far a run is, from the events of Snakemake's logger plugin; and the plugin itself."""

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from snakemake_interface_logger_plugins.registry import LoggerPluginRegistry
from snakemake_interface_logger_plugins.tests import TestLogHandlerBase

from dpfl.pipeline import live_line
from dpfl.pipeline.live_line import RunProgress, shown
from snakemake_logger_plugin_dpfl import EVENTS, LogHandler

EXPECTED = {"arrays digits": 10.0, "features digits": 30.0, "train bhaskar2025 digits_seed0": 60.0, "audit": 20.0}


def started(number, rule, log=(), event="job_info", **wildcards):
    return {"event": event, "job": number, "rule": rule, "wildcards": wildcards, "log": [str(path) for path in log]}


STATS = [{"event": "run_info", "total": 4}]
FIRST = [started(3, "arrays", dataset="digits")]
SECOND = [started(7, "train", paper="bhaskar2025", job="digits_seed0")]
ENDED = [{"event": "job_finished", "job": 3}, {"event": "progress", "done": 1, "total": 4}]


def after(events, now=0.0, progress=None):
    progress = progress or RunProgress(EXPECTED, 1)
    for event in events:
        progress.read(event, now)
    return progress


def test_before_the_first_job_all_is_left():
    assert after([]).line(0.0) == "dpfl: preparing, about 2 min left"
    assert after(STATS).line(0.0) == "dpfl: 0 of 4 jobs, about 2 min left"


def test_a_running_job_is_named_and_takes_from_its_own_time():
    progress = after([*STATS, *FIRST])
    assert progress.line(0.0).endswith("; now: arrays digits")
    assert progress.seconds_left(4.0) == pytest.approx(116.0)


@pytest.mark.parametrize("seconds", [1.0, 15.0, 19.9, 25.0, 60.0, 119.0])
def test_on_a_machine_half_as_fast_the_time_in_all_is_right_within_a_factor_of_two(seconds):
    """One job of 60 s, which takes 120 s here and says nothing in its log."""
    progress = RunProgress({"train bhaskar2025 digits_seed0": 60.0}, 1)
    after([*STATS, *SECOND], progress=progress)
    assert 60.0 <= seconds + progress.seconds_left(seconds) <= 240.0


def test_a_late_job_has_time_left_and_slows_what_is_expected_of_the_others():
    progress = after([*STATS, *FIRST])
    left = [progress.seconds_left(now) for now in (9.0, 20.0, 1000.0)]
    assert left[0] == pytest.approx(111.0) and left[0] < left[1] < left[2] < 1110.0


def test_the_time_that_a_job_states_in_its_log_is_used_and_tells_the_speed(tmp_path):
    log = tmp_path / "features.log"
    log.write_text("features of digits: 100 of 400 images, about 90 s left\n")
    events = [started(4, "features", [log], dataset="digits")]
    many = {name: 100 * seconds for name, seconds in EXPECTED.items()}
    progress = after([*STATS, *events], progress=RunProgress(many | {"features digits": 1000.0}, 1))
    # 3000 s of 3090: it takes three times as long as expected, so the others too
    assert progress.seconds_left(3000.0) == pytest.approx(90 + 3.09 * 9000, rel=0.03)


def test_a_job_that_has_ended_by_its_log_and_runs_has_time_left_like_any_late_job(tmp_path):
    log = tmp_path / "features.log"
    events = [started(4, "features", [log], dataset="digits")]
    progress = after(events, progress=RunProgress({"features digits": 30.0}, 1))
    log.write_text("features of digits: 399 of 400 images, about 5 s left\n")
    assert progress.seconds_left(1000.0) == pytest.approx(5.0, abs=1.0)
    os.utime(log, (time.time() - 500,) * 2)
    assert progress.seconds_left(1500.0) == pytest.approx(750.0)


def test_a_slow_machine_is_seen_after_the_first_job():
    progress = after([*STATS, *FIRST], progress=RunProgress({name: 100 * each for name, each in EXPECTED.items()}, 1))
    after(ENDED, now=2000.0, progress=progress)  # twice as long as expected
    assert (progress.done, progress.total) == (1, 4)
    assert progress.seconds_left(2000.0) == pytest.approx(2 * 11000, rel=0.02)
    assert "now" not in progress.line(2000.0)


def test_jobs_of_a_second_do_not_tell_the_speed():
    progress = RunProgress({"arrays digits": 1.0, "train bhaskar2025 digits_seed0": 600.0}, 1)
    after(FIRST, progress=progress)
    assert progress.seconds_left(4.0) < 800.0
    after(ENDED, now=5.0, progress=progress)
    assert progress.seconds_left(5.0) < 800.0


def test_jobs_at_once_share_the_time_but_none_is_divided():
    progress = RunProgress(EXPECTED, 2)
    assert progress.seconds_left(0.0) == pytest.approx(60.0)
    assert RunProgress({"a": 90.0, "b": 10.0}, 2).seconds_left(0.0) == pytest.approx(90.0)


def test_two_running_jobs_are_both_named():
    line = after([*STATS, *FIRST, *SECOND]).line(0.0)
    assert line.endswith("; now: arrays digits, train bhaskar2025 digits_seed0")


def test_a_job_of_an_unknown_kind_is_counted_and_named():
    progress = after([*STATS, started(9, "fetch", dataset="mnist", file="a.gz")])
    assert "now: fetch mnist a.gz" in progress.line(0.0)
    assert after([{"event": "job_finished", "job": 9}], 5.0, progress).seconds_left(5.0) > 0


@pytest.mark.parametrize(("seconds", "text"), [(5, "1 min"), (90.1, "2 min"), (5399, "90 min"), (7200, "2.0 h")])
def test_times_are_said_in_minutes_then_hours(seconds, text):
    assert RunProgress({"a": seconds}, 1).line(0.0) == f"dpfl: preparing, about {text} left"


def test_an_end_without_a_start_changes_nothing():
    assert after(ENDED[:1]).seconds_left(0.0) == pytest.approx(120.0)


def test_a_job_that_failed_runs_no_more_and_one_that_is_tried_again_has_not_failed():
    error = started(3, "arrays", ["data/logs/arrays_digits.log"], event="job_error")
    progress = after([*STATS, *FIRST, error])
    assert "now" not in progress.line(0.0) and [job.rule for job in progress.failed.values()] == ["arrays"]
    assert after(FIRST, progress=progress).line(0.0).endswith("; now: arrays digits") and not progress.failed


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self):
        return True


POLL_SECONDS = 0.02


@pytest.fixture
def polls(monkeypatch):
    """The files are read often, so that a piece of a line is read alone soon."""
    monkeypatch.setattr(live_line, "_POLL_SECONDS", POLL_SECONDS)


def watched(stream, tmp_path, events, said=""):
    """What is shown of events, the last of which arrives in two pieces, and of lines of the engine."""
    log, happened = tmp_path / "engine.log", tmp_path / "events.jsonl"
    log.touch()
    happened.touch()
    progress = RunProgress(EXPECTED, 1)
    with shown(log, happened, progress, stream):
        text = "".join(f"{json.dumps(event)}\n" for event in events)
        for piece in (text[:-9], text[-9:]):
            with happened.open("a") as growing:
                growing.write(piece)
            time.sleep(5 * POLL_SECONDS)
        with log.open("a") as growing:
            growing.write(said)
        time.sleep(5 * POLL_SECONDS)
    return stream.getvalue()


def test_in_a_terminal_one_line_is_written_over_and_taken_away(polls, tmp_path):
    text = watched(Terminal(), tmp_path, [*STATS, *FIRST])
    assert "0 of 4 jobs" in text and "; now: arrays digits" in text
    assert "\n" not in text and text.endswith("\r\x1b[K")


def test_elsewhere_a_line_is_written_seldom_and_what_dpfl_says_is_repeated(polls, tmp_path):
    said = "noise of the engine\ndpfl: an earlier run left 1 SLURM jobs here\ndpfl: interrupted; run the same command\n"
    text = watched(io.StringIO(), tmp_path, [*STATS, *FIRST], said)
    assert sorted(text.splitlines()) == [
        "dpfl: 0 of 4 jobs, about 2 min left",
        "dpfl: an earlier run left 1 SLURM jobs here",
    ]


# The plugin: by the tests that Snakemake's interface has for any, and in a run.


class TestPlugin(TestLogHandlerBase):
    """The tests of snakemake-interface-logger-plugins."""

    __test__ = True

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path, monkeypatch):
        """A folder of its own: the plugin writes to where it is called."""
        monkeypatch.chdir(tmp_path)

    def get_log_handler_cls(self):
        """The plugin's class, as Snakemake finds it."""
        assert LoggerPluginRegistry().get_plugin("dpfl").log_handler is LogHandler
        return LogHandler

    def get_log_handler_settings(self):
        """None: there is nothing to set."""
        return None

    def test_run_info_event(self):
        """Theirs counts no rule named total as Snakemake does; of ours the line is read back."""
        super().test_run_info_event()
        assert json.loads(EVENTS.read_text()) == {"event": "run_info", "total": 5}


SNAKEFILE = """
rule all:
    input: "a_1.txt", "never.txt"

rule make:
    output: "{name}_{number}.txt"
    log: "make_{name}_{number}.log"
    shell: "touch {output:q}"

rule flaky:
    input: "a_1.txt"
    output: "twice.txt"
    log: "flaky.log"
    retries: 1
    shell: "test -e tried || {{ touch tried; exit 1; }}; touch {output:q}"

rule fail:
    input: "twice.txt"
    output: "never.txt"
    log: "fail.log"
    shell: "echo broken > {log:q}; exit 1"
"""


@pytest.mark.workflow
def test_the_plugin_says_what_snakemake_did_though_snakemake_says_nothing(tmp_path):
    """Compared with the Snakefile."""
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    words = [sys.executable, "-m", "snakemake", "--logger", "dpfl", "--cores", "1", "--quiet", "all"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and "rule" not in done.stderr
    events = [json.loads(line) for line in (tmp_path / EVENTS).read_text().splitlines()]
    progress = RunProgress({}, 1)
    seen = []
    for event in events:
        progress.read(event, 0.0)
        if event["event"] in ("job_info", "job_error"):
            seen.append((event["event"], event["rule"], event["log"]))
    assert seen == [
        ("job_info", "make", ["make_a_1.log"]),
        ("job_info", "flaky", ["flaky.log"]),
        ("job_error", "flaky", ["flaky.log"]),
        ("job_info", "flaky", ["flaky.log"]),
        ("job_info", "fail", ["fail.log"]),
        ("job_error", "fail", ["fail.log"]),
    ]
    assert next(event for event in events if event.get("rule") == "make")["wildcards"] == {"name": "a", "number": "1"}
    assert (progress.done, progress.total) == (2, 4)
    assert [(job.rule, job.logs) for job in progress.failed.values()] == [("fail", (Path("fail.log"),))]
