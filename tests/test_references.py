"""The bibliography: every key that the code cites resolves, and every entry is cited."""

import re
from pathlib import Path

import pytest
import yaml

import dpfl
from dpfl.catalog import keys

SOURCE = Path(dpfl.__file__).parent
REFERENCES = yaml.safe_load((SOURCE / "references.yaml").read_text(encoding="utf-8"))
KEY = re.compile(r"\b[a-z]{2,}(?:19|20)\d\d[a-z]*\b")


def citations(text):
    """Return the keys that a module cites: an author's name and a year, followed by a word that tells works apart."""
    return set(KEY.findall(text))


def cited():
    """Return each cited key with a module that cites it."""
    return {key: path.name for path in SOURCE.rglob("*.py") for key in citations(path.read_text(encoding="utf-8"))}


def test_every_cited_key_resolves():
    known = {*REFERENCES, *keys(), "sixth2026", "smith2026"}  # the last two: examples of a new paper's key
    unknown = {key: path for key, path in cited().items() if key not in known}
    assert not unknown, f"add these keys to references.yaml, or write them as words where they are none: {unknown}"


def test_every_entry_is_cited():
    assert set(REFERENCES) - set(cited()) == set()


@pytest.mark.parametrize("key", REFERENCES)
def test_entries_are_complete_and_named_after_author_and_year(key):
    entry = REFERENCES[key]
    assert set(entry) == {"authors", "title", "published", "url"} and entry["url"].startswith("https://")
    name, year = re.match(r"([a-z]+)(\d{4})", key).groups()
    assert entry["authors"].split(",")[0].split()[-1].lower().replace("-", "") == name and year in entry["published"]
