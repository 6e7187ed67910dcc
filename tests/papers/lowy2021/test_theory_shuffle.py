"""A trusted shuffler: planted noise and risks, Theorem 4.1's constant by hand, and scipy on the same rows."""

import math

import numpy as np
import pytest
from scipy import stats

from dpfl.papers.lowy2021 import theory
from dpfl.reporting.rules import Verdict


def shuffle_rows(noise: float, clients: tuple[int, ...]) -> list[dict]:
    """Risks of the three models of trust; `noise`: that of the shuffled runs over the central one's."""
    rows = []
    for count in clients:
        trusts = {"nobody": 40.0, "shuffler": 40 * noise / count**0.5, "server": 40 / count**0.5}
        for trust, multiplier in trusts.items():
            own = {"study": "shuffle", "trust": trust, "clients": count, "noise_multiplier": multiplier}
            rows.append({**own, "excess_risk": 1e-5 * multiplier**2 / count})
    return rows


def test_the_constant_of_theorem_4_1(made_up):
    points = theory.shuffle_data(made_up(shuffle_rows(1.2, (16, 64))))
    own = points[(points["trust"] == "shuffler") & (points["clients"] == 16)].iloc[0]
    logarithms = math.log(16 * 16 / 1e-6) * math.log(16 / 1e-6) * math.log(1e6)
    variance = own["implied_constant"] * 16 * 16 * logarithms / (64 * 16) ** 2  # Theorem 4.1 with L = 1, M = N = 16
    assert math.sqrt(variance) * 64 == pytest.approx(own["noise_multiplier"])


@pytest.mark.parametrize(("noise", "verdict"), [(1.2, Verdict.AS_STATED), (5.0, Verdict.REFUTED)])
def test_shuffling_is_judged_where_the_theorems_condition_holds(made_up, written, drawn, judged, noise, verdict):
    few = made_up(shuffle_rows(noise, (16, 64)))
    drawn(few, "theory_shuffle")
    judgement = judged("shuffle", few)
    assert judgement.verdict is Verdict.NOT_RUN and "no setting that was run has over 64" in judgement.reason
    by_accountant = judged("shuffle_by_accountant", few)
    assert by_accountant.verdict is verdict
    powers = [each.case.estimate for each in by_accountant.cases if each.case.case.startswith("power of M")]
    assert powers == [pytest.approx(-0.5)]
    many = made_up(shuffle_rows(noise, (16, 512)))  # 16 ln(18 16 512/1e-6) = 411
    written(many, "theory_shuffle")
    enough = judged("shuffle", many)
    assert enough.verdict is verdict and "M = 512" in enough.cases[0].case.case


@pytest.mark.parametrize(("noise", "verdict"), [(1.2, Verdict.AS_STATED), (9.0, Verdict.REFUTED)])
def test_shuffling_has_to_beat_the_local_model(made_up, written, judged, noise, verdict):
    results = made_up(shuffle_rows(noise, (16, 64)))
    written(results, "theory_shuffle")
    assert judged("shuffle_beats_local", results).verdict is verdict


def test_each_trust_model_is_compared_with_nobody_seed_by_seed(made_up):
    results = made_up(shuffle_rows(1.2, (16, 64)))
    points = theory.shuffle_data(results).set_index(["clients", "trust"])
    assert len(points) == 6
    for clients in (16, 64):
        runs = results.runs("lowy2021").query("clients == @clients")
        risks = runs.pivot(index="seed", columns="trust", values="excess_risk")
        for trust in ("shuffler", "server"):
            low, high = stats.ttest_rel(risks["nobody"], risks[trust]).confidence_interval(0.9)
            point = points.loc[(clients, trust)]
            assert point["nobody_minus_this"] == pytest.approx((low + high) / 2)
            assert point["difference_interval"] == pytest.approx((high - low) / 2)
        assert np.isnan(points.loc[(clients, "nobody"), "nobody_minus_this"])


def test_the_theorem_asks_for_a_logarithm_of_clients(made_up):
    """16 ln(18 R M / delta) for R = M = 16 and delta = 1e-6."""
    points = theory.shuffle_data(made_up(shuffle_rows(1.2, (16, 64))))
    least = points.groupby("clients")["least_reports"].first()
    assert least.to_dict() == pytest.approx({m: 16 * math.log(18 * 16 * m / 1e-6) for m in (16, 64)})
