"""What is printed against what is right, each with a value found by another route.

The run is that of one MNIST client: a tenth of 60000 records, the batch size, epochs and delta of paper.yaml. What is
marked as published compares the paper with itself.
"""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Any

import numpy as np
from dp_accounting.pld import privacy_loss_distribution

from dpfl.accounting import dpsgd
from dpfl.catalog import load
from dpfl.papers.bhaskar2025.published_cells import published_cells
from dpfl.reporting.evidence import Erratum

BUDGET, EPOCHS, TRAINING, MANY_CLIENTS = 2.93, 20, 60_000, 100
SMALL_ERROR = 1e-3  # of epsilon: the misprint of erratum 7 is 6e-3 at gamma = 10
CELL = ["dataset", "model", "epsilon"]
PRV = "Opacus's accountant of privacy random variables, upper end"
PUBLISHED = "published; the nested lists read without the table of cells"


def settings(name: str) -> Any:
    """Return one setting of the runs."""
    return load("bhaskar2025").settings[name]


def epoch_steps() -> int:
    """Return the steps of one epoch of an MNIST client."""
    return math.ceil(settings("client_share") * TRAINING / settings("batch_size"))


@cache
def noise(accountant: str) -> float:
    """Return the noise multiplier with which the run spends BUDGET by that accountant."""
    run = {"sample_rate": 1 / epoch_steps(), "steps": EPOCHS * epoch_steps(), "delta": settings("delta")}
    return float(dpsgd.noise_multiplier(target_epsilon=BUDGET, accountant=accountant, **run))


def spent(noise_multiplier: float, epochs: int, accountant: str = "pld") -> float:
    """Return epsilon after `epochs` by that accountant."""
    run = {"sample_rate": 1 / epoch_steps(), "steps": epochs * epoch_steps(), "delta": settings("delta")}
    return float(dpsgd.epsilon(noise_multiplier=noise_multiplier, accountant=accountant, **run))


def spent_by_prv(noise_multiplier: float, epochs: int) -> float:
    """Return epsilon after `epochs` by Opacus, its upper end, at most SMALL_ERROR above its estimate."""
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = [(noise_multiplier, 1 / epoch_steps(), epochs * epoch_steps())]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):  # 0/0 where a density is masked to 0
        return float(accountant.get_epsilon(settings("delta"), eps_error=SMALL_ERROR))


def parallel(*, disjoint: bool) -> Erratum:
    """Two randomised responses, of disjoint records or of the same one: a maximum or a sum."""
    budgets = (1.0, 0.5)
    first, second = (privacy_loss_distribution.from_randomized_response(2 / (1 + math.exp(e)), 2) for e in budgets)
    without = privacy_loss_distribution.identity()
    pairs = ((first, without), (without, second)) if disjoint else ((first, second),)
    return Erratum(
        erratum=1,
        printed_form="parallel composition is additive" if disjoint else "Theorem 1 applied to clients that overlap",
        right_form="maximum, for disjoint data" if disjoint else "sum, for a record that both hold",
        case=f"epsilon (delta = 0), mechanisms of {budgets[0]:g} and {budgets[1]:g} on "
        + ("disjoint data" if disjoint else "the same data"),
        printed=sum(budgets) if disjoint else max(budgets),
        right=max(float(one.compose(other).get_epsilon_for_delta(0)) for one, other in pairs),
        independent=largest_loss(budgets, disjoint=disjoint),
        source="enumeration of all answers",
    )


def largest_loss(budgets: tuple[float, float], *, disjoint: bool) -> float:
    """Return the largest log ratio of the probability of two answers when one record flips."""

    def probability(answers: tuple[int, ...], bits: tuple[int, ...]) -> float:
        truth = [math.exp(e) / (1 + math.exp(e)) for e in budgets]
        return math.prod(t if a == b else 1 - t for t, a, b in zip(truth, answers, bits, strict=True))

    flips = [(1, 0), (0, 1)] if disjoint else [(1, 1)]
    bits = [(0, 0), (0, 1), (1, 0), (1, 1)] if disjoint else [(0, 0), (1, 1)]
    return max(
        math.log(probability(answers, b) / probability(answers, (b[0] ^ flip[0], b[1] ^ flip[1])))
        for answers, b, flip in itertools.product(itertools.product((0, 1), repeat=2), bits, flips)
    )


def overlapping_clients(accountant: str) -> Erratum:
    """With 100 clients of a tenth of the data a record lies with ten on average, and each spends the budget."""
    sigma, holders = noise(accountant), round(MANY_CLIENTS * settings("client_share"))
    return Erratum(
        erratum=2,
        printed_form=f"Table 5: epsilon = {BUDGET} with {MANY_CLIENTS} clients",
        right_form=f"a record with {holders} clients spends {holders} times {EPOCHS} epochs",
        case=f"epsilon of one record, {described(accountant)}",
        printed=BUDGET,
        right=spent(sigma, holders * EPOCHS),
        independent=spent(sigma, holders * EPOCHS, "prv"),
        source=f"{PRV}, error {dpsgd.PRV_EPSILON_ERROR:g}",
    )


def described(accountant: str) -> str:
    """Say what the noise of that accountant is."""
    what = "as run (RDP calibration)" if accountant == "rdp" else f"spending exactly {BUDGET}"
    return f"noise multiplier {noise(accountant):.4f}, {what}, B = {settings('batch_size')}"


def two_tables() -> Erratum:
    """Table 5's column of ten clients repeats the cells (1, 20) of Tables 2 to 4, but for one."""
    cells = published_cells().query("clients == 10 and local_epochs == 1")
    fifth = cells[cells["table"] == 5].set_index(CELL)["published_accuracy_pct"]
    other = cells[cells["table"] < 5].set_index(CELL)["published_accuracy_pct"].reindex(fifth.index)
    differ = (other - fifth).abs().idxmax()
    tables = load("bhaskar2025").tables
    gaps = [
        tables[f"table_{number}"]["published_accuracy_pct"][model][models["epsilon"]][0] - accuracies[0]
        for number, models in zip((2, 3, 4), tables["table_5"]["published_accuracy_pct"].values(), strict=True)
        for model, accuracies in models.items()
        if model != "epsilon"
    ]
    return Erratum(
        erratum=4,
        printed_form=f"Table 5: {fifth[differ]:.2f}",
        right_form=f"Table 2: {other[differ]:.2f}; which of them was measured is not known",
        case=f"accuracy in points, Table 2 less Table 5, k = 10, {differ[0]}, {differ[1]}; "
        f"independent: sum of absolute differences over all {len(gaps)} shared cells",
        printed=0.0,
        right=float(other[differ] - fifth[differ]),
        independent=float(sum(map(abs, gaps))),
        source=PUBLISHED,
    )


def always_best() -> Erratum:
    """In how many private columns of Tables 2 to 4 no split beats (1, 20)."""
    private = published_cells().query("table < 5 and epsilon < inf").sort_values("local_epochs")
    columns = private.groupby(CELL)["published_accuracy_pct"].agg(["first", "max"])
    tables = [load("bhaskar2025").tables[f"table_{number}"]["published_accuracy_pct"] for number in (2, 3, 4)]
    lists = [
        row for table in tables for model in table.values() for epsilon, row in model.items() if epsilon < math.inf
    ]
    return Erratum(
        erratum=5,
        printed_form="(1, T) always gives the best performance",
        right_form="not in every private column",
        case="private columns of Tables 2 to 4 in which no split is printed above (1, 20)",
        printed=len(columns),
        right=int((columns["first"] == columns["max"]).sum()),
        independent=sum(not any(later > row[0] for later in row[1:]) for row in lists),
        source=PUBLISHED,
    )


def cell(table: int, dataset: str, model: str, local_epochs: int) -> float:
    """Return the published accuracy of ten clients at the larger budget."""
    cells = published_cells().query("table == @table and dataset == @dataset and model == @model and clients == 10")
    private = cells[(cells["epsilon"] < math.inf) & (cells["local_epochs"] == local_epochs)]
    return float(private.loc[private["epsilon"].idxmax(), "published_accuracy_pct"])


def text_start() -> Erratum:
    """The text's start of the fall of ScatterNet + CNN is in no table."""
    return Erratum(
        erratum=6,
        printed_form="text: falls from 84.26 to 44.12",
        right_form="Table 3: from 81.26",
        case="accuracy in per cent, Fashion-MNIST, ScatterNet + CNN, (1, 20), epsilon = 2.7",
        printed=84.26,
        right=cell(3, "fashion_mnist", "scatter_cnn", 1),
        independent=cell(5, "fashion_mnist", "scatter_cnn", 1),
        source="published; Table 5 at ten clients",
    )


def text_end() -> Erratum:
    """The text ends the line of ScatterNet + linear in another budget's column."""
    columns = load("bhaskar2025").tables["table_3"]["published_accuracy_pct"]["scatter_linear"].values()
    (own,) = [column for column in columns if column[0] == 86.01]
    return Erratum(
        erratum=6,
        printed_form="text: varies from 86.01 to 82.79 (at epsilon = 1.2)",
        right_form="Table 3: to 83.73, in the column of 86.01",
        case="accuracy in per cent, Fashion-MNIST, ScatterNet + linear, (20, 1), epsilon = 2.7",
        printed=82.79,
        right=cell(3, "fashion_mnist", "scatter_linear", EPOCHS),
        independent=own[-1],
        source="published; the last of the column that starts with 86.01",
    )


def text_budget() -> Erratum:
    """The text and the tables differ in the budget for CIFAR-10."""
    budgets = load("bhaskar2025").tables["table_4"]["published_accuracy_pct"]["cnn_relu"]
    return Erratum(
        erratum=6,
        printed_form="text: epsilon = 7.52",
        right_form="Tables 4 and 5: epsilon = 7.53",
        case="epsilon, CIFAR-10",
        printed=7.52,
        right=max(epsilon for epsilon in budgets if epsilon < math.inf),
        independent=load("bhaskar2025").tables["table_5"]["published_accuracy_pct"]["cifar10"]["epsilon"],
        source="published; heading of Table 5 against that of Table 4",
    )


def intermediate(gamma: int, accountant: str) -> Erratum:
    """A model on its way, after T/gamma of the steps at the run's noise, has spent more than epsilon/sqrt(gamma)."""
    sigma = noise(accountant)
    return Erratum(
        erratum=7,
        printed_form="epsilon_int = epsilon/sqrt(gamma)",
        right_form="composition of the steps taken; falls more slowly",
        case=f"epsilon after {EPOCHS // gamma} of {EPOCHS} epochs (gamma = {gamma}), {described(accountant)}",
        printed=BUDGET / math.sqrt(gamma),
        right=spent(sigma, EPOCHS // gamma),
        independent=spent_by_prv(sigma, EPOCHS // gamma),
        source=f"{PRV}, error {SMALL_ERROR:g}",
    )


def all_errata() -> list[Erratum]:
    """Return every erratum of this paper that a number shows."""
    return [
        parallel(disjoint=True),
        parallel(disjoint=False),
        *(overlapping_clients(accountant) for accountant in ("rdp", "pld")),
        two_tables(),
        always_best(),
        text_start(),
        text_end(),
        text_budget(),
        *(intermediate(gamma, accountant) for accountant in ("rdp", "pld") for gamma in (10, 20)),
    ]
