"""What `dpfl run` and `dpfl plan` do on a machine with GPUs, of which none is needed, and with so much memory."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from typer.testing import CliRunner

from dpfl import catalog
from dpfl.catalog import load
from dpfl.cli import app, workflow_commands
from dpfl.errors import InputError
from dpfl.grid import expansion
from dpfl.pipeline import cost, cost_fitting, devices
from dpfl.reporting import claims


@pytest.mark.parametrize(
    ("profile", "words"),
    [("cores: all", ["gpu=2", "mem_mb=7"]), ("resources: [mem_mb=9, gpu=1]", ["gpu=1", "mem_mb=9"])],
)
def test_a_run_starts_no_more_jobs_than_fit_and_keeps_the_profile_s_limits(tmp_path, monkeypatch, profile, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(devices, "visible_gpus", lambda: ["0", "1"])
    folder = tmp_path / "workflow" / "profiles" / "mine"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(profile)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=7 << 20))
    assert workflow_commands._limits("mine", True, 1) == ["--resources", *words]


@pytest.mark.parametrize(
    ("device", "profile", "gpus"),
    [
        ("cuda", "default", ["gpu=2"]),
        ("cuda, jobs_per_gpu: 3", "default", ["gpu=6"]),
        ("cpu", "default", [f"mem_mb={devices.memory_mb()}"]),
        ("cuda", "slurm", None),
    ],
)
def test_a_run_says_what_fits_on_one_host_alone(repository, monkeypatch, tmp_path, device, profile, gpus):
    monkeypatch.chdir(repository)
    monkeypatch.setattr(devices, "visible_gpus", lambda: ["0", "1"])
    seen = []
    monkeypatch.setattr(workflow_commands, "_run", lambda *given: seen.append(given[3]) or 0)
    (tmp_path / "mine.yaml").write_text(f"scale: demo\ntraining: {{device: {device}}}\n")
    done = CliRunner().invoke(app, ["run", "--config", str(tmp_path / "mine.yaml"), "--profile", profile])
    assert done.exit_code == 0, done.exception
    [options] = seen
    said = options[options.index("--resources") + 1 :] if "--resources" in options else None
    assert (said[:1] if said else None) == gpus


def test_a_run_that_would_train_nothing_is_refused(repository, monkeypatch, tmp_path):
    monkeypatch.chdir(repository)
    monkeypatch.setattr(expansion, "expand", lambda config: [])
    (tmp_path / "mine.yaml").write_text("scale: quick\npapers: [asoodeh2020]\n")
    facts = replace(load("asoodeh2020"), grid={"base": {}, "demo": [{}]})
    monkeypatch.setattr(workflow_commands, "load", lambda key: facts)
    done = CliRunner().invoke(app, ["run", "--config", str(tmp_path / "mine.yaml"), "--dry-run"])
    assert str(done.exception) == "asoodeh2020/grid.yaml has no runs of scale quick, only of demo"


def test_a_slip_in_a_claim_is_found_before_training(repository, monkeypatch, tmp_path):
    monkeypatch.chdir(repository)
    monkeypatch.setattr(workflow_commands, "_run", lambda *given: pytest.fail("it runs"))
    (tmp_path / "mine.yaml").write_text("scale: demo\npapers: [asoodeh2020]\n")
    first, *_ = load("asoodeh2020").claims.values()
    wrong = {"more": {**first, "of": "nothing"}} | load("asoodeh2020").claims
    monkeypatch.setattr(claims, "load", lambda key: replace(load(key), claims=wrong))
    done = CliRunner().invoke(app, ["run", "--config", str(tmp_path / "mine.yaml"), "--dry-run"])
    assert str(done.exception).startswith("asoodeh2020/claims.yaml: more: of is 'nothing'")


def test_a_measured_gpu_leaves_what_is_trained_on_the_processor(monkeypatch):
    fast = {kind: unit.scaled(1e-3) for kind, unit in cost.table().items() if kind in cost_fitting.KINDS}
    monkeypatch.setattr(cost_fitting, "measure", lambda kinds, seconds, device: fast)
    on_gpu = workflow_commands._measured(cost.table(), "cuda")
    assert {kind: on_gpu[kind] for kind in cost.table()} == cost.table()
    assert all(on_gpu[cost.on_gpu(kind)] == unit for kind, unit in fast.items())
    on_cpu = workflow_commands._measured(cost.table(), "cpu")
    numpy = "ldp_classification/digits"
    assert on_cpu.keys() == cost.table().keys()
    assert on_cpu[numpy].fixed_seconds == pytest.approx(1e-3 * cost.table()[numpy].fixed_seconds)


def test_a_recipe_that_is_a_plain_function_is_found_before_anything_runs(repository, monkeypatch, tmp_path):
    monkeypatch.chdir(repository)
    (tmp_path / "mine.yaml").write_text("scale: demo\npapers: [asoodeh2020]\n")
    monkeypatch.setattr(catalog, "recipes", lambda key, kind: dict.fromkeys(getattr(load(key), kind), len))
    done = CliRunner().invoke(app, ["plan", "--config", str(tmp_path / "mine.yaml")])
    first = next(iter(load("asoodeh2020").tables))
    assert str(done.exception) == (
        f"asoodeh2020: {first} in TABLES is a builtin_function_or_method; it must be a TableRecipe"
    )


@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_folder_that_is_no_project_is_named(repository, monkeypatch, tmp_path, command):
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_bytes((repository / "config.yaml").read_bytes())
    found = CliRunner().invoke(app, [command])
    assert str(found.exception) == f"no Snakefile here: run dpfl {command} in the folder of the project"


def test_a_profile_that_is_not_there_leaves_the_costs(repository, monkeypatch):
    monkeypatch.chdir(repository)
    monkeypatch.setattr(workflow_commands, "_fitted", lambda: pytest.fail("costs.csv would be rewritten"))
    found = CliRunner().invoke(app, ["plan", "--fit", "--profile", "typo"])
    assert str(found.exception).startswith("no profile typo in workflow/profiles")


@pytest.mark.parametrize("command", [["plan"], ["run", "--dry-run"]])
def test_a_slip_in_a_table_or_a_setting_is_found_before_anything_runs(repository, monkeypatch, command):
    monkeypatch.chdir(repository)
    paper = load("asoodeh2021")
    for change, said in (
        ({"tables": {**paper.tables, "nonsense": ""}}, "asoodeh2021/paper.yaml: tables.nonsense is not in TABLES"),
        ({"settings": {**paper.settings, "stopps": 3}}, "asoodeh2021/paper.yaml: nothing of the paper reads"),
    ):
        changed = replace(paper, **change)
        for module in (workflow_commands, catalog, expansion):
            monkeypatch.setattr(module, "load", lambda key, changed=changed: changed if key == paper.key else load(key))
        found = CliRunner().invoke(app, [*command, "--scale", "demo"])
        assert isinstance(found.exception, InputError) and str(found.exception).startswith(said), found.output
