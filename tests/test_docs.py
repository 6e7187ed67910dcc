"""The pages say what the code says: commands are run, numbers compared, links followed."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dpfl.cli.app import app
from dpfl.reporting.bounds import at_least, at_most

ROOT = Path(__file__).parents[1]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
BLOCK = re.compile(r"^```\w*\n(dpfl account.*?)^```\n\n((?:^\|[^\n]*\n)+)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def _cells(line: str) -> list[str]:
    """Return the cells of a table's line, or of a line that the command prints."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _commands_and_rows() -> list:
    """Return (command, row) of every block of `dpfl account` in docs/; its table has a row for each command."""
    found = []
    for page in sorted((ROOT / "docs").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        blocks = BLOCK.findall(text)
        blocks_in_all = len(re.findall(r"^```\w*\ndpfl account", text, re.MULTILINE))
        assert len(blocks) == blocks_in_all, f"{page}: a block without a table"
        for block, table in blocks:
            commands = block.replace("\\\n", " ").strip().splitlines()
            header, _, *rows = map(_cells, table.splitlines())
            assert len(commands) == len(rows), f"{page}: {len(commands)} commands, {len(rows)} rows"
            for command, row in zip(commands, rows, strict=True):
                found.append(pytest.param(command, dict(zip(header, row, strict=True)), id=" ".join(row[:2])))
    return found


@pytest.mark.parametrize(("command", "row"), _commands_and_rows())
def test_pages_print_what_the_command_prints(command, row):
    words = shlex.split(command)
    ran = CliRunner().invoke(app, words[1:])
    header, values = map(_cells, ran.stdout.splitlines())
    printed = dict(zip(header, values, strict=True))
    assert row["claimed"] == printed["claimed"]
    assert row["proven"] == at_most(float(printed["proven"]))
    assert row["at least"] == at_least(float(printed["at least"]))
    assert ran.exit_code == int("refuted" in row["claimed"])
    assert words[words.index("--noise-multiplier") + 1] == row["noise_multiplier"]
    assert words[words.index("--sampler") + 1] == row["sampler"].lower().replace(" ", "_")


def test_the_recipe_is_checked():
    assert len(_commands_and_rows()) >= 6


def _anchors(page: Path) -> set[str]:
    """Return the anchors that a code host makes of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_resolve(page):
    broken = []
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path) if path else page
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in _anchors(there)):
            broken.append(target)
    assert broken == []
