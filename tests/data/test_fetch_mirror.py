import pytest

from dpfl.data.fetch import configured
from dpfl.errors import InputError


@pytest.fixture(autouse=True)
def without_environment(monkeypatch):
    monkeypatch.delenv("DPFL_MIRROR", raising=False)


@pytest.mark.parametrize("mirror", ["/no/such/folder", "file:///no/such/folder", "ftp://host/data"])
def test_a_mirror_that_cannot_be_one_is_told_at_once(mirror):
    with pytest.raises(InputError, match=mirror):
        configured(mirror)


def test_a_mirror_that_is_a_file_is_told(tmp_path):
    (tmp_path / "m").write_bytes(b"")
    with pytest.raises(InputError, match="is not a folder"):
        configured(str(tmp_path / "m"))


def test_the_setting_comes_before_the_environment(tmp_path, monkeypatch):
    assert configured(None) is None
    monkeypatch.setenv("DPFL_MIRROR", "http://host/m/")
    assert configured(None) == "http://host/m"
    assert configured(str(tmp_path)) == tmp_path
    assert configured(tmp_path.as_uri()) == tmp_path
