"""Participation: planted laws of the mean of 1/M_r and of M_r, and twins of a random law by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from dpfl.papers.lowy2021 import theory
from dpfl.reporting.rules import Verdict


@pytest.mark.parametrize(
    ("law", "verdicts"),
    [("inverse", (Verdict.AS_STATED, Verdict.AS_STATED)), ("mean", (Verdict.REFUTED, Verdict.UNDECIDED))],
)
def test_availability(made_up, drawn, judged, law, verdicts):
    """Risks that follow the mean of 1/M_r, or of M_r."""
    laws = {"[2]": (2,), "[5]": (5,), "[14]": (14,), "[2, 20, 20]": (2, 20, 20)}
    rows = []
    for text, sizes in laws.items():
        effective = np.mean([1 / size for size in sizes]) if law == "inverse" else 1 / np.mean(sizes)
        rows.append({"study": "availability", "participants": text, "excess_risk": 0.1 * effective})
    results = made_up(rows)
    points = drawn(results, "theory_availability")
    random = points[points["law"] == "random"].iloc[0]
    assert random["same_inverse_ratio"] == pytest.approx(1.0 if law == "inverse" else 5 / 14, rel=0.02)
    assert random["same_mean_ratio"] == pytest.approx(14 / 5 if law == "inverse" else 1.0, rel=0.02)
    assert tuple(judged(claim, results).verdict for claim in ("availability", "availability_not_mean")) == verdicts


def test_a_random_law_is_held_against_the_fixed_ones_with_its_means(made_up):
    """(1/2 + 1/20 + 1/20)/3 = 1/5 and (2 + 20 + 20)/3 = 14; (1/4 + 1/8)/2 is 3/16, of which no number is the root."""
    risks = {"[2]": 0.5, "[5]": 0.2, "[6]": 0.3, "[14]": 0.1, "[2, 20, 20]": 0.4, "[4, 8]": 0.6}
    rows = [{"study": "availability", "participants": text, "excess_risk": risk} for text, risk in risks.items()]
    points = theory.availability_data(made_up(rows)).set_index("participants")
    assert points["law"].to_dict() == {text: "random" if "," in text else "fixed" for text in risks}
    assert points.loc["[2, 20, 20]", ["mean_inverse", "mean"]].tolist() == pytest.approx([1 / 5, 14])
    assert points.loc["[4, 8]", ["mean_inverse", "mean"]].tolist() == pytest.approx([3 / 16, 6])
    ratios = points[["same_inverse_ratio", "same_mean_ratio"]]
    assert ratios.loc["[2, 20, 20]"].tolist() == pytest.approx([0.4 / 0.2, 0.4 / 0.1], rel=0.02)
    assert math.isnan(ratios.loc["[4, 8]", "same_inverse_ratio"])
    assert ratios.loc["[4, 8]", "same_mean_ratio"] == pytest.approx(0.6 / 0.3, rel=0.02)
    assert ratios[points["law"] == "fixed"].isna().all(axis=None)


def test_each_panel_has_its_own_mean_as_axis():
    points = pd.DataFrame(
        {"participants": ["[4]", "[2, 20]"], "law": ["fixed", "random"], "mean_inverse": [0.25, 0.275]}
    )
    points = points.assign(mean=[4.0, 11.0], seeds=8, excess_risk=[0.2, 0.3], interval=0.01)
    left, right = theory.draw_availability(points).axes
    places = [[line.lines[0].get_xdata()[0] for line in axis.containers] for axis in (left, right)]
    assert places == [pytest.approx([0.25, 0.275]), pytest.approx([1 / 4, 1 / 11])]
    assert "Random Mᵣ: one of 2, 20; each as likely." in left.figure.get_supxlabel().replace("\n", " ")
