from pathlib import Path

import pytest

from dpfl.provenance import record, trace


@pytest.fixture
def empty_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project without data or results as the working folder; nothing is remembered of another one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPFL_MIRROR", raising=False)
    Path("config.yaml").write_text("scale: demo\n")
    record._outputs.cache_clear()
    trace.writers.cache_clear()
    return tmp_path
