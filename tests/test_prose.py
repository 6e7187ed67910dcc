"""Pages, messages and docstrings are in plain English: none has a phrase of a kind that readers stumbled over."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
COVERED = (
    "*.md",
    "config.yaml",
    "config/*.md",
    "docs/*.md",
    "docs/howto/*.md",
    "docs/issues/*.md",
    "docs/notebooks/*.md",
    "src/dpfl/data/*.yaml",
    "src/dpfl/papers/*/*.yaml",
    "src/dpfl/schemas/*.yaml",
    "workflow/new_paper/*.yaml",
    "workflow/profiles/*.md",
)
"""Files whose text is checked, as patterns from the root."""
FILES = sorted({path for pattern in COVERED for path in ROOT.glob(pattern)})
SOURCE = ROOT / "src"
MODULES = sorted(SOURCE.rglob("*.py"))


class Banned(NamedTuple):
    """A kind of phrase: its pattern, what to write, a sentence that has it, and one that does not."""

    pattern: str
    instead: str
    wrong: str
    right: str


NOT_A_COMPARISON = r"(?!longer|more|less|fewer|smaller|larger|better)"
BANNED = [
    Banned(
        rf"(?<!\bthere )(?<!\bif there )\b(is|are|was|were) no {NOT_A_COMPARISON}[a-z]+",
        "negate the verb: is not a",
        "The number is no mean of ten.",
        "There is no mean, and it is no longer needed.",
    ),
    Banned(
        r"(?<!\bthere )\b(is|are|was|were) none\b",
        "say what is missing",
        "It takes names that are none.",
        "There are none, and none of them is a name.",
    ),
    Banned(
        r"\b(those|these) of\b|\bthat of (the|a|an|its|their|this)\b|\b(those|that) of which\b",
        "repeat the noun",
        "The epsilon is that of the shuffled batches.",
        "This is the epsilon for shuffled batches.",
    ),
    Banned(
        r"\bwhat (is|was|are) (proven|exceeded|claimed|stated|known|said|asked|told|counted|released)\b",
        "name the thing: the proven epsilon",
        "Return what is proven of the steps.",
        "Return bounds on epsilon.",
    ),
    Banned(
        r"\bthat there (is|are)\b|\bof which there (is|are)\b|\bwhat there is\b",
        "name it, or say that it exists",
        "A class takes no name that there is.",
        "There is a name.",
    ),
    Banned(r"\btold? (apart )?from\b", "distinguish", "The two are told from each other.", "It differs from it."),
    Banned(r"\b(asked|meant|said) here\b", "our own question", "The question is asked here.", "We ask this here."),
    Banned(
        r"\b(kept|left|leaves?|keeps?) open\b|\bopen (settings?|epsilons?|readings?|points?)\b|\bkept epsilons?\b",
        "not stated; unproven; proven",
        "The paper leaves open which sampler it uses.",
        "You can open the report.",
    ),
    Banned(
        r"\bstands? (in )?for (nothing|what)\b"
        r"|\b(it|they|that|which|numbers?) stands? (beside|with|below|above|there)\b",
        "is",
        "Its number stands beside the published one.",
        "A stand-in replaces a dataset.",
    ),
    Banned(
        r"\b(the|its|their|paper's) prints?\b|\bprinted (numbers?|values?|cells?|ones?|accurac\w+|means?|columns?)\b",
        "published",
        "By its scatter the print is no single run.",
        "The command prints the published number.",
    ),
    Banned(r"\bturns? around\b", "reverses; is larger", "The order turns around.", "The order is reversed."),
    Banned(r"\bfor want of\b", "because there is no", "Unknown, for want of a claim.", "There is no claim."),
    Banned(r"\banew\b", "again", "The pages are made anew.", "The pages are made again."),
    Banned(r"\bwhoever\b", "anyone who", "Whoever sees it can subtract.", "Anyone who sees it can subtract."),
    Banned(r"\bmend(s|ed|ing)?\b", "fix", "Only the newest version is mended.", "It gets fixes."),
    Banned(
        r"\bwhere (there|none|nothing|no|one|another)\b",
        "if",
        "Take another where there is one.",
        "Say where it is published.",
    ),
    Banned(
        r"\b(a|one) (row|line|run|file|job|table|folder|field) an? [a-z]+",
        "for each",
        "A table of means, a row a noise level.",
        "A row is a noise level; one file for each job.",
    ),
    Banned(
        r"\b(is|are) such\b(?! (that|as)\b)",
        "repeat the noun",
        "It says how many of them are such.",
        "It counts runs without a commit, such as this.",
    ),
    Banned(
        r"\b(proven|exceeded) (ones?|ends?)\b",
        "upper bound; lower bound",
        "Proven ones are rounded up.",
        "The upper bound is proven.",
    ),
    Banned(r"\bsame law\b", "same distribution", "It has the same law.", "It has the same distribution."),
    Banned(
        r"\bsays? of (a|an|the|it|each|every|what|its|their)\b",
        "says about",
        "It says of a claim whether it holds.",
        "It says that the claim holds.",
    ),
    Banned(r"\bfor what (it|they) (is|are)\b", "delete", "Training is fast for what it is.", "Training is fast."),
]


def prose(text: str) -> str:
    """Return the text without code, comments of HTML and targets of links, with the same line breaks."""

    def blank(found: re.Match[str]) -> str:
        return "\n" * found[0].count("\n")

    for code in (r"(?ms)^ *```.*?^ *```", r"(?s)<!--.*?-->", r"`[^`\n]*`", r"(?<=\])\([^)]*\)"):
        text = re.sub(code, blank, text)
    return text


def found_in(text: str) -> list[tuple[int, str, str]]:
    """Return line, phrase and what to write instead of each banned phrase; a phrase may go over the end of a line."""
    lines = [line.strip().removeprefix("#").split() or ["."] for line in prose(text).split("\n")]
    words = [word for line in lines for word in line]
    numbers = [number for number, line in enumerate(lines, 1) for _ in line]
    plain = " ".join(words)
    return sorted(
        (numbers[plain.count(" ", 0, match.start())], match[0], banned.instead)
        for banned in BANNED
        for match in re.finditer(banned.pattern, plain, re.IGNORECASE)
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_page_has_no_banned_phrase(path):
    found = found_in(path.read_text(encoding="utf-8"))
    assert not found, "\n".join(f"line {line}: {phrase!r}; write: {instead}" for line, phrase, instead in found)


_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef


def said_in(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of what a module says: messages of errors, first lines of docstrings of public names."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and node.exc:
            yield from _strings(node.exc)
        elif (
            isinstance(node, _DOCUMENTED) and not getattr(node, "name", "").startswith("_") and ast.get_docstring(node)
        ):
            yield node.body[0].lineno, ast.get_docstring(node).splitlines()[0]


def _strings(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string in an expression; a value that an f-string fills in is an "x"."""
    if isinstance(node, ast.JoinedStr):
        yield node.lineno, "".join(part.value if isinstance(part, ast.Constant) else "x" for part in node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.lineno, node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from _strings(child)


def test_no_message_and_no_docstring_has_a_banned_phrase():
    """The first line of a docstring is what lists and tooltips show."""
    found = [
        f"{path.relative_to(ROOT)}, line {line}: {phrase!r}; write: {instead}"
        for path in MODULES
        for line, text in said_in(path.read_text(encoding="utf-8"))
        for _, phrase, instead in found_in(text)
    ]
    assert not found, "\n".join(found)


def test_messages_and_first_lines_are_found_and_other_strings_are_not():
    source = '"""Made anew."""\ndef f():\n    """One.\n\n    Anew."""\n    raise ValueError(f"{f} is no {f}")\n'
    private = 'def _f():\n    """Made anew."""\n    return "anew"\n'
    assert list(said_in(source + private)) == [(1, "Made anew."), (3, "One."), (6, "x is no x")]


def test_the_patterns_find_files():
    assert len(FILES) > 30 and len(MODULES) > 100
    assert all(list(ROOT.glob(pattern)) for pattern in COVERED)


@pytest.mark.parametrize("banned", BANNED, ids=lambda banned: banned.instead)
def test_a_banned_phrase_is_found_and_a_good_one_is_not(banned):
    assert banned.instead in {instead for _, _, instead in found_in(banned.wrong)}
    assert found_in(banned.right) == []


def test_a_phrase_is_found_across_lines_and_not_in_code():
    assert found_in("A line.\n\n# It is made\n# anew, where\n# there is one.") == [
        (4, "anew", "again"),
        (4, "where there", "if"),
    ]
    assert found_in("```python\nx = 1  # made anew\n```\n`anew` [link](anew.md) <!-- anew -->") == []


def test_a_line_of_the_changelog_fits_the_screen():
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    assert [number for number, line in enumerate(lines, 1) if len(line) > 120] == []
