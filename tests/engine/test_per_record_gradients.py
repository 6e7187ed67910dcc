"""Sums of clipped gradients against loops over records, and against Opacus for the models of bhaskar2025's code."""

import copy
import itertools
import warnings

import pytest
import torch
from opacus import GradSampleModule
from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import GradSampleModuleFastGradientClipping
from torch import nn
from torch.func import grad, vmap

from dpfl.data.datasets import COLOUR, GREY
from dpfl.engine.layers import _keeps_precision
from dpfl.engine.networks import ImageModel, build
from dpfl.engine.per_record_gradients import (
    LayerGradients,
    LinearGradients,
    ParameterVector,
    PerRecordGradients,
    StackedGradients,
    activations,
    aligned,
    cross_entropy,
    gradient_rule,
    is_linear,
)
from dpfl.errors import InputError

RULES = {
    "any module": lambda module, record: PerRecordGradients(module, cross_entropy),
    "layers": lambda module, record: gradient_rule(module, cross_entropy, record),
}
MODULES = {
    "dense": lambda: nn.Sequential(nn.Flatten(), nn.Linear(50, 5)),
    "convolution": lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(27, 5)),
}


def _problem(make, groups: int = 2, variants: int = 3, count: int = 7):
    draw = torch.Generator().manual_seed(0)
    module = make().double()
    size = sum(parameter.numel() for parameter in module.parameters())
    weights = torch.randn(groups, variants, size, generator=draw, dtype=torch.float64)
    x = torch.randn(groups, count, 2, 5, 5, generator=draw, dtype=torch.float64)
    y = torch.randint(5, (groups, count), generator=draw)
    return module, weights, x, y


def _by_hand(module, weights, x, y, clip_norm):
    """Loop over the records with plain autograd."""
    nn.utils.vector_to_parameters(weights, module.parameters())
    total = torch.zeros_like(weights)
    for record, label in zip(x, y, strict=True):
        loss = nn.functional.cross_entropy(module(record[None]), label[None])
        gradient = torch.cat([each.flatten() for each in torch.autograd.grad(loss, list(module.parameters()))])
        total += gradient * min(1.0, clip_norm / float(gradient.norm()))
    return total


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("records_at_once", [1000, 14, 3, 1])
def test_sums_equal_a_loop_over_records_however_the_stack_is_split(rule, kind, records_at_once):
    module, weights, x, y = _problem(MODULES[kind])
    clip_norms = torch.tensor([1.0, float("inf"), 0.3], dtype=torch.float64)
    present = torch.ones(x.shape[:2], dtype=torch.float64)
    present[1, 4:] = 0
    stacked = StackedGradients(RULES[rule](module, x[0, 0]), x[0, 0], 1e9)
    stacked.records_at_once = records_at_once
    sums = stacked(weights, (x, y, present), clip_norms)
    for group, count in ((0, 7), (1, 4)):
        for variant, clip_norm in enumerate(clip_norms):
            expected = _by_hand(module, weights[group, variant], x[group, :count], y[group, :count], float(clip_norm))
            torch.testing.assert_close(sums[group, variant], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("kind", "value"), [*itertools.product(MODULES, [float("nan"), float("inf")]), ("dense", 1e300)]
)
@pytest.mark.parametrize("records_at_once", [1000, 3])
def test_a_record_that_cannot_be_clipped_adds_nothing_to_clipped_sums_and_shows_in_others(
    rule, kind, value, records_at_once
):
    """Its gradient is not finite, or its norm's square overflows: without it the sum must be the same."""
    module, weights, x, y = _problem(MODULES[kind])
    clip_norms = torch.tensor([1.0, float("inf"), 0.3], dtype=torch.float64)
    present = torch.ones(x.shape[:2], dtype=torch.float64)
    stacked = StackedGradients(RULES[rule](module, x[0, 0]), x[0, 0], 1e9)
    stacked.records_at_once = records_at_once
    absent = present.clone()
    absent[0, 2] = 0
    expected = stacked(weights, (x, y, absent), clip_norms)
    x = x.clone()
    x[0, 2] *= value
    sums = stacked(weights, (x, y, present), clip_norms)
    torch.testing.assert_close(sums[:, [0, 2]], expected[:, [0, 2]], rtol=0, atol=1e-12)
    assert not (sums[0, 1].isfinite() & (sums[0, 1].abs() < 1e290)).all()


def test_a_model_that_is_not_finite_gets_no_clipped_gradient():
    module, weights, x, y = _problem(MODULES["dense"])
    weights[0, 0, 3] = float("inf")
    stacked = StackedGradients(RULES["layers"](module, x[0, 0]), x[0, 0], 1e9)
    sums = stacked(weights, (x, y, torch.ones(x.shape[:2], dtype=x.dtype)), torch.ones(3, dtype=x.dtype))
    assert (sums[0, 0] == 0).all()
    assert sums.isfinite().all() and (sums[0, 1] != 0).any()


def test_no_records_give_zero():
    module, weights, x, y = _problem(MODULES["dense"])
    stacked = StackedGradients(PerRecordGradients(module, cross_entropy), x[0, 0], 1e9)
    sums = stacked(weights, (x[:, :0], y[:, :0], torch.ones(2, 0, dtype=torch.float64)), torch.ones(3))
    assert not sums.any()


class Hungry:
    """A rule for whose sums memory is short above so many records of one model."""

    def __init__(self, rule, room: int, error: Exception):
        self.rule, self.room, self.error, self.seen = rule, room, error, []

    def record_bytes(self, record):
        return self.rule.record_bytes(record)

    def clipped_sums(self, weights, batch, clip_norms):
        self.seen.append(len(weights) * len(batch[0]))
        if self.seen[-1] > self.room:
            raise self.error
        return self.rule.clipped_sums(weights, batch, clip_norms)


NO_MEMORY = [
    MemoryError(),
    torch.OutOfMemoryError("CUDA out of memory"),
    RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 99 bytes"),
]


@pytest.mark.parametrize("error", NO_MEMORY, ids=lambda error: type(error).__name__)
def test_where_memory_runs_out_fewer_models_go_together_and_the_log_says_so(error, caplog):
    module, weights, x, y = _problem(MODULES["dense"])
    batch, clip_norms = (x, y, torch.ones(x.shape[:2], dtype=torch.float64)), torch.tensor([1.0, 0.5, float("inf")])
    rule = gradient_rule(module, cross_entropy, x[0, 0])
    expected = StackedGradients(rule, x[0, 0], 1e9)(weights, batch, clip_norms)
    hungry = Hungry(rule, 3, error)
    stacked = StackedGradients(hungry, x[0, 0], 1e9)
    torch.testing.assert_close(stacked(weights, batch, clip_norms), expected, rtol=0, atol=1e-12)
    assert "out of memory: from here on" in caplog.text
    assert stacked.records_at_once <= 3
    hungry.seen.clear()
    stacked(weights, batch, clip_norms)
    assert max(hungry.seen) <= 3  # it has learnt


def test_one_record_that_does_not_fit_and_other_errors_are_said():
    module, weights, x, y = _problem(MODULES["dense"])
    batch = (x, y, torch.ones(x.shape[:2], dtype=torch.float64))
    rule = gradient_rule(module, cross_entropy, x[0, 0])
    with pytest.raises(InputError, match="does not fit"):
        StackedGradients(Hungry(rule, 0, MemoryError()), x[0, 0], 1e9)(weights, batch, torch.ones(3))
    with pytest.raises(RuntimeError, match="shapes"):
        StackedGradients(Hungry(rule, 0, RuntimeError("shapes differ")), x[0, 0], 1e9)(weights, batch, torch.ones(3))


def test_activations_are_counted_once_a_module():
    module, _, x, _ = _problem(MODULES["convolution"])
    assert activations(module, x[0, 0]) == 27 + 27 + 27 + 5


def by_autograd(logits, labels):
    """The derivative as torch differentiates the loss itself."""
    return grad(lambda values: cross_entropy(values, labels).sum())(logits)


@pytest.mark.parametrize("size", [1e-8, 1.0, 50.0])
def test_the_derivative_is_that_of_autograd(size):
    logits = size * torch.randn(7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.arange(7) % 4
    torch.testing.assert_close(
        cross_entropy.derivative(logits, labels), by_autograd(logits, labels), rtol=0, atol=1e-15
    )


def test_models_that_share_records_have_classes_before_records():
    logits, labels = torch.randn(3, 4, 7, dtype=torch.float64), torch.arange(7) % 4
    output_gradients = cross_entropy.derivative(logits, labels)
    for model, gradients in zip(logits, output_gradients, strict=True):
        torch.testing.assert_close(gradients, by_autograd(model.T, labels).T, rtol=0, atol=1e-15)


def test_the_derivative_works_under_vmap():
    logits, labels = torch.randn(3, 7, 4), torch.arange(7) % 4
    expected = torch.stack([cross_entropy.derivative(each, labels) for each in logits])
    torch.testing.assert_close(vmap(cross_entropy.derivative, (0, None))(logits, labels), expected)


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


LINEAR = [nn.Linear(6, 3), nn.Sequential(nn.Flatten(), nn.Linear(6, 3)), nn.Sequential(nn.Linear(6, 3), nn.Identity())]
OTHERS = [
    nn.Linear(6, 3, bias=False),
    nn.Sequential(nn.Linear(6, 3), nn.Tanh()),
    nn.Sequential(nn.Linear(6, 3), nn.Linear(3, 3)),
    nn.Sequential(nn.Flatten(2), nn.Linear(6, 3)),
    nn.Conv2d(1, 1, 1),
]


def test_linear_modules_are_told_from_others():
    assert all(is_linear(module) for module in LINEAR)
    assert not any(is_linear(module) for module in OTHERS)


@pytest.mark.parametrize("loss", [cross_entropy, lambda z, y: (z - torch.eye(3).double()[y]).square().sum(1)])
def test_sums_equal_those_record_by_record_for_any_loss(loss):
    module = LINEAR[1].double()
    draw = torch.Generator().manual_seed(0)
    weights = torch.randn(4, ParameterVector.of(module).size, generator=draw, dtype=torch.float64)
    x = torch.randn(9, 2, 3, generator=draw, dtype=torch.float64)
    batch = (x, torch.arange(9) % 3, torch.tensor([1.0] * 8 + [0.0], dtype=torch.float64))
    clip_norms = torch.tensor([1e6, 2.0, 0.1, float("inf")], dtype=torch.float64)
    rule = gradient_rule(module, loss, x[0])
    assert isinstance(rule, LinearGradients)
    expected = PerRecordGradients(module, loss).clipped_sums(weights, batch, clip_norms)
    torch.testing.assert_close(rule.clipped_sums(weights, batch, clip_norms), expected, rtol=0, atol=1e-13)
    norms = rule.clipped_sums(weights[2:3], tuple(part[:1] for part in batch), clip_norms[2:3]).norm()
    assert float(norms) == pytest.approx(0.1, rel=1e-14)


def test_a_stack_changes_nothing_but_rounding():
    """At the size of the papers' model: 3,969 features, in float32."""
    module = nn.Linear(3969, 10)
    draw = torch.Generator().manual_seed(0)
    weights = 0.01 * torch.randn(7, 39_700, generator=draw)
    rule, clip_norms = LinearGradients(module, cross_entropy), torch.tensor([1.0, 0.5, float("inf"), 1, 1, 2, 3])
    for count in (1, 7, 64):
        batch = torch.randn(count, 3969, generator=draw), torch.arange(count) % 10, torch.ones(count)
        together = rule.clipped_sums(weights, batch, clip_norms)
        for chosen in ([0], [3], [6, 0, 1]):
            alone = rule.clipped_sums(weights[chosen], batch, clip_norms[chosen])
            torch.testing.assert_close(alone, together[chosen], rtol=0, atol=1e-6 * float(together.abs().max()))


def test_a_model_that_is_not_finite_leaves_the_others_bit_for_bit():
    weights = torch.randn(3, 21, generator=torch.Generator().manual_seed(0))
    broken = weights.clone()
    broken[1] = float("nan")
    rule, batch = LinearGradients(LINEAR[0], cross_entropy), (torch.randn(5, 6), torch.arange(5) % 3, torch.ones(5))
    clean, found = (rule.clipped_sums(each, batch, torch.ones(3)) for each in (weights, broken))
    assert torch.equal(found[[0, 2]], clean[[0, 2]])
    assert torch.isnan(found[1]).all()


RECORD = torch.randn(2, 6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


class Twice(nn.Module):
    """A layer that the forward pass meets twice: its gradient is not one product."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(72, 72), nn.Linear(72, 5)

    def forward(self, x):
        return self.head(self.layer(self.layer(x.flatten(1))))


class Scaled(nn.Module):
    """A parameter outside every known layer."""

    def __init__(self):
        super().__init__()
        self.scale, self.head = nn.Parameter(torch.tensor(2.0)), nn.Linear(72, 5)

    def forward(self, x):
        return self.head(self.scale * x.flatten(1))


def _twice_in_sequence() -> nn.Module:
    layer = nn.Linear(72, 72)
    return nn.Sequential(nn.Flatten(), layer, layer, nn.Linear(72, 5))


ELSEWHERE = {
    "grouped": lambda: nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.Flatten(), nn.Linear(64, 5)),
    "circular": lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular"), nn.Flatten(), nn.Linear(144, 5)
    ),
    "no bias": lambda: nn.Sequential(nn.Flatten(), nn.Linear(72, 5, bias=False)),
    "layer norm": lambda: nn.Sequential(nn.LayerNorm(6), nn.Flatten(), nn.Linear(72, 5)),
    "other activation": lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.ELU(), nn.Flatten(), nn.Linear(64, 5)),
    "padded pool": lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.MaxPool2d(2, padding=1), nn.Flatten(), nn.Linear(36, 5)
    ),
    "met twice": Twice,
    "twice in a sequence": _twice_in_sequence,
    "own parameter": Scaled,
    "over positions": lambda: nn.Sequential(nn.Linear(6, 3), nn.Flatten(), nn.Linear(36, 5)),
}
CLOSED = {
    "dense": lambda: nn.Sequential(nn.Flatten(), nn.Linear(72, 9), nn.Tanh(), nn.Linear(9, 5)),
    "one layer": lambda: nn.Sequential(nn.Conv2d(2, 5, 6), nn.Tanh(), nn.Flatten()),
    "pooled first": lambda: nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(2, 4, 2), nn.Flatten(), nn.Linear(16, 5)),
    "strided, padded": lambda: nn.Sequential(nn.Conv2d(2, 40, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(360, 5)),
    "deep": lambda: nn.Sequential(
        nn.Sequential(nn.Conv2d(2, 8, 3), nn.Tanh()),
        nn.Conv2d(8, 30, 2),
        nn.MaxPool2d(2, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(120, 5),
    ),
}


def without_derivative(logits, labels):
    """A loss that autograd has to differentiate."""
    return cross_entropy(logits, labels)


def _network_problem(name: str, loss=cross_entropy):
    torch.manual_seed(0)
    module = CLOSED[name]().double()
    rule = gradient_rule(module, loss, RECORD)
    assert isinstance(rule, LayerGradients)
    weights = rule.layout.flatten({name: each.detach() for name, each in module.named_parameters()})
    weights = weights + 0.1 * torch.randn(4, len(weights), dtype=torch.float64)
    present = torch.tensor([1.0] * 8 + [0.0], dtype=torch.float64)
    batch = torch.randn(9, *RECORD.shape, dtype=torch.float64), torch.arange(9) % 5, present
    return rule, PerRecordGradients(module, loss), weights, batch


@pytest.mark.parametrize("name", ELSEWHERE)
def test_modules_without_closed_form_are_differentiated_record_by_record(name):
    assert isinstance(gradient_rule(ELSEWHERE[name]().double(), cross_entropy, RECORD), PerRecordGradients)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_any_module_has_the_sums_of_its_records_alone(name):
    torch.manual_seed(0)
    module = ELSEWHERE[name]().double()
    alone = copy.deepcopy(module)
    rule = gradient_rule(module, cross_entropy, RECORD)
    x, y = torch.randn(4, *RECORD.shape, dtype=torch.float64), torch.arange(4) % 5
    weights = rule.layout.flatten({name: each.detach() for name, each in module.named_parameters()})
    clip_norms = torch.tensor([0.1, 3.0, torch.inf], dtype=torch.float64)
    sums = rule.clipped_sums(weights.repeat(3, 1), (x, y, torch.ones(4, dtype=torch.float64)), clip_norms)
    for ours, clip_norm in zip(sums, clip_norms.tolist(), strict=True):
        torch.testing.assert_close(ours, _by_hand(alone, weights, x, y, clip_norm), rtol=0, atol=1e-13)


@pytest.mark.parametrize("loss", [cross_entropy, without_derivative])
@pytest.mark.parametrize("name", CLOSED)
def test_closed_forms_equal_per_record_gradients(name, loss):
    rule, reference, weights, batch = _network_problem(name, loss)
    clip_norms = torch.tensor([0.1, torch.inf, 2.0, 1e6], dtype=torch.float64)
    ours = rule.clipped_sums(weights, batch, clip_norms)
    torch.testing.assert_close(ours, reference.clipped_sums(weights, batch, clip_norms), rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", CLOSED)
def test_single_precision_gives_the_same_up_to_its_rounding(name):
    rule, _, weights, batch = _network_problem(name)
    clip_norms = torch.tensor([0.1, torch.inf, 2.0, 1e6], dtype=torch.float64)
    single = rule.clipped_sums(weights.float(), (batch[0].float(), batch[1], batch[2].float()), clip_norms.float())
    torch.testing.assert_close(single.double(), rule.clipped_sums(weights, batch, clip_norms), rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", CLOSED)
def test_every_model_gets_what_it_gets_alone_and_the_same_bits_where_no_layer_is_shared(name):
    rule, _, weights, batch = _network_problem(name)
    clip_norms = torch.tensor([0.1, torch.inf, 2.0, 0.5], dtype=torch.float64)
    together = rule.clipped_sums(weights, batch, clip_norms)
    for model in range(4):
        one = slice(model, model + 1)
        alone = rule.clipped_sums(weights[one], batch, clip_norms[one])[0]
        own = rule.trained[0] != 0 or rule.layers[0].forms_gradients
        torch.testing.assert_close(alone, together[model], rtol=0, atol=0 if own else 1e-13)


@pytest.mark.parametrize("at_once", [1, 3])
def test_first_layers_go_together_as_far_as_their_outputs_fit(at_once, monkeypatch):
    rule, _, weights, batch = _network_problem("strided, padded")
    assert not rule.layers[0].forms_gradients
    bounds = torch.tensor([0.1, torch.inf, 2.0, 0.5], dtype=torch.float64)
    whole, seen = rule.clipped_sums(weights, batch, bounds), []
    monkeypatch.setattr(
        "dpfl.engine.per_record_gradients.MODELS_AT_ONCE", at_once * len(batch[0]) * rule.layers[0].output_size
    )
    forward = rule.layers[0].forward
    monkeypatch.setattr(
        rule.layers[0], "forward", lambda *known: seen.append(len(known[1][0])) or forward(*known), raising=False
    )
    torch.testing.assert_close(rule.clipped_sums(weights, batch, bounds), whole, rtol=0, atol=1e-13)
    assert seen == {1: [40] * 4, 3: [120, 40]}[at_once]


def test_one_model_that_left_the_numbers_leaves_the_others_theirs():
    rule, _, weights, batch = _network_problem("strided, padded")
    bounds = torch.tensor([0.1, torch.inf, 2.0, 0.5], dtype=torch.float64)
    expected = rule.clipped_sums(weights, batch, bounds)
    weights[1] = torch.nan
    found = rule.clipped_sums(weights, batch, bounds)
    assert found[1].isnan().all()
    torch.testing.assert_close(found[[0, 2, 3]], expected[[0, 2, 3]], rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", CLOSED)
def test_the_same_sums_come_under_vmap_as_on_other_devices(name):
    rule, _, weights, batch = _network_problem(name)
    bounds = torch.tensor([0.1, torch.inf, 2.0, 1e6], dtype=torch.float64)
    views = list(rule.layout.views(weights).values())
    over_models = vmap(rule._clipped_sum, (0, 0, None, None))(views, bounds, *rule._shared_cache(batch))
    torch.testing.assert_close(over_models, rule.clipped_sums(weights, batch, bounds), rtol=0, atol=1e-13)


@pytest.mark.parametrize("shape", [GREY, COLOUR], ids=["grey", "colour"])
@pytest.mark.parametrize("model", ImageModel)
def test_models_of_the_paper_have_closed_forms_that_other_devices_can_form_too(model, shape):
    """Device "meta" takes the way of a GPU, vmap over clients and models, and computes shapes alone."""
    reads = (81 * shape[0], shape[1] // 4, shape[2] // 4) if model.reads_features else shape
    x = torch.empty(2, 5, *reads, device="meta")
    module = build(model, shape, 0).to("meta")
    rule = gradient_rule(module, cross_entropy, x[0, 0])
    assert isinstance(rule, LinearGradients if model is ImageModel.SCATTER_LINEAR else LayerGradients)
    weights = torch.empty(2, 4, sum(each.numel() for each in module.parameters()), device="meta")
    labels, present = torch.empty(2, 5, dtype=torch.int64, device="meta"), torch.empty(2, 5, device="meta")
    # Not by calling it: that also looks at the values for an overflow, and "meta" has none.
    sums = StackedGradients(rule, x[0, 0], 2**30)._sums(weights, (x, labels, present), torch.empty(4, device="meta"))
    assert sums.shape == weights.shape


# The models of bhaskar2025's code in the stack, against Opacus's own per-record gradients of torch's own modules.


CLIP_NORMS = (0.1, float("inf"), 3.0, 1e6)


def _opacus(module, data):
    """Every record's gradient, (n, parameters), from images with the channels first."""
    sampled = GradSampleModule(copy.deepcopy(module), loss_reduction="sum")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        nn.functional.cross_entropy(sampled(data[0]), data[1], reduction="sum").backward()
    return torch.cat([each.grad_sample.flatten(1) for each in sampled.parameters()], 1)


def _clipped(gradients, clip_norm):
    return (gradients * (clip_norm / gradients.norm(dim=1)).clamp(max=1)[:, None]).sum(0)


def _code_problem(code_model, models=1):
    labels = torch.arange(len(code_model.inputs)) % 10
    rule = gradient_rule(code_model.ours, cross_entropy, code_model.inputs[0])
    assert isinstance(rule, LayerGradients | LinearGradients)
    weights = torch.cat([each.detach().flatten() for each in code_model.ours.parameters()]).repeat(models, 1)
    present = torch.ones(len(labels), dtype=torch.float64)
    return rule, weights, (code_model.inputs, labels, present)


def test_clipped_sums_are_opacus_own(code_model):
    rule, weights, batch = _code_problem(code_model, len(CLIP_NORMS))
    gradients = _opacus(code_model.reference, (code_model.raw, batch[1]))
    assert gradients.norm(dim=1).min() > CLIP_NORMS[0]
    sums = rule.clipped_sums(weights, batch, torch.tensor(CLIP_NORMS, dtype=torch.float64))
    for ours, clip_norm in zip(sums, CLIP_NORMS, strict=True):
        torch.testing.assert_close(ours, _clipped(gradients, clip_norm), rtol=0, atol=1e-12)


def test_the_layout_of_images_changes_no_norm_here_and_those_of_opacus_1_6():
    """Opacus unfolds images as if their channels came first in memory, and so reads a third of colour images: the norm
    of a record that is dark there is too small. docs/speed.md and docs/howto/opacus.md say so: mend them if this
    fails."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 10, 3), nn.AvgPool2d(30), nn.Flatten())
    images, labels = torch.rand(4, 3, 32, 32), torch.arange(4)
    images[:, :, 14:] *= 100
    images[:, :, :14] = 0
    weights = torch.cat([each.detach().flatten() for each in module.parameters()])[None]
    rule = gradient_rule(module, cross_entropy, images[0])

    def norms(layout):
        """Of the records' gradients: what they add here without clipping, and what Opacus clips by."""
        x = images.contiguous(memory_format=layout)
        alone = [(x[i : i + 1], labels[i : i + 1], torch.ones(1)) for i in range(4)]
        ours = torch.stack([rule.clipped_sums(weights, each, torch.tensor([torch.inf])).norm() for each in alone])
        opacus = GradSampleModuleFastGradientClipping(copy.deepcopy(module), max_grad_norm=1.0, loss_reduction="sum")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            nn.functional.cross_entropy(opacus(x), labels, reduction="sum").backward()
        return ours, opacus.get_norm_sample()

    first, last = norms(torch.contiguous_format), norms(torch.channels_last)
    torch.testing.assert_close(first[0], first[1])
    torch.testing.assert_close(last[0], first[0])
    assert (last[1] < first[1] / 100).all()


@pytest.mark.parametrize("precision", [None, torch.bfloat16], ids=["float32", "bfloat16"])
def test_a_model_has_the_same_bits_alone_and_in_any_stack(code_model, precision):
    has = torch.cpu.get_capabilities()
    has_amx, is_intel = has.get("amx_bf16", False), "Intel" in str(has.get("cpu_name"))
    colour_cnn = code_model.shape == (243, 8, 8) and not is_linear(code_model.ours)
    least = 3 if is_intel and colour_cnn and precision is None else 1  # of models, where a batch has a single record
    if not (_keeps_precision() or (has_amx and code_model.reads_pixels)):  # docs/clipping_precision.md has the table
        pytest.skip("torch leaves products to a library that rounds by position on this processor")
    clip_norms = torch.tensor([1.0, 0.3, float("inf"), 2.0, float("inf"), 0.7])
    rule = gradient_rule(code_model.ours.float(), cross_entropy, code_model.inputs[0].float(), precision)
    weights = torch.cat([each.detach().flatten() for each in code_model.ours.parameters()])
    weights = aligned(weights + 0.01 * torch.randn(6, len(weights)))
    for count in (6, 1):
        batch = code_model.inputs[:count].float(), torch.arange(count) % 10, torch.ones(count)
        together = rule.clipped_sums(weights, batch, clip_norms)
        for chosen in ([0], [2], [4, 1], [0, 3, 5], [5, 4, 3, 2, 1]):
            found = rule.clipped_sums(aligned(weights[chosen]), batch, clip_norms[chosen])
            if count > 1 or len(chosen) >= least:
                assert torch.equal(found, together[chosen])
            torch.testing.assert_close(found, together[chosen])


@pytest.mark.parametrize("code_model", [("tanh", "grey"), ("linear", "grey"), ("cnn", "grey")], indirect=True)
def test_bfloat16_moves_sums_by_its_rounding_alone(code_model):
    """And not by less: it runs. Sums of clipped gradients of 40 records."""
    labels = torch.arange(40) % 10
    inputs = torch.randn(40, *code_model.shape)
    weights = torch.cat([each.detach().flatten() for each in code_model.ours.float().parameters()])[None]
    clip_norms, batch = torch.tensor([1.0]), (inputs, labels, torch.ones(40))
    single, half = (
        gradient_rule(code_model.ours, cross_entropy, inputs[0], precision).clipped_sums(weights, batch, clip_norms)
        for precision in (None, torch.bfloat16)
    )
    assert half.dtype is torch.float32
    assert 2**-14 < (single - half).norm() / len(labels) < 0.03


def test_a_record_alone_has_the_norm_that_clips_it(code_model):
    rule, weights, batch = _code_problem(code_model)
    alone = tuple(part[:1] for part in batch)
    plain = rule.clipped_sums(weights, alone, torch.tensor([float("inf")]).double()).norm()
    for clip_norm in (plain / 3, plain * 0.999, plain * 1.001):
        found = rule.clipped_sums(weights, alone, clip_norm[None]).norm()
        assert float(found) == pytest.approx(float(min(clip_norm, plain)), rel=1e-11)
        assert found <= clip_norm


def test_the_memory_of_a_record_by_hand():
    """Numbers times bytes: of the general rule three gradients and six of every activation."""
    layers = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    record = torch.zeros(5)
    parameters, outputs = 5 * 4 + 4 + 4 * 3 + 3, 4 + 4 + 3
    assert PerRecordGradients(layers, cross_entropy).record_bytes(record) == 4 * (3 * parameters + 6 * outputs)
    linear = gradient_rule(nn.Linear(5, 3), cross_entropy, record)
    assert linear.record_bytes(record) == 4 * (5 + 6 * 3)


def test_a_budget_holds_as_many_records_as_fit_and_at_least_one():
    module, _, x, _ = _problem(MODULES["dense"])
    rule = PerRecordGradients(module, cross_entropy)
    needed = rule.record_bytes(x[0, 0])
    assert [StackedGradients(rule, x[0, 0], share * needed).records_at_once for share in (1, 1.99, 7)] == [1, 1, 7]
    with pytest.raises(InputError, match="memory_gb: one record's gradient needs"):
        StackedGradients(rule, x[0, 0], needed - 1)
