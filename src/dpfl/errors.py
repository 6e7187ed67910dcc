"""The one error that means: the input cannot be used, and here is what would be right."""

from __future__ import annotations


class InputError(ValueError):
    """Unusable input. The message is one line: what, where, and what would be right.

    The command line prints it without a traceback and exits with status 2.
    """
