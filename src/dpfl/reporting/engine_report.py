"""The workflow engine's own report.

Results may come from strangers: no text of theirs is taken for markup. Every part is written again: tables, verdicts
and captions from their CSV files and paper.yaml, and the report from them, whatever stands in its place. Captions
cannot include files or HTML. The engine shows a picture as a document, in which a script would run: one that holds
anything but drawing is refused. The report has a content security policy, under which no other script than the
engine's own runs and nothing is loaded from elsewhere.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from xml.etree import ElementTree

from dpfl.catalog import keys, load
from dpfl.errors import InputError
from dpfl.files import is_regular, read_bytes, write_atomically
from dpfl.grid.expansion import page_path, verdicts_path
from dpfl.reporting import claims, display_names, tables
from dpfl.reporting.report_page.render import policy_hash
from dpfl.reporting.results import showing
from dpfl.reporting.style import PREFERS_DARK

PAGE = "workflow.html"
_PARTS = ("tables/*.html", "figures/*.svg", "claims/*.html")
_DOCUTILS = "[general]\nfile_insertion_enabled: off\nraw_enabled: off\n"
"""What docutils, which renders captions, reads from the file that DOCUTILSCONFIG names."""
_SVG = "{http://www.w3.org/2000/svg}"
_DRAWING = {
    "svg", "g", "defs", "style", "metadata", "title", "path", "rect", "circle", "ellipse", "line", "polyline",
    "polygon", "text", "tspan", "use", "image", "clipPath", "mask", "pattern", "marker", "linearGradient",
    "radialGradient", "stop",
}  # fmt: skip
_DESCRIBING = ("{http://purl.org/dc/", "{http://creativecommons.org/", "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}")
"""Namespaces of what matplotlib writes into <metadata>."""
_INSIDE = re.compile(r"#|data:image/png;base64,")
"""What the address of a picture's part begins with."""
_LEADS_OUT = re.compile(
    rf"@(?!{re.escape(PREFERS_DARK[1:])}{{)|url\((?!\s*['\"]?#)|image-set\(|image\(|src\(|\\", re.IGNORECASE
)
"""In a style: a rule that may load (that of dark colours does not), an address outside the picture, or an escape, which
may hide both."""
_DECLARATION = '<?xml version="1.0" encoding="utf-8" standalone="no"?>'
"""Of matplotlib's pictures; in another encoding a browser may read other elements."""
_ENGINE_TEMPLATE = "report/html_reporter/template/index.html.jinja2"
"""Of Snakemake: it has each script of a report."""
_HEAD = '<meta charset="utf-8">'
_POLICY = (
    "default-src 'none'; script-src 'unsafe-eval' {scripts}; style-src 'unsafe-inline'; img-src data:; "
    "frame-src data:; base-uri 'none'; form-action 'none'"
)
"""Vega compiles the formulas of its diagrams, Tailwind writes its style as it runs; tables are frames with data."""


def build(folder: Path, config: Path) -> Path:
    """Make <folder>/workflow.html and return its path. Run it in the folder of the Snakefile.

    Raises InputError if there is nothing to report yet, a part is not a regular file, its CSV is damaged, a picture
    holds more than drawing, Snakemake cannot make the report, or the report has a script of another.
    """
    report = folder / PAGE
    parts = [path for pattern in _PARTS for path in folder.glob(pattern)]
    if not parts:
        raise InputError(f"nothing to report in {folder}: dpfl run with the same --config first")
    if odd := [path for path in parts if not is_regular(path)]:
        raise InputError(f"{odd[0]} is not a regular file: delete it and run make again")
    for path in (path for path in parts if path.suffix == ".svg"):
        _require_drawing(path)
    _write_again(folder)
    with tempfile.TemporaryDirectory() as scratch:
        made, settings = Path(scratch) / PAGE, Path(scratch) / "docutils.conf"
        command = [sys.executable, "-m", "snakemake", "--configfile", str(config), "--report", str(made)]
        settings.write_text(_DOCUTILS, encoding="utf-8")
        environment = {**os.environ, "DOCUTILSCONFIG": str(settings)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            reason = (done.stderr.strip() or "no reason").splitlines()[-1]
            raise InputError(f"Snakemake could not make the report: {reason}")
        write_atomically(report, _with_policy(made.read_text(encoding="utf-8")))
    return report


class _Scripts(HTMLParser):
    """The content of each <script> of a page."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=False)
        self.contents: list[str] = []
        self._is_inside = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "script":
            self._is_inside = True
            self.contents.append("")

    def handle_endtag(self, tag: str) -> None:
        self._is_inside = self._is_inside and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._is_inside:
            self.contents[-1] += data


def _with_policy(page: str) -> str:
    """Return the engine's report with a policy that allows the engine's own scripts, by their hashes.

    Raises InputError for another number of scripts than the engine's: a text of the results would have become one.
    """
    scripts = _Scripts(page).contents
    template = resources.files("snakemake").joinpath(_ENGINE_TEMPLATE).read_text(encoding="utf-8")
    if len(scripts) != template.count("<script") or _HEAD not in page:
        raise InputError("the report of Snakemake has a script that is not the engine's, so it is not written")
    policy = _POLICY.format(scripts=" ".join(f"'{policy_hash(script)}'" for script in scripts))
    return page.replace(_HEAD, f'{_HEAD}<meta http-equiv="Content-Security-Policy" content="{policy}">', 1)


def _require_drawing(path: Path) -> None:
    """Raise InputError for an SVG file with a script, a link, a handler, or an address outside it."""
    try:
        text = read_bytes(path).decode("utf-8").removeprefix(_DECLARATION)
        elements = [] if "<?" in text or "<!ENTITY" in text else list(ElementTree.fromstring(text).iter())
    except (ElementTree.ParseError, ValueError):
        elements = []
    if not elements or not all(map(_is_drawing, elements)):
        raise InputError(f"{path} holds more than drawing, or is not an SVG: delete it and run make pages")


def _is_drawing(element: ElementTree.Element) -> bool:
    """Return whether an element draws or describes, without a handler or an address outside the picture."""
    known = element.tag.startswith(_DESCRIBING) or element.tag.removeprefix(_SVG) in _DRAWING
    styles = (element.text or "") if element.tag == f"{_SVG}style" else ""
    return known and not _LEADS_OUT.search(styles) and all(_is_inert(*each) for each in element.attrib.items())


def _is_inert(name: str, value: str) -> bool:
    """Return whether an attribute is no handler and has no address outside the picture."""
    if name.startswith(_DESCRIBING):
        return True
    is_inside = not name.endswith("href") or _INSIDE.match(value) is not None
    return is_inside and not name.lower().startswith("on") and not _LEADS_OUT.search(value)


def _write_again(folder: Path) -> None:
    """Write the captions, and the HTML of every table and of the verdicts from its CSV, where that is there."""
    for key in keys():
        verdicts = verdicts_path(folder, key)
        with showing(folder, key):
            for kind in ("tables", "figures"):
                for name in getattr(load(key), kind):
                    csv = page_path(folder, kind, key, name)
                    if is_regular(csv):
                        display_names.write(kind, key, name, csv)
                        if kind == "tables":
                            tables.write_pages(key, name, csv, [".html"])
            if is_regular(verdicts):
                claims.write_page(key, verdicts)
