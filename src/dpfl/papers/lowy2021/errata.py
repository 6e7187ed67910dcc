"""Numbers of errata.yaml: what is printed, what is right, and the latter by another route.

The client is one of three on the insurance data: 446 records, of which 356 train. Its batch sizes K are those of the
authors' scripts, which count the records before the split; the smaller batches that 356 records would give spend more.
"""

from __future__ import annotations

import math

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

BLOCK, TRAINING = 446, 356
DELTA = 1 / TRAINING**2
ADVANCED_LARGEST, MOMENTS_LARGEST = 10.0, 3.0  # the largest epsilon of an experiment decides its batch size
MNIST_CLIENTS, DIGIT_CLIENTS = 25, 5  # clients of the federation, and of one digit
POOL, MNIST_TRAINING = 1548, 1238  # rows of a pair of digits, a client's training rows


def rounds() -> int:
    """Return R of the experiments."""
    return load("lowy2021").settings["rounds"]


def batches() -> tuple[int, int]:
    """Return the scripts' K for the noise of advanced composition and for the later script's."""
    block = {"rounds": rounds(), "records": BLOCK}
    advanced = local_privacy.least_batch_advanced(epsilon=ADVANCED_LARGEST, delta=1 / BLOCK**2, **block)
    return math.floor(advanced), math.floor(local_privacy.least_batch_moments(epsilon=MOMENTS_LARGEST, **block))


def deviation(epsilon: float, *, advanced: bool, steps: int) -> float:
    """Return sigma / L of Theorem 2.1 (`advanced`) or of the later script for `steps` noisy steps."""
    variance = local_privacy.advanced_composition_variance if advanced else local_privacy.moments_variance
    return math.sqrt(variance(epsilon=epsilon, delta=DELTA, lipschitz=1.0, rounds=steps, records=TRAINING))


def gaussian_epsilon(mu: float) -> float:
    """Return the epsilon at DELTA of two unit Gaussians mu apart, to 30 digits, from the definition of theta."""
    with mpmath.workdps(30):

        def gap(epsilon: mpmath.mpf) -> mpmath.mpf:
            far = mpmath.exp(epsilon) * mpmath.ncdf(-epsilon / mu - mu / 2)
            return mpmath.ncdf(mu / 2 - epsilon / mu) - far - DELTA

        return float(mpmath.findroot(gap, (0, 20), solver="bisect", tol=1e-24, maxsteps=200))


def mixture_epsilon(sigma: float, batch: int, *, interval: float, steps: int | None = None) -> float:
    """Return the epsilon of sum_j Bin(j; K, 1/n) N(2j/K, sigma^2) against N(0, sigma^2) by dp_accounting."""
    times = np.arange(20)
    weights = binom.pmf(times, batch, 1 / TRAINING)
    one = privacy_loss_distribution.from_mixture_gaussian_mechanism(
        sigma * batch, 2.0 * times, weights / weights.sum(), value_discretization_interval=interval
    )
    return float(one.self_compose(steps or rounds()).get_epsilon_for_delta(DELTA))


def theorem_full(epsilon: float) -> Numbers:
    """Compare what Theorem 2.1's noise spends on full batches with what it is for."""
    sigma = deviation(epsilon, advanced=True, steps=rounds())
    size = {"noise_multiplier": sigma * TRAINING, "batch_size": TRAINING, "records": TRAINING}
    spent = local_privacy.epsilon(**size, steps=rounds(), delta=DELTA, sampling=Sampling.FULL)
    exact = gaussian_epsilon(2 * math.sqrt(rounds()) / (sigma * TRAINING))
    return Numbers(epsilon, spent, exact, {"records": TRAINING, "rounds": rounds()})


def theorem_sampled(epsilon: float, interval: float) -> Numbers:
    """Compare what Theorem 2.1's noise spends on batches with replacement: the proven most, and a known data set."""
    batch, _ = batches()
    sigma = deviation(epsilon, advanced=True, steps=rounds())
    size = {"noise_multiplier": sigma * batch, "batch_size": batch, "records": TRAINING}
    most = local_privacy.epsilon(**size, steps=rounds(), delta=DELTA, sampling=Sampling.WITH_REPLACEMENT)
    known = mixture_epsilon(sigma, batch, interval=interval)
    return Numbers(epsilon, most, known, {"records": TRAINING, "batch": batch})


def later_script(epsilon: float) -> Numbers:
    """Compare what the later script's noise is for with what one data set spends at the script's own K."""
    _, batch = batches()
    sigma = deviation(epsilon, advanced=False, steps=rounds())
    known = local_privacy.with_replacement_known_epsilon(
        noise_multiplier=sigma * batch, batch_size=batch, records=TRAINING, steps=rounds(), delta=DELTA
    )
    independent = mixture_epsilon(sigma, batch, interval=1e-2)
    return Numbers(epsilon, known, independent, {"records": TRAINING, "batch": batch})


def later_script_locally(epsilon: float) -> Numbers:
    """Compare what the later script's noise is for with what local SGD, on single records, spends."""
    steps = batches()[1] * rounds()
    sigma = deviation(epsilon, advanced=False, steps=steps)
    run = {"steps": steps, "delta": DELTA}
    known = local_privacy.with_replacement_known_epsilon(noise_multiplier=sigma, batch_size=1, records=TRAINING, **run)
    subsampled = mixture_epsilon(sigma, 1, interval=1e-2, steps=steps)
    return Numbers(epsilon, known, subsampled, {"records": TRAINING, "steps": steps})


def later_script_range(epsilon: float) -> Numbers:
    """Compare the epsilon of local SGD with the largest that the later script's noise is meant for."""
    steps = batches()[1] * rounds()

    def batch_less_one(budget: float) -> float:
        return float(local_privacy.least_batch_moments(epsilon=budget, rounds=steps, records=TRAINING)) - 1

    largest = local_privacy.largest_moments_epsilon(batch_size=1, steps=steps, records=TRAINING)
    root = brentq(batch_less_one, 1e-6, epsilon, xtol=1e-12)
    return Numbers(epsilon, largest, root, {"records": TRAINING, "steps": steps})


def clipped_mean(epsilon: float, noise: str) -> Numbers:
    """Compare what the scripts ask for with what their clipped means spend."""
    advanced = noise == "Theorem 2.1"
    batch = batches()[0 if advanced else 1]
    sigma = deviation(epsilon, advanced=advanced, steps=rounds())
    most = local_privacy.clipped_mean_epsilon(
        sigma_over_lipschitz=sigma, batch_size=batch, records=TRAINING, steps=rounds(), delta=DELTA
    )
    return Numbers(epsilon, most, turned_mean_epsilon(2 / sigma, batch), {"records": TRAINING, "batch": batch})


def turned_mean_epsilon(move: float, batch: int) -> float:
    """Return epsilon where R rounds each show N(move, 1) with probability 1 - (1 - 1/n)^K, else N(0, 1).

    For a `move` of many deviations one can see in which h rounds the record was drawn, and the loss is normal with
    mean h (ln q + move^2/2) + (R - h) ln(1 - q) and deviation move sqrt(h).
    """
    rate = 1 - (1 - 1 / TRAINING) ** batch
    drawn = np.arange(1, rounds() + 1)
    mean = drawn * (math.log(rate) + move**2 / 2) + (rounds() - drawn) * math.log(1 - rate)
    std = move * np.sqrt(drawn)

    def excess(epsilon: float) -> float:
        gap = (mean - epsilon) / std
        lost = norm.cdf(gap) - np.exp(std**2 / 2 - gap * std + norm.logcdf(gap - std))
        return float(binom.pmf(drawn, rounds(), rate) @ lost) - DELTA

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
