import pytest

from dpfl.errors import InputError
from dpfl.provenance.record import Stage, record_path
from dpfl.provenance.trace import audit, trace


@pytest.fixture
def chain(tmp_path, monkeypatch):
    """raw -> run -> table, each with its record; returns the results folder."""
    monkeypatch.chdir(tmp_path)
    results = tmp_path / "results" / "demo"
    (results / "runs").mkdir(parents=True)
    before = []
    for name in ("raw.csv", "runs/run.csv", "table.csv"):
        path = results / name
        path.write_text(f"from {name}\n")
        Stage(name, ("dpfl.grid",)).write(record_path(path), inputs=before, outputs=[path])
        before = [path]
    return results


def test_a_table_is_traced_back_to_the_raw_file(chain):
    steps = list(trace(chain / "table.csv", [chain]))
    names = ["table.csv", "runs/run.csv", "raw.csv"]
    assert [(step.depth, step.path) for step in steps] == [(i, f"results/demo/{name}") for i, name in enumerate(names)]


def test_a_file_without_record_is_refused(chain):
    (chain / "stray.csv").write_text("")
    with pytest.raises(InputError, match=r"stray\.csv"):
        list(trace(chain / "stray.csv", [chain]))


def test_an_untouched_folder_has_no_findings(chain):
    assert audit(chain) == (3, [])


@pytest.mark.parametrize("name", ["raw.csv", "runs/run.csv", "table.csv"])
def test_one_flipped_byte_is_found_and_named(chain, name):
    data = bytearray((chain / name).read_bytes())
    data[0] ^= 1
    (chain / name).write_bytes(data)
    _, findings = audit(chain)
    assert any(finding.path.endswith(name) and "changed" in finding.problem for finding in findings)


def test_a_missing_file_is_found(chain):
    (chain / "raw.csv").unlink()
    _, findings = audit(chain)
    assert [finding.problem for finding in findings] == ["is missing"]


def test_a_table_made_from_another_run_is_found(chain):
    run = chain / "runs" / "run.csv"
    run.write_text("another\n")
    Stage("runs/run.csv", ("dpfl.grid",)).write(record_path(run), inputs=[], outputs=[run])
    _, findings = audit(chain)
    assert len(findings) == 1 and "another" in findings[0].problem and "table.csv" in findings[0].path


def test_a_folder_without_records_is_refused(tmp_path):
    with pytest.raises(InputError, match="nothing to audit"):
        audit(tmp_path)
