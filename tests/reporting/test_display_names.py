"""Names on pages: data, captions, verdicts of an epsilon and Greek symbols."""

import math
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from dpfl.catalog import keys, load
from dpfl.reporting import display_names
from dpfl.reporting.display_names import (
    EpsilonVerdict,
    at_least,
    at_most,
    count_range,
    data_name,
    data_note,
    epsilon_verdict,
    stand_ins,
    with_greek_symbols,
)

DATA = pd.DataFrame(
    {"dataset": ["digits", "mnist", "digits"], "stand_in_for": ["mnist", "", "mnist"], "runs": [3, 2, 3]}
)


def test_counts_are_one_number_or_a_range():
    assert [count_range(pd.Series(counts)) for counts in ([4, 4], [4.0, 2.0])] == ["4", "2 to 4"]
    assert count_range(pd.Series(dtype=float)) == "0"


def test_stand_ins_are_named():
    assert stand_ins(DATA) == ["digits"] and stand_ins(DATA[1:2]) == []
    assert data_name("digits", "mnist") == "Digits (stand-in for MNIST)"
    assert (data_name("fashion_mnist", ""), data_name("mnist", "cifar10")) == (
        "Fashion-MNIST", "MNIST (stand-in for CIFAR-10)"
    )  # fmt: skip
    assert data_note(DATA) == "2 to 3 runs a point on Digits (stand-in for MNIST), MNIST; intervals: 90 %."
    assert data_note(DATA[:0]) == "0 runs a point on no data; intervals: 90 %."


def test_a_caption_names_the_page_its_data_and_its_record(tmp_path):
    path = display_names.write("figures", "lowy2021", "figure_2", tmp_path / "lowy2021_figure_2.csv")
    said = load("lowy2021").figures["figure_2"]
    text = path.read_text()
    assert path == tmp_path / "lowy2021_figure_2.rst"
    assert said["title"] in text and said["caption"] in text
    assert "``lowy2021_figure_2.csv``" in text and "``lowy2021_figure_2.csv.record.json``" in text


@pytest.mark.parametrize("paper", keys())
@pytest.mark.parametrize("kind", ["tables", "figures"])
def test_no_caption_holds_what_the_report_would_take_for_a_template(paper, kind):
    for said in getattr(load(paper), kind).values():
        assert not any(mark in said["title"] + said["caption"] for mark in ("{{", "{%", "{#"))


@pytest.mark.parametrize(
    ("proven", "refuted", "known"),
    [
        (2.93, 2.93, EpsilonVerdict.PROVEN),
        (2.9301, 2.9301, EpsilonVerdict.PROVEN),
        (2.94, 0.0, EpsilonVerdict.UNPROVEN),
        (math.inf, 2.65, EpsilonVerdict.UNPROVEN),
        (math.inf, 2.94, EpsilonVerdict.REFUTED),
    ],
)
def test_the_claimed_epsilon_is_compared_up_to_the_accountants_grid(proven, refuted, known):
    assert epsilon_verdict(2.93, proven, refuted) == known


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("epsilon (delta = 1e-05)", "ε (δ = 10⁻⁵)"),
        ("sigma^2, theta(D/sigma), lambda", "σ², θ(D/σ), λ"),
        ("8.8e-06 and 1.86e+03", "8.8 · 10⁻⁶ and 1.86 · 10³"),
        ("0.0e+00", "0.0"),
        ("eta = 0.5, beta, zeta, theorem, epsilons", "η = 0.5, β, zeta, theorem, epsilons"),
        ("alpha, gamma, kappa, 2/(beta + rho), of order 1/n^2.", "α, γ, κ, 2/(β + ρ), of order 1/n²."),
        (
            "beta_1, rho_max, x^2.5, d^(2), 2^20, a-->b, np.sqrt(2)",
            "beta_1, rho_max, x^2.5, d^(2), 2^20, a-->b, np.sqrt(2)",
        ),
        ("sqrt(epsilon_0) >= sigma_t, n -> 1, d <= O~(n) <~ Omega~(1)", "√(ε₀) ≥ σₜ, n → 1, d ≤ Õ(n) ≲ Ω̃(1)"),
        ("Renyi of order alpha, renyi_epsilon", "Rényi of order α, renyi_epsilon"),
        ("exp(-sqrt(tau)) {t<=tau} Phi(1)", "exp(-√(τ)) {t≤τ} Φ(1)"),
        ("3e, seed1e5, v1.2e3", "3e, seed1e5, v1.2e3"),
        ("E_gamma, eta_gamma, sum_tau G_mu, noise_sigma, |w|^2/2", "E_γ, η_γ, sum_τ G_μ, noise_sigma, |w|²/2"),
        ("-0.5 (-1 to -.25), [-3], -1e-05", "−0.5 (−1 to −.25), [−3], −10⁻⁵"),
        ("1 - 1/n, E[F(w)] - F(w*), |a| - b, a^2 - b", "1 − 1/n, E[F(w)] − F(w*), |a| − b, a² − b"),
        ("M(b-a)/v, x^(n-i), (n-1), (A/B-test), (2-4)", "M(b−a)/v, x^(n−i), (n−1), (A/B-test), (2-4)"),
        ("CIFAR-10, 2-4, low=-1, --seed -x, x^-1, beta_1-2", "CIFAR-10, 2-4, low=-1, --seed -x, x^-1, beta_1-2"),
    ],
)
def test_quantities_have_one_sign(text, shown):
    assert with_greek_symbols(text) == shown
    assert with_greek_symbols(shown) == shown


def test_a_proven_bound_is_rounded_up_and_an_exceeded_one_down():
    assert (at_most(2.504832), at_most(2.504832, 3), at_most(2.504832, places=2)) == ("2.505", "2.51", "2.51")
    assert (at_least(12.771544), at_least(12.771544, 3), at_least(12.771544, places=1)) == ("12.77", "12.7", "12.7")


def test_no_bound_becomes_false_and_none_moves_by_more_than_its_last_digit():
    values = np.exp(np.random.default_rng(0).uniform(-6, 6, 2000))
    for value in map(float, values):
        for digits in (1, 2, 3, 4):
            above, below = Decimal(at_most(value, digits)), Decimal(at_least(value, digits))
            assert below <= Decimal(value) <= above
            assert float(above - below) <= 10.0 ** (math.floor(math.log10(value)) - digits + 1) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(2.0, 3, "2.00"), (1.23, 3, "1.23"), (0.1 + 0.2, 2, "0.30"), (9.996, 3, "10.0"), (0.0, 3, "0"), (6161, 2, "6200")],
)
def test_an_exact_number_stays_and_every_digit_is_shown(value, digits, text):
    assert at_most(value, digits) == text


def test_infinity_has_a_sign_and_what_is_no_number_is_refused():
    assert at_most(math.inf) == "∞" and at_least(math.inf, places=2) == "∞"
    with pytest.raises(ValueError, match="value = nan"):
        at_most(math.nan)
    with pytest.raises(ValueError, match="digits = 0"):
        at_least(1.0, 0)
