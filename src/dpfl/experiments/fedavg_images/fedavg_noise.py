"""The noise that meets each cell's budget, and what it guarantees."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pandas as pd

from dpfl.accounting import dpsgd
from dpfl.accounting.privacy_statement import PrivacyStatement
from dpfl.accounting.samplers import Sampling
from dpfl.data.partition import random_shares
from dpfl.engine.batches import BatchSampler
from dpfl.experiments.fedavg_images.fedavg_settings import FedavgCell, FedavgSettings
from dpfl.grid.sweep import Sweep

NOISE_BY_CLIENT = "privacy_noise_multiplier_by_client"


def calibrate(sweep: Sweep, description: dict[str, Any]) -> pd.DataFrame:
    """Return the noise and the privacy statement of each cell of `sweep`: a row a cell, in order.

    Columns: the cell's (Cell.columns), noise_multiplier (0 without privacy), privacy_*. The noise meets the cell's
    epsilon by the accountant of the settings, for Poisson samples at rate 1/ceil(n/B) over all epochs; the statement's
    note says how that relates to the batches that are really drawn. Where clients differ in size each has the noise
    that meets the budget at its own rate and number of steps: privacy_noise_multiplier_by_client (JSON list, else
    empty), and all the rest is the smallest client's. `description` is the dataset's, for its number of training
    records. Raises InputError for settings that cannot be used. Source: bhaskar2025, section on experiments.
    """
    settings = FedavgSettings.of(sweep)
    shares = random_shares(description["records"]["train"], settings.clients, settings.client_share, sweep.seeds[0])
    sizes = [len(share) for share in shares]
    known: dict[tuple[float, int, int], PrivacyStatement] = {}
    rows = []
    for cell in map(FedavgCell.of, sweep.cells):
        epochs = sum(cell.local_epochs)
        for records in set(sizes):
            key = (cell.epsilon, epochs, records)
            if key not in known:
                known[key] = _statement(settings, sizes, records, cell.epsilon, epochs) if cell.private else None
        statement = known[cell.epsilon, epochs, min(sizes)] or _silent(settings, min(sizes), epochs, cell.clips)
        noise = [known[cell.epsilon, epochs, size].noise_multiplier for size in sizes] if cell.private else []
        by_client = noise if len(set(sizes)) > 1 else []
        rows.append(
            {
                **cell.columns(),
                "noise_multiplier": statement.noise_multiplier,
                **statement.columns(),
                NOISE_BY_CLIENT: json.dumps(by_client),
            }
        )
    return pd.DataFrame(rows)


def _silent(settings: FedavgSettings, records: int, epochs: int, clips: bool) -> PrivacyStatement:
    """Return the statement of a client that adds no noise."""
    sampler = BatchSampler(settings.sampling, settings.batch_size, records)
    statement = PrivacyStatement.not_private(
        sampling=settings.sampling,
        records=records,
        sample_rate=sampler.sample_rate,
        steps=epochs * sampler.steps_per_epoch,
    )
    return replace(statement, clip_norm=settings.clip_norm) if clips else statement


def _statement(
    settings: FedavgSettings, sizes: list[int], records: int, epsilon: float, epochs: int
) -> PrivacyStatement:
    """Return the statement of a client that trains for `epochs` epochs on `records` records."""
    sampler = BatchSampler(settings.sampling, settings.batch_size, records)
    steps = epochs * sampler.steps_per_epoch
    setting = {"sample_rate": sampler.sample_rate, "steps": steps, "delta": settings.delta}
    sigma = dpsgd.noise_multiplier(target_epsilon=epsilon, accountant=settings.accountant.value, **setting)
    statement = dpsgd.statement(
        records=records, clip_norm=settings.clip_norm, noise_multiplier=sigma, note=_note(settings, sizes), **setting
    )
    return replace(statement, sampling=settings.sampling)


def _note(settings: FedavgSettings, sizes: list[int]) -> str:
    """Say how the accounting relates to what is done."""
    if settings.sampling is Sampling.POISSON:
        note = "Poisson sampling, as accounted"
    else:
        note = (
            "accounted as Poisson sampling, as is common; the batches are in truth cut from a fresh permutation "
            "each epoch, for which this epsilon is not proven"
        )
    if len(set(sizes)) > 1:
        note += (
            f"; clients hold {min(sizes)} to {max(sizes)} records, each has the noise that meets the budget at its own "
            "sampling rate, and what is said here is the smallest client's"
        )
    holders = sum(settings.client_share)
    if holders > 1 + 1e-9:
        note += (
            f"; one client's budget: clients overlap, a record lies with {holders:.3g} of them on average and spends "
            "the composition of their budgets"
        )
    return note
