"""A stage ends when the workflow that started it has gone."""

import os
import subprocess
import sys
import time

from dpfl.pipeline.process_cleanup import CONTROLLER, GONE, is_alive

STAGE = """
import signal, sys, time
from dpfl.pipeline.process_cleanup import end_with_controller
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
end_with_controller()
print("started", flush=True)
try:
    time.sleep(60)
finally:
    print("tidied", flush=True)
"""


def start_stage(controller):
    """A stage process that watches `controller`; returns once it runs."""
    environment = {**os.environ, CONTROLLER: str(controller)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    stage = subprocess.Popen([sys.executable, "-c", STAGE], env=environment, **pipes, text=True)
    assert stage.stdout.readline() == "started\n"
    return stage


def test_a_killed_controller_takes_its_stage_along_which_tidies_up():
    controller = subprocess.Popen(["sleep", "60"])
    stage = start_stage(controller.pid)
    time.sleep(0.5)
    assert stage.poll() is None
    controller.kill()  # not reaped: a zombie counts as gone
    assert stage.wait(timeout=120) == 143
    assert stage.stdout.read() == "tidied\n"
    assert stage.stderr.read().startswith(GONE)
    controller.wait()


def test_without_a_controller_nothing_is_watched():
    stage = start_stage("")
    time.sleep(0.5)
    assert stage.poll() is None
    stage.kill()
    stage.wait()


def test_who_is_alive():
    process = subprocess.Popen(["sleep", "60"])
    assert is_alive(os.getpid()) and is_alive(process.pid)
    process.kill()
    process.wait()
    assert not is_alive(process.pid)
