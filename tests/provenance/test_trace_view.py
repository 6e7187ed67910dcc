"""A trace as plain data: nothing is folded."""

import json

import pytest

from dpfl.files import file_sha256, record_path
from dpfl.provenance import trace, trace_view
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
