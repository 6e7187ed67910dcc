"""A trace as plain data: nothing is folded."""

import json

import pytest
from rich.console import Console

from dpfl.files import file_sha256, record_path
from dpfl.provenance import input_checks, trace, trace_view
from dpfl.provenance.record import StageRecorder


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
    facts = json.loads(json.dumps(trace_view.as_json(trace.trace(table), tmp_path)))
    [stage] = facts["made_from"]
    files = [stage, *stage["also_read"]]
    assert [file["path"] for file in files] == [f"results/demo/{part.name}" for part in parts]
    assert [file["sha256"] for file in files] == [file_sha256(part) for part in parts]


def test_the_tree_folds_them(many, tmp_path):
    top = trace_view.tree(trace.trace(many[0]), tmp_path, [{"epsilon": "2"}])
    labels = [str(branch.label) for branch in top.children]
    assert "epsilon = 2" in labels[0] and "part0.csv[/bold] and 3 more" in labels[1]


def lines(folder, name):
    """The lines of the tree below a file."""
    trace.writers.cache_clear()
    console = Console(width=500, highlight=False)
    with console.capture() as captured:
        console.print(trace_view.tree(trace.trace(folder / name), folder.parents[1], []))
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
    facts = trace_view.as_json(trace.trace(chain / "table.csv"), chain.parents[1])
    assert ("warnings" in facts) is (change in words)


def test_a_statement_is_complete_and_one_without_noise_says_so():
    told = {"epsilon_proven": "2.93", "proven_by": "PLD", "epsilon_refuted": "0", "refuted_by": "nothing",
            "delta": "1e-05", "mechanism": '{"kind": "Gaussian"}', "observer": "every_step",
            "sampling": "poisson", "neighbouring": "add_or_remove", "records": "6000", "sample_rate": "0.01",
            "clip_norm": "1.0", "noise_multiplier": "1.007", "steps": "1880", "note": "as accounted"}  # fmt: skip
    line = trace_view.statement({f"privacy_{name}": value for name, value in told.items()})
    for word in ("ε <= 2.93 proven by PLD", "1e-05", "poisson", "add_or_remove", "n = 6000", "σ = 1.007", "1880 steps"):
        assert word in line
    assert "nothing" not in line
    assert trace_view.statement({"privacy_noise_multiplier": "0"}) == "no privacy guarantee"
