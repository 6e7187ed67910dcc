"""`dpfl`: the stages of the pipeline as commands. The workflow calls nothing else."""

from __future__ import annotations

import signal
import sys
from importlib.util import find_spec

from dpfl.cli import account_commands  # noqa: F401  (registers its commands, as those below do)
from dpfl.cli.app import app
from dpfl.errors import InputError, printable

PIPELINE = find_spec("torch") is not None
"""False where the accountants alone are installed (`pip install dpfl`, without its extra `pipeline`)."""
if PIPELINE:
    from dpfl.cli import (  # noqa: F401
        data_commands,
        provenance_commands,
        report_commands,
        training_commands,
        workflow_commands,
    )
else:
    app.info.epilog = "These are the accountants alone; pip install 'dpfl\\[pipeline]' brings the commands that train."


def main() -> None:
    """Run the command line: 0 success, 1 a check found something, 2 unusable input; one line an error."""
    # A scheduler's SIGTERM ends a stage as Ctrl-C does: temporary files are removed on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if PIPELINE:
        from dpfl.pipeline.orphans import end_with_controller

        end_with_controller()
    try:
        app()
    except InputError as error:
        print(f"dpfl: {printable(str(error))}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("dpfl: interrupted; run the same command again to continue", file=sys.stderr)
        sys.exit(130)
