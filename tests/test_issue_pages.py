"""The examples of docs/issues give what they say."""

import doctest
import re
from pathlib import Path

import pytest

PAGES = sorted(page for page in (Path(__file__).parents[1] / "docs" / "issues").glob("*.md") if page.stem != "index")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_prints_what_it_says(page):
    [block] = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    example = doctest.DocTestParser().get_doctest(block, {}, page.name, str(page), 0)
    assert 4 <= len(example.examples) <= 10
    found = []
    doctest.DocTestRunner(verbose=False).run(example, out=found.append)
    assert not found, "".join(found)


def test_every_page_is_listed_and_names_its_issue():
    listed = (PAGES[0].parent / "index.md").read_text()
    assert len(PAGES) == 5 and all(f"\n{page.stem}\n" in listed for page in PAGES)
    assert all(re.search(r"https://github\.com/[\w-]+/\w+/issues/\d+", page.read_text()) for page in PAGES)
