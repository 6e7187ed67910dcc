"""Numbers of errata.yaml: what is printed, what is right, and the latter by another route.

The clients are of the two setups of the authors' scripts on the insurance data: one of three for the noise of Theorem
2.1, one of ten or of three for the later script. The scripts count the records before the split for a batch size K.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import mpmath
import numpy as np
from dp_accounting.pld import privacy_loss_distribution
from scipy.optimize import brentq
from scipy.stats import binom, norm

from dpfl.accounting import local_privacy
from dpfl.accounting.samplers import Sampling
from dpfl.accounting.shuffling import least_reports
from dpfl.catalog import load
from dpfl.randomness import generator
from dpfl.reporting.errata import Numbers, errata_recipe

MNIST_CLIENTS, DIGIT_CLIENTS = 25, 5  # clients of the federation, and of one digit
POOL, MNIST_TRAINING = 1548, 1238  # rows of a pair of digits, a client's training rows


@dataclass(frozen=True)
class Client:
    """A client of a setup: records before the split and training records, and the setup's largest epsilon, which
    decides its batch size."""

    block: int
    training: int
    largest_epsilon: float
    advanced: bool

    @property
    def delta(self) -> float:
        """The delta of its budget."""
        return 1 / self.training**2

    @property
    def batch(self) -> int:
        """The script's K."""
        run = {"epsilon": self.largest_epsilon, "rounds": rounds(), "records": self.block}
        if self.advanced:
            return math.floor(local_privacy.least_batch_advanced(**run, delta=1 / self.block**2))
        return math.floor(local_privacy.least_batch_moments(**run))

    def deviation(self, epsilon: float, steps: int) -> float:
        """Return sigma / L of Theorem 2.1 or of the later script for `steps` noisy steps."""
        variance = local_privacy.advanced_composition_variance if self.advanced else local_privacy.moments_variance
        run = {"lipschitz": 1.0, "rounds": steps, "records": self.training}
        return math.sqrt(variance(epsilon=epsilon, delta=self.delta, **run))


ONE_OF_THREE, ONE_OF_TEN = Client(446, 356, 10.0, advanced=True), Client(134, 105, 3.0, advanced=False)
LATER_SCRIPT = {10: ONE_OF_TEN, 3: Client(446, 356, 10.0, advanced=False)}
"""By the number of clients: it has budgets up to 3 for ten of them, and up to 10 for three."""


def rounds() -> int:
    """Return R of the experiments."""
    return load("lowy2021").settings["rounds"]


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon at `delta` of two unit Gaussians mu apart, to 30 digits, from the definition of theta."""
    with mpmath.workdps(30):

        def gap(epsilon: mpmath.mpf) -> mpmath.mpf:
            far = mpmath.exp(epsilon) * mpmath.ncdf(-epsilon / mu - mu / 2)
            return mpmath.ncdf(mu / 2 - epsilon / mu) - far - delta

        return float(mpmath.findroot(gap, (0, 20), solver="bisect", tol=1e-24, maxsteps=200))


def mixture_epsilon(sigma: float, client: Client, batch: int, *, interval: float, steps: int) -> float:
    """Return the epsilon of sum_j Bin(j; K, 1/n) N(2j/K, sigma^2) against N(0, sigma^2) by dp_accounting."""
    times = np.arange(20)
    weights = binom.pmf(times, batch, 1 / client.training)
    one = privacy_loss_distribution.from_mixture_gaussian_mechanism(
        sigma * batch, 2.0 * times, weights / weights.sum(), value_discretization_interval=interval
    )
    return float(one.self_compose(steps).get_epsilon_for_delta(client.delta))


def theorem_full(epsilon: float) -> Numbers:
    """Compare what Theorem 2.1's noise spends on full batches with what it is for."""
    client = ONE_OF_THREE
    sigma, size = client.deviation(epsilon, rounds()), client.training
    run = {"noise_multiplier": sigma * size, "batch_size": size, "records": size}
    spent = local_privacy.epsilon(**run, steps=rounds(), delta=client.delta, sampling=Sampling.FULL)
    exact = gaussian_epsilon(2 * math.sqrt(rounds()) / (sigma * size), client.delta)
    return Numbers(epsilon, spent, exact, {"records": size, "rounds": rounds()})


def theorem_sampled(epsilon: float, interval: float) -> Numbers:
    """Compare what Theorem 2.1's noise spends on batches with replacement: the proven most, and a known data set."""
    client, batch = ONE_OF_THREE, ONE_OF_THREE.batch
    sigma = client.deviation(epsilon, rounds())
    size = {"noise_multiplier": sigma * batch, "batch_size": batch, "records": client.training}
    most = local_privacy.epsilon(**size, steps=rounds(), delta=client.delta, sampling=Sampling.WITH_REPLACEMENT)
    known = mixture_epsilon(sigma, client, batch, interval=interval, steps=rounds())
    return Numbers(epsilon, most, known, {"records": client.training, "batch": batch})


def later_script(epsilon: float, clients: int) -> Numbers:
    """Compare what the later script's noise is for with what one data set spends at the script's own K."""
    client = LATER_SCRIPT[clients]
    batch = client.batch
    sigma = client.deviation(epsilon, rounds())
    size = {"noise_multiplier": sigma * batch, "batch_size": batch, "records": client.training}
    known = local_privacy.with_replacement_known_epsilon(**size, steps=rounds(), delta=client.delta)
    independent = mixture_epsilon(sigma, client, batch, interval=1e-2, steps=rounds())
    return Numbers(epsilon, known, independent, {"records": client.training, "batch": batch})


def later_script_locally(epsilon: float) -> Numbers:
    """Compare what the later script's noise is for with what local SGD, on single records, spends."""
    client, steps = ONE_OF_TEN, ONE_OF_TEN.batch * rounds()
    sigma = client.deviation(epsilon, steps)
    run = {"records": client.training, "steps": steps, "delta": client.delta}
    known = local_privacy.with_replacement_known_epsilon(noise_multiplier=sigma, batch_size=1, **run)
    subsampled = mixture_epsilon(sigma, client, 1, interval=1e-2, steps=steps)
    return Numbers(epsilon, known, subsampled, {"records": client.training, "steps": steps})


def later_script_range(epsilon: float) -> Numbers:
    """Compare the epsilon of local SGD with the largest that the later script's noise is meant for."""
    steps, records = ONE_OF_TEN.batch * rounds(), ONE_OF_TEN.training

    def batch_less_one(budget: float) -> float:
        return float(local_privacy.least_batch_moments(epsilon=budget, rounds=steps, records=records)) - 1

    largest = local_privacy.largest_moments_epsilon(batch_size=1, steps=steps, records=records)
    root = brentq(batch_less_one, 1e-6, epsilon, xtol=1e-12)
    return Numbers(epsilon, largest, root, {"records": records, "steps": steps})


def clipped_mean(epsilon: float, noise: str) -> Numbers:
    """Compare what the scripts ask for with what their clipped means spend."""
    client = ONE_OF_THREE if noise == "Theorem 2.1" else LATER_SCRIPT[3]
    sigma, batch = client.deviation(epsilon, rounds()), client.batch
    run = {"batch_size": batch, "records": client.training, "steps": rounds(), "delta": client.delta}
    most = local_privacy.clipped_mean_epsilon(sigma_over_lipschitz=sigma, **run)
    return Numbers(
        epsilon, most, turned_mean_epsilon(2 / sigma, client, batch), {"records": client.training, "batch": batch}
    )


def turned_mean_epsilon(move: float, client: Client, batch: int) -> float:
    """Return epsilon where R rounds each show N(move, 1) with probability 1 - (1 - 1/n)^K, else N(0, 1).

    For a `move` of many deviations one can see in which h rounds the record was drawn, and the loss is normal with
    mean h (ln q + move^2/2) + (R - h) ln(1 - q) and deviation move sqrt(h).
    """
    rate = 1 - (1 - 1 / client.training) ** batch
    drawn = np.arange(1, rounds() + 1)
    mean = drawn * (math.log(rate) + move**2 / 2) + (rounds() - drawn) * math.log(1 - rate)
    std = move * np.sqrt(drawn)

    def excess(epsilon: float) -> float:
        gap = (mean - epsilon) / std
        lost = norm.cdf(gap) - np.exp(std**2 / 2 - gap * std + norm.logcdf(gap - std))
        return float(binom.pmf(drawn, rounds(), rate) @ lost) - client.delta

    return float(brentq(excess, 1.0, mean[-1] + 10 * std[-1]))


def shuffled_clients(clients: int, delta: float) -> Numbers:
    """Compare the experiments' clients per round with Theorem 4.1's condition."""
    with mpmath.workdps(30):
        floor = 16 * mpmath.log(18 * rounds() * mpmath.mpf(clients) / mpmath.mpf(str(delta)))
    least = least_reports(clients_per_round=clients, clients=clients, rounds=rounds(), delta=delta)
    return Numbers(clients, least, floor, {"rounds": rounds()})


def fewest_clients(clients: int, delta: float) -> Numbers:
    """Compare the experiments' clients with the fewest that meet Theorem 4.1's condition, all taking part."""
    m = np.arange(1, 2000)
    meets = m >= least_reports(clients_per_round=m, clients=m, rounds=rounds(), delta=delta)
    with mpmath.workdps(30):
        solution = -16 * mpmath.lambertw(-mpmath.mpf(str(delta)) / (16 * 18 * rounds()), -1).real
    return Numbers(clients, m[meets][0], mpmath.ceil(solution), {"rounds": rounds()})


def group_delta(n: int, epsilon: float, delta: float) -> Numbers:
    """Compare the delta of a client's n records with that of one mechanism with two outcomes."""
    answers = answer_laws(n, epsilon, delta)
    printed = n * epsilon ** ((n - 1) * epsilon) * delta
    exceeds = np.maximum(answers[-1] - math.exp(n * epsilon) * answers[0], 0).sum()
    return Numbers(printed, n * math.exp((n - 1) * epsilon) * delta, exceeds)


def answer_laws(n: int, epsilon: float, delta: float) -> np.ndarray:
    """Return the laws of a yes-or-no mechanism on 0 to n changed records, shape (n + 1, 2).

    It says yes with p_0 = 0 and p_{i+1} = e^epsilon p_i + delta, as often as (epsilon, delta)-DP allows.
    """
    yes = [0.0]
    for _ in range(n):
        yes.append(math.exp(epsilon) * yes[-1] + delta)
    return np.array([[p, 1 - p] for p in yes])


def leaked_rows(clients: int, whose: str) -> Numbers:
    """Compute the share of test rows that are among the training rows of `clients` clients of the digit."""
    draws = clients * MNIST_TRAINING
    leaked = -math.expm1(draws * math.log1p(-1 / POOL))
    shown = {"pool": POOL, "draws": draws, "federation": MNIST_CLIENTS}
    return Numbers.simulated(0.0, leaked, simulated_leaks(own=clients == 1), shown)


def simulated_leaks(*, own: bool) -> list[float]:
    """Draw the clients' rows three times; return each time's share of test rows in the `own` or in any training set."""
    digit_rows = POOL // 2
    shares = []
    for seed in range(3):
        training, test = [], []
        for client in range(MNIST_CLIENTS):
            pair = (2 * (client // DIGIT_CLIENTS), 2 * (client % DIGIT_CLIENTS) + 1)  # an even and an odd digit
            pool = np.concatenate([np.arange(digit_rows) + digit_rows * digit for digit in pair])
            rows = generator(seed, "split", client).choice(pool, POOL)
            training.append(rows[:MNIST_TRAINING])
            test.append(rows[MNIST_TRAINING:])
        anyone = np.concatenate(training)
        leaks = [np.isin(rows, mine if own else anyone) for rows, mine in zip(test, training, strict=True)]
        shares.append(float(np.mean(leaks)))
    return shares


TABLES = {"errata": errata_recipe("lowy2021")}
