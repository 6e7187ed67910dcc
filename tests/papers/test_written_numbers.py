"""Numbers that a person wrote into a caption, a caveat or a deviation are those of the shipped results.

A page fills in the numbers of its own data. Some sentences name a number of other data, or of a computation: they are
written by hand and can go stale. Here each is written once more, with its numbers computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy.stats import binom, norm

from dpfl.accounting import gaussian_dp
from dpfl.accounting.tradeoff import Guarantee, dpsgd_guarantee
from dpfl.reporting.display_names import at_most
from dpfl.reporting.results import read_csv

SHIPPED = Path(__file__).parents[2] / "results" / "paper"
WRITTEN = []


def written(place: str) -> Callable[[Callable[[], str]], Callable[[], str]]:
    """Register a function that returns words of the text at "paper, file, key, ..."."""

    def register(words: Callable[[], str]) -> Callable[[], str]:
        WRITTEN.append(pytest.param(place, words, id=f"{place}: {words.__name__}"))
        return words

    return register


def texts(part: Any) -> Iterator[str]:
    """Yield every text of a part of a file, its white space as single spaces."""
    if isinstance(part, str):
        yield " ".join(part.split())
    elif isinstance(part, dict | list):
        for each in part.values() if isinstance(part, dict) else part:
            yield from texts(each)


@cache
def shipped(kind: str, name: str) -> pd.DataFrame:
    return read_csv(SHIPPED / kind / f"{name}.csv")


def evidence(paper: str, claim: str) -> pd.DataFrame:
    rows = shipped("claims", f"{paper}_evidence")
    return rows[rows["claim"] == claim].set_index("case")


# bhaskar2025: the published tables, runs of other tables, and the epsilons of the table of overlap.


@written("bhaskar2025, claims, one_local_epoch, caveat")
def four_looks() -> str:
    row = evidence("bhaskar2025", "one_local_epoch").loc["cifar10, ScatterNet + linear, ε = 3"]
    assert row["n"] == 10 and row["status"] == "fails"
    return f"Four times the adjusted p-value of the deciding case is {4 * row['adjusted_p']:.2f}, so that"


@written("bhaskar2025, claims, one_local_epoch, caveat")
def columns_that_one_local_epoch_leads() -> str:
    rows = pd.concat(shipped("tables", f"bhaskar2025_table_{number}") for number in (2, 3, 4))
    private = rows[(rows["epsilon"] < math.inf) & (rows["model"] != "scatter_linear")]
    means = private.pivot_table("accuracy_pct", ["dataset", "model", "epsilon"], "local_epochs")
    assert (means.idxmax(axis="columns") == 1).all()
    lead = "(1, 20) has the highest mean; the seeds are too few to decide"
    return f"In all {len(means)} columns of the other three models {lead}"


@written("bhaskar2025, claims, one_local_epoch, caveat")
def lead_of_one_fixed_split() -> str:
    rows = shipped("tables", "bhaskar2025_table_4").query("model == 'scatter_linear' and epsilon == 3")
    best = rows.loc[rows["over_first_pct"].idxmax()]
    split = f"({best['local_epochs']}, {best['rounds']})"
    return f"one fixed split, {split}, leads by {best['over_first_pct']:.2f} points on average"


@written("bhaskar2025, claims, one_local_epoch_printed, caveat")
def published_leads_of_other_splits() -> str:
    rows = -evidence("bhaskar2025", "one_local_epoch_printed").query("status == 'fails'")["estimate"]
    return f"They differ from the claim by {rows.min():.2f} to {rows.max():.2f} points"


@written("bhaskar2025, claims, scatter_linear_robust, caveat")
def robust_only_by_the_papers_margin() -> str:
    row = evidence("bhaskar2025", "scatter_linear_robust").loc["fashion_mnist, ScatterNet + linear, ε = 1.2"]
    assert row["low"] > 2.28 and row["status"] != "fails"
    return f"it falls by {row['estimate']:.2f} points ({row['low']:.2f} to {row['high']:.2f}, ten seeds)"


@written("bhaskar2025, claims, scatter_linear_best_printed, caveat")
def published_leads_without_privacy() -> str:
    rows = evidence("bhaskar2025", "scatter_linear_best_printed")["estimate"]
    first, second = (-rows[f"cifar10, no privacy, E = {epochs}, over ScatterNet + CNN"] for epochs in (1, 2))
    assert (rows < 0).sum() == 2
    return f"on CIFAR-10 without privacy ScatterNet + CNN leads by {first:.2f} and {second:.2f} points"


@written("bhaskar2025, claims, scatter_linear_robust, caveat")
def fall_on_fashion_mnist() -> str:
    row = evidence("bhaskar2025", "scatter_linear_robust").loc["fashion_mnist, ScatterNet + linear, ε = 1.2"]
    assert row["n"] == 10 and row["low"] > 2.28
    return f"it falls by {row['estimate']:.2f} points ({row['low']:.2f} to {row['high']:.2f}, ten seeds)"


@written("bhaskar2025, claims, scatter_linear_robust, because")
def fall_of_the_published_column() -> str:
    rows = shipped("tables", "bhaskar2025_table_3").query("model == 'scatter_linear' and epsilon == 2.7")
    first, last = (rows.set_index("local_epochs")["published_accuracy_pct"][epochs] for epochs in (1, 20))
    return f"the column that starts with {first:.2f} ends at {last:.2f}, a difference of {first - last:.2f}"


@written("bhaskar2025, claims, scatter_linear_robust_printed, because")
def largest_published_fall() -> str:
    rows = evidence("bhaskar2025", "scatter_linear_robust_printed")["estimate"]
    return f"The largest fall in the tables is {rows.max():.2f} points"


@written("bhaskar2025, paper, deviations")
def two_runs_of_one_seed() -> str:
    ends = []
    for job in ("", "open_settings_"):
        kind = "0_3_0_5_fixed_plain" if job else "steady"
        runs = read_csv(SHIPPED / "runs" / "bhaskar2025" / f"{job}mnist_cnn_relu_k10_{kind}_seed0.csv.gz")
        [end] = runs[(runs["local_epochs"] == 4) & (runs["epsilon"] == math.inf)]["accuracy_pct"]
        ends.append(f"{end:.2f} %")
    return f"(4, 5), seed 0, ended at {ends[0]} and, in the study open_settings, at {ends[1]}"


def spent_by_two_clients(dataset: str) -> str:
    rows = shipped("tables", "bhaskar2025_overlap")
    rows = rows[(rows["dataset"] == dataset) & (rows["clients"] == 10)].sort_values("epsilon", ascending=False)
    assert set(rows["holders_quarter"]) == {2} and {f"{share:.0%}" for share in rows["share_several"]} == {"26%"}
    (large, for_large), (small, for_small) = zip(rows["epsilon"], rows["epsilon_quarter"], strict=True)
    for_large, for_small = at_most(for_large, places=2), at_most(for_small, places=2)
    return f"A record with two spends {for_large} for a published {large:g} and {for_small} for {small:g} (table of"


@written("bhaskar2025, paper, tables, table_2, caption")
def overlap_on_mnist() -> str:
    return spent_by_two_clients("mnist")


@written("bhaskar2025, paper, tables, table_3, caption")
def overlap_on_fashion_mnist() -> str:
    return spent_by_two_clients("fashion_mnist")


@written("bhaskar2025, paper, tables, table_4, caption")
def overlap_on_cifar10() -> str:
    return spent_by_two_clients("cifar10")


def distance_of_the_chosen_rate(batches: str) -> str:
    rows = shipped("tables", "bhaskar2025_open_settings").query("dataset == 'cifar10'")
    tried = rows.groupby(["plain_batches", "learning_rate"])["distance_pct"].median()
    assert rows.query("momentum == 0.5").groupby("learning_rate").size().eq(8).all()
    assert tried["shuffled"].idxmin() == 0.2
    return f"{tried[batches][0.2]:.2f} points"


@written("bhaskar2025, paper, tables, table_4, caption")
def distance_with_shuffled_batches() -> str:
    return f"with shuffled batches (median {distance_of_the_chosen_rate('shuffled')})"


@written("bhaskar2025, paper, tables, table_4, caption")
def distance_in_fixed_order() -> str:
    return f"in fixed order, with which the same rate is {distance_of_the_chosen_rate('fixed')} away"


@written("bhaskar2025, claims, more_clients_central_printed, caveat")
def rows_with_a_step_away() -> str:
    rows = shipped("tables", "bhaskar2025_table_5")
    printed = rows.pivot_table("published_accuracy_pct", ["dataset", "model"], "clients")
    gaps = printed[[10, 25, 50, 100]].rsub(printed[1], axis="index").clip(lower=0)
    away = int((gaps.diff(axis="columns") > 0).any(axis="columns").sum())
    assert (away, len(gaps)) == (2, 12)
    return "In two of the twelve rows one step to more clients moves away from the central model"


# vandijk2023: what an adversary learns of a run of 6,000 records and 20 epochs, at delta = 1e-5.

SIGMAS = (1.0, 2.0, 8.0)


@cache
def guarantee(sigma: float, batch: int = 250, epochs: int = 20) -> Guarantee:
    return dpsgd_guarantee(n=6000, m=batch, epochs=epochs, sigma=sigma, adversary="A1")


def epsilon(sigma: float, batch: int) -> float:
    return float(guarantee(sigma, batch).epsilon(1e-5))


def in_percent(share: float) -> str:
    return f"{100 * share:.0f} %"


@written("lowy2021, claims, price_shrinks, caveat")
def most_that_the_protocol_spends() -> str:
    rows = shipped("tables", "lowy2021_noise").query("clipping == 'mean' and epsilon == 10")
    few, many = (rows.loc[rows["clients"] == clients, "epsilon_proven"].max() for clients in (3, 10))
    return f"spends up to {at_most(few, 3)} (N = 3) and {at_most(many, 3)} (N = 10) in this protocol"


@written("vandijk2023, claims, epochs_not_rounds, caveat")
def batches_of_all_records() -> str:
    rows = evidence("vandijk2023", "epochs_not_rounds")["estimate"]
    little, much = (1 - rows[f"batches of 6000 against 1, sigma = {sigma}"] for sigma in (8, 1))
    most = max(1 - epsilon(sigma, 6000) / epsilon(sigma, 1) for sigma in SIGMAS)
    for sigma in SIGMAS:
        exact = float(gaussian_dp.epsilon(1e-5, math.sqrt(20) / sigma))
        assert epsilon(sigma, 6000) == pytest.approx(exact, rel=1e-6)
    return (
        f"With batches of all records, for which G_{{sqrt(E)/sigma}} is exact, mu is {in_percent(little)} (sigma = 8) "
        f"to {in_percent(much)} (sigma = 1) lower than with batches of one, and epsilon up to {in_percent(most)}"
    )


@written("vandijk2023, claims, epochs_not_rounds, caveat")
def batches_of_half_the_records() -> str:
    assert max(1 - epsilon(sigma, 3000) / epsilon(sigma, 1) for sigma in SIGMAS) < 0.1
    return "With half the records or fewer the rounds change epsilon by less than a tenth"


BAND = 1 - math.sqrt((1 - 40**-0.5) / (1 + 40**-0.5))


@written("vandijk2023, claims, epochs_not_rounds, because")
def width_of_the_band() -> str:
    return f"at 20 epochs h-bar's mu is {100 * BAND:.1f} % below h's"


@written("vandijk2023, claims, epochs_not_rounds, caveat")
def cases_in_the_band() -> str:
    assert evidence("vandijk2023", "epochs_not_rounds")["estimate"].sub(1).abs().max() < BAND
    return f"within {100 * BAND:.1f} %, the distance of the chapter's h-bar from its h at 20 epochs, every case holds"


@written("vandijk2023, claims, epochs_simple, settings")
def error_with_fewer_epochs() -> str:
    rows = shipped("figures", "vandijk2023_epochs_not_rounds").query("panel == 'epochs' and curve == 'A1'")
    return f"there the exact mu differs by up to {in_percent(rows['mu_over_simple'].max() - 1)}"


@written("vandijk2023, claims, epochs_simple, caveat")
def error_with_twenty_epochs() -> str:
    rows = evidence("vandijk2023", "epochs_simple")["estimate"]
    little, much = (rows[f"E = 20, sigma = {sigma}"] - 1 for sigma in (8, 1))
    assert rows[~rows.index.str.startswith("E = 20,")].max() - 1 < 0.09
    return f"mu is {in_percent(little)} (sigma = 8) to {in_percent(much)} (sigma = 1) above sqrt(E)/sigma, from 50"


@written("vandijk2023, claims, epochs_bounds, caveat")
def above_the_bound() -> str:
    over = evidence("vandijk2023", "epochs_bounds")["estimate"]
    epochs = over.index.str.extract(r"E = (\d+)", expand=False).astype(int)
    adds = pd.Series([math.sqrt(1 + (2 * each) ** -0.5) - 1 for each in epochs], over.index)
    most = ((1 + over * adds) / (1 + adds)).max() - 1
    assert (over > 1).sum() == 9 and len(over) == 12 and most < 0.1
    return f"the exact mu is above h's in nine of the twelve cases, by {in_percent(most)} at most"


@written("vandijk2023, claims, epochs_bounds, because")
def what_the_bound_adds() -> str:
    few, many = (in_percent(math.sqrt(1 + (2 * epochs) ** -0.5) - 1) for epochs in (20, 200))
    return f"which adds {few} at 20 epochs and {many} at 200"


def mu_at_equal_errors(sigma: float, epochs: int) -> float:
    """Each of 24 rounds an epoch uses the record with chance 1/24. A1 knows when, so both errors are a mean."""
    uses = np.arange(24 * epochs + 1)
    return -2 * norm.ppf(binom.pmf(uses, 24 * epochs, 1 / 24) @ norm.cdf(-np.sqrt(uses) / (2 * sigma)))


@written("vandijk2023, claims, epochs_limit, caveat")
def below_the_limit_at_equal_errors() -> str:
    rows = evidence("vandijk2023", "epochs_limit")["estimate"]
    equal = rows[rows.index.str.startswith("errors equal")]
    assert (len(equal), (rows > 1).sum(), (equal > 1).sum()) == (12, 1, 1)
    for epochs in (20, 200):
        exact, limit = mu_at_equal_errors(1.0, epochs), math.sqrt((1 - (2 * epochs) ** -0.5) * epochs)
        taken = (math.sqrt(epochs) - exact) / (math.sqrt(epochs) - limit)
        assert equal[f"errors equal, E = {epochs}, sigma = 1"] == pytest.approx(taken, rel=1e-5)
    return f"one case of twelve is below h-bar's mu, by {100 * (1 - exact / limit):.1f} % (sigma = 1, 200 epochs)"


@written("vandijk2023, claims, epochs_limit, caveat")
def below_the_limit_by_more_than_the_margin() -> str:
    from_here = next(
        epochs
        for epochs in range(300, 400)
        if math.sqrt(epochs) - mu_at_equal_errors(1.0, epochs)
        > 1.5 * math.sqrt(epochs) * (1 - math.sqrt(1 - (2 * epochs) ** -0.5))
    )
    about = 10 * round(from_here / 10)
    return f"from about {about} epochs on. Then mu is above {math.floor(mu_at_equal_errors(1.0, from_here))}, which"


def shared_batches(group: int, batch: int, records: int) -> float:
    """Root of the mean square of a batch's group members over the number of members, in shuffled batches."""
    return math.sqrt(1 + (group - 1) * (batch - 1) / (records - 1))


@written("vandijk2023, claims, group_shuffled_about, caveat")
def shared_batches_of_a_group() -> str:
    rows = evidence("vandijk2023", "group_shuffled_about")["estimate"]
    cases = rows.index.str.extract(r"batches of (\d+), g = (\d+)").astype(int)
    few = [shared_batches(group, batch, 6144) for batch, group in cases.itertuples(index=False)]
    many = [shared_batches(group, batch, 60_000) for batch, group in cases.itertuples(index=False)]
    apart = (rows / few - 1).abs().max()
    assert 0 < apart < 0.01 and len(rows) == 20
    return (
        "mu is within 1 % of sqrt(gE)/sigma times sqrt(1 + (g - 1)(m - 1)/(N - 1)). With 60,000 records this factor is "
        f"at most {max(many):.2f}"
    )


@written("vandijk2023, claims, group, caveat")
def batch_and_group_that_miss() -> str:
    rows = evidence("vandijk2023", "group")
    missed = rows.index[rows["status"] != "holds"].tolist()
    assert missed == ["batches of 256, g = 16"]
    return "The case that misses is the largest batch with the largest group"


@written("vandijk2023, paper, tables, canaries, caption")
def most_that_trials_prove() -> str:
    error = 1 - 0.025 ** (1 / 1024)  # the 95 % interval of no error in 1,024 trials
    return f"1,024 trials prove an epsilon of {math.log((1 - error) / error):.1f} at most"


@written("vandijk2023, paper, figures, delay_loop, caption")
def closings_at_the_longest_delay() -> str:
    rows = shipped("figures", "vandijk2023_delay_loop").query("scenario == 'late_64' and epochs == 10")
    [closings] = rows["closings"].unique()
    return f"A delay of 64 closes the loop only {closings:.1f} times in 240 rounds"


# lowy2021 and asoodeh2021: powers that the margin lets pass.


def power(paper: str, claim: str, case: str) -> str:
    """The fitted power of a case that misses its target by more than chance, and not the margin."""
    row = evidence(paper, claim).loc[case]
    assert row["status"] == "holds" and row["low"] > row["target"]
    return f"{row['estimate']:.2f}"


@written("lowy2021, claims, one_pass_rate, caveat")
def power_of_epsilon() -> str:
    fitted = power("lowy2021", "one_pass_rate", "convex, worst of the family, epsilon, the theorem's noise")
    return f"The risk falls as epsilon to the power {fitted}, so the margin decides"


@written("asoodeh2021, claims, convex_rate, caveat")
def power_of_rounds() -> str:
    fitted = power("asoodeh2021", "convex_rate", "synthetic, m = 1, sigma = 0.5")
    return f"With noise the risk falls as T to the power {fitted}, so the margin decides"


# asoodeh2020 and asoodeh2021.


@written("asoodeh2020, claims, convex_late_records, caveat")
def epsilons_below_proposition_1() -> str:
    rows = evidence("asoodeh2020", "convex_late_records")["estimate"]
    up_to = {record: rows[f"record {record}: below Proposition 1 up to epsilon"] for record in (30, 20)}
    return f"Record 30 has the lower delta up to epsilon = {up_to[30]:g} only, record 20 up to {up_to[20]:g}"


@written("asoodeh2020, paper, figures, figure_3, caption")
def where_the_later_result_is_smaller() -> str:
    rows = shipped("figures", "asoodeh2020_figure_3").query("i == 20").pivot_table("delta", "epsilon", "route")
    smaller = rows.index[rows["shifted_gdp"] < rows["theorem_4"]]
    assert list(smaller) == list(rows.index[rows.index >= smaller.min()])
    return f"It is smaller than Theorem 4 for record 20 from about epsilon = {smaller.min():g} on"


@written("asoodeh2021, claims, price_of_privacy, caveat")
def lines_of_the_noise_that_the_projection_limits() -> str:
    return limited_lines("price_of_privacy", "sigma^2")


@written("asoodeh2021, claims, price_in_users, caveat")
def lines_of_the_users_that_the_projection_limits() -> str:
    return limited_lines("price_in_users", "users")


def limited_lines(claim: str, against: str) -> str:
    lines = shipped("tables", "asoodeh2021_rates").query("study == 'price' and against == @against")
    assert (evidence("asoodeh2021", claim)["status"] == "not counted").sum() == lines["limited"].sum()
    return f"The projection limits {lines['limited'].sum()} of {len(lines)} lines"


@written("asoodeh2021, claims, relaxed_looser, caveat")
def how_much_looser() -> str:
    figure_2, others = (evidence("asoodeh2021", f"relaxed_looser{at}")["estimate"] for at in ("", "_elsewhere"))
    long_steps = others[others.index.str.contains("eta = [12]")]
    assert len(long_steps) == 8 and (others.drop(long_steps.index) < 2).all()
    return (
        f"the bound is looser by {100 * (figure_2.max() - 1):.2f} %. In settings of ours, whose steps are large "
        f"against the ball, it is looser by {long_steps.min():.1f} to {long_steps.max():.1f} times"
    )


@written("asoodeh2021, paper, figures, figure_2, caption")
def whole_rounds() -> str:
    rows = shipped("figures", "asoodeh2021_figure_2").query("panel == 'published' and q == 0.3 and epsilon == 0")
    delta = rows[rows["form"] != "one round alone"].set_index("rounds")["delta"]
    return f"with three whole rounds, which leave 10 users out, delta is {delta[3.0] / delta[10 / 3]:.1f} times as high"


@pytest.mark.parametrize(("place", "words"), WRITTEN)
def test_a_number_written_by_hand_is_that_of_the_results(place, words):
    paper, name, *keys = place.split(", ")
    part = yaml.safe_load((files("dpfl") / "papers" / paper / f"{name}.yaml").read_text(encoding="utf-8"))
    for key in keys:
        part = part[key]
    assert any(words() in text for text in texts(part)), f"{place} should say: {words()}"
