"""What `dpfl run` and `dpfl plan` do on a machine with GPUs; none is needed."""

import pytest

from dpfl.cli import workflow_commands
from dpfl.pipeline import cost, cost_timing, devices


@pytest.mark.parametrize(
    ("profile", "words"),
    [("cores: all", ["gpu=2"]), ("resources: [mem_mb=9, gpu=1]", ["gpu=1", "mem_mb=9"])],
)
def test_a_run_starts_no_more_jobs_than_gpus_and_keeps_the_profile_s_limits(tmp_path, monkeypatch, profile, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(devices, "_gpus", lambda: ["0", "1"])
    folder = tmp_path / "workflow" / "profiles" / "mine"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(profile)
    assert workflow_commands._gpus("mine") == ["--resources", *words]


def test_a_measured_gpu_leaves_what_is_trained_on_the_processor(monkeypatch):
    fast = {kind: unit.scaled(1e-3) for kind, unit in cost.table().items() if kind in cost_timing.KINDS}
    monkeypatch.setattr(cost_timing, "measure", lambda kinds, seconds, device: fast)
    on_gpu = workflow_commands._measured(cost.table(), "cuda")
    assert {kind: on_gpu[kind] for kind in cost.table()} == cost.table()
    assert all(on_gpu[cost.on_gpu(kind)] == unit for kind, unit in fast.items())
    on_cpu = workflow_commands._measured(cost.table(), "cpu")
    numpy = "ldp_classification/digits"
    assert on_cpu.keys() == cost.table().keys()
    assert on_cpu[numpy].fixed_seconds == pytest.approx(1e-3 * cost.table()[numpy].fixed_seconds)
