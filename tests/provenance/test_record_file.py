import pytest

from dpfl.errors import InputError
from dpfl.provenance.record_file import read_record


@pytest.mark.parametrize("text", ["{", "[]", '{"format": "other"}'])
def test_a_damaged_record_is_named(tmp_path, text):
    path = tmp_path / "x.record.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"x\.record\.json"):
        read_record(path)
