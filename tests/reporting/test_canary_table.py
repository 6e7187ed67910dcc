import math

import pandas as pd

from dpfl.accounting import FixedBatches, guarantee
from dpfl.attacks.noise_family import StepEvidence, family_epsilon
from dpfl.reporting.canary_table import canaries, canaries_page, control_notes
from dpfl.reporting.report_page.sections import sections_of
from dpfl.reporting.results import Results, write_csv


def runs(**changes):
    """Two runs with canaries and one without."""
    table = pd.DataFrame(
        {
            "experiment": ["canaries", "canaries", "ldp_regression"],
            "dataset": "diabetes", "stand_in_for": "insurance", "data_note": "", "clients": 3, "noise": "tight",
            "clipping": ["record", "mean", "record"], "epsilon": 1.0, "seed": 0, "status": "finished", "canaries": 90,
            "guesses": 44, "right_guesses": [25, 44, 0], "confidence": 0.95, "epsilon_lower_bound": [0.0, 2.6, 0.0],
            "one_run_lower_bound": 0.1, "one_run_gaussian_lower_bound": 0.2,
            "mates": "hostile", "statistic": "log_likelihood_ratio", "positives": 1024, "true_positives": 31,
            "false_positives": 3,
            "claimed_epsilon": 0.99, "known_bad": [False, True, False], "noise_multiplier": 50.0,
            "privacy_sampling": "fixed_without_replacement", "privacy_neighbouring": "replace_one",
            "privacy_records": 118, "privacy_delta": 1e-5,
        }
    )  # fmt: skip
    return table.assign(**changes)


def results(tmp_path, table):
    """Results whose one run table is `table`."""
    path = tmp_path / "runs.csv"
    write_csv(table, path)
    return Results(tmp_path, {"lowy2021": (path,)})


def test_the_table_holds_the_runs_with_canaries_and_says_what_they_refute(tmp_path):
    table = canaries(results(tmp_path, runs()), "lowy2021")
    assert table["clipping"].tolist() == ["record", "mean"]
    assert table["refuted"].tolist() == [False, True] == table["known_bad"].tolist()
    assert table["origins"].tolist() == ["runs:0", "runs:1"]
    [note] = control_notes(table)
    assert "1 controls of attacks" in note and control_notes(table.iloc[:1]) == []
    assert table["records"].tolist() == [118, 118] and table["delta"].tolist() == [1e-5, 1e-5]


def test_a_refuted_claim_of_ours_would_show(tmp_path):
    table = canaries(results(tmp_path, runs(epsilon_lower_bound=[1.2, 2.6, 0.0])), "lowy2021")
    body = canaries_page(table).body
    assert body["claim"].tolist() == ["refuted", "refuted"] and body["remark"].tolist() == ["", "known to be broken"]


def test_the_page_has_every_bound_and_one_that_an_older_run_lacks_stays_open(tmp_path):
    table = runs(one_run_lower_bound=[0.1, math.nan, 0.0])
    body = canaries_page(canaries(results(tmp_path, table), "lowy2021")).body
    assert body["ε at least (95 %; no assumption)"].tolist() == ["0 (0 %)", "2.6"]  # no share of what is false
    assert body["ε at least (95 %; one run, no assumption)"].tolist() == ["0.1 (10 %)", "–"]
    assert not [title for title in body if "Gaussian noise" in title]  # older runs have no evidence of steps
    assert body["neighbours"].tolist() == ["replace one"] * 2


def test_the_bound_of_the_family_follows_from_the_evidence_but_for_broken_runs(tmp_path):
    """24 batches of 10 of 118 records, noise of 2 clip norms: more than without an assumption, less than is proven."""
    stated = {"privacy_sampler": '{"kind": "FixedBatches", "batch_size": 10, "records": 118}', "privacy_steps": 24}
    chosen, one_run = StepEvidence(2.0, 4000, 8000.0, 10**6, 4.0 * 10**6), StepEvidence(1.0, 400, 400.0, 10**5, 4.0e5)
    evidence = chosen.columns("chosen") | one_run.columns("one_run")
    run = {"steps": 24, "delta": 1e-5, "neighbouring": "replace_one"}
    proven = guarantee(FixedBatches(10, 118), noise_multiplier=2.0, **run).upper
    table = canaries(results(tmp_path, runs(claimed_epsilon=proven, **stated, **evidence)), "lowy2021")
    for name, each, least in (("chosen", chosen, 0.9), ("one_run_family", one_run, 0.5)):
        found = table[f"{name}_lower_bound"]
        assert found[0] == family_epsilon(each, FixedBatches(10, 118), **run)
        assert least * proven < found[0] < proven and math.isnan(found[1])
    body = canaries_page(table).body
    cells = body["ε at least (95 %; audit, Gaussian noise, sampler as stated)"].tolist()
    assert cells == [
        f"{table['chosen_lower_bound'][0]:.3g} ({100 * table['chosen_lower_bound'][0] / proven:.0f} %)",
        "–",
    ]
    assert not [title for title in body if "hostile" in title]  # it was not attacked so


def test_the_page_names_confidence_and_stand_ins(tmp_path):
    page = canaries_page(canaries(results(tmp_path, runs()), "lowy2021"))
    assert (
        "95 %" in page.notes[0]
        and "docs/privacy.md" in page.notes[0]
        and page.notes[-1] == "diabetes stands in for insurance."
    )


def test_where_nothing_ran_there_are_no_rows(tmp_path):
    for nothing in (Results(tmp_path, {}), results(tmp_path, runs().query("experiment != 'canaries'"))):
        table = canaries(nothing, "lowy2021")
        assert table.empty and canaries_page(table).body.empty


def test_a_row_of_the_report_has_the_colour_of_what_became_of_its_claim(tmp_path):
    path = tmp_path / "results" / "demo" / "tables" / "lowy2021_canaries.csv"
    path.parent.mkdir(parents=True)
    write_csv(canaries(results(tmp_path, runs()), "lowy2021"), path)
    [table] = sections_of(path.parents[1], "lowy2021").tables
    assert [row.style for row in table.grid.rows] == ["c-holds", "c-fails"]
