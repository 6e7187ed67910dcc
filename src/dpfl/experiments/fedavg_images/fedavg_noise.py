"""The noise that meets each cell's budget, and what it guarantees."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import Any

import pandas as pd

from dpfl.accounting import dpsgd
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.samplers import BallsInBins, Poisson, Sampler, Sampling, ShuffledEpochs
from dpfl.accounting.statements.mechanism import Gaussian
from dpfl.accounting.statements.privacy_statement import PrivacyStatement
from dpfl.engine.batches import BatchSampler
from dpfl.engine.clip_bounds import Precision
from dpfl.experiments.fedavg_images.fedavg_settings import Accountant, ClientRecords, FedavgCell, FedavgSettings
from dpfl.grid.sweep import Sweep

NOISE_BY_CLIENT = "privacy_noise_multiplier_by_client"


def calibrate(sweep: Sweep, description: dict[str, Any]) -> pd.DataFrame:
    """Return the noise and the privacy statement of each cell of `sweep`: a row a cell, in order.

    Columns: the cell's (FedavgCell.columns), noise_multiplier (0 without privacy), privacy_*. The noise meets the
    cell's epsilon, which is the claim, by the accountant of the settings, for Poisson samples at rate 1/ceil(n/B) over
    all epochs; the statement says what is proven and refuted for the batches that are really drawn. A client's number
    of records n is public, so neighbours differ in one record's contribution (zero_out), and sampling rate and divisor
    are the same for both. Where clients differ in size each has the noise that meets the budget at its own rate and
    number of steps: privacy_noise_multiplier_by_client (JSON list, else empty), and all the rest is the smallest
    client's. `description` is the dataset's, for its number of training records.
    Raises InputError for settings that cannot be used. Source: bhaskar2025, section on experiments.
    """
    settings = FedavgSettings.of(sweep.settings, sweep.resources)
    sizes = [len(share) for share in settings.shares(description["records"]["train"], sweep.seeds[0])]
    rows = []
    for given in sweep.cells:
        cell = FedavgCell.of(given)
        noise = [_noise_multiplier(settings, cell, size) for size in sizes]
        smallest = min(sizes)
        stated = _statement(settings, cell, sizes, smallest, noise[sizes.index(smallest)])
        by_client = noise if cell.private and len(set(sizes)) > 1 else []
        own = {"noise_multiplier": stated.noise_multiplier, **stated.columns(), NOISE_BY_CLIENT: json.dumps(by_client)}
        rows.append({**cell.columns(given), **own})
    return pd.DataFrame(rows)


def _noise_multiplier(settings: FedavgSettings, cell: FedavgCell, records: int) -> float:
    """Return the noise of a client with `records` records; 0 without privacy."""
    if not cell.private:
        return 0.0
    batches = BatchSampler(Sampling.POISSON, settings.batch_size, records)
    poisson = {"sample_rate": batches.sample_rate, "delta": settings.delta}
    steps = sum(cell.local_epochs) * batches.steps_per_epoch
    return _calibrated(cell.epsilon, steps, settings.accountant.value, **poisson)


@cache
def _calibrated(epsilon: float, steps: int, accountant: str, sample_rate: float, delta: float) -> float:
    """Return the least noise for Poisson samples, once for all cells that share it."""
    run = {"sample_rate": sample_rate, "steps": steps, "delta": delta}
    return float(dpsgd.noise_multiplier(target_epsilon=epsilon, accountant=accountant, **run))


def _statement(
    settings: FedavgSettings, cell: FedavgCell, sizes: list[int], records: int, noise_multiplier: float
) -> PrivacyStatement:
    """Return the statement of a client with `records` records."""
    batches = cell.batches(settings, records)
    return PrivacyStatement.of(
        Gaussian(),
        _sampler(batches),
        neighbouring=Neighbouring.ZERO_OUT,
        records=records,
        clip_norm=settings.clip_norm if cell.clips else math.inf,
        noise_multiplier=noise_multiplier,
        steps=sum(cell.local_epochs) * batches.steps_per_epoch,
        delta=settings.delta,
        note=_note(settings, cell, sizes),
    )


def _sampler(batches: BatchSampler) -> Sampler:
    """Return what an accountant knows of how batches are drawn."""
    if batches.sampling is Sampling.POISSON:
        return Poisson(batches.sample_rate)
    if batches.sampling is Sampling.BALLS_IN_BINS:
        return BallsInBins(batches.steps_per_epoch)
    return ShuffledEpochs(min(batches.batch_size, batches.public_records), batches.public_records)


def _note(settings: FedavgSettings, cell: FedavgCell, sizes: list[int]) -> str:
    """Say how the guarantee relates to what is done."""
    if not cell.clips:
        return "every epoch has the same batches" if cell.batches(settings, min(sizes)).fixed_order else ""
    note = f"divisor {cell.batches(settings, min(sizes)).divisor}; the noise is calibrated for Poisson sampling"
    note += f" by {_ACCOUNTANTS[settings.accountant]}"
    if settings.sampling is not Sampling.POISSON:
        note += f", the batches are {settings.sampling}"
    if settings.precision is Precision.BFLOAT16:
        note += "; gradients are bfloat16, their norms and clipped sums float32"
    if len(set(sizes)) > 1:
        note += (
            f"; clients hold {min(sizes)} to {max(sizes)} records, each has the noise that meets the budget at its own "
            "sampling rate, and what is said here is the smallest client's"
        )
    if settings.clients > 1 and (settings.client_records is ClientRecords.INDEPENDENT or _overlap(settings)):
        note += (
            "; one client's budget: clients overlap, a record is with "
            f"{sum(settings.client_share):.3g} of them on average and spends the composition of its holders' budgets"
        )
    return note


_ACCOUNTANTS = {
    Accountant.PRV: "Opacus's PRV accountant",
    Accountant.RDP: "Opacus's RDP accountant",
    Accountant.PLD: "the PLD accountant",
}


def _overlap(settings: FedavgSettings) -> bool:
    """Return whether disjoint shares are impossible."""
    return sum(settings.client_share) > 1 + 1e-9
