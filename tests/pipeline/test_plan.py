"""A plan: its jobs, hours and memory, the stages around training, and the patterns of names."""

import itertools
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dpfl.catalog import load
from dpfl.cli import app
from dpfl.errors import InputError
from dpfl.grid import configuration, expansion
from dpfl.pipeline import plan
from dpfl.pipeline.cost import SHARED_SPEED, Cost, estimate, table
from dpfl.pipeline.job_batches import Batch, makespan
from dpfl.pipeline.plan import any_of, names, stages


@pytest.fixture
def folder(repository, tmp_path, monkeypatch):
    """An empty folder with the profiles."""
    (tmp_path / "workflow").mkdir()
    (tmp_path / "workflow" / "profiles").symlink_to(repository / "workflow" / "profiles")
    (tmp_path / "config.yaml").write_text("scale: demo\n")
    (tmp_path / "Snakefile").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def numbers(text, pattern):
    """The numbers that a pattern of the plan names."""
    return [float(each) for each in re.search(pattern, text).groups()]


def test_a_plan_names_jobs_hours_memory_and_time(folder):
    (folder / "mine.yaml").write_text("papers: [bhaskar2025]\nonly: {model: [scatter_linear], dataset: [mnist]}\n")
    words = ["plan", "--scale", "paper", "--config", "mine.yaml", "--profile", "slurm", "--at-once", "4"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    [jobs, others] = numbers(done.output, r"jobs: (\d+) that train, (\d+) of other")
    [cores, gpus] = numbers(done.output, r"core-hours: ([\d.]+); GPU-hours: ([\d.]+)")
    assert 2 < jobs < 200 and others == 7 and cores > 0.5 and gpus == 0
    assert "fedavg_images/scatter_linear/grey" in done.output and "4 jobs at once: about" in done.output


def test_finished_jobs_are_not_planned_again_and_a_gpu_is_counted(folder, finish):
    resolved = configuration.resolve({"papers": ["bhaskar2025"], "training": {"device": "cuda"}})
    first = "\n".join(plan.lines(resolved, plan.machines_of("default", 1, "cuda"), table()))
    done, without_record, *_ = expansion.expand(resolved)
    finish(done, Path("results/demo"))
    expansion.run_table_path(Path("results/demo"), without_record.paper, without_record.name).touch()
    second = "\n".join(plan.lines(resolved, plan.machines_of("default", 1, "cuda"), table()))
    [before, none], [after, one] = (numbers(each, r"(\d+) jobs to train, (\d+) done") for each in (first, second))
    assert (after, none, one) == (before - 1, 0, 1)
    assert "guess" in first and "1 jobs at once" in first


def test_an_unknown_profile_is_refused(folder):
    with pytest.raises(InputError, match="nowhere"):
        plan.machines_of("nowhere", 1, "cpu")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=6), st.integers(1, 3))
def test_time_on_the_clock_is_within_four_thirds_of_the_best_schedule(seconds, at_once):
    """Longest first is at most 4/3 of the optimum (Graham 1969), which is found here by trying everything."""
    best = min(
        max(sum(each for each, where in zip(seconds, places, strict=True) if where == slot) for slot in range(at_once))
        for places in itertools.product(range(at_once), repeat=len(seconds))
    )
    assert best <= makespan(seconds, at_once) * (1 + 1e-12) <= 4 / 3 * best * (1 + 1e-9)


def test_a_cluster_without_a_site_file_queues_as_many_jobs_as_its_configuration_says(folder):
    generic = plan.machines_of("generic", threads=1, device="cuda")
    assert (generic.at_once, generic.on_cluster, generic.side_by_side) == (100, True, 4)
    assert plan.machines_of("default", threads=1, device="cuda").at_once == 1


def test_a_batch_counts_with_what_its_jobs_take_one_after_the_other_on_each_core(folder):
    resolved = configuration.resolve({"scale": "paper", "papers": ["bhaskar2025"], "seeds": [0]})
    jobs = [job for job in expansion.expand(resolved) if estimate(job).is_short]
    machines = plan.Machines("slurm", 1, 0.0, on_cluster=True, side_by_side=2)
    total = sum(estimate(job).seconds for job in jobs)
    batched, alone = machines.jobs(jobs)
    taken = sum(batch.seconds for batch in batched) + sum(cost.seconds for _, cost in alone)
    assert total / 2 * (1 - 1e-9) <= taken < total / SHARED_SPEED


def test_jobs_that_share_this_machine_slow_each_other_and_those_of_a_cluster_do_not(folder):
    resolved = configuration.resolve({"scale": "paper", "papers": ["bhaskar2025"], "seeds": [0]})
    one, two, cluster = (
        re.search(r"time on the clock, .* about (.*)", "\n".join(plan.lines(resolved, machines, table()))).group(1)
        for machines in (
            plan.Machines("one", 1, 0.0, on_cluster=False),
            plan.Machines("two", 2, 0.0, on_cluster=False),
            plan.Machines("cluster", 2, 0.0, on_cluster=True),
        )
    )
    hours = {text: float(text.removesuffix(" h")) for text in (one, two, cluster)}
    assert hours[two] == pytest.approx(hours[cluster] / SHARED_SPEED, abs=0.2)
    assert hours[two] == pytest.approx(hours[one] / 2 / SHARED_SPEED, rel=0.1)
    alone, beside = (
        plan.run_progress(resolved, plan.Machines("x", jobs, 0.0, on_cluster=False)).seconds_left(0.0)
        for jobs in (1, 2)
    )
    assert alone / 2 < beside <= alone / 2 / SHARED_SPEED  # stages that do not train are counted as they are


@pytest.mark.parametrize(("device", "rule"), [("cpu", "train"), ("cuda", "train_gpu")])
def test_the_progress_of_a_run_counts_a_job_on_either_device(folder, device, rule):
    given = {"papers": ["bhaskar2025"], "seeds": [0], "training": {"device": device}}
    resolved = configuration.resolve(given)
    first, *_ = expansion.expand(resolved)
    progress = plan.run_progress(resolved, plan.Machines("x", 1, 0.0, on_cluster=False))
    before, expected = progress.seconds_left(0.0), estimate(first).seconds
    wildcards = {"paper": "bhaskar2025", "job": first.name}
    progress.read({"event": "job_info", "job": 3, "rule": rule, "wildcards": wildcards, "log": []}, 0.0)
    progress.read({"event": "job_finished", "job": 3}, expected)
    assert progress.seconds_left(expected) == pytest.approx(before - expected)


def test_the_critical_path_has_the_longest_job_and_what_it_waits_for(folder):
    resolved = configuration.resolve({"scale": "paper", "papers": ["bhaskar2025"], "only": {"dataset": ["cifar10"]}})
    longest = max(expansion.expand(resolved), key=lambda job: estimate(job).seconds)
    *_, path, pieces = plan.lines(resolved, plan.Machines("x", 1000, 0.0, True, 4, 3600.0, 64000.0), table())
    assert path.startswith("critical path") and "arrays cifar10" in path
    assert f"train bhaskar2025 {longest.name} " in path
    [times] = numbers(pieces, r"continued in up to (\d+) pieces")
    assert times == math.ceil(estimate(longest).seconds / 3600)


def test_one_core_jobs_that_may_share_a_node_are_slowed_and_long_ones_have_theirs_alone():
    slurm = plan.Machines("slurm", 100, 0.0, on_cluster=True, cores=16)
    one, two, alone = (Cost("k", seconds, 1.0, 0, True, cores) for seconds, cores in ((600, 1), (600, 2), (1800, 1)))
    assert slurm.seconds(one) == pytest.approx(600 / SHARED_SPEED)
    assert slurm.seconds(two) == 600, "what is divided counts with it already"
    assert alone.needs_node and slurm.seconds(alone) == 1800
    assert slurm.seconds(replace(one, gpus=1)) == 600 and not replace(alone, gpus=1).needs_node
    assert plan.Machines("x", 100, 0.0, on_cluster=True).seconds(one) == 600, "nodes of one core"
    assert slurm.seconds(Batch("b", (), 1, 600.0, 1.0)) == pytest.approx(600 / SHARED_SPEED)


def test_a_hundred_nodes_of_16_cores_finish_the_grid_in_40_minutes(folder):
    """By the cost model and the shipped site: no job but one that has a single client takes long."""
    slurm = plan.machines_of("slurm", threads=1, device="cpu")
    assert (slurm.at_once, slurm.cores, slurm.memory_mb) == (100, 16, 60000)
    *_, clock, path = plan.lines(configuration.resolve({"scale": "paper"}), slurm, table())
    [minutes] = numbers(clock, r"100 jobs at once: about (\d+) min")
    [longest] = numbers(path, r"however many machines: (\d+) min")
    assert longest <= 40 and minutes <= 40 and "_k1_" in path
    _, alone = slurm.jobs(expansion.expand(configuration.resolve({"scale": "paper"})))
    assert max(cost.seconds for job, cost in alone if job.settings.get("clients", 0) > 1) < 60 * longest


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("executor: generic\n", "lacks jobs"),
        ("jobs: [", "not YAML"),
        ("executor: generic\njobs: unlimited\n", "jobs is 'unlimited', should be a number"),
        ("executor: generic\njobs:\n", "jobs is None, should be a number"),
        ("executor: generic\njobs: 10\ncores: all\n", "cores is 'all', should be a number"),
        ("executor: generic\njobs: 10\nresources: [side_by_side=x]\n", "side_by_side is 'x', should be a number"),
    ],
)
def test_a_profile_that_cannot_be_used_is_one_line(tmp_path, monkeypatch, text, said):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.yaml").write_text(text)
    monkeypatch.setattr(plan, "PROFILES", tmp_path)
    with pytest.raises(InputError, match=said):
        plan.machines_of("mine", threads=1, device="cpu")


@pytest.mark.parametrize("resources", ["{side_by_side: 4}", "[side_by_side=4]", "mem_mb=1 side_by_side=4"])
def test_resources_of_a_profile_are_a_mapping_or_a_list(tmp_path, monkeypatch, resources):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.yaml").write_text(f"executor: generic\njobs: 10\nresources: {resources}\n")
    monkeypatch.setattr(plan, "PROFILES", tmp_path)
    where = plan.machines_of("mine", threads=1, device="cpu")
    assert (where.at_once, where.side_by_side, where.cores) == (10, 4, 1)


# The stages around training: which there are, what is open, and what time they take.


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return configuration.resolve({"papers": ["bhaskar2025"]})


def rules(known):
    return {stage.rule for stage in known}


def test_the_stages_are_the_rules_of_the_workflow(config, repository):
    known = stages(config, expansion.expand(config))
    text = "\n".join(path.read_text() for path in (repository / "workflow" / "rules").glob("*.smk"))
    for rule in rules(known) - {"tables_bhaskar2025", "figures_bhaskar2025"}:
        assert any(f"{kind} {rule}:" in text for kind in ("rule", "checkpoint")), rule
    assert 'f"{_kind}_{_paper}"' in text


def test_features_are_made_for_the_models_that_read_them(config):
    jobs = expansion.expand(config)
    assert any(stage.rule == "features" for stage in stages(config, jobs))
    pixels = [job for job in jobs if not job.needs_features]
    assert not any(stage.rule == "features" for stage in stages(config, pixels))


def test_where_nothing_is_trained_only_pages_are_made(config):
    assert rules(stages(config, [])) == {"tables_bhaskar2025", "figures_bhaskar2025", "claims", "audit"}


def test_a_stage_is_done_when_all_its_files_are_there(config):
    tables = next(stage for stage in stages(config, []) if stage.rule == "tables_bhaskar2025")
    tables.outputs[0].parent.mkdir(parents=True)
    for path in tables.outputs:
        assert not tables.is_done
        path.touch()
    assert tables.is_done


def test_pages_are_open_as_long_as_a_job_before_them_is(config):
    pages = [stage for stage in stages(config, []) if stage.follows]
    for path in (path for stage in pages for path in stage.outputs):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert not plan.open_stages(config, [])
    job = expansion.expand(config)[0]
    assert rules(plan.open_stages(config, [job])) >= rules(pages)


def test_a_run_does_not_expect_what_is_prepared(config):
    jobs, machine = expansion.expand(config), plan.Machines("x", 1, 0.0, on_cluster=False)
    arrays = next(stage for stage in stages(config, jobs) if stage.rule == "arrays")
    before = plan.run_progress(config, machine).seconds_left(0.0)
    for path in arrays.outputs:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert before - plan.run_progress(config, machine).seconds_left(0.0) == pytest.approx(arrays.seconds)


def test_the_times_of_stages_by_hand(config):
    known = {stage.name: stage.seconds for stage in stages(config, expansion.expand(config))}
    assert known["features digits"] == pytest.approx(8 + 0.0018 * 1797) and known["arrays digits"] == 2
    # as many numbers as 3.9 grey images of 28 x 28 have
    assert known["features digits_rgb"] == pytest.approx(8 + 0.0018 * 1797 * 3 * 32 * 32 / 28**2)
    cells = {job.calibration_key: len(job.cells) for job in expansion.expand(config)}
    assert known["accounting bhaskar2025"] == pytest.approx(4 + 0.05 * sum(cells.values()))
    tables, figures = (len(getattr(load("bhaskar2025"), kind)) for kind in ("tables", "figures"))
    assert known["tables_bhaskar2025"] == 3 + 1.5 * tables and known["figures_bhaskar2025"] == 3 + 1.5 * figures
    assert known["claims bhaskar2025"] == 2.5 and known["audit"] == 12


@pytest.mark.parametrize(
    ("count", "threads", "device", "gpus", "jobs"),
    [
        (8, 1, "cpu", [], 8),
        (8, 3, "cpu", [], 2),
        (8, 16, "cpu", [], 1),
        (8, 1, "cuda", [], 3),
        (8, 1, "cuda", ["0", "1"], 6),
    ],
)
def test_this_machine_runs_as_many_jobs_as_its_cores_have_threads_for(
    folder, monkeypatch, count, threads, device, gpus, jobs
):
    monkeypatch.setattr(plan, "available_cpu_count", lambda: count)
    monkeypatch.setattr(plan.devices, "visible_gpus", lambda: gpus)
    where = plan.machines_of("default", threads, device, jobs_per_gpu=3)
    assert (where.at_once, where.extra_seconds, where.on_cluster, where.cores) == (jobs, 0.5, False, 1)
    assert plan.machines_of("default", threads, device, at_once=5).at_once == 5


def test_a_profile_may_say_how_many_jobs_this_machine_trains(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "PROFILES", tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.yaml").write_text("cores: 6\nresources: [gpu=5]\n")
    assert plan.machines_of("mine", 2, "cpu").at_once == 3
    assert plan.machines_of("mine", 2, "cuda", jobs_per_gpu=3).at_once == 5
    (tmp_path / "mine" / "config.yaml").write_text("cores: many\n")
    with pytest.raises(InputError, match=r"mine/config\.yaml.*cores"):
        plan.machines_of("mine", 2, "cpu")


def test_jobs_beyond_the_limit_are_continued_in_pieces():
    where = plan.Machines("x", 1, 0.0, True, longest_seconds=3600.0)
    assert list(plan._beyond_the_limit([3600.0], where)) == []
    [line] = plan._beyond_the_limit([3601.0, 7300.0, 100.0], where)
    assert line.endswith("2, continued in up to 3 pieces")


def test_features_of_more_pixels_take_longer(config):
    paper = configuration.resolve({"scale": "paper", "papers": ["bhaskar2025"]})
    seconds = {each.subject: each.seconds for each in stages(paper, expansion.expand(paper)) if each.rule == "features"}
    assert seconds["cifar10"] > seconds["mnist"] > 60


# A pattern matches the names that it was made of, and no other.


WORDS = st.sets(st.from_regex(r"[a-c]{0,2}(_[a-c0.]{0,2}){0,3}", fullmatch=True), max_size=12)


@given(WORDS, WORDS)
def test_exactly_the_names(some, others):
    for make in (any_of, names):
        pattern = re.compile(make(sorted(some)))
        assert {word for word in some | others if pattern.fullmatch(word)} == some


def test_seeds_of_a_job_are_written_once():
    config = configuration.resolve({"scale": "paper", "seeds": list(range(50))})
    jobs = [f"{job.paper}/{job.name}" for job in expansion.expand(config)]
    assert len(jobs) > 4000 and len(names(jobs)) < 20_000 < len(any_of(jobs)) / 10
