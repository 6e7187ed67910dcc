import pytest
import torch
from scipy import stats
from torch import nn

from dpfl.engine.networks import ScaleShift, initialised


def build():
    return nn.Sequential(nn.Conv2d(3, 40, 5), nn.ReLU(), nn.Flatten(), nn.Linear(40, 300), nn.Linear(300, 20))


def test_weights_have_the_law_of_torchs_own():
    """Two-sample KS of every parameter against torch's initialisation, false alarm 1e-9 each, and the same bounds."""
    ours = initialised(build, 0)
    torch.manual_seed(0)
    theirs = [list(build().parameters()) for _ in range(20)]
    for number, parameter in enumerate(ours.parameters()):
        reference = torch.cat([each[number].detach().flatten() for each in theirs]).numpy()
        values = parameter.detach().flatten().numpy()
        assert stats.ks_2samp(values, reference).pvalue > 1e-9
        assert abs(values).max() <= abs(reference).max() * 1.05
        if len(values) > 2000:
            assert stats.ks_2samp(values * 1.5, reference).pvalue < 1e-9


def test_an_address_decides_every_weight_and_torchs_generator_is_left_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    drawn = [initialised(build, seed).parameters() for seed in (1, 1, 2)]
    assert torch.equal(torch.get_rng_state(), before)
    for first, again, other in zip(*drawn, strict=True):
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
        assert first.dtype is torch.float32 and first.requires_grad


def test_layers_of_an_unknown_law_are_named():
    with pytest.raises(ValueError, match="LayerNorm"):
        initialised(lambda: nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)), 0)


def test_scales_begin_at_one_and_shifts_at_zero_and_draw_nothing():
    scaled, plain = (
        initialised(lambda first=first: nn.Sequential(*first, nn.Linear(4, 3)), seed=0)
        for first in ([ScaleShift(4)], [])
    )
    assert (scaled[0].weight == 1).all() and (scaled[0].bias == 0).all()
    assert torch.equal(scaled[1].weight, plain[0].weight)
