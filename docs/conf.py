"""Build the docs site with Sphinx: `make docs`; each build writes the reference pages again."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from run_notebooks import executed
from write_reference import findings, works, write_reference

from dpfl import __version__

project, author, release = "dpfl", "The dpfl authors", __version__
copyright = author
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.doctest"]
myst_heading_anchors = 3
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["reference.css"]
html_title = f"dpfl {release}"
exclude_patterns = ["_build", "examples", "package.md"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"
smartquotes = False  # examples are copied
linkcheck_anchors = False
CITED = re.compile(rf"\b({'|'.join(works())})\b")


def as_restructured_text(app, what, name, value, options, lines):
    """Escape what our plain docstrings mean literally, keep displayed formulas' lines apart, link the works cited.

    From the first example on, text is taken as it stands.
    """
    prose = next((index for index, line in enumerate(lines) if line.startswith(">>>")), len(lines))
    examples = lines[prose:]
    del lines[prose:]
    code = re.split(r"(?<!`)`([^`]+)`(?!`)", "\n".join(lines))
    code[::2] = [
        CITED.sub(r":ref:`\1 <\1>`", re.sub(r"[\\*|`]|(?<=\w)_(?!\w)", r"\\\g<0>", text)) for text in code[::2]
    ]
    code[1::2] = [rf"``{' '.join(text.split())}``\ " for text in code[1::2]]
    lines[:] = "".join(code).split("\n")
    lines[:] = [f"| {line}" if _displayed(lines, index) else line for index, line in enumerate(lines)]
    lines.extend(examples)


def _displayed(lines, index):
    """Return whether the line stands in a paragraph that has indented lines."""
    first, last = index, index
    while first > 0 and lines[first - 1].strip():
        first -= 1
    while last + 1 < len(lines) and lines[last + 1].strip():
        last += 1
    return bool(lines[index].strip()) and any(line.startswith(" ") for line in lines[first : last + 1])


def reference(app):
    """Write the pages that come from the code, and run their examples, but not again for those of the docstrings."""
    write_reference(Path(__file__).parent / "reference", run=app.builder.name != "doctest")


def with_outputs(app, name, source):
    """Run a notebook of ten cells for the pages of the site: each with what it prints. Other builders show plain code.

    A cell that fails, or a notebook that shows less than it did, ends the build.
    """
    if not name.startswith("notebooks/"):
        return
    if app.builder.name == "html":
        place = Path(__file__).parent / "reference" / "notebooks"
        source[0] = executed(source[0], name.removeprefix("notebooks/"), place, count=10)
    else:
        source[0] = source[0].replace("{code-cell} ", "")


def with_files(app, name, source):
    """Link Markdown outside docs/ by MyST's scheme `path:`; it takes such a link for a page of the site."""
    if "/" not in name:
        source[0] = re.sub(r"\]\((\.\./[\w/]+\.md)\)", r"](path:\1)", source[0])


README = Path(__file__).parents[1] / "README.md"


def with_findings(app, name, source):
    """Put README.md's results on the landing page, which is read again if README.md changes."""
    if name == "index":
        app.env.note_dependency(str(README))
        source[0] = source[0].replace("<!-- findings -->\n", findings(README.read_text(encoding="utf-8")))


def setup(app):
    """Connect what Sphinx calls."""
    app.connect("source-read", with_outputs)
    app.connect("source-read", with_files)
    app.connect("source-read", with_findings)
    app.connect("autodoc-process-docstring", as_restructured_text)
    app.connect("builder-inited", reference, priority=100)  # before autosummary reads the pages
