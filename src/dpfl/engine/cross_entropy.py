"""Provide cross entropy with its own derivative: autograd takes longer than a small model's forward pass."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


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
