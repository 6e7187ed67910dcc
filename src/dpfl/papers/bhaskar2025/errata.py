"""Numbers of errata.yaml: what is printed, what is right, and the latter by another route.

The run is that of one MNIST client: a tenth of 60000 records, the batch size, epochs and delta of paper.yaml.
"""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Any

import numpy as np
from dp_accounting.pld import privacy_loss_distribution
from scipy import stats

from dpfl.accounting import dpsgd
from dpfl.catalog import load
from dpfl.data import datasets
from dpfl.data.datasets import CLASSES, COEFFICIENTS, COLOUR, GREY, feature_shape
from dpfl.papers.bhaskar2025.cells import COLUMN, published_cells
from dpfl.papers.bhaskar2025.distances import noise_norm, parameters
from dpfl.reporting.display_names import data_name, model_name
from dpfl.reporting.errata import Numbers, errata_recipe

BUDGET, EPOCHS = 2.93, 20
SMALL_ERROR = 1e-3  # of epsilon: the misprint of erratum 7 is 0.06 at gamma = 4


def settings(name: str) -> Any:
    """Return one setting of the runs."""
    return load("bhaskar2025").settings[name]


def epoch_steps() -> int:
    """Return the steps of one epoch of an MNIST client."""
    return math.ceil(settings("client_share") * datasets.load("mnist").training_records / settings("batch_size"))


@cache
def noise(accountant: str, budget: float = BUDGET) -> float:
    """Return the noise multiplier with which the run spends a budget by that accountant."""
    run = {"sample_rate": 1 / epoch_steps(), "steps": EPOCHS * epoch_steps(), "delta": settings("delta")}
    return float(dpsgd.noise_multiplier(target_epsilon=budget, accountant=accountant, **run))


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


def responses(*epsilons: float) -> list[privacy_loss_distribution.PrivacyLossDistribution]:
    """Return the privacy losses of randomised responses with these epsilons."""
    flips = [2 / (1 + math.exp(epsilon)) for epsilon in epsilons]
    return [privacy_loss_distribution.from_randomized_response(flip, 2) for flip in flips]


def parallel_disjoint(first: float, second: float) -> Numbers:
    """Compare two randomised responses of disjoint records with the sum of their budgets."""
    largest = max(float(loss.get_epsilon_for_delta(0)) for loss in responses(first, second))
    return Numbers(first + second, largest, largest_loss((first, second), [(1, 0), (0, 1)]))


def largest_loss(epsilons: tuple[float, float], flips: list[tuple[int, int]]) -> float:
    """Return the largest log ratio of the probability of two answers when the bits of one record flip."""

    def probability(answers: tuple[int, ...], bits: tuple[int, ...]) -> float:
        truth = [math.exp(e) / (1 + math.exp(e)) for e in epsilons]
        return math.prod(t if a == b else 1 - t for t, a, b in zip(truth, answers, bits, strict=True))

    pairs = list(itertools.product((0, 1), repeat=2))
    return max(
        math.log(probability(answers, b) / probability(answers, (b[0] ^ flip[0], b[1] ^ flip[1])))
        for answers, b, flip in itertools.product(pairs, pairs, flips)
    )


def overlapping_clients(clients: int, holders: int) -> Numbers:
    """Compare Table 5's budget with the budget of a record which `holders` of the clients hold."""
    accountant = settings("accountant")
    sigma, share = noise(accountant), settings("client_share")
    shown = {"budget": BUDGET, "epochs": EPOCHS, "noise": sigma, "error": dpsgd.PRV_EPSILON_ERROR}
    shown |= {"batch_size": settings("batch_size"), "share": 100 * stats.binom.sf(holders - 1, clients, share)}
    return Numbers(BUDGET, spent(sigma, holders * EPOCHS), spent(sigma, holders * EPOCHS, "prv"), shown)


def architecture(model: str, dataset: str) -> Numbers:
    """Compare the parameters of the network that the text cites, of the code's network, and of ours."""
    cited, code = NETWORKS[model, dataset]
    numbers = parameters_of(cited), parameters_of(code)
    norm = 2 * COEFFICIENTS if model == "scatter_cnn" else 0  # a scale and a shift a channel
    name, work = ("ScatterNet + CNN", "[8]") if model == "scatter_cnn" else ("the pixel CNN", "[7]")
    images = "colour" if dataset == "cifar10" else "grey"
    shown = {"what": f"{name}, {images} images", "work": work, "cited": numbers[0], "code": numbers[1]}
    return Numbers(*numbers, parameters(model, dataset) - norm, shown)


def relu_in_tanh() -> Numbers:
    """Count the ReLU layers of CNN + tanh for grey images: by the text, by the code, and in the network built here."""
    from torch import nn

    from dpfl.engine.networks import build, image_model

    module = build(image_model("cnn_tanh"), GREY, seed=0)
    return Numbers(0, 1, sum(isinstance(each, nn.ReLU) for each in module.modules()))


def smallest_model(dataset: str) -> Numbers:
    """Compare the rank of ScatterNet + linear by parameters: the fewest, by the cited networks, by the code's."""
    own, colour = (math.prod(feature_shape(images)) * CLASSES + CLASSES for images in (GREY, COLOUR))
    pixel, scattered = (parameters_of(NETWORKS[model, "mnist"][0]) for model in ("cnn_tanh", "scatter_cnn"))
    built = {model: parameters(model, dataset) for model in ("cnn_relu", "cnn_tanh", "scatter_cnn")}
    by_code = 1 + sum(count < parameters("scatter_linear", dataset) for count in built.values())
    by_text = 1 + sum(count < own for count in (pixel, pixel, scattered))
    shown = {"own": own, "pixel": pixel, "scattered": scattered}
    shown |= {"colour": colour, "cited": parameters_of(NETWORKS["cnn_tanh", "cifar10"][0])}
    return Numbers(1, by_text, by_code, shown)


def parameters_of(layers: list[tuple[int, int, int]]) -> int:
    """Return the number of weights and biases of layers (inputs, outputs, side of the kernel; 1 for a dense layer)."""
    return sum(inputs * outputs * side**2 + outputs for inputs, outputs, side in layers)


NETWORKS = {
    ("cnn_tanh", "mnist"): (
        [(1, 16, 8), (16, 32, 4), (512, 32, 1), (32, 10, 1)],
        [(1, 16, 8), (16, 32, 4), (32, 32, 1), (32, 10, 1)],
    ),
    ("cnn_tanh", "cifar10"): (
        [(3, 32, 3), (32, 32, 3), (32, 64, 3), (64, 64, 3), (64, 128, 3), (128, 128, 3), (2048, 128, 1), (128, 10, 1)],
        [(3, 32, 3), (32, 32, 3), (32, 64, 3), (64, 64, 3), (64, 128, 3), (128, 128, 3), (128, 256, 3), (256, 10, 3)],
    ),
    ("scatter_cnn", "mnist"): (
        [(81, 16, 3), (16, 32, 3), (512, 32, 1), (32, 10, 1)],
        [(81, 16, 3), (16, 32, 3), (128, 32, 1), (32, 10, 1)],
    ),
}
"""Layers of the network that the text cites (papernot2021; tramer2021 for ScatterNet) and of the authors' code."""


def noise_on_average() -> Numbers:
    """Compare what a run spends with noise of sigma C on the mean of a batch, as section 3.3 has it, and on its sum."""
    sigma, batch = noise(settings("accountant")), settings("batch_size")
    shown = {"epochs": EPOCHS, "noise": sigma, "batch_size": batch, "error": SMALL_ERROR}
    return Numbers(spent(sigma * batch, EPOCHS), spent(sigma, EPOCHS), spent_by_prv(sigma, EPOCHS), shown)


def norm_of_distance(parameters: int) -> Numbers:
    """Compare the mean l1 norm of standard normal numbers with the Euclidean norm that Appendix A takes."""
    absolute = parameters * math.sqrt(2 / math.pi)
    return Numbers(absolute, noise_norm(parameters), float(stats.chi.mean(parameters)))


def noise_term(steps: int, parameters: int) -> Numbers:
    """Compare the two sides of Appendix A's last equality: the noise once, and once a step."""
    rate, clip, batch = settings("learning_rate"), settings("clip_norm"), settings("batch_size")
    gradients = 2 * rate * clip
    kick = rate * noise(settings("accountant")) * clip / batch
    summed = sum(gradients + kick * stats.chi.mean(parameters) for _ in range(steps))
    once = steps * gradients + kick * noise_norm(parameters)
    return Numbers(once, steps * (gradients + kick * noise_norm(parameters)), summed)


def all_rounds(local_epochs: int, epochs: int) -> Numbers:
    """Compare how Appendix A's bound grows from E = 1 to `local_epochs`: of one round, and summed over all rounds."""
    rate, clip, batch = settings("learning_rate"), settings("clip_norm"), settings("batch_size")
    step = 2 * rate * clip + rate * noise(settings("accountant")) * clip * noise_norm(10_650) / batch

    def bound(local: int) -> float:
        return local * step

    walked = {local: sum(step for _ in range(epochs // local) for _ in range(local)) for local in (1, local_epochs)}
    summed = (epochs // local_epochs) * bound(local_epochs) / (epochs * bound(1))
    return Numbers(bound(local_epochs) / bound(1), summed, walked[local_epochs] / walked[1])


def step_or_epoch(epochs: int) -> Numbers:
    """Compare the steps of `epochs` local epochs by Algorithm 1, a batch each, with passes over the data."""
    records = round(settings("client_share") * datasets.load("mnist").training_records)
    batches = len(range(0, records, settings("batch_size")))
    return Numbers(epochs, epochs * epoch_steps(), epochs * batches)


def utility_dimension(parameters: int, clients: int, ratio: float) -> Numbers:
    """Compare Theorem 3's bound with its form with the dimension, and with the exact probability for normal noise.

    sigma: the deviation of each parameter; ratio: l/(beta sigma).
    """
    printed = 1 / (ratio**2 * clients)
    exact = stats.chi2.sf(ratio**2 * clients, parameters)
    shown = {"distance": noise_norm(parameters) / math.sqrt(clients)}
    return Numbers(printed, min(1.0, parameters * printed), float(exact), shown)


def two_tables() -> Numbers:
    """Compare Table 5's column of ten clients with the cells (1, 20) of Tables 2 to 4."""
    cells = published_cells().query("clients == 10 and local_epochs == 1")
    fifth = cells[cells["table"] == 5].set_index(COLUMN)["published_accuracy_pct"]
    other = cells[cells["table"] < 5].set_index(COLUMN)["published_accuracy_pct"].reindex(fifth.index)
    differ = (other - fifth).abs().idxmax()
    tables = load("bhaskar2025").tables
    gaps = [
        tables[f"table_{number}"]["published_accuracy_pct"][model][models["epsilon"]][0] - accuracies[0]
        for number, models in zip((2, 3, 4), tables["table_5"]["published_accuracy_pct"].values(), strict=True)
        for model, accuracies in models.items()
        if model != "epsilon"
    ]
    shown = {"fifth": fifth[differ], "other": other[differ], "shared": len(gaps)}
    shown |= {"dataset": data_name(differ[0]), "model": model_name(differ[1])}
    return Numbers(0.0, other[differ] - fifth[differ], sum(map(abs, gaps)), shown)


def always_best() -> Numbers:
    """Count the private columns of Tables 2 to 4 in which no split beats (1, 20)."""
    private = published_cells().query("table < 5 and epsilon < inf").sort_values("local_epochs")
    columns = private.groupby(COLUMN)["published_accuracy_pct"].agg(["first", "max"])
    tables = [load("bhaskar2025").tables[f"table_{number}"]["published_accuracy_pct"] for number in (2, 3, 4)]
    lists = [
        row for table in tables for model in table.values() for epsilon, row in model.items() if epsilon < math.inf
    ]
    unbeaten = sum(not any(later > row[0] for later in row[1:]) for row in lists)
    return Numbers(len(columns), (columns["first"] == columns["max"]).sum(), unbeaten)


def grows_with_clients() -> Numbers:
    """Count the rows of Table 5 in which no step to more clients is printed with less."""
    rows = published_cells().query("table == 5 and clients > 1").sort_values("clients")
    growing = rows.groupby(COLUMN)["published_accuracy_pct"].agg(lambda row: row.is_monotonic_increasing)
    models = load("bhaskar2025").tables["table_5"]["published_accuracy_pct"].values()
    lists = [row[:4] for table in models for name, row in table.items() if name != "epsilon"]
    unbroken = sum(all(later >= before for before, later in itertools.pairwise(row)) for row in lists)
    return Numbers(len(growing), int(growing.sum()), unbroken)


def cell(table: int, dataset: str, model: str, local_epochs: int) -> float:
    """Return the published accuracy of ten clients at the larger budget."""
    cells = published_cells().query("table == @table and dataset == @dataset and model == @model and clients == 10")
    private = cells[(cells["epsilon"] < math.inf) & (cells["local_epochs"] == local_epochs)]
    return float(private.loc[private["epsilon"].idxmax(), "published_accuracy_pct"])


def text_start(text: float) -> Numbers:
    """Compare the text's start of the fall of ScatterNet + CNN with Tables 3 and 5."""
    third = cell(3, "fashion_mnist", "scatter_cnn", 1)
    return Numbers(text, third, cell(5, "fashion_mnist", "scatter_cnn", 1), {"cell": third})


def text_end(text: float, start: float) -> Numbers:
    """Compare the text's end of the line of ScatterNet + linear with the column that it starts in."""
    columns = load("bhaskar2025").tables["table_3"]["published_accuracy_pct"]["scatter_linear"].values()
    (column_lines,) = [column for column in columns if column[0] == start]
    third = cell(3, "fashion_mnist", "scatter_linear", EPOCHS)
    return Numbers(text, third, column_lines[-1], {"cell": third})


def text_budget(text: float) -> Numbers:
    """Compare the text's budget for CIFAR-10 with the headings of Tables 4 and 5."""
    tables = load("bhaskar2025").tables
    budgets = tables["table_4"]["published_accuracy_pct"]["cnn_relu"]
    heading = max(epsilon for epsilon in budgets if epsilon < math.inf)
    return Numbers(
        text, heading, tables["table_5"]["published_accuracy_pct"]["cifar10"]["epsilon"], {"heading": heading}
    )


def intermediate(gamma: int, budget: float) -> Numbers:
    """Compare epsilon/sqrt(gamma) with what T/gamma of the steps spend at a budget's noise, both by one accountant."""
    sigma, taken = noise(settings("accountant"), budget), EPOCHS // gamma
    whole = spent(sigma, EPOCHS)
    shown = {"taken": taken, "epochs": EPOCHS, "noise": sigma, "error": SMALL_ERROR, "whole": whole}
    shown["batch_size"] = settings("batch_size")
    return Numbers(whole / math.sqrt(gamma), spent(sigma, taken), spent_by_prv(sigma, taken), shown)


TABLES = {"errata": errata_recipe("bhaskar2025")}
