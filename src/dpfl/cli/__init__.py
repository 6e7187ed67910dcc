"""`dpfl`: the stages of the pipeline as commands. The workflow calls nothing else."""

from __future__ import annotations

import signal
import sys

from dpfl.cli import (  # noqa: F401  (each registers its commands)
    account_commands,
    data_commands,
    provenance_commands,
    report_commands,
    training_commands,
    workflow_commands,
)
from dpfl.cli.app import app
from dpfl.errors import InputError
from dpfl.pipeline.orphans import end_with_controller


def main() -> None:
    """Run the command line: 0 success, 1 a check found something, 2 unusable input; one line an error."""
    # A scheduler's SIGTERM ends a stage as Ctrl-C does: temporary files are removed on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    end_with_controller()
    try:
        app()
    except InputError as error:
        print(f"dpfl: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("dpfl: interrupted; run the same command again to continue", file=sys.stderr)
        sys.exit(130)
