"""The engine on a GPU against itself on the CPU; skipped where there is none."""

import math

import pytest
import torch
from scipy import stats

from dpfl import gpu
from dpfl.data.datasets import COLOUR, GREY
from dpfl.engine.networks import ImageModel, build
from dpfl.engine.per_record_gradients import ParameterVector, StackedGradients, gradient_rule
from dpfl.engine.sgd import base_noise
from dpfl.images.fedavg_images import cross_entropy

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that torch can use")

MODELS = [(model, shape) for model in ImageModel for shape in (GREY, COLOUR)]


@pytest.fixture(scope="module", autouse=True)
def as_it_trains():
    """Set torch as `dpfl train` does, before CUDA starts."""
    gpu.prepare()


def sums(model, shape, device, budget=2**30, dtype=torch.float64):
    """Clipped sums of two clients and four models with batches of five and four."""
    reads = (81 * shape[0], shape[1] // 4, shape[2] // 4) if model.reads_features else shape
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(2, 5, *reads, generator=draw).to(device, dtype)
    module = build(model, shape, seed=0).to(device, dtype)
    layout = ParameterVector.of(module)
    flat = layout.flatten({name: value.detach() for name, value in module.named_parameters()})
    drift = torch.randn(2, 4, layout.size, generator=draw).to(device, dtype)
    present = torch.ones(2, 5, dtype=dtype, device=device)
    present[1, 4] = 0
    clip_norms = torch.tensor([math.inf, 1.0, 0.1, 10.0], dtype=dtype, device=device)
    gradients = StackedGradients(gradient_rule(module, cross_entropy, x[0, 0]), x[0, 0], budget)
    labels = (torch.arange(10) % 10).view(2, 5).to(device)
    return gradients(flat + 0.01 * drift, (x, labels, present), clip_norms).cpu()


@pytest.mark.parametrize(("model", "shape"), MODELS)
def test_sums_in_double_precision_are_those_of_the_cpu(model, shape):
    assert torch.allclose(sums(model, shape, "cuda"), sums(model, shape, "cpu"), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("model", "shape"), MODELS)
def test_packing_changes_nothing_but_rounding(model, shape):
    assert torch.allclose(sums(model, shape, "cuda"), sums(model, shape, "cuda", budget=2**26), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("model", "shape"), MODELS)
def test_single_precision_is_far_below_the_noise(model, shape):
    exact, single = sums(model, shape, "cpu"), sums(model, shape, "cuda", dtype=torch.float32).double()
    noise = 0.1 * math.sqrt(exact.shape[-1])  # sigma 1 at the smallest clip norm
    assert float((single - exact)[:, 1:].norm(dim=-1).max()) < 1e-3 * noise


def test_noise_is_standard_normal_addressed_and_the_same_again():
    """Kolmogorov-Smirnov at a false-alarm rate of 1e-6; scales of 2/3 and 3/2 are told apart."""
    where = {"dtype": torch.float32, "device": torch.device("cuda")}
    draws = base_noise(200_000, seed=0, client=3, epoch=2, step=1, **where)
    again = base_noise(200_000, seed=0, client=3, epoch=2, step=1, **where)
    other = base_noise(200_000, seed=0, client=4, epoch=2, step=1, **where)
    assert torch.equal(draws, again) and not torch.equal(draws, other)
    values = draws.double().cpu().numpy()
    assert stats.kstest(values, "norm").pvalue > 1e-6
    assert all(stats.kstest(values * scale, "norm").pvalue < 1e-6 for scale in (2 / 3, 3 / 2))


def test_every_part_of_a_stream_decides_the_noise():
    """Seeds that agree in 32 bits, and offsets alone, give other draws."""
    drawn = []
    for seed, offset in ((5, 0), (5 + 2**32, 0), (5 + 2**63, 0), (5, 4 * 2**40), (5, 4 * (2**60 - 1))):
        generator = torch.Generator("cuda").manual_seed(seed)
        generator.set_offset(offset)
        drawn.append(torch.randn(1000, generator=generator, device="cuda"))
    correlation = torch.corrcoef(torch.stack(drawn)) - torch.eye(5, device="cuda")
    assert float(correlation.abs().max()) < 6.5 / 1000**0.5  # 10 pairs: false alarm 1e-9


def test_a_stack_that_does_not_fit_is_halved_until_it_does():
    """The budget lies: it promises more than the process may have."""
    whole = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(min(1.0, 2 * 2**30 / whole))
    try:
        reads = COLOUR
        x = torch.randn(10, 64, *reads, device="cuda")
        module = build(ImageModel.CNN_TANH, COLOUR, seed=0).cuda()
        layout = ParameterVector.of(module)
        flat = layout.flatten({name: value.detach() for name, value in module.named_parameters()})
        gradients = StackedGradients(gradient_rule(module, cross_entropy, x[0, 0]), x[0, 0], 10.0**15)
        labels, present = torch.zeros(10, 64, dtype=torch.int64, device="cuda"), torch.ones(10, 64, device="cuda")
        found = gradients(flat.repeat(10, 6, 1), (x, labels, present), torch.ones(6, device="cuda"))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert torch.isfinite(found).all() and gradients.records_at_once < 10 * 6 * 64
