"""The theory figures, tables and verdicts, made by the stages' own code from made-up runs with a known answer."""

import math

import numpy as np
import pandas as pd
import pytest

from dpfl.papers.lowy2021 import theory, theory_claims, theory_rates
from dpfl.reporting import style
from dpfl.reporting.results import Results, read_csv, write_csv
from dpfl.reporting.rules import Verdict

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


@pytest.mark.parametrize(("speed", "verdict"), [(2.0, Verdict.AS_STATED), (0.5, Verdict.REFUTED)])
def test_acceleration_follows_the_paired_difference(made, judged, speed, verdict):
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
    figure = theory.FIGURES["theory_acceleration"].draw(points)
    lost = "nowhere" if speed > 1 else "least squares, convex: R = 4, 16, 64"
    assert figure.get_supxlabel().replace("\n", " ").endswith(f"interval of the difference: {lost}.")
    one_seed = points.assign(difference_interval=math.nan)
    assert "Algorithm 2" not in theory.FIGURES["theory_acceleration"].draw(one_seed).get_supxlabel()
    judgement = judged("acceleration", results)
    assert judgement.verdict is verdict
    assert judgement.cases[0].case.estimate == pytest.approx(speed - 1, abs=0.05)  # as a share of Algorithm 2's risk
    needed = judgement.cases[-1].case
    assert needed.case.startswith("rounds that Algorithm 1 needs") and needed.estimate == (
        math.inf if speed > 1 else 64
    )


def test_a_setting_on_two_axes_is_one_case(monkeypatch):
    """The middle of each axis is the same setting, with the same runs."""
    columns = ["problem", "axis", "value", "excess_risk", "interval", "ratio", "ratio_interval", "start_risk", "seeds"]
    rows = [
        ("convex", axis, value, risk, 0.01, 1.0, 0.01, 1.0, 10)
        for axis, points in {"clients": {8: 0.3, 16: 0.2}, "records": {128: 0.2, 256: 0.15}}.items()
        for value, risk in points.items()
    ]
    monkeypatch.setattr(theory_claims, "one_pass_points", lambda _: pd.DataFrame(rows, columns=columns))
    for claim in (theory_claims.one_pass, theory_claims.one_pass_learns):
        assert [case.case for case in claim(None).cases] == [
            "convex, clients = 8", "convex, clients = 16", "convex, records = 256",
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("exponent", "cost", "start", "verdicts"),
    [
        (-0.55, 1.0, 1.0, (Verdict.AS_STATED,) * 3),
        (-0.1, 1.0, 1.0, (Verdict.AS_STATED,) * 3),  # an upper bound: a slower fall does not contradict it
        (0.2, 1.0, 9.0, (Verdict.AS_STATED, Verdict.REFUTED, Verdict.AS_STATED)),
        (-0.5, 3.0, 1.0, (Verdict.REFUTED, Verdict.AS_STATED, Verdict.AS_STATED)),
        (-0.5, 1.0, 1e-3, (Verdict.AS_STATED, Verdict.AS_STATED, Verdict.REFUTED)),
    ],
)
def test_one_pass(made, judged, exponent, cost, start, verdicts):
    """Different clients as good or worse, a risk that falls or rises, that is better or worse than w = 0."""
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
    assert (
        tuple(judged(claim, results).verdict for claim in ("one_pass", "one_pass_falls", "one_pass_learns")) == verdicts
    )


def shuffle_rows(noise: float, clients: tuple[int, ...]) -> list[dict]:
    """Risks of the three models of trust; `noise`: that of the shuffled runs over the central one's."""
    rows = []
    for count in clients:
        trusts = {"nobody": 40.0, "shuffler": 40 * noise / count**0.5, "server": 40 / count**0.5}
        for trust, multiplier in trusts.items():
            own = {"study": "shuffle", "trust": trust, "clients": count, "noise_multiplier": multiplier}
            rows.append({**own, "excess_risk": 1e-5 * multiplier**2 / count})
    return rows


def test_the_constant_of_theorem_4_1(made):
    points = drawn(made(shuffle_rows(1.2, (16, 64))), "theory_shuffle")
    own = points[(points["trust"] == "shuffler") & (points["clients"] == 16)].iloc[0]
    logarithms = math.log(16 * 16 / 1e-6) * math.log(16 / 1e-6) * math.log(1e6)
    variance = own["implied_constant"] * 16 * 16 * logarithms / (64 * 16) ** 2  # Theorem 4.1 with L = 1, M = N = 16
    assert math.sqrt(variance) * 64 == pytest.approx(own["noise_multiplier"])


@pytest.mark.parametrize(("noise", "verdict"), [(1.2, Verdict.AS_STATED), (5.0, Verdict.REFUTED)])
def test_shuffling_is_judged_where_the_theorems_condition_holds(made, judged, noise, verdict):
    few = made(shuffle_rows(noise, (16, 64)))
    drawn(few, "theory_shuffle")
    judgement = judged("shuffle", few)
    assert judgement.verdict is Verdict.NOT_RUN and "no setting that was run has more than 64" in judgement.reason
    by_accountant = judged("shuffle_by_accountant", few)
    assert by_accountant.verdict is verdict
    powers = [each.case.estimate for each in by_accountant.cases if each.case.case.startswith("power of M")]
    assert powers == [pytest.approx(-0.5)]
    many = made(shuffle_rows(noise, (16, 512)))  # 16 ln(18 16 512/1e-6) = 411
    drawn(many, "theory_shuffle")
    enough = judged("shuffle", many)
    assert enough.verdict is verdict and "M = 512" in enough.cases[0].case.case


@pytest.mark.parametrize(("noise", "verdict"), [(1.2, Verdict.AS_STATED), (9.0, Verdict.REFUTED)])
def test_shuffling_has_to_beat_the_local_model(made, judged, noise, verdict):
    results = made(shuffle_rows(noise, (16, 64)))
    drawn(results, "theory_shuffle")
    assert judged("shuffle_beats_local", results).verdict is verdict


@pytest.mark.parametrize(
    ("law", "verdicts"),
    [("inverse", (Verdict.AS_STATED, Verdict.AS_STATED)), ("mean", (Verdict.REFUTED, Verdict.UNDECIDED))],
)
def test_availability(made, judged, law, verdicts):
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
    assert tuple(judged(claim, results).verdict for claim in ("availability", "availability_not_mean")) == verdicts


def test_one_seed_settles_nothing(made, judged):
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
    claims = {
        "theory_acceleration": ("acceleration",),
        "theory_one_pass": ("one_pass", "one_pass_falls", "one_pass_learns"),
        "theory_shuffle": ("shuffle_beats_local",),
        "theory_availability": ("availability", "availability_not_mean"),
    }
    for figure, names in claims.items():
        drawn(results, figure)
        assert {judged(name, results).verdict for name in names} <= {Verdict.UNDECIDED, Verdict.NOT_RUN}, figure


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
