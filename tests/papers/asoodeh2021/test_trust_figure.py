import math

import matplotlib.pyplot as plt
import pytest

from dpfl.convex.trust_models import TRUST_MODEL, TrustAlgorithm
from dpfl.papers.asoodeh2021.figures import NAMES, draw_trust

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


def test_each_way_is_named_with_its_accuracies_in_the_panel_of_its_trust(results):
    table = results.figure(KEY, "five_papers")
    private = set(table.query("epsilon < inf")["algorithm"])
    figure = draw_trust(table)
    for axis in figure.axes:
        words = [text.get_text() for text in axis.get_legend().get_texts()] if axis.get_legend() else []
        own = [
            each
            for each in TrustAlgorithm
            if TRUST_MODEL[each] == axis.get_title().replace("\n", " ") and each in private
        ]
        assert [each.partition(":")[0] for each in words] == [NAMES[each] for each in own]
        assert len(axis.lines) >= len(private)
        for algorithm, text in zip(own, words, strict=True):
            line = table[(table["algorithm"] == algorithm) & (table["epsilon"] < math.inf)].sort_values("epsilon")
            first, last = line["accuracy_pct"].iloc[[0, -1]]
            assert text.endswith(f"{first:.1f} to {last:.1f} %")
        beside = [text.get_text() for text in axis.texts if text.get_text() in NAMES.values()]
        other = {NAMES[each] for each in private if TRUST_MODEL[each] != "trusted shuffler"}
        assert set(beside) == (other if axis.get_title() == "trusted shuffler" else set())
    assert [axis.get_title().replace("\n", " ") for axis in figure.axes] == list(dict.fromkeys(TRUST_MODEL.values()))
    plt.close(figure)
