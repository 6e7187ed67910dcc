"""Letters of figures: those of every shipped figure can be read in a window of 880 pixels."""

import matplotlib.pyplot as plt
import pytest
from matplotlib.text import Text

from dpfl.catalog import keys, load, recipe
from dpfl.reporting import style
from dpfl.reporting.results import NotRunError, read_csv, refuse_not_run

FIGURES = [
    pytest.param(key, name, marks=[pytest.mark.slow] if number else [])
    for key in keys()
    for number, name in enumerate(load(key).figures)
]
"""Of each paper one is fast."""
SHOWN_PIXELS = 838
"""Width of a figure of the report in a window of 880 pixels; a narrower figure is shown as wide."""
LEAST_PIXELS = 11
POINTS_AN_INCH = 72


def pixels(figure, text):
    """Height of a text's letters on that page; exponents, which mathtext sets smaller, count as their text."""
    return text.get_fontsize() / POINTS_AN_INCH * SHOWN_PIXELS / figure.get_figwidth()


@pytest.mark.parametrize(("key", "name"), FIGURES)
def test_no_letter_of_a_figure_is_too_small(repository, require_shipped, key, name):
    require_shipped(key)
    csv = repository / "results" / "paper" / "figures" / f"{key}_{name}.csv"
    with style.apply_style():
        try:
            figure = recipe(key, "figures", name).draw(refuse_not_run(read_csv(csv)))
        except NotRunError as reason:
            pytest.skip(str(reason))
        figure.draw_without_rendering()
        texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    small = {text.get_text() for text in texts if pixels(figure, text) < LEAST_PIXELS}
    plt.close(figure)
    assert not small and figure.get_figwidth() <= style.WIDTH


def test_the_smallest_letters_of_the_style_are_large_enough():
    assert style.SMALL / POINTS_AN_INCH * SHOWN_PIXELS / style.WIDTH >= LEAST_PIXELS
