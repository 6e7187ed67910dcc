"""The line that says how far a run is, from the engine's log."""

import io
import os
import time

import pytest

from dpfl.pipeline.live_line import RunProgress, shown

EXPECTED = {"arrays digits": 10.0, "features digits": 30.0, "train bhaskar2025 digits_seed0": 60.0, "audit": 20.0}
STATS = ["Job stats:", "job         count", "--------  -------", "arrays          1", "total           4", ""]
FIRST = [
    "[Sun Nov 22 10:00:00 2026]",
    "localrule arrays:",
    "    input: a",
    "    jobid: 3",
    "    wildcards: dataset=digits",
]
SECOND = ["rule train:", "    jobid: 7", "    wildcards: paper=bhaskar2025, job=digits_seed0"]
ENDED = ["Finished jobid: 3 (Rule: arrays)", "1 of 4 steps (25%) done"]


def after(lines, now=0.0, progress=None):
    progress = progress or RunProgress(EXPECTED, 1)
    for line in lines:
        progress.read(line, now)
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
    lines = ["rule features:", f"    log: {log}", "    jobid: 4", "    wildcards: dataset=digits"]
    many = {name: 100 * seconds for name, seconds in EXPECTED.items()}
    progress = after([*STATS, *lines], progress=RunProgress(many | {"features digits": 1000.0}, 1))
    # 3000 s of 3090: it takes three times as long as expected, so the others too
    assert progress.seconds_left(3000.0) == pytest.approx(90 + 3.09 * 9000, rel=0.03)


def test_a_job_that_has_ended_by_its_log_and_runs_has_time_left_like_any_late_job(tmp_path):
    log = tmp_path / "features.log"
    lines = ["rule features:", f"    log: {log}", "    jobid: 4", "    wildcards: dataset=digits"]
    progress = after(lines, progress=RunProgress({"features digits": 30.0}, 1))
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
    progress = after([*STATS, "localrule fetch:", "    jobid: 9", "    wildcards: dataset=mnist, file=a.gz"])
    assert "now: fetch mnist a.gz" in progress.line(0.0)
    assert after(["Finished jobid: 9 (Rule: fetch)"], 5.0, progress).seconds_left(5.0) > 0


@pytest.mark.parametrize(("seconds", "text"), [(5, "1 min"), (90.1, "2 min"), (5399, "90 min"), (7200, "2.0 h")])
def test_times_are_said_in_minutes_then_hours(seconds, text):
    assert RunProgress({"a": seconds}, 1).line(0.0) == f"dpfl: preparing, about {text} left"


def test_an_end_without_a_start_changes_nothing():
    assert after(["Finished jobid: 3 (Rule: all)"]).seconds_left(0.0) == pytest.approx(120.0)


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self):
        return True


def watched(stream, tmp_path, lines):
    log = tmp_path / "engine.log"
    log.touch()
    progress = RunProgress(EXPECTED, 1)
    with shown(log, progress, stream):
        with log.open("a") as growing:
            growing.writelines(f"{line}\n" for line in lines)
        time.sleep(1.2)
    return stream.getvalue()


def test_in_a_terminal_one_line_is_written_over_and_taken_away(tmp_path):
    text = watched(Terminal(), tmp_path, [*STATS, *FIRST])
    assert "0 of 4 jobs" in text and "\n" not in text and text.endswith("\r\x1b[K")


def test_elsewhere_a_line_is_written_seldom_and_what_dpfl_says_is_repeated(tmp_path):
    text = watched(io.StringIO(), tmp_path, [*STATS, "dpfl: left 1 SLURM jobs here", *FIRST, "noise of the engine"])
    assert text.splitlines() == [
        "dpfl: left 1 SLURM jobs here",
        "dpfl: 0 of 4 jobs, about 2 min left; now: arrays digits",
    ]
