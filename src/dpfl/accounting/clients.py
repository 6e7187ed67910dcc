"""Privacy of clients, round by round: cohorts, noise that is added in shares, clients that drop out, a ledger for each.

The unit is the client: its whole update counts as one record, of the norm bound that updates are clipped to. A round
releases a noisy sum of updates. Its cohort is drawn by coins (Poisson), without replacement (FixedBatches), or named
(FullBatch: it has no chance). The ledger of a client has the rounds that may have used its update.

Noise in shares. With `distributed` noise each client of the cohort adds an equal, independent Gaussian share, and the
sum has the noise of those whose shares came. Clients that drop out take their shares with them, and what colluding
clients know of their own hides nobody: of m shares, l are left, and the noise multiplier is that of all times
sqrt(l/m). The share of the client in question is among the l: nobody else knows it. The bound needs that this share is
there on both sides of a neighbouring pair. So one client more or fewer (add_or_remove) is refused, as the noise itself
would tell; and so is a cohort by coins, whose size tells of the client.

Drop-outs of a cohort that is drawn. If a client drops out with a chance that does not depend on who it is or what it
holds, then those that are left, given their number k, are k of all clients, drawn without replacement: so they count.
If it may depend on who it is, as on its device, name those who answered: they count without amplification. How many
drop out may be known: whatever is proven, is so given their number. If it depends on a client's data, nothing here
covers it: who answers is then itself a release.

Rounds that are planned before the first one (cohort rules, noise, their number; drop-outs at random) compose as the
phases of a run: `ClientAccountant.guarantee`. Where rounds are chosen from what was seen, `odometer` and
`would_exceed_filter` hold: `renyi` has their proofs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from dpfl.accounting.guarantees import Guarantee, Phase, guarantee_of_phases
from dpfl.accounting.neighbouring import Neighbouring
from dpfl.accounting.numerics import integer, member, real
from dpfl.accounting.renyi import ORDERS, divergence, filter_budget, odometer_epsilon
from dpfl.accounting.sampler_accountants import Run, accountant
from dpfl.accounting.samplers import SAMPLERS, FixedBatches, FullBatch, Poisson, Sampling
from dpfl.errors import InputError
from dpfl.files import read_given_json, write_atomically

SCHEMA = "dpfl-clients/1"
_SHOWN = 3  # names in a line


@dataclass(frozen=True)
class ClientRound:
    """A round that releases a sum of clients' updates with Gaussian noise.

    `noise_multiplier` > 0: the standard deviation of the whole noise, as planned, over the norm bound of one update.
    `cohort`: with FullBatch those whose updates are in the sum, else those of whom the sampler draws; None: all.
    `distributed`: the noise is a sum of equal shares, one of each client of the cohort; else the server adds it.
    `dropped`: how many clients of the cohort sent neither update nor share. With FullBatch a named cohort is of those
    who did, and they come on top; without a name all clients are charged, those who dropped out too.
    `colluding`: how many clients of a named cohort tell the observer their shares.
    Raises ValueError naming the field that is out of range or does not fit the others.
    """

    sampler: Poisson | FixedBatches | FullBatch
    noise_multiplier: float
    cohort: tuple[str, ...] | None = None
    distributed: bool = False
    dropped: int = 0
    colluding: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.sampler, Poisson | FixedBatches | FullBatch):
            raise ValueError(f"sampler must be Poisson, FixedBatches or FullBatch, got {self.sampler!r}")
        real("noise_multiplier", self.noise_multiplier, above=0)
        if self.cohort is not None:
            object.__setattr__(self, "cohort", _names("cohort", self.cohort))
        if not isinstance(self.distributed, bool):
            raise ValueError(f"distributed must be True or False, got {self.distributed!r}")
        dropped, colluding = integer("dropped", self.dropped), integer("colluding", self.colluding)
        if isinstance(self.sampler, Poisson):
            if self.distributed:
                raise ValueError(
                    "distributed noise of a cohort by coins tells its size: give FixedBatches of that size"
                )
            if dropped:
                raise ValueError(
                    "dropped: a client of a Poisson cohort that drops out by chance is a smaller sample_rate"
                )
        if isinstance(self.sampler, FixedBatches):
            if dropped >= self.sampler.batch_size:
                raise ValueError(f"dropped must be below batch_size = {self.sampler.batch_size}, got {dropped}")
            if self.cohort is not None and len(self.cohort) != self.sampler.records:
                raise ValueError(f"cohort must name records = {self.sampler.records} clients, got {len(self.cohort)}")
        if colluding and not (self.distributed and isinstance(self.sampler, FullBatch)):
            raise ValueError("colluding is of a named cohort whose noise is distributed: others know who was drawn")
        if colluding and self.cohort is not None and colluding >= len(self.cohort):
            raise ValueError(f"colluding must leave one of the {len(self.cohort)} clients, got {colluding}")

    def step(self, clients: int) -> tuple[Poisson | FixedBatches | FullBatch, float]:
        """Return the sampler and the noise multiplier of the release, for `clients` if no cohort is named.

        Source: derived in the module. Raises ValueError naming the field that does not fit as many clients.
        """
        sampler, noise, dropped = self.sampler, float(self.noise_multiplier), int(self.dropped)
        among = clients if self.cohort is None else len(self.cohort)
        if isinstance(sampler, FixedBatches):
            if sampler.records != among:
                raise ValueError(f"sampler: records must be the {among} clients, got {sampler.records}")
            shares, sampler = sampler.batch_size, FixedBatches(sampler.batch_size - dropped, among)
        else:
            shares = among + (dropped if self.cohort is not None else 0)
        if not self.distributed:
            return sampler, noise
        left = shares - dropped - int(self.colluding)
        if left < 1:
            who = "colluding" if self.colluding else "dropped"
            raise ValueError(f"{who} must leave one of the {shares} clients, got {getattr(self, who)}")
        return sampler, noise * math.sqrt(left / shares)


def _planned(round: ClientRound, dropped: int) -> ClientRound:
    """Return a round before which so many drop-outs are foreseen. A named cohort of all is then of those who are asked,
    not of those who did answer: the shares that stay away are missing as those of colluders are."""
    if isinstance(round.sampler, FullBatch) and round.cohort is not None and round.distributed:
        return replace(round, dropped=0, colluding=int(round.colluding) + dropped)
    return replace(round, dropped=dropped)


class ClientAccountant:
    """A ledger for each of the `clients`, under one relation between neighbouring sets of clients' data.

    Zero_out: a client's update becomes zero. Replace_one: it becomes another one. Add_or_remove: there is a client more
    or fewer. Raises ValueError naming clients or neighbouring.

    >>> from dpfl.accounting import ClientAccountant, ClientRound, FixedBatches, FullBatch
    >>> accountant = ClientAccountant(["ann", "bob", "cy", "dee"])
    >>> accountant.compose(ClientRound(FixedBatches(2, 4), noise_multiplier=8.0), count=10)
    >>> accountant.compose(ClientRound(FullBatch(), 8.0, cohort=("ann", "bob"), distributed=True, dropped=2))
    >>> [round(accountant.guarantee(client, delta=1e-5).upper, 2) for client in ("ann", "cy")]
    [1.7, 1.53]
    >>> accountant.would_exceed(ClientRound(FullBatch(), 8.0), epsilon=1.7, delta=1e-5)
    ('ann', 'bob')
    """

    def __init__(self, clients: Sequence[str], *, neighbouring: Neighbouring | str = Neighbouring.ZERO_OUT) -> None:
        self.clients = _names("clients", clients)
        self.neighbouring = member("neighbouring", Neighbouring, neighbouring)
        self._rounds: list[tuple[ClientRound, int]] = []
        self._of_all: _Ledger = {}
        self._own: dict[str, _Ledger] = {}

    def compose(self, round: ClientRound, *, count: int = 1) -> None:
        """Enter `count` >= 0 equal rounds into the ledgers of the clients that they may have used.

        Source: the definition of a round, in the module. Raises ValueError naming the field of the round that does not
        fit these clients or their relation, or count; then nothing is entered.
        """
        times, step = integer("count", count), self._step(round)
        if not times:
            return
        if self._rounds and self._rounds[-1][0] == round:
            times_before = self._rounds.pop()[1]
            self._rounds.append((round, times_before + times))
        else:
            self._rounds.append((round, times))
        concerned = (
            [self._of_all] if round.cohort is None else [self._own.setdefault(name, {}) for name in round.cohort]
        )
        for ledger in concerned:
            ledger[step] = ledger.get(step, 0) + times

    def ledger(self, client: str) -> tuple[Phase, ...]:
        """Return the rounds that may have used a client's update: equal ones together, in the order of appearance.

        Source: the definition of a ledger. Raises ValueError naming the client.
        """
        return _phases(self._of_all, self._own.get(self._known(client), {}))

    def guarantee(self, client: str, *, delta: float) -> Guarantee:
        """Return bounds on epsilon at `delta` of one client, against an observer of every round.

        Guarantee: that of `guarantee_of_phases`, for rounds whose cohort rules, noise and number were set before the
        first one, and clients that drop out at random. Source: `guarantee_of_phases`; the rounds are derived in the
        module. Raises ValueError naming the client or delta.
        """
        return _guarantee(self.ledger(client), real("delta", delta, above=0, below=1), self.neighbouring)

    def would_exceed(self, round: ClientRound, *, epsilon: float, delta: float, count: int = 1) -> tuple[str, ...]:
        """Return the clients of `count` more such rounds who then have a proven epsilon above `epsilon` at `delta`.

        For rounds that were planned: see `guarantee`. With `dropped` a named cohort of all is of those who are asked.
        Source: `guarantee`. Raises ValueError naming the argument.
        """
        target, failure = real("epsilon", epsilon, at_least=0), real("delta", delta, above=0, below=1)
        more = {self._step(_planned(round, int(round.dropped))): integer("count", count)}

        def exceeds(name: str) -> bool:
            phases = _phases(self._of_all, self._own.get(name, {}), more)
            return _guarantee(phases, failure, self.neighbouring).upper > target

        return tuple(filter(exceeds, self._of(round)))

    def odometer(self, client: str, *, delta: float) -> float:
        """Return the epsilon that an odometer shows for a client, whatever rounds were chosen from what was seen.

        Guarantee: the client's privacy loss has been at most this at the time of every reading together, but for a
        chance of `delta`: stopping at any round is (this, delta)-DP. The orders are those of `renyi.ORDERS`.
        Sources: `odometer_epsilon`, with its proof in `renyi`; rogers2016, whitehouse2023. Raises ValueError naming the
        client or delta.
        """
        phases = self.ledger(client)
        sums = [self._divergence(phases, order) for order in ORDERS]
        return odometer_epsilon(orders=ORDERS, sums=sums, delta=delta)

    def would_exceed_filter(
        self, round: ClientRound, *, epsilon: float, delta: float, order: float, count: int = 1
    ) -> tuple[str, ...]:
        """Return the clients of `count` more such rounds whom a Renyi filter at (`epsilon`, `delta`) leaves out.

        `order` > 1: one for all rounds, chosen before the first, as by `filter_order`. State the most drop-outs with
        which the round will still be released; those that there were are for `compose`. Any number up to that is
        allowed for: fewer make a drawn cohort larger, more leave less of distributed noise. Guarantee: if a client is
        in no round for which this names it, then what is released is (epsilon, delta)-DP for it at any time, whatever
        rounds were chosen from what was seen. Sources: `filter_budget`, with its proof in `renyi`; feldman2021filter (a
        filter for each person). Raises ValueError naming the argument.
        """
        budget = filter_budget(epsilon=epsilon, delta=delta, order=order)
        possible = dict.fromkeys(self._step(_planned(round, left)) for left in range(round.dropped + 1))
        most = max(possible, key=lambda step: self._divergence([Phase(*step, 1)], order))
        more = {most: integer("count", count)}
        names, spent = [], {}
        for name in self._of(round):
            phases = _phases(self._of_all, self._own.get(name, {}), more)
            if phases not in spent:
                spent[phases] = self._divergence(phases, order)
            if spent[phases] > budget:
                names.append(name)
        return tuple(names)

    def save(self, path: Path) -> None:
        """Write clients, relation and rounds as JSON to `path`, completely or not at all.

        The format is "dpfl-clients/1", which `load` reads. Source: elementary. Raises InputError naming the file.
        """
        write_atomically(path, json.dumps(self._content(), indent=1, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: Path) -> ClientAccountant:
        """Return the accountant that `save` wrote.

        Source: elementary. Raises InputError, one line that names the file and the field, where it is none.
        """
        content = read_given_json(path, "ledger of clients")
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            raise InputError(f'{path} is not a ledger of clients: "schema" should be "{SCHEMA}"')
        place = str(path)
        try:
            _only(content, {"schema", "neighbouring", "clients", "rounds"})
            loaded = cls(content["clients"], neighbouring=content["neighbouring"])
            if not isinstance(content["rounds"], list):
                raise ValueError("rounds should be a list")
            for number, entry in enumerate(content["rounds"], 1):
                place = f"{path}, entry {number} of rounds"
                round, count = _round(entry)
                loaded.compose(round, count=count)
        except (ValueError, TypeError) as problem:
            raise InputError(f"{place}: {problem}") from None
        return loaded

    def _content(self) -> dict[str, Any]:
        """The content that `save` writes."""
        rounds = []
        for round, count in self._rounds:
            entry = {"count": count, "sampler": round.sampler.sampling.value, **asdict(round.sampler)}
            stated = {each.name: getattr(round, each.name) for each in fields(ClientRound) if each.name != "sampler"}
            entry |= {name: value for name, value in stated.items() if name == "noise_multiplier" or value}
            rounds.append(entry)
        return {
            "schema": SCHEMA,
            "neighbouring": self.neighbouring.value,
            "clients": list(self.clients),
            "rounds": rounds,
        }

    def _known(self, client: str) -> str:
        """Return the client. Raises ValueError where it is none of these."""
        if client not in self._places:
            raise ValueError(f"client must be one of the {len(self.clients)} clients, got {client!r}")
        return client

    @property
    def _places(self) -> Mapping[str, int]:
        return _places(self.clients)

    def _of(self, round: ClientRound) -> tuple[str, ...]:
        """The clients that a round may use."""
        return self.clients if round.cohort is None else round.cohort

    def _step(self, round: ClientRound) -> _Step:
        """Return what the round releases. Raises ValueError naming the field that does not fit."""
        unknown = [name for name in round.cohort or () if name not in self._places]
        if unknown:
            raise ValueError(
                f"cohort must name these {len(self.clients)} clients, got {', '.join(map(repr, unknown[:_SHOWN]))}"
            )
        if round.distributed and self.neighbouring is Neighbouring.ADD_OR_REMOVE:
            raise ValueError("distributed noise tells whether a client is there: zero_out or replace_one")
        sampler, noise = round.step(len(self.clients))
        accountant(
            Run(sampler, noise, 1, 0.5, self.neighbouring)
        ).simplified()  # refuses what the relation does not fit
        return sampler, noise

    def _divergence(self, phases: Sequence[Phase], order: float) -> float:
        """The sum of the phases' divergences of that order."""
        each = (
            phase.steps
            * float(
                divergence(
                    phase.sampler,
                    noise_multiplier=phase.noise_multiplier,
                    order=order,
                    neighbouring=self.neighbouring,
                )
            )
            for phase in phases
        )
        return math.fsum(each)


_Step = tuple[Poisson | FixedBatches | FullBatch, float]
_Ledger = dict[_Step, int]


@lru_cache(maxsize=256)
def _guarantee(phases: tuple[Phase, ...], delta: float, neighbouring: Neighbouring) -> Guarantee:
    """Return the guarantee of a ledger, once for all clients that have it."""
    return guarantee_of_phases(phases or [Phase(FullBatch(), 1.0, 0)], delta=delta, neighbouring=neighbouring)


@lru_cache(maxsize=8)
def _places(clients: tuple[str, ...]) -> Mapping[str, int]:
    return {name: place for place, name in enumerate(clients)}


def _phases(*ledgers: _Ledger) -> tuple[Phase, ...]:
    """Return ledgers as phases, equal steps counted together."""
    counts: _Ledger = {}
    for ledger in ledgers:
        for step, count in ledger.items():
            counts[step] = counts.get(step, 0) + count
    return tuple(Phase(*step, count) for step, count in counts.items() if count)


def _names(argument: str, names: Any) -> tuple[str, ...]:
    """Return the names of clients. Raises ValueError naming the argument."""
    if isinstance(names, str) or not isinstance(names, Sequence) or not names:
        raise ValueError(f"{argument} must be a list of one name or more, got {names!r}")
    wrong = [name for name in names if not isinstance(name, str) or not name]
    if wrong:
        raise ValueError(f"{argument} must be names, got {wrong[0]!r}")
    if len(set(names)) < len(names):
        twice = next(name for name in names if list(names).count(name) > 1)
        raise ValueError(f"{argument} must be different names, got {twice!r} twice")
    return tuple(names)


def _only(entry: Mapping[str, Any], known: set[str]) -> None:
    """Raise ValueError where a key is missing or unknown."""
    for key in sorted(known ^ set(entry)):
        raise ValueError(f"{key!r} is missing" if key in known else f"{key!r} is unknown here")


def _round(entry: Any) -> tuple[ClientRound, int]:
    """Return a round of a file and its count. Raises ValueError naming the field."""
    if not isinstance(entry, dict):
        raise ValueError("should be an object")
    kind = SAMPLERS[member("sampler", Sampling, entry.get("sampler", ""))]
    drawn = {each.name for each in fields(kind)}
    optional = {"cohort", "distributed", "dropped", "colluding"} & set(entry)
    _only(entry, {"count", "sampler", "noise_multiplier", *drawn, *optional})
    sampler = cast("Any", kind)(**{name: entry[name] for name in drawn})
    stated = {name: entry[name] for name in optional}
    return ClientRound(sampler, entry["noise_multiplier"], **stated), integer("count", entry["count"], at_least=1)
