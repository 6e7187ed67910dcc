import json
import math
import shutil
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest

from dpfl.grid import configuration, expansion
from dpfl.papers.bhaskar2025.cells import measured_cells
from dpfl.reporting import claims, figures, tables
from dpfl.reporting.results import Results, read_csv, write_table
from dpfl.reporting.rules import Counts

HOSTILE = "<script>document.title = 'owned'</script> & \"quoted\" | _x_"
"""Text as a stranger's record could have it."""
KEYS = list(
    dict.fromkeys(
        job.calibration_key
        for job in expansion.expand(configuration.resolve({"scale": "demo", "papers": ["bhaskar2025"]}))
    )
)
"""Calibration keys of jobs: the first for the rows of the table of noise."""
CLAIMS = ("as stated", "weaker than stated", "refuted", "undecided", "not run")


def table_2() -> pd.DataFrame:
    """Table 2 as if two cells were reproduced, one not, one undecided, one run once, one on digits."""
    cells = measured_cells(Results(Path("nowhere")), 2)
    states = [
        (10, 0.1, "reproduced"),
        (10, -0.4, "reproduced"),
        (3, 5.0, "not reproduced"),
        (2, 9.0, "undecided"),
        (1, 0.7, ""),
    ]
    texts = ["ran_on", "prediction", "prediction_single"]
    cells[texts] = cells[texts].astype(object)
    for row, (runs, difference, prediction) in enumerate(states):
        cells.loc[row, texts] = "mnist", prediction, prediction
        cells.loc[row, ["runs", "difference_pct"]] = runs, difference
        cells.loc[row, "accuracy_pct"] = cells.loc[row, "published_accuracy_pct"] + difference
        cells.loc[row, ["interval_pct", "prediction_pct"]] = (1.5, 12.25) if runs > 1 else (math.nan, math.nan)
    cells.loc[5, ["ran_on", "stand_in", "runs", "accuracy_pct"]] = "digits", True, 2, 50.0
    return cells


def noise() -> pd.DataFrame:
    """A table of noise: an epsilon that is kept, one that is refuted, one that is open, one without privacy."""
    row = {
        "privacy_sampling": "poisson",
        "privacy_neighbouring": "zero_out",
        "privacy_observer": "every_step",
        "privacy_records": 6000,
        "privacy_steps": 1880,
        "privacy_delta": 1e-5,
        "privacy_noise_multiplier": 1.0,
        "privacy_proven_by": "PLD",
        "privacy_refuted_by": "a pair",
        "privacy_note": "divisor 64; the noise is calibrated for Poisson sampling",
    }
    known = [(2.93, 2.64, 2.63), (2.93, 28.1, 12.8), (1.2, 3.0, 0.5), (math.inf, math.inf, math.inf)]
    rows = [
        {
            **row,
            "epsilon": e,
            "privacy_epsilon_proven": p,
            "privacy_epsilon_refuted": r,
            "calibration_key": KEYS[number],
        }
        for number, (e, p, r) in enumerate(known)
    ]
    return pd.DataFrame([*rows, {**rows[0], "calibration_key": KEYS[4]}])


def verdicts(paper: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One claim of each verdict with two cases, in the columns of dpfl.reporting.claims; the first text is hostile."""
    rows, cases = [], []
    for number, word in enumerate(CLAIMS):
        numbers = {"n": 10, "estimate": 1.25, "low": 0.5, "high": 2.0, "target": 0.0}
        numbers |= {"p_value": 0.001, "adjusted_p": 0.002, "published": math.nan}
        claim = {"paper": paper, "claim": f"claim_{number}"}
        about = {"of": "claim_0", "text": HOSTILE if number == 0 else f"Claim {number} of the paper.", "verdict": word}
        about["our_question"], about["settings"] = False, HOSTILE if number == 2 else f"In setting {number}."
        about |= {
            "reason": HOSTILE if number == 1 else "Shown in 1 of 2 cases; 1 contradicts it.",
            "cases": 2,
        }
        about |= asdict(Counts(hold=1, fail=1)) | {"case": f"case {number}", **numbers}
        about |= {"scope": "for all", "kind": "difference", "margin": 0.0, "unit": "points", "alpha": 0.05}
        about |= {"level": 0.95, "because": "It is said of all.", "settled_by": "a comparison"}
        places = "tables/errata figures/figure_2" if paper == "asoodeh2020" else "tables/table_2"
        rows.append({**claim, **about, "places": places})
        for name, status in ((f"case {number}", "fails"), ("another", "holds")):
            cases.append({**claim, "case": name, "status": status, **numbers, "within": "above 0", "stand_in": ""})
    return pd.DataFrame(rows), pd.DataFrame(cases)


@pytest.fixture(scope="session")
def made(made_once):
    """Results of scale demo with two papers, as the stages write them, without training; returns folder and config."""
    folder = made_once("page", lambda place: make(place / "results" / "demo")) / "results" / "demo"
    return folder, configuration.resolve({"scale": "demo", "papers": ["asoodeh2020", "bhaskar2025"]})


def make(folder):
    """Write what `made` returns."""
    results = Results(folder)
    tables.make("asoodeh2020", "errata", results, folder / "tables")
    figures.make("asoodeh2020", "figure_2", results, folder / "figures")
    figures.make("bhaskar2025", "distances", results, folder / "figures")
    write_table(table_2(), folder / "tables" / "bhaskar2025_table_2.csv")
    write_table(noise(), folder / "accounting" / "bhaskar2025.csv")
    for paper in ("asoodeh2020", "bhaskar2025"):
        claims.write(paper, verdicts(paper), folder / "claims")
    record = folder / "tables" / "bhaskar2025_table_2.csv.record.json"
    record.write_text(json.dumps({"stage": HOSTILE}))


@pytest.fixture
def keys():
    """The calibration keys of the table of noise, in its order."""
    return KEYS[:5]


@pytest.fixture
def copied(made, tmp_path):
    """A copy of the results that a test may change."""
    folder = tmp_path / "results" / "demo"
    shutil.copytree(made[0], folder)
    return folder, made[1]


@pytest.fixture
def changed(copied):
    """A function that changes a CSV of the copy by a function of its table, and returns the folder."""
    folder, _ = copied

    def change(name, how):
        write_table(how(read_csv(folder / name)), folder / name)
        return folder

    return change
