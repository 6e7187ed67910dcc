import time

from dpfl.progress import is_progress, progress_bar, step_counter


def test_a_log_gets_the_first_and_the_last_word(capsys):
    with progress_bar("features", unit="images") as progress:
        for done in range(1, 101):
            progress(done, 100)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["features: 1 of 100 images", "features: 100 of 100 images"]
    assert all(map(is_progress, lines)) and not is_progress("dpfl: the disk is full")


def test_a_counter_goes_on_where_resumed_work_stopped():
    calls = []
    tick = step_counter(lambda *counts: calls.append(counts), 5, done=3)
    tick()
    tick()
    assert calls == [(4, 5), (5, 5)]


def test_the_time_left_goes_by_the_speed_since_the_first_call(capsys, monkeypatch):
    clock = iter([0.0, 100.0, 200.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    with progress_bar("job", unit="steps") as progress:
        for done in (500, 510, 520):
            progress(done, 1000)
    lines = capsys.readouterr().err.splitlines()
    assert lines[1] == "job: 510 of 1000 steps, about 82 min left" and is_progress(lines[1])
