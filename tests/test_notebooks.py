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


@pytest.mark.slow  # `make docs` runs them too, and makes the same demands (docs/conf.py)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_notebook_has_ten_cells_that_run(notebooks, page):
    cells = [cell for _, cell in notebooks.run(page.read_text(encoding="utf-8")) if cell]
    assert len(PAGES) == 2 and len(cells) == 10
    assert sum(bool(cell.printed or cell.text or cell.figures) for cell in cells) >= 9
    assert any(cell.figures and cell.figures[0].startswith(b"\x89PNG") for cell in cells)


def test_there_are_two_notebooks_of_ten_cells(notebooks):
    cells = [sum(is_code for is_code, _ in notebooks.parts(page.read_text(encoding="utf-8"))) for page in PAGES]
    assert cells == [10, 10]


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


FIGURE = """
```{code-cell} python
import matplotlib.pyplot as plt

plt.plot([1, 2])
```
"""
SILENT = """
```{code-cell} python
x = 1
```
"""


def test_the_docs_are_not_built_where_a_notebook_shows_less_than_it_did(notebooks, tmp_path):
    assert "data:image/png" in notebooks.executed(SMALL + FIGURE + SILENT, "small", tmp_path, count=3)
    for text, said in (
        (SMALL + FIGURE, "2 cells, 2 that show something, a picture"),
        (SMALL + SILENT + SILENT, "3 cells, 1 that show something, no picture"),
        (SMALL + SMALL + SILENT, "3 cells, 2 that show something, no picture"),
        (FIGURE + SILENT + SILENT, "3 cells, 1 that show something, a picture"),
    ):
        with pytest.raises(ValueError, match=said):
            notebooks.executed(text, "small", tmp_path, count=3)


def test_a_cell_that_fails_ends_the_run(notebooks):
    with pytest.raises(ZeroDivisionError):
        notebooks.run(SMALL.replace("1 / 4", "1 / 0"))
