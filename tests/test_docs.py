"""The pages say what the code says: commands are run, numbers compared, links followed, examples checked."""

import importlib
import json
import math
import re
import runpy
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from scipy.stats import norm
from typer.testing import CliRunner

from dpfl.accounting import gaussian_dp, hidden_state
from dpfl.accounting.reference_values import quantities
from dpfl.cli.app import app
from dpfl.reporting.display_names import at_least, at_most

ROOT = Path(__file__).parents[1]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "howto").glob("*.md"))]
PAGES += [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES += [ROOT / "config" / "README.md", ROOT / "workflow" / "profiles" / "README.md"]
WRITTEN_AT_EACH_BUILD = ROOT / "docs" / "reference"
"""Pages that Sphinx makes; it checks the links to them itself."""
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
    assert len(found) >= 6
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


def _anchors(page: Path) -> set[str]:
    """Return the anchors that a code host makes of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_relative_links_resolve(page):
    broken = []
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if there.is_relative_to(WRITTEN_AT_EACH_BUILD):
            continue
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in _anchors(there)):
            broken.append(target)
    assert broken == []


# README.md and CONTRIBUTING.md say where to look: the files are there, and have what is said to be in them.

GUIDES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
FOLDERS = ["", "src/dpfl", "src/dpfl/provenance", "src/dpfl/accounting", "src/dpfl/papers/bhaskar2025"]
"""Folders from which these two pages name files."""


def _named(file: str) -> Path | None:
    """Return the file that a page names, None if there is none; a place such as <key> stands for any folder."""
    pattern = re.sub(r"<\w+>", "*", file)
    return next((path for folder in FOLDERS for path in sorted((ROOT / folder).glob(pattern))), None)


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_the_guides_name_files_and_functions_that_are_there(page):
    text = page.read_text(encoding="utf-8").replace("`tests/a/test_b.py` tests `src/dpfl/a/b.py`", "")
    files = re.findall(r"`([\w/<>.]+\.(?:py|yaml|yml|toml|svg|jsonl))`", text)
    assert len(files) > 5 and [file for file in files if _named(file) is None] == []
    pairs = re.findall(r"`([A-Za-z_][\w.]*)`[^`|.]{0,20}\b(?:in|of|to)\s+`([\w/]+\.py)`", text)
    sources = {file: _named(file).read_text(encoding="utf-8") for _, file in pairs}
    words = {file: set(re.findall(r"\w+", source)) for file, source in sources.items()}
    assert pairs and [pair for pair in pairs if pair[0].rpartition(".")[2] not in words[pair[1]]] == []


def test_the_guide_places_every_module_of_the_accounting():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    [table] = re.findall(r"^The modules of `accounting`.*?\n\n((?:\|.*\n)+)", text, re.MULTILINE)
    placed = re.findall(r"`([a-z_]+)/?`", table)
    there = {path.stem for path in (ROOT / "src/dpfl/accounting").iterdir() if not path.name.startswith("_")}
    assert sorted(placed) == sorted(there)


# docs/conformance.md: its table is what `dpfl check` prints, and the claims are what the libraries say today.


DOCS = Path(__file__).parents[1] / "docs"
CLAIMS = json.loads((DOCS / "claims.json").read_text(encoding="utf-8"))["claims"]


def test_the_table_is_what_the_command_prints():
    ran = CliRunner().invoke(app, ["check", str(DOCS / "claims.json")])
    assert ran.exit_code == 1  # some claims are refuted
    header, *printed = [line.split(" | ") for line in ran.stdout.splitlines()]
    [table] = re.findall(
        r"^\| claim \|.*\n(?:\|.*\n)+", (DOCS / "conformance.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    columns, _, *rows = map(_cells, table.splitlines())
    expected = [[dict(zip(header, row, strict=True))[column] for column in columns] for row in printed]
    assert rows == expected
    assert {row[columns.index("verdict")] for row in rows} == {"proven", "refuted", "unproven"}


@pytest.mark.parametrize(
    ("claim", "lowest"),
    [
        ("no amplification, 1 round of", 8.98145),
        ("no amplification, 10 rounds of", 31.3743),
        ("without replacement, z over one client's norm", 24.7419),
    ],
)
def test_what_refutes_flower_is_spent_by_another_route(claim, lowest):
    """Another client takes the slot: the sum moves by two norms with the chance of a draw, by dp_accounting's PLD."""
    [run] = [each for each in CLAIMS if claim in each["name"] and "batch_size" in each]
    pld = from_gaussian_mechanism(
        run["noise_multiplier"] / 2,
        sampling_prob=run["batch_size"] / run["records"],
        value_discretization_interval=1e-4,
    ).self_compose(run["steps"])
    spent = pld.get_epsilon_for_delta(run["delta"])
    assert run["epsilon"] < lowest <= spent and spent == pytest.approx(lowest, rel=2e-5)
    page = (DOCS / "conformance.md").read_text(encoding="utf-8")
    assert re.search(rf"{re.escape(claim)}.*\| refuted \|.* {re.escape(format(lowest))} \|$", page, re.MULTILINE)


def test_the_classic_noise_of_one_message_is_right_up_to_the_epsilon_that_the_page_names():
    """delta of a move of two norms, by two normal tails: the mod's sensitivity is 2 x clipping_norm."""
    move = lambda epsilon: epsilon / math.sqrt(2 * math.log(1.25e5))  # noqa: E731
    delta = lambda e, mu: norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu)  # noqa: E731
    page = " ".join((DOCS / "conformance.md").read_text(encoding="utf-8").split())
    last, at_10 = re.search(r"right up to (\S+) and wrong above: at 10 the exact epsilon is (\S+)\. ", page).groups()
    assert delta(float(last), move(float(last))) <= 1e-5 < delta(float(last) + 0.1, move(float(last) + 0.1))
    assert delta(float(at_10), move(10)) == pytest.approx(1e-5, rel=0.02)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("library", "needs"), [("opacus", "opacus"), ("dp_accounting", "dp_accounting"), ("flower", "flwr")]
)
def test_the_claims_are_what_the_library_says(library, needs):
    pytest.importorskip(needs)
    prefix, collect = runpy.run_path(str(DOCS / "collect_claims.py"))["LIBRARIES"][library]
    stored = [claim for claim in CLAIMS if claim["name"].startswith(prefix)]
    fresh = list(collect())
    assert len(stored) == len(fresh) > 0
    for old, new in zip(stored, fresh, strict=True):
        assert new == {**old, "epsilon": pytest.approx(old["epsilon"], rel=1e-6)}


def test_the_page_counts_the_vectors():
    every = quantities().values()
    closed = sum(len(each.vectors) for each in every if each.dpfl)
    epsilons = sum(len(each.vectors) for each in every if not each.dpfl)
    page = " ".join((DOCS / "conformance.md").read_text(encoding="utf-8").split())
    assert f"{closed + epsilons} vectors" in page and f"{closed} values" in page and f"{epsilons} epsilons" in page


# docs/speed.md: its tables are what `make bench-peers` printed, of every model and every program.


HERE = Path(__file__).resolve().parents[1]
write_speed = SimpleNamespace(**runpy.run_path(str(HERE / "docs" / "write_speed.py")))
MEASURED = write_speed.MEASURED


def test_the_tables_are_those_of_the_measured_lines():
    page = write_speed.PAGE.read_text(encoding="utf-8")
    assert write_speed.BLOCK.findall(page) == [write_speed.tables([write_speed.read(path) for path in MEASURED])]


def test_a_goal_that_is_missed_names_the_models_that_miss_it():
    line = {"program": "jax", "target": ">= 3"}
    one = [{**line, "case": "cnn_tanh_grey", "ratio": 2.9}, {**line, "case": "cnn_relu_grey", "ratio": 3.0}]
    other = [{**each, "ratio": each["ratio"] - 1} for each in one]
    for measured, programs in ((one, (200, 100)), (other, (250, 100))):
        for name, speed in zip(("ours_bfloat16", "ours"), programs, strict=True):
            for case in ("cnn_relu_colour", "cnn_tanh_colour"):
                measured.append({"case": case, "program": name, "records_per_second": speed})
    processors = [{"cpu": "AMD EPYC", "instructions": ["avx2"]}, {"cpu": "Intel", "instructions": ["amx_bf16"]}]
    heading, _, row, last = write_speed._goals(list(zip(processors, (one, other), strict=True))).splitlines()
    assert heading.endswith("| goal | AMD without AMX | Intel with AMX |")
    models = "CNN + tanh, CNN + ReLU"
    reached = "2.9 to 3 (missed by CNN + tanh) | 1.9 to 2 (missed by all)"
    assert row == f"| JAX, vmap and jit | 28 x 28 grey | {models} | 3 | {reached} |"
    assert last.endswith("| CNN + ReLU, CNN + tanh | 3 | 2, no goal | 2.5 (missed by all) |")


@pytest.mark.parametrize("path", MEASURED, ids=lambda path: path.stem)
def test_every_model_was_measured_with_every_program(path):
    on, measured = write_speed.read(path)
    assert on["instructions"]
    cases = {f"{model}_{images}" for model in write_speed.MODELS for images in write_speed.IMAGES}
    programs = {each["program"] for each in measured}
    assert {"ours", "opacus", "opacus_ghost", "opacus_fast", "jax", "plain"} <= programs <= set(write_speed.PROGRAMS)
    assert {(each["case"], each["program"]) for each in measured} == {
        (case, program) for case in cases for program in programs
    }


# The examples of the accountants' reference: each public function has some, and a wrong or missing one is found out.
# `make docs` runs them all; here only those of two modules, which take no time.


@pytest.fixture(scope="module")
def examples():
    """The script docs/run_examples.py as a module."""
    sys.path.insert(0, str(DOCS))
    try:
        return importlib.import_module("run_examples")
    finally:
        sys.path.remove(str(DOCS))


def test_every_public_function_has_examples_and_every_file_a_module(examples):
    modules = examples.modules()
    assert len(modules) > 20 and gaussian_dp in modules
    places = {examples.place(module): module for module in modules}
    files = {path.relative_to(examples.EXAMPLES) for path in examples.EXAMPLES.rglob("*.yaml")}
    assert files <= places.keys()
    for place, module in places.items():
        entries = examples.read(examples.EXAMPLES / place) if place in files else {}
        assert list(examples.unfilled(module, entries)) == [], place


@pytest.mark.parametrize("module", [gaussian_dp, hidden_state], ids=lambda module: module.__name__)
def test_the_rows_hold(examples, module):
    entries = examples.read(examples.EXAMPLES / examples.place(module))
    assert sum(map(len, entries.values())) > 5
    assert list(examples.wrong(module, entries)) == []


def test_a_missing_example_and_a_wrong_result_are_found_out(examples):
    entries = examples.read(examples.EXAMPLES / "gaussian_dp.yaml")
    missing = {name: rows for name, rows in entries.items() if name != "mu"}
    assert list(examples.unfilled(gaussian_dp, missing)) == ["mu: has no example"]
    for call, gives in (("delta(epsilon=1, mu=1)", "0.126947"), ("delta(epsilon=1, mu=0)", "1e-12")):
        (problem,) = examples.wrong(gaussian_dp, {"delta": [(call, gives)]})
        assert problem.startswith(call) and problem.endswith(f"not {gives}")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.array([0.5, 1 / 3, 0.0]), "[0.5, 0.333333, 0.0]"),
        (np.float64(-np.inf), "-inf"),
        (123456.7, "123457.0"),
        (1.23456789e-30, "1.23457e-30"),
        ((True, 3, "n = 0.123456789"), "(True, 3, 'n = 0.123457')"),
    ],
)
def test_results_are_written_to_six_digits(examples, value, text):
    assert examples.shown(value) == text
    assert examples.agree(text, text)


def test_a_bar_in_a_call_does_not_end_its_cell(examples):
    assert examples.table([("f(**run | dict(n=1))", "0.5")])[2] == r"| `f(**run \| dict(n=1))` | `0.5` |"


# The landing page shows README.md's results.


def test_the_findings_link_files_and_pages_of_the_web_alone(monkeypatch):
    pytest.importorskip("sphinx")
    monkeypatch.syspath_prepend(str(DOCS))
    findings = importlib.import_module("write_reference").findings
    shown = findings((ROOT / "README.md").read_text(encoding="utf-8"))
    assert shown.startswith("|") and len(shown.splitlines()) > 6 and "](src/" not in shown
    block = "<!-- results: x -->\n[a](https://a.b) [`b`](src/dpfl) [c](LICENSE#d)\n<!-- end of results -->"
    assert findings(block) == "[a](https://a.b) `b` [c](path:../LICENSE#d)\n"
    with pytest.raises(ValueError, match="no results between its marks"):
        findings("# dpfl")


def test_the_picture_of_the_packages_shows_todays_layers_and_imports():
    """Draw it again with `python docs/draw_packages.py` where it does not."""
    script = runpy.run_path(str(DOCS / "draw_packages.py"))
    rows = script["layers"]()
    arrows = script["imports"]([name for row in rows for name in row])
    picture = ElementTree.parse(DOCS / "packages.svg").getroot()
    [shown] = [each.text for each in picture.iter("{http://purl.org/dc/elements/1.1/}description")]
    assert shown == script["described"](rows, arrows)
    lines = [each.get("style") for each in picture.iter("{http://www.w3.org/2000/svg}path") if _is_line(each)]
    assert len(lines) == len(arrows) and all(script["DOWN"] in style for style in lines)


def _is_line(path: ElementTree.Element) -> bool:
    """Return whether a path is the line of an arrow: not filled, of one stroke, and no letter."""
    style = path.get("style") or ""
    return "fill: none" in style and "stroke-width: 0.6" in style
