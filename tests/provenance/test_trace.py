import json

import pytest

from dpfl.errors import InputError
from dpfl.files import record_path
from dpfl.provenance.trace import trace, writers


def test_a_table_is_traced_back_to_the_raw_file(chain):
    top = trace(chain / "table.csv")
    names = ["table.csv", "runs/run.csv", "raw.csv"]
    assert [node.path for node in top.walk()] == [f"results/demo/{name}" for name in names]


def test_what_is_left_out_takes_what_only_it_was_made_from_along(chain):
    top = trace(chain / "table.csv", without={"results/demo/runs/run.csv"})
    assert [node.path for node in top.walk()] == ["results/demo/table.csv"]


def test_a_file_without_record_is_refused(chain):
    (chain / "stray.csv").write_text("")
    with pytest.raises(InputError, match=r"stray\.csv"):
        trace(chain / "stray.csv")


@pytest.mark.parametrize("name", ["results/dem/table.csv", "a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/table.csv"])
def test_a_record_of_another_place_is_refused(chain, name):
    place = record_path(chain / "table.csv")
    record = json.loads(place.read_text())
    record["outputs"][0]["path"] = name
    place.write_text(json.dumps(record))
    writers.cache_clear()
    with pytest.raises(InputError, match=rf"table\.csv is {name} to its record"):
        trace(chain / "table.csv")


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
        trace(chain / "t0.csv")
