"""What is printed against what is right, each with a value found by another route.

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

from dpfl.accounting import dpsgd, isrl_dp
from dpfl.accounting.samplers import Sampling
from dpfl.accounting.shuffling.published_noise import least_reports
from dpfl.catalog import load
from dpfl.randomness import generator
from dpfl.reporting.evidence import Erratum

BLOCK, TRAINING = 446, 356
DELTA = 1 / TRAINING**2
ADVANCED_LARGEST, MOMENTS_LARGEST = 10.0, 3.0  # the largest epsilon of an experiment decides its batch size
MNIST_CLIENTS, CLIENTS_DELTA = 25, 1e-5
POOL, MNIST_TRAINING, DIGIT_CLIENTS = (
    1548,
    1238,
    5,
)  # rows of a pair of digits, a client's training rows, a digit's pairs
MIXTURE = "dp_accounting's mixture of Gaussians"


def rounds() -> int:
    """Return R of the experiments."""
    return load("lowy2021").settings["rounds"]


def batches() -> tuple[int, int]:
    """Return the scripts' K for the noise of advanced composition and for the later script's."""
    block = {"rounds": rounds(), "records": BLOCK}
    advanced = isrl_dp.least_batch_advanced(epsilon=ADVANCED_LARGEST, delta=1 / BLOCK**2, **block)
    return math.floor(advanced), math.floor(isrl_dp.least_batch_moments(epsilon=MOMENTS_LARGEST, **block))


def deviation(epsilon: float, *, advanced: bool, steps: int) -> float:
    """Return sigma / L of Theorem 2.1 (`advanced`) or of the later script for `steps` noisy steps."""
    variance = isrl_dp.advanced_composition_variance if advanced else isrl_dp.moments_variance
    return math.sqrt(variance(epsilon=epsilon, delta=DELTA, lipschitz=1.0, rounds=steps, records=TRAINING))


def gaussian_epsilon(mu: float) -> float:
    """Return the epsilon at DELTA of two unit Gaussians mu apart, to 30 digits, from the definition of theta."""
    with mpmath.workdps(30):

        def gap(epsilon: mpmath.mpf) -> mpmath.mpf:
            far = mpmath.exp(epsilon) * mpmath.ncdf(-epsilon / mu - mu / 2)
            return mpmath.ncdf(mu / 2 - epsilon / mu) - far - DELTA

        return float(mpmath.findroot(gap, (0, 20), solver="bisect", tol=1e-24, maxsteps=200))


def mixture_epsilon(sigma: float, batch: int, *, interval: float) -> float:
    """Return the epsilon of sum_j Bin(j; K, 1/n) N(2j/K, sigma^2) against N(0, sigma^2) by dp_accounting."""
    times = np.arange(20)
    weights = binom.pmf(times, batch, 1 / TRAINING)
    one = privacy_loss_distribution.from_mixture_gaussian_mechanism(
        sigma * batch, 2.0 * times, weights / weights.sum(), value_discretization_interval=interval
    )
    return float(one.self_compose(rounds()).get_epsilon_for_delta(DELTA))


def theorem_full(epsilon: float) -> Erratum:
    """Theorem 2.1's noise on full batches: far more than enough."""
    sigma = deviation(epsilon, advanced=True, steps=rounds())
    size = {"noise_multiplier": sigma * TRAINING, "batch_size": TRAINING, "records": TRAINING}
    return Erratum(
        erratum=1,
        printed_form="Theorem 2.1: 256 L^2 R ln(2.5R/delta) ln(2/delta)/(n epsilon)^2 for epsilon",
        right_form="sufficient; spends far less",
        case=f"epsilon spent, full batches, n = {TRAINING}, R = {rounds()}, epsilon = {epsilon:g}",
        printed=epsilon,
        right=float(isrl_dp.epsilon(**size, steps=rounds(), delta=DELTA, sampling=Sampling.FULL)),
        independent=gaussian_epsilon(2 * math.sqrt(rounds()) / (sigma * TRAINING)),
        source="mpmath, 30 digits",
    )


def theorem_sampled(epsilon: float, interval: float) -> Erratum:
    """Theorem 2.1's noise on batches with replacement: what a known data set spends, and the proven most."""
    batch, _ = batches()
    sigma = deviation(epsilon, advanced=True, steps=rounds())
    size = {"noise_multiplier": sigma * batch, "batch_size": batch, "records": TRAINING}
    return Erratum(
        erratum=1,
        printed_form="Theorem 2.1: its noise for epsilon",
        right_form="sufficient; spends far less (upper bound)",
        case=f"epsilon spent, K = {batch} drawn with replacement, n = {TRAINING}, epsilon = {epsilon:g}",
        printed=epsilon,
        right=float(isrl_dp.epsilon(**size, steps=rounds(), delta=DELTA, sampling=Sampling.WITH_REPLACEMENT)),
        independent=mixture_epsilon(sigma, batch, interval=interval),
        source=f"what one data set spends, by {MIXTURE}: at most the right value",
    )


def later_script() -> Erratum:
    """The later script's noise at its own K: one data set already spends more than was asked for."""
    _, batch = batches()
    sigma = deviation(MOMENTS_LARGEST, advanced=False, steps=rounds())
    known = isrl_dp.with_replacement_known_epsilon(
        noise_multiplier=sigma * batch, batch_size=batch, records=TRAINING, steps=rounds(), delta=DELTA
    )
    return Erratum(
        erratum=2,
        printed_form="later script: 8 L^2 R ln(1/delta)/(n epsilon)^2 spends epsilon",
        right_form="spends more, on a known data set (lower bound)",
        case=f"epsilon spent, K = {batch} drawn with replacement, n = {TRAINING}, epsilon = {MOMENTS_LARGEST:g}",
        printed=MOMENTS_LARGEST,
        right=known,
        independent=mixture_epsilon(sigma, batch, interval=1e-3),
        source=MIXTURE,
    )


def later_script_locally() -> Erratum:
    """The later script's noise for local SGD, whose batches are single records."""
    steps = batches()[1] * rounds()
    sigma = deviation(MOMENTS_LARGEST, advanced=False, steps=steps)
    known = isrl_dp.with_replacement_known_epsilon(
        noise_multiplier=sigma, batch_size=1, records=TRAINING, steps=steps, delta=DELTA
    )
    return Erratum(
        erratum=2,
        printed_form="later script for local SGD: 8 L^2 K R ln(1/delta)/(n epsilon)^2 spends epsilon",
        right_form="spends forty times as much",
        case=f"epsilon spent, K R = {steps} single records, n = {TRAINING}, epsilon = {MOMENTS_LARGEST:g}",
        printed=MOMENTS_LARGEST,
        right=known,
        independent=float(
            dpsgd.epsilon(noise_multiplier=sigma / 2, sample_rate=1 / TRAINING, steps=steps, delta=DELTA)
        ),
        source="dp_accounting's subsampled Gaussian",
    )


def later_script_range() -> Erratum:
    """Up to which epsilon the later script's noise is meant for local SGD."""
    steps = batches()[1] * rounds()

    def batch_less_one(epsilon: float) -> float:
        return float(isrl_dp.least_batch_moments(epsilon=epsilon, rounds=steps, records=TRAINING)) - 1

    return Erratum(
        erratum=2,
        printed_form="later script for local SGD, used at this epsilon",
        right_form="meant for epsilon up to 4 K R/n^2",
        case=f"largest epsilon, K R = {steps} single records, n = {TRAINING}",
        printed=MOMENTS_LARGEST,
        right=float(isrl_dp.largest_moments_epsilon(batch_size=1, steps=steps, records=TRAINING)),
        independent=float(brentq(batch_less_one, 1e-6, MOMENTS_LARGEST, xtol=1e-12)),
        source="where the script's least K is 1",
    )


def clipped_mean(epsilon: float, *, advanced: bool) -> Erratum:
    """Clipping the averaged gradient: a record that is drawn at all may turn the mean from -L to L."""
    batch = batches()[0 if advanced else 1]
    sigma = deviation(epsilon, advanced=advanced, steps=rounds())
    noise = "Theorem 2.1" if advanced else "the later script"
    return Erratum(
        erratum=3,
        printed_form="scripts: the batch's mean gradient clipped to L spends epsilon",
        right_form="clip every record; the mean of one batch moves by 2L",
        case=f"epsilon spent, noise of {noise}, K = {batch}, n = {TRAINING}, epsilon = {epsilon:g}",
        printed=epsilon,
        right=isrl_dp.clipped_mean_epsilon(
            sigma_over_lipschitz=sigma, batch_size=batch, records=TRAINING, steps=rounds(), delta=DELTA
        ),
        independent=turned_mean_epsilon(2 / sigma, batch),
        source="binomial sum of normal losses, for others that all pull the other way",
    )


def turned_mean_epsilon(move: float, batch: int) -> float:
    """Return epsilon where R rounds each show N(move, 1) with probability 1 - (1 - 1/n)^K, else N(0, 1).

    For a `move` of many deviations it is plain in which h rounds the record was drawn, and the loss is normal with
    mean h (ln q + move^2/2) + (R - h) ln(1 - q) and deviation move sqrt(h).
    """
    rate = 1 - (1 - 1 / TRAINING) ** batch
    drawn = np.arange(1, rounds() + 1)
    mean = drawn * (math.log(rate) + move**2 / 2) + (rounds() - drawn) * math.log(1 - rate)
    spread = move * np.sqrt(drawn)

    def excess(epsilon: float) -> float:
        gap = (mean - epsilon) / spread
        lost = norm.cdf(gap) - np.exp(spread**2 / 2 - gap * spread + norm.logcdf(gap - spread))
        return float(binom.pmf(drawn, rounds(), rate) @ lost) - DELTA

    return float(brentq(excess, 1.0, mean[-1] + 10 * spread[-1]))


def shuffled_clients() -> Erratum:
    """Theorem 4.1's condition on the clients a round, met by no experiment."""
    with mpmath.workdps(30):
        floor = 16 * mpmath.log(18 * rounds() * mpmath.mpf(MNIST_CLIENTS) / mpmath.mpf(str(CLIENTS_DELTA)))
    federation = {"clients_per_round": MNIST_CLIENTS, "clients": MNIST_CLIENTS, "rounds": rounds()}
    return Erratum(
        erratum=4,
        printed_form="Theorem 4.1 for the experiments' clients",
        right_form="needs M >= 16 ln(18 R M^2/(N delta))",
        case=f"clients a round, M = N = {MNIST_CLIENTS}, R = {rounds()}, delta = {CLIENTS_DELTA:g}",
        printed=MNIST_CLIENTS,
        right=float(least_reports(**federation, delta=CLIENTS_DELTA)),
        independent=float(floor),
        source="mpmath, 30 digits",
    )


def fewest_clients() -> Erratum:
    """The fewest clients that meet Theorem 4.1's condition, all taking part."""
    m = np.arange(1, 2000)
    meets = m >= least_reports(clients_per_round=m, clients=m, rounds=rounds(), delta=CLIENTS_DELTA)
    with mpmath.workdps(30):
        solution = -16 * mpmath.lambertw(-mpmath.mpf(str(CLIENTS_DELTA)) / (16 * 18 * rounds()), -1).real
    return Erratum(
        erratum=4,
        printed_form="Theorem 4.1 for the experiments' clients",
        right_form="smallest M = N that meets its condition",
        case=f"clients a round, R = {rounds()}, delta = {CLIENTS_DELTA:g}",
        printed=MNIST_CLIENTS,
        right=float(m[meets][0]),
        independent=float(mpmath.ceil(solution)),
        source="Lambert's W, rounded up",
    )


def group_delta(epsilon: float) -> Erratum:
    """The delta of a whole client's n records; one mechanism with two outcomes exceeds the print."""
    n, delta = 3, 1e-6
    answers = answer_laws(n, epsilon, delta)
    return Erratum(
        erratum=5,
        printed_form="n epsilon^((n-1) epsilon) delta",
        right_form="n e^((n-1) epsilon) delta",
        case=f"delta at n epsilon, n = {n}, epsilon = {epsilon:g}, delta = {delta:g}",
        printed=n * epsilon ** ((n - 1) * epsilon) * delta,
        right=n * math.exp((n - 1) * epsilon) * delta,
        independent=float(np.maximum(answers[-1] - math.exp(n * epsilon) * answers[0], 0).sum()),
        source="a mechanism that is (epsilon, delta)-DP: above the printed value, below the right one",
    )


def answer_laws(n: int, epsilon: float, delta: float) -> np.ndarray:
    """Return the laws of a yes-or-no mechanism on 0 to n changed records, shape (n + 1, 2).

    It says yes with p_0 = 0 and p_{i+1} = e^epsilon p_i + delta, as often as (epsilon, delta)-DP allows.
    """
    yes = [0.0]
    for _ in range(n):
        yes.append(math.exp(epsilon) * yes[-1] + delta)
    return np.array([[p, 1 - p] for p in yes])


def leaked_rows(clients: int) -> Erratum:
    """MNIST: rows drawn with replacement put test rows into the training sets of `clients` clients of the digit."""
    whose = "the same client's training rows" if clients == 1 else "some client's training rows"
    return Erratum(
        erratum=6,
        printed_form="MNIST protocol: test rows are held out",
        right_form=f"1 - (1 - 1/{POOL})^{clients * MNIST_TRAINING} of them are also drawn for training",
        case=f"share of the test rows among {whose}, {MNIST_CLIENTS} clients",
        printed=0.0,
        right=-math.expm1(clients * MNIST_TRAINING * math.log1p(-1 / POOL)),
        independent=simulated_leak(own=clients == 1),
        source="three draws of the protocol",
    )


def simulated_leak(*, own: bool) -> float:
    """Draw the clients' rows three times; return the share of test rows in the `own` or in any training set."""
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
        seen = [np.isin(rows, mine if own else anyone) for rows, mine in zip(test, training, strict=True)]
        shares.append(np.mean(seen))
    return float(np.mean(shares))


def all_errata() -> list[Erratum]:
    """Return every erratum of this paper."""
    return [
        *(theorem_full(epsilon) for epsilon in (0.125, 1.0, 3.0, 10.0)),
        *(theorem_sampled(epsilon, interval) for epsilon, interval in ((1.0, 2e-5), (10.0, 2e-4))),
        later_script(),
        later_script_locally(),
        later_script_range(),
        clipped_mean(1.0, advanced=False),
        clipped_mean(ADVANCED_LARGEST, advanced=True),
        shuffled_clients(),
        fewest_clients(),
        *(group_delta(epsilon) for epsilon in (0.5, 1.0, 2.0)),
        *(leaked_rows(clients) for clients in (1, DIGIT_CLIENTS)),
    ]
