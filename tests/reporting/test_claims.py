from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from dpfl.catalog import keys, load, require_valid
from dpfl.errors import InputError
from dpfl.grid import configuration, expansion
from dpfl.grid.training_job import TrainingJob
from dpfl.reporting import claims
from dpfl.reporting.claims import (
    NUMBERS,
    answer,
    as_far_as_run,
    decides,
    evaluate,
    files,
    range_text,
    require_jobs,
    require_usable,
    said,
    write,
)
from dpfl.reporting.results import NotRunError, Results, read_csv
from dpfl.reporting.rules import (
    ALPHA,
    LEVEL,
    Case,
    ClaimEvidence,
    ClaimKind,
    Judgement,
    Rule,
    Scope,
    Verdict,
    from_values,
)

RULE = {"scope": "for all", "kind": "difference", "because": "b", "settled_by": "s"}
VALUES = [1.0, 1.2, 0.9]
SCHEMA = Path(__file__).parents[2] / "src" / "dpfl" / "schemas" / "paper.schema.yaml"


def not_run(results: Results) -> ClaimEvidence:
    raise NotRunError("no run of it")


def whole(claim, **changes):
    """Return an entry of claims.yaml."""
    return {"sentence": f"{claim} < 1", "source": "Theorem 1", "settings": "one case", **RULE, **changes}


CHECKS = {
    "shown": lambda results: ClaimEvidence(
        [from_values("three runs", VALUES, published=1.5)], beside=[Case("beside", 7.0)]
    ),
    "denied": lambda results: ClaimEvidence([Case("first", 1.0), Case("second", -1.0)]),
    "absent": not_run,
}


@pytest.fixture
def paper(monkeypatch):
    """A paper with four claims and its checks, which may be changed."""
    entries = {name: whole(name) for name in CHECKS}
    entries["denied"] |= {"of": "shown", "margin": 0.5, "unit": "points"}
    entries["waiting"] = whole("waiting", pending="No bound is computed.")
    made = SimpleNamespace(claims=entries, code=SimpleNamespace(__name__=__name__, **CHECKS))
    monkeypatch.setattr(claims, "load", lambda key: made)
    monkeypatch.setattr(claims, "module", lambda key, name: made.code)
    return made


@pytest.fixture
def evaluated(paper, tmp_path):
    """The verdicts and the evidence of the paper."""
    return evaluate("p", Results(tmp_path))


def test_a_claim_has_its_verdict_deciding_case_and_rule(evaluated):
    verdicts = evaluated[0].set_index("claim")
    assert verdicts["verdict"].to_dict() == {
        "shown": "as stated", "denied": "refuted", "absent": "not run", "waiting": "not run",
    }  # fmt: skip
    shown, denied = verdicts.loc["shown"], verdicts.loc["denied"]
    assert (shown["case"], shown["n"], shown["published"]) == ("three runs", 3, 1.5)
    assert shown["low"] < shown["estimate"] < shown["high"] and 0 < shown["p_value"] < ALPHA
    assert denied["case"] == "second" and (denied["hold"], denied["fail"], denied["cases"]) == (1, 1, 2)
    assert (denied["of"], denied["unit"], denied["margin"]) == ("shown", "points", 0.5) and shown["of"] == "shown"
    assert set(verdicts["level"]) == {LEVEL} and set(verdicts["alpha"]) == {ALPHA}
    assert verdicts.loc["absent", "reason"] == "No run of it."
    assert verdicts.loc["waiting", "reason"] == "No bound is computed." and math.isnan(
        verdicts.loc["waiting", "estimate"]
    )


def test_evidence_is_a_row_a_case_with_the_deciding_one_first(evaluated):
    evidence = evaluated[1]
    rows = list(evidence[["claim", "case", "status"]].itertuples(index=False, name=None))
    assert rows == [
        ("shown", "three runs", "holds"), ("shown", "beside", "not counted"),
        ("denied", "second", "fails"), ("denied", "first", "holds"),
    ]  # fmt: skip
    assert set(NUMBERS) <= set(evidence.columns)
    assert evidence["within"].tolist() == [
        "above 0", "", "above 0, tested: at least -0.5", "above 0, margin 0.5"
    ]  # fmt: skip


def test_verdicts_and_evidence_are_written_as_data_and_as_a_page(evaluated, tmp_path):
    verdicts, evidence, page = write("p", evaluated, tmp_path)
    assert (verdicts, evidence) == files("p", tmp_path)
    assert read_csv(verdicts)["verdict"].tolist() == evaluated[0]["verdict"].tolist()
    assert read_csv(evidence)["estimate"].tolist() == evaluated[1]["estimate"].tolist()
    text = page.read_text()
    assert "shown &lt; 1" in text and "refuted" in text and "second: -1 points" in text


@pytest.mark.parametrize("key", keys())
def test_a_part_of_a_question_of_ours_is_one_too(key):
    known = load(key).claims
    assert all(
        claim.get("our_question") for claim in known.values() if known.get(claim.get("of"), {}).get("our_question")
    )


def test_a_question_of_ours_is_said_to_be_one_and_answered():
    asked = whole("it", sentence="Does it help?", our_question=True)
    assert said(asked) == "Our question: Does it help? (Theorem 1)"
    assert [answer(verdict, True) for verdict in Verdict] == ["yes", "in part", "no", "undecided", "not run"]
    assert [answer(verdict, False) for verdict in Verdict] == list(Verdict)


@pytest.mark.parametrize("key", keys())
def test_every_claim_of_a_paper_declares_a_rule_with_its_reason(key):
    for name, claim in load(key).claims.items():
        assert said(claim) and claim["settled_by"] and len(claim["because"]) > 5, name
    require_usable(key)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"margin": math.inf}, "margin is inf, not a number of 0 or more"),
        ({"margin": math.nan}, "margin is nan, not a number of 0 or more"),
        ({"margin": -1}, "margin is -1, not a number of 0 or more"),
        ({"margin": 1.0}, "margin is 1.0 of what"),
        ({"kind": "rate"}, "kind rate needs a margin above 0"),
        ({"kind": "equivalence"}, "kind equivalence needs a margin above 0"),
        ({"kind": "bound", "scope": "exists"}, "scope exists needs kind difference, not bound"),
    ],
)
def test_a_rule_that_cannot_say_no_is_refused(paper, tmp_path, changes, said):
    paper.claims["shown"] |= changes
    with pytest.raises(InputError, match=f"p/claims.yaml: shown: {said}"):
        evaluate("p", Results(tmp_path))


def test_a_check_that_returns_something_else_is_named(paper, tmp_path):
    paper.code.shown = lambda results: [Case("first", 1.0)]
    with pytest.raises(InputError, match=r"p/claims\.py: shown returned a list; it must return a ClaimEvidence"):
        evaluate("p", Results(tmp_path))


def below_one(first: float, second: float) -> Case:
    return Case(f"{first:g} and {second:g}", 1 - first * second)


def reading(results: Results) -> ClaimEvidence:
    results.figure("p", "rise")
    return ClaimEvidence([Case("another", float(results.table("p", "risk")["risk"].iloc[0]))])


@pytest.fixture
def both_kinds(paper, tmp_path):
    """The paper with a claim that has cases and one that reads results, its functions, and what they read."""
    cases = [{"first": [0.0, 0.5], "second": [0.5, 2.0]}, {"first": 0.1, "second": 0.2}]
    paper.claims = {"below_one": whole("below", cases=cases), "reading": whole("read")}
    paper.code = SimpleNamespace(__name__=__name__, below_one=below_one, reading=reading)
    for place in ("figures/p_rise", "tables/p_risk"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / f"{place}.csv").write_text("risk\n0.5\n")
    return paper


def test_a_claim_makes_its_cases_from_its_settings_or_from_what_it_reads(both_kinds, tmp_path):
    verdicts, evidence = evaluate("p", Results(tmp_path))
    rows = evidence[evidence["claim"] == "below_one"]
    assert dict(zip(rows["case"], rows["estimate"], strict=True)) == {
        "0 and 0.5": 1.0, "0 and 2": 1.0, "0.5 and 0.5": 0.75, "0.5 and 2": 0.0, "0.1 and 0.2": 0.98,
    }  # fmt: skip
    first, second = verdicts.to_dict("records")
    assert (first["verdict"], first["places"]) == ("refuted", "")
    assert (first["text"], first["settings"]) == ("below < 1 (Theorem 1)", "one case")
    assert (second["verdict"], second["places"]) == ("as stated", "figures/rise tables/risk")


@pytest.mark.parametrize(
    ("slip", "said"),
    [
        (lambda p: delattr(p.code, "reading"), r"claims.yaml: reading needs a function of this name"),
        (lambda p: p.claims.pop("reading"), r"claims.py: reading makes cases, but claims.yaml has no claim"),
        (lambda p: p.claims["reading"].update(pending="later"), r"claims.py: reading has cases, but claims.yaml says"),
        (lambda p: p.claims["below_one"]["cases"][1].pop("second"), r"below_one: cases: .*missing.*'second'"),
        (lambda p: setattr(p.code, "below_one", lambda first, second: 1.0), r"below_one returned a float; with cases"),
    ],
)
def test_a_slip_in_a_claim_is_named(both_kinds, tmp_path, slip, said):
    slip(both_kinds)
    with pytest.raises(InputError, match=said):
        evaluate("p", Results(tmp_path))


@pytest.mark.parametrize("key", ["sentence", "source", "settings"])
def test_a_claim_without_its_sentence_source_or_settings_is_refused(key):
    require_valid("p/claims.yaml", {"shown": whole("shown")}, "claims.yaml")
    lacking = {name: value for name, value in whole("shown").items() if name != key}
    with pytest.raises(InputError, match=f"p/claims.yaml: shown lacks {key}"):
        require_valid("p/claims.yaml", {"shown": lacking}, "claims.yaml")


def test_the_schema_knows_the_scopes_and_kinds_of_the_rules():
    claim = yaml.safe_load(SCHEMA.read_text())["properties"]["claims.yaml"]
    rule = claim["additionalProperties"]["properties"]
    assert (rule["scope"]["enum"], rule["kind"]["enum"]) == (list(Scope), list(ClaimKind))


def test_a_range_reads_as_one_number_where_its_ends_do():
    ranges = [(0.5, 1.5), (0.53589381, 0.53589383), (0.0, math.inf), (-math.inf, 1.2), (3e-13 - 0.2, math.inf)]
    assert [range_text(*each) for each in ranges] == [
        "0.5 to 1.5", "0.5359", "at least 0", "at most 1.2", "at least -0.2"
    ]  # fmt: skip
    assert [range_text(low, math.inf, strict=True) for low in (5e-324, math.nextafter(1.0, 2.0))] == [
        "above 0", "above 1"
    ]  # fmt: skip


PAPER, CLAIM = "lowy2021", {"runs": {"study": ["shuffle", "availability"]}}
CONFIG = {"scale": "demo", "papers": [PAPER]}


@pytest.fixture
def results(tmp_path):
    """Results with the configuration of a grid, and nothing run."""
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    return Results(tmp_path)


def needed(config=CONFIG):
    """The jobs that decide the claim."""
    return [each for each in expansion.expand(configuration.resolve(config)) if decides(each, CLAIM["runs"])]


def trained(results, jobs):
    """Put their run tables there."""
    for job in jobs:
        path = expansion.run_table_path(results.folder, job.paper, job.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"runs")


def judged(results, verdict, scope=Scope.FOR_ALL, claim=CLAIM):
    """The verdict and reason of a judgement after the runs that are missing were counted."""
    made = as_far_as_run(Judgement(verdict, "It holds."), Rule(scope, ClaimKind.DIFFERENCE), PAPER, claim, results)
    return made.verdict, made.reason


DECIDED = {(Scope.FOR_ALL, Verdict.REFUTED), (Scope.EXISTS, Verdict.AS_STATED)}


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("verdict", [Verdict.AS_STATED, Verdict.WEAKER, Verdict.REFUTED])
def test_a_verdict_from_a_part_of_the_runs_stands_only_where_the_rest_cannot_change_it(results, scope, verdict):
    first, *rest = needed()
    trained(results, rest)
    count = f"Of the {len(rest) + 1} jobs behind all cases, 1 was not run."
    if (scope, verdict) in DECIDED:
        assert judged(results, verdict, scope) == (verdict, f"It holds. {count}")
    else:
        assert judged(results, verdict, scope) == (Verdict.UNDECIDED, f"So far {verdict}. It holds. {count}")
    trained(results, [first])
    assert judged(results, verdict, scope) == (verdict, "It holds.")


@pytest.mark.parametrize("verdict", [Verdict.NOT_RUN, Verdict.UNDECIDED])
def test_what_is_open_stays_so_and_says_how_many_runs_are_missing(results, verdict):
    words = f"It holds. None of the {len(needed())} jobs behind its cases was run."
    assert judged(results, verdict) == (verdict, words)


def test_a_single_job_and_several_of_many_are_named_as_such(results):
    alone = {"runs": {"study": ["shuffle"]}}
    assert judged(results, Verdict.NOT_RUN, claim=alone)[1] == "It holds. Its job was not run."
    every = {"runs": {"experiment": sorted({job.experiment for job in expansion.expand(resolved())})}}
    jobs = expansion.expand(resolved())
    trained(results, jobs[2:])
    words = f"It holds. Of the {len(jobs)} jobs behind all cases, 2 were not run."
    assert judged(results, Verdict.NOT_RUN, claim=every)[1] == words


def resolved():
    """The configuration, complete."""
    return configuration.resolve(CONFIG)


def test_claims_without_runs_and_results_without_a_grid_are_left_alone(results, tmp_path):
    assert judged(results, Verdict.AS_STATED, claim={}) == (Verdict.AS_STATED, "It holds.")
    other = Results(tmp_path / "elsewhere")
    assert judged(other, Verdict.AS_STATED) == (Verdict.AS_STATED, "It holds.")


def training_job(experiment, settings, *cells):
    """A job of one seed."""
    return TrainingJob("paper", experiment, "name", settings, cells or ({"epsilon": 1.0},), (0,))


def test_a_job_decides_a_claim_where_every_named_setting_has_a_listed_value():
    price = training_job("trusted_aggregator", {"study": "price", "clients": 10})
    assert decides(price, {"study": ["price"], "clients": [10, 25], "experiment": ["trusted_aggregator"]})
    assert not decides(price, {"study": ["price"], "clients": [25]}) and not decides(price, None)
    assert decides(price, {"noise": ["none"]}) and not decides(price, {"study": ["none"]})
    zero = training_job("async_dpsgd", {"delay": 0, "noise": None})
    assert decides(zero, {"delay": [0], "noise": ["none"]}) and not decides(zero, {"delay": ["none"]})


def test_a_job_of_whose_cells_a_claim_reads_none_does_not_decide_it():
    table = training_job("fedavg_images", {"clients": 10}, {"epsilon": 1.0, "rounds": 2}, {"epsilon": 3.0, "rounds": 5})
    assert decides(table, {"clients": [10], "epsilon": [3.0], "rounds": [5]})
    assert not decides(table, {"epsilon": [3.0], "rounds": [2]})  # no one cell has both
    assert not decides(table, {"clients": [25], "epsilon": [3.0]})


@pytest.mark.parametrize("key", keys())
def test_every_claims_runs_are_jobs_of_its_paper(key):
    require_jobs(key, load(key).claims)


@pytest.mark.parametrize("runs", [{"study": ["shuffle", "shufle"]}, {"studdy": ["shuffle"]}, {"study": []}])
def test_runs_that_no_job_has_are_refused(runs):
    require_jobs(PAPER, {"shuffle": CLAIM})
    with pytest.raises(InputError, match=f"{PAPER}/claims.yaml: slip: runs names stud.*, which no job"):
        require_jobs(PAPER, {"shuffle": CLAIM, "slip": {"runs": runs}})
