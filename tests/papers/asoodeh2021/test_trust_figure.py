import matplotlib.pyplot as plt
import pytest

from dpfl.experiments.trust_models.trust_settings import TRUST_MODEL, TrustAlgorithm
from dpfl.papers.asoodeh2021.trust_figure import COLOURS, NAMES, draw

KEY = "asoodeh2021"


def test_every_way_has_a_name_and_every_trust_a_colour():
    assert set(NAMES) == set(TRUST_MODEL) == set(TrustAlgorithm)
    assert len(set(COLOURS.values())) == len(set(TRUST_MODEL.values())) == len(COLOURS)


def test_each_point_is_the_best_step(results):
    table = results.figure(KEY, "five_papers")
    runs = results.runs(KEY).query("study == 'comparison'")
    assert set(table["algorithm"]) == {str(each) for each in TrustAlgorithm}
    for row in table.itertuples():
        own = runs[(runs["algorithm"] == row.algorithm) & (runs["epsilon"] == row.epsilon)]
        assert row.excess_risk == pytest.approx(own.groupby("step")["excess_risk"].mean().min(), rel=1e-12)
        assert row.trust == TRUST_MODEL[TrustAlgorithm(row.algorithm)] and row.runs == 3


def test_the_picture_names_every_way_under_its_trust(results):
    figure = draw(results.figure(KEY, "five_papers"))
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert words[0] == "trusted aggregator:" and set(NAMES.values()) <= set(words)
    plt.close(figure)
