"""DP-SGD in JAX for benchmarks/peers.py: per-record gradients by vmap, clipped, summed with noise, in one jit.

Poisson batches are padded to one size and masked, as jax_privacy does. It needs the environment of `make bench-peers`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp
from numpy.typing import NDArray
from torch import Tensor, nn

from dpfl.engine.networks import ScaleShift


class Jax:
    """Training of one model, a torch one that is given layer by layer."""

    models = 1

    def __init__(self, module: nn.Sequential, data: tuple[Tensor, Tensor], most: int, rule: dict[str, Any]):
        """`most`: records of the largest batch; `rule`: see `_step`."""
        self.weights = [np.array(each.detach()) for each in module.parameters()]
        self.velocity = [np.zeros_like(each) for each in self.weights]
        self.inputs, self.labels = (np.asarray(each) for each in data)
        self.most, self.steps, self.key = most, 0, jax.random.key(0)
        self.step = jax.jit(_step(list(module), **rule))

    def train(self, batches: Sequence[NDArray[np.int64]]) -> None:
        """Train on some batches."""
        for rows in batches:
            padded = np.zeros(self.most, np.int64)
            padded[: len(rows)] = rows
            present = (np.arange(self.most) < len(rows)).astype(np.float32)
            self.steps += 1
            key = jax.random.fold_in(self.key, self.steps)
            batch = self.inputs[padded], self.labels[padded], present
            self.weights, self.velocity = self.step(self.weights, self.velocity, batch, key)
        jax.block_until_ready(self.weights)

    def vector(self) -> NDArray[np.float32]:
        """The weights."""
        return np.concatenate([np.asarray(each).ravel() for each in self.weights])


def _step(
    layers: list[nn.Module],
    *,
    clip_norm: float,
    noise: float,
    divisor: int,
    learning_rate: float,
    momentum: float,
    bfloat16: bool,
) -> Callable:
    """Return a step on a batch with presence. `bfloat16`: for values and gradients of layers; the loss, norms, sums and
    weights stay float32."""
    passes = jnp.bfloat16 if bfloat16 else jnp.float32

    def loss(weights: list, x: Any, y: Any) -> Any:
        logits = _forward(layers, [each.astype(passes) for each in weights], x.astype(passes))
        return -jax.nn.log_softmax(logits.astype(jnp.float32))[y]

    def clipped(weights: list, x: Any, y: Any, present: Any) -> list:
        gradients = jax.grad(loss)(weights, x, y)
        norm = jnp.sqrt(sum(jnp.sum(each**2) for each in gradients))
        factor = present * jnp.minimum(1.0, clip_norm / jnp.maximum(norm, 1e-12))
        return [each * factor for each in gradients]

    def step(weights: list, velocity: list, batch: tuple, key: Any) -> tuple[list, list]:
        sums = [each.sum(0) for each in jax.vmap(clipped, (None, 0, 0, 0))(weights, *batch)]
        keys = jax.random.split(key, len(sums))
        draws = [jax.random.normal(own, each.shape) for own, each in zip(keys, sums, strict=True)]
        means = [(each + noise * clip_norm * z) / divisor for each, z in zip(sums, draws, strict=True)]
        velocity = [momentum * v + each for v, each in zip(velocity, means, strict=True)]
        return [w - learning_rate * v for w, v in zip(weights, velocity, strict=True)], velocity

    return step


def _forward(layers: Sequence[nn.Module], weights: list, x: Any) -> Any:
    """Return the logits of one record by the layers of a torch model."""
    left = list(weights)
    x = x[None]
    for layer in layers:
        if isinstance(layer, nn.Conv2d):
            kernel, bias = left.pop(0), left.pop(0)
            x = lax.conv_general_dilated(x, kernel, layer.stride, [(each, each) for each in layer.padding])
            x = x + bias[:, None, None]
        elif isinstance(layer, nn.Linear):
            x = x @ left.pop(0).T + left.pop(0)
        elif isinstance(layer, nn.MaxPool2d):
            window, stride = (1, 1, layer.kernel_size, layer.kernel_size), (1, 1, layer.stride, layer.stride)
            x = lax.reduce_window(x, -jnp.inf, lax.max, window, stride, "VALID")
        elif isinstance(layer, nn.AvgPool2d):
            window = (1, 1, layer.kernel_size, layer.kernel_size)
            x = lax.reduce_window(x, 0.0, lax.add, window, window, "VALID") / layer.kernel_size**2
        elif isinstance(layer, ScaleShift):
            axes = (layer.channels, *[1] * (x.ndim - 2))
            x = x * left.pop(0).reshape(axes) + left.pop(0).reshape(axes)
        elif isinstance(layer, nn.Flatten):
            x = x.reshape(1, -1)
        else:
            x = {nn.ReLU: jax.nn.relu, nn.Tanh: jnp.tanh}[type(layer)](x)
    return x[0]
