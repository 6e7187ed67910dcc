"""Ask the libraries that are installed what they claim, and write docs/claims.json for `dpfl check`.

    python docs/collect_claims.py opacus dp_accounting flower

Each library is asked through its public interface, as installed; how batches are drawn is observed, not assumed. Claims
of libraries that are not named stay as they are: Flower may live in an environment of its own.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).parent / "claims.json"
Claim = dict[str, Any]
RUNS: dict[str, tuple[list[tuple[float, float, int]], float]] = {
    "client of 6000 records": ([(1.0072, 1 / 94, 1880)], 1e-5),
    "little noise": ([(0.6, 0.01, 1000)], 1e-5),
    "small delta": ([(2.0, 0.1, 500)], 1e-9),
    "one step": ([(1.0, 0.01, 1)], 1e-5),
    "two phases": ([(1.0, 0.01, 500), (2.0, 0.02, 500)], 1e-5),
}
"""Runs on Poisson samples: phases of (noise_multiplier, sample_rate, steps), and delta."""
FALSE_ALARM = 1e-6
"""Chance that a loader that draws Poisson samples is not recognised as one."""


def opacus() -> Iterator[Claim]:
    """What Opacus's accountants say of the runs, and what an engine says after training with either loader."""
    from opacus.accountants import create_accountant

    for run, (history, delta) in RUNS.items():
        for mechanism in ("rdp", "prv", "gdp"):
            if mechanism == "gdp" and len(history) > 1:
                continue
            accountant = create_accountant(mechanism)
            accountant.history = list(history)
            name = f"Opacus {version('opacus')} {mechanism}: {run}"
            yield _poisson_claim(name, history, delta, accountant.get_epsilon(delta))
    for poisson in (True, False):
        yield from _opacus_training(poisson)


def _opacus_training(poisson: bool) -> Iterator[Claim]:
    """Train a linear model for 20 epochs, and say what the engine claims of the batches that its loader drew."""
    import torch
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    records, batch_size, epochs, noise = 6000, 64, 20, 1.0072
    data = TensorDataset(torch.arange(records, dtype=torch.float32)[:, None])
    engine, model = PrivacyEngine(), torch.nn.Linear(1, 1)
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.0),
        data_loader=DataLoader(data, batch_size=batch_size, shuffle=True),
        noise_multiplier=noise,
        max_grad_norm=1.0,
        poisson_sampling=poisson,
    )
    batches = []
    for _ in range(epochs):
        for (inputs,) in loader:
            model(inputs).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            batches.append(inputs[:, 0].numpy().astype(int))
    steps = len(batches)
    delta, epsilon = 1e-5, engine.get_epsilon(1e-5)
    name = f"Opacus {version('opacus')} PrivacyEngine: poisson_sampling={poisson}"
    if poisson:
        _require_poisson(batches, records, 1 / len(loader))
        yield _poisson_claim(name, [(noise, 1 / len(loader), steps)], delta, epsilon)
        return
    _require_shuffled(batches, records, batch_size, epochs)
    run = {"sampler": "shuffled_epochs", "batch_size": batch_size, "records": records}
    for relation in ("add_or_remove", "zero_out"):
        yield {
            "name": name, **run, "noise_multiplier": noise, "steps": steps, "delta": delta, "epsilon": epsilon,
            "neighbouring": relation,
        }  # fmt: skip


def _require_poisson(batches: list[np.ndarray], records: int, rate: float) -> None:
    """Stop where batches are no Poisson samples, by their sizes' variance and by how often a record is drawn."""
    from scipy.stats import chi2

    sizes = np.array([len(batch) for batch in batches])
    uses = np.bincount(np.concatenate(batches), minlength=records)
    for counts, trials in ((sizes, records), (uses, len(batches))):
        statistic = float(np.sum((counts - trials * rate) ** 2) / (trials * rate * (1 - rate)))
        low, high = chi2.ppf([FALSE_ALARM / 4, 1 - FALSE_ALARM / 4], counts.size)
        if not low < statistic < high:
            raise SystemExit(f"these are no Poisson samples: {statistic:g} is outside of {low:g} to {high:g}")


def _require_shuffled(batches: list[np.ndarray], records: int, batch_size: int, epochs: int) -> None:
    """Stop where an epoch does not use every record once, or the epochs have one order."""
    orders = np.concatenate(batches).reshape(epochs, records)
    once = all(np.array_equal(np.sort(order), np.arange(records)) for order in orders)
    if not once or np.array_equal(orders[0], orders[1]) or len(batches[0]) != batch_size:
        raise SystemExit("these are no shuffled epochs")


def dp_accounting() -> Iterator[Claim]:
    """What dp_accounting's accountants say of the runs, and of batches drawn without replacement."""
    import dp_accounting as library
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    relation, made_by = library.NeighboringRelation, f"dp_accounting {version('dp-accounting')}"
    for run, (history, delta) in RUNS.items():
        steps = [
            library.SelfComposedDpEvent(library.PoissonSampledDpEvent(rate, library.GaussianDpEvent(noise)), count)
            for noise, rate, count in history
        ]
        for accountant in (PLDAccountant(), RdpAccountant()):
            epsilon = accountant.compose(library.ComposedDpEvent(steps)).get_epsilon(delta)
            yield _poisson_claim(f"{made_by} {_kind(accountant)}: {run}", history, delta, epsilon)
    noise, rate, count = RUNS["client of 6000 records"][0][0]
    gaussian = library.GaussianDpEvent(noise)
    replaced = PLDAccountant(neighboring_relation=relation.REPLACE_ONE)
    replaced.compose(library.PoissonSampledDpEvent(rate, gaussian), count)
    claim = _poisson_claim(
        f"{made_by} PLD: a record replaced", [(noise, rate, count)], 1e-5, replaced.get_epsilon(1e-5)
    )
    yield {**claim, "neighbouring": "replace_one"}
    fixed = RdpAccountant(neighboring_relation=relation.REPLACE_ONE)
    fixed.compose(library.SampledWithoutReplacementDpEvent(6016, 64, gaussian), count)
    # The event's docstring divides by the norm of one record, the accountant's by the sensitivity, which is twice that.
    for reading, scale in (("the event's noise", 1.0), ("the accountant's noise", 2.0)):
        yield {
            "name": f"{made_by} RDP: fixed batches, {reading}",
            "sampler": "fixed_without_replacement", "batch_size": 64, "records": 6016,
            "noise_multiplier": scale * noise, "steps": count, "delta": 1e-5, "epsilon": fixed.get_epsilon(1e-5),
            "neighbouring": "replace_one",
        }  # fmt: skip


def _kind(accountant: object) -> str:
    """RDP or PLD."""
    return type(accountant).__name__.removesuffix("Accountant").upper()


def flower() -> Iterator[Claim]:
    """What Flower's LocalDpMod is given as epsilon, with the noise of its messages, and what its accountant says."""
    logging.disable(logging.INFO)
    made_by, delta, clip_norm = f"flwr {version('flwr')} LocalDpMod", 1e-5, 1.0
    cases = [(0.5, 2.0), (1.0, 2.0), (8.0, 2.0), (10.0, 2.0), (1.0, 1.0)]
    for epsilon, sensitivity in cases:
        noise = _flower_noise(clip_norm, sensitivity, epsilon, delta)
        message = {"sampler": "full_batch", "noise_multiplier": noise / clip_norm, "steps": 1}
        claimed = {"delta": delta, "epsilon": epsilon}
        name = f"{made_by}: epsilon {epsilon:g}, sensitivity {sensitivity:g} x clipping_norm"
        for relation in ("replace_one", "zero_out") if sensitivity == clip_norm else ("replace_one",):
            yield {"name": name, **message, **claimed, "neighbouring": relation}
    yield from _flower_accountant()


def _flower_accountant() -> Iterator[Claim]:
    """What Flower's RdpAccountant says of rounds whose noise is relative to the clipping norm of one client's update.

    The strategies add noise_multiplier x clipping_norm / num_sampled_clients to the mean of num_sampled_clients
    updates, and let no accountant in but one without amplification: `compute_stdv` says the first, the constructor the
    second. Their cohort has a fixed size.
    """
    from flwr.supercore.differential_privacy import compute_stdv
    from flwr.supercore.privacy_accounting import NeighboringRelation, SamplingMethod

    if compute_stdv(3.0, 5.0, 50) != 3.0 * 5.0 / 50:
        raise SystemExit("the strategies' noise is not noise_multiplier x clipping_norm / num_sampled_clients")
    made_by, delta, added = f"flwr {version('flwr')}", 1e-5, NeighboringRelation.ADD_OR_REMOVE_ONE
    for rounds in (1, 10):
        epsilon = _flower_epsilon(added, SamplingMethod.NO_AMPLIFICATION, 1.0, (50, 100), rounds, delta)
        name = f"{made_by} fixed clipping strategy: no amplification, {rounds} round{'s' * (rounds > 1)} of"
        said = {"noise_multiplier": 1.0, "steps": rounds, "delta": delta, "epsilon": epsilon}
        fixed = {"sampler": "fixed_without_replacement", "batch_size": 50, "records": 100}
        yield {"name": f"{name} 50 of 100", **fixed, **said, "neighbouring": "add_or_remove"}
        yield {"name": f"{name} a named cohort", "sampler": "full_batch", **said, "neighbouring": "zero_out"}
    epsilon = _flower_epsilon(added, SamplingMethod.POISSON, 1.0, (50, 1000), 200, delta)
    yield _poisson_claim(f"{made_by} RdpAccountant: poisson", [(1.0, 50 / 1000, 200)], delta, epsilon)
    replaced = NeighboringRelation.REPLACE_ONE
    epsilon = _flower_epsilon(replaced, SamplingMethod.WITHOUT_REPLACEMENT, 1.0, (50, 1000), 200, delta)
    for reading, scale in (("z over one client's norm", 1.0), ("z over the sensitivity, 2 norms", 2.0)):
        yield {
            "name": f"{made_by} RdpAccountant: without replacement, {reading}",
            "sampler": "fixed_without_replacement", "batch_size": 50, "records": 1000,
            "noise_multiplier": scale, "steps": 200, "delta": delta, "epsilon": epsilon, "neighbouring": "replace_one",
        }  # fmt: skip


def _flower_epsilon(
    relation: Any, sampling: Any, noise: float, cohort: tuple[int, int], rounds: int, delta: float
) -> float:
    """Return epsilon of that many rounds, each of so many clients of so many, by Flower's accountant."""
    from flwr.supercore.privacy_accounting import GaussianPrivacyEvent, PrivacyConfig
    from flwr.supercore.privacy_accounting.rdp_accountant import RdpAccountant

    size, clients = cohort
    accountant = RdpAccountant(PrivacyConfig(delta, clients, relation, sampling))
    accountant.compose(GaussianPrivacyEvent(noise, size, clients), rounds)
    return accountant.get_epsilon(delta)


def _flower_noise(clip_norm: float, sensitivity: float, epsilon: float, delta: float) -> float:
    """Return the mod's noise after sending messages through it; stop where it is not what its log line says."""
    from flwr.app import ArrayRecord, Message, RecordDict
    from flwr.clientapp.mod import LocalDpMod
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
    size = 400_000
    received, update = np.zeros(size), np.full(size, 1.0)

    def sent(mod: LocalDpMod) -> np.ndarray:
        message = Message(content=RecordDict({"model": ArrayRecord([received])}), dst_node_id=1, message_type="train")
        reply = mod(
            message, None, lambda asked, _: Message(RecordDict({"model": ArrayRecord([update.copy()])}), reply_to=asked)
        )
        return next(iter(reply.content.array_records.values())).to_numpy_ndarrays()[0]

    np.random.seed(0)
    clipped = sent(LocalDpMod(clip_norm, 1e-12, epsilon, delta))
    noise = sent(LocalDpMod(clip_norm, sensitivity, epsilon, delta)) - clipped
    stated = sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    # The deviation of 400,000 draws errs by 1.1e-3, relative: 5 of them have chance 6e-7.
    if abs(float(np.linalg.norm(clipped)) / clip_norm - 1) > 1e-6 or abs(float(noise.std()) / stated - 1) > 6e-3:
        raise SystemExit(
            f"the messages have norm {np.linalg.norm(clipped):g} and noise {noise.std():g}, not {stated:g}"
        )
    return stated


def _poisson_claim(name: str, history: list[tuple[float, float, int]], delta: float, epsilon: float) -> Claim:
    """A claim about Poisson samples under add_or_remove."""
    phases = [
        {"sampler": "poisson", "sample_rate": rate, "noise_multiplier": noise, "steps": steps}
        for noise, rate, steps in history
    ]
    run = phases[0] if len(phases) == 1 else {"phases": phases}
    return {"name": name, **run, "delta": delta, "epsilon": float(epsilon), "neighbouring": "add_or_remove"}


LIBRARIES = {
    "opacus": ("Opacus", opacus),
    "dp_accounting": ("dp_accounting", dp_accounting),
    "flower": ("flwr", flower),
}


def main(names: list[str]) -> None:
    """Replace the claims of the named libraries in docs/claims.json."""
    warnings.simplefilter("ignore")
    kept = json.loads(FILE.read_text())["claims"] if FILE.exists() else []
    by_library = {}
    for name, (prefix, collect) in LIBRARIES.items():
        old = [claim for claim in kept if claim["name"].startswith(prefix)]
        by_library[name] = list(collect()) if name in names else old
    lines = ",\n  ".join(json.dumps(claim) for claims in by_library.values() for claim in claims)
    FILE.write_text(f'{{"schema": "dpfl-claims/1", "claims": [\n  {lines}\n]}}\n')


if __name__ == "__main__":
    unknown = set(sys.argv[1:]) - set(LIBRARIES)
    if unknown or len(sys.argv) < 2:
        sys.exit(f"name one or more of {', '.join(LIBRARIES)}")
    main(sys.argv[1:])
