"""Signs of quantities: ε, δ and σ² in every figure and table, whatever the code that lays it out spells them."""

from __future__ import annotations

import re

_SIGNS = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "eta": "η", "theta": "θ", "kappa": "κ",
    "lambda": "λ", "mu": "μ", "rho": "ρ", "sigma": "σ",
}  # fmt: skip
_NAMED = re.compile(rf"\b({'|'.join(_SIGNS)})\b")
_SQUARE = re.compile(r"(?<=[\w)])\^2(?![\w(]|\.\d)")
_POWER = re.compile(r"(?<![\w.])(\d(?:\.\d+)?)e([+-]?)0*(\d+)\b")
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def with_signs(text: str) -> str:
    """Return a text with every Greek letter as its sign, squares and powers of ten as such: "sigma^2 = 1e-5" is
    "σ² = 10⁻⁵"; names of code, as beta_1, stay."""
    return _POWER.sub(_power, _SQUARE.sub("²", _NAMED.sub(lambda found: _SIGNS[found[0]], text)))


def _power(found: re.Match[str]) -> str:
    """Return a number with an exponent as a product with a power of ten."""
    digits, sign, exponent = found.groups()
    if exponent == "0":
        return digits
    raised = f"10{(sign.rstrip('+') + exponent).translate(_RAISED)}"
    return raised if digits == "1" else f"{digits} · {raised}"
