import matplotlib.pyplot as plt

from dpfl.papers.asoodeh2020.figures import BOUNDS, HIDDEN_STATE_FIGURES, LOOKS


def test_the_map_has_a_tile_for_each_setting_and_names_its_regions(results):
    recipe = HIDDEN_STATE_FIGURES["hidden_state_map"]
    data = results.figure("asoodeh2020", "hidden_state_map")
    assert len(data) == 1000 and set(data["smallest"]) <= set(BOUNDS) == set(LOOKS)
    figure = recipe.draw(data)
    assert len(figure.axes) == 10
    assert sum(axis.collections[0].get_array().size for axis in figure.axes) == 1000
    for axis in figure.axes:
        shown = {BOUNDS[int(kind)] for kind in axis.collections[0].get_array().ravel()}
        written = {text.get_text() for text in axis.texts}
        assert written and written <= {LOOKS[name][0] for name in shown}
    assert "1,000 settings" in figure.get_supxlabel()
    plt.close(figure)
