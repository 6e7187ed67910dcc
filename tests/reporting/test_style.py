import itertools
import re
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from dpfl.reporting import style
from dpfl.reporting.engine_report import _require_drawing

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


def test_a_tick_close_to_the_next_has_no_number():
    figure, axis = plt.subplots()
    axis.set_xscale("log")
    style.ticks_at(axis, [18, 6, 12, 12.5])
    assert [label.get_text() for label in axis.get_xticklabels()] == ["6", "", "12.5", "18"]
    plt.close(figure)


def test_a_long_footer_stays_within_the_figure_and_keeps_numbers_with_their_unit():
    figure = plt.figure(figsize=(6, 2))
    style.footer(figure, "a word, 95 %" * 40)
    figure.canvas.draw()
    text = figure._supxlabel
    lines = text.get_text().split("\n")
    assert len(lines) > 2 and text.get_window_extent().x1 <= figure.bbox.x1
    assert not any(line.startswith("%") for line in lines)
    plt.close(figure)


def contrast(one, other):
    """WCAG's ratio of two colours' luminances."""
    linear = [
        [((c + 0.055) / 1.055) ** 2.4 if c > 0.04045 else c / 12.92 for c in to_rgb(each)] for each in (one, other)
    ]
    high, low = sorted((0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in linear), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_dark_colours_are_seen_on_the_dark_ground_and_told_apart():
    ground = style.DARK[style.WHITE]
    for light, dark in style.DARK.items():
        if light not in (style.WHITE, style.PALE):
            assert contrast(dark, ground) > 4.5, light
    for kind in _BLIND:
        for one, other in itertools.combinations(style.COLOURS[:4], 2):
            ends = seen(style.DARK[one], kind), seen(style.DARK[other], kind)
            assert sum((a - b) ** 2 for a, b in zip(*ends, strict=True)) ** 0.5 > 0.1, (kind, one, other)


@pytest.fixture
def drawing():
    """A figure with a line, a mark that is white inside, black words, and words on a tile."""
    figure, axis = style.panels()
    axis.plot([0.123456789, 1], [0, 1], color=style.BLUE, marker="o", markerfacecolor=style.WHITE, label="line")
    axis.text(0.5, 0.5, "tile", color=style.ON_LIGHT)
    yield figure
    plt.close(figure)


def test_a_saved_svg_has_each_colour_twice_and_is_drawn_once(drawing, tmp_path):
    path = tmp_path / "a.svg"
    style.save(drawing, path, "svg")
    text = path.read_text()
    assert text.count(style.PREFERS_DARK) == 1 and text.count("<svg") == 1
    for part, light in (("fill", style.WHITE), ("stroke", style.BLUE), ("stroke", style.BLACK)):
        assert f'[style*="{part}: {light.lower()}"]{{{part}:{style.DARK[light]}!important}}' in text
    assert f"svg{{fill:{style.DARK[style.BLACK]}}}" in text
    assert style.RED.lower() not in text.lower()  # no rule for a colour that is not drawn
    assert style.ON_LIGHT in text and f"{style.ON_LIGHT}{{" not in text
    _require_drawing(path)


def test_a_saved_svg_does_not_hang_on_the_last_digits_of_a_layout(tmp_path):
    texts = []
    for last_digits in (0.0, 1e-13):
        figure = plt.figure()
        figure.add_axes((0.1, 0.1, 0.8, 0.8 + last_digits)).plot([0, 1], [0, 1 + last_digits], marker="o")
        figure.savefig(tmp_path / "as_drawn.svg", metadata={"Date": None})
        style.save(figure, tmp_path / "a.svg", "svg")
        plt.close(figure)
        texts.append(((tmp_path / "as_drawn.svg").read_text(), (tmp_path / "a.svg").read_text()))
    (one, saved), (other, again) = texts
    assert one != other and saved == again
    assert set(re.findall(r"#([mp]\w{10})", saved)) <= set(re.findall(r'id="([mp]\w{10})"', saved))


def test_coordinates_of_a_saved_svg_are_short_and_the_same_to_the_eye(drawing, tmp_path):
    style.save(drawing, tmp_path / "short.svg", "svg")
    drawing.savefig(tmp_path / "long.svg")
    pattern = re.compile(r'<path d="M ([\d.]+) ([\d.]+)')
    short, long = (
        [float(each) for found in pattern.findall((tmp_path / name).read_text()) for each in found]
        for name in ("short.svg", "long.svg")
    )
    assert len(short) == len(long) > 10 and max(abs(a - b) for a, b in zip(short, long, strict=True)) <= 0.00501
    assert not re.search(r' (?:d|x|y)="[^"]*\d\.\d{3}', (tmp_path / "short.svg").read_text())


def test_no_figure_has_a_colour_of_its_own():
    """A colour that style does not know has no dark one."""
    package = Path(style.__file__).parents[1]
    own = re.compile(r'"#[0-9A-Fa-f]{6}"|[cC]olou?r="(?:black|white|gr[ae]y|red|blue|green)"')
    found = [path.name for path in package.rglob("papers/*/*.py") if own.search(path.read_text(encoding="utf-8"))]
    assert not found


def test_a_message_stands_in_the_legend_at_the_left_or_alone():
    with_legend, axis = style.panels(width=4)
    axis.plot([0, 1], label="line")
    style.legend(with_legend, [axis], ncols=1)
    height = with_legend.get_figheight()
    style.headline(with_legend, "the risk falls as n to the power -0.5, " * 3)
    title = with_legend.legends[0].get_title().get_text()
    assert title.count("\n") >= 2 and "\N{MINUS SIGN}0.5" in title and with_legend._suptitle is None
    assert with_legend.get_figheight() == pytest.approx(height + 0.2 * len(title.splitlines()))
    with_legend.canvas.draw()
    box = with_legend.legends[0].get_window_extent()
    assert box.x0 < 0.05 * with_legend.bbox.width and box.x1 <= with_legend.bbox.width
    assert axis.get_window_extent().y1 < box.y0
    alone, _ = style.panels(width=4)
    style.headline(alone, "epsilon = 2 at 5 %")
    assert alone.get_suptitle() == "ε\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}2 at 5\N{NO-BREAK SPACE}%"
    none, _ = style.panels(width=4, height=2)
    style.headline(none, "")
    assert not none.get_suptitle() and none.get_figheight() == 2
    plt.close("all")


def test_a_legend_of_several_panels_names_each_line_once_and_what_was_measured_first():
    figure, axes = style.panels(2)
    for axis in axes:
        axis.axhline(1, label="bound")
        axis.errorbar([1], [1], [0.1], label="measured")
    style.legend(figure, axes, ncols=2)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["measured", "bound"]
    plt.close(figure)


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_names_of_lines_stand_at_their_heights_and_apart(scale):
    figure, axis = style.panels()
    axis.set(yscale=scale, ylim=(1, 100))
    style.name_lines(axis, 1.0, [(10.0, "a", style.BLUE), (10.1, "b\nb", style.RED), (90.0, "c", style.BLACK)])
    heights = {text.get_text(): text.xy[1] for text in axis.texts}
    assert heights["a"] == pytest.approx(0.5 if scale == "log" else 9 / 99)
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in axis.texts]
    assert all(low.y1 <= high.y0 + 1 for low, high in itertools.pairwise(boxes))
    plt.close(figure)


def test_a_short_logarithmic_axis_has_plain_numbers_and_a_long_one_keeps_its_powers():
    figure, (short, long) = style.panels(2)
    for axis, top in ((short, 0.06), (long, 60.0)):
        axis.plot([1, 2], [0.004, top])
        axis.set_yscale("log")
        style.plain_heights(axis)
    figure.canvas.draw()
    low, high = short.get_ylim()
    shown = [
        label.get_text()
        for at, label in zip(short.get_yticks(), short.get_yticklabels(), strict=True)
        if low <= at <= high
    ]
    assert shown == ["0.005", "0.01", "0.02", "0.05"]
    assert any("10^{" in label.get_text() for label in long.get_yticklabels())
    plt.close(figure)
