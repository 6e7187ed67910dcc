"""Private federated averaging of one's own model on one's own data: `dpfl fedavg`.

A job of the pipeline trains a model of this package on data that datasets.yaml lists by their hash, so that run
identities, audits and reruns can name all that decided a number. A stranger's module and file have no such names, so
they are no entry of a grid: they are trained here, a run at a time, by the same engine (dpfl.images.fedavg), batches,
noise and accountants. Nothing of these is done a second time; what differs is where data and model come from, that
clients' shares may depend on labels, and that noise is calibrated for the batches that are really drawn.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, cast

import pandas as pd
import torch
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn

from dpfl.accounting.guarantees import noise_multiplier
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import FullBatch, Sampler, Sampling, WithReplacement
from dpfl.accounting.statements import Gaussian, PrivacyStatement
from dpfl.data.partition import dirichlet_shares, label_shards, random_shares
from dpfl.engine import checkpoints
from dpfl.engine.batches import BatchSampler, accounted_sampler
from dpfl.engine.per_record_gradients import (
    GradientRule,
    ParameterVector,
    StackedGradients,
    cross_entropy,
    gradient_rule,
)
from dpfl.engine.sgd import StackedHyperparameters
from dpfl.errors import InputError
from dpfl.files import file_sha256
from dpfl.grid.run_table import run_table
from dpfl.grid.settings import Choice, Count, Epsilon, Positive, Probability, Settings, among
from dpfl.grid.training_job import TrainingJob
from dpfl.images.fedavg import FederatedAveraging, Schedule, State
from dpfl.randomness import address_key

if TYPE_CHECKING:
    import numpy as np

    from dpfl.data.own_arrays import OwnData

# Settings of a run.

LAWS = ("even", "shards:<number>", "dirichlet:<parameter>")
"""Ways to divide the training records among clients (dpfl.data.partition)."""


class OwnFederationSettings(Settings):
    """Settings of a run, and its resources.

    `epsilon` is what each record may spend; without `noise_multiplier` the noise is the least that keeps it for the
    batches of `sampler`, with one it is a claim that the run is judged by. No noise is added for epsilon inf or
    noise_multiplier 0; clip_norm inf clips nothing, which only a run without noise may do. `partition` is one of LAWS.
    """

    clients: Count
    partition: str
    rounds: Count
    local_epochs: Count
    batch_size: Count
    sampler: Annotated[Choice[Sampling], among(*Sampling)]
    epsilon: Epsilon | None = None
    noise_multiplier: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    delta: Probability
    clip_norm: Annotated[float, Field(gt=0)]
    neighbouring: Annotated[Choice[Neighbouring], among(Neighbouring.ZERO_OUT, Neighbouring.REPLACE_ONE)]
    learning_rate: Positive
    momentum: Annotated[float, Field(ge=0, lt=1)]
    seed: Annotated[int, Field(ge=0)]
    device: str
    threads: Count
    memory_gb: Positive

    @field_validator("partition")
    @classmethod
    def _is_a_law(cls, value: str) -> str:
        """Raise ValueError for a law that is not known, or a parameter that it cannot have."""
        _law(value)
        return value

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Raise ValueError where settings do not go together."""
        if self.epsilon is None and self.noise_multiplier is None:
            raise ValueError("epsilon is missing: name it, inf for no privacy, or a noise_multiplier")
        if self.private and math.isinf(self.clip_norm):
            raise ValueError("clip_norm is inf, but noise hides only what is clipped: name a clip norm, or epsilon inf")
        return self

    @property
    def private(self) -> bool:
        """True where noise is added."""
        return self.noise_multiplier != 0 if self.noise_multiplier is not None else not math.isinf(self.epsilon or 0)

    def shares(self, labels: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return each client's indices into the training records. Raises InputError if a client has no record."""
        kind, parameter = _law(self.partition)
        if self.clients > len(labels):
            raise InputError(f"clients: {self.clients} are more than the {len(labels)} training records")
        if kind == "shards":
            return label_shards(labels, self.clients, int(parameter), self.seed)
        if kind == "dirichlet":
            return dirichlet_shares(labels, self.clients, parameter, self.seed)
        return random_shares(len(labels), self.clients, 1 / self.clients, self.seed)

    def batches(self, records: int) -> BatchSampler:
        """Return the sampler of the batches of a client with `records` records; in full batches each has its chance 1.

        Batches of all records are Poisson samples at rate 1.
        """
        if self.sampler is Sampling.FULL:
            return BatchSampler(Sampling.POISSON, records, records)
        if self.sampler is Sampling.WITH_REPLACEMENT:
            return _FilledSlots(self.batch_size, records)
        return BatchSampler(self.sampler, self.batch_size, records)

    def accounted(self, records: int) -> Sampler:
        """Return the sampler by which the accountants know the batches of a client with `records` records."""
        if self.sampler is Sampling.FULL:
            return FullBatch()
        batches = self.batches(records)
        if isinstance(batches, _FilledSlots):
            return WithReplacement(batches.divisor, records)
        return accounted_sampler(batches)

    def steps(self, records: int) -> int:
        """Return the noisy steps of a client with `records` records."""
        return self.rounds * self.local_epochs * self.batches(records).steps_per_epoch


@dataclass(frozen=True)
class _FilledSlots(BatchSampler):
    """Sampler of batches of min(batch_size, n) slots, each filled from all n records by a draw of its own.

    No paper trains so. A record in several slots of a step is clipped in each: its share is so many times as large, as
    dpfl.accounting.WithReplacement counts it.
    """

    sampling: Sampling = field(default=Sampling.WITH_REPLACEMENT, init=False)

    def __post_init__(self) -> None:
        """Raise ValueError for numbers below 1."""
        WithReplacement(self.batch_size, self.public_records)

    @property
    def divisor(self) -> int:
        """The slots of a batch."""
        return min(self.batch_size, self.public_records)

    @property
    def sample_rate(self) -> float:
        """The mean number of slots of a step that a record fills."""
        return self.divisor / self.public_records

    def _slots(self, draw: np.random.Generator) -> list[NDArray[np.int64]]:
        """Return the record in each slot of each step."""
        return list(draw.integers(self.public_records, size=(self.steps_per_epoch, self.divisor)))


def _law(text: str) -> tuple[str, float]:
    """Return the kind of a partition and its parameter, 0 without one. Raises ValueError for another text."""
    kind, _, given = text.partition(":")
    try:
        parameter = float(given or 0)
    except ValueError:
        parameter = math.nan
    fits = {
        "even": given == "",
        "shards": parameter >= 1 and parameter.is_integer(),
        "dirichlet": 0 < parameter < math.inf,
    }
    if not fits.get(kind, False):
        raise ValueError(f"partition is {text!r}; it must be {', '.join(LAWS[:-1])} or {LAWS[-1]}")
    return kind, parameter


# The privacy of every client.


def statements(
    settings: OwnFederationSettings, sizes: list[int], progress: Callable[[int, int], None]
) -> list[PrivacyStatement]:
    """Return the privacy statement of each client, for clients with so many records; noise by its calibration.

    A client's number of records is public, and so are the rate, the steps and the divisor that follow from it. The
    division among clients is taken as given, also one by labels, which is computed from the records. Clients hold
    different records, and what is computed from their messages reveals no more of a record than its own client's do: so
    a client's statement is that of its records in the whole run. Calls progress(clients done, clients in all).
    Raises InputError where no noise keeps the epsilon, or the accountants do not serve its delta.
    Source: parallel composition, mcsherry2009, Theorem 4, adaptively.
    """
    found = []
    for done, records in enumerate(sizes):
        progress(done, len(sizes))
        batches, steps = settings.batches(records), settings.steps(records)
        sampler = settings.accounted(records)
        run = {"steps": steps, "delta": settings.delta, "neighbouring": settings.neighbouring}
        noise = 0.0
        note = f"divisor {batches.divisor}"
        try:
            if settings.private and settings.noise_multiplier is not None:
                noise = settings.noise_multiplier
            elif settings.private:
                noise = _least_noise(sampler, cast("float", settings.epsilon), **run)
                if noise == 0:  # the record is nearly never used, and delta may fail so often
                    raise ValueError(
                        f"delta = {settings.delta:g} asks for no noise at all: choose one below 1/{records}"
                    )
                note += "; the noise is the least that keeps the epsilon with these batches"
            common = {"records": records, "clip_norm": settings.clip_norm, "noise_multiplier": noise, "note": note}
            found.append(PrivacyStatement.of(Gaussian(), sampler, **common, **run))
        except ValueError as error:
            raise InputError(f"the privacy of client {done} with {records} records: {error}") from None
    progress(len(sizes), len(sizes))
    return found


@cache
def _least_noise(
    sampler: Sampler, target_epsilon: float, steps: int, delta: float, neighbouring: Neighbouring
) -> float:
    """Return the least noise, once for all clients that share it."""
    run = {"steps": steps, "delta": delta, "neighbouring": neighbouring}
    return noise_multiplier(sampler, target_epsilon=target_epsilon, **run)


def weakest(known: list[PrivacyStatement]) -> PrivacyStatement:
    """Return the statement of the client that the largest epsilon is proven of: what every record of the run has."""
    return max(known, key=lambda each: (each.guarantee.upper, each.guarantee.lower, -each.records))


# The model of a stranger, and whether it can be trained record by record.


@dataclass(frozen=True)
class OwnModel:
    """A module in single precision, with its import path, the hash of its source file and its initial weights, (size,).

    Training leaves the module's own parameters as they are.
    """

    path: str
    source_sha256: str
    module: nn.Module
    initial: Tensor


def load_model(path: str, seed: int) -> OwnModel:
    """Return what `path`, as my_package.my_module:Net, makes when it is called without arguments.

    Modules of the working folder are found. The module's own law draws the initial weights, from torch's generator: it
    is set by the address (seed, "initial_model") for that and set back. It keeps 32 bits of the address, which is no
    harm here: an initial model is public.

    Raises InputError, one line, where it cannot be imported or made, is no torch module, draws its weights elsewhere,
    or cannot be trained record by record: with batch norm, buffers, dropout, or frozen parameters.
    """
    home, _, name = path.partition(":")
    if not home or not name:
        raise InputError(f"model is {path!r}; it must be an import path, as my_module:Net")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    with _drawing(seed), _foreign(f"{path} cannot be imported"):
        imported = import_module(home)
        make = imported
        for part in name.split("."):
            make = getattr(make, part)
    if isinstance(make, nn.Module) or not callable(make):
        raise InputError(f"model: {path} must be a class of modules, or a function that makes one")
    (first, initial), (_, again) = (_made(make, path, seed) for _ in range(2))
    if not len(initial):
        raise InputError(f"model: {path} has no parameters to train")
    if not torch.equal(initial, again):
        raise InputError(
            f"model: {path} draws its initial weights by another generator than torch's; use torch.nn.init"
        )
    file = Path(inspect.getsourcefile(imported) or "") if hasattr(imported, "__file__") else Path()
    return OwnModel(path, file_sha256(file) if file.is_file() else "", first, initial)


def _made(make: Callable[[], Any], path: str, seed: int) -> tuple[nn.Module, Tensor]:
    """Return a fresh module with its initial weights."""
    with _drawing(seed), _foreign(f"{path} cannot be called without arguments"):
        module = make()
        if not isinstance(module, nn.Module):
            raise InputError(f"model: {path} makes a {type(module).__name__}, no torch.nn.Module")
        parameters = dict(module.named_parameters())
        if lazy := [name for name, value in parameters.items() if nn.parameter.is_lazy(value)]:
            raise InputError(f"model: {path} has {lazy[0]}, whose size is not known yet: use no lazy layer")
        if frozen := [name for name, value in parameters.items() if not value.requires_grad]:
            raise InputError(
                f"model: {path} has {frozen[0]}, which is frozen (requires_grad is False): every parameter must be "
                "trained; apply a fixed part to the records beforehand"
            )
        if not parameters:
            return module, torch.empty(0)
        module = module.float()
        return module, ParameterVector.of(module).flatten(dict(module.named_parameters())).detach().clone()


@contextmanager
def _drawing(seed: int) -> Iterator[None]:
    """Set torch's generator to the address of the initial model for a while."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(address_key(seed, "initial_model") % 2**63)
        yield


@contextmanager
def _foreign(what: str) -> Iterator[None]:
    """Turn whatever a stranger's code raises into one line."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # it may raise anything
        reason = re.sub(r" at 0x[0-9a-fA-F]+", "", " ".join(str(error).split()))[:200]
        raise InputError(f"model: {what}: {type(error).__name__}: {reason}") from None


_RECURRENT = (nn.RNNBase, nn.RNNCellBase)
"""Layers that cannot be trained record by record. Torch 2 does not differentiate nn.GRU and nn.RNN under vmap. nn.LSTM
returns several tensors, which the engine cannot count when it plans memory."""


def checked_rule(model: OwnModel, x: Tensor, y: Tensor, classes: int) -> GradientRule:
    """Return the rule of the model's per-record gradients, tried on records x (n, ...), y (n,) of the data.

    Raises InputError, one line, where the model cannot read the records, gives other than a score for each of at least
    `classes` classes, draws at random, lets a record's scores depend on others, or has no gradient by torch.func.
    """
    with torch.no_grad(), _foreign(f"{model.path} cannot read records of shape {tuple(x.shape[1:])}"):
        together, again = model.module(x), model.module(x)
    if not isinstance(together, Tensor) or together.shape[:1] != x.shape[:1] or together.ndim != 2:
        shape = tuple(together.shape) if isinstance(together, Tensor) else type(together).__name__
        raise InputError(f"model: {model.path} gives {shape} for {len(x)} records; it must give a score a class")
    if together.shape[1] < classes:
        raise InputError(f"model: {model.path} gives {together.shape[1]} scores, but the labels have {classes} classes")
    if not torch.equal(together, again):
        raise InputError(
            f"model: {model.path} gives other scores for the same records: it draws at random, unaddressed"
        )
    with torch.no_grad(), _foreign(f"{model.path} cannot read one record at a time"):
        apart = torch.cat([model.module(record[None]) for record in x])
    if not torch.allclose(together, apart, rtol=1e-3, atol=1e-3 * float(together.abs().max())):
        raise InputError(
            f"model: {model.path} mixes the records of a batch, so that no record's gradient can be clipped"
        )
    for name, layer in model.module.named_modules():
        if isinstance(layer, _RECURRENT):
            named = f"{type(layer).__name__} {name}".rstrip()
            raise InputError(f"model: {model.path} has {named}; recurrent layers cannot be trained record by record")
    with _foreign(f"{model.path} cannot be differentiated record by record (torch.func.vmap and grad)"):
        rule = gradient_rule(model.module, cross_entropy, x[0])
        rule.clipped_sums(model.initial[None], (x, y, torch.ones_like(y, dtype=x.dtype)), x.new_ones(1))
    return rule


_TRIED = 3
"""Records on which a model is tried: as few as tell a mixed batch."""


def check(data: OwnData, model: OwnModel, settings: OwnFederationSettings) -> None:
    """Raise InputError where `model` cannot be trained on `data` (`checked_rule`), or not in the memory of `settings`.

    It takes moments, and noise may take minutes: so it comes before the noise.
    """
    x, y = torch.from_numpy(data.train_x[:_TRIED]), torch.from_numpy(data.train_y[:_TRIED])
    StackedGradients(checked_rule(model, x, y, data.classes), x[0], settings.memory_gb * 2**30)


# Train a run.


@dataclass(frozen=True)
class OwnRun:
    """Result of a run: its run table of one row, a row for each client with its statement, and the averaged model."""

    runs: pd.DataFrame
    clients: pd.DataFrame
    weights: dict[str, Tensor]


def train(
    data: OwnData,
    model: OwnModel,
    settings: OwnFederationSettings,
    shares: list[NDArray[np.int64]],
    known: list[PrivacyStatement],
    checkpoint: Path | None,
    progress: Callable[[int, int], None],
) -> OwnRun:
    """Train `model`, which has passed `check`, on the clients' `shares` with the noise of their statements `known`.

    Columns of the run table: those of the pipeline's (dpfl.grid.run_table), with accuracy_pct on the test records after
    the last round, accuracy_pct_by_round (JSON list), and the weakest client's statement. Of the clients' table:
    client, records, then the statement: nothing of the records but their number. With `checkpoint`, training resumes
    there and ends with the same bytes. Calls progress(epochs done, epochs in all).
    """
    torch.set_num_threads(settings.threads)
    run = _federation(data, model, settings, shares, known)
    noise = [each.noise_multiplier for each in known]
    job = _job(data, model, settings)
    digest = _digest(job, data, model, noise)
    restored = checkpoints.load(checkpoint, digest) if checkpoint else None
    state = State(**restored) if restored else run.start()
    state.weights, state.velocity = state.weights.to(settings.device), state.velocity.to(settings.device)
    epochs = settings.rounds * settings.local_epochs
    while state.epoch < epochs:
        averaged = run.advance(state)
        if checkpoint and averaged:
            checkpoints.save(checkpoint, state.plain(), digest)
        progress(state.epoch, epochs)
    [by_round], [diverged] = state.accuracy_pct, state.diverged
    result = {"status": "diverged" if diverged else "finished", "accuracy_pct": by_round[-1]}
    result |= {"accuracy_pct_by_round": json.dumps(by_round)}
    worst = weakest(known)
    stated = {"noise_multiplier": worst.noise_multiplier, **worst.columns()}
    runs = run_table(job, {"stand_in_for": None, "note": ""}, [stated], {(0, settings.seed): result})
    clients = [
        {"client": client, "records": len(share), **each.columns()}
        for client, (share, each) in enumerate(zip(shares, known, strict=True))
    ]
    views = ParameterVector.of(model.module).views(state.weights[0, 0].cpu())
    return OwnRun(runs, pd.DataFrame(clients), {name: view.clone() for name, view in views.items()})


def _federation(
    data: OwnData,
    model: OwnModel,
    settings: OwnFederationSettings,
    shares: list[NDArray[np.int64]],
    known: list[PrivacyStatement],
) -> FederatedAveraging:
    """Return the federation at its initial model, on the device."""
    initial, device = model.initial.to(settings.device), settings.device
    module = model.module.to(device)
    train, test = (
        (torch.from_numpy(x).to(device), torch.from_numpy(y).to(device))
        for x, y in ((data.train_x, data.train_y), (data.test_x, data.test_y))
    )
    rule = gradient_rule(module, cross_entropy, train[0][0])
    noise = torch.tensor([[each.noise_multiplier] for each in known], dtype=torch.float32, device=device)
    return FederatedAveraging(
        module=module,
        gradients=StackedGradients(rule, train[0][0], settings.memory_gb * 2**30),
        variants=StackedHyperparameters(torch.tensor([settings.clip_norm], device=device), noise),
        schedule=Schedule(((settings.local_epochs,) * settings.rounds,)),
        shares=shares,
        initial=initial,
        train=train,
        test=test,
        samplers=tuple(settings.batches(len(share)) for share in shares),
        learning_rate=settings.learning_rate,
        momentum=settings.momentum,
        seed=settings.seed,
    )


def _job(data: OwnData, model: OwnModel, settings: OwnFederationSettings) -> TrainingJob:
    """Return the run as the job that its table describes; no paper has it."""
    resources = {"device", "threads", "memory_gb"}
    own = settings.model_dump(mode="json", exclude={*resources, "seed", "noise_multiplier"})
    own = {"dataset": data.name, "model": model.path, **own}
    return TrainingJob("none", "own_federation", f"{data.name}_{model.path}", own, ({},), (settings.seed,))


def _digest(job: TrainingJob, data: OwnData, model: OwnModel, noise: list[float]) -> str:
    """Return a hash of what decides the numbers: settings, data, model, noise, torch."""
    decides = [job.digest(), data.sha256, model.source_sha256, list(map(float.hex, noise)), torch.__version__]
    return hashlib.sha256(json.dumps(decides).encode()).hexdigest()
