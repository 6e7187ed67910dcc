"""`dpfl`: the stages of the pipeline as commands. The jobs of the workflow call nothing else."""

from __future__ import annotations

import errno
import os
import re
import select
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

_INTERRUPTED = "dpfl: interrupted; run the same command again to continue"

try:  # Ctrl-C may come before `main`: what is imported here takes half a second, and longer on a busy machine
    import typer

    from dpfl.cli import account_commands, check_commands  # noqa: F401  (registers its commands, as those below do)
    from dpfl.cli.app import ALONE, PIPELINE, Commands, app
    from dpfl.errors import InputError, printable

    if PIPELINE:
        from dpfl.cli import (  # noqa: F401
            data_commands,
            own_commands,
            paper_commands,
            provenance_commands,
            report_commands,
            results_commands,
            training_commands,
            workflow_commands,
        )
    else:
        app.info.epilog = ALONE.replace("[", "\\[")
except KeyboardInterrupt:
    print(_INTERRUPTED, file=sys.stderr)
    sys.exit(130)


_UsageError: Any = typer.BadParameter.__base__
"""What typer raises for options that cannot be; it keeps the class to itself."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a full disk, a used-up quota, and a file that may not grow."""
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_MOST_CHARACTERS = 200
_ALONE = {"--version", "--stages", "--help", "--install-completion", "--show-completion"}
"""Options that need no command, if they stand before it."""
_SECONDS = re.compile("[0-9]{1,11}")
"""Seconds since 1970 that are a date before the year 10000: later ones are none to Python."""


def _run() -> None:
    """Run the command; what it has printed is written before it ends, or that it cannot be is an error too.

    Raises InputError for options that cannot be.
    """
    try:
        status = app(standalone_mode=False, prog_name="dpfl")
    except _UsageError as problem:
        if len(sys.argv) > 1:
            words = " ".join(problem.format_message().split()).rstrip(".")
            command = problem.ctx.command_path if problem.ctx else "dpfl"
            raise InputError(f"{words} (see {command} --help)") from None
        problem.show()  # `dpfl` alone: its help
        sys.exit(2)
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # typer makes 1 of it, which is a finding here
            raise ended.__context__ from None
        raise
    else:
        if status == 130:  # what typer makes of Ctrl-C
            raise KeyboardInterrupt
        if not status and not Commands.ran and not _is_alone(sys.argv[1:]):
            raise InputError("no command was run: typer and click do not fit together; pip install -U typer")
        sys.exit(status)
    finally:
        if sys.stdout is not None:  # closed by who called
            sys.stdout.flush()


def _is_alone(words: list[str]) -> bool:
    """Return whether an option that needs no command stands before the command."""
    left = iter(words)
    for word in left:
        if word in _ALONE:
            return True
        if word == "--directory":
            next(left, None)
        elif not word.startswith("-"):
            return False
    return False


def _reader_has_left() -> bool:
    """Return whether standard output is a pipe that nobody reads any more."""
    ends = select.poll()
    with suppress(OSError, ValueError, AttributeError):  # there is no file behind it
        ends.register(sys.stdout.fileno(), 0)
    return bool(ends.poll(0))


def _drop_output() -> None:
    """Let what is still to be printed go nowhere: writing it at the end of Python would fail with a second line."""
    with suppress(OSError, ValueError):  # there is no file behind it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """Run the command line: 0 success, 1 a check found something, 2 unusable input; an error is one line.

    141 says, as of other programs, that who read the output stopped before its end.
    """
    # A scheduler's SIGTERM ends a stage as Ctrl-C does: temporary files are removed on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if PIPELINE:
        from dpfl.pipeline.process_cleanup import end_with_controller

        end_with_controller()
    os.environ["MPLBACKEND"] = "agg"  # every figure is a file
    try:
        if not _SECONDS.fullmatch(os.environ.get("SOURCE_DATE_EPOCH", "0")):
            raise InputError(
                f"SOURCE_DATE_EPOCH is {os.environ['SOURCE_DATE_EPOCH']!r}, no number of seconds since 1970: "
                "unset it, or set it to one"
            )
        _run()
    except OSError as error:
        if error.errno == errno.EPIPE and _reader_has_left():  # as `| head` does: what it wanted, it has
            _drop_output()
            sys.exit(141)
        if error.errno in _FORBIDDEN and error.filename:
            print(f"dpfl: {printable(str(error.filename))}: {error.strerror}: change its permissions", file=sys.stderr)
            sys.exit(2)
        if error.errno not in (*_FULL, errno.ENAMETOOLONG):
            raise
        words = printable(f"{error.strerror}{f': {error.filename}' if error.filename else ''}")
        if error.errno == errno.ENAMETOOLONG:
            print(f"dpfl: a path is too long for this system ({words[:_MOST_CHARACTERS]})", file=sys.stderr)
            sys.exit(2)
        print(f"dpfl: the disk is full or a limit reached ({words}); what is finished is kept: make room, then run the "
              "same command again", file=sys.stderr)  # fmt: skip
        _drop_output()
        sys.exit(2)
    except MemoryError as error:
        words = printable(str(error) or "no more is to be had")
        print(f"dpfl: the memory does not suffice ({words[:_MOST_CHARACTERS]}): ask for less at once", file=sys.stderr)
        sys.exit(2)
    except InputError as error:
        print(f"dpfl: {printable(str(error))}", file=sys.stderr)
        sys.exit(2)
    except (SyntaxError, ImportError, NameError) as error:  # a module that its author has not finished
        if not (line := _own_line(error)):
            raise
        words = printable(f"{line}: {type(error).__name__}: {getattr(error, 'msg', None) or error}")
        print(f"dpfl: {words}; mend this line", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print(_INTERRUPTED, file=sys.stderr)
        sys.exit(130)


def _own_line(error: SyntaxError | ImportError | NameError) -> str:
    """Return file and line of this package that cannot be run; "" where the error is of another package's code."""
    *_, last = traceback.extract_tb(error.__traceback__)
    named = isinstance(error, SyntaxError) and error.filename
    path, line = (Path(str(error.filename)), error.lineno) if named else (Path(last.filename), last.lineno)
    return f"{path}:{line}" if path.is_relative_to(Path(__file__).parents[1]) else ""
