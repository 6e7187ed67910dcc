import pytest

from dpfl.errors import InputError
from dpfl.provenance.trace import trace


def test_a_table_is_traced_back_to_the_raw_file(chain):
    steps = list(trace(chain / "table.csv", [chain]))
    names = ["table.csv", "runs/run.csv", "raw.csv"]
    assert [(step.depth, step.path) for step in steps] == [(i, f"results/demo/{name}") for i, name in enumerate(names)]


def test_a_file_without_record_is_refused(chain):
    (chain / "stray.csv").write_text("")
    with pytest.raises(InputError, match=r"stray\.csv"):
        list(trace(chain / "stray.csv", [chain]))
