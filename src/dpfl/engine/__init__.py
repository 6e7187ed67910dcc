"""Stacked private training: many models at once, each with its own clip norm and noise, on shared batches.

Any module of your own can be trained: where dpfl.engine.per_record_gradients has no faster rule for it, it is
differentiated record by record. Three models, two of them private, through an epoch of one client's records:

    >>> import torch
    >>> from torch import nn
    >>> from dpfl.accounting.samplers import Sampling
    >>> from dpfl.engine.batches import BatchSampler
    >>> from dpfl.engine.per_record_gradients import StackedGradients
    >>> from dpfl.engine.per_record_gradients import gradient_rule
    >>> from dpfl.engine.per_record_gradients import ParameterVector
    >>> from dpfl.engine.per_record_gradients import cross_entropy
    >>> from dpfl.engine.sgd import SGD, StackedHyperparameters, base_noise
    >>> x, y = torch.arange(200.0).sin().reshape(100, 2), torch.arange(100) % 2
    >>> module = nn.Sequential(nn.Linear(2, 8), nn.SiLU(), nn.LayerNorm(8), nn.Linear(8, 2))
    >>> layout = ParameterVector.of(module)
    >>> initial = layout.flatten({name: value.detach() for name, value in module.named_parameters()})
    >>> weights = initial.repeat(1, 3, 1)  # groups of models that share batches, models, parameters
    >>> variants = StackedHyperparameters(torch.tensor([1.0, 1.0, torch.inf]), torch.tensor([0.5, 2.0, 0.0]))
    >>> gradients = StackedGradients(gradient_rule(module, cross_entropy, x[0]), x[0], memory_bytes=2**30)
    >>> sampler = BatchSampler(Sampling.BALLS_IN_BINS, batch_size=10, public_records=100)
    >>> batches = sampler.epoch(1, seed=0, client=0)
    >>> def noise(group, step):
    ...     address = {"seed": 0, "client": 0, "epoch": 1, "step": step}
    ...     return base_noise(layout.size, **address, dtype=weights.dtype, device=weights.device)
    >>> SGD(gradients, variants, learning_rate=0.1, momentum=0.5).epoch(
    ...     weights, torch.zeros_like(weights), (x, y), [batches], [sampler.divisor], noise
    ... )
    >>> (weights - initial).abs().sum(-1).squeeze() > 0
    tensor([True, True, True])
"""
