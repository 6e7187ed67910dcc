import pytest

from dpfl.reporting.display_names import with_greek_symbols


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("epsilon (delta = 1e-05)", "ε (δ = 10⁻⁵)"),
        ("sigma^2, theta(D/sigma), lambda", "σ², θ(D/σ), λ"),
        ("8.8e-06 and 1.86e+03", "8.8 · 10⁻⁶ and 1.86 · 10³"),
        ("0.0e+00", "0.0"),
        ("eta = 0.5, beta, zeta, theorem, epsilons", "η = 0.5, β, zeta, theorem, epsilons"),
        ("alpha, gamma, kappa, 2/(beta + rho), of order 1/n^2.", "α, γ, κ, 2/(β + ρ), of order 1/n²."),
        ("beta_1, sigma_t, rho_max, x^2.5, d^(2), 2^20", "beta_1, sigma_t, rho_max, x^2.5, d^(2), 2^20"),
        ("3e, seed1e5, v1.2e3", "3e, seed1e5, v1.2e3"),
    ],
)
def test_quantities_have_one_sign(text, shown):
    assert with_greek_symbols(text) == shown
    assert with_greek_symbols(shown) == shown
