"""The theory figures, tables and verdicts, made by the stages' own code from made-up runs with a known answer."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from dpfl.papers.lowy2021 import theory, theory_rates
from dpfl.reporting import style
from dpfl.reporting.claims import Outcome
from dpfl.reporting.results import Results, read_csv, write_csv

COMMON = {
    "experiment": "ldp_theory",
    "status": "finished",
    "noise": "tight",
    "trust": "nobody",
    "algorithm": "minibatch",
    "kind": "least_squares",
    "spread": 0.0,
    "strong_convexity": 0.0,
    "sharpness": 0.0,
    "scale": 1.0,
    "clients": 8,
    "records": 64,
    "features": 4,
    "rounds": 16,
    "epsilon": 1.0,
    "delta": 1e-6,
    "radius": 1.0,
    "clip_norm": 2.0,
    "participants": "[8]",
    "noise_multiplier": 10.0,
    "privacy_epsilon_proven": 1.0,
    "start_risk": 1.0,
    "v_star_squared": 0.0,
}


@pytest.fixture
def made(tmp_path):
    """Return a function (rows) that writes made-up runs, eight seeds with 1 % noise each, and gives their Results."""

    def make(rows: list[dict], seeds: int = 8) -> Results:
        rng = np.random.default_rng(0)
        runs = [
            {**COMMON, **row, "seed": seed, "excess_risk": row["excess_risk"] * (1 + 0.01 * rng.standard_normal())}
            for row in rows
            for seed in range(seeds)
        ]
        folder = tmp_path / "demo"
        (folder / "figures").mkdir(parents=True, exist_ok=True)
        with (folder / "runs.csv").open("w") as stream:
            write_csv(pd.DataFrame(runs), stream)
        return Results(folder, {"lowy2021": (folder / "runs.csv",)})

    return make


def drawn(results: Results, name: str) -> pd.DataFrame:
    """Write a figure's data and draw it from the file, as the figures stage does; return the data."""
    path = results.folder / "figures" / f"lowy2021_{name}.csv"
    with path.open("w") as stream:
        write_csv(theory.FIGURES[name].data(results), stream)
    with style.apply_style():
        figure = theory.FIGURES[name].draw(read_csv(path))
        figure.canvas.draw()
        style.plt.close(figure)
    return read_csv(path)


def rate_rows() -> list[dict]:
    """Risks that fall exactly as the theorems say; a second, easier member of the convex family."""
    rows = []
    for name, exponents in theory_rates.EXPONENTS.items():
        for axis, exponent in exponents.items():
            for value in (4, 8, 16):
                risk = 0.1 * value**exponent
                for scale in (1.0, 0.5):
                    own = {"study": name, "axis": axis, axis: value, "scale": scale, "excess_risk": risk * scale}
                    rows.append(own)
    return rows


def test_rates_and_slopes(made):
    results = made(rate_rows())
    points = drawn(results, "theory_rates")
    assert len(points) == 2 * 5 * 3
    assert (points["slope"] - points["exponent"]).abs().max() < 0.03
    assert not points["lower_bound_applies"].any()
    slopes = theory.TABLES["theory_slopes"]
    page = slopes.page(slopes.data(results))
    assert len(page.body) == 10
    assert page.body["worse than w = 0"].iloc[0] == "0 of 3"


def test_the_lower_bound_as_printed():
    row = pd.Series({**COMMON, "rounds": 1, "epsilon": 0.01, "clients": 1000})
    assert theory_rates.lower_bound("rates_convex", row) == pytest.approx(2 * 2 / (0.01 * 64 * math.sqrt(1000)))
    assert theory_rates.lower_bound("rates_strongly_convex", row) == pytest.approx(2 * 4 / (0.64**2 * 1000))
    assert theory_rates.lower_bound("rates_convex", row.replace(1000, 1)) == 2.0
    assert theory_rates.lower_bound_applies(row)
    assert not theory_rates.lower_bound_applies(row.replace(0.01, 0.1))  # a round spends more than 1/n
    assert not theory_rates.lower_bound_applies(row.replace(1000, 100))  # 16 ln(2/(1e-6 64)) = 166 clients


@pytest.mark.parametrize(("speed", "outcome"), [(2.0, Outcome.HOLDS), (0.5, Outcome.FAILS)])
def test_acceleration_follows_the_paired_difference(made, speed, outcome):
    """Algorithm 2 with the risk of `speed` times as many rounds."""
    rows = [
        {"study": "acceleration", "algorithm": algorithm, "rounds": rounds, "epsilon": epsilon, "excess_risk": risk}
        for epsilon in (1.0, math.inf)
        for rounds in (4, 16, 64)
        for algorithm, risk in (("minibatch", 1 / rounds), ("accelerated", 1 / (speed * rounds)))
    ]
    results = made(rows)
    points = drawn(results, "theory_acceleration")
    assert points["plain_minus_this"].notna().sum() == 6
    verdict = theory.CLAIMS["acceleration"](results)
    assert verdict.outcome is outcome
    assert "Algorithm 1 needs" in verdict.evidence


@pytest.mark.parametrize(
    ("exponent", "cost", "start", "outcome"),
    [
        (-0.55, 1.0, 1.0, Outcome.HOLDS),
        (-0.1, 1.0, 1.0, Outcome.IN_PART),
        (-0.5, 3.0, 1.0, Outcome.FAILS),
        (-0.5, 1.0, 1e-3, Outcome.NOT_TESTABLE),
    ],
)
def test_one_pass(made, exponent, cost, start, outcome):
    """The slope reached or not, different clients as good or worse, better or worse than w = 0."""
    rows = [
        {
            "study": "one_pass",
            "algorithm": "one_pass",
            "axis": "clients",
            "clients": clients,
            "spread": spread,
            "start_risk": start,
            "excess_risk": 0.5 * clients**exponent * (cost if spread else 1.0),
        }
        for clients in (4, 16, 64)
        for spread in (0.0, 0.3)
    ]
    results = made(rows)
    points = drawn(results, "theory_one_pass")
    assert points["ratio"].unique() == pytest.approx(cost, rel=0.02)
    assert theory.CLAIMS["one_pass"](results).outcome is outcome


@pytest.mark.parametrize(("noise", "outcome"), [(1.2, Outcome.HOLDS), (5.0, Outcome.FAILS)])
def test_shuffle(made, noise, outcome):
    """Noise of the shuffled runs over the central one's."""
    rows = []
    for clients in (16, 64):
        for trust, multiplier in (
            ("nobody", 40.0),
            ("shuffler", 40 * noise / clients**0.5),
            ("server", 40 / clients**0.5),
        ):
            risk = 1e-5 * multiplier**2 / clients
            rows.append(
                {
                    "study": "shuffle",
                    "trust": trust,
                    "clients": clients,
                    "noise_multiplier": multiplier,
                    "excess_risk": risk,
                }
            )
    results = made(rows)
    points = drawn(results, "theory_shuffle")
    own = points[(points["trust"] == "shuffler") & (points["clients"] == 16)].iloc[0]
    logarithms = math.log(16 * 16 / 1e-6) * math.log(16 / 1e-6) * math.log(1e6)
    variance = own["implied_constant"] * 16 * 16 * logarithms / (64 * 16) ** 2  # Theorem 4.1 with L = 1, M = N = 16
    assert math.sqrt(variance) * 64 == pytest.approx(own["noise_multiplier"])
    verdict = theory.CLAIMS["shuffle"](results)
    assert verdict.outcome is outcome
    assert "-0.50" in verdict.evidence


@pytest.mark.parametrize(("law", "outcome"), [("inverse", Outcome.HOLDS), ("mean", Outcome.FAILS)])
def test_availability(made, law, outcome):
    """Risks that follow the mean of 1/M_r, or of M_r."""
    laws = {"[2]": (2,), "[5]": (5,), "[14]": (14,), "[2, 20, 20]": (2, 20, 20)}
    rows = []
    for text, sizes in laws.items():
        effective = np.mean([1 / size for size in sizes]) if law == "inverse" else 1 / np.mean(sizes)
        rows.append({"study": "availability", "participants": text, "excess_risk": 0.1 * effective})
    results = made(rows)
    points = drawn(results, "theory_availability")
    random = points[points["law"] == "random"].iloc[0]
    assert random["same_inverse_ratio"] == pytest.approx(1.0 if law == "inverse" else 5 / 14, rel=0.02)
    assert random["same_mean_ratio"] == pytest.approx(14 / 5 if law == "inverse" else 1.0, rel=0.02)
    assert theory.CLAIMS["availability"](results).outcome is outcome


def test_one_seed_settles_nothing(made):
    rows = [
        {**row, "study": study}
        for study in ("shuffle", "acceleration", "one_pass", "availability")
        for row in [
            {"excess_risk": 0.1, "trust": "nobody", "participants": "[5]"},
            {
                "excess_risk": 0.2,
                "trust": "shuffler",
                "participants": "[14]",
                "algorithm": "accelerated",
                "axis": "clients",
            },
            {"excess_risk": 0.1, "trust": "server", "participants": "[2, 20, 20]", "spread": 0.3, "axis": "clients"},
        ]
    ]
    results = made(rows, seeds=1)
    for name in theory.CLAIMS:
        drawn(results, f"theory_{name}")
        assert theory.CLAIMS[name](results).outcome is Outcome.NOT_TESTABLE, name


def test_noise_by_formula_and_by_accounting(made):
    results = made(
        [
            {"study": "rates_convex", "excess_risk": 1.0},
            {"study": "one_pass", "algorithm": "one_pass", "excess_risk": 1.0},
        ]
    )
    table = theory.TABLES["theory_noise"]
    rows = table.data(results).set_index("study")
    variance = 256 * 16 * math.log(2.5 * 16 / 1e-6) * math.log(2 / 1e-6) / 64**2
    assert rows.loc["rates_convex", "theorem"] == pytest.approx(64 * math.sqrt(variance))
    assert rows.loc["one_pass", "theorem"] == pytest.approx(math.sqrt(8 * math.log(1.25e6)))
    assert (rows["theorem_spends"] < 1.0).all()
    assert table.page(table.data(results)).body["settings"].tolist() == ["1", "1"]
