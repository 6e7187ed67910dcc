from __future__ import annotations

import pytest
import torch
from torch import nn

from dpfl.engine.layout import Layout, aligned
from dpfl.errors import InputError


def test_flatten_and_views_are_inverse_and_views_share_memory():
    module = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Flatten(), nn.Linear(12, 4))
    layout = Layout.of(module)
    assert layout.size == sum(parameter.numel() for parameter in module.parameters())
    flat = torch.randn(5, 2, layout.size)
    views = layout.views(flat)
    assert views["2.weight"].shape == (5, 2, 4, 12)
    assert torch.equal(layout.flatten(views, leading=2), flat)
    views["0.bias"].zero_()
    assert int((flat == 0).sum()) == 5 * 2 * 3


def test_a_parameter_without_axes_is_kept():
    module = nn.Module()
    module.scale = nn.Parameter(torch.tensor(2.0))
    module.shift = nn.Parameter(torch.tensor([1.0, 3.0]))
    layout = Layout.of(module)
    flat = torch.tensor([[2.0, 1.0, 3.0]])
    assert layout.views(flat)["scale"].shape == (1,)
    assert torch.equal(layout.flatten(layout.views(flat), leading=1), flat)


def test_refuses_buffers():
    with pytest.raises(InputError, match=r"buffer 0\.running_mean"):
        Layout.of(nn.Sequential(nn.BatchNorm1d(2)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1, 16, 83])
def test_aligned_vectors_start_at_whole_cache_lines(dtype, size):
    flat = torch.randn(2, 3, size + 1, dtype=dtype)[..., 1:]
    copy = aligned(flat)
    assert torch.equal(copy, flat)
    assert all(vector.data_ptr() % 64 == 0 for vector in copy.flatten(0, 1))
    copy.zero_()
    assert flat.all()
