import math

import pytest

from dpfl.catalog import Paper
from dpfl.errors import InputError
from dpfl.grid import configuration as config
from dpfl.grid import expansion
from dpfl.grid.training_job import is_private


def resolved(**keys):
    return config.resolve(keys)


def test_scale_paper_of_bhaskar2025_trains_ten_runs_of_every_published_cell_where_ten_seeds_are_asked_for():
    jobs = expansion.expand(resolved(scale="paper", papers=["bhaskar2025"], seeds=list(range(10))))
    runs = sum(len(job.cells) * len(job.seeds) for job in jobs if "study" not in job.settings)
    # 216 cells of Tables 2 to 4 and the 48 of Table 5 that they do not contain
    assert runs == (216 + 48) * 10
    assert len({(job.paper, job.name) for job in jobs}) == len(jobs)


def test_a_capped_entry_takes_only_its_own_seeds_from_the_configuration():
    def seeds(chosen):
        jobs = expansion.expand(resolved(scale="paper", papers=["bhaskar2025"], seeds=chosen))
        capped = {job.name: job.settings.get("study", "central_model") != "central_model" for job in jobs}
        return {each: {seed for job in jobs if capped[job.name] is each for seed in job.seeds}
                for each in (True, False)}  # fmt: skip

    # Studies have one seed, three or ten; that of the central model, which may become the published cell, is free.
    assert seeds(None) == {True: set(range(10)), False: set(range(10))}
    assert seeds([0, 3, 11]) == {True: {0, 3}, False: {0, 3, 11}}
    assert seeds([11]) == {True: set(), False: {11}}


def test_names_say_which_setting_a_candidate_changes():
    names = {job.name for job in expansion.expand(resolved(scale="paper", papers=["bhaskar2025"]))}
    assert {"readings_mnist_scatter_linear_k10_rdp_seed0", "distances_mnist_scatter_linear_k25_seed0"} <= names


def test_two_entries_that_would_share_a_noise_are_refused(monkeypatch):
    """Other seeds a job give other names, and the same calibration."""
    base = {"experiment": "fedavg_images", "cells": {"epsilon": [2.0]}, "sweep": {"dataset": ["mnist"]}}

    def expanded(**other):
        entries = [
            {**base, "seeds": {"count": 1, "per_job": 1}},
            {**base, "seeds": {"count": 2, "per_job": 2}, **other},
        ]
        monkeypatch.setattr(expansion, "load", lambda key: paper_of({"demo": entries}))
        return expansion.expand(resolved(papers=["bhaskar2025"]))

    assert [job.name for job in expanded()] == ["mnist_seed0", "mnist_seeds0to1"]
    with pytest.raises(InputError, match=r"mnist_seed0 and mnist_seeds0to1 differ in their settings, but would share"):
        expanded(settings={"delta": 1e-6})


def test_a_job_s_name_says_its_axes_and_its_seeds(monkeypatch):
    """By hand; names are part of paths that a record and the shipped results have."""
    base = {"experiment": "fedavg_images", "cells": {"epsilon": [2.0]}}
    sweep = {"dataset": ["mnist"], "batch_size": [32], "clients": [10], "delta": [1e-6], "rounds": [35], "x": ["a b.c"]}

    def named(count, per_job, chosen=None, **axes):
        grid = {"demo": [{**base, "sweep": {**sweep, **axes}, "seeds": {"count": count, "per_job": per_job}}]}
        monkeypatch.setattr(expansion, "load", lambda key: paper_of(grid))
        return [job.name for job in expansion.expand(resolved(papers=["bhaskar2025"], seeds=chosen))]

    assert named(1, 1) == ["mnist_b32_k10_delta1e_06_r35_a_b_c_seed0"]
    axes = "mnist_b32_k10_delta1e_06_r35_a_b_c"
    assert named(7, 3) == [f"{axes}_seeds0to2", f"{axes}_seeds3to5", f"{axes}_seed6"]
    assert named(7, 3, [1, 3, 4]) == [f"{axes}_seeds1_3_4"]
    longest = "x" * (180 - len(f"{axes}_seed0") + len("a_b_c"))
    assert [len(name) for name in named(1, 1, x=[longest])] == [180]
    with pytest.raises(InputError, match=r"^short/grid.yaml: the file name .* is too long"):
        named(1, 1, x=[longest + "x"])


def test_a_part_tells_two_entries_with_the_same_axes_apart():
    only = {"dataset": ["mnist"], "model": ["cnn_relu"], "clients": [10], "study": ["none"]}
    jobs = expansion.expand(resolved(scale="paper", papers=["bhaskar2025"], only=only, seeds=[4]))
    splits = {job.name: {cell["local_epochs"] for cell in job.cells} for job in jobs}
    assert splits == {"mnist_cnn_relu_k10_steady_seed4": {1, 2, 4, 5}, "mnist_cnn_relu_k10_collapsing_seed4": {10, 20}}
    assert [job.calibration_key for job in jobs] == ["mnist_cnn_relu_k10_steady", "mnist_cnn_relu_k10_collapsing"]


def test_every_job_is_found_by_its_name_and_cells_carry_their_axes():
    configuration = resolved(scale="quick")
    for job in expansion.expand(configuration):
        assert expansion.find(configuration, job.paper, job.name) == job
    [job] = [s for s in expansion.expand(configuration) if s.name == "mnist_scatter_linear_k10_seed0"]
    assert {"epsilon": 2.93, "local_epochs": 1, "rounds": 20} in job.cells
    assert len(job.cells) == 18 and job.seeds == (0,) and job.needs_features
    assert job.calibration_key == "mnist_scatter_linear_k10"


def test_only_restricts_jobs_and_cells():
    only = {"dataset": ["mnist"], "model": ["scatter_linear"], "epsilon": [2.93], "local_epochs": [1], "clients": [10]}
    jobs = expansion.expand(resolved(scale="quick", papers=["bhaskar2025"], only=only, seeds=[3, 7]))
    assert [job.name for job in jobs] == ["mnist_scatter_linear_k10_seed3", "mnist_scatter_linear_k10_seed7"]
    assert all(job.cells == ({"epsilon": 2.93, "local_epochs": 1, "rounds": 20},) for job in jobs)


def test_only_restricts_what_an_entry_sets_once_for_all_its_jobs():
    """The model of asoodeh2021 and the clients of vandijk2023 are settings of their entries, and no axes."""
    models = expansion.expand(resolved(papers=["asoodeh2021"], only={"model": ["synthetic_logistic"]}))
    studies = {job.settings["study"] for job in models if "model" in job.settings}
    assert studies == {"dimension", "example", "convex"}
    clients = expansion.expand(resolved(papers=["vandijk2023", "bhaskar2025"], only={"clients": [10]}))
    assert {job.paper for job in clients} == {"bhaskar2025"}


def test_a_cell_s_value_counts_where_its_entry_sets_another():
    jobs = expansion.expand(resolved(papers=["vandijk2023"], only={"epsilon": [8.0]}))
    assert {cell["epsilon"] for job in jobs for cell in job.cells if "epsilon" in cell} == {8.0}


def test_epsilon_inf_keeps_the_runs_without_privacy():
    jobs = expansion.expand(resolved(papers=["bhaskar2025"], only={"epsilon": [math.inf]}))
    assert jobs and not any(is_private(cell) for job in jobs for cell in job.cells)


def test_a_cell_that_another_scale_has_is_named():
    only = {"dataset": ["fashion_mnist"], "model": ["cnn_tanh"], "clients": [10], "epsilon": [1.2]}
    with pytest.raises(InputError, match="no run of scale quick; scale paper has some, which replaces run tables"):
        expansion.expand(resolved(scale="quick", papers=["bhaskar2025"], only=only))
    only["epsilon"] = [2.93]
    with pytest.raises(InputError, match="no run of scale paper; no scale has one: widen it"):
        expansion.expand(resolved(scale="paper", papers=["bhaskar2025"], only=only))


def test_a_restriction_that_leaves_nothing_is_refused():
    with pytest.raises(InputError, match=r"only: .*digits_rgb.*25.*demo"):
        only = {"dataset": ["digits_rgb"], "clients": [25]}
        expansion.expand(resolved(papers=["bhaskar2025"], only=only))


@pytest.mark.parametrize(
    ("only", "words"),
    [
        ({"dataset": ["cifar10"]}, ["only.dataset", "cifar10", "demo", "digits_rgb"]),
        ({"clients": [10, 11]}, ["only.clients", "11", "25"]),
        ({"epsilon": [2.931]}, ["only.epsilon", "2.931", "2.93", "inf"]),
        ({"study": ["none", "nonsense"]}, ["only.study", "nonsense", "sampling"]),
        ({"model": ["cnn"]}, ["only.model", "cnn", "cnn_relu"]),
    ],
)
def test_a_value_that_no_run_has_is_refused_with_those_that_there_are(only, words):
    with pytest.raises(InputError) as caught:
        expansion.expand(resolved(only=only))
    assert all(word in str(caught.value) for word in words), caught.value


def test_an_unknown_job_is_named():
    with pytest.raises(InputError, match="no job nonsense of bhaskar2025"):
        expansion.find(resolved(), "bhaskar2025", "nonsense")


def test_the_digest_sees_numbers_but_not_the_machine():
    def first(**keys):
        return expansion.expand(resolved(papers=["bhaskar2025"], **keys))[0].digest()

    assert first() == first(training={"threads": 2, "memory_gb": 4})
    assert first() != first(seeds=[5])
    assert first() != first(only={"epsilon": [1.2]})


def test_studies_can_be_left_out_or_picked():
    names = {job.name for job in expansion.expand(resolved(papers=["bhaskar2025"], only={"study": ["none"]}))}
    picked = {job.name for job in expansion.expand(resolved(papers=["bhaskar2025"], only={"study": ["distances"]}))}
    assert "digits_scatter_linear_k10_seed0" in names - picked
    assert not any("distances" in name for name in names)
    assert picked and all(name.startswith("distances") for name in picked)
    both = expansion.expand(resolved(papers=["bhaskar2025"], only={"study": ["none", "distances"]}))
    assert {job.name for job in both} == names | picked


def paper_of(grid):
    """A paper with this grid and two settings."""
    return Paper("short", "t", "a", "p", "u", {"batch_size": 64, "delta": 1e-5}, grid, {}, {}, {}, {})


SHORT = {
    "lists": {"budgets": {"mnist": [math.inf, 2.0], "cifar10": [8.0]}, "splits": [[1, 20], [20, 1]]},
    "base": {
        "experiment": "fedavg_images",
        "seeds": {"count": 1, "per_job": 1},
        "sweep": {"dataset": ["mnist"], "clients": [10]},
        "cells": {"epsilon": "budgets", "local_epochs,rounds": "splits"},
    },
    "demo": [
        {"study": "choices", "sweep": {"dataset": ["mnist", "cifar10"]},
         "vary": {"batch_size": [32, 128], "delta": [1e-6]}},
    ],
}  # fmt: skip
WRITTEN_OUT = {
    "demo": [
        {"experiment": "fedavg_images", "seeds": {"count": 1, "per_job": 1},
         "sweep": {"study": ["choices"], "dataset": [dataset], "clients": [10], **varied},
         "cells": {"epsilon": budgets, "local_epochs,rounds": [[1, 20], [20, 1]]}}
        for varied in ({"batch_size": [32, 128]}, {"delta": [1e-6]})
        for dataset, budgets in (("mnist", [math.inf, 2.0]), ("cifar10", [8.0]))
    ],
}  # fmt: skip


def test_a_study_that_says_what_it_varies_gives_the_jobs_of_all_entries_written_out(monkeypatch):
    def expanded(grid):
        monkeypatch.setattr(expansion, "load", lambda key: paper_of(grid))
        return expansion.expand(resolved(papers=["bhaskar2025"]))

    short, written_out = expanded(SHORT), expanded(WRITTEN_OUT)
    assert short == written_out and len(short) == 2 * 3
    assert [job.settings["batch_size"] for job in short] == [32, 128, 32, 128, 64, 64]
    assert short[0].name == "choices_mnist_k10_b32_seed0"
    [entry] = SHORT["demo"]
    said = {name: entry[name] for name in ("study", "vary")}  # where all entries share them
    assert expanded({**SHORT, "base": {**SHORT["base"], **said}, "demo": [{"sweep": entry["sweep"]}]}) == short


@pytest.mark.parametrize(
    ("cells", "named"),
    [
        ({"epsilon": "budget"}, "no list 'budget' for mnist; add it to `lists`"),
        ({"local_epochs,rounds": [[1, 20], 20]}, "local_epochs,rounds has 20, should be a list of 2 values"),
    ],
)
def test_a_slip_in_the_cells_is_named_with_its_file(cells, named, monkeypatch):
    grid = {**SHORT, "base": {**SHORT["base"], "cells": cells}}
    monkeypatch.setattr(expansion, "load", lambda key: paper_of(grid))
    with pytest.raises(InputError, match=f"^short/grid.yaml: {named}"):
        expansion.expand(resolved(papers=["bhaskar2025"]))


@pytest.mark.parametrize("cells", [{"epsilon": "budget"}, {"epsilon": "budgets"}])
def test_a_list_that_the_grid_does_not_have_is_named(cells, monkeypatch):
    grid = {**SHORT, "demo": [{"sweep": {"dataset": ["insurance"]}, "cells": cells}]}
    monkeypatch.setattr(expansion, "load", lambda key: paper_of(grid))
    with pytest.raises(InputError, match=f"{cells['epsilon']}.*insurance"):
        expansion.expand(resolved(papers=["bhaskar2025"]))


def test_the_configuration_s_precision_is_a_setting_of_the_jobs_that_have_one():
    """A setting, and no resource: it decides the numbers, and so a run's identity. What compares both keeps its own,
    and so do canaries, which train in float32 alone."""
    base, other = (
        expansion.expand(resolved(training={"precision": precision}, papers=["bhaskar2025", "lowy2021"]))
        for precision in (None, "bfloat16")
    )
    named = ("precision", "canaries")
    compared = ["precision" in one.settings and one.settings.get("study") in named for one in base]
    for kept, one, two in zip(compared, base, other, strict=True):
        assert "precision" not in two.resources
        if kept:
            assert one == two
            continue
        assert one.settings.get("precision") in ("float32", None)
        assert two.settings == one.settings | ({"precision": "bfloat16"} if "precision" in one.settings else {})
        assert (one.digest() == two.digest()) is ("precision" not in one.settings)
    assert {one.settings["precision"] for kept, one in zip(compared, base, strict=True) if kept} == {
        "float32",
        "bfloat16",
    }
