"""The workflow as a module of another one, as config/README.md says it."""

import json
import re

import pytest
import yaml

from dpfl import results

pytestmark = pytest.mark.workflow


@pytest.fixture
def other(repository, runner, tmp_path):
    """A function that writes a workflow which uses ours, with or without a prefix, and returns a runner."""
    page = (repository / "config" / "README.md").read_text(encoding="utf-8")
    [snakefile] = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    [configuration] = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)

    def write(prefix: str):
        text = snakefile.replace("/path/to/dpfl", str(repository))
        text = text.replace('"private"', f'"{prefix}"') if prefix else re.sub(r" *prefix:\n *.*\n", "", text)
        (tmp_path / "Snakefile").write_text(text)
        (tmp_path / "config.yaml").write_text("own_key: 1\n" + configuration)
        return runner(tmp_path)

    return write


@pytest.mark.slow
def test_a_module_below_a_prefix_runs_to_its_end(other, tmp_path):
    run = other("my private part")
    planned = run("snakemake", "--dry-run")
    assert planned.returncode == 0 and "dpfl_audit" in planned.stdout + planned.stderr
    assert not (tmp_path / "my private part").exists()
    done = run("snakemake", "--cores", "2")
    assert done.returncode == 0, done.stderr[-4000:]
    folder = tmp_path / "my private part" / "results" / "demo"
    assert "0 findings" in (folder / "audit.txt").read_text()
    assert yaml.safe_load((folder / "config.yaml").read_text())["papers"] == ["lowy2021"]
    record = json.loads(next(folder.glob("runs/lowy2021/*.record.json")).read_text())
    assert record["outputs"][0]["path"].startswith("results/demo/runs/lowy2021/")
    assert set(results.runs("lowy2021", folder)["seed"]) == {0, 1}
    ours = {".cache", ".snakemake", "Snakefile", "config.yaml"}
    assert {path.name for path in tmp_path.iterdir()} == {*ours, "my private part"}
    again = run("snakemake", "--dry-run")
    assert again.returncode == 0 and "dpfl_" not in again.stdout + again.stderr
    changed = (tmp_path / "config.yaml").read_text().replace("seeds: [0, 1]", "seeds: [0]")
    (tmp_path / "config.yaml").write_text(changed)
    replanned = run("snakemake", "--dry-run")
    assert re.search(r"^dpfl_train +\d", replanned.stdout + replanned.stderr, re.MULTILINE)
    assert "dpfl_arrays" not in replanned.stdout + replanned.stderr


@pytest.mark.slow
def test_a_module_without_a_prefix_writes_into_the_folder(other, tmp_path):
    done = other("")("snakemake", "--cores", "1", "results/demo/accounting/lowy2021.csv")
    assert done.returncode == 0, done.stderr[-4000:]
    assert (tmp_path / "results/demo/accounting/lowy2021.csv").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('prefix:\n        "private"', 'replace_prefix:\n        {"results/": "private/"}'), "use prefix"),
        (('config["dpfl"]', "config"), "unknown key"),
    ],
)
def test_a_module_that_cannot_work_is_one_line(other, tmp_path, change, words):
    run = other("private")
    text = (tmp_path / "Snakefile").read_text()
    assert change[0] in text
    (tmp_path / "Snakefile").write_text(text.replace(*change))
    done = run("snakemake", "--dry-run")
    [line] = [line for line in done.stderr.splitlines() if line.startswith("dpfl:")]
    assert done.returncode == 2 and words in line and "Traceback" not in done.stderr


def test_an_executor_without_a_shared_file_system_is_refused(checkout, tmp_path):
    run = checkout(tmp_path / "w")
    done = run("snakemake", "--dry-run", "--cores", "1", "--shared-fs-usage", "none")
    assert done.returncode == 2 and "with a shared file system" in done.stderr
