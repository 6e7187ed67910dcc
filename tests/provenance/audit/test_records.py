"""Records and run tables against git, grid, papers, siblings, noise and themselves."""

import copy
import hashlib
import math
import subprocess
from dataclasses import replace

import pandas as pd
import pytest

from dpfl import experiments
from dpfl.catalog import recipe_code
from dpfl.grid import configuration, expansion
from dpfl.grid.expansion import run_table_path
from dpfl.grid.training_job import TrainingJob
from dpfl.provenance import record as environment
from dpfl.provenance.audit.findings import Audit
from dpfl.provenance.audit.records import (
    Context,
    against_grid,
    against_itself,
    against_noise,
    check_commits,
    check_epsilons,
    check_records,
    check_runs,
    refutes_more,
)
from dpfl.provenance.source_digest import source_digest
from dpfl.reporting.results import write_table

LOCK = "torch==2.13.0\nnumpy==2.4.6\nscipy==1.17.1\npandas==3.1.1\nmatplotlib==3.11.2\nopacus==1.6.0\n"
LOCK += "dp-accounting==0.6.0\nscikit-learn==1.9.1\nsnakemake==9.27.1\n"


@pytest.fixture
def repository(tmp_path):
    """A repository of a package dpfl with one commit; returns folder and commit."""
    package = tmp_path / "src" / "dpfl"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("x = 1\n")
    (tmp_path / "requirements.lock").write_text(LOCK)

    def git(*arguments):
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        return subprocess.run(
            ["git", "-C", tmp_path, *who, *arguments], check=True, capture_output=True, text=True
        ).stdout

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    return tmp_path, git("rev-parse", "HEAD").strip()


@pytest.fixture
def committed(repository):
    """An honest record of that commit."""
    root, commit = repository
    versions = environment.locked_versions(LOCK)
    return {
        "stage": "train", "outputs": [{"path": "run.csv.gz"}],
        "source": {"modules": ["dpfl.a"], "digest": source_digest("dpfl.a", root=root / "src" / "dpfl"),
                   "commit": commit, "dirty": False},
        "software": {**versions, "torch": "2.13.0+cpu", "lock": hashlib.sha256(LOCK.encode()).hexdigest(),
                     "not_as_locked": {}},
    }  # fmt: skip


def check(committed, root):
    """Problems and notes of one record."""
    report = Audit()
    check_commits(report, [committed], root)
    return [finding.problem for finding in report.findings], report.notes


def test_an_honest_record_is_that_of_its_commit(committed, repository):
    assert check(committed, repository[0]) == ([], [])


@pytest.mark.parametrize(
    ("part", "change", "problem"),
    [
        ("source", {"commit": "0" * 40}, "which the repository does not have"),
        ("source", {"commit": "--upload-pack=x"}, "that cannot be one"),
        ("source", {"digest": "0" * 16}, "source digest"),
        ("source", {"modules": ["dpfl.b"]}, "modules that commit"),
        ("software", {"lock": "0" * 64}, "another requirements.lock"),
        ("software", {"lock": None, "torch": "1.0"}, "names no requirements.lock"),
        ("software", {"torch": "2.11.0"}, "torch 2.11.0, where its environment has 2.13.0"),
        ("software", {"not_as_locked": {"numpy": "1.0"}}, "numpy 2.4.6, where its environment has 1.0"),
    ],
)
def test_a_forged_word_is_found(committed, repository, part, change, problem):
    committed[part] |= change
    problems, _ = check(committed, repository[0])
    assert len(problems) == 1 and problem in problems[0]


def test_versions_that_are_said_to_differ_from_the_lock_file_are_counted(committed, repository):
    committed["software"] |= {"torch": "1.0", "not_as_locked": {"torch": "1.0"}}
    note = "trained in an environment that is not that of requirements.lock: 1 of 1 run tables"
    assert check(committed, repository[0]) == ([], [note])


def test_a_changed_tree_has_another_digest_and_is_marked(committed, repository):
    committed["source"] |= {"digest": "0" * 16, "dirty": True}
    note = "trained from a changed tree or without a commit: 1 of 1 run tables"
    assert check(committed, repository[0]) == ([], [note])
    committed["source"] |= {"commit": None, "dirty": None}
    assert check(committed, repository[0]) == ([], [note])


def test_outside_a_checkout_that_is_a_note(committed, tmp_path_factory):
    problems, notes = check(committed, tmp_path_factory.mktemp("none"))
    assert problems == [] and notes == ["commits were not checked: the source tree here is no git checkout"]


@pytest.mark.parametrize("has_led_here", [True, False])
def test_a_commit_counts_its_code_itself_if_it_led_to_what_is_checked_out(committed, repository, has_led_here):
    root, first = repository

    def git(*words):
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        done = subprocess.run(["git", "-C", root, *who, *words], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    own = root / "src" / "dpfl" / "provenance" / "source_digest.py"
    own.parent.mkdir()
    own.write_text("def source_digest(*modules, root):\n    return 'counted by itself'\n")
    git("checkout", "-qb", "another")
    git("add", ".")
    git("commit", "-qm", "counts in another way")
    committed["source"] |= {"commit": git("rev-parse", "HEAD"), "digest": "counted by itself"}
    if not has_led_here:
        git("checkout", "-q", first)
    problems, _ = check(committed, root)
    assert (problems == []) is has_led_here


# A record's own words against the grid, the papers, its siblings and the stages before it.


CONFIG = configuration.resolve(
    {"papers": ["bhaskar2025"], "seeds": [0, 1], "only": {"model": ["scatter_linear"], "study": ["none"]}}
)
JOBS = [each for each in expansion.expand(CONFIG) if each.calibration_key == "digits_scatter_linear_k10"]
RUNS = [f"results/demo/runs/bhaskar2025/{job.name}.csv.gz" for job in JOBS]
NOISE, TABLE = "results/demo/accounting/bhaskar2025.csv", "results/demo/tables/bhaskar2025_table_2.csv"
CLAIMS = "results/demo/claims/bhaskar2025.csv"
ARRAYS = [f"data/arrays/digits/{name}" for name in ("description.json", "train_x.npy")]
FEATURES = [f"data/features/digits/{name}" for name in ("description.json", "train_x.npy")]


def entry(path):
    """A file as records name it."""
    return {"path": path, "bytes": 1, "sha256": f"sha256 of {path}"}


def stage_record(stage, minute, outputs, inputs=(), settings=None, seeds=(), modules=("dpfl.data.arrays",)):
    """An honest record of a stage of one minute."""
    return {
        "stage": stage, "started": f"2026-01-01T00:{minute:02}:00+00:00", "seconds": 60.0,
        "settings": settings or {}, "seeds": list(seeds),
        "inputs": [entry(path) for path in inputs], "outputs": [entry(path) for path in outputs],
        "source": {"modules": list(modules), "digest": "0", "commit": None},
        "software": {"torch": "2.13.0+cpu"}, "host": {"device": "cpu", "threads": 1},
    }  # fmt: skip


@pytest.fixture
def honest():
    """The records of a small project by their first output."""
    code = ["dpfl.images.fedavg_images:train"]
    pages = [*recipe_code("bhaskar2025", "tables"), "dpfl.reporting.tables"]
    made = [
        stage_record("data arrays", 0, ARRAYS), stage_record("features", 1, FEATURES, ARRAYS),
        stage_record("account", 2, [NOISE], ARRAYS[:1], {"paper": "bhaskar2025", "scale": "demo"}, modules=code),
        *(stage_record("train", 4, [path], [NOISE, *ARRAYS, *FEATURES], job.settings, job.seeds, code)
          for path, job in zip(RUNS, JOBS, strict=True)),
        stage_record("tables", 8, [TABLE], RUNS, {"paper": "bhaskar2025", "name": "table_2"}, modules=pages),
        stage_record("claims", 10, [CLAIMS], [TABLE], {"paper": "bhaskar2025"},
               modules=["dpfl.papers.bhaskar2025.claims", "dpfl.reporting.claims"]),
    ]  # fmt: skip
    return {each["outputs"][0]["path"]: copy.deepcopy(each) for each in made}


def found(records):
    """What is found in records, and the notes."""
    report = Audit()
    check_records(report, Context.of("demo", records.values(), JOBS, "data"))
    return [(finding.path, finding.problem) for finding in report.findings], report.notes


def test_nothing_is_found_in_honest_records(honest):
    assert len(JOBS) == 2 and found(honest) == ([], [])


def test_a_module_may_have_stood_elsewhere_at_the_commit_of_its_record(honest):
    for path, stage_record in honest.items():
        if stage_record["stage"] == "train":
            honest[path]["source"]["modules"] = ["dpfl.experiments.fedavg_images"]
    assert found(honest) == ([], [])


FORGED = {
    "seeds": (lambda it: it.update(seeds=[7]), "seeds [7], not [0]"),
    "settings": (lambda it: it["settings"].update(delta=1e-9), '"delta": 1e-09'),
    "sampling": (lambda it: it["settings"].update(sampling="shuffled_epochs"), '"sampling": "shuffled_epochs"'),
    "stage": (lambda it: it.update(stage="tables"), 'stage "tables", not "train"'),
    "modules": (lambda it: it["source"].update(modules=["dpfl.files"]), "modules"),
    "another module": (lambda it: it["source"].update(modules=["dpfl.images.fedavg"]), "modules"),
    "two modules": (lambda it: it["source"].update(modules=["dpfl.images.fedavg_images", "dpfl.files"]), "modules"),
    "device": (lambda it: it["host"].update(device="cuda"), "torch 2.13.0+cpu, which has no CUDA"),
    "another device": (lambda it: it["host"].update(device="tpu"), "device tpu"),
    "threads": (lambda it: it["host"].update(threads=0), "with 0 threads"),
    "future": (lambda it: it.update(started="2999-01-01T00:00:00+00:00"), "still to come"),
    "an input left out": (lambda it: it["inputs"].pop(1), "was made without data/arrays/digits/description.json"),
}


@pytest.mark.parametrize("forgery", FORGED)
def test_a_forged_word_of_a_run_is_found(honest, forgery):
    change, problem = FORGED[forgery]
    change(honest[RUNS[0]])
    problems, _ = found(honest)
    assert any(path == RUNS[0] and problem in each for path, each in problems), problems


def test_a_page_that_leaves_a_run_out_is_found_and_one_that_is_older_is_a_note(honest):
    honest[TABLE]["inputs"].pop()
    assert found(honest)[0] == [(TABLE, f"has a record that is not true: was made without {RUNS[1]}, which was there")]
    honest[RUNS[1]]["started"] = "2026-01-01T01:00:00+00:00"
    assert found(honest) == ([], [f"older than a run table of their paper: 1 pages, as {TABLE}"])


def test_a_page_that_began_before_its_runs_is_found(honest):
    honest[TABLE]["started"] = "2026-01-01T00:02:00+00:00"
    problems, _ = found(honest)
    assert {path for path, _ in problems} == {TABLE} and all("before" in each for _, each in problems)


def test_a_page_of_another_paper_s_name_is_found(honest):
    honest[TABLE]["settings"]["paper"] = "lowy2021"
    assert TABLE in [path for path, _ in found(honest)[0]]


def test_an_input_hash_that_siblings_contradict_is_found_where_the_data_have_no_record(honest):
    for name in (ARRAYS[0], FEATURES[0]):
        del honest[name]
    honest[NOISE]["inputs"] = []
    honest["third"] = copy.deepcopy(honest[RUNS[0]]) | {"outputs": [entry("results/demo/runs/bhaskar2025/x.csv.gz")]}
    honest[RUNS[1]]["inputs"][2]["sha256"] = "another"
    problems, notes = found(honest)
    assert problems == [(RUNS[1], f"has a record that is not true: read another {ARRAYS[1]} than its siblings")]
    assert len(notes) == 1 and "not of the configuration's grid" in notes[0]


@pytest.mark.parametrize(
    ("changes", "is_note"),
    [
        ({}, False),
        ({"cpu": "another"}, True),
        ({"torch": "2.11.0"}, True),
        ({"cpu": "another", "place": ARRAYS[1]}, False),
        ({"cpu": "another", "place": FEATURES[0]}, False),
        ({"cpu": "another", "bytes": 2}, False),
        ({"cpu": "another", "third": "another"}, False),
    ],
    ids=["this machine", "processor", "torch", "arrays", "description", "size", "siblings on that machine"],
)
def test_features_may_have_other_bytes_on_another_machine(honest, changes, is_note):
    """Floats are rounded otherwise there; whole numbers and descriptions are not."""
    place = changes.get("place", FEATURES[1])
    for name in (ARRAYS[0], FEATURES[0]):
        del honest[name]
    honest[NOISE]["inputs"] = []
    siblings = [f"results/demo/runs/bhaskar2025/{name}.csv.gz" for name in ("x", "y", "z")]
    for path in siblings:
        honest[path] = copy.deepcopy(honest[RUNS[0]]) | {"outputs": [entry(path)]}
    honest[siblings[2]]["host"]["cpu"] = changes.get("third")
    honest[siblings[1]]["host"]["cpu"] = changes.get("third")
    own = honest[RUNS[1]]
    own["host"]["cpu"] = changes.get("cpu")
    own["software"]["torch"] = changes.get("torch", "2.13.0+cpu")
    [read] = [each for each in own["inputs"] if each["path"] == place]
    read |= {"sha256": "another", "bytes": changes.get("bytes", 1)}
    problems, notes = found(honest)
    finding = (RUNS[1], f"has a record that is not true: read another {place} than its siblings")
    note = f"read features of other bytes, which another machine computed: 1 stages, as {RUNS[1]}"
    assert problems == ([] if is_note else [finding]) and (note in notes) is is_note


def test_a_raw_file_of_another_hash_than_the_published_one_is_found(honest):
    raw = "data/raw/mnist/t10k-labels-idx1-ubyte"
    honest[raw] = stage_record("data fetch", 0, [raw])
    assert [path for path, _ in found(honest)[0]] == [raw]
    published = "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"
    honest[raw]["outputs"][0]["sha256"] = published
    assert found(honest)[0] == []


def test_noise_and_data_made_again_are_counted(honest):
    honest[NOISE]["outputs"][0]["sha256"] = "calibrated anew"
    honest[FEATURES[0]]["started"] = "2026-01-02T00:00:00+00:00"
    problems, notes = found(honest)
    assert problems == [] and [note.rpartition(": ")[2] for note in notes] == ["2 run tables", "2 run tables"]


# The noise of runs against the calibration.


RUN = {"epsilon": "2.0", "seed": "0", "status": "finished", "noise_multiplier": "1.5", "privacy_delta": "1e-05"}
ROW = {"epsilon": "2", "noise_multiplier": "1.50", "privacy_delta": "0.00001", "calibration_key": "s"}
OTHER = {"epsilon": "inf", "noise_multiplier": "0", "privacy_delta": "0.00001", "calibration_key": "s"}


def test_the_calibrated_noise_has_no_problem():
    assert against_noise([RUN, {**RUN, "epsilon": "inf", "noise_multiplier": "0.0"}], [ROW, OTHER]) == []
    assert against_noise([], [ROW]) == []


def test_noise_that_was_not_calibrated_is_named():
    problems = against_noise([{**RUN, "noise_multiplier": "1.4"}], [ROW, OTHER])
    assert problems == ["noise_multiplier of seed 0 is 1.4, calibrated was 1.50"]
    assert against_noise([{**RUN, "epsilon": "3"}], [ROW, OTHER]) == ["a run has no row in the noise calibration"]


@pytest.mark.parametrize(
    ("written", "exact", "is_found"),
    [
        ("0.0126582278481012", "0.012658227848101266", False),
        ("0.0012787723785166", "0.0012787723785166241", False),
        ("0.0126582278481", "0.012658227848101266", True),
        ("0.001278772378516", "0.0012787723785166241", True),
        ("0.0012787723785167", "0.0012787723785166241", True),
        ("0.0126582278481013", "0.0126582278481012", True),
    ],
)
def test_a_number_may_have_been_cut_after_sixteen_decimals_and_not_before(written, exact, is_found):
    """As a machine with another pandas wrote the sampling rates 1/79 and 1/782."""
    rate = {**ROW, "privacy_sample_rate": exact}
    assert bool(against_noise([{**RUN, "privacy_sample_rate": written}], [rate])) is is_found


def test_a_cell_that_gives_its_noise_has_no_target_epsilon():
    told = [{"epsilon": "inf", "sigma": "nan"}, {"epsilon": "nan", "sigma": "1.5"}]
    calibrated = [{"epsilon": "inf", "sigma": each["sigma"], "noise_multiplier": "3"} for each in told]
    assert against_noise([{**each, "noise_multiplier": "3"} for each in told], calibrated) == []
    calibrated[1]["noise_multiplier"] = "4"
    problems = against_noise([{**each, "seed": "0", "noise_multiplier": "3"} for each in told], calibrated)
    assert problems == ["noise_multiplier of seed 0 is 3, calibrated was 4"]


@pytest.mark.parametrize(
    ("column", "stated", "now", "is_found"),
    [
        ("privacy_epsilon_proven", "2.5", "2.0", False),
        ("privacy_epsilon_proven", "2.0001", "2.0002", False),
        ("privacy_epsilon_proven", "1.9", "2.0", True),
        ("privacy_epsilon_proven", "1.9", "inf", True),
        ("privacy_epsilon_contraction", "1.9", "2.0", True),
        ("privacy_epsilon_refuted", "1.4", "1.5", False),
        ("privacy_epsilon_refuted", "1.6", "1.5", False),  # a mended lower end: counted
        ("privacy_proven_by", "the clones bound", "the blanket bound", False),
        ("privacy_delta", "1e-5", "1e-6", True),
        ("noise_multiplier", "1.5", "1.6", True),
        ("noise_multiplier", "1.5", "1.5000009", False),
        ("noise_multiplier", "1.5", "1.50001", True),
        ("privacy_noise_multiplier", "1.5", "1.5000009", False),
        *(
            ("privacy_mechanism", '{"kind": "Segmented", "segments": [{"rounds": 3, "sigma": 1.5}]}', now, is_found)
            for now, is_found in (
                ('{"kind": "Segmented", "segments": [{"rounds": 3, "sigma": 1.5000009}]}', False),
                ('{"kind": "Segmented", "segments": [{"rounds": 3, "sigma": 1.50001}]}', True),
                ('{"kind": "Segmented", "segments": [{"rounds": 4, "sigma": 1.5}]}', True),
                ('{"kind": "Segmented", "segments": []}', True),
                ('{"kind": "Gaussian", "segments": [{"rounds": 3, "sigma": 1.5}]}', True),
                ('{"kind": "Segmented", "segments": [{"rounds": 3, "sigma": 1.5', True),
            )
        ),
    ],
)
def test_what_an_earlier_calibration_proved_may_be_less_than_what_is_proven_now(column, stated, now, is_found):
    told, calibrated = [{**RUN, column: stated}], [{**ROW, column: now}]
    assert len(against_noise(told, calibrated)) == 1
    assert len(against_noise(told, calibrated, earlier=True)) == is_found


def test_cells_that_differ_in_their_noise_alone_each_have_their_own_row():
    rows = [{"noise_std": noise, "noise_multiplier": noise, "privacy_delta": noise} for noise in ("0", "0.25", "0.5")]
    told = [{"noise_std": "0.25", "noise_multiplier": "0.25", "privacy_delta": "0.25", "seed": "0"}]
    assert against_noise(told, rows) == []
    assert len(against_noise([{**told[0], "privacy_delta": "0.5"}], rows)) == 1
    assert len(against_noise([{**told[0], "noise_std": "0.3"}], rows)) == 3


@pytest.mark.parametrize(
    ("stated", "now", "is_more"),
    [("1.6", "1.5", True), ("1.5", "1.5", False), ("", "1.5", False), ("1.6", "", False), ("1.5001", "1.5", False)],
)
def test_an_epsilon_that_is_refuted_no_more_is_seen(stated, now, is_more):
    told, calibrated = [{**RUN, "privacy_epsilon_refuted": stated}], [{**ROW, "privacy_epsilon_refuted": now}]
    assert refutes_more(told, calibrated) is is_more
    assert not refutes_more([RUN], [ROW])


# Run tables against grid, calibration and themselves.


CELLS = ({"epsilon": 2.0, "split": [1, 2]}, {"epsilon": math.inf, "split": [1, 2]})
JOB = TrainingJob("p", "a", "s_seeds0to1", {"dataset": "d"}, CELLS, (0, 1))


def runs():
    """A run table: two cells, two seeds."""
    return [
        {"epsilon": epsilon, "seed": seed, "status": "finished", "noise_multiplier": noise, "accuracy_pct": "90.5",
         "accuracy_pct_by_round": "[80.0, 90.50]", "privacy_delta": "1e-05"}
        for epsilon, noise in (("2.0", "1.5"), ("inf", "0.0")) for seed in ("0", "1")
    ]  # fmt: skip


def test_a_whole_table_has_no_problem():
    assert against_grid(runs(), JOB) == against_itself(runs()) == []


def test_a_lost_cell_seed_or_run_is_named():
    assert against_grid([run for run in runs() if run["epsilon"] == "2.0"], JOB) == ["has no run of epsilon=inf"]
    assert "has no run of seed 1" in against_grid([run for run in runs() if run["seed"] == "0"], JOB)[0]
    assert against_grid(runs()[1:], JOB) == ["has 1 runs of seed 0, should have 2"]
    lists = replace(JOB, cells=({"several": [1]}, {"several": [2]}))
    assert against_grid(runs()[2:], lists) == ["has 1 runs of seed 0, should have 2"]
    assert against_grid([], JOB) == ["has no runs"]


def test_a_result_that_is_not_that_of_the_last_round_is_named():
    other = runs()
    other[3]["accuracy_pct"] = "91"
    assert against_itself(other) == ["accuracy_pct of seed 1 is 91, after its last round 90.5"]
    other[3]["status"] = "diverged"
    assert against_itself(other) == []


def test_a_cell_that_gives_its_noise_is_known_by_it():
    cells = tuple({"epsilon": math.inf, "sigma": sigma} for sigma in (None, 1.5))
    job = TrainingJob("p", "a", "s_seed0", {}, cells, (0,))
    told = [{"epsilon": "inf", "sigma": "nan"}, {"epsilon": "nan", "sigma": "1.5"}]
    rows = [{**each, "seed": "0", "status": "finished", "noise_multiplier": "3"} for each in told]
    assert against_grid(rows, job) == []
    assert against_grid(rows[:1], job) == ["has no run of sigma=1.5"]


@pytest.mark.parametrize("stated", [None, ""])
def test_runs_that_state_no_privacy_are_named(tmp_path, stated):
    silent = [run if stated is None else {**run, "privacy_mechanism": stated} for run in runs()]
    path = run_table_path(tmp_path / "results" / "demo", JOB.paper, JOB.name)
    write_table(pd.DataFrame(silent), path)
    report = Audit()
    check_runs(report, tmp_path, "demo", [JOB])
    assert "has runs that do not state their privacy" in [finding.problem for finding in report.findings]


# Controls: rows whose epsilon is false on purpose.


DIGITS = {"name": "digits", "records": {"train": 1437, "test": 360}, "stand_in_for": "mnist", "note": ""}
DIABETES = {"name": "diabetes", "records": {"all": 442}, "stand_in_for": "insurance", "note": ""}
CONTROLS = {
    "vandijk2023": ("digits_messages_seed0", DIGITS, 1),
    "lowy2021": ("canaries_diabetes_k3_tight_fixed_without_replacement_mean_seeds0to2", DIABETES, 3),
    "bhaskar2025": ("canaries_digits_scatter_linear_k10_seed0", DIGITS, 0),
}
"""Of each paper with an attack its job, the data's description, and how many controls it has."""


@pytest.fixture(scope="session")
def attacked():
    """Of each of these papers: the job, its calibrated noise and its run table, without what an attack finds."""
    known = {(job.paper, job.name): job for job in expansion.expand(configuration.resolve({"scale": "demo"}))}
    made = {}
    for paper, (name, description, _) in CONTROLS.items():
        job = replace(known[paper, name], resources={"device": "cpu", "threads": 1, "memory_gb": 1})
        noise = experiments.load("canaries").calibrate(job, description).astype(object)
        rows = [
            {"seed": seed, "status": "finished", "clipping": job.settings.get("clipping"), **own,
             **{key: value for key, value in {**job.settings, **cell}.items() if isinstance(value, str | int | float)},
             "batch_size": own.get("batch_size", job.settings["batch_size"]), "known_bad": is_bad}
            for cell, own, is_bad in zip(job.cells, noise.to_dict("records"), experiments.known_bad(job), strict=True)
            for seed in job.seeds
        ]  # fmt: skip
        made[paper] = job, noise.assign(calibration_key=job.calibration_key), pd.DataFrame(rows, dtype=object)
    return made


@pytest.fixture
def audited(attacked, tmp_path):
    """What an audit finds in a paper's run table, after a change of a copy of it, and what it notes."""

    def audit(paper, change=lambda table: None, **settings):
        job, noise, table = attacked[paper]
        table = table.copy()
        change(table)
        folder = tmp_path / "results" / "demo"
        folder.joinpath("accounting").mkdir(parents=True, exist_ok=True)
        noise.to_csv(expansion.noise_table_path(folder, paper), index=False)
        write_table(table, run_table_path(folder, paper, job.name))
        report = Audit()
        known = check_runs(report, tmp_path, "demo", [replace(job, **settings)])
        report.join(check_epsilons(tmp_path, known.items()))
        return [finding.problem for finding in report.findings], report.notes

    return audit


@pytest.mark.parametrize("paper", CONTROLS)
def test_a_control_whose_experiment_plants_it_is_accepted_and_counted(audited, paper):
    problems, notes = audited(paper)
    words = (
        f"controls of attacks, marked known_bad, whose stated epsilon is false on purpose: {CONTROLS[paper][2]} runs"
    )
    assert problems == [] and (words in notes) == (CONTROLS[paper][2] > 0)


@pytest.mark.parametrize("paper", ["vandijk2023", "lowy2021"])
def test_a_control_that_is_not_marked_is_found(audited, paper):
    problems, _ = audited(paper, lambda table: table.__setitem__("known_bad", False))
    assert any("known_bad of seed 0 is False, by experiment canaries True" in each for each in problems)
    assert any("states epsilon_proven" in each for each in problems)


@pytest.mark.parametrize("paper", ["vandijk2023", "bhaskar2025"])
def test_a_mark_excuses_no_false_epsilon_of_a_run_that_is_no_control(audited, paper):
    def change(table):
        table.loc[0, ["known_bad", "privacy_epsilon_proven"]] = True, 0.5

    problems, _ = audited(paper, change)
    assert "known_bad of seed 0 is True, by experiment canaries False" in problems
    assert any("states epsilon_proven 0.5 for" in each for each in problems)


def test_a_mark_in_a_table_of_another_experiment_is_found(audited):
    def change(table):
        table.loc[0, ["known_bad", "privacy_epsilon_proven"]] = True, 0.5

    problems, _ = audited("bhaskar2025", change, experiment="fedavg_images")
    assert "known_bad of seed 0 is True, by experiment fedavg_images False" in problems
    assert any("states epsilon_proven 0.5 for" in each for each in problems)
    problems, notes = audited("vandijk2023", experiment="async_dpsgd")
    assert "known_bad of seed 0 is True, by experiment async_dpsgd False" in problems and "controls" not in str(notes)
    assert any("statistics without noise, no guarantee gives inf to inf" in each for each in problems)


def test_a_run_that_only_says_that_it_has_the_fault_is_no_control(audited):
    def change(table):
        table.loc[0, ["known_bad", "preparation"]] = True, "batch_normalised"

    problems, _ = audited("vandijk2023", change)
    assert "has no run of epsilon=2.0, preparation=none, scenario=synchronous" in problems


@pytest.mark.parametrize("paper", ["vandijk2023", "lowy2021"])
def test_a_control_states_what_is_proven_without_its_fault(audited, paper):
    def change(table, epsilon):
        table.loc[table["known_bad"].astype(bool), "privacy_epsilon_proven"] = epsilon

    problems, _ = audited(paper, lambda table: change(table, 0.5))
    assert any(each.startswith("states epsilon_proven 0.5 for") for each in problems)
    problems, _ = audited(paper, lambda table: change(table, math.inf))
    assert any("marked known_bad, but states no epsilon" in each for each in problems)


def test_a_control_whose_epsilon_is_proven_is_found(audited):
    problems, _ = audited("lowy2021", lambda table: table.__setitem__("clipping", "record"))
    assert problems and all("is marked known_bad, but its epsilon_proven" in each for each in problems)
