import hashlib

import pandas as pd
import pytest

from dpfl.catalog import keys, load, recipes
from dpfl.errors import InputError
from dpfl.reporting import figures, style
from dpfl.reporting.figures import FigureRecipe
from dpfl.reporting.results import Results


@pytest.fixture
def recipe(monkeypatch):
    def draw(data):
        figure, axis = style.panels()
        axis.plot(data["x"], data["y"], label="line")
        axis.legend()
        style.footer(figure, "footer")
        return figure

    def message(data):
        return f"y reaches {data['y'].max():g}"

    recipe = FigureRecipe(lambda results: pd.DataFrame({"x": [1, 2], "y": [0.1, 0.2]}), draw, message)
    monkeypatch.setattr(figures, "recipe", lambda paper, kind, name: recipe)


def test_a_drawing_that_returns_no_figure_is_named(monkeypatch, tmp_path):
    made = FigureRecipe(lambda results: pd.DataFrame({"x": [1]}), lambda data: None, lambda data: "")
    monkeypatch.setattr(figures, "recipe", lambda *_: made)
    with pytest.raises(InputError, match=r"lowy2021: figure figure_2: draw returned a NoneType, no Figure"):
        figures.make("lowy2021", "figure_2", Results(tmp_path, {}), tmp_path)


def test_a_figure_comes_with_its_data_and_the_same_data_give_the_same_bytes(recipe, tmp_path):
    hashes = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        paths = figures.make("lowy2021", "figure_2", Results(tmp_path, {}), folder)
        assert [path.name for path in paths] == [
            f"lowy2021_figure_2.{suffix}" for suffix in ("csv", "rst", "svg", "pdf", "png")
        ]
        hashes.append([hashlib.sha256(path.read_bytes()).hexdigest() for path in paths])
        assert sorted(folder.iterdir()) == sorted(paths)
    assert hashes[0] == hashes[1]


def test_a_picture_has_the_message_of_its_data_above_it(recipe, tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(style, "headline", lambda figure, message: written.append(message))
    figures.make("lowy2021", "figure_2", Results(tmp_path, {}), tmp_path)
    assert written == ["y reaches 0.2"]


@pytest.mark.parametrize("kind", ["figures", "tables"])
@pytest.mark.parametrize("key", keys())
def test_what_paper_yaml_names_has_a_recipe_a_title_and_a_caption(key, kind):
    named = getattr(load(key), kind)
    assert set(named) == set(recipes(key, kind))
    short = [name for name, about in named.items() if not about["title"] or len(about["caption"]) <= 80]
    assert not short, f"paper.yaml: the captions of {short} should say what is shown and what bars mean (80 characters)"
