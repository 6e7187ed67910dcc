"""Privacy accounting: what a mechanism guarantees. No torch in here.

One call for all samplers
    guarantee(sampler, noise_multiplier=, steps=, delta=)   what is proven: an upper and a lower epsilon, and by what
    guarantee_of_phases(phases, delta=)                     the same for phases of different settings
    privacy_curve(phases)                                   delta at any epsilon; errors, TPR and advantage of tests
    noise_multiplier(sampler, steps=, target_epsilon=, delta=)   the least noise that keeps a target: epsilon,
                                                            target_advantage=, or target_tpr= at fpr=
    Guarantee, PrivacyCurve, Phase                          their answers, and a phase
Clients
    ClientAccountant(clients)                a ledger a client: rounds with cohorts and drop-outs; odometer and filter
    ClientRound(sampler, noise_multiplier)   a round: its cohort, and who adds the noise
Samplers
    Poisson(sample_rate)                     each record by its own coin
    FixedBatches(batch_size, records)        without replacement, drawn independently in every step
    WithReplacement(batch_size, records)     each slot from all records
    ShuffledEpochs(batch_size, records)      permutations cut into batches: no amplification is proven
    BallsInBins(steps_per_epoch)             each record in one random step of every epoch: what to use for epochs
    FullBatch()                              all records in every step
    RandomAllocation(uses, steps_per_epoch)  each record in several random steps of every epoch
Other noise, in the place of a sampler
    LaplaceNoise(), RandomizedResponse(buckets)   on all records, in every step
    ZeroConcentrated(xi)                     a mechanism of which only zCDP is known
Neighbouring relation and adversary
    Neighbouring    add_or_remove, zero_out, replace_one
    Observer        every_step, last_iterate, round_ends
    ConvexProblem   losses whose hidden steps amplify: for the observer of the last iterate
Modules
    gaussian_dp     Gaussian DP: delta, epsilon, mu, compose, group, renyi
    dpsgd           DP-SGD on Poisson samples by the accountants RDP, PRV and PLD; conversions between notions
    privacy_curves  the whole privacy of a run: profile, trade-off curve, advantage, each with both ends
    poisson_gaussian, fixed_batches, shuffled_batches, balls_in_bins   the samplers' accountants, each with its proof
    pure_mechanisms, random_allocation   Laplace noise, randomised response; k uses in t steps
    zero_concentrated           zCDP: epsilon by the best Renyi order, and in runs with other parts
    renyi           Renyi divergences at any order; proofs of the odometer and the filter
    clients         rounds of clients, with the proofs for noise in shares and for drop-outs
    tradeoff        trade-off functions (f-DP) and adversaries
    contraction     hidden-state bounds of asoodeh2020 and asoodeh2021
    shuffling       records shuffled by a trusted shuffler: clones, privacy blanket
    local_privacy   lowy2021: record-level privacy of silos, its rates (4) to (13), and the rounds of its theorems
    statements      mechanisms, and privacy statements: all that an epsilon rests on
    external_claims claims of others: files, logs, events of dp_accounting; `dpfl check`
    opacus_accountant   an accountant for Opacus's registry; needs torch
    reference_values   420 values of closed forms and epsilons, with their sources, to test any accountant

>>> from dpfl.accounting import Poisson, guarantee
>>> round(guarantee(Poisson(1 / 94), noise_multiplier=1.0072, steps=1880, delta=1e-5).upper, 3)
2.642
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the names are imported at their first use, below
    from dpfl.accounting.clients import ClientAccountant, ClientRound
    from dpfl.accounting.guarantees import (
        Guarantee,
        Phase,
        PrivacyCurve,
        guarantee,
        guarantee_of_phases,
        noise_multiplier,
        privacy_curve,
    )
    from dpfl.accounting.hidden_state import ConvexProblem
    from dpfl.accounting.neighbouring import Neighbouring, Observer
    from dpfl.accounting.pure_mechanisms import LaplaceNoise, RandomizedResponse
    from dpfl.accounting.random_allocation import RandomAllocation
    from dpfl.accounting.samplers import BallsInBins, FixedBatches, FullBatch, Poisson, ShuffledEpochs, WithReplacement
    from dpfl.accounting.zero_concentrated import ZeroConcentrated

__all__ = [
    "BallsInBins",
    "ClientAccountant",
    "ClientRound",
    "ConvexProblem",
    "FixedBatches",
    "FullBatch",
    "Guarantee",
    "LaplaceNoise",
    "Neighbouring",
    "Observer",
    "Phase",
    "Poisson",
    "PrivacyCurve",
    "RandomAllocation",
    "RandomizedResponse",
    "ShuffledEpochs",
    "WithReplacement",
    "ZeroConcentrated",
    "guarantee",
    "guarantee_of_phases",
    "noise_multiplier",
    "privacy_curve",
]

_HOMES = {
    "ConvexProblem": "hidden_state",
    **dict.fromkeys(("ClientAccountant", "ClientRound"), "clients"),
    **dict.fromkeys(("LaplaceNoise", "RandomizedResponse"), "pure_mechanisms"),
    "RandomAllocation": "random_allocation",
    "ZeroConcentrated": "zero_concentrated",
}
"""Modules of the names that most uses do without."""


def __getattr__(name: str) -> Any:
    """Import the public names at their first use: scipy, which the accountants need, is slow to import."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES.get(name)
    if home is not None:
        return getattr(import_module(f"dpfl.accounting.{home}"), name)
    from dpfl.accounting import guarantees, neighbouring, samplers

    homes = (samplers, guarantees, neighbouring)
    return next(getattr(home, name) for home in homes if hasattr(home, name))


def __dir__() -> list[str]:
    """Return the public names too, imported or not."""
    return sorted({*globals(), *__all__})
