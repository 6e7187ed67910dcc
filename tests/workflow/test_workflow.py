import fcntl
import hashlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest

from dpfl.grid import configuration
from dpfl.pipeline import lock, status

pytestmark = pytest.mark.workflow

MADE = ("results/demo/runs/**/*.csv.gz", "results/demo/tables/*.csv", "results/demo/figures/*.*[gv]")


def hashes(folder, *patterns):
    files = sorted(file for pattern in patterns for file in folder.glob(pattern))
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["demo", "quick", "paper"])
def test_every_scale_plans_every_stage_and_writes_nothing(checkout, tmp_path, scale):
    folder = tmp_path / "w"
    run = checkout(folder)
    done = run("snakemake", "--dry-run", "--cores", "1", "--config", f"scale={scale}")
    assert done.returncode == 0, done.stderr
    stages = ["arrays", "features", "accounting", "train", "tables", "figures", "claims", "audit"]
    for stage in stages if scale == "demo" else ["fetch", *stages]:
        assert re.search(rf"^ *(rule|checkpoint) {stage}(_\w+)?:", done.stdout + done.stderr, re.MULTILINE), stage
    assert not (folder / "results").exists() and not (folder / "data").exists()


@pytest.mark.slow
def test_a_wrong_configuration_is_one_line_status_2_and_nothing_written(checkout, tmp_path):
    """Through Snakemake itself; what else is refused is tested through `dpfl run` (tests/cli/test_cli.py)."""
    folder = tmp_path / "w"
    run = checkout(folder)
    (folder / "wrong.yaml").write_text("only: {dataset: [cifar10]}")
    done = run("snakemake", "--cores", "1", "--configfile", "wrong.yaml")
    [line] = [line for line in done.stderr.splitlines() if line.startswith("dpfl:")]
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "cifar10" in line and "demo" in line
    assert not (folder / "results").exists()


@pytest.mark.slow
def test_data_are_made_once_for_all_scales(checkout, tmp_path):
    run = checkout(tmp_path / "w")
    asked = ("snakemake", "data/arrays/digits/description.json", "--cores", "1")
    for scale, made in (("demo", True), ("quick", False)):
        done = run(*asked, "--config", f"scale={scale}")
        assert done.returncode == 0, done.stderr
        assert ("rule arrays" in done.stdout + done.stderr) == made


def complete(folder, tables, figures):
    """Check that these pages are there in every format, and that the run's own audit found nothing."""
    results = folder / "results" / "demo"
    for name in tables:
        for suffix in ("csv", "md", "tex", "html"):
            assert (results / "tables" / f"{name}.{suffix}").stat().st_size > 100
    for name in figures:
        for suffix in ("csv", "svg", "pdf", "png"):
            assert (results / "figures" / f"{name}.{suffix}").stat().st_size > 100
    assert "0 findings" in (results / "audit.txt").read_text()


def test_the_small_run_of_a_sixth_paper_has_every_output(small_run):
    complete(small_run[0], ["smith2026_risk"], ["smith2026_risk"])
    results = small_run[0] / "results" / "demo"
    risks = pd.read_csv(results / "tables" / "smith2026_risk.csv")
    assert risks["noise_std"].tolist() == [0.0, 2.0] and risks["runs"].tolist() == [2, 2]
    assert 0 < risks["excess_risk"][0] < risks["excess_risk"][1]
    verdicts = pd.read_csv(results / "claims" / "smith2026.csv").set_index("claim")
    assert verdicts["verdict"].to_dict() == {"noise_costs": "undecided", "optimal": "not run"}
    assert "on stand-in data only (digits)" in verdicts["reason"]["noise_costs"]
    evidence = pd.read_csv(results / "claims" / "smith2026_evidence.csv")
    assert evidence["claim"].tolist() == ["noise_costs"] and evidence["estimate"][0] > 0


@pytest.mark.slow
def test_the_tiny_run_of_two_papers_has_every_output(tiny_run):
    tables = ["bhaskar2025_table_2", "lowy2021_paired_differences", "lowy2021_noise"]
    complete(tiny_run[0], tables, ["lowy2021_figure_2", "bhaskar2025_splits"])


@pytest.mark.slow
def test_run_tables_carry_a_complete_privacy_statement(tiny_run):
    folder, _, _ = tiny_run
    tables = [pd.read_csv(file) for file in (folder / "results/demo/runs/bhaskar2025").glob("*.csv.gz")]
    runs = pd.concat(tables)
    private = runs[runs["epsilon"] < float("inf")]
    wanted = ["mechanism", "sampling", "neighbouring", "records", "sample_rate", "clip_norm", "noise_multiplier"]
    for name in [*wanted, "steps", "delta", "epsilon_proven", "epsilon_refuted"]:
        assert private[f"privacy_{name}"].notna().all(), name
    assert (private["privacy_epsilon_proven"] <= private["epsilon"]).all()
    assert (runs["stand_in_for"] == "mnist").all() and runs["data_note"].str.contains("Stand-in").all()


def test_running_again_has_nothing_to_do(small_run):
    _, run, command = small_run
    done = run(*command)
    assert done.returncode == 0 and "Nothing to be done" in done.stdout + done.stderr


@pytest.mark.slow
def test_a_run_with_nothing_to_do_does_not_start_snakemake_and_a_changed_byte_does(small_run, runner, tmp_path):
    folder = tmp_path / "w"
    shutil.copytree(small_run[0], folder)
    run, engine = runner(folder), folder / ".snakemake" / "engine.log"
    page = folder / "results/demo/tables/smith2026_risk.csv"
    right, before = page.read_bytes(), hashes(folder, *MADE)

    def is_looked_at():
        engine.unlink(missing_ok=True)
        done = run("dpfl", "run", "--config", "tiny.yaml")
        assert done.returncode == 0, done.stderr
        assert ("nothing to do" in done.stderr) is not engine.exists()
        return engine.exists()

    assert is_looked_at(), "what ran until now was started by Snakemake itself"
    assert not is_looked_at()
    page.write_bytes(right.replace(b"0", b"1", 1))
    assert is_looked_at() and page.read_bytes() == right
    assert not is_looked_at() and hashes(folder, *MADE) == before


@pytest.mark.slow
def test_a_lost_run_table_is_trained_again_to_the_same_bytes(tiny_run):
    folder, run, command = tiny_run
    before = hashes(folder, *MADE)
    lost = next((folder / "results/demo/runs/bhaskar2025").glob("*.csv.gz"))
    lost.unlink()
    assert run(*command).returncode == 0
    assert hashes(folder, *MADE) == before


@pytest.mark.slow
def test_a_killed_training_leaves_nothing_and_continues(tiny_run, is_writing):
    folder, run, command = tiny_run
    before = hashes(folder, "results/demo/runs/**/*.csv.gz")
    target = sorted((folder / "results/demo/runs/bhaskar2025").glob("*.csv.gz"))[0]
    target.unlink()
    job = target.name.split(".")[0]
    asked = ("train", "--paper", "bhaskar2025", "--job", job, "--config", "results/demo/config.yaml")
    process = is_writing(folder, *asked, whole=1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    [checkpoint] = [path for path in (folder / "checkpoints").rglob("*") if path.is_file()]
    assert checkpoint.suffix == ".pt" and not target.exists() and not list(target.parent.glob("*.partial"))
    assert run(*command).returncode == 0
    log = (folder / f"results/demo/logs/train_bhaskar2025_{job}.log").read_text()
    assert int(re.search(r": (\d+) of \d+ steps", log)[1]) > 1, "the killed training began anew"
    assert hashes(folder, "results/demo/runs/**/*.csv.gz") == before


@pytest.mark.slow
@pytest.mark.parametrize("first", ["dpfl run --config tiny.yaml", "snakemake --cores 2 --configfile tiny.yaml"])
def test_two_runs_at_once_do_not_touch_each_other(tiny_run, first):
    folder, run, _ = tiny_run
    lost = next((folder / "results/demo/runs/lowy2021").glob("*.csv.gz"))
    lost.unlink()
    path = os.pathsep.join([os.path.dirname(subprocess.sys.executable), os.environ["PATH"]])
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(first.split(), cwd=folder, env={**os.environ, "PATH": path}, **quiet)
    deadline = time.monotonic() + 60
    while not lock._snakemakes(folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert process.poll() is None
    second = run("dpfl", "run", "--config", "tiny.yaml")
    assert second.returncode == 2 and second.stderr.count("\n") == 1
    assert "another run is at work in this folder" in second.stderr
    assert process.wait(timeout=300) == 0 and lost.exists()


def test_the_command_line_traces_and_audits(small_run, runner, tmp_path):
    folder = shutil.copytree(small_run[0], tmp_path / "a copy", symlinks=True)
    run = runner(folder)
    page = "results/demo/tables/smith2026_risk.csv"
    traced = run("dpfl", "trace", page)
    assert traced.returncode == 0
    assert "data/arrays/digits/description.json" in traced.stdout
    assert "accounting/smith2026.csv" in traced.stdout and "licence: CC BY 4.0" in traced.stdout
    assert run("dpfl", "audit", "results/demo", "--files-only").returncode == 0
    table = folder / page
    table.write_text(table.read_text().replace("0", "1", 1))
    audited = run("dpfl", "audit", "results/demo", "--files-only")
    assert audited.returncode == 1 and page in audited.stdout
    status = run("dpfl", "status", "--config", "results/demo/config.yaml")
    assert status.returncode == 0 and "smith2026: jobs" in status.stdout


def test_records_lie_beside_every_output_and_name_the_versions(small_run):
    folder, _, _ = small_run
    pages = [csv for csv in (folder / "results/demo").glob("*/*.csv") if not csv.name.endswith("_evidence.csv")]
    assert pages  # the verdicts' record names their evidence too
    for csv in pages:
        record = json.loads(csv.with_name(csv.name + ".record.json").read_text())
        assert record["software"]["torch"] and record["outputs"][0]["path"] == os.path.relpath(csv, folder)


TWO_PAPERS = """\
papers: [lowy2021, bhaskar2025]
only: {model: [scatter_linear], dataset: [digits, diabetes], epsilon: [2.93, 5], local_epochs: [10],
       clients: [3, 10], study: [none]}
"""


def at_a_terminal(command, folder, environment, is_time):
    """Run a command at a terminal of its own and type Ctrl-C once `is_time()`; return its status and what it showed
    from then on, as the terminal's reader sees it."""
    own, its = os.openpty()
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=its, stdout=its, stderr=its, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(its)
    shown, typed = b"", None
    while True:
        if typed is None and is_time():
            os.write(own, b"\x03")
            typed = len(shown)
        if select.select([own], [], [], 0.1)[0]:
            try:
                shown += os.read(own, 4096)
            except OSError:  # nobody has the terminal any more
                break
    os.close(own)
    assert typed is not None, shown.decode()
    lines = shown[typed:].decode().replace("\r\n", "\n").removesuffix("\n").split("\n")
    return process.wait(), [line.split("\r\x1b[K")[-1] for line in lines]


@pytest.mark.slow  # on a machine that is busy the run may end before Ctrl-C reaches it
@pytest.mark.parametrize(
    ("command", "code", "more"),
    [
        (("dpfl", "run"), 130, []),
        (("make", "--old-file=.venv/ready", "demo"), -signal.SIGINT, [r"make: \*\*\* \[Makefile:\d+: demo\] .*"]),
    ],
    ids=["dpfl run", "make"],
)  # fmt: skip
def test_ctrl_c_ends_a_run_in_one_line(checkout, repository, tmp_path, monkeypatch, command, code, more):
    """The real workflow, two of its stages at work, at a real terminal; what make itself adds is not ours."""
    folder = tmp_path / "w"
    checkout(folder)
    shutil.copy(repository / "Makefile", folder)
    (folder / "tiny.yaml").write_text(TWO_PAPERS)
    logs = [folder / "results/demo/logs" / f"accounting_{paper}.log" for paper in ("bhaskar2025", "lowy2021")]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # make test-slow tells the make in here that it is the second of two, and it would name itself make[1].
    alone = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    environment = {**alone, "PATH": path, "OMP_NUM_THREADS": "1", "CONFIG": "tiny.yaml"}
    words = [*command, "--config", "tiny.yaml"] if command[0] == "dpfl" else command
    ended, lines = at_a_terminal(words, folder, environment, lambda: all(log.exists() for log in logs))
    assert ended == code
    assert lines[0] == "dpfl: interrupted; run the same command again to continue"
    assert len(lines) == 1 + len(more) and all(map(re.fullmatch, more, lines[1:])), lines
    assert not [each for each in psutil.process_iter(["cwd"]) if each.info["cwd"] == str(folder)]
    monkeypatch.chdir(folder)
    said = list(status.lines(configuration.overlaid(Path("config.yaml"), Path("tiny.yaml"), "demo")))
    assert "no run is in progress here" in said and not any("failed" in line for line in said), said
