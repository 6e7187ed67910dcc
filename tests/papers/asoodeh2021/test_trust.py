"""Five papers on one task: the best step of each way, and what is drawn of them."""

import math

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from dpfl.convex.trust_models import TRUST_MODEL, TrustAlgorithm
from dpfl.papers.asoodeh2021.trust import NAMES, draw_trust, five_papers_message

KEY = "asoodeh2021"


def test_every_way_has_a_name():
    assert set(NAMES) == set(TRUST_MODEL) == set(TrustAlgorithm)


def test_each_point_is_the_best_step(results):
    table = results.figure(KEY, "five_papers")
    runs = results.runs(KEY).query("study == 'comparison'")
    assert set(table["algorithm"]) == {str(each) for each in TrustAlgorithm}
    for row in table.itertuples():
        own = runs[(runs["algorithm"] == row.algorithm) & (runs["epsilon"] == row.epsilon)]
        assert row.excess_risk == pytest.approx(own.groupby("step")["excess_risk"].mean().min(), rel=1e-12)
        assert row.trust == TRUST_MODEL[TrustAlgorithm(row.algorithm)] and row.runs == 3
        assert (row.least_step, row.most_step) == (own["step"].min(), own["step"].max())


def test_each_way_has_its_risks_and_accuracies_below_its_trust(results):
    table = results.figure(KEY, "five_papers")
    private = table.query("epsilon < inf")
    figure = draw_trust(table)
    [axis] = figure.axes
    rows = [label.get_text() for label in axis.get_yticklabels()]
    expected = []
    for trust in dict.fromkeys(TRUST_MODEL.values()):
        own = [each for each in TrustAlgorithm if TRUST_MODEL[each] == trust and each in set(private["algorithm"])]
        expected += [trust, *(NAMES[each] for each in own)] if own else []
    assert rows == expected
    accuracies = [text.get_text() for text in axis.texts]
    drawn = {(float(x), float(y)) for line in axis.get_lines() for x, y in zip(*line.get_data(), strict=True)}
    algorithms = [
        each for trust in dict.fromkeys(TRUST_MODEL.values()) for each in TrustAlgorithm if TRUST_MODEL[each] == trust
    ]
    algorithms = [each for each in algorithms if each in set(private["algorithm"])]
    for algorithm, text in zip(algorithms, accuracies, strict=True):
        line = private[private["algorithm"] == algorithm].sort_values("epsilon")
        first, last = line["accuracy_pct"].iloc[[0, -1]]
        assert text == f"{first:.1f}, {last:.1f}"
        assert {x for x, _ in drawn} >= set(line["excess_risk"])
    assert "odd against even" in axis.get_title()
    plt.close(figure)


def test_best_steps_at_an_end_of_their_own_grid_are_counted(results):
    table = results.figure(KEY, "five_papers").query("epsilon < inf")
    inner = table.assign(least_step=table["step"] / 2, most_step=table["step"] * 2)
    one = inner.assign(most_step=inner["most_step"].where(inner.index != inner.index[0], inner["step"]))
    single = inner.assign(least_step=inner["step"], most_step=inner["step"])  # a grid of one step has no ends
    said = [draw_trust(each).get_supxlabel().replace("\n", " ") for each in (one, inner, single)]
    assert f"At 1 of {len(table)} points it is an end of the grid" in said[0]
    assert not any("end of the grid" in text for text in said[1:])
    plt.close("all")


def test_the_best_way_without_trust_is_compared_with_the_best_of_a_trusted_aggregator():
    rows = [
        {"dataset": "mnist", "epsilon": epsilon, "trust": trust, "excess_risk": risk, "accuracy_pct": accuracy}
        for epsilon in (0.5, 8.0, math.inf)
        for trust, risk, accuracy in (
            ("trusted aggregator", 0.01, 80.0), ("trusted aggregator", 0.5, 60.0),
            ("no trust outside the client", 0.08, 79.0), ("no trust outside the client", 0.9, 50.0),
        )
    ]  # fmt: skip
    text = five_papers_message(pd.DataFrame(rows))
    assert text.startswith("At ε = 0.5 ") and text.endswith(
        "has 8 times the excess risk of the best with a trusted aggregator"
    )
    assert five_papers_message(pd.DataFrame(rows).query("trust == 'trusted aggregator'")) == ""
    assert five_papers_message(pd.DataFrame(rows).query("epsilon == inf")) == ""
