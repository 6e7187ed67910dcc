import pandas as pd
import pytest

from dpfl.errors import InputError
from dpfl.reporting import tables
from dpfl.reporting.results import Results
from dpfl.reporting.tables import TableLayout, TableRecipe, html_page, latex, make, markdown, printed_columns, readable


@pytest.fixture
def page():
    return TableLayout(pd.DataFrame({"ε": ["2.93"], "a_b": ["97.5 ± 0.1 <b> & 100 %"]}), ["50 % of #1"])


def test_markdown_keeps_text_as_it_is(page):
    text = markdown(page, "Title", "What it shows.")
    assert text.startswith("**Title**\n\nWhat it shows.\n\n|")
    assert "97.5 ± 0.1 <b> & 100 %" in text and "- 50 % of #1" in text


def test_latex_escapes_what_latex_would_read_as_commands(page):
    text = latex(page, "Title", "t_1")
    assert r"a\_b" in text and r"97.5 $\pm$ 0.1 <b> \& 100 \%" in text and r"$\varepsilon$" in text
    assert r"50 \% of \#1" in text and r"\label{tab:t_1}" in text and r"\toprule" in text


def test_latex_has_a_command_for_every_sign_that_pages_write():
    """pdflatex stops at a character that is not set up; of the Latin ones it knows those with accents."""
    letters = "alpha, beta, gamma, delta, epsilon, eta, theta, kappa, lambda, mu, rho, sigma, tau, Phi, Psi"
    written = f"{letters}; epsilon_0 sigma_t eta_i eta_j rho_r; a >= b <= c <~ d -> sqrt(2) Omega~(n) O~(n) x^2 1e-5"
    body = readable(TableLayout(pd.DataFrame({"x": [written]}), [written])).body
    assert {sign for sign in latex(TableLayout(body, []), "t", "t") if ord(sign) > 127} <= set("Õ")


def test_html_escapes_and_loads_nothing_from_elsewhere(page):
    text = html_page(page, "A < B")
    assert "97.5 ± 0.1 &lt;b&gt; &amp; 100 %" in text and "<h1>A &lt; B</h1>" in text
    assert "http" not in text and "src=" not in text


def test_readers_see_titles_signs_and_no_signed_zero():
    cells = ["fashion_mnist", "-0.0 ± 0.6 %", "+0.5, -0.05, 3-0"]
    layout = readable(TableLayout(pd.DataFrame({"epsilon": cells}), ["CIFAR-10: by -0.03 at most (-0.1 to 0.2)."]))
    shown = layout.body
    assert layout.notes == ["CIFAR-10: by −0.03 at most (−0.1 to 0.2)."]
    assert list(shown.columns) == ["ε"]
    assert list(shown["ε"]) == ["Fashion-MNIST", "0.0 ± 0.6 %", "+0.5, −0.05, 3-0"]


@pytest.mark.parametrize("lacking", ["published_accuracy_pct", "accuracy_pct", "ran_on"])
def test_published_numbers_that_cannot_be_compared_are_an_error_and_nothing_is_written(tmp_path, monkeypatch, lacking):
    columns = [name for name in printed_columns("bhaskar2025", "table_2") if name != lacking]
    recipe = TableRecipe(lambda results: pd.DataFrame([dict.fromkeys(columns, 1)]), TableLayout)
    monkeypatch.setattr(tables, "recipe", lambda *which: recipe)
    with pytest.raises(InputError, match=f"numbers for table table_2, but its rows lack the columns {lacking}"):
        make("bhaskar2025", "table_2", Results(tmp_path), tmp_path)
    assert not list(tmp_path.iterdir())
