import pytest

from dpfl.papers.asoodeh2021.claims import CLAIMS
from dpfl.papers.asoodeh2021.figures import CLOSED_FORM
from dpfl.reporting.claims import evaluate
from dpfl.reporting.results import write_csv
from dpfl.reporting.rules import Status, Verdict

KEY = "asoodeh2021"


def test_verdicts_that_formulas_decide(results):
    verdicts = evaluate(KEY, results)[0].set_index("claim")["verdict"]
    stated = ["theorem2", "closed_form", "participation", "random_stopping", "relaxed", "suffix_stopping"]
    assert (verdicts[stated] == Verdict.AS_STATED).all()
    assert verdicts["participation_any_share"] == Verdict.REFUTED
    assert verdicts["relaxed_looser"] == Verdict.WEAKER


def test_the_suffix_improves_with_noise_that_grows_and_with_no_constant_one(judged, results):
    judgement = judged("suffix_stopping", results)
    growing = {each.case.case for each in judgement.cases if "sigma_t = sqrt(t)" in each.case.case}
    assert {each.case.case for each in judgement.cases if each.status is Status.HOLDS} == growing and len(growing) == 12
    assert judgement.count(Status.FAILS) == 48


def test_a_suffix_that_never_improved_would_be_refuted(judged, doctored):
    def spoil(data):
        suffix = data["case"].str.startswith("suffix improves")
        data.loc[suffix, "independent"] = 1.1 * data.loc[suffix, "ours"]

    assert judged("suffix_stopping", doctored("tables", "checks", spoil)).verdict is Verdict.REFUTED


def test_participation_names_the_shares_where_it_fails(judged, results):
    failing = [each for each in judged("participation_any_share", results).cases if each.status is Status.FAILS]
    assert len(failing) == 5 and all("q = 0.0" in each.case.case for each in failing)
    assert failing[0].case.case.startswith("q = 0.01 to 0.02")


@pytest.mark.parametrize("claim", ["theorem2", "closed_form", "random_stopping", "relaxed"])
def test_runs_above_every_bound_refute_a_theorem(judged, doctored, claim):
    changed = doctored("tables", "checks", lambda data: data.__setitem__("independent", data["ours"] + 1))
    assert judged(claim, changed).verdict is Verdict.REFUTED


@pytest.mark.parametrize(("power", "verdict"), [(1, Verdict.REFUTED), (-1, Verdict.AS_STATED)])
@pytest.mark.parametrize("claim", ["participation", "participation_any_share"])
def test_participation_follows_the_curves(judged, doctored, claim, power, verdict):
    def order(data):
        closed = data["form"] == CLOSED_FORM
        data.loc[closed, "delta"] = 0.01 * data.loc[closed, "q"] ** power

    assert judged(claim, doctored("figures", "figure_2", order)).verdict is verdict


def test_claims_without_runs_were_not_run(judged, without_runs):
    for claim in ("price_of_privacy", "price_in_users", "price_by_dimension", "without_replacement"):
        assert judged(claim, without_runs).verdict is Verdict.NOT_RUN
    # The simulation of the errata needs no run.
    assert judged("price_bound", without_runs).verdict is Verdict.REFUTED


def test_stand_in_data_do_not_decide_on_the_price(judged, results):
    for claim in ("price_in_users", "without_replacement"):
        judgement = judged(claim, results)
        assert judgement.verdict is Verdict.UNDECIDED and judgement.reason.startswith("Stand-in data only (digits)")
    # The study of dimensions is on drawn records, which stand in for nothing.
    assert judged("price_by_dimension", results).cases[0].case.stand_in == ""


@pytest.mark.parametrize(
    ("claim", "against", "expected"), [("price_of_privacy", "sigma^2", 1.0), ("price_in_users", "users", -1.0)]
)
@pytest.mark.parametrize(("off", "verdict"), [(0.1, Verdict.AS_STATED), (-0.5, Verdict.REFUTED)])
def test_the_price_follows_the_exponents(judged, doctored, claim, against, expected, off, verdict):
    def exponents(data):
        data["against"], data["expected"], slope = against, expected, expected + off
        data["slope"], data["interval"], data["runs"], data["stand_in_for"] = slope, 0.05, 10, ""

    assert judged(claim, doctored("tables", "rates", exponents)).verdict is verdict


@pytest.mark.parametrize(("exponent", "verdict"), [(1.0, Verdict.REFUTED), (0.0, Verdict.AS_STATED)])
def test_the_price_has_no_factor_for_the_dimension_only_where_it_does_not_grow(judged, doctored, exponent, verdict):
    def grow(data):
        data["exponent"], data["exponent_interval"], data["exponent_runs"] = exponent, 0.05, 10

    assert judged("price_by_dimension", doctored("figures", "dimension", grow)).verdict is verdict


@pytest.mark.parametrize(("runs", "simulation", "fails"), [(0.5, 0.5, 0), (2.0, 0.5, 1), (0.5, 2.0, 1), (2.0, 2.0, 2)])
def test_the_price_is_held_against_the_printed_bound(judged, doctored, runs, simulation, fails):
    def risks(data):
        data["excess_risk"], data["interval"] = 0.5 * data["bound_as_printed"], 0.01 * data["bound_as_printed"]
        first = data.index[data["release"] == "last"][0]
        data.loc[first, "excess_risk"] = runs * data.loc[first, "bound_as_printed"]

    changed = doctored("figures", "dimension", risks)
    errata = changed.table(KEY, "errata")
    with (changed.folder / "tables" / f"{KEY}_errata.csv").open("w") as stream:
        write_csv(errata.assign(independent=simulation * errata["printed"], interval=0.01 * errata["printed"]), stream)
    judgement = judged("price_bound", changed)
    assert judgement.count(Status.FAILS) == fails
    assert judgement.verdict is (Verdict.REFUTED if fails else Verdict.AS_STATED)


def test_the_interval_that_the_errata_state_is_the_one_that_is_judged(results):
    [case] = [each for each in CLAIMS["price_bound"](results).cases if each.case.startswith("simulation of the errata")]
    row = results.table(KEY, "errata").set_index("entry").loc["corollary_utility"]
    assert case.interval() == pytest.approx(
        (row["independent"] - row["interval"], row["independent"] + row["interval"])
    )
    assert case.n == row["runs"] == 5


def test_a_simulation_that_scatters_over_the_printed_bound_does_not_refute_it(judged, doctored):
    def scatter(data):
        data["independent"], data["interval"] = 2.0 * data["printed"], 3.0 * data["printed"]

    judgement = judged("price_bound", doctored("tables", "errata", scatter))
    assert judgement.count(Status.FAILS) == 0 and judgement.count(Status.OPEN) == 1


@pytest.mark.parametrize(
    ("share", "interval", "verdict"),
    [
        (0.0, 0.02, Verdict.AS_STATED),
        (-0.5, 0.1, Verdict.AS_STATED),  # better without replacement does no harm
        (0.3, 0.02, Verdict.REFUTED),
        (0.0, 0.5, Verdict.UNDECIDED),  # no difference found is not no difference
    ],
)
def test_no_harm_needs_a_margin(judged, doctored, share, interval, verdict):
    def shift(data):
        data["difference"], data["interval"] = share * data["with_replacement"], interval * data["with_replacement"]
        data["runs"], data["stand_in_for"] = 20, ""

    assert judged("without_replacement", doctored("figures", "sampling", shift)).verdict is verdict


def test_only_the_randomly_stopped_model_counts(judged, results):
    cases = judged("without_replacement", results).cases
    assert {each.case.case.rsplit(", ")[-1] for each in cases if each.status is Status.STAND_IN} == {"random"}
    assert any(each.status is Status.BESIDE and each.case.case.endswith("last") for each in cases)
