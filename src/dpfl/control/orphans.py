"""A stage ends with the workflow that started it: a killed controller leaves nobody who writes results later."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import psutil

CONTROLLER = "DPFL_CONTROLLER"
"""Environment variable: process id of the Snakemake process that starts stages (workflow/rules/common.smk sets it)."""

GONE = "dpfl: the workflow (process"
"""How the last line begins of a stage that has lost its workflow."""

_LOOK_EVERY_SECONDS = 0.2
_GRACE_SECONDS = 5.0


def end_with_controller() -> None:
    """End this process soon after the controller named in the environment has gone; do nothing where none is named.

    It ends as by SIGTERM, so that temporary files are removed; where it does not within some seconds, at once.
    """
    named = os.environ.get(CONTROLLER, "")
    if named.isdigit():
        threading.Thread(target=_watch, args=(int(named),), daemon=True).start()


def is_alive(pid: int) -> bool:
    """Return whether a process with this id runs on this machine; one that only waits to be reaped does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _watch(controller: int) -> None:
    """Wait for the controller's end, then end this process."""
    while is_alive(controller):
        time.sleep(_LOOK_EVERY_SECONDS)
    print(f"{GONE} {controller}) has gone; this stage ends; make starts it again", file=sys.stderr)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_SECONDS)
    os._exit(143)
