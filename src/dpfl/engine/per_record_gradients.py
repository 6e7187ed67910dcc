"""Per-record gradients of stacked models, clipped and summed: any module, linear models, networks of known layers."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeGuard, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from dpfl.engine.layers import (
    ChannelScale,
    Convolution,
    Dense,
    Flatten,
    Layer,
    MaxPoolLayer,
    MeanPoolLayer,
    Parameters,
    ReLU,
    ScaledConvolution,
    Tanh,
    TrainedLayer,
    accurate,
    channels_last,
    norm_roundings,
    product,
    rounding,
    scaled,
    squared_norms,
    sure_factors,
)
from dpfl.engine.networks import ScaleShift
from dpfl.errors import InputError

# Map the parameters of a module to one flat vector, and back.

ALIGNMENT_BYTES = 64  # of torch's own memory, and the longest vector of a CPU


@dataclass(frozen=True)
class ParameterVector:
    """Names and shapes of a module's parameters, in their order in the flat vector."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]

    @classmethod
    def of(cls, module: nn.Module) -> ParameterVector:
        """Return the layout of `module`; raises InputError where it cannot be trained so: it has buffers or parameters
        that are not to be trained, draws at random, or mixes the records of a batch."""
        if faults := _faults(module):
            raise InputError(f"model: {faults[0]}; stacked private training needs a model without such parts")
        named = list(module.named_parameters())
        return cls(tuple(name for name, _ in named), tuple(parameter.shape for _, parameter in named))

    @property
    def size(self) -> int:
        """The number of parameters."""
        return sum(math.prod(shape) for shape in self.shapes)

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """Return `flat` (..., size) as one view (..., *shape) a parameter; writing to a view writes to `flat`."""
        parts = flat.split([math.prod(shape) for shape in self.shapes], dim=-1)
        return {
            name: part.unflatten(-1, shape) if shape else part.squeeze(-1)
            for name, part, shape in zip(self.names, parts, self.shapes, strict=True)
        }

    def flatten(self, tensors: Mapping[str, Tensor], leading: int = 0) -> Tensor:
        """Return one vector (..., size) of tensors that share their first `leading` axes."""
        lead = next(iter(tensors.values())).shape[:leading]
        return torch.cat([tensors[name].reshape(*lead, -1) for name in self.names], dim=-1)


def _faults(module: nn.Module) -> list[str]:
    """Return what keeps a module from being trained record by record in a stack."""
    layers = list(module.named_modules())
    mixing = nn.modules.batchnorm._BatchNorm  # noqa: SLF001
    return [
        *(f"{name or 'it'} mixes the records of a batch" for name, each in layers if isinstance(each, mixing)),
        *(f"has the buffer {name}, which training would have to keep" for name, _ in module.named_buffers()),
        *(f"{name} is not to be trained" for name, each in module.named_parameters() if not each.requires_grad),
        *(
            f"{name or 'it'} draws at random, unaddressed"
            for name, each in layers
            if each.training and _draws_at_random(each)
        ),
    ]


def _draws_at_random(layer: nn.Module) -> bool:
    """Return whether a layer, while it trains, reads torch's own generator: its draws would have no address."""
    if isinstance(layer, nn.RReLU | nn.FractionalMaxPool2d | nn.FractionalMaxPool3d):
        return True
    probability = layer.p if isinstance(layer, nn.modules.dropout._DropoutNd) else getattr(layer, "dropout", 0.0)  # noqa: SLF001
    return isinstance(probability, float | int) and probability > 0


def aligned(flat: Tensor) -> Tensor:
    """Return a copy of `flat` (..., size) in which every vector starts at a multiple of 64 bytes.

    Matrix libraries round according to where an operand starts: so laid out, layers that multiply for one model alone
    give it the same bits at any position in a stack.
    """
    size, step = flat.shape[-1], ALIGNMENT_BYTES // flat.element_size()
    padded = flat.new_empty(*flat.shape[:-1], -(-size // step) * step)[..., :size]
    padded.copy_(flat)
    return padded


# Sum clipped per-record gradients, for one model and for a stack of models.
#
# A rule (`GradientRule`) knows one model; `StackedGradients` applies it to a stack within a budget of memory. The rule
# here differentiates record by record and so serves any module; dpfl.engine.per_record_gradients has the faster one for
# layers whose norms have a closed form.

_log = logging.getLogger(__name__)

HEAP_BYTES = 2**25 - 2**16  # just under the largest that glibc learns from

Loss = Callable[[Tensor, Tensor], Tensor]
"""Maps predictions (n, ...) and labels (n, ...) to one loss per record, (n,). Its method `derivative`, if any, replaces
autograd (dpfl.engine.per_record_gradients)."""


class GradientRule(Protocol):
    """Sum the gradients of models that share a batch."""

    def clipped_sums(self, weights: Tensor, batch: Batch, clip_norms: Tensor) -> Tensor:
        """Return, for each model of `weights` (variants, parameters), the sum over present records of its gradients,
        each scaled to a norm of at most the model's clip norm; shape (variants, parameters).

        `clip_norms` (variants,): infinite where nothing is clipped; those are plain sums. On other devices
        than a CPU it is called under vmap over groups of models, `weights` and `batch` mapped and `clip_norms` not:
        there it may not write in place.
        """
        ...

    def record_bytes(self, record: Tensor) -> int:
        """Return about how many bytes `clipped_sums` holds for each record of a batch and each model."""
        ...


Batch = tuple[Tensor, Tensor, Tensor]
"""Inputs (n, ...), labels (n, ...) and presence (n,): 1 for a record of the batch, 0 for padding."""


class PerRecordGradients:
    """Compute each record's gradient by vmap: for any module without buffers, at the cost of storing them all.

    `precision`: what the module and its gradients are computed in, if not the weights' own.
    """

    def __init__(self, module: nn.Module, loss: Loss, precision: torch.dtype | None = None) -> None:
        self.module, self.loss, self.layout = module, loss, ParameterVector.of(module)
        self.precision = precision

    def clipped_sums(self, weights: Tensor, batch: Batch, clip_norms: Tensor) -> Tensor:
        """Clip over the full parameter vector, then sum; the models follow one another."""
        return torch.stack(
            [
                self._clipped_sum(model, batch, clip_norm) if clips else self._plain_sum(model, batch)
                for model, clip_norm, clips in zip(weights, clip_norms, clipping(clip_norms), strict=True)
            ]
        )

    def _clipped_sum(self, weights: Tensor, batch: Batch, clip_norm: Tensor) -> Tensor:
        """Return the sum of one model that clips."""
        weights, x, y, present = self._cast(weights, batch)
        formed = vmap(grad(self._record_loss), (None, 0, 0))(self.layout.views(weights), x, y)
        gradients = {name: accurate(gradient) for name, gradient in formed.items()}
        squares = sum(squared_norms(gradient[..., None].flatten(1)) for gradient in gradients.values())
        roundings = norm_roundings(self.layout.size) + len(gradients)
        factors = sure_factors(cast("Tensor", squares), clip_norm, roundings) * present
        return self.layout.flatten({name: torch.tensordot(factors, g, 1) for name, g in gradients.items()})

    def _plain_sum(self, weights: Tensor, batch: Batch) -> Tensor:
        """Return the sum of one model that does not clip: the gradient of the summed loss."""
        weights, x, y, present = self._cast(weights, batch)

        def total(parameters: dict[str, Tensor]) -> Tensor:
            return (self.loss(accurate(functional_call(self.module, parameters, (x,))), y) * present).sum()

        return accurate(self.layout.flatten(grad(total)(self.layout.views(weights))))

    def _cast(self, weights: Tensor, batch: Batch) -> tuple[Tensor, ...]:
        """Return weights, inputs, labels and presence, the first two in the precision of the passes."""
        x, y, present = batch
        return weights.to(self.precision or weights.dtype), x.to(self.precision or x.dtype), y, present

    def record_bytes(self, record: Tensor) -> int:
        """Count three copies of the gradient, and values and gradients of every activation."""
        return record.element_size() * (3 * self.layout.size + 6 * activations(self.module, record))

    def _record_loss(self, parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        """Return the loss of one record."""
        return self.loss(accurate(functional_call(self.module, parameters, (x[None],))), y[None])[0]


class StackedGradients:
    """Apply a rule to a stack of groups (each with its own batch) x variants (sharing the group's batch).

    All variants of a group go together as far as the memory budget allows, else fewer; where not even one model's
    batch fits, its records are split. Groups follow one another on a CPU and go together, by vmap, elsewhere. None of
    this changes the sums beyond rounding.
    """

    def __init__(self, rule: GradientRule, record: Tensor, memory_bytes: float) -> None:
        """`record` is one input, without batch axis, on the device that will be used; raises InputError where the
        budget holds not even one record of one model."""
        self.rule = rule
        # glibc returns memory after every step and fetches it page by page for the next, which takes as long as the
        # step, until a block of this size has been freed: then it keeps twice as much
        torch.empty(HEAP_BYTES, dtype=torch.uint8)
        self.records_at_once = int(memory_bytes // rule.record_bytes(record))
        if self.records_at_once < 1:
            needed = rule.record_bytes(record) / 2**30
            raise InputError(f"memory_gb: one record's gradient needs {needed:.3g} GB, the budget holds less; raise it")

    def __call__(self, weights: Tensor, batch: Batch, clip_norms: Tensor) -> Tensor:
        """Return the gradient sums at `weights`, both of shape (groups, variants, parameters); the caller may change
        them, and must not use them after the next call.

        `batch`: inputs (groups, n, ...), labels (groups, n, ...), presence (groups, n). `clip_norms` (variants,):
        infinite where a variant does not clip. A record that cannot be clipped is left out (`without_overflow`). Where
        memory runs out, fewer models go together from then on, and the log says so; raises InputError where one record
        of one model is too much.
        """
        while True:
            try:
                return without_overflow(self.rule, self._sums(weights, batch, clip_norms), weights, batch, clip_norms)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                self._shrink(weights.shape[0] * weights.shape[1] * batch[0].shape[1])
            if weights.device.type == "cuda":
                torch.cuda.empty_cache()

    def _sums(self, weights: Tensor, batch: Batch, clip_norms: Tensor) -> Tensor:
        """Return the sums, with as many models and records at once as fit."""
        groups, variants, length = *weights.shape[:2], batch[0].shape[1]
        if groups * variants * length <= self.records_at_once:
            return self._part(weights, batch, clip_norms)
        models = max(1, self.records_at_once // length)
        wide, deep = min(models, variants), max(1, models // variants)
        sums = torch.zeros_like(weights)
        for first_record in range(0, length, self.records_at_once):
            records = slice(first_record, first_record + self.records_at_once)
            for first_group in range(0, groups, deep):
                here = slice(first_group, first_group + deep)
                part = cast("Batch", tuple(each[here, records] for each in batch))
                for first in range(0, variants, wide):
                    chosen = slice(first, first + wide)
                    sums[here, chosen] += self._part(weights[here, chosen], part, clip_norms[chosen])
        return sums

    def _part(self, weights: Tensor, batch: Batch, clip_norms: Tensor) -> Tensor:
        """Return the rule's sums of some groups, variants and records."""
        if len(weights) > 1 and weights.device.type != "cpu":
            return vmap(self.rule.clipped_sums, (0, 0, None))(weights, batch, clip_norms)
        groups = zip(weights, *batch, strict=True)
        sums = [self.rule.clipped_sums(models, cast("Batch", tuple(part)), clip_norms) for models, *part in groups]
        return sums[0][None] if len(sums) == 1 else torch.stack(sums)

    def _shrink(self, tried: int) -> None:
        """Halve the records that go together, after `tried` of them were too many."""
        self.records_at_once = min(self.records_at_once, tried) // 2
        if self.records_at_once < 1:
            raise InputError("memory: one record's gradient of one model does not fit; use a machine with more")
        _log.warning("out of memory: from here on %d records of one model go together", self.records_at_once)


def without_overflow(rule: GradientRule, sums: Tensor, weights: Tensor, batch: Batch, clip_norms: Tensor) -> Tensor:
    """Return a rule's `sums` (groups, variants, parameters), in place without the records that no scaling can clip.

    A record whose gradient's norm is infinite or nan makes every entry of its sum nan (dpfl.mechanisms). Where
    that happens to a model that clips, its sum becomes that of the records whose own clipped gradients are finite; 0
    where the model's weights are not finite. Sums that are not clipped stay as they are: divergence remains visible.
    Formal guarantee: so the clipped sums' sensitivity holds for all weights and inputs.
    """
    overflowed = torch.isfinite(clip_norms) & ~torch.isfinite(sums[..., -1])
    if not bool(overflowed.any()):
        return sums
    for group, variant in overflowed.nonzero().tolist():
        model, total = weights[group, variant, None], torch.zeros_like(sums[group, variant])
        for record in range(batch[0].shape[1] if bool(torch.isfinite(model).all()) else 0):
            alone = cast("Batch", tuple(part[group, record, None] for part in batch))
            (gradient,) = rule.clipped_sums(model, alone, clip_norms[variant, None])
            total += gradient.where(torch.isfinite(gradient).all(), 0.0)
        sums[group, variant] = total
    return sums


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that memory ran out: Python's, torch's on a device, or torch's on a CPU."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "not enough memory" in str(error)


def clipping(clip_norms: Tensor) -> list[bool]:
    """Return which variants clip, from their clip norms (variants,)."""
    return torch.isfinite(clip_norms).tolist()


def activations(module: nn.Module, record: Tensor) -> int:
    """Return how many numbers one record's forward pass produces, over all innermost modules."""
    counts: list[int] = []
    handles = [
        each.register_forward_hook(lambda _module, _inputs, output: counts.append(output.numel()))
        for each in module.modules()
        if not list(each.children())
    ]
    try:
        with torch.no_grad():
            module(record[None])
    finally:
        for handle in handles:
            handle.remove()
    return sum(counts)


# Sum clipped gradients of linear models: one matrix product forward and one back for a whole stack.
#
# A linear model reads the batch itself, so the weights of all models are rows of one matrix W, their logits are W x and
# their gradient sums D x, with D the scaled gradients of the loss at the logits. The norm of one record's gradient is
# |d| sqrt(|x|^2 + 1).
#
# A model may scale and shift its inputs first (dpfl.engine.networks), by s and t. Its logits are (W s) x + W t + b,
# so the products stay as wide; with e = W^T d, the gradient of W is d (s x + t)^T, of s e x, of t e. Their sums follow
# from D x: s and t of one model are the same for all its records.


class LinearGradients:
    """Compute gradients of a module that `is_linear`.

    With oneDNN (dpfl.engine.layers) a model's sums have the same bits alone and in any stack; other libraries
    round a row according to its position and to the number of rows.
    """

    def __init__(self, module: nn.Module, loss: Loss, precision: torch.dtype | None = None) -> None:
        parts = _parts(module)
        layer, self.scales = cast("nn.Linear", parts[-1]), type(parts[0]) is ScaleShift
        self.loss, self.input_size, self.output_size = loss, layer.in_features, layer.out_features
        self.precision = precision
        self.roundings = norm_roundings(self.input_size) + self.output_size + 16
        numbers = self.output_size * self.input_size, self.output_size
        self.numbers = (self.input_size, self.input_size, *numbers) if self.scales else numbers

    def clipped_sums(self, weights: Tensor, batch: Batch, clip_norms: Tensor) -> Tensor:
        """Take one product for all logits, one for all sums."""
        x, y, present = batch
        x = x.flatten(1)
        *scaling, matrix, bias = weights.split(self.numbers, dim=1)
        matrix = matrix.unflatten(1, (self.output_size, self.input_size))
        seen = matrix * scaling[0][:, None, :] if scaling else matrix  # by x itself
        low = self.precision or x.dtype
        scores = product(seen.reshape(-1, self.input_size).to(low), x.to(low).T, stacked=True).to(x.dtype)
        if scaling:
            bias = bias + torch.linalg.vecdot(matrix, scaling[1][:, None, :])
        logits = scores.unflatten(0, (len(weights), self.output_size)) + bias[:, :, None]
        gradients = self.logit_gradients(logits, y)
        squares = self._squares(gradients, matrix, scaling, x, clip_norms)
        scaled = gradients * (sure_factors(squares, clip_norms[:, None], self.roundings) * present)[:, None, :]
        sums = product(scaled.flatten(0, 1), x, stacked=True).view_as(matrix)
        totals = scaled.sum(2)
        if not scaling:
            return torch.cat([sums.flatten(1), totals], dim=1)
        shift = (totals[:, :, None] * matrix).sum(1)
        scale = (sums * matrix).sum(1)
        sums = torch.addcmul(totals[:, :, None] * scaling[1][:, None, :], sums, scaling[0][:, None, :])
        return torch.cat([scale, shift, sums.flatten(1), totals], dim=1)

    def _squares(
        self, gradients: Tensor, matrix: Tensor, scaling: list[Tensor], x: Tensor, clip_norms: Tensor
    ) -> Tensor:
        """Return bounds on the squared norms of what records add (models, n), as `sure_factors` takes them; 0 where
        nothing is clipped."""
        if not scaling:
            return gradients.square().sum(1) * (squared_norms(x) + 1)
        squares = x.square()
        lengths = (squares + 1).sqrt()
        if x.device.type != "cpu":
            return self._scaled_squares(gradients, matrix, *cast("tuple[Tensor, Tensor]", scaling), x, squares) + (
                (gradients.transpose(1, 2) @ matrix) * lengths
            ).square().sum(2)
        found = gradients.new_zeros(len(gradients), len(x))
        clipped = [model for model, clips in enumerate(clipping(clip_norms)) if clips]
        if clipped:
            own = (each[clipped] for each in (gradients, matrix, *scaling))
            found[clipped] = self._scaled_squares(*cast("tuple[Tensor, Tensor, Tensor, Tensor]", own), x, squares)
        for model in clipped:
            found[model] += squared_norms(product(gradients[model].T, matrix[model], stacked=True).mul_(lengths))
        return found

    def _scaled_squares(
        self, gradients: Tensor, matrix: Tensor, scale: Tensor, shift: Tensor, x: Tensor, squares: Tensor
    ) -> Tensor:
        """Return |d|^2 (|s x + t|^2 + 1), and what rounding may take from it and from the squares of s e x and t e.

        |error| <= gamma of the magnitudes, which are the squares of s x and t, and |d|^2 |W|^2 (|x|^2 + 1).
        """
        exact, scale, shift = x.double(), scale.double(), shift.double()
        seen, moved = _rows(scale.square(), exact.square()), shift.square().sum(1, keepdim=True)
        crossed = 2 * _rows(scale * shift, exact)
        read = seen + crossed + moved + rounding(2 * self.input_size + 8, torch.float64) * (seen + moved)
        sizes = matrix.square().sum(1)
        through = product(torch.cat([sizes, sizes[:1]]), squares.T, stacked=True)[:-1]  # why two: see _rows
        lost = rounding(3 * (self.output_size + 8), x.dtype) * (through + sizes.sum(1, keepdim=True))
        return gradients.square().sum(1) * (read.to(x.dtype) + 1 + lost)

    def record_bytes(self, record: Tensor) -> int:
        """Count the input, its square and a gradient there, and a few numbers an output."""
        return record.element_size() * ((4 if self.scales else 1) * self.input_size + 6 * self.output_size)

    def logit_gradients(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the gradient of each record's loss at its logits (models, outputs, n)."""
        if hasattr(self.loss, "derivative"):
            return cast("CrossEntropy", self.loss).derivative(logits, y)
        labels = y.expand(len(logits), *y.shape).flatten(0, 1)

        def total(logits: Tensor) -> Tensor:
            return self.loss(logits.transpose(1, 2).flatten(0, 1), labels).sum()

        return grad(total)(logits)


def _rows(left: Tensor, right: Tensor) -> Tensor:
    """Return left @ right^T, each row as it is alone: a product of one row would be left to another routine."""
    return torch.stack([torch.mv(right, row) for row in left])


def is_linear(module: nn.Module) -> bool:
    """Return whether `module` is one nn.Linear with bias, or a sequence that adds only a flattening and a ScaleShift
    of the flattened inputs."""
    parts = list(module) if type(module) is nn.Sequential else [module]
    flattens = all(part.start_dim == 1 and part.end_dim == -1 for part in parts if type(part) is nn.Flatten)
    kinds = [type(part) for part in _parts(module)]
    if not flattens or kinds not in ([nn.Linear], [ScaleShift, nn.Linear]):
        return False
    *scaling, layer = _parts(module)
    return layer.bias is not None and all(part.channels == layer.in_features for part in scaling)


def _parts(module: nn.Module) -> list[nn.Module]:
    """Return the modules that compute something."""
    parts = list(module) if type(module) is nn.Sequential else [module]
    return [part for part in parts if type(part) not in (nn.Flatten, nn.Identity)]


# Provide cross entropy with its own derivative: autograd takes longer than a small model's forward pass.


class CrossEntropy:
    """Cross entropy of logits and class numbers: a `Loss` (dpfl.engine.per_record_gradients) with its derivative."""

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each record, (n,), from logits (n, classes) and labels (n,)."""
        return functional.cross_entropy(logits, labels, reduction="none")

    def derivative(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return probabilities minus the label's one, in the shape of `logits`: (n, classes), or (models, classes, n)
        for models that share the records."""
        places = labels[:, None] if logits.ndim == 2 else labels.expand(len(logits), 1, -1)
        return logits.softmax(1).scatter_add(1, places, logits.new_full(places.shape, -1))


cross_entropy = CrossEntropy()


# Sum clipped gradients of networks of known layers, by one forward and one backward pass for all records.
#
# A record's gradient for a dense or convolutional layer is a product of the layer's input a and the loss's gradient d
# at its output. One pass in each direction gives every a and d of the batch; each layer then knows its records' norms
# (dpfl.engine.layers, dpfl.engine.layers), and their sum over layers gives the factors by which records are scaled.

MODELS_AT_ONCE = 2**20  # output numbers of first layers computed together
BACKWARD_PASSES = 6  # an activation's value and gradient, each with the copies that are made on the way


class BackwardPass(NamedTuple):
    """Results of one model's two passes: the loss's gradients at each trained layer's output, every layer's cache, the
    records' gradients where norms formed them, and the factor that scales each record (n,), if any does."""

    output_gradients: dict[int, Tensor]
    caches: list[Any]
    gradients: dict[int, Parameters | None]
    factors: Tensor | None


class LayerGradients:
    """Compute gradients of a sequence of layers; see `gradient_rule`.

    On a CPU models follow one another, so that one model's activations stay in the processor's cache; but a first layer
    that reads the batch itself and does not form gradients is one layer of many outputs for all models together, as far
    as those fit there: matrix libraries multiply few wide matrices faster than many narrow ones. With oneDNN
    (dpfl.engine.layers) a model's sums have the same bits alone and in any stack; other libraries may change
    the last ones. On other devices models go together, by vmap.
    """

    def __init__(
        self,
        layers: list[Any],  # each a Layer or a TrainedLayer; self.trained tells them apart
        loss: Loss,
        layout: ParameterVector,
        activations: int,
        precision: torch.dtype | None = None,
    ) -> None:
        self.layers, self.loss, self.layout, self.activations = layers, loss, layout, activations
        self.precision = precision
        self.trained = [number for number, layer in enumerate(layers) if _is_trained(layer)]
        # those of one layer, and of adding up what a layer's tensors and all layers give
        self.roundings = max(layers[number].roundings for number in self.trained) + len(self.trained) + 4

    def clipped_sums(self, weights: Tensor, batch: Batch, clip_norms: Tensor) -> Tensor:
        """Cache what all models share about the batch, then pass through one model after the other."""
        views = list(self.layout.views(weights).values())
        if weights.device.type != "cpu":
            batch, shared = self._shared_cache(batch)
            return vmap(self._clipped_sum, (0, 0, None, None))(views, clip_norms, batch, shared)
        bounds = [norm if clips else None for norm, clips in zip(clip_norms, clipping(clip_norms), strict=True)]
        # a loss that knows its derivative leaves autograd nothing to do; tracking takes a twentieth of the time
        with torch.inference_mode(hasattr(self.loss, "derivative")):
            batch, shared = self._shared_cache(batch)
            if shared is None or self.layers[0].forms_gradients or len(self.trained) == 1:
                each = zip(_by_model(views), bounds, strict=True)
                parts = [self._clipped_sum(*model, batch, shared)[None] for model in each]
            else:
                at_once = max(1, MODELS_AT_ONCE // max(1, len(batch[0]) * self.layers[0].output_size))
                slices = [slice(first, first + at_once) for first in range(0, len(weights), at_once)]
                parts = [
                    self._with_one_first_layer([view[part] for view in views], bounds[part], batch, shared)
                    for part in slices
                ]
        return torch.cat(parts)  # outside it: an ordinary tensor, which the caller may change

    def _shared_cache(self, batch: Batch) -> tuple[Batch, Any]:
        """Return the batch, and the cache of a first layer that reads it: all models share it."""
        batch = channels_last(batch[0].to(self.precision or batch[0].dtype)), *batch[1:]
        return batch, self.layers[0].cache_inputs(batch[0]) if self.trained[0] == 0 else None

    def record_bytes(self, record: Tensor) -> int:
        """Count values and gradients of activations, and the memory of trained layers."""
        trained = sum(self.layers[number].memory_per_record for number in self.trained)
        return record.element_size() * (trained + BACKWARD_PASSES * self.activations)

    def _clipped_sum(self, parameters: Sequence[Tensor], clip_norm: Tensor | None, batch: Batch, shared: Any) -> Tensor:
        """Return one model's sum. No clip norm: no norms."""
        own = self._by_layer(parameters)
        return self._sum(self._passes(own, clip_norm, batch, shared), own, self.trained)

    def _with_one_first_layer(
        self, views: list[Tensor], bounds: list[Tensor | None], batch: Batch, shared: Any
    ) -> Tensor:
        """Return the sums of models whose first layers go forward together, and are summed together at the end."""
        first = self.layers[0]
        outputs = first.forward_all(shared, views[: first.tensors])
        first_gradients, formed, others = [], [], []
        for parameters, bound, output in zip(_by_model(views), bounds, outputs.unbind(1), strict=True):
            own = self._by_layer(parameters)
            passed = self._passes(own, bound, batch, shared, output)
            first_gradients.append(scaled(passed.output_gradients[0], passed.factors))
            records = passed.gradients[0]
            formed.append(None if records is None else tuple(cast("Tensor", passed.factors) @ each for each in records))
            others.append(self._sum(passed, own, self.trained[1:]))
        sums = first.sums_all(first_gradients, shared, views[: first.tensors], formed)
        return torch.cat([sums, torch.stack(others)], 1)

    def _passes(
        self, parameters: dict[int, Parameters], clip_norm: Tensor | None, batch: Batch, shared: Any,
        output: Tensor | None = None,
    ) -> BackwardPass:  # fmt: skip
        """Run forward and back through one model, and find its records' norms over all layers.

        `output`: that of the first layer, where it is known.
        """
        x, y, present = batch
        logits, caches = self._forward(x, parameters, shared, output)
        at_logits = _logit_gradients(self.loss, accurate(logits), y)
        if clip_norm is None:
            at_logits = scaled(at_logits, present)
        gradients = self._backward(at_logits.to(logits.dtype), parameters, caches)
        if clip_norm is None:
            return BackwardPass(gradients, caches, dict.fromkeys(self.trained), None)
        norms = {
            each: self.layers[each].squared_gradient_norms(gradients[each], caches[each], parameters[each])
            for each in self.trained
        }
        factors = sure_factors(cast("Tensor", sum(squares for squares, _ in norms.values())), clip_norm, self.roundings)
        factors = factors * present
        return BackwardPass(gradients, caches, {number: formed for number, (_, formed) in norms.items()}, factors)

    def _sum(self, passed: BackwardPass, parameters: dict[int, Parameters], trained: list[int]) -> Tensor:
        """Return one model's scaled gradients of some layers, summed over records, as one vector."""
        sums = [
            self.layers[each].weighted_gradient_sum(
                passed.output_gradients[each],
                passed.caches[each],
                parameters[each],
                passed.factors,
                passed.gradients[each],
            )
            for each in trained
        ]
        return accurate(torch.cat([part.flatten() for tensors in sums for part in tensors]))

    def _by_layer(self, parameters: Sequence[Tensor]) -> dict[int, Parameters]:
        """Return the parameters of each trained layer."""
        each = iter(parameters)
        return {number: tuple(islice(each, self.layers[number].tensors)) for number in self.trained}

    def _forward(
        self, x: Tensor, parameters: dict[int, Parameters], shared: Any, output: Tensor | None
    ) -> tuple[Tensor, list]:
        """Return the logits, and every layer's cache."""
        caches = []
        for number, layer in enumerate(self.layers):
            if number in parameters:
                caches.append(shared if number == 0 else layer.cache_inputs(x))
                known = number == 0 and output is not None
                x = cast("Tensor", output) if known else layer.forward(caches[-1], parameters[number])
            else:
                x, cache = layer.forward(x)
                caches.append(cache)
        return x, caches

    def _backward(self, gradients: Tensor, parameters: dict[int, Parameters], caches: list) -> dict[int, Tensor]:
        """Return the loss's gradients at the output of every trained layer, from those at the logits."""
        output_gradients = {}
        for number in reversed(range(self.trained[0], len(self.layers))):
            layer = self.layers[number]
            if number not in parameters:
                gradients = layer.backward(gradients, caches[number])
                continue
            output_gradients[number] = gradients
            if number > self.trained[0]:
                gradients = layer.backward(gradients, caches[number], parameters[number])
        return output_gradients


def _by_model(views: list[Tensor]) -> Iterator[tuple[Tensor, ...]]:
    """Iterate over each model's parameters, from views of all models' (models, ...)."""
    return zip(*map(torch.unbind, views), strict=True)


def _logit_gradients(loss: Loss, logits: Tensor, y: Tensor) -> Tensor:
    """Return the gradient of each record's loss at its logits."""
    if hasattr(loss, "derivative"):
        return cast("CrossEntropy", loss).derivative(logits, y)
    if logits.device.type != "cpu":  # there it runs under vmap, which needs torch.func's grad
        return grad(lambda values: loss(values, y).sum())(logits)
    with torch.enable_grad():  # the same, in a third of the time
        values = logits.detach().requires_grad_()
        return torch.autograd.grad(loss(values, y).sum(), values)[0]


def gradient_rule(module: nn.Module, loss: Loss, record: Tensor, precision: torch.dtype | None = None) -> GradientRule:
    """Return the fastest rule that is exact for `module`; `record` is one input of it, without batch axis.

    `precision`: what values and gradients are computed in, torch.bfloat16 or the record's own; norms and sums keep the
    precision of the weights.

    LinearGradients for a single nn.Linear, after a ScaleShift or not. LayerGradients for an nn.Sequential of nn.Linear
    on vectors, ungrouped and zero-padded nn.Conv2d (both with bias), ScaleShift, nn.MaxPool2d without padding,
    nn.AvgPool2d whose windows divide the image, nn.Flatten, nn.ReLU and nn.Tanh. PerRecordGradients for any other
    module. Raises InputError where the module has buffers.
    """
    layout = ParameterVector.of(module)
    if is_linear(module):
        return LinearGradients(module, loss, precision)
    layers, activations, x = [], 0, record[None]
    parts = _in_order(module)
    for part in parts:
        layer = _layer(part, x, reads_batch=not layers)
        if layer is None:
            return PerRecordGradients(module, loss, precision)
        with torch.no_grad():
            x = part(x)
        layers.append(layer)
        activations += x.numel()
    if [ChannelScale, Convolution] == [type(layer) for layer in layers[:2]]:
        layers[:2] = [ScaledConvolution(cast("nn.Conv2d", parts[1]), record.shape[1:])]  # pyright: ignore[reportAbstractUsage]: a first layer passes nothing back
    if sum(layer.tensors for layer in layers if _is_trained(layer)) != len(
        layout.names
    ):  # a layer that the pass meets twice
        return PerRecordGradients(module, loss, precision)
    return LayerGradients(layers, loss, layout, activations, precision)


def _in_order(module: nn.Module) -> list[nn.Module]:
    """Return the modules of a sequence, those of sequences inside it included, as the forward pass meets them."""
    if type(module) is not nn.Sequential:
        return [module]
    return [each for part in module for each in _in_order(part)]


def _layer(module: nn.Module, inputs: Tensor, *, reads_batch: bool) -> Layer | TrainedLayer | None:
    """Return the layer that does what `module` does to `inputs`, or None where there is none."""
    if type(module) is nn.Linear and module.bias is not None and inputs.ndim == 2:
        return Dense(module)
    if type(module) is nn.Conv2d and module.bias is not None and module.groups == 1 and inputs.ndim == 4:
        known = module.padding_mode == "zeros" and not isinstance(module.padding, str)
        return Convolution(module, inputs.shape[2:], reads_batch=reads_batch) if known else None
    if type(module) is ScaleShift:
        return ChannelScale(module, inputs[0].numel())
    if isinstance(module, nn.AvgPool2d) and MeanPoolLayer.does(module, inputs):
        return MeanPoolLayer(module)
    if type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1):
        return Flatten()
    if isinstance(module, nn.MaxPool2d) and MaxPoolLayer.does(module):
        return MaxPoolLayer(module)
    return {nn.ReLU: ReLU, nn.Tanh: Tanh}.get(type(module), lambda: None)()


def _is_trained(layer: Layer | TrainedLayer) -> TypeGuard[TrainedLayer]:
    """Return whether a layer has parameters."""
    return hasattr(layer, "tensors")
