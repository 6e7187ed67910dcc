"""Run the notebooks of docs/notebooks and show what each cell gives: on the docs site, and as .ipynb to download.

A notebook is kept as text, in the form that Jupytext and MyST-NB share: Markdown with blocks {code-cell}. Jupyter opens
it with Jupytext. Cells run in the root of the repository, in one namespace, and an error ends the run.
"""

from __future__ import annotations

import ast
import base64
import io
import re
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import nbformat

NOTEBOOKS = Path(__file__).parent / "notebooks"
_PARTS = re.compile(r"^```\{code-cell\} python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_HEAD = re.compile(r"\A---\n.*?^---\n", re.MULTILINE | re.DOTALL)


@dataclass
class Cell:
    """A cell that has run: its code, what it printed, its last value as text and HTML, and its figures as PNG."""

    code: str
    printed: str = ""
    text: str = ""
    html: str = ""
    figures: list[bytes] = field(default_factory=list)


def parts(text: str) -> list[tuple[bool, str]]:
    """Return the parts of a notebook in order: (is code, text); without its head."""
    pieces = _PARTS.split(_HEAD.sub("", text))
    return [(bool(number % 2), piece) for number, piece in enumerate(pieces) if piece.strip()]


def run(text: str) -> list[tuple[str, Cell | None]]:
    """Run the cells of a notebook in order; return each part with its cell, None for Markdown."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with chdir(NOTEBOOKS.parents[1]):
        return [(piece, _run(piece, names) if is_code else None) for is_code, piece in parts(text)]


def _run(code: str, names: dict[str, Any]) -> Cell:
    """Run one cell; raises what it raises."""
    body = ast.parse(code).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    cell, printed = Cell(code.rstrip()), io.StringIO()
    with redirect_stdout(printed):
        exec(compile(ast.Module(body, []), "<cell>", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names) if last else None
    cell.printed = printed.getvalue()
    for number in plt.get_fignums():
        picture = io.BytesIO()
        plt.figure(number).savefig(picture, format="png", dpi=110, bbox_inches="tight", metadata={"Software": None})
        cell.figures.append(picture.getvalue())
    plt.close("all")
    if value is not None and not cell.figures:
        cell.text = repr(value)
        cell.html = value._repr_html_() if hasattr(value, "_repr_html_") else ""
    return cell


def require_shown(cells: list[tuple[str, Cell | None]], count: int) -> None:
    """Raise ValueError unless a notebook has `count` cells, all but one show something, and one shows a picture."""
    ran = [cell for _, cell in cells if cell]
    shown = sum(bool(cell.printed or cell.text or cell.figures) for cell in ran)
    drawn = any(cell.figures and cell.figures[0].startswith(b"\x89PNG") for cell in ran)
    if len(ran) != count or shown < count - 1 or not drawn:
        raise ValueError(f"{len(ran)} cells, {shown} that show something, {'a' if drawn else 'no'} picture")


def executed(text: str, name: str, folder: Path, count: int | None = None) -> str:
    """Return a notebook as a page with its outputs; write <folder>/<name>.ipynb, which has them too.

    Raises ValueError unless `count` cells, if it is given, are shown as `require_shown` says.
    """
    cells = run(text)
    if count is not None:
        require_shown(cells, count)
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(_notebook(cells), folder / f"{name}.ipynb")
    lines = [_page(piece, cell) for piece, cell in cells]
    return "\n\n".join([*lines, f"Download: {{download}}`{name}.ipynb <../reference/notebooks/{name}.ipynb>`\n"])


def _page(piece: str, cell: Cell | None) -> str:
    """Return a part as Markdown, with its outputs."""
    if cell is None:
        return piece.strip()
    shown = [f"```python\n{cell.code}\n```"]
    if cell.printed:
        shown.append(f"```text\n{cell.printed.rstrip()}\n```")
    if cell.html:
        shown.append(f"```{{raw}} html\n{cell.html}\n```")
    elif cell.text:
        shown.append(f"```text\n{cell.text}\n```")
    pictures = (base64.b64encode(picture).decode() for picture in cell.figures)
    shown += [f'```{{raw}} html\n<img alt="figure" src="data:image/png;base64,{each}">\n```' for each in pictures]
    return "\n\n".join(shown)


def _notebook(cells: list[tuple[str, Cell | None]]) -> nbformat.NotebookNode:
    """Return the executed notebook; the same text gives the same identifiers of cells."""
    made = []
    for number, (piece, cell) in enumerate(cells):
        if cell is None:
            made.append(nbformat.v4.new_markdown_cell(piece.strip(), id=f"part-{number}"))
            continue
        outputs = [nbformat.v4.new_output("stream", name="stdout", text=cell.printed)] if cell.printed else []
        data = {"text/plain": cell.text, **({"text/html": cell.html} if cell.html else {})}
        outputs += [nbformat.v4.new_output("display_data", data)] if cell.text else []
        pictures = (base64.b64encode(picture).decode() for picture in cell.figures)
        outputs += [nbformat.v4.new_output("display_data", {"image/png": each}) for each in pictures]
        made.append(nbformat.v4.new_code_cell(cell.code, outputs=outputs, id=f"part-{number}"))
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return nbformat.v4.new_notebook(cells=made, metadata={"kernelspec": kernel})
