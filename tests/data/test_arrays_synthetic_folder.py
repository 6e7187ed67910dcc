"""The synthetic dataset's folder: what later stages read of it."""

from __future__ import annotations

from dpfl.data.arrays import build_synthetic
from dpfl.data.loading import load_description


def test_a_description_without_arrays(tmp_path):
    folder = build_synthetic(tmp_path / "synthetic")
    assert [path.name for path in folder.iterdir()] == ["description.json"]
    description = load_description(folder)
    assert description["name"] == "synthetic"
    assert description["stand_in_for"] is None
