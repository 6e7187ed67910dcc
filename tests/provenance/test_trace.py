"""From a file, a cell or a point back to its sources; what is shown takes no recorded text for more than text."""

import io
import json
import os
import unicodedata
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from dpfl.data import datasets
from dpfl.errors import InputError, printable
from dpfl.files import file_sha256, record_path
from dpfl.provenance import record as input_checks
from dpfl.provenance import trace
from dpfl.provenance.record import StageRecorder
from dpfl.provenance.trace import conditions, rows_where, runs_behind, same, writers


def test_a_table_is_traced_back_to_the_raw_file(chain):
    top = trace.trace(chain / "table.csv")
    names = ["table.csv", "runs/run.csv", "raw.csv"]
    assert [node.path for node in top.walk()] == [f"results/demo/{name}" for name in names]


def test_what_is_left_out_takes_what_only_it_was_made_from_along(chain):
    top = trace.trace(chain / "table.csv", without={"results/demo/runs/run.csv"})
    assert [node.path for node in top.walk()] == ["results/demo/table.csv"]


def test_a_file_without_record_is_refused(chain):
    (chain / "stray.csv").write_text("")
    with pytest.raises(InputError, match=r"stray\.csv"):
        trace.trace(chain / "stray.csv")


@pytest.mark.parametrize("name", ["results/dem/table.csv", "a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/table.csv"])
def test_a_record_of_another_place_is_refused(chain, name):
    place = record_path(chain / "table.csv")
    record = json.loads(place.read_text())
    record["outputs"][0]["path"] = name
    place.write_text(json.dumps(record))
    writers.cache_clear()
    with pytest.raises(InputError, match=rf"table\.csv is {name} to its record"):
        trace.trace(chain / "table.csv")


def test_a_forged_chain_that_is_too_long_is_one_line(chain):
    """Its stages were followed one inside the other, until Python gave up."""
    text = record_path(chain / "table.csv").read_text()
    for number in range(150):
        record = json.loads(text)
        record["outputs"] = [{**record["outputs"][0], "path": f"results/demo/t{number}.csv"}]
        record["inputs"] = [{**record["inputs"][0], "path": f"results/demo/t{number + 1}.csv"}]
        record_path(chain / f"t{number}.csv").write_text(json.dumps(record))
    writers.cache_clear()
    with pytest.raises(InputError, match="one after the other"):
        trace.trace(chain / "t0.csv")


# From a row to the runs behind it, and to no others.


def run(**changes):
    base = {"job": "a", "dataset": "digits", "stand_in_for": "mnist", "epsilon": "2.93", "delta": "1/n^2"}
    return {**base, "seed": "0", "status": "finished", "accuracy_pct": "90.0", **changes}


def test_runs_agree_in_every_shared_column_and_stand_ins_count_as_what_they_stand_for():
    runs = [run(seed="0"), run(seed="1"), run(epsilon="1.2"), run(dataset="diabetes", stand_in_for="insurance")]
    rows = [{"dataset": "mnist", "epsilon": "2.930", "delta": "1e-5", "accuracy_pct": "91.5"}]
    assert runs_behind(runs, rows) == runs[:2]


def test_a_study_of_the_same_cell_is_not_behind_a_row_that_names_none():
    others = [run(seed="1"), run(seed="2"), run(seed="3", clip="True")]
    studies = ("none", "canaries", "distances")
    runs = [run(), *({"study": study, **each} for study, each in zip(studies, others, strict=True))]
    assert runs_behind(runs, [{"epsilon": "2.93"}]) == runs[:2]
    assert runs_behind(runs, [{"epsilon": "2.93", "study": "canaries"}]) == [runs[0], runs[2]]
    assert runs_behind(runs[2:], [{"epsilon": "2.93"}]) == runs[2:]


def test_a_run_asked_for_twice_counts_once():
    assert len(runs_behind([run(), run(job="b")], [{"epsilon": "2.93"}])) == 1


def test_rows_that_record_their_runs_are_traced_to_these_alone():
    tables = {f"results/demo/runs/p/{name}.csv.gz": [run(seed="0"), run(seed="1")] for name in ("a", "b")}
    rows = [{"epsilon": "2.93", "origins": "a:1 b:0"}]
    kept = trace._recorded(tables, rows)
    assert [[each["seed"] for each in runs] for runs in kept.values()] == [["1"], ["0"]]
    assert trace.is_recorded(rows) and not trace.is_recorded([{"epsilon": "2.93"}])


def test_a_value_may_have_commas():
    assert conditions("split=(1, 20),sampling=poisson") == {"split": "(1, 20)", "sampling": "poisson"}


@pytest.mark.parametrize("text", ["x", "=1", "a=1,,", "a=1,=2", "a=1,a=2"])
def test_conditions_that_are_none_are_refused(text):
    with pytest.raises(InputError, match="--where"):
        conditions(text)


def test_unknown_columns_and_values_are_named_with_what_there_is(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("model,epsilon\na,1\nb,2\n")
    assert rows_where(path, {"epsilon": "1.0"}) == [{"model": "a", "epsilon": "1"}]
    with pytest.raises(InputError, match="no column modle; it has model, epsilon"):
        rows_where(path, {"modle": "a"})
    with pytest.raises(InputError, match=r"no row .* has model=c; there are a, b"):
        rows_where(path, {"model": "c"})
    with pytest.raises(InputError, match="together"):
        rows_where(path, {"model": "a", "epsilon": "2"})


def test_numbers_are_compared_as_numbers():
    assert same("inf", "Infinity") and same("1.0", "1") and same("True", "true") and not same("1", "x")


@pytest.mark.parametrize("row", ["a", "a,1,2"])
def test_a_row_of_another_number_of_cells_is_no_table(tmp_path, row):
    path = tmp_path / "t.csv"
    path.write_text(f"model,epsilon\na,1\n{row}\n")
    with pytest.raises(
        InputError, match=r"t\.csv is not a table: row 2 has another number of cells than the first line"
    ):
        rows_where(path, {"model": "a"})


@pytest.mark.parametrize("put", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_no_table_and_nothing_hangs(tmp_path, put):
    for name in ("t.csv", "t.csv.gz"):
        put(tmp_path / name)
        with pytest.raises(InputError, match="is not a regular file"):
            rows_where(tmp_path / name, {"model": "a"})


# A trace as plain data folds nothing; one that is shown takes no recorded text for more than text.


@pytest.fixture
def many(chain):
    """A table made from four files of one stage."""
    parts = [chain / f"part{number}.csv" for number in range(4)]
    for part in parts:
        part.write_text(part.name)
    StageRecorder("parts", ("dpfl.grid.expansion",)).write(record_path(parts[0]), parts)
    table = chain / "sum.csv"
    table.write_text("sum")
    stage = StageRecorder("sum", ("dpfl.grid.expansion",))
    stage.reads(parts)
    stage.write(record_path(table), [table])
    trace.writers.cache_clear()
    return table, parts


def test_the_data_name_every_file_with_its_hash(many, tmp_path):
    table, parts = many
    facts = json.loads(json.dumps(trace.as_json(trace.trace(table), tmp_path)))
    [stage] = facts["made_from"]
    files = [stage, *stage["also_read"]]
    assert [file["path"] for file in files] == [f"results/demo/{part.name}" for part in parts]
    assert [file["sha256"] for file in files] == [file_sha256(part) for part in parts]


def test_the_name_of_a_file_is_bold_and_nothing_else_of_its_line(many, tmp_path):
    label = trace.tree(trace.trace(many[0]), tmp_path, []).label
    console = Console(width=5000, highlight=False, force_terminal=True, color_system="standard", no_color=True)
    with console.capture() as captured:
        console.print(label)
    assert captured.get().startswith("\x1b[1mresults/demo/sum.csv\x1b[0m  (sha256 ")


@pytest.mark.parametrize("name", ["sum.csv.svg", "sum.svg", "part0.png", "nowhere/x.svg", "x.pdf"])
def test_a_picture_of_a_trace_takes_the_place_of_no_result(many, name):
    table = many[0]
    top = trace.trace(table)
    record_path(table.with_name("sum.csv.svg")).write_text("{}")
    with pytest.raises(InputError, match="--picture"):
        trace.draw(top, table.parent / name)


def test_a_picture_keeps_what_it_folds_in_two_columns_apart(monkeypatch):
    monkeypatch.setattr(trace, "_MOST_IN_A_COLUMN", 2)
    leaves = [trace.Node(f"data/leaf{number}", "0" * 64, None) for number in range(3)]
    middle = [trace.Node(f"runs/{number}", "0" * 64, None, made_from=[leaf]) for number, leaf in enumerate(leaves)]
    columns, edges = trace._layers(trace.Node("tables/top", "0" * 64, None, made_from=middle))
    assert [column[-1] for column in columns.values()][1:] == [
        "and 2 more files,\n1 stage back",
        "and 2 more files,\n2 stages back",
    ]
    assert all(one != two for one, two in edges)


def test_the_tree_folds_them(many, tmp_path):
    top = trace.tree(trace.trace(many[0]), tmp_path, [{"epsilon": "2"}])
    labels = [str(branch.label) for branch in top.children]
    assert "epsilon = 2" in labels[0] and "part0.csv and 3 more" in labels[2]


def test_a_row_says_how_many_runs_are_shown_and_whether_they_are_its_own(many):
    node = trace.trace(many[0])
    assert trace.runs_sentence(node, [{"origins": ""}]) == "made of no run, as the file records"
    assert "no run agrees with it" in trace.runs_sentence(node, [{"epsilon": "2"}])
    node.runs = [{"epsilon": "2"}]
    assert trace.runs_sentence(node, [{"origins": "a:0"}]) == "made of 1 run, as the file records"
    assert "the file does not record which" in trace.runs_sentence(node, [{"epsilon": "2"}])


def test_a_file_is_written_to_a_folder_that_is_there(tmp_path):
    with pytest.raises(InputError, match=r"^--csv .*/none/x.csv: there is no folder .*/none$"):
        trace.require_own(tmp_path / "none" / "x.csv", "--csv")
    trace.require_own(tmp_path / "x.csv", "--csv")


def lines(folder, name):
    """The lines of the tree below a file."""
    trace.writers.cache_clear()
    console = Console(width=500, highlight=False)
    with console.capture() as captured:
        console.print(trace.tree(trace.trace(folder / name), folder.parents[1], []))
    return captured.get().splitlines()


def test_hashes_are_printed_the_raw_file_s_completely(chain):
    first, second, third = lines(chain, "table.csv")
    assert f"sha256 {file_sha256(chain / 'table.csv')[:12]};" in first
    assert f"sha256 {file_sha256(chain / 'runs' / 'run.csv')[:12]};" in second
    assert f"sha256 {file_sha256(chain / 'raw.csv')};" in third


def test_a_subtree_is_shown_once_and_named_in_one_line_after_that(chain):
    sources = [chain / "runs" / "run.csv", chain / "runs" / "other.csv"]
    sources[1].write_text("other")
    stages = [StageRecorder(name, ("dpfl.grid.expansion",)) for name in ("other", "sum")]
    stages[0].reads([chain / "raw.csv"])
    stages[0].write(record_path(sources[1]), sources[1:])
    (chain / "sum.csv").write_text("sum")
    input_checks._outputs.cache_clear()
    stages[1].reads(sources)
    stages[1].write(record_path(chain / "sum.csv"), [chain / "sum.csv"])
    shown = lines(chain, "sum.csv")
    assert len([line for line in shown if "raw.csv" in line]) == 2 and "see above: results/demo/raw.csv" in shown[-1]


def test_the_runs_of_a_table_that_is_read_twice_count_once(repository):
    tree, _ = trace.trace_cells(repository / "results/paper/claims/asoodeh2020.csv", {"claim": "dobrushin"})
    tables = [node for node in tree.walk() if node.path.endswith(".csv.gz")]
    assert any(node.repeated for node in tables)
    assert all(bool(node.runs) is not node.repeated for node in tables)


@pytest.mark.parametrize("change", ["younger", "other bytes", "none"])
def test_a_source_that_was_made_after_what_was_made_from_it_is_named(chain, change):
    place = record_path(chain / "runs" / "run.csv")
    record = json.loads(place.read_text())
    if change == "younger":
        record["started"] = "2199-01-01T00:00:00+00:00"
    if change == "other bytes":
        record["outputs"][0]["sha256"] = "0" * 64
    place.write_text(json.dumps(record))
    words = {"younger": "is younger than results/demo/table.csv", "other bytes": "the bytes that were read are gone"}
    shown = [line for line in lines(chain, "table.csv") if any(each in line for each in words.values())]
    assert [words[change] in line for line in shown] == ([True] if change in words else [])
    facts = trace.as_json(trace.trace(chain / "table.csv"), chain.parents[1])
    assert ("warnings" in facts) is (change in words)


def test_a_statement_is_complete_and_one_without_noise_says_so():
    told = {"epsilon_proven": "2.93", "proven_by": "PLD", "epsilon_refuted": "0", "refuted_by": "nothing",
            "delta": "1e-05", "mechanism": '{"kind": "Gaussian"}', "observer": "every_step",
            "sampling": "poisson", "neighbouring": "add_or_remove", "records": "6000", "sample_rate": "0.01",
            "clip_norm": "1.0", "noise_multiplier": "1.007", "steps": "1880", "note": "as accounted"}  # fmt: skip
    line = trace.statement({f"privacy_{name}": value for name, value in told.items()})
    for word in (
        "ε <= 2.930 proven by PLD",
        "1e-05",
        "poisson",
        "add_or_remove",
        "n = 6000",
        "σ = 1.007",
        "1880 steps",
    ):
        assert word in line
    assert "nothing" not in line
    rounded = told | {"epsilon_proven": "2.64228", "epsilon_refuted": "1.23499", "refuted_by": "a pair"}
    line = trace.statement({f"privacy_{name}": value for name, value in rounded.items()})
    assert "ε <= 2.643 proven" in line and "ε >= 1.234 by a pair" in line
    assert trace.statement({"privacy_noise_multiplier": "0"}) == "no privacy guarantee"


@pytest.mark.parametrize("name", ["arrays", "features"])
@pytest.mark.parametrize(
    "content",
    [
        "{}",
        "xx",
        "[]",
        '{"licence": 7}',
        "[" * 100_000,
        "\xff",
        b"\xff",
        b"",
        b'{"licence": ""}',
        "large",
        "pipe",
        "folder",
        "link",
        "dead link",
    ],
)
def test_a_damaged_description_of_data_is_a_gap_in_the_view(chain, name, content):
    root = chain.parents[1]
    description, data = root / "data/arrays/other/description.json", root / "data" / name / "other" / "x.npy"
    for path in (description, data):
        path.parent.mkdir(parents=True, exist_ok=True)
    data.write_text("1")
    (chain / "good.json").write_text('{"licence": "CC BY 4.0"}')
    put = {
        "pipe": os.mkfifo,
        "folder": os.mkdir,
        "link": lambda place: place.symlink_to(chain / "good.json"),
        "dead link": lambda place: place.symlink_to("nowhere"),
        "large": lambda place: place.write_text('{"licence": "x"}' + " " * 2**20),
    }
    if content in put:
        put[content](description)
    else:
        description.write_bytes(content if isinstance(content, bytes) else content.encode())
    node = trace.Node(data.relative_to(root).as_posix(), "0" * 64, None)
    words = "not known: data/arrays/other/description.json is damaged"
    assert trace.licence_of(node, root) == words
    assert f"licence: {words}" in str(trace.tree(node, root, []).label)
    assert trace.as_json(node, root)["licence"] == words


def test_a_licence_is_that_of_the_description_or_the_entry_or_unknown(chain):
    root = chain.parents[1]
    node = trace.Node("data/arrays/mnist/x.npy", "0" * 64, None)
    assert trace.licence_of(node, root) == datasets.load("mnist").licence
    (root / "data/arrays/mnist").mkdir(parents=True)
    (root / "data/arrays/mnist/description.json").write_text('{"licence": "CC BY 4.0"}')
    assert trace.licence_of(node, root) == "CC BY 4.0"
    (root / "data/arrays/mnist/description.json").write_text('{"licence": "CC\\ud800"}')
    assert trace.licence_of(node, root) == "CC\\ud800"
    assert trace.licence_of(trace.Node("data/raw/none/x.gz", "0" * 64, None), root) == ""


RUN = {
    "paper": "x", "model": "m", "seed": "0", "accuracy_pct": "90", "noise_multiplier": "1.007", "status": "done",
    "privacy_epsilon_proven": "2.93", "privacy_proven_by": "PLD", "privacy_epsilon_refuted": "2",
    "privacy_refuted_by": "an attack", "privacy_delta": "1e-05", "privacy_mechanism": '{"kind": "Gaussian"}',
    "privacy_observer": "every_step", "privacy_sampling": "poisson", "privacy_neighbouring": "add_or_remove",
    "privacy_records": "6000", "privacy_sample_rate": "0.01", "privacy_clip_norm": "1.0",
    "privacy_noise_multiplier": "1.007", "privacy_steps": "1880", "privacy_note": "as accounted",
}  # fmt: skip
ODD = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8) | st.sampled_from(
    [
        "fig\x1b[31m\nfake line",
        "\u202egpj.exe",
        "\x9b2J",
        "[/bold]",
        "[link=x]",
        "\\",
        "\r",
        "\ud800",
        "$\\frac$",
        "a\tb",
    ]
)


def told_by(text):
    """A node and its source in which every recorded text is this one."""
    record = {
        "stage": text, "started": "2026-01-01T00:00:00+00:00", "seconds": 1.0, "settings": {text: text}, "seeds": [],
        "outputs": [{"path": text, "sha256": text}], "source": {"commit": text, "dirty": True}, "software": {},
        "host": {"device": text, "threads": 1},
    }  # fmt: skip
    younger = record | {"started": "2027-01-01T00:00:00+00:00"}
    numbers = ("epsilon_proven", "epsilon_refuted", "delta", "sample_rate", "noise_multiplier")
    words = set(RUN) - {f"privacy_{name}" for name in numbers}
    run = RUN | dict.fromkeys(words, text) | {"privacy_mechanism": json.dumps({"kind": text})}
    source = trace.Node(text, text, younger, licence=text, runs=[run])
    again = trace.Node(text, text, younger, repeated=True)
    return trace.Node(text, text, record, ({"path": text, "sha256": text},), licence=text, made_from=[source, again])


@given(ODD)
def test_recorded_texts_cannot_move_the_cursor_start_a_line_or_be_taken_for_markup(text):
    def shown(word):
        console = Console(width=5000, highlight=False, file=io.StringIO(), emoji=False)
        console.print(trace.tree(told_by(word), Path(), [{word: word}]))
        return console.file.getvalue()

    usual, odd = shown("word"), shown(text)
    assert odd.count("\n") == usual.count("\n")
    assert not {each for each in odd if unicodedata.category(each) in ("Cc", "Zl", "Zp", "Cs")} - {"\n"}
    assert not set(odd) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
    assert printable(text) in odd


@pytest.mark.parametrize("text", ["fig\x1b[31m\nfake line", "\u202egpj.exe", "$\\frac$", "$x$", "\x00"])
def test_recorded_texts_are_no_markup_of_a_picture(tmp_path, text):
    trace.draw(told_by(text), tmp_path / "trace.svg")
    drawn = (tmp_path / "trace.svg").read_text(encoding="utf-8")
    assert not {each for each in drawn if unicodedata.category(each) == "Cc"} - {"\n"} and "\u202e" not in drawn
    ElementTree.fromstring(drawn)


@pytest.mark.parametrize(
    "change",
    [{"privacy_epsilon_proven": "many"}, {"privacy_mechanism": "{"}, {"privacy_mechanism": "[]"},
     {"privacy_mechanism": "[" * 100_000}, {"privacy_noise_multiplier": None}],
)  # fmt: skip
def test_a_damaged_statement_is_a_gap_in_the_view(change):
    assert trace.statement(RUN | change) == "privacy statement damaged: see dpfl audit"
    left_out = {name: value for name, value in RUN.items() if name not in change}
    assert trace.statement(left_out) == "privacy statement damaged: see dpfl audit"
