"""Where a job is trained: on the GPU that its configuration asks for, or on the CPU where it uses none."""

import os
import re
import shutil
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

from dpfl import experiments
from dpfl.cli import app, training_commands
from dpfl.data.arrays import build_arrays
from dpfl.errors import InputError
from dpfl.pipeline.devices import VISIBLE


@pytest.fixture
def command(repository, tmp_path, monkeypatch):
    """A function that calls `dpfl train` for a device, with two GPUs named in the environment; none is needed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv(VISIBLE, "5,6")
    shutil.copy(repository / "config.yaml", tmp_path)

    def call(job, device):
        (tmp_path / "mine.yaml").write_text(f"scale: demo\ntraining: {{device: {device}}}\n")
        paper, name = job.split("/")
        return CliRunner().invoke(app, ["train", "--paper", paper, "--job", name, "--config", "mine.yaml"])

    return call


@pytest.mark.parametrize(
    ("job", "device", "used", "visible"),
    [
        ("bhaskar2025/digits_scatter_linear_k10_seed0", "cuda", "cuda", "5"),
        ("bhaskar2025/digits_scatter_linear_k10_seed0", "cpu", "cpu", "5,6"),
        ("asoodeh2020/digits_mean_ink_seeds0to19", "cuda", "cpu", "5,6"),
    ],
)
def test_a_job_holds_its_gpu_before_its_stage_begins(command, monkeypatch, job, device, used, visible):
    seen = []
    monkeypatch.setattr(training_commands, "_train", lambda _, job, cores: seen.append((job, os.environ[VISIBLE])))
    done = command(job, device)
    assert done.exit_code == 0, done.exception
    [(job, shown)] = seen
    assert (job.resources["device"], shown, os.environ[VISIBLE]) == (used, visible, "5,6")


def test_a_torch_that_finds_no_gpu_is_refused_in_one_line(command, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    found = command("bhaskar2025/digits_scatter_linear_k10_seed0", "cuda").exception
    assert isinstance(found, InputError) and "torch finds no GPU" in str(found)


def test_a_setting_that_cannot_be_used_is_named_with_its_family(command, tmp_path, monkeypatch):
    job = SimpleNamespace(calibrate=lambda job, description: (_ for _ in ()).throw(InputError("rounds is 60.0")))
    monkeypatch.setattr(experiments, "load", lambda name: job)
    build_arrays("digits", tmp_path / "data" / "arrays" / "digits")
    (tmp_path / "mine.yaml").write_text("only: {dataset: [digits]}\n")
    found = CliRunner().invoke(app, ["calibrate", "--paper", "asoodeh2020", "--config", "mine.yaml"]).exception
    assert isinstance(found, InputError) and re.fullmatch(r"asoodeh2020/digits_\w+, rounds is 60\.0", str(found))
