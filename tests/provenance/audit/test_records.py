"""A record's own words against the grid, the papers, its siblings and the stages before it."""

import copy

import pytest

from dpfl.grid import configuration, expansion
from dpfl.provenance.audit.findings import Audit
from dpfl.provenance.audit.records import Context, check_records

CONFIG = configuration.resolve(
    {"papers": ["bhaskar2025"], "seeds": [0, 1], "only": {"model": ["scatter_linear"], "study": ["none"]}}
)
JOBS = [each for each in expansion.expand(CONFIG) if each.calibration_key == "digits_scatter_linear_k10"]
RUNS = [f"results/demo/runs/bhaskar2025/{job.name}.csv.gz" for job in JOBS]
NOISE, TABLE = "results/demo/accounting/bhaskar2025.csv", "results/demo/tables/bhaskar2025_table_2.csv"
CLAIMS = "results/demo/claims/bhaskar2025.csv"
ARRAYS = [f"data/arrays/digits/{name}" for name in ("description.json", "train_x.npy")]
FEATURES = ["data/features/digits/description.json"]


def entry(path):
    """A file as records name it."""
    return {"path": path, "bytes": 1, "sha256": f"sha256 of {path}"}


def record(stage, minute, outputs, inputs=(), settings=None, seeds=(), modules=("dpfl.data.arrays",)):
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
    pages = ["dpfl.papers.bhaskar2025.tables", "dpfl.reporting.tables"]
    made = [
        record("data arrays", 0, ARRAYS), record("features", 1, FEATURES, ARRAYS),
        record("account", 2, [NOISE], ARRAYS[:1], {"paper": "bhaskar2025", "scale": "demo"}, modules=code),
        *(record("train", 4, [path], [NOISE, *ARRAYS, *FEATURES], job.settings, job.seeds, code)
          for path, job in zip(RUNS, JOBS, strict=True)),
        record("tables", 8, [TABLE], RUNS, {"paper": "bhaskar2025", "name": "table_2"}, modules=pages),
        record("claims", 10, [CLAIMS], [TABLE], {"paper": "bhaskar2025"},
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
    for path, record in honest.items():
        if record["stage"] == "train":
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


def test_a_raw_file_of_another_hash_than_the_published_one_is_found(honest):
    raw = "data/raw/mnist/t10k-labels-idx1-ubyte"
    honest[raw] = record("data fetch", 0, [raw])
    assert [path for path, _ in found(honest)[0]] == [raw]
    published = "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"
    honest[raw]["outputs"][0]["sha256"] = published
    assert found(honest)[0] == []


def test_noise_and_data_made_again_are_counted(honest):
    honest[NOISE]["outputs"][0]["sha256"] = "calibrated anew"
    honest[FEATURES[0]]["started"] = "2026-01-02T00:00:00+00:00"
    problems, notes = found(honest)
    assert problems == [] and [note.rpartition(": ")[2] for note in notes] == ["2 run tables", "2 run tables"]
