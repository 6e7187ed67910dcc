import itertools

import matplotlib.pyplot as plt
from matplotlib.colors import to_rgb
from PIL import Image

from dpfl.reporting import style

# Linear maps of linear RGB that simulate full colour blindness of two kinds (Viénot, Brettel, Mollon 1999).
_BLIND = {
    "protan": ((0.11238, 0.88762, 0.0), (0.11238, 0.88762, 0.0), (0.00401, -0.00401, 1.0)),
    "deutan": ((0.29275, 0.70725, 0.0), (0.29275, 0.70725, 0.0), (-0.02234, 0.02234, 1.0)),
}


def seen(colour, kind):
    linear = [((c + 0.055) / 1.055) ** 2.4 if c > 0.04045 else c / 12.92 for c in to_rgb(colour)]
    return [sum(weight * value for weight, value in zip(row, linear, strict=True)) for row in _BLIND[kind]]


def test_the_first_four_colours_differ_for_every_reader():
    for kind in _BLIND:
        for one, other in itertools.combinations(style.COLOURS[:4], 2):
            gap = sum((a - b) ** 2 for a, b in zip(seen(one, kind), seen(other, kind), strict=True)) ** 0.5
            assert gap > 0.1, (kind, one, other)


def test_lines_differ_by_dash_and_marker_too():
    assert len(set(map(str, style.DASHES))) == len(style.COLOURS) == len(set(style.MARKERS))


def test_a_saved_picture_has_a_palette_and_the_same_bytes_each_time(tmp_path):
    figure, axis = style.panels()
    axis.plot([0, 1], [0, 1])
    for name in ("a.png", "b.png"):
        style.save(figure, tmp_path / name, "png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    with Image.open(tmp_path / "a.png") as drawn:
        assert drawn.mode == "P" and drawn.size == tuple(round(180 * inches) for inches in figure.get_size_inches())


def test_ticks_at_values_leave_the_vertical_axis_its_numbers():
    figure, axis = style.panels()
    axis.plot([1, 5, 20], [0.02, 0.03, 0.06])  # within a decade: only small ticks have numbers
    axis.set(xscale="log", yscale="log")
    style.ticks_at(axis, [20, 1, 5, 5])
    figure.canvas.draw()
    assert [label.get_text() for label in axis.get_xticklabels(which="both")] == ["1", "5", "20"]
    assert any(label.get_text() for label in axis.get_yticklabels(which="minor"))


def test_a_long_footer_stays_within_the_figure_and_keeps_numbers_with_their_unit():
    figure = plt.figure(figsize=(6, 2))
    style.footer(figure, "a word, 95 %" * 40)
    figure.canvas.draw()
    text = figure._supxlabel
    lines = text.get_text().split("\n")
    assert len(lines) > 2 and text.get_window_extent().x1 <= figure.bbox.x1
    assert not any(line.startswith("%") for line in lines)
    plt.close(figure)
