"""The notebooks of the docs run, and are shown with what they give."""

import importlib
import sys
from pathlib import Path

import nbformat
import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted((DOCS / "notebooks").glob("*.md"))


@pytest.fixture(scope="module")
def notebooks():
    """The script docs/run_notebooks.py as a module."""
    sys.path.insert(0, str(DOCS))
    try:
        return importlib.import_module("run_notebooks")
    finally:
        sys.path.remove(str(DOCS))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_notebook_has_ten_cells_that_run(notebooks, page):
    cells = [cell for _, cell in notebooks.run(page.read_text(encoding="utf-8")) if cell]
    assert len(PAGES) == 2 and len(cells) == 10
    assert sum(bool(cell.printed or cell.text or cell.figures) for cell in cells) >= 9
    assert any(cell.figures and cell.figures[0].startswith(b"\x89PNG") for cell in cells)


SMALL = """---
kernelspec: {name: python3}
---

# Title

```{code-cell} python
import pandas as pd

print("said")
pd.DataFrame({"a": [1 / 4]})
```

The end.
"""


def test_outputs_are_on_the_page_and_in_the_notebook(notebooks, tmp_path):
    page = notebooks.executed(SMALL, "small", tmp_path)
    assert page.startswith("# Title") and "kernelspec" not in page and page.index("said") < page.index("The end.")
    assert "```text\nsaid\n```" in page and "<td>0.25</td>" in page
    read = nbformat.read(tmp_path / "small.ipynb", as_version=4)
    nbformat.validate(read)
    assert [cell.cell_type for cell in read.cells] == ["markdown", "code", "markdown"]
    assert read.cells[1].outputs[0].text == "said\n"
    first = (tmp_path / "small.ipynb").read_bytes()
    notebooks.executed(SMALL, "small", tmp_path)
    assert (tmp_path / "small.ipynb").read_bytes() == first


def test_a_cell_that_fails_ends_the_run(notebooks):
    with pytest.raises(ZeroDivisionError):
        notebooks.run(SMALL.replace("1 / 4", "1 / 0"))
