"""The authors' protocol of Fig. 2 as a plain loop, written from its description and without dpfl: reference numbers.

    python tests/papers/lowy2021/authors_logic.py insurance.csv --trials 100

prints the test loss of every trial for 3 and 10 clients, by algorithm and epsilon. authors_logic.yaml of the paper's
folder has the mean and standard deviation of what it prints, with --shared and without.
"""

import argparse
import math

import numpy as np
import pandas as pd
from sklearn.preprocessing import LabelEncoder

ROUNDS, LAST, REPETITIONS, LARGEST = 35, 8, 3, 10.0
BUDGETS = (0.5, 1.0, 2.5, 5.0, 7.5, 10.0, math.inf)
CLIPS = np.array([1e2, 1e4, 1e6, 1e8, 1e32])
STEPS = {"minibatch": np.exp(np.linspace(-8, 1, 10)), "local": np.exp(np.linspace(-10, 0, 10))}
DIVERGED = 5e9


def records(path: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the constant column with the features, and the charges, of all rows in the order of the charges."""
    table = pd.read_csv(path)
    for name in ("sex", "smoker", "region"):
        table[name] = LabelEncoder().fit_transform(table[name])
    table = table.sort_values("charges", kind="stable")
    x = table[["age", "sex", "bmi", "children", "smoker", "region"]].to_numpy(float)
    return np.column_stack([np.ones(len(x)), x]), table["charges"].to_numpy(float)


def split(x: np.ndarray, y: np.ndarray, clients: int, rng: np.random.Generator) -> list[tuple[np.ndarray, ...]]:
    """Return each client's train x, train y, test x, test y; age and bmi standardised by its own training rows."""
    size = math.ceil(len(y) / clients)
    parts = []
    for start in range(0, len(y), size):
        rows = rng.permutation(np.arange(start, min(start + size, len(y))))
        held = math.ceil(0.2 * len(rows))
        train, test = rows[held:], rows[:held]
        own = x.copy()
        for column in (1, 3):
            own[:, column] = (own[:, column] - x[train, column].mean()) / x[train, column].std()
        parts.append((own[train], y[train], own[test], y[test]))
    return parts


def noise_std(algorithm: str, epsilon: float, batch: int, before: int, training: int) -> float:
    """Return the noise over the clip norm: minibatch counts training rows, local SGD those before the split."""
    if math.isinf(epsilon):
        return 0.0
    n, releases = (training, ROUNDS) if algorithm == "minibatch" else (before, ROUNDS * batch)
    delta = 1 / n**2
    logs = math.log(2.5 * releases * batch / (delta * n)) * math.log(2 / delta)
    return math.sqrt(256 * releases * logs) / (n * epsilon)


def clipped(gradients: np.ndarray, clips: np.ndarray) -> np.ndarray:
    """Return the gradients (models, features), none longer than its model's clip norm."""
    lengths = np.linalg.norm(gradients, axis=1, keepdims=True)
    return gradients * np.minimum(1.0, clips[:, None] / np.maximum(lengths, 1e-300))


def test_losses(algorithm: str, parts: list[tuple[np.ndarray, ...]], before: int, shared: bool, rng) -> np.ndarray:
    """Return for each of BUDGETS the mean test loss, over the repetitions, of the point of least mean training loss.

    All runs go side by side, (budgets, repetitions, points) flattened. Each draws its own batches and noise; `shared`:
    all points and budgets of a repetition have the same draws.
    """
    delta = 1 / before**2
    batch = math.floor(before * LARGEST / (4 * math.sqrt(2 * ROUNDS * math.log(2 / delta))))
    steps, clips = (each.ravel() for each in np.meshgrid(STEPS[algorithm], CLIPS, indexing="ij"))
    shape = (len(BUDGETS), REPETITIONS, len(steps))
    training = min(len(part[1]) for part in parts)
    levels = np.array([noise_std(algorithm, epsilon, batch, before, training) for epsilon in BUDGETS])
    std = (levels[:, None, None] * clips * np.ones(shape)).ravel()
    steps, clips = (np.broadcast_to(each, shape).ravel() for each in (steps, clips))
    repetition = np.broadcast_to(np.arange(REPETITIONS)[:, None], shape).ravel()
    features = parts[0][0].shape[1]

    def rows(count: int, size: int) -> np.ndarray:
        return (
            rng.integers(count, size=(REPETITIONS, size))[repetition]
            if shared
            else rng.integers(count, size=(len(steps), size))
        )

    def noise() -> np.ndarray:
        own = rng.standard_normal((REPETITIONS, features))[repetition] if shared else None
        return std[:, None] * (rng.standard_normal((len(steps), features)) if own is None else own)

    weights = np.zeros((len(steps), features))
    iterates = []
    for _ in range(ROUNDS):
        if algorithm == "minibatch":
            total = np.zeros_like(weights)
            for x, y, _, _ in parts:
                drawn = rows(len(y), batch)
                residuals = np.einsum("mkd,md->mk", x[drawn], weights) - y[drawn]
                total += clipped(np.einsum("mk,mkd->md", residuals, x[drawn]) / batch, clips) + noise()
            weights = weights - steps[:, None] * total
        else:
            models = []
            for x, y, _, _ in parts:
                own = weights
                for drawn in rows(len(y), batch).T:
                    gradient = ((x[drawn] * own).sum(axis=1) - y[drawn])[:, None] * x[drawn]
                    own = own - steps[:, None] * (clipped(gradient, clips) + noise())
                models.append(own)
            weights = np.mean(models, axis=0)
        iterates.append(weights)
    outputs = np.mean(iterates[-LAST:], axis=0).reshape(len(BUDGETS), -1, features)
    return np.array([chosen_loss(each, parts) for each in outputs])


def chosen_loss(outputs: np.ndarray, parts: list[tuple[np.ndarray, ...]]) -> float:
    """Return the test loss of the point of least mean training loss among the outputs (repetitions x points, d)."""
    x, y = np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
    test_x, test_y = np.concatenate([part[2] for part in parts]), np.concatenate([part[3] for part in parts])
    training = (((outputs @ x.T) - y) ** 2).mean(axis=1).reshape(REPETITIONS, -1) / 2
    diverged = ~(training <= DIVERGED)
    best = np.argmin(np.where(diverged.any(axis=0), np.inf, training.mean(axis=0)))
    testing = (((outputs @ test_x.T) - test_y) ** 2).mean(axis=1).reshape(REPETITIONS, -1) / 2
    return float(testing[:, best].mean())


def main() -> None:
    """Print the test losses as CSV, in units of 1e6, a row a trial, algorithm and epsilon."""
    parser = argparse.ArgumentParser()
    parser.add_argument("table")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--shared", action="store_true", help="points and budgets share batches and base noise")
    given = parser.parse_args()
    x, y = records(given.table)
    np.seterr(over="ignore", invalid="ignore")
    print("clients,seed,algorithm,epsilon,test_loss")
    for seed in range(given.trials):
        for clients in (3, 10):
            rng = np.random.default_rng([clients, seed])
            parts = split(x, y, clients, rng)
            for algorithm in STEPS:
                losses = test_losses(algorithm, parts, math.ceil(len(y) / clients), given.shared, rng) / 1e6
                for epsilon, loss in zip(BUDGETS, losses, strict=True):
                    print(f"{clients},{seed},{algorithm},{epsilon:g},{loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
