"""Products stay in single precision, whichever library forms them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.engine import layers

SIZE = st.integers(1, 200)
ROUNDING = 2.0**-24


def deviation(left, right):
    """The largest error of the product, over the product of magnitudes."""
    exact = left.double() @ right.double()
    return ((layers.product(left, right) - exact).abs() / (left.double().abs() @ right.double().abs())).max().item()


@settings(deadline=None)
@given(st.integers(1, 9), SIZE, SIZE, SIZE, st.booleans())
def test_no_product_is_rounded_to_less_than_single_precision(batch, rows, inner, columns, transposed):
    draws = torch.Generator().manual_seed(rows)
    left = torch.randn(batch, *((inner, rows) if transposed else (rows, inner)), generator=draws)
    left = left.transpose(1, 2) if transposed else left
    right = torch.randn(batch, inner, columns, generator=draws)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layers, "LARGE", 0)
        assert deviation(left, right) <= inner * ROUNDING
        assert deviation(left[0], right[0]) <= inner * ROUNDING


def test_the_setting_is_torch_s_own_again_afterwards(monkeypatch):
    setting = torch.backends.mkldnn.matmul
    before = setting.fp32_precision
    monkeypatch.setattr(layers, "_keeps_precision", lambda: True)
    monkeypatch.setattr(layers, "LARGE", 0)
    with pytest.raises(RuntimeError):
        layers.product(torch.ones(2, 3), torch.ones(2, 3))
    assert setting.fp32_precision == before


@pytest.mark.parametrize(
    ("capabilities", "keeps"),
    [
        ({"avx512_f": True, "amx_tile": False, "amx_bf16": False, "avx10_2": False}, True),
        ({"avx512_f": True, "amx_tile": True, "amx_bf16": True, "avx10_2": False}, False),
        ({"avx512_f": False, "amx_tile": False, "amx_bf16": False, "avx10_2": False}, False),
        ({"neon": True, "bf16": True}, False),
        ({}, False),
    ],
)
def test_processors_that_could_round_are_left_alone(monkeypatch, capabilities, keeps):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    assert layers._keeps_precision.__wrapped__() is keeps
