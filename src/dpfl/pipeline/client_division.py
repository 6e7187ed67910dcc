"""Train the clients of a round on several cores, to the same bytes as on one.

Clients do not see one another's models before they are averaged, and draw their noise and batches by their own address.
So which process trains a client decides no number; averaging and evaluation stay in one. The training code knows
nothing of it: `clients_on` lends it another class of federation for as long as it trains.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dpfl.errors import InputError
from dpfl.images import fedavg_images
from dpfl.images.fedavg import FederatedAveraging, State
from dpfl.pipeline.process_cleanup import CONTROLLER, end_with_controller

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue

_JOIN_SECONDS = 10.0


@contextmanager
def clients_on(cores: int) -> Iterator[None]:
    """Let federated averaging train an epoch's clients in `cores` processes, one thread each, on a CPU.

    Not for training on a GPU, nor with more than one thread a process: threads do not survive a fork.
    """
    undivided = fedavg_images.FederatedAveraging
    if cores > 1:
        fedavg_images.FederatedAveraging = partial(DividedAveraging, cores=cores)
    try:
        yield
    finally:
        fedavg_images.FederatedAveraging = undivided


@dataclass(frozen=True)
class DividedAveraging(FederatedAveraging):
    """Federated averaging whose clients are divided among `cores` processes, forked again for each epoch.

    Raises InputError where a process does, and RuntimeError where one is killed.
    """

    cores: int = 1

    def _blocks(self) -> list[list[int]]:
        """Return all clients as one block: `_epoch` divides it."""
        return [list(range(len(self.shares)))]

    def _epoch(self, state: State, clients: list[int], chosen: list[int]) -> None:
        """Train the chosen variants of all clients through one epoch."""
        state.weights, state.velocity = shared(state.weights), shared(state.velocity)
        context = get_context("fork")
        faults = context.SimpleQueue()
        parts = divided(clients, self.cores)
        here = os.getpid()
        workers = [context.Process(target=self._part, args=(state, part, chosen, faults, here)) for part in parts]
        try:
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        finally:
            _end(workers)
        if not faults.empty():
            raise InputError(faults.get())
        if ended := [worker.exitcode for worker in workers if worker.exitcode]:
            raise RuntimeError(f"a process that trained clients ended with {ended[0]}; its message is above")

    def _part(self, state: State, part: list[int], chosen: list[int], faults: SimpleQueue, parent: int) -> None:
        """Train some clients, one after the other, in a process that ends with its parent."""
        os.environ[CONTROLLER] = str(parent)
        end_with_controller()
        try:
            for client in part:
                super()._epoch(state, [client], chosen)
        except InputError as error:
            faults.put(str(error))


def divided(clients: list[int], cores: int) -> list[list[int]]:
    """Return the clients of each process: every `cores`-th, none of them empty."""
    return [clients[first::cores] for first in range(min(cores, len(clients)))]


def shared(tensor: Tensor) -> Tensor:
    """Return a copy of a tensor in memory that this process and those forked from it later have in common."""
    space = torch.frombuffer(mmap.mmap(-1, tensor.nbytes), dtype=tensor.dtype)
    return space.view(tensor.shape).copy_(tensor)


def _end(workers: list) -> None:
    """End the processes that still run."""
    started = [worker for worker in workers if worker.pid is not None]
    for worker in started:
        worker.terminate()
    for worker in started:
        worker.join(_JOIN_SECONDS)
        if worker.is_alive():
            worker.kill()
            worker.join()
