"""`dpfl.results`: the shipped results and a small set of our own, from folders, checkouts and crates."""

import itertools
import json
import math
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpfl import results as r
from dpfl.errors import InputError
from dpfl.grid import configuration, expansion
from dpfl.provenance import archive
from dpfl.reporting.results import NotRunError, read_csv, write_table

SETTINGS = {"paper": "bhaskar2025", "experiment": "fedavg_images", "dataset": "digits", "stand_in_for": "mnist"}


def run(seed, accuracies, **settings):
    """A row of a run table."""
    listed = {"accuracy_pct": accuracies[-1], "accuracy_pct_by_round": json.dumps(accuracies), "noise_multiplier": 1.0}
    return {**SETTINGS, "model": "cnn_tanh", **settings, "seed": seed, "status": "finished", **listed}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A checkout with results of scale demo: two jobs of one experiment, one of another, a table and a figure."""
    folder = tmp_path_factory.mktemp("checkout") / "results" / "demo"
    runs = folder / "runs" / "bhaskar2025"
    first = [run(0, [10.0, 30.0, 50.0], rounds=3), run(1, [12.0, 34.0, 54.0], rounds=3)]
    # The second job has a setting that the first lacks, and a list of another length than its rounds.
    second = [run(0, [60.0], rounds=1, study="readings", shape="[1, 2]")]
    canaries = [{**SETTINGS, "experiment": "canaries", "seed": 0, "status": "finished", "epsilon_lower_bound": 1.5}]
    for name, rows in {"a": first, "b": second, "c": canaries}.items():
        write_table(pd.DataFrame(rows), runs / f"{name}.csv.gz")
    write_table(pd.DataFrame(first), runs / "left_from_an_earlier_grid.csv.gz")
    cells = {"model": ["cnn_tanh", "cnn_tanh"], "rounds": [3, 1], "accuracy_pct": [52.0, 60.0]}
    write_table(pd.DataFrame({**cells, "origins": ["a:0 a:1", "b:0"]}), folder / "tables" / "bhaskar2025_table_2.csv")
    write_table(pd.DataFrame({"not_run": ["no run of it"]}), folder / "figures" / "bhaskar2025_splits.csv")
    return folder.parents[1]


def test_a_run_becomes_a_row_for_each_round(checkout):
    rows = r.runs("bhaskar2025", checkout, rounds=3)
    assert list(rows["round"]) == [1, 2, 3, 1, 2, 3] and list(rows["seed"]) == [0, 0, 0, 1, 1, 1]
    assert list(rows["accuracy_pct"]) == [10, 30, 50, 12, 34, 54]
    assert "accuracy_pct_by_round" not in rows and set(rows["origin"]) == {"a:0", "a:1"} and set(rows["job"]) == {"a"}


def test_a_run_that_two_jobs_trained_stands_once(checkout):
    assert len(r.runs("bhaskar2025", checkout)) == 2 * 3 + 1 + 1  # rounds of a, of b, and the canaries' end
    [fedavg, _] = r.run_tables("bhaskar2025", checkout)
    assert fedavg.columns.get_loc("study") < fedavg.columns.get_loc("seed"), "a setting of the second job alone"


def test_conditions_choose_runs_and_say_what_there_is(checkout):
    assert set(r.runs("bhaskar2025", checkout, study=None, experiment="fedavg_images")["seed"]) == {0, 1}
    assert len(r.runs("bhaskar2025", checkout, rounds=[1, 3])) == 7
    assert list(r.runs("bhaskar2025", checkout, study="readings")["accuracy_pct"]) == [60.0]
    with pytest.raises(InputError, match="no rounds 7; there are 1, 3"):
        r.runs("bhaskar2025", checkout, rounds=7)
    with pytest.raises(InputError, match="has no column colour; there are paper"):
        r.runs("bhaskar2025", checkout, colour="red")
    with pytest.raises(InputError, match=r"no runs of lowy2021 in .*; there are runs of bhaskar2025"):
        r.runs("lowy2021", checkout)


def test_measured_lists_that_some_runs_lack_are_spread_and_others_left_out(tmp_path):
    """A list with no number a round is no column; the row of a run without a list is missing, not text."""
    rows = [run(0, [1.0, 2.0], rounds=2), run(1, [3.0], rounds=1)]
    rows = [
        {**rows[0], "distance_to_plain": "[5.0, 6.0]", "by_client": "[1, 2, 3]"},
        {**rows[1], "distance_to_plain": math.nan, "by_client": "[1]"},
    ]
    write_table(pd.DataFrame(rows), tmp_path / "results/demo/runs/bhaskar2025/a.csv.gz")
    found = r.runs("bhaskar2025", tmp_path)
    assert found["distance_to_plain"].dtype == float and "by_client" not in found
    assert found["distance_to_plain"].fillna(-1).tolist() == [5.0, 6.0, -1.0]


def test_a_damaged_list_is_named(checkout, tmp_path):
    rows = pd.DataFrame([{**run(0, [1.0], rounds=1), "accuracy_pct_by_round": "[1.0"}])
    write_table(rows, tmp_path / "results/demo/runs/bhaskar2025/a.csv.gz")
    with pytest.raises(InputError, match="for a list of numbers"):
        r.runs("bhaskar2025", tmp_path)


def test_tables_list_what_was_run_and_what_was_not(checkout):
    listed = r.tables(checkout)
    assert list(listed.columns) == list(r.COLUMNS["tables"])
    assert listed[["kind", "name", "rows", "not_run"]].to_numpy().tolist() == [
        ["tables", "table_2", 2, ""],
        ["figures", "splits", 0, "no run of it"],
    ]
    assert listed["title"].iloc[0].startswith("Table 2: accuracy on MNIST")
    assert list(r.table("bhaskar2025", 2, checkout)["accuracy_pct"]) == [52, 60]
    with pytest.raises(NotRunError, match="no run of it"):
        r.figure("bhaskar2025", "splits", checkout)
    with pytest.raises(InputError, match=r"no table table_9 of bhaskar2025 in .*; there are table_2"):
        r.table("bhaskar2025", 9, checkout)


def test_every_source_gives_the_same_runs(checkout, tmp_path, monkeypatch):
    crate = tmp_path / "demo.crate.zip"
    with zipfile.ZipFile(crate, "w") as archive:
        archive.writestr("../../outside.csv", "not ours")
        for path in (path for path in checkout.rglob("*") if path.is_file()):
            archive.write(path, path.relative_to(checkout))
    with zipfile.ZipFile(crate) as archive:
        archive.extractall(tmp_path / "unpacked", [name for name in archive.namelist() if name.startswith("results")])
    (checkout / "docs").mkdir(exist_ok=True)
    monkeypatch.chdir(checkout / "docs")
    for source in ("demo", checkout / "results" / "demo", crate, tmp_path / "unpacked", str(checkout)):
        pd.testing.assert_frame_equal(r.runs("bhaskar2025", source), r.runs("bhaskar2025", checkout))
    assert not list(tmp_path.parent.rglob("outside.csv"))


def test_what_is_no_source_is_named(tmp_path, checkout, monkeypatch):
    (tmp_path / "results/quick/runs").mkdir(parents=True)
    (tmp_path / "results/demo/runs").mkdir(parents=True)
    with pytest.raises(InputError, match="several results: name one of"):
        r.tables(tmp_path)
    (tmp_path / "page.zip").write_text("no archive")
    with pytest.raises(InputError, match=r"page\.zip is not a crate"):
        r.tables(tmp_path / "page.zip")
    with pytest.raises(InputError, match="nowhere is not there"):
        r.tables("nowhere")
    with pytest.raises(InputError, match="has no results of dpfl"):
        r.tables(tmp_path / "results/quick/runs")
    monkeypatch.setattr(archive, "LARGEST", 300)
    with zipfile.ZipFile(tmp_path / "large.zip", "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("results/demo/tables/x.csv", "a\n" * 200)
    with pytest.raises(InputError, match="unpacks to more than"):
        r.tables(tmp_path / "large.zip")


def a_file_and_a_folder(path):
    """An archive with a file where another member has a folder."""
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("results/demo", "a")
        made.writestr("results/demo/tables/x.csv", "a")


def test_a_crate_with_a_file_in_place_of_a_folder_is_refused_without_naming_a_temporary_folder(tmp_path):
    a_file_and_a_folder(tmp_path / "a.zip")
    with pytest.raises(InputError, match=r"a\.zip is not a crate: results/demo/tables/x\.csv: ") as refused:
        r.tables(tmp_path / "a.zip")
    assert "dpfl-crate-" not in str(refused.value)


def test_learning_curves_are_those_of_the_runs_behind_a_row(checkout):
    found = r.curves("bhaskar2025", 2, checkout)
    assert list(found.columns) == list(r.COLUMNS["curves"])
    assert set(found["cell"]) == {"rounds 3", "rounds 1"} and set(found["unit"]) == {"round"}
    assert found.query("cell == 'rounds 3' and seed == 1")["accuracy_pct"].tolist() == [12, 34, 54]
    assert r.curves("bhaskar2025", 2, checkout, rounds=1)["accuracy_pct"].tolist() == [60]


def test_rows_that_no_setting_tells_apart_have_curves_of_their_own(checkout):
    """As rows for splits, or points of a figure."""
    page = checkout / "results/demo/tables/bhaskar2025_table_2.csv"
    table = read_csv(page)
    split, point = table.assign(part=["one", "other"], rounds=1), table.assign(rounds=1, x=[0.1, 0.2])
    for changed, cells in (
        (split, {"part one", "part other"}),
        (point, {"bhaskar2025 2, row 1", "bhaskar2025 2, row 2"}),
    ):
        write_table(changed, page)
        assert set(r.curves("bhaskar2025", 2, checkout)["cell"]) == cells
    write_table(table, page)


def test_runs_that_report_their_end_alone_have_no_curves(tmp_path):
    folder = tmp_path / "results/demo"
    runs = {"paper": "lowy2021", "job": "a", "experiment": "ldp_regression", "dataset": "insurance", "epsilon": 1.0}
    write_table(
        pd.DataFrame([{**runs, "seed": 0, "status": "finished", "test_loss": 5.0}]), folder / "runs/lowy2021/a.csv.gz"
    )
    write_table(pd.DataFrame({"epsilon": [1.0], "origins": ["a:0"]}), folder / "tables" / "lowy2021_noise.csv")
    with pytest.raises(InputError, match="no run of these rows of lowy2021 noise reports its accuracy"):
        r.curves("lowy2021", "noise", folder)


def test_a_configuration_stands_for_its_runs(checkout, monkeypatch):
    """Of the jobs that it lists, not of all that lie in the folder."""
    config = checkout / "mine.yaml"
    config.write_text("scale: demo\npapers: [bhaskar2025]\nseeds: [0]\n")
    monkeypatch.chdir(checkout)
    with pytest.raises(InputError, match=r"mine\.yaml has no runs: train it first"):
        r.compare(config, "demo")


def test_a_configuration_stands_for_the_part_of_a_job_that_it_asks_for(tmp_path, monkeypatch):
    """A job trains several cells together, of which `only` may want some."""
    monkeypatch.chdir(tmp_path)
    cells = itertools.product((1.2, 2.93), (0, 1))
    rows = [run(seed, [50.0 + 10 * epsilon + seed], local_epochs=1, epsilon=epsilon) for epsilon, seed in cells]
    asked = "scale: demo\npapers: [bhaskar2025]\nonly: {model: [scatter_linear], study: [none], local_epochs: [1], "
    for name, epsilon in {"one": 1.2, "two": 2.93}.items():
        Path(f"{name}.yaml").write_text(f"{asked}epsilon: [{epsilon}]}}\n")
    for job in expansion.expand(configuration.read(Path("one.yaml"))):
        write_table(pd.DataFrame(rows), expansion.run_table_path(Path("results/demo"), job.paper, job.name))
    found = r.compare("one.yaml", "two.yaml")
    assert found.attrs["compared"] == {"bhaskar2025 fedavg_images": ["epsilon"]}
    assert found["difference"].tolist() == [pytest.approx(17.3)]
    assert set(r.compare("one.yaml", "demo")["verdict"]) == {"identical", "only in second"}


def test_two_sources_that_differ_in_one_number(checkout, tmp_path):
    other = tmp_path / "results/demo"
    path = checkout / "results/demo/runs/bhaskar2025/a.csv.gz"
    write_table(read_csv(path).assign(accuracy_pct=[51.0, 55.0]), other / "runs/bhaskar2025/a.csv.gz")
    same = r.compare(checkout, checkout)
    assert list(same.columns) == list(r.COLUMNS["compare"]) and set(same["verdict"]) == {"identical"}
    found = r.compare(checkout, other, metric="accuracy_pct").set_index("cell")
    assert found["verdict"].to_dict() == {"rounds 3": "undecided", "rounds 1": "only in first"}
    assert found.loc["rounds 3", "difference"] == 1.0 and math.isnan(found["difference"].iloc[1])


# Runs of `dpfl fedavg`.


@pytest.fixture
def own(own_run, tmp_path):
    """Folders poisson and fixed, each with three runs of two epsilons; of fixed every accuracy is 10 points lower."""
    for name, lower in (("poisson", 0.0), ("fixed_without_replacement", 10.0)):
        for seed, accuracy in enumerate((60.5, 61.0, 62.25)):
            for epsilon in (1.0, 3.0):
                by_round = [20.0, accuracy + epsilon - lower]
                own_run(tmp_path / name / f"{seed}_{epsilon}", seed, by_round, sampler=name, epsilon=epsilon)
    return tmp_path


def test_own_runs_are_compared_by_their_settings_seed_by_seed(own):
    found = r.compare(own / "poisson", own / "fixed_without_replacement")
    assert list(found.columns) == list(r.COLUMNS["compare"])
    assert found["cell"].tolist() == ["epsilon 1", "epsilon 3"] and found.attrs["compared"] == {
        "own fedavg": ["sampler"]
    }
    assert found["difference"].tolist() == [-10.0, -10.0] and set(found["verdict"]) == {"outside chance"}
    assert set(r.compare(own / "poisson", own / "poisson")["verdict"]) == {"identical"}
    [one] = r.compare(own / "poisson/0_1.0", own / "poisson/0_3.0").to_dict("records")
    assert one["difference"] == 2.0 and one["verdict"] == "undecided" and one["cell"] == "all runs"


def test_own_runs_with_secret_seeds_are_compared_as_means(own_run, tmp_path):
    for name, higher in (("a", 0.0), ("b", 10.0)):
        for number, accuracy in enumerate((60.5, 61.0, 62.25)):
            own_run(tmp_path / name / str(number), "secret", [accuracy + higher], sampler=name)
    [cell] = r.compare(tmp_path / "a", tmp_path / "b").to_dict("records")
    assert (cell["runs_first"], cell["runs_second"], cell["difference"]) == (3, 3, 10.0)
    # By Student's t with two degrees of freedom, 4.3027, and wider by the steps of the accuracies.
    error = np.std([60.5, 61.0, 62.25], ddof=1) * math.sqrt(2 / 3)
    assert cell["verdict"] == "outside chance" and 4.3027 * error < cell["interval"] < 10


def test_own_runs_have_curves_of_every_cell(own):
    found = r.own_curves(own / "poisson", own / "fixed_without_replacement", epsilon=3.0)
    assert list(found.columns) == list(r.COLUMNS["curves"]) and set(found["unit"]) == {"round"}
    assert set(found["cell"]) == {"sampler poisson", "sampler fixed_without_replacement"}
    one = found.query("cell == 'sampler poisson' and seed == '1'")
    assert one["step"].tolist() == [1, 2] and one["accuracy_pct"].tolist() == [20.0, 64.0]
    assert set(r.own_curves(own / "poisson/0_1.0")["cell"]) == {"my.npz, net:Net"}
    with pytest.raises(InputError, match="has no run of dpfl fedavg"):
        r.own_curves(own / "poisson", own)
    with pytest.raises(InputError, match="the table of these runs has no epsilon 2; there are"):
        r.own_curves(own / "poisson", epsilon=2)
    for seed in (1, 1.0, "1"):  # seeds of own runs are text, and --where has numbers
        assert set(r.own_curves(own / "poisson", seed=seed)["seed"]) == {"1"}


def test_a_checkout_with_an_own_run_below_it_stays_a_checkout(checkout, own_run, tmp_path):
    shutil.copytree(checkout, tmp_path / "checkout")
    own_run(tmp_path / "checkout" / "my_run", 1, [50.0])
    assert set(r.compare(tmp_path / "checkout", checkout)["paper"]) == {"bhaskar2025"}


# The results that are shipped.


def test_a_shipped_table_is_the_mean_of_its_runs_last_rounds(repository):
    """By this module's runs and their origins, not by the code that made the table."""
    shipped = repository / "results" / "paper"
    if not (shipped / "runs" / "bhaskar2025").is_dir():
        pytest.skip("no runs of bhaskar2025 are shipped")
    rows = r.runs("bhaskar2025", shipped)
    last = rows.sort_values("round").groupby("origin")["accuracy_pct"].last()
    cells = r.table("bhaskar2025", 2, shipped).query("runs > 0")
    assert len(cells) > 0
    for cell in cells.to_dict("records"):
        assert np.mean(last[cell["origins"].split()]) == pytest.approx(cell["accuracy_pct"], abs=1e-9)


def test_shipped_verdicts_are_those_of_the_page(repository):
    counts = r.claims(repository / "results" / "paper").query("~our_question")["verdict"].value_counts()
    page = (repository / "results" / "paper" / "README.md").read_text()
    assert f"{counts['as stated']} as stated" in " ".join(page.split())


def test_shipped_epsilons_are_in_order_and_of_their_verdict(repository):
    known = r.epsilons(repository / "results" / "paper")
    assert (known["refuted"] <= known["proven"]).all() and len(known) > 100
    refuted = known["verdict"] == "refuted"
    assert (refuted == (known["refuted"] > known["claimed"] * 1.001)).all() and refuted.any()


def test_distances_of_a_shipped_run_are_those_of_its_table(repository):
    shipped = repository / "results" / "paper"
    path = next((shipped / "runs/bhaskar2025").glob("distances_*.csv.gz"), None)
    if path is None:
        pytest.skip("no runs with distances are shipped")
    table = read_csv(path)
    place = next(index for index, text in enumerate(table["distance_to_noiseless"]) if any(json.loads(text)))
    rows = r.runs("bhaskar2025", shipped, origin=f"{path.name.removesuffix('.csv.gz')}:{place}")
    assert list(rows["distance_to_noiseless"]) == json.loads(table["distance_to_noiseless"][place])


def test_the_module_needs_no_torch():
    code = "import sys, dpfl.results as r; r.tables(sys.argv[1]); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, "paper"], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_accountants_alone_say_what_the_results_need():
    code = "import sys; sys.modules['pandas'] = None; import dpfl.results"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert done.returncode and last.startswith("ModuleNotFoundError: dpfl.results needs pandas: only the accountants")
