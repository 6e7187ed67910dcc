"""Papers and entries as they are read: a folder written here, what of it is refused, and the files that are shipped."""

import re
from types import SimpleNamespace

import pytest
import yaml

from dpfl import catalog
from dpfl.errors import InputError

KEY = "smith2026"
CAPTION = "Mean risk against noise over the seeds, with intervals at 95 %, for each budget that was run."
FACTS = f"""
title: Mean and noise
authors: Nobody
published: tests
url: https://example.org
settings: {{radius: 2.0}}
tables: {{risk: {{title: Risk, caption: "{CAPTION}"}}}}
figures: {{}}
"""


@pytest.fixture
def papers(tmp_path, monkeypatch):
    """A folder of papers with two, and a file that is none; a function that writes one of the first's files."""
    monkeypatch.setattr(catalog, "PAPERS", tmp_path)

    def write(name: str, text: str) -> None:
        path = tmp_path / KEY / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        for cached in (catalog.keys, catalog.load):
            cached.cache_clear()

    (tmp_path / "adams2020").mkdir()
    (tmp_path / "adams2020" / "paper.yaml").touch()
    (tmp_path / "no_paper").mkdir()
    for name in ("tables.py", "figures.py", "claims.py"):
        write(name, "")
    write("paper.yaml", FACTS)
    yield write
    for cached in (catalog.keys, catalog.load):
        cached.cache_clear()


def test_a_paper_is_what_its_files_say_and_empty_where_it_has_none(papers):
    assert catalog.keys() == ("adams2020", KEY)
    papers("errata.yaml", "")
    found = catalog.load(KEY)
    assert (found.key, found.title, found.settings) == (KEY, "Mean and noise", {"radius": 2.0})
    assert found.tables == {"risk": {"title": "Risk", "caption": CAPTION}}
    assert found.claims == found.grid == found.errata == found.inferred == found.figures == {}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("paper.yaml", "[a, b]", f"{KEY}/paper.yaml must have keys and values, found list"),
        ("paper.yaml", FACTS.replace("url", "ulr"), f"{KEY}/paper.yaml: unknown key ulr; known here: "),
        ("paper.yaml", FACTS + "inferred: {'*': a, radii: b}", "/paper.yaml: inferred.radii is not a key of settings"),
        ("paper.yaml", FACTS + "settings: {}", f"{KEY}/paper.yaml is not YAML: key 'settings' occurs twice"),
        (
            "paper.yaml",
            FACTS + "findings: [{sentence: a, claim: b, figure: c}]",
            f"{KEY}: findings or claims.yaml name a claim b that the paper does not have",
        ),
        (
            "paper.yaml",
            FACTS.replace("figures: {}", f"figures: {{c: {{title: C, caption: '{CAPTION}'}}}}")
            + "findings: [{sentence: a, table: risk, figure: c, beside: [b]}]",
            f"{KEY}: findings or claims.yaml name a claim b that the paper does not have",
        ),
        ("paper.yaml", FACTS.replace(CAPTION, "Mean"), "caption is 'Mean'; it must be a text of 81 characters or more"),
        ("paper.yaml", FACTS.replace("title: Risk", "title: ''"), "title is ''; it must be a text that is not empty"),
        ("paper.yaml", FACTS.replace("risk:", "ri sk:"), "is 'ri sk'; it must be lower-case letters, digits and _"),
        ("paper.yaml", FACTS.replace("url: https://example.org", "url: 2024-13-45"), f"{KEY}/paper.yaml is not YAML: "),
        ("claims.yaml", "a: [", f"{KEY}/claims.yaml is not YAML: "),
        ("grid.yaml", "demmo: []", f"{KEY}/grid.yaml: unknown key demmo"),
    ],
)
def test_a_file_that_cannot_be_is_one_line(papers, name, text, message):
    papers(name, text)
    with pytest.raises(InputError, match=re.escape(message)) as refused:
        catalog.load(KEY)
    assert "\n" not in str(refused.value)


def test_a_paper_or_module_that_is_not_there_is_named(papers, tmp_path):
    with pytest.raises(InputError, match=f"^no paper jones2026; there are adams2020, {KEY}$"):
        catalog.load("jones2026")
    (tmp_path / KEY / "claims.py").unlink()
    with pytest.raises(InputError, match=f"^papers/{KEY} has no claims.py; add one"):
        catalog.load(KEY)


def test_what_paper_yaml_names_must_be_in_a_file_of_the_paper_and_in_one_alone(papers, monkeypatch):
    with pytest.raises(InputError, match=f"papers/{KEY} has no errata.py"):
        catalog.module(KEY, "errata")
    risk, other = object(), object()
    assigned: dict[str, object] = {}
    monkeypatch.setattr(catalog, "import_module", lambda home: SimpleNamespace(TABLES=assigned[home.split(".")[-1]]))

    def given(**files):
        assigned.update(files)
        for name in files:
            papers(f"{name}.py", "TABLES: dict = {}")

    for named in (
        f"{KEY}/paper.yaml: tables.risk is not in TABLES of any file of papers/{KEY}; they have none",
        f"tables.risk is not in TABLES of any file of papers/{KEY}; they have risks",
        f"dpfl.papers.{KEY}.tables: TABLES must be a recipe for each name of paper.yaml",
    ):
        with pytest.raises(InputError, match=re.escape(named)):
            catalog.recipe(KEY, "tables", "risk")
        given(tables={"risks": other} if not assigned else [])
    given(tables={"risks": other}, study={"risk": risk})
    assert catalog.recipe(KEY, "tables", "risk") is risk and catalog.recipe(KEY, "tables", "risks") is other
    assert catalog.recipe_code(KEY, "tables") == (
        f"dpfl.papers.{KEY}.study:TABLES",
        f"dpfl.papers.{KEY}.tables:TABLES",
    )
    assert catalog.recipe_code(KEY, "figures") == ()
    given(study={"risks": risk})
    with pytest.raises(InputError, match=f"TABLES has risks, which another file of papers/{KEY} has too"):
        catalog.recipe(KEY, "tables", "risks")


@pytest.mark.parametrize(
    ("text", "key"), [("{a: 1, a: 2}", "'a'"), ("{1.2: a, 1.20: b}", "1.2"), ("{x: {yes: 1, on: 2}}", "True")]
)
def test_no_key_occurs_twice_however_it_is_written(text, key):
    with pytest.raises(yaml.YAMLError, match=f"key {key} occurs twice"):
        yaml.load(text, catalog._PaperLoader)


def test_a_merged_mapping_may_be_overridden():
    text = "base: &b {a: 1, c: 3}\nown: {<<: *b, a: 2}"
    assert yaml.load(text, catalog._PaperLoader)["own"] == {"a": 2, "c": 3}


def test_a_module_that_is_no_text_is_found_by_its_bytes(papers, tmp_path):
    papers("tables.py", "TABLES = {}\n")
    (tmp_path / KEY / "study.py").write_bytes(b"FIGURES = {}  # \xff\x00\n")
    assert catalog.recipe_code(KEY, "tables") == (f"dpfl.papers.{KEY}.tables:TABLES",)
    assert catalog.recipe_code(KEY, "figures") == (f"dpfl.papers.{KEY}.study:FIGURES",)


def test_a_number_with_an_exponent_alone_is_a_number():
    text = "[1e-5, -2E3, 1e+2, 1.5e-5, '1e-5', 1e5a, e5]"
    assert yaml.load(text, catalog._PaperLoader) == [1e-5, -2000.0, 100.0, 1.5e-5, "1e-5", "1e5a", "e5"]


def test_a_float_is_no_integer_of_a_schema():
    own = catalog.validator()({"type": "integer"})
    assert [own.is_valid(value) for value in (1, 1.0, True, "1")] == [True, False, False, False]


def test_the_shipped_files_are_found(repository):
    folders = {path.name for path in (repository / "src/dpfl/papers").iterdir() if (path / "paper.yaml").exists()}
    assert set(catalog.keys()) == folders and len(folders) >= 5
    text = (repository / "src/dpfl/data/datasets.yaml").read_text(encoding="utf-8")
    assert catalog.dataset_entries() == yaml.safe_load(text)
