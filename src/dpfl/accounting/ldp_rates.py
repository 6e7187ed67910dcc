"""Rates of lowy2021 and the rounds with which its theorems reach them, equation by equation.

Every rate is the text inside O(.), O~(.) or Omega~(.), with constant 1 and without the logarithms that a tilde hides:
it says how a risk scales, not how large it is. L = `lipschitz` bounds the gradient of every record's loss, D = `radius`
bounds |w|, mu = `strong_convexity`, beta = `smoothness`; M = `clients_per_round` is 1/E[1/M_r] and need not be whole,
N = `clients`, n = `records` of one client, d = `features`. A number of rounds is real too: a run takes its ceiling.
All arguments are above 0, delta below 1; arrays broadcast. Every function raises ValueError naming the argument.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfl.accounting.arguments import integers, reals

Array = NDArray[np.float64]


def iid_convex_rate(
    *,
    lipschitz: ArrayLike,
    radius: ArrayLike,
    clients_per_round: ArrayLike,
    records: ArrayLike,
    features: ArrayLike,
    epsilon: ArrayLike,
    delta: ArrayLike,
) -> Array:
    """Return L D / sqrt(M) (1/sqrt(n) + sqrt(d ln(2/delta)) / (epsilon n)), of excess population risk.

    Source: lowy2021 (4), Theorem 2.1 for convex losses and clients of one law.
    """
    scale, m, n, d = _scale(lipschitz, radius), *_sizes(clients_per_round, records, features)
    budget, logarithm = _budget(epsilon, delta)
    return scale / np.sqrt(m) * (1 / np.sqrt(n) + np.sqrt(d * logarithm) / (budget * n))


def iid_strongly_convex_rate(
    *,
    lipschitz: ArrayLike,
    strong_convexity: ArrayLike,
    clients_per_round: ArrayLike,
    records: ArrayLike,
    features: ArrayLike,
    epsilon: ArrayLike,
    delta: ArrayLike,
) -> Array:
    """Return L^2 / (mu M) (1/n + d ln(2/delta) / (epsilon n)^2), of excess population risk.

    Source: lowy2021 (5), Theorem 2.1 for strongly convex losses and clients of one law.
    """
    scale, m, n, d = _square(lipschitz, strong_convexity), *_sizes(clients_per_round, records, features)
    budget, logarithm = _budget(epsilon, delta)
    return scale / m * (1 / n + d * logarithm / (budget * n) ** 2)


def one_pass_convex_rate(
    *,
    lipschitz: ArrayLike,
    radius: ArrayLike,
    smoothness: ArrayLike,
    clients_per_round: ArrayLike,
    records: ArrayLike,
    features: ArrayLike,
    epsilon: ArrayLike,
    delta: ArrayLike,
) -> Array:
    """Return beta D^2 / n^2 + L D sqrt(d ln(1/delta)) / (epsilon sqrt(M n)), of excess population risk.

    `smoothness` may be 0 here. Source: lowy2021 (6), Theorem 2.2 for convex losses and clients of any laws, one pass of
    R = n rounds.
    """
    scale, m, n, d = _scale(lipschitz, radius), *_sizes(clients_per_round, records, features)
    budget, logarithm = _budget(epsilon, delta, 1.0)
    curved = reals("smoothness", smoothness, at_least=0) * _above("radius", radius) ** 2
    return curved / n**2 + scale * np.sqrt(d * logarithm) / (budget * np.sqrt(m * n))


def one_pass_strongly_convex_rate(
    *,
    lipschitz: ArrayLike,
    radius: ArrayLike,
    smoothness: ArrayLike,
    strong_convexity: ArrayLike,
    clients_per_round: ArrayLike,
    records: ArrayLike,
    features: ArrayLike,
    epsilon: ArrayLike,
    delta: ArrayLike,
) -> Array:
    """Return L D exp(-n sqrt(mu/beta)) + L^2 d ln(1/delta) / (mu epsilon^2 M n), of excess population risk.

    Source: lowy2021 (7), Theorem 2.2 for strongly convex losses and clients of any laws, one pass of R = n rounds.
    """
    m, n, d = _sizes(clients_per_round, records, features)
    budget, logarithm = _budget(epsilon, delta, 1.0)
    beta, mu = _curvatures(smoothness, strong_convexity)
    start = _scale(lipschitz, radius) * np.exp(-np.sqrt(mu / beta) * n)
    return start + _square(lipschitz, strong_convexity) * d * logarithm / (budget**2 * m * n)


def erm_convex_rate(
    *,
    lipschitz: ArrayLike,
    radius: ArrayLike,
    clients_per_round: ArrayLike,
    records: ArrayLike,
    features: ArrayLike,
    epsilon: ArrayLike,
    delta: ArrayLike,
) -> Array:
    """Return L D sqrt(d ln(2/delta)) / (epsilon n sqrt(M)), of excess empirical risk.

    Source: lowy2021 (8), Theorem 2.3 for convex losses, by Algorithm 2.
    """
    scale, m, n, d = _scale(lipschitz, radius), *_sizes(clients_per_round, records, features)
    budget, logarithm = _budget(epsilon, delta)
    return scale * np.sqrt(d * logarithm) / (budget * n * np.sqrt(m))


def erm_strongly_convex_rate(
    *,
    lipschitz: ArrayLike,
    strong_convexity: ArrayLike,
    clients_per_round: ArrayLike,
    records: ArrayLike,
    features: ArrayLike,
    epsilon: ArrayLike,
    delta: ArrayLike,
) -> Array:
    """Return L^2 d ln(2/delta) / (mu epsilon^2 n^2 M), of excess empirical risk.

    Source: lowy2021 (9), Theorem 2.3 for strongly convex losses, by Algorithm 2.
    """
    scale, m, n, d = _square(lipschitz, strong_convexity), *_sizes(clients_per_round, records, features)
    budget, logarithm = _budget(epsilon, delta)
    return scale * d * logarithm / ((budget * n) ** 2 * m)


def lower_bound_convex(
    *,
    lipschitz: ArrayLike,
    radius: ArrayLike,
    clients: ArrayLike,
    records: ArrayLike,
    features: ArrayLike,
    epsilon: ArrayLike,
) -> Array:
    """Return L D (1/sqrt(N n) + min{1, sqrt(d) / (epsilon n sqrt(N))}), which excess population risk cannot go below.

    Up to constants and logarithms, for the worst convex problem, where `lower_bound_applies`.
    Source: lowy2021 (10), Theorem 3.1.
    """
    scale, m, n, d = _scale(lipschitz, radius), *_sizes(clients, records, features, "clients")
    private = np.sqrt(d) / (_above("epsilon", epsilon) * n * np.sqrt(m))
    return scale * (1 / np.sqrt(m * n) + np.minimum(1.0, private))


def lower_bound_strongly_convex(
    *,
    lipschitz: ArrayLike,
    radius: ArrayLike,
    strong_convexity: ArrayLike,
    clients: ArrayLike,
    records: ArrayLike,
    features: ArrayLike,
    epsilon: ArrayLike,
) -> Array:
    """Return L^2 / (mu n N) + L D min{1, d / (epsilon^2 n^2 N)}, which excess population risk cannot go below.

    Up to constants and logarithms, for the worst strongly convex problem, where `lower_bound_applies`.
    Source: lowy2021 (11), Theorem 3.1.
    """
    m, n, d = _sizes(clients, records, features, "clients")
    private = np.minimum(1.0, d / ((_above("epsilon", epsilon) * n) ** 2 * m))
    return _square(lipschitz, strong_convexity) / (n * m) + _scale(lipschitz, radius) * private


def lower_bound_applies(
    *, clients: ArrayLike, records: ArrayLike, epsilon: ArrayLike, round_epsilon: ArrayLike, round_delta: ArrayLike
) -> NDArray[np.bool_]:
    """Return where Theorem 3.1 speaks: epsilon <= sqrt(N), epsilon_r <= 1/n and N >= 16 ln(2/(delta_r n)).

    epsilon_r = `round_epsilon` and delta_r = `round_delta` are what one client's message of a round spends by itself;
    delta_r is the least of all rounds. Left to the caller is sum_r delta_r = o(1/(n N)^2), which no number settles.
    Source: lowy2021, Theorem 3.1.
    """
    m, n, _ = _sizes(clients, records, 1, "clients")
    each = reals("round_delta", round_delta, above=0, below=1)
    enough = m >= 16 * np.log(2 / (each * n))
    return enough & (_above("round_epsilon", round_epsilon) * n <= 1) & (_above("epsilon", epsilon) <= np.sqrt(m))


def shuffled_convex_rate(
    *,
    lipschitz: ArrayLike,
    radius: ArrayLike,
    clients: ArrayLike,
    clients_per_round: ArrayLike,
    records: ArrayLike,
    features: ArrayLike,
    epsilon: ArrayLike,
    delta: ArrayLike,
) -> Array:
    """Return L D (1/sqrt(n M) + sqrt(d ln(1/delta)) / (epsilon n N)), of excess population risk.

    Source: lowy2021 (12), Theorem 4.1 for convex losses, clients of one law and a trusted shuffler.
    """
    scale, (everyone, m) = _scale(lipschitz, radius), _federation(clients, clients_per_round)
    _, n, d = _sizes(m, records, features)
    budget, logarithm = _budget(epsilon, delta, 1.0)
    return scale * (1 / np.sqrt(n * m) + np.sqrt(d * logarithm) / (budget * n * everyone))


def shuffled_strongly_convex_rate(
    *,
    lipschitz: ArrayLike,
    strong_convexity: ArrayLike,
    clients: ArrayLike,
    clients_per_round: ArrayLike,
    records: ArrayLike,
    features: ArrayLike,
    epsilon: ArrayLike,
    delta: ArrayLike,
) -> Array:
    """Return L^2/mu (1/(n M) + d ln(1/delta) / (epsilon n N)^2), of excess population risk.

    Source: lowy2021 (13), Theorem 4.1 for strongly convex losses, clients of one law and a trusted shuffler.
    """
    scale, (everyone, m) = _square(lipschitz, strong_convexity), _federation(clients, clients_per_round)
    _, n, d = _sizes(m, records, features)
    budget, logarithm = _budget(epsilon, delta, 1.0)
    return scale * (1 / (n * m) + d * logarithm / (budget * n * everyone) ** 2)


def iid_convex_rounds(
    *, clients_per_round: ArrayLike, records: ArrayLike, features: ArrayLike, epsilon: ArrayLike
) -> Array:
    """Return R = M min{n, epsilon^2 n^2 / d}, with which Algorithm 1 reaches `iid_convex_rate`.

    Source: lowy2021, Theorem 2.1, part 1.
    """
    m, n, d = _sizes(clients_per_round, records, features)
    return m * np.minimum(n, (_above("epsilon", epsilon) * n) ** 2 / d)


def iid_strongly_convex_rounds(
    *,
    lipschitz: ArrayLike,
    radius: ArrayLike,
    strong_convexity: ArrayLike,
    clients_per_round: ArrayLike,
    records: ArrayLike,
    features: ArrayLike,
    epsilon: ArrayLike,
) -> Array:
    """Return R = M min{n, epsilon^2 n^2 / d} ln(D^2 mu^2 M^2 epsilon^2 n^3 / (d L^2)), for `iid_strongly_convex_rate`.

    The logarithm is meant for arguments above e; below 1 it is negative and the theorem gives no number of rounds.
    Source: lowy2021, Theorem 2.1, part 2.
    """
    m, n, d = _sizes(clients_per_round, records, features)
    budget = _above("epsilon", epsilon)
    pull = _above("radius", radius) * _above("strong_convexity", strong_convexity) / _above("lipschitz", lipschitz)
    rounds = iid_convex_rounds(clients_per_round=m, records=n, features=d, epsilon=budget)
    return rounds * np.log((pull * m * budget) ** 2 * n**3 / d)


def erm_convex_rounds(
    *,
    clients: ArrayLike,
    clients_per_round: ArrayLike,
    records: ArrayLike,
    features: ArrayLike,
    epsilon: ArrayLike,
    batch_size: ArrayLike,
) -> Array:
    """Return R = max(sqrt(M) epsilon n / sqrt(d), epsilon^2 n^2 / d (1/K if M = N, else 1)), for `erm_convex_rate`.

    K = `batch_size` records of a client and round. Source: lowy2021, Theorem 2.3, part 1.
    """
    accelerated, drawn = _erm_rounds(clients, clients_per_round, records, features, epsilon, batch_size)
    return np.maximum(accelerated, drawn)


def erm_strongly_convex_rounds(
    *,
    lipschitz: ArrayLike,
    radius: ArrayLike,
    strong_convexity: ArrayLike,
    clients: ArrayLike,
    clients_per_round: ArrayLike,
    records: ArrayLike,
    features: ArrayLike,
    epsilon: ArrayLike,
    batch_size: ArrayLike,
) -> Array:
    """Return `erm_convex_rounds` with its first term times ln(D mu M epsilon^2 n^2 / (L d)), for
    `erm_strongly_convex_rate`.

    Source: lowy2021, Theorem 2.3, part 2.
    """
    accelerated, drawn = _erm_rounds(clients, clients_per_round, records, features, epsilon, batch_size)
    m, n, d = _sizes(clients_per_round, records, features)
    pull = _above("radius", radius) * _above("strong_convexity", strong_convexity) / _above("lipschitz", lipschitz)
    return np.maximum(accelerated * np.log(pull * m * (_above("epsilon", epsilon) * n) ** 2 / d), drawn)


def shuffled_convex_rounds(
    *,
    lipschitz: ArrayLike,
    radius: ArrayLike,
    smoothness: ArrayLike,
    clients: ArrayLike,
    clients_per_round: ArrayLike,
    records: ArrayLike,
    features: ArrayLike,
    epsilon: ArrayLike,
) -> Array:
    """Return the largest of (n N epsilon)^2 / M, N/M, min{n, (epsilon n N)^2 / (d M)} and
    beta D / L min{sqrt(n M), epsilon n N / sqrt(d)}, for `shuffled_convex_rate`; `smoothness` may be 0 here.

    Source: lowy2021, Theorem 4.1, part 1.
    """
    plain, signal, m, n, d = _shuffled_rounds(clients, clients_per_round, records, features, epsilon)
    curved = reals("smoothness", smoothness, at_least=0) * _above("radius", radius) / _above("lipschitz", lipschitz)
    return np.maximum(plain, curved * np.minimum(np.sqrt(n * m), signal / np.sqrt(d)))


def shuffled_strongly_convex_rounds(
    *,
    lipschitz: ArrayLike,
    radius: ArrayLike,
    smoothness: ArrayLike,
    strong_convexity: ArrayLike,
    clients: ArrayLike,
    clients_per_round: ArrayLike,
    records: ArrayLike,
    features: ArrayLike,
    epsilon: ArrayLike,
) -> Array:
    """Return the largest of (n N epsilon)^2 / M, N/M, min{n, (epsilon n N)^2 / (d M)} and
    8 beta/mu ln(beta D^2 mu (epsilon n N)^2 / (d L^2)), for `shuffled_strongly_convex_rate`.

    Source: lowy2021, Theorem 4.1, part 2.
    """
    plain, signal, _, _, d = _shuffled_rounds(clients, clients_per_round, records, features, epsilon)
    beta, mu = _curvatures(smoothness, strong_convexity)
    start = beta * mu * (_above("radius", radius) * signal / _above("lipschitz", lipschitz)) ** 2 / d
    return np.maximum(plain, 8 * beta / mu * np.log(start))


def _above(name: str, value: ArrayLike) -> Array:
    """Return an argument that is above 0."""
    return reals(name, value, above=0)


def _scale(lipschitz: ArrayLike, radius: ArrayLike) -> Array:
    """Return L D, the scale of a convex problem's risk."""
    return _above("lipschitz", lipschitz) * _above("radius", radius)


def _square(lipschitz: ArrayLike, strong_convexity: ArrayLike) -> Array:
    """Return L^2/mu, the scale of a strongly convex problem's risk."""
    return _above("lipschitz", lipschitz) ** 2 / _above("strong_convexity", strong_convexity)


def _curvatures(smoothness: ArrayLike, strong_convexity: ArrayLike) -> tuple[Array, Array]:
    """Return beta and mu, which is at most beta."""
    beta, mu = _above("smoothness", smoothness), _above("strong_convexity", strong_convexity)
    if np.any(mu > beta):
        raise ValueError("strong_convexity must be at most smoothness")
    return beta, mu


def _budget(epsilon: ArrayLike, delta: ArrayLike, numerator: float = 2.0) -> tuple[Array, Array]:
    """Return epsilon, and ln(numerator/delta)."""
    return _above("epsilon", epsilon), np.log(numerator / reals("delta", delta, above=0, below=1))


def _sizes(
    clients: ArrayLike, records: ArrayLike, features: ArrayLike, name: str = "clients_per_round"
) -> tuple[Array, Array, Array]:
    """Return M (or N, by its name), n and d, each in its range."""
    read = reals if name == "clients_per_round" else integers
    n, d = integers("records", records, at_least=1), integers("features", features, at_least=1)
    return read(name, clients, at_least=1), n, d


def _federation(clients: ArrayLike, clients_per_round: ArrayLike) -> tuple[Array, Array]:
    """Return N and M, which is at most N."""
    n, m = integers("clients", clients, at_least=1), reals("clients_per_round", clients_per_round, at_least=1)
    if np.any(m > n):
        raise ValueError("clients_per_round must be at most clients")
    return n, m


def _erm_rounds(
    clients: ArrayLike,
    clients_per_round: ArrayLike,
    records: ArrayLike,
    features: ArrayLike,
    epsilon: ArrayLike,
    batch_size: ArrayLike,
) -> tuple[Array, Array]:
    """Return the two terms of Theorem 2.3's R, without the logarithm of its second part."""
    everyone, m = _federation(clients, clients_per_round)
    _, n, d = _sizes(m, records, features)
    batch, signal = integers("batch_size", batch_size, at_least=1), _above("epsilon", epsilon) * n
    if np.any(batch > n):
        raise ValueError("batch_size must be at most records")
    return np.sqrt(m / d) * signal, signal**2 / d * np.where(m == everyone, 1 / batch, 1.0)


def _shuffled_rounds(
    clients: ArrayLike, clients_per_round: ArrayLike, records: ArrayLike, features: ArrayLike, epsilon: ArrayLike
) -> tuple[Array, Array, Array, Array, Array]:
    """Return the largest of the three terms that both of Theorem 4.1's R have, epsilon n N, M, n and d."""
    everyone, m = _federation(clients, clients_per_round)
    _, n, d = _sizes(m, records, features)
    signal = _above("epsilon", epsilon) * n * everyone
    largest = np.maximum(np.maximum(signal**2, everyone) / m, np.minimum(n, signal**2 / (d * m)))
    return largest, signal, m, n, d
