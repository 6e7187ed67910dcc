"""Runs trained again: what is compared, what is left out and said, and what a changed run looks like."""

import json
import math
import random
import shutil
from collections import Counter

import pandas as pd
import pytest

from dpfl.catalog import keys
from dpfl.errors import InputError
from dpfl.files import record_path
from dpfl.grid import configuration, expansion
from dpfl.grid.training_job import TrainingJob
from dpfl.provenance.audit import rerun
from dpfl.provenance.audit.findings import Audit
from dpfl.provenance.audit.rerun import (
    FLOAT32,
    FLOAT32_SUMS,
    FLOAT64,
    Tolerance,
    difference,
    platform_of,
    tolerance_of,
)


@pytest.fixture
def again(project):
    """A function that trains runs of the tiny project again and returns the audit."""

    def run(count=1, seed=0, **chosen):
        settings = configuration.read(project.results / "config.yaml")
        seen = Audit()
        rerun.check_reruns(
            seen, project.root, settings, expansion.expand(settings), rerun.Choice(count, seed, **chosen)
        )
        return seen

    return run


def test_an_honest_run_comes_out_the_same_to_the_last_digit(again):
    seen = again(count=1)
    assert seen.findings == [] and seen.checked["runs trained again"] == 1
    assert [note for note in seen.notes if note.startswith("trained again, the same to the last digit")]


def test_the_seed_decides_which_runs_are_drawn(again, monkeypatch):
    drawn = []

    def note(run, *_):
        drawn.append(run.name)
        raise InputError("not trained here")

    monkeypatch.setattr(rerun, "_train_again", note)
    for seed in (1, 1, 2, 3, 4, 5):
        assert "cannot be trained again: not trained here" in again(seed=seed).findings[0].problem
    assert drawn[0] == drawn[1] and len(set(drawn)) > 1


@pytest.mark.parametrize(("epsilon", "with_its_job", "found"), [("inf", 0.0, 0), ("inf", 5.0, 1), ("2.93", 0.0, 1)])
def test_a_run_without_noise_is_trained_with_its_job_before_a_difference_is_a_finding(
    again, monkeypatch, epsilon, with_its_job, found
):
    true = rerun._train_again

    def shaken(run, data, cells):
        noise, row = true(run, data, cells)
        more = 5.0 if len(cells) == 1 else with_its_job
        return noise, {**row, "accuracy_pct": row["accuracy_pct"] + more}

    monkeypatch.setattr(rerun, "_train_again", shaken)
    seen = again(count=0, cell="bhaskar2025/digits_scatter_linear_k10_seed0", where={"epsilon": epsilon})
    assert len(seen.findings) == found and seen.checked["runs trained again"] == 1
    said = [note for note in seen.notes if "with the cells of its job; alone, accuracy_pct" in note]
    assert len(said) == 1 - found


def test_noise_that_does_not_follow_from_the_settings_is_found(again, project):
    for path in project.runs:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        table["noise_multiplier"] = table["noise_multiplier"].replace("0.0", "9.9")
        table.to_csv(path, index=False)
    problems = [finding.problem for finding in again(count=4).findings]
    assert len(problems) == 2 and all("noise multiplier 9.9, calibrated again it is 0" in each for each in problems)


def test_without_data_nothing_is_trained_and_the_reason_is_said(again, project):
    shutil.rmtree(project.root / "data")
    seen = again()
    assert seen.checked == {}
    assert "runs that could not be trained again here: 4 (the data of digits are not on this machine)" in seen.notes
    [problem] = [finding.problem for finding in seen.findings]
    assert problem.startswith("could be trained again in 0 of 1 runs") and problem.endswith(
        "snakemake --profile workflow/profiles/default --configfile results/demo/config.yaml -- "
        "data/arrays/digits/description.json data/features/digits/description.json"
    )


def test_the_auditor_chooses_a_cell_however_long_it_took(again, monkeypatch):
    monkeypatch.setattr(rerun, "MOST_SECONDS", 0)
    cell = "bhaskar2025/digits_scatter_linear_k10_seed1"
    seen = again(count=0, cell=cell, where={"epsilon": "2.93"})
    assert seen.findings == [] and seen.checked["runs trained again"] == 1
    assert "seed 1" in seen.notes[0] and "epsilon=2.93" in seen.notes[0]
    for where, words in (({"epsilon": "7"}, "no run of"), ({"epsilom": "7"}, "no column epsilom")):
        with pytest.raises(InputError, match=words):
            again(count=0, cell=cell, where=where)


def test_every_row_is_one_run_of_the_cell_that_made_it(tmp_path, monkeypatch):
    """Cells may differ in a list or in what is not set alone: neither can be read from a run table."""
    settings = {"scale": "paper", "papers": ["lowy2021", "vandijk2023"], "seeds": [0, 1]}
    jobs = expansion.expand(configuration.resolve(settings))
    monkeypatch.setattr(rerun, "read_record", lambda path: {})
    for job in jobs:
        path = expansion.run_table_path(tmp_path, job.paper, job.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [(seed, place) for seed in job.seeds for place in range(len(job.cells))]
        pd.DataFrame(rows, columns=["seed", "place"]).to_csv(path, index=False)
        record_path(path).touch()
    runs = list(rerun.runs_of(tmp_path, jobs))
    assert all(run.cell is run.job.cells[int(run.row["place"])] for run in runs)
    assert len(runs) == sum(len(job.cells) * len(job.seeds) for job in jobs)
    assert any(isinstance(value, list) for run in runs for value in run.cell.values())


def test_labels_that_were_exchanged_are_found(again, project):
    """Two rows that swap what they say of themselves have the noise and the metrics of the other."""
    path = project.runs[0]
    table = pd.read_csv(path)
    name = next(name for name in ("local_epochs", "rounds", "epsilon") if table[name].nunique() > 1)
    table[name] = table[name].to_numpy()[::-1]
    table.to_csv(path, index=False)
    seen = again(count=0, cell="/".join(path.with_suffix("").with_suffix("").parts[-2:]))
    assert any(
        f": {name} " in finding.problem and "trained again it is" in finding.problem for finding in seen.findings
    )


def test_more_runs_than_there_are_is_a_finding(again, monkeypatch):
    monkeypatch.setattr(rerun, "_check_one", lambda report, *_: report.count("runs trained again"))
    [finding] = again(count=9).findings
    assert finding.problem == "could be trained again in 4 of 9 runs that were asked for"


def test_a_run_that_was_named_is_not_drawn_too(again, monkeypatch):
    trained = []
    monkeypatch.setattr(rerun, "_check_one", lambda report, root, run, data: trained.append(run.name))
    [finding] = again(count=4, cell="bhaskar2025/digits_scatter_linear_k10_seed1").findings
    assert len(trained) == len(set(trained)) == 4
    assert finding.problem == f"could be trained again in 4 of {4 + 2} runs that were asked for"


def test_without_a_seed_each_draw_is_another_and_states_its_seed(again, monkeypatch):
    monkeypatch.setattr(rerun, "_check_one", lambda *_: None)
    notes = [again(seed=None).notes[0] for _ in range(2)]
    assert notes[0] != notes[1] and all(note.rpartition("--seed ")[2].split()[0].isdigit() for note in notes)


def test_published_cells_are_drawn_most_often_and_families_alike_whatever_their_size():
    def training_job(family, study):
        return TrainingJob("p", "pfl", f"{family}_seed0", {"study": study} if study else {}, (), (0,))

    families = {
        "small": (training_job("small", None), 2),
        "large": (training_job("large", None), 200),
        "study": (training_job("study", "x"), 200),
    }
    runs = [rerun.Rerun(each, {}, {}, None, {}) for each, count in families.values() for _ in range(count)]
    generator, counts = random.Random(1), Counter()
    for _ in range(2000):
        [run] = rerun.drawn(runs, 1, generator)
        counts[run.job.calibration_key] += 1
    # 4 : 4 : 1 of 2000, within 5 standard deviations (at most 22 each)
    for family, share in {"small": 4 / 9, "large": 4 / 9, "study": 1 / 9}.items():
        assert abs(counts[family] - 2000 * share) < 111


def test_runs_that_took_long_are_left_out(again, monkeypatch):
    monkeypatch.setattr(rerun, "MOST_SECONDS", 0)
    assert any("a seed took more than 0 s" in note for note in again().notes)


def rewrite_records(project, change):
    """Let the records of the run tables say something else."""
    for path in map(record_path, project.runs):
        record = json.loads(path.read_text())
        change(record)
        path.write_text(json.dumps(record))


def test_a_run_of_a_gpu_is_trained_on_the_cpu_where_there_is_none_and_that_is_said(again, project, monkeypatch):
    monkeypatch.setattr(rerun, "_has", lambda device: device == "cpu")
    rewrite_records(project, lambda record: record["host"].update(device="cuda"))
    (note,) = [each for each in again().notes if each.startswith("trained again")]
    assert "trained again, the same" in note
    assert "(across a change of platform: device cuda to cpu)" in note
    monkeypatch.setattr(rerun, "_GPU_SECONDS", 0)
    assert any("a seed took more than 0 s on cuda" in each for each in again().notes)


def test_another_torch_is_said(again, project):
    rewrite_records(project, lambda record: record["software"].update(torch="1.0.0"))
    assert any("across a change of platform: torch 1.0 to" in note for note in again().notes)


def test_a_tolerance_holds_up_to_its_largest_difference():
    points, relative = Tolerance(0.5, "points"), Tolerance(1e-3, "relative")
    assert points.holds(90.0, 90.5) and not points.holds(90.0, 90.6)
    assert relative.holds(2000.0, 2001.9) and not relative.holds(2000.0, 2002.1)
    assert relative.holds(0.0, 0.0009) and not relative.holds(0.0, 0.0011)


def test_missing_and_infinite_numbers_are_the_same_as_themselves_only():
    points = Tolerance(0.5, "points")
    assert points.holds(math.nan, math.nan) and not points.holds(math.nan, 1.0) and not points.holds(1.0, math.nan)
    assert points.holds(math.inf, math.inf) and not points.holds(math.inf, 1.0)


def test_the_tolerance_follows_the_precision():
    grid = expansion.expand(configuration.resolve({"papers": list(keys())}))
    found = {(job.experiment, tolerance_of(job.experiment, job.settings)) for job in grid}
    single = {("fedavg_images", FLOAT32), ("canaries", FLOAT32_SUMS)}
    assert {(name, tolerance) for name, tolerance in found if tolerance != FLOAT64} == single


def test_an_attack_in_single_precision_may_differ_as_another_processor_sums():
    assert FLOAT32_SUMS.holds(4700.290856395476, 4700.290704570667)
    assert not FLOAT32_SUMS.holds(357, 356)


def test_a_record_names_its_platform_without_the_last_number_of_a_version():
    software = {"torch": "2.13.0+cpu", "python": "3.11.7", "numpy": "2.4.6"}
    here = {"torch": "2.13", "python": "3.11", "device": "cpu"}
    assert platform_of(software, {"device": "cpu", "threads": 1}) == here
    assert platform_of(software, {"device": "cuda"}) == here | {"device": "cuda"}
    one, other = (platform_of(software, {"device": "cuda", "gpu": f"NVIDIA {name}"}) for name in ("A100", "H100"))
    assert difference(one, one) == []
    assert difference(one, other) == ["device cuda (NVIDIA A100) to cuda (NVIDIA H100)"]
    assert difference(here, here) == []
    assert difference(here, here | {"device": "cuda"}) == ["device cpu to cuda"]
