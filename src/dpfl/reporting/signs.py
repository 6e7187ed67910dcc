"""Signs of quantities: ε, δ and σ in every figure and table, whatever the code that lays it out spells them."""

from __future__ import annotations

import re

_SIGNS = {"epsilon": "ε", "delta": "δ", "sigma": "σ", "lambda": "λ", "theta": "θ", "eta": "η", "mu": "μ"}
_NAMED = re.compile(rf"\b({'|'.join(_SIGNS)})\b")
_POWER = re.compile(r"(?<![\w.])(\d(?:\.\d+)?)e([+-]?)0*(\d+)\b")
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def with_signs(text: str) -> str:
    """Return a text with every Greek letter as its sign, and powers of ten as such: "epsilon = 1e-5" is "ε = 10⁻⁵"."""
    return _POWER.sub(_power, _NAMED.sub(lambda found: _SIGNS[found[0]], text))


def _power(found: re.Match[str]) -> str:
    """Return a number with an exponent as a product with a power of ten."""
    digits, sign, exponent = found.groups()
    if exponent == "0":
        return digits
    raised = f"10{(sign.rstrip('+') + exponent).translate(_RAISED)}"
    return raised if digits == "1" else f"{digits} · {raised}"
