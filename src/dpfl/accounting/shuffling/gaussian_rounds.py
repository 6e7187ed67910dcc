"""Shuffled noisy minibatch SGD (lowy2021, Theorem 4.1): how little noise clients need behind a trusted shuffler.

The server takes the mean of the messages, which a permutation does not change: the run is that of noisy minibatch SGD
(dpfl.algorithms.minibatch_sgd), and only its noise differs. The paper leaves the constant of its noise open; here the
noise is calibrated by the blanket of the other clients' messages.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from dpfl.accounting import gaussian_dp
from dpfl.accounting.arguments import integer, real
from dpfl.accounting.privacy_profiles import composed_epsilon
from dpfl.accounting.roots import least_noise
from dpfl.accounting.shuffling.blanket import blanket_delta, blanket_epsilon

_POINTS = 11
"""Places where the profile of one round is computed; the chords between them are above it."""
_SHORT_OF_TARGET = 0.02
"""Most that the calibration may stop below the target, relative to it."""
_TRIES = 12


def local_noise_multiplier(*, epsilon: float, delta: float, rounds: int) -> float:
    """Return sigma n / L of full batches without a shuffler: 2 sqrt(R) / mu, exact by the composition of Gaussians.

    Guarantee: (epsilon, delta)-LDP of `rounds` messages, under replace_one. Raises ValueError naming the argument.
    Source: vandijk2023 (6) and section 4.3.
    """
    delta = real("delta", delta, above=0, below=1)
    return 2.0 * math.sqrt(integer("rounds", rounds, at_least=1)) / float(gaussian_dp.mu(epsilon, delta))


def central_noise_multiplier(*, epsilon: float, delta: float, rounds: int, clients: int) -> float:
    """Return the share that each client would add if a trusted server's noise were split evenly among them.

    The mean of M messages then has the noise of the central model, the least that its accounting allows: what
    `noise_multiplier` is compared with. Arguments and errors as above. Guarantee: (epsilon, delta)-DP of the means
    alone, the server trusted. Source: derived; the sum of Gaussians.
    """
    local = local_noise_multiplier(epsilon=epsilon, delta=delta, rounds=rounds)
    return local / math.sqrt(integer("clients", clients, at_least=1))


@lru_cache(maxsize=256)
def epsilon(*, noise_multiplier: float, clients: int, rounds: int, delta: float, dimension: int) -> float:
    """Return epsilon at `delta` of `rounds` rounds whose `clients` messages on full batches are shuffled each time.

    `noise_multiplier` > 0 is sigma n / L of one client: a replaced record moves its message by 2 / noise_multiplier
    deviations. `dimension` >= 1 of the messages; at most the epsilon without a shuffler.
    Guarantee: (epsilon, delta)-DP under replace_one against an observer of the shuffled messages alone: blanket of
    balle2019, composed over adaptive rounds; every approximation errs upwards. Raises ValueError naming the argument.
    Source: balle2019, Lemma 5.3.
    """
    move = 2.0 / real("noise_multiplier", noise_multiplier, above=0)
    clients = integer("clients", clients, at_least=1)
    rounds, delta = integer("rounds", rounds, at_least=1), real("delta", delta, above=0, below=1)
    largest = max(1e-3, float(blanket_epsilon(clients, move, max(1e-12, 1e-3 * delta / rounds), dimension)))
    epsilons = np.concatenate([[0.0], largest * np.linspace(0.15, 1.0, _POINTS - 1)])
    deltas = np.asarray(blanket_delta(epsilons, clients, move, dimension))
    composed = composed_epsilon(
        lambda at: np.interp(np.expm1(at), np.expm1(epsilons), deltas),
        largest=largest,
        steps=rounds,
        delta=delta,
    )
    return min(composed, float(gaussian_dp.epsilon(delta, move * math.sqrt(rounds))))


def noise_multiplier(*, target_epsilon: float, clients: int, rounds: int, delta: float, dimension: int) -> float:
    """Return a noise multiplier that spends at most `target_epsilon`, and not more than 2 % less.

    Arguments, guarantee and errors as for `epsilon`; never above local_noise_multiplier, which always suffices.
    Source: `epsilon`, solved for the noise.
    """
    target = real("target_epsilon", target_epsilon, above=0)
    counts = {"clients": clients, "rounds": rounds, "dimension": dimension}
    run = {name: integer(name, count, at_least=1) for name, count in counts.items()}
    run["delta"] = real("delta", delta, above=0, below=1)
    local = local_noise_multiplier(epsilon=target, delta=run["delta"], rounds=run["rounds"])
    start = math.log(min(local, 1.3 * local / math.sqrt(run["clients"])))

    def excess(log_noise: float) -> float:
        spent = epsilon(noise_multiplier=math.exp(log_noise), **run)
        return math.log(spent / target) if spent > 0 else -math.inf

    result = least_noise(
        excess,
        start,
        slope=-1.0,  # epsilon goes about as 1 / noise
        room=-math.log(1.0 - _SHORT_OF_TARGET),
        aim=math.log(1.0 - _SHORT_OF_TARGET / 2.0),
        flattest=-0.2,
        high=math.log(local),
        known=True,
        tries=_TRIES,
    )
    return local if result is None else math.exp(result)
