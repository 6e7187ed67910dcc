import math

import pytest

from dpfl.papers.bhaskar2025.claims import CLAIMS
from dpfl.papers.bhaskar2025.figures import FIGURES
from dpfl.papers.bhaskar2025.tables import TABLES
from dpfl.reporting.results import Results, write_csv
from dpfl.reporting.rules import Status, Verdict


def store(folder, kind, name, data):
    (folder / kind).mkdir(exist_ok=True)
    with (folder / kind / f"bhaskar2025_{name}.csv").open("w") as stream:
        write_csv(data, stream)


def over_first(data):
    """The cells with their advantage over (1, 20), ± 0.1."""
    if "over_first_pct" not in data:
        return data
    column, ran = ["dataset", "model", "epsilon"], data["accuracy_pct"].where(data["runs"] > 0)
    first = data[column].merge(data.assign(first=ran)[data["local_epochs"] == 1][[*column, "first"]], on=column)[
        "first"
    ]
    advantage = ran.to_numpy() - first.to_numpy()
    return data.assign(over_first_pct=advantage, over_first_runs=data["runs"], over_first_interval_pct=0.1)


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """Tables 2 to 5 without runs."""
    results = Results(tmp_path_factory.mktemp("empty"))
    return {f"table_{number}": TABLES[f"table_{number}"].data(results) for number in (2, 3, 4, 5)}


@pytest.fixture
def tables(tmp_path, empty):
    """Writes Tables 2 to 5 as if the published values had been measured, edited by a function first."""

    def write(edit=lambda data: data, runs=10):
        for name in [f"table_{number}" for number in (2, 3, 4, 5)]:
            data = empty[name].copy()
            data["accuracy_pct"], data["runs"], data["interval_pct"] = data["published_accuracy_pct"], runs, 0.1
            data["ran_on"], data["stand_in"] = data["dataset"], False
            data["epsilon_proven"], data["epsilon_refuted"], data["sampling"] = data["epsilon"] * 0.9, 0.0, "x"
            store(tmp_path, "tables", name, over_first(edit(data)))
        return Results(tmp_path)

    return write


def test_the_printed_tables_refute_that_one_local_epoch_is_always_best(tables, judged):
    judgement = judged("one_local_epoch_printed", tables(runs=0))  # a statement on the print needs no run
    assert judgement.verdict is Verdict.REFUTED
    assert (judgement.count(Status.HOLDS), judgement.count(Status.FAILS)) == (17, 7)
    first = judgement.cases[0].case
    assert first.case.startswith("cifar10, ScatterNet + linear, ε = 3") and first.estimate == first.published == -0.74


@pytest.mark.parametrize(
    ("accuracy", "verdict"),
    [
        (lambda data: 100.0 - data["local_epochs"], Verdict.AS_STATED),
        (lambda data: data["local_epochs"].astype(float), Verdict.REFUTED),
        (lambda data: 90.0 + 0.04 * data["local_epochs"], Verdict.WEAKER),  # others ahead by less than a point
    ],
)
def test_one_local_epoch_has_to_be_ahead_of_every_other_split(tables, judged, accuracy, verdict):
    judgement = judged("one_local_epoch", tables(lambda data: data.assign(accuracy_pct=accuracy)))
    assert judgement.verdict is verdict and len(judgement.cases) == 120 and judgement.missing == 0


def test_one_split_that_is_ahead_by_a_point_refutes_one_local_epoch(tables, judged):
    def ahead(data):
        data["accuracy_pct"] = 100.0 - data["local_epochs"]
        one = (data["dataset"] == "mnist") & (data["model"] == "cnn_relu") & (data["epsilon"] == 1.2)
        data.loc[one & (data["local_epochs"] == 10), "accuracy_pct"] = 101.0
        return data

    judgement = judged("one_local_epoch", tables(ahead))
    assert judgement.verdict is Verdict.REFUTED and judgement.count(Status.FAILS) == 1
    assert judgement.cases[0].case.case == "mnist, CNN + ReLU, ε = 1.2, E = 10"


def test_splits_that_were_not_run_keep_one_local_epoch_open(tables, judged):
    def ends(data):
        data["accuracy_pct"] = 100.0 - data["local_epochs"]
        absent = ~data["local_epochs"].isin([1, 20]) | (data["dataset"] != "mnist")
        data.loc[absent, ["runs", "accuracy_pct"]] = [0, math.nan]
        return data

    judgement = judged("one_local_epoch", tables(ends))
    assert judgement.verdict is Verdict.UNDECIDED and judgement.count(Status.HOLDS) == 8 and judgement.missing == 112


def test_what_was_not_run_is_not_run(tables, judged):
    results = tables(runs=0)
    for name in ("initialisation", "distances"):
        store(results.folder, "figures", name, FIGURES[name].data(Results(results.folder)))
    for claim in set(CLAIMS) - {"one_local_epoch_printed", "budget_kept_overlap"}:
        assert judged(claim, results).verdict is Verdict.NOT_RUN, claim


def test_a_single_run_decides_nothing(tables, judged):
    def once(data):
        return data.assign(runs=1, interval_pct=math.nan)

    results = tables(once)
    for claim in ("one_local_epoch", "more_clients", "more_clients_central", "scatter_linear_best"):
        assert judged(claim, results).verdict is Verdict.UNDECIDED, claim


def test_stand_in_data_decide_nothing(tables, judged):
    results = tables(lambda data: data.assign(stand_in=True, ran_on="digits"))
    for claim in ("one_local_epoch", "more_clients", "more_clients_central", "scatter_linear_robust"):
        judgement = judged(claim, results)
        assert judgement.verdict is Verdict.UNDECIDED and "(digits)" in judgement.reason, claim


@pytest.mark.parametrize(
    ("slope", "central", "verdicts"),
    [
        (-1, 200, (Verdict.REFUTED, Verdict.REFUTED)),
        (1, 200, (Verdict.AS_STATED, Verdict.REFUTED)),
        (1, 100.5, (Verdict.AS_STATED, Verdict.AS_STATED)),
        (1, 5, (Verdict.AS_STATED, Verdict.AS_STATED)),  # above the central client is near enough
        (-0.01, -2, (Verdict.WEAKER, Verdict.AS_STATED)),  # falls by less than a point
    ],
)
def test_more_clients_have_to_do_better_and_to_reach_one_central_client(tables, judged, slope, central, verdicts):
    def line(data):
        return data.assign(accuracy_pct=(slope * data["clients"]).where(data["clients"] > 1, central))

    results = tables(line)
    assert (judged("more_clients", results).verdict, judged("more_clients_central", results).verdict) == verdicts


@pytest.mark.parametrize(
    ("rival", "verdict"), [(0.0, Verdict.AS_STATED), (99.5, Verdict.WEAKER), (105.0, Verdict.REFUTED)]
)
def test_the_best_model_is_the_best_up_to_a_point(tables, judged, rival, verdict):
    def other(data):
        own = data["model"] == "scatter_linear"
        return data.assign(accuracy_pct=data["accuracy_pct"].where(~own, 99.0).where(own, rival))

    assert judged("scatter_linear_best", tables(other)).verdict is verdict


def test_robustness_is_held_against_the_papers_own_example_and_the_other_models(tables, judged):
    printed = tables()
    robust = judged("scatter_linear_robust", printed)
    assert robust.verdict is Verdict.AS_STATED and len(robust.cases) == 6
    assert judged("scatter_linear_most_robust", printed).verdict is Verdict.AS_STATED

    def collapse(data):
        lost = (data["model"] == "scatter_linear") & (data["local_epochs"] == 20)
        return data.assign(accuracy_pct=data["accuracy_pct"].where(~lost, 10.0))

    collapsed = tables(collapse)
    assert judged("scatter_linear_robust", collapsed).verdict is Verdict.REFUTED
    assert judged("scatter_linear_most_robust", collapsed).verdict is Verdict.REFUTED
