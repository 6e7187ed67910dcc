"""`dpfl new-paper`: every file of the template under the new key, and what it refuses."""

import re
from pathlib import Path

import pytest

from dpfl import catalog
from dpfl.cli import paper_commands
from dpfl.cli.paper_commands import new_paper
from dpfl.errors import InputError


@pytest.fixture
def papers(repository, tmp_path, monkeypatch) -> Path:
    """An empty folder of papers, seen from the folder of the project."""
    monkeypatch.chdir(repository)
    monkeypatch.setattr(catalog, "PAPERS", tmp_path / "papers")
    return tmp_path / "papers"


def test_a_new_paper_is_the_template_under_its_own_key(papers, repository, capsys):
    new_paper("smith2026b")
    template = repository / "workflow" / "new_paper"
    names = sorted(path.name for path in template.iterdir() if path.is_file())
    assert sorted(path.name for path in (papers / "smith2026b").iterdir()) == names and "paper.yaml" in names
    replaced = 0
    for name in names:
        written, pattern = (papers / "smith2026b" / name).read_text(), (template / name).read_text()
        assert written.split("smith2026b") == pattern.split("sixth2026"), name
        replaced += written.count("smith2026b")
    assert replaced > 1 and "papers: [smith2026b]" in capsys.readouterr().out


def test_a_folder_that_was_half_written_is_no_paper(papers, monkeypatch):
    """paper.yaml, by which the catalog finds a paper, is written when all else is there."""
    written = []
    monkeypatch.setattr(paper_commands, "write_atomically", lambda path, text: written.append(path.name))
    new_paper("smith2026")
    assert written[-1] == "paper.yaml" and {"claims.yaml", "grid.yaml", "tables.py"} < set(written[:-1])


@pytest.mark.parametrize(
    "key", ["Smith2026", "smith", "../x2026", "smith 2026", "smith2026ab", "smith26", "smith2026\n"]
)
def test_a_key_that_cannot_be_is_one_line(papers, key):
    with pytest.raises(InputError, match=re.escape(repr(key))) as refused:
        new_paper(key)
    assert "\n" not in str(refused.value) and not papers.exists()


def test_a_paper_that_is_there_is_left_as_it_is(papers):
    new_paper("smith2026")
    (papers / "smith2026" / "paper.yaml").write_text("mine")
    with pytest.raises(InputError, match=r"smith2026 is there already") as refused:
        new_paper("smith2026")
    assert "\n" not in str(refused.value) and (papers / "smith2026" / "paper.yaml").read_text() == "mine"


def test_outside_the_project_nothing_is_written(papers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="run dpfl in the folder of the project"):
        new_paper("smith2026")
    assert not papers.exists()
