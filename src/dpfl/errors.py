"""The one error that means: the input cannot be used, and here is what would be right."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class InputError(ValueError):
    """Unusable input. The message is one line: what, where, and what would be right.

    The command line prints it without a traceback and exits with status 2.
    """


def printable(text: str) -> str:
    """Return a text on one line, with control characters and lone surrogates escaped as \\xNN or \\uNNNN."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
