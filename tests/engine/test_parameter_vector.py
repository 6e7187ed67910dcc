import pytest
import torch
from torch import nn

from dpfl.engine.per_record_gradients import ParameterVector, aligned
from dpfl.errors import InputError


def test_flatten_and_views_are_inverse_and_views_share_memory():
    module = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Flatten(), nn.Linear(12, 4))
    layout = ParameterVector.of(module)
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
    layout = ParameterVector.of(module)
    flat = torch.tensor([[2.0, 1.0, 3.0]])
    assert layout.views(flat)["scale"].shape == (1,)
    assert torch.equal(layout.flatten(layout.views(flat), leading=1), flat)


class Centred(nn.Linear):
    """A layer that keeps a number which is no parameter."""

    def __init__(self):
        super().__init__(2, 2)
        self.register_buffer("mean", torch.zeros(2))


def frozen() -> nn.Module:
    """A model of which a part is not to be trained."""
    layer = nn.Linear(2, 2)
    layer.bias.requires_grad_(False)
    return nn.Sequential(layer)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (
            nn.Sequential(nn.BatchNorm1d(2)),
            "model: 0 mixes the records of a batch; stacked private training needs a model without such parts",
        ),
        (nn.BatchNorm1d(2, track_running_stats=False), "model: it mixes the records of a batch"),
        (nn.Sequential(Centred()), r"model: has the buffer 0\.mean, which training would have to keep"),
        (frozen(), r"model: 0\.bias is not to be trained"),
        (nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1)), "model: 1 draws at random, unaddressed"),
        (nn.Sequential(nn.Linear(2, 2), nn.RReLU()), "model: 1 draws at random, unaddressed"),
        (nn.LSTM(2, 2, num_layers=2, dropout=0.5), "model: it draws at random, unaddressed"),
    ],
)
def test_models_that_cannot_be_trained_record_by_record_are_refused(module, words):
    with pytest.raises(InputError, match=words):
        ParameterVector.of(module)


def test_what_neither_mixes_nor_draws_is_taken():
    parts = nn.InstanceNorm1d(2), nn.GroupNorm(1, 2), nn.Dropout(0.0), nn.Dropout(0.5).eval()
    assert ParameterVector.of(nn.Sequential(*parts)).size == 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1, 16, 83])
def test_aligned_vectors_start_at_whole_cache_lines(dtype, size):
    flat = torch.randn(2, 3, size + 1, dtype=dtype)[..., 1:]
    copy = aligned(flat)
    assert torch.equal(copy, flat)
    assert all(vector.data_ptr() % 64 == 0 for vector in copy.flatten(0, 1))
    copy.zero_()
    assert flat.all()
