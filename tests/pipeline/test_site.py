"""What differs between clusters, as site.yaml says it and as Snakemake's plug-in for SLURM reads it."""

import logging
import re
import sys
from types import SimpleNamespace

import pytest
import yaml

from dpfl.errors import InputError
from dpfl.pipeline import site

pytest.importorskip("snakemake_executor_plugin_slurm", reason="needs the extra cluster")
from snakemake_executor_plugin_slurm.partitions import get_best_partition, read_partition_file
from snakemake_executor_plugin_slurm.submit_string import get_submit_command
from snakemake_executor_plugin_slurm.utils import set_gres_string
from snakemake_executor_plugin_slurm.validation import validate_slurm_extra

SLIPS = {
    "jobs: 0": "jobs", "jobs: many": "jobs", "slurm_acount: x": "unknown key", "longest_minutes: -1": "longest_minutes",
    "jobs: [": "not YAML", "- jobs": "must have keys", "3": "must have keys", "partitions: [cpu, gpu]": "partitions is",
    "partitions: {cpu: 1440}": "partitions is", "partitions: {cpu: {max_runtime: 1d}}": "partitions.cpu.max_runtime",
    "partitions: {cpu: {max_runtme: 60}}": "unknown key partitions.cpu.max_runtme", "gpu_model: 1": "gpu_model is 1",
    "partitions: {1: {max_runtime: 60}}": "partitions.1 is a number", "gpu_model: nvidia-a100": "no others",
    "partitions: {gpu: {max_gpu: many}}": "partitions.gpu.max_gpu is 'many'", "gpu_gres: 3": "as shard:1",
    "gpu_gres: 'gpu:1,shard:2'": "as shard:1", "status_command: qstat": "squeue or sacct", "qos: [long]": "qos is",
    "slurm_extra: [a]": "one text", "slurm_extra: '--constraint=a100'": "has --constraint .node constraints.",
    "slurm_extra: '--mail-type=FAIL --qos=long'": "has --qos", "slurm_extra: '-A me'": "has -A .account.",
    "status_command: null": "status_command is None", "constraint: ''": "constraint is ''",
    "seconds_between_status_checks: 181": "above 180", "{partitions: {cpu: {}}, gpu_gres: 'mps:25'}": "gpu_partition",
}  # fmt: skip


def written(folder, text):
    """The path of a site.yaml."""
    path = folder / "site.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("text", SLIPS)
def test_a_site_file_with_an_unusable_key_is_refused(tmp_path, text):
    with pytest.raises(InputError, match=SLIPS[text]) as refused:
        site.read(written(tmp_path, text))
    assert "\n" not in str(refused.value)


class Resources(dict):
    """Resources of a job, as Snakemake has them."""

    __getattr__ = dict.get


def test_a_missing_plug_in_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "snakemake_executor_plugin_slurm.validation", None)
    with pytest.raises(InputError, match=r"plug-in, which is missing: make env, or pip install '\.\[cluster\]'"):
        site.read(written(tmp_path, "slurm_extra: '--mail-type=FAIL'"))


def job(resources):
    """A job with these resources, as the plug-in sees it."""
    return SimpleNamespace(resources=Resources(mem_mb=2000, runtime=30, **resources), threads=1, name="train_gpu")


def submitted(resources):
    """The words of sbatch for a job with these resources."""
    validate_slurm_extra(job(resources))
    about = dict.fromkeys(("run_uuid", "slurm_logfile", "comment_str", "account", "partition", "workdir"), "x")
    return get_submit_command(job(resources), about) + set_gres_string(job(resources))


def test_every_key_that_jobs_are_submitted_with_is_taken_by_the_plug_in(tmp_path):
    known = site.read(written(tmp_path, "{constraint: a100, qos: 7, slurm_extra: '--mail-type=FAIL', partitions: {}}"))
    words = submitted({name: known[name] for name in site.SUBMITTED_WITH if known[name]})
    assert " -C a100 " in words and " --qos=7 " in words and " --mail-type=FAIL " in words


def test_examples_of_the_pages_are_taken_by_the_plug_in(repository, tmp_path):
    """Each is added to what the first one says, as a reader would."""
    page = (repository / "docs/howto/cluster.md").read_text()
    examples = [text for text in re.findall(r"```yaml\n(# .*?)```", page, re.DOTALL)]
    assert len(examples) == 4
    for text in examples:
        known = site.read(written(tmp_path, text))
        words = submitted({"gpu": 1, **known["gpu"], **{n: known[n] for n in site.SUBMITTED_WITH if known[n]}})
        for key, value in yaml.safe_load(text).items():
            assert key in ("partitions", "slurm_account", "gpu_partition") or str(value) in words


PARTITIONS = "partitions: {cpu: {max_runtime: 2880, max_mem_mb: 190000}, gpu: {max_runtime: 1440, max_gpu: 4}}\n"


@pytest.mark.parametrize(
    ("text", "partition"),
    [
        ("gpu_gres: 'shard:1'", "gpu"),
        ("gpu_gres: 'mps:25'", "gpu"),
        ("gpu_model: 1g.10gb", "gpu"),
        ("{}", "gpu"),
        ("{gpu_gres: 'shard:1', gpu_partition: mig}", "mig"),
        ("gpu_partition: mig", "mig"),
    ],
)
def test_a_job_that_needs_a_gpu_gets_a_partition_that_has_some(tmp_path, text, partition):
    path = written(tmp_path, yaml.safe_dump({**yaml.safe_load(PARTITIONS), **yaml.safe_load(text)}))
    resources = {"gpu": 1, **site.read(path)["gpu"]}
    # As the plug-in does: the one that is named, else the one that fits best.
    found = resources.get("slurm_partition")
    assert (found or get_best_partition(read_partition_file(path), job(resources), logging.getLogger())) == partition


def test_the_longest_time_of_a_job_is_that_of_the_default_partition(tmp_path, monkeypatch):
    sinfo = tmp_path / "sinfo"
    sinfo.write_text("#!/bin/sh\necho 'long 7-00:00:00'\necho 'short* 4:00:00'\n")
    sinfo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    known = site.read(written(tmp_path, "cores_per_node: 2\n"))
    assert (known["longest_minutes"], known["side_by_side"], known["jobs"]) == (240, 2, 100)
    partitions = written(tmp_path, "partitions: {a: {max_runtime: 60}, b: {max_runtime: 90}}\n")
    assert site.read(partitions)["longest_minutes"] == 90


@pytest.mark.parametrize("line", ["cpu*", "", "work* n/a", "work* infinite", "short* 0:30", "* 1:00:00 x"])
def test_an_answer_of_sinfo_that_states_no_time_is_no_time(tmp_path, monkeypatch, line):
    sinfo = tmp_path / "sinfo"
    sinfo.write_text(f"#!/bin/sh\necho '{line}'\n")
    sinfo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert site.read(written(tmp_path, "cores_per_node: 2\n"))["longest_minutes"] == 1440
