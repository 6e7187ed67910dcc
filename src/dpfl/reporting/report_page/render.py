"""Write report.html from its contents, and the last lines of a run: one for each paper."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined

from dpfl.files import write_atomically
from dpfl.reporting.display_names import at_least, at_most, in_words, with_minus_signs
from dpfl.reporting.report_page.epsilons import counts, counts_in_words, exceeded

if TYPE_CHECKING:
    from dpfl.reporting.report_page.contents import Page

# Write the page and its short form: templates filled with contents, everything escaped, nothing from elsewhere.

_COUNT_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def write(folder: Path, page: Page) -> list[Path]:
    """Write report.html and README.md into results/<scale>; return their paths, the page first.

    The same contents give the same bytes.
    """
    texts = {folder / "report.html": html(page), folder / "README.md": markdown(page)}
    for path, text in texts.items():
        write_atomically(path, text)
    return list(texts)


def html(page: Page) -> str:
    """Return the page as HTML: one file, whose policy allows its own style and script and no other."""
    environment = _environment(escaped=True)
    style, script = (_source(environment, name) for name in ("style.css", "script.js"))
    parts = {"style": style, "script": script, "style_hash": policy_hash(style), "script_hash": policy_hash(script)}
    return environment.get_template("page.html.j2").render(page=page, **parts) + "\n"


def markdown(page: Page) -> str:
    """Return the first screen and the claims as Markdown, for a code host."""
    return _environment(escaped=False).get_template("readme.md.j2").render(page=page) + "\n"


def _environment(*, escaped: bool) -> Environment:
    """Return the templates with the filters that they use; `escaped` turns every value into text without markup."""
    environment = Environment(
        loader=PackageLoader("dpfl.reporting.report_page"),
        autoescape=escaped,
        undefined=StrictUndefined,
        finalize=_finished,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "at_least": at_least,
        "at_most": at_most,
        "as_typed": _Typed,
        "cell": _cell,
        "exceeded": exceeded,
        "count_word": lambda count: _COUNT_WORDS[count] if count < len(_COUNT_WORDS) else str(count),
        "number": _number,
        "observed": lambda observer: observer if observer.startswith("every") else f"the {observer}",
        "verdict_counts": counts,
        "verdicts": counts_in_words,
        "words": in_words,
    }
    return environment


class _Typed(str):
    """Text that a reader types or copies, with hyphens: a command, a condition, a value of a setting."""


def _finished(value: object) -> object:
    """Return a value as the page shows it: text has minus signs before its numbers, unless it is to be typed."""
    return with_minus_signs(value) if type(value) is str else value


def _source(environment: Environment, name: str) -> str:
    """Return the text of a template as it is."""
    return environment.loader.get_source(environment, name)[0]


def policy_hash(text: str) -> str:
    """Return the hash under which a content security policy allows a style or script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _number(value: float) -> str:
    """Return a number with four digits."""
    return "∞" if math.isinf(value) else f"{value:.4g}"


def _cell(text: str) -> str:
    """Return text for a cell of a Markdown table: no markup, no new line."""
    for character in "\\`*_[]<>|#~":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.split())


# Last lines of a run: one for each paper.


def verdict_lines(page: Page) -> Iterator[str]:
    """Yield a line for each paper: how many of its claims have which verdict, and how much of it was run."""
    for view in page.papers:
        counts = ", ".join(f"{count} {style.word}" for style, count in view.tally) or "no verdict yet"
        printed = f"; {view.printed.sentence().rstrip('.')}" if view.printed.printed else ""
        partly = f"; {view.jobs.sentence().rstrip('.')}" if view.jobs.not_run else ""
        yield f"{view.short}: {counts}{printed}{partly}"
