"""Deterministic event simulation of the clients, messages and server of asynchronous DP-SGD.

Which message is late or lost, and when a round is interrupted, depends on no record and no weight. The simulation can
therefore run first and alone: it returns the operations on models in the order in which they happen, and one such list
serves every setting of noise, clipping and data that shares it (dpfl.asynchronous.async_sgd carries it out). Only
clients that guard the distance of their model (`max_distance`) make the order depend on weights: then the simulation
hands each operation to the models as it happens, and asks them.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from fractions import Fraction
from typing import Protocol

from dpfl.errors import InputError
from dpfl.randomness import generator


@dataclass(frozen=True)
class Network:
    """Speeds, delays and losses of clients and messages; the time unit is one round of a client of speed 1.

    speed_spread >= 1: the fastest client's speed over the slowest's, geometric steps between, geometric mean 1.
    delay >= 0: mean latency of every message, either way; jitter in [0, 1]: the share of it that is exponential, so
    that messages overtake each other. update_loss, broadcast_loss in [0, 1]: the chance that a message is lost.
    window > 0: the server collects updates for this long, then steps and broadcasts. participation in (0, 1]: the share
    of the clients with rounds left that the server asks in a window, drawn uniformly, at least one; the others start no
    round in it. max_staleness: a client that has not heard of the server for this many of its rounds waits until it
    does. max_distance > 0: a client whose model is farther than this (Euclidean) from the last model that it received
    waits for the next, which replaces its own even if it is the same again. None never waits.
    Raises InputError naming the field that cannot be used. Source: vandijk2023, sections 2.2 and 2.4.
    """

    speed_spread: float = 1.0
    delay: float = 0.0
    jitter: float = 0.0
    update_loss: float = 0.0
    broadcast_loss: float = 0.0
    window: float = 1.0
    participation: float = 1.0
    max_staleness: int | None = None
    max_distance: float | None = None

    def __post_init__(self) -> None:
        rules = {
            "speed_spread": (self.speed_spread, 1.0, 1e6, "from 1 to 1e6: no client's speed may be zero"),
            "delay": (self.delay, 0.0, 1e6, "from 0 to 1e6 rounds"),
            "jitter": (self.jitter, 0.0, 1.0, "from 0 to 1"),
            "update_loss": (self.update_loss, 0.0, 1.0, "from 0 to 1"),
            "broadcast_loss": (self.broadcast_loss, 0.0, 1.0, "from 0 to 1"),
            "window": (self.window, 1e-3, 1e6, "from 0.001 to 1e6 rounds"),
            "participation": (self.participation, 1e-6, 1.0, "from 1e-6 to 1"),
        }
        for name, (value, low, high, rule) in rules.items():
            if not low <= value <= high:
                raise InputError(f"{name}: is {value}, must be {rule}")
        if self.max_staleness is not None and self.max_staleness < 1:
            raise InputError(f"max_staleness: is {self.max_staleness}, must be at least 1 round, or null for no wait")
        if self.max_distance is not None and not 0 < self.max_distance < float("inf"):
            raise InputError(f"max_distance: is {self.max_distance}, must be above 0 and finite, or null for no wait")
        if self.update_loss == 1:
            raise InputError("update_loss: is 1, so no update ever reaches the server; it must be below 1")
        guards = [name for name in ("max_staleness", "max_distance") if getattr(self, name) is not None]
        if self.broadcast_loss == 1 and guards:
            raise InputError(f"broadcast_loss: is 1 and {guards[0]} makes clients wait for a broadcast: they never end")

    def speeds(self, clients: int) -> list[float]:
        """Return the clients' speeds, slowest first."""
        steps = max(clients - 1, 1)
        return [self.speed_spread ** (client / steps - 0.5) if clients > 1 else 1.0 for client in range(clients)]


@dataclass(frozen=True)
class GradientEvent:
    """Client `client` adds the clipped gradients of a part of its round's batch, at its present model.

    The part goes from `start` to `stop`, shares of the batch in [0, 1].
    """

    client: int
    round: int
    start: float
    stop: float


@dataclass(frozen=True)
class EndRound:
    """The client adds noise to its sum and steps locally; the update is sent, and arrives where `delivered`."""

    client: int
    round: int
    delivered: bool


@dataclass(frozen=True)
class ServerStep:
    """The server adds the mix of the updates (client, round) of one window; its model gets the next number."""

    updates: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Interrupt:
    """The client's model becomes the server's model number `version`."""

    client: int
    version: int


@dataclass(frozen=True)
class EvaluateEvent:
    """The clients have together computed as many gradients as one more epoch has: look at the server's model."""


Operation = GradientEvent | EndRound | ServerStep | Interrupt | EvaluateEvent


class Models(Protocol):
    """The models behind the operations, for clients that guard the distance of theirs."""

    def carry_out(self, operation: Operation) -> None:
        """Carry out an operation as it happens."""
        ...

    def distance(self, client: int) -> float:
        """Return how far the client's model is from the last one that it received."""
        ...


@dataclass(frozen=True)
class Program:
    """Operations in order, and the counts of the simulation.

    `uses[version]`: how many interrupts install the server's model of that number (0 is the initial one).
    `simulated_rounds`: time until the last update was added. `staleness_rounds`: mean over rounds of the client's own
    rounds since it last heard of the server. `interrupted_pct`: models that came in within a round, in per cent of the
    rounds.
    """

    operations: tuple[Operation, ...]
    uses: dict[int, int]
    updates_lost_pct: float
    simulated_rounds: float
    staleness_rounds: float
    interrupted_pct: float


def simulate(
    network: Network, *, clients: int, lengths: Sequence[Fraction], epochs: int, seed: int, models: Models | None = None
) -> Program:
    """Return what happens while each client makes len(lengths) rounds, which are `epochs` epochs of its records.

    lengths[round] > 0 is the round's batch over the run's batch size, exact so that epochs end where they should.
    With `models`, which `max_distance` needs and nothing else, every operation is carried out as it happens.

    Every message's fate is addressed by (seed, "messages", client, number, direction): settings that differ in delay
    or loss alone see the same draws. Events of one instant: rounds end, updates arrive, windows close, broadcasts
    arrive, rounds start; within a kind by client. Raises InputError where every update of a client was lost, ValueError
    for `max_distance` without `models` or the reverse.
    Source: vandijk2023, Algorithm 1 and sections 2.2, 2.4, 2.5.
    """
    if (models is None) != (network.max_distance is None):
        raise ValueError("models: are needed where max_distance is set, and only there")
    simulation = _Simulation(network, clients, lengths, epochs, seed, models)
    simulation.run()
    return simulation.program()


class _Kind(IntEnum):
    """Kinds of events, in the order in which those of one instant happen."""

    ROUND_ENDS = 0
    UPDATE_ARRIVES = 1
    WINDOW_CLOSES = 2
    BROADCAST_ARRIVES = 3
    ROUND_STARTS = 4


_UP, _DOWN = 0, 1


@dataclass
class _Client:
    """State of one client. `started` is None between rounds; `done` is the computed share of the round."""

    speed: float
    round: int = 0
    started: float | None = None
    done: float = 0.0
    version: int = 0
    heard_at_round: int = 0
    waits: bool = False
    unasked: bool = False


@dataclass
class _Simulation:
    """The event loop: a heap of (time, kind, client, number); number is an update's round or a model's version."""

    network: Network
    clients: int
    lengths: Sequence[Fraction]
    epochs: int
    seed: int
    models: Models | None = None
    now: float = 0.0
    operations: list[Operation] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rounds, self.work, self.computed = len(self.lengths), sum(self.lengths), Fraction(0)
        self.durations = [float(length) for length in self.lengths]
        self.states = [_Client(speed) for speed in self.network.speeds(self.clients)]
        self.heap = [(0.0, _Kind.ROUND_STARTS, client, 0) for client in range(self.clients)]
        self.heap.append((self.network.window, _Kind.WINDOW_CLOSES, 0, 1))
        heapq.heapify(self.heap)
        self.version = self.ended = self.measured = self.in_flight = self.staleness = self.interrupted = 0
        self.arrived: list[tuple[int, int]] = []
        self.delivered: Counter[int] = Counter()
        self.last_step = 0.0
        self.asked = self._ask(0)

    def run(self) -> None:
        """Process all events."""
        handlers = {
            _Kind.ROUND_ENDS: self._end_round,
            _Kind.UPDATE_ARRIVES: self._receive_update,
            _Kind.WINDOW_CLOSES: self._close_window,
            _Kind.BROADCAST_ARRIVES: self._receive_model,
            _Kind.ROUND_STARTS: self._start_round,
        }
        while self.heap:
            self.now, kind, client, number = heapq.heappop(self.heap)
            handlers[kind](client, number)

    def program(self) -> Program:
        """Return the operations and counts."""
        for client in range(self.clients):
            if not self.delivered[client]:
                raise InputError(
                    f"client {client} never reports: all {self.rounds} of its updates were lost (update_loss "
                    f"{self.network.update_loss}, seed {self.seed}); lower update_loss or train for more rounds"
                )
        total = self.clients * self.rounds
        return Program(
            operations=tuple(self.operations),
            uses=dict(Counter(each.version for each in self.operations if isinstance(each, Interrupt))),
            updates_lost_pct=100 * (1 - self.delivered.total() / total),
            simulated_rounds=self.last_step,
            staleness_rounds=self.staleness / total,
            interrupted_pct=100 * self.interrupted / total,
        )

    def _do(self, operation: Operation) -> None:
        """Note an operation, and carry it out where models have to answer later."""
        self.operations.append(operation)
        if self.models is not None:
            self.models.carry_out(operation)

    def _ask(self, window: int) -> set[int]:
        """Return the clients that the server asks in a window, among those with rounds left."""
        left = [client for client, state in enumerate(self.states) if state.round < self.rounds]
        if self.network.participation == 1 or not left:
            return set(left)
        count = max(1, round(self.network.participation * len(left)))
        return set(generator(self.seed, "participants", round=window).choice(left, count, replace=False).tolist())

    def _start_round(self, client: int, number: int) -> None:
        """Start the client's next round, unless it is not asked, or has heard nothing for too long, or is too far."""
        state, network = self.states[client], self.network
        if state.started is not None:  # a broadcast of this instant has started it
            return
        state.unasked = client not in self.asked
        if state.unasked:
            return
        age = state.round - state.heard_at_round
        state.waits = network.max_staleness is not None and age >= network.max_staleness
        if network.max_distance is not None and not state.waits:
            assert self.models is not None
            state.waits = self.models.distance(client) > network.max_distance
        if not state.waits:
            self.staleness += age
            state.started, state.done = self.now, 0.0
            end = self.now + self.durations[state.round] / state.speed
            heapq.heappush(self.heap, (end, _Kind.ROUND_ENDS, client, state.round))

    def _end_round(self, client: int, number: int) -> None:
        """Finish the batch, send the update, continue."""
        state = self.states[client]
        self._compute(client, 1.0)
        arrival = self._arrival(client, number, _UP, self.network.update_loss)
        self._do(EndRound(client, number, arrival is not None))
        if arrival is not None:
            self.delivered[client] += 1
            self.in_flight += 1
            heapq.heappush(self.heap, (arrival, _Kind.UPDATE_ARRIVES, client, number))
        state.started = None
        state.round += 1
        self.ended += 1
        self.computed += self.lengths[number]
        if state.round < self.rounds:
            heapq.heappush(self.heap, (self.now, _Kind.ROUND_STARTS, client, state.round))

    def _receive_update(self, client: int, number: int) -> None:
        """Keep the update until the window closes."""
        self.in_flight -= 1
        self.arrived.append((client, number))

    def _close_window(self, client: int, number: int) -> None:
        """Add what has arrived, broadcast to all, and open the next window while there is something to come."""
        if self.arrived:
            self._do(ServerStep(tuple(sorted(self.arrived))))
            self.arrived.clear()
            self.version += 1
            self.last_step = self.now
        self._measure()
        if self.ended == self.clients * self.rounds and not self.in_flight:
            return
        for receiver, state in enumerate(self.states):
            arrival = self._arrival(receiver, number, _DOWN, self.network.broadcast_loss)
            if arrival is not None and state.round < self.rounds:
                heapq.heappush(self.heap, (arrival, _Kind.BROADCAST_ARRIVES, receiver, self.version))
        self.asked = self._ask(number)
        for asked in sorted(self.asked):
            if self.states[asked].unasked:
                self.states[asked].unasked = False
                heapq.heappush(self.heap, (self.now, _Kind.ROUND_STARTS, asked, self.states[asked].round))
        heapq.heappush(self.heap, ((number + 1) * self.network.window, _Kind.WINDOW_CLOSES, 0, number + 1))

    def _measure(self) -> None:
        """Ask for a look at the model for every epoch that the clients have completed together."""
        while self.computed * self.epochs >= (self.measured + 1) * self.clients * self.work:
            if self.measured + 1 == self.epochs and self.in_flight:
                return
            self.measured += 1
            self._do(EvaluateEvent())

    def _receive_model(self, client: int, number: int) -> None:
        """The interrupt: a newer model replaces the client's, also within a round; an older one is dropped.

        The same model again replaces it only where the client waits for being too far from it.
        """
        state = self.states[client]
        if number < state.version or state.round == self.rounds:
            return
        state.heard_at_round = state.round
        if number > state.version or (state.waits and self.network.max_distance is not None):
            if state.started is not None:
                done = (self.now - state.started) * state.speed / self.durations[state.round]
                self._compute(client, min(done, 1.0))
                self.interrupted += state.done > 0
            self._do(Interrupt(client, number))
            state.version = number
        if state.waits:
            self._start_round(client, state.round)

    def _compute(self, client: int, until: float) -> None:
        """Compute the batch's gradients up to a share of it."""
        state = self.states[client]
        if until > state.done:
            self._do(GradientEvent(client, state.round, state.done, until))
            state.done = until

    def _arrival(self, client: int, number: int, direction: int, loss: float) -> float | None:
        """Return when a message sent now arrives, or None where it is lost."""
        if loss == 0 and self.network.delay == 0:
            return self.now
        draw = generator(self.seed, "messages", client, number, direction)
        lost, wait = draw.random() < loss, draw.standard_exponential()
        jitter = self.network.jitter
        return None if lost else self.now + self.network.delay * (1 - jitter + jitter * wait)
