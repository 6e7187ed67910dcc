"""Cases and rules against simulated data: each verdict is reached, and wrong ones as seldom as is stated."""

import math
import re
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpfl.errors import InputError
from dpfl.reporting.rules import (
    ALPHA,
    LEVEL,
    OF_QUESTION,
    Case,
    ClaimEvidence,
    ClaimKind,
    Counts,
    Rule,
    Scope,
    Status,
    Verdict,
    difference,
    from_interval,
    from_values,
    interval_cases,
    judge,
)

REPEATS = 600
CLAIMS = [Rule(scope, ClaimKind.DIFFERENCE) for scope in Scope]
FALSE_ALARM = 1e-6
"""Chance that a test of a rate below fails although the rate is as stated."""


def computed(*values: float, **facts) -> ClaimEvidence:
    return ClaimEvidence([Case(f"case {index}", value, **facts) for index, value in enumerate(values)])


def simulated(draw: np.random.Generator, effects: list[float], n: int = 8, **facts) -> ClaimEvidence:
    """One case an effect: the mean of n standard normal runs around it."""
    return ClaimEvidence([from_values(f"effect {each}", each + draw.standard_normal(n), **facts) for each in effects])


def rates(effects: list[float], rule: Rule, n: int = 8) -> dict[Verdict, float]:
    """Share of each verdict over REPEATS simulations."""
    draw = np.random.default_rng([len(effects), n, list(Scope).index(rule.scope)])
    verdicts = [judge(simulated(draw, effects, n), rule).verdict for _ in range(REPEATS)]
    return {verdict: verdicts.count(verdict) / REPEATS for verdict in Verdict}


def at_most(rate: float) -> float:
    """Return the largest share of REPEATS that a rate of this size gives, but for FALSE_ALARM."""
    return float(stats.binom.isf(FALSE_ALARM, REPEATS, rate)) / REPEATS


@pytest.mark.parametrize(
    ("evidence", "rule", "verdict"),
    [
        (computed(1, 2, 3), Rule(Scope.FOR_ALL, ClaimKind.DIFFERENCE), Verdict.AS_STATED),
        (computed(1, 2, -0.5), Rule(Scope.FOR_ALL, ClaimKind.DIFFERENCE), Verdict.REFUTED),
        (computed(1, 2, 0), Rule(Scope.FOR_ALL, ClaimKind.DIFFERENCE), Verdict.REFUTED),
        (computed(1, 2, -0.5), Rule(Scope.FOR_ALL, ClaimKind.DIFFERENCE, 1.0), Verdict.WEAKER),
        (computed(1, 2, 0), Rule(Scope.FOR_ALL, ClaimKind.NOT_WORSE), Verdict.AS_STATED),
        (computed(1, -2, -3), Rule(Scope.EXISTS, ClaimKind.DIFFERENCE), Verdict.AS_STATED),
        (computed(0.5, -2), Rule(Scope.EXISTS, ClaimKind.DIFFERENCE, 1.0), Verdict.WEAKER),
        (computed(-1, -2), Rule(Scope.EXISTS, ClaimKind.DIFFERENCE), Verdict.REFUTED),
        (computed(1, 2, -3), Rule(Scope.IN_EXPERIMENTS, ClaimKind.DIFFERENCE), Verdict.WEAKER),
        (computed(1, 2, 3), Rule(Scope.IN_EXPERIMENTS, ClaimKind.DIFFERENCE), Verdict.AS_STATED),
        (computed(1, -2, -3), Rule(Scope.IN_EXPERIMENTS, ClaimKind.DIFFERENCE), Verdict.REFUTED),
        (computed(1, -2), Rule(Scope.IN_EXPERIMENTS, ClaimKind.DIFFERENCE), Verdict.WEAKER),
        (computed(1.1, 0.9, target=1.0), Rule(Scope.FOR_ALL, ClaimKind.EQUIVALENCE, 0.2), Verdict.AS_STATED),
        (computed(1.1, 1.3, target=1.0), Rule(Scope.FOR_ALL, ClaimKind.RATE, 0.2), Verdict.REFUTED),
        (computed(0.5, 1.0, target=1.0), Rule(Scope.FOR_ALL, ClaimKind.BOUND), Verdict.AS_STATED),
        (computed(0.5, 1.1, target=1.0), Rule(Scope.FOR_ALL, ClaimKind.BOUND), Verdict.REFUTED),
        (computed(0.5, 1.1, target=1.0), Rule(Scope.FOR_ALL, ClaimKind.BOUND, 0.2), Verdict.AS_STATED),
        (computed(1.0, math.nan), Rule(Scope.FOR_ALL, ClaimKind.DIFFERENCE), Verdict.UNDECIDED),
        (ClaimEvidence(), Rule(Scope.FOR_ALL, ClaimKind.DIFFERENCE), Verdict.NOT_RUN),
    ],
)
def test_computed_numbers_decide_without_chance(evidence, rule, verdict):
    assert judge(evidence, rule).verdict is verdict


@pytest.mark.parametrize("rule", CLAIMS)
def test_what_is_plainly_true_false_or_open_is_found(rule):
    true, false = rates([3.0] * 4, rule), rates([-3.0] * 4, rule)
    assert true[Verdict.AS_STATED] > 0.95 and false[Verdict.REFUTED] > 0.95
    assert rates([0.1] * 4, rule, n=2)[Verdict.UNDECIDED] > 0.8


def test_a_claim_for_all_that_holds_barely_is_refuted_as_seldom_as_alpha():
    # Every case is at the threshold: the largest chance of a false counterexample, over 20 cases.
    assert rates([0.0] * 20, Rule(Scope.FOR_ALL, ClaimKind.DIFFERENCE))[Verdict.REFUTED] <= at_most(ALPHA)
    with_margin = Rule(Scope.FOR_ALL, ClaimKind.DIFFERENCE, 0.5)
    assert rates([-0.5] * 20, with_margin)[Verdict.REFUTED] <= at_most(ALPHA)


def test_one_false_case_among_true_ones_is_passed_as_seldom_as_alpha():
    shares = rates([4.0] * 5 + [0.0], Rule(Scope.FOR_ALL, ClaimKind.DIFFERENCE))
    assert shares[Verdict.AS_STATED] <= at_most(ALPHA)
    # More than half hold and none contradicts: what is left is the weaker statement.
    assert shares[Verdict.WEAKER] > 0.9


def test_a_case_that_only_the_correction_saves_is_counted_aloud():
    spread = np.array([-1.0, 1.0] * 5)
    saved = from_values("saved", -0.8 + spread)  # p = 0.04 of failing
    plain = [from_values(f"plain {index}", 0.1 + spread) for index in range(20)]
    rule = Rule(Scope.IN_EXPERIMENTS, ClaimKind.DIFFERENCE)
    said = judge(ClaimEvidence([saved, *plain]), rule)
    assert said.counts == Counts(open=21, fail_alone=1, short=1, on_side=20)
    assert said.reason == (
        "0 of 21 cases show it and 0 contradict it once all 21 are considered together; 21 cannot tell. Tested alone, "
        "1 case would contradict it. In 20 of 21 cases the number is on the claim's side."
    )
    failing = from_values("failing", -5 + spread)
    said = judge(ClaimEvidence([failing, saved, *plain]), rule)
    assert said.reason == (
        "1 of 22 cases contradicts it; none shows it; 21 cannot tell. Tested alone, 1 case would also contradict it."
    )
    assert judge(ClaimEvidence(plain), rule).reason == (
        "0 of 20 cases show it and 0 contradict it; 20 cannot tell. In all 20 cases the number is on the claim's side."
    )


def test_a_case_that_only_the_margin_saves_is_counted_aloud():
    spread = np.array([-1.0, 1.0] * 5)
    near, plain = from_values("near", -0.8 + spread), from_values("plain", 0.1 + spread)
    said = judge(ClaimEvidence([near, plain]), Rule(Scope.IN_EXPERIMENTS, ClaimKind.DIFFERENCE, margin=5.0))
    assert said.counts == Counts(within_margin=2, short=1, on_side=1)
    assert said.reason == (
        "0 of 2 cases show it and 0 contradict it; 2 fall short by less than the margin (5), if at all. In 1 case it "
        "falls short by more than chance. In 1 of 2 cases the number is on the claim's side."
    )


@pytest.mark.parametrize(
    ("margin", "unit", "of_cases", "words"),
    [
        (0.5, "gain of accuracy, in points =", None, "the margin (0.5 points)"),
        (1.0, "gain of accuracy, in points =", 1.0, "the margin (1 point)"),
        (0.05, "share of the excess risk saved =", None, "the margin (0.05)"),
        (0.05, "share of the excess risk saved =", 0.1, "the margin"),
    ],
)
def test_a_margin_is_said_with_its_size_unless_cases_have_their_own(margin, unit, of_cases, words):
    cases = [replace(from_values("case", np.array([0.0, 1.0])), margin=of_cases)]
    assert Rule(Scope.FOR_ALL, ClaimKind.DIFFERENCE, margin, unit).margin_in_words(cases) == words


def test_one_plain_counterexample_refutes_a_claim_for_all_and_no_other():
    effects = [3.0] * 9 + [-3.0]
    assert rates(effects, Rule(Scope.FOR_ALL, ClaimKind.DIFFERENCE))[Verdict.REFUTED] > 0.95
    assert rates(effects, Rule(Scope.IN_EXPERIMENTS, ClaimKind.DIFFERENCE))[Verdict.REFUTED] == 0
    assert rates(effects, Rule(Scope.EXISTS, ClaimKind.DIFFERENCE))[Verdict.AS_STATED] > 0.95


@pytest.mark.parametrize(("values", "said"), [((-1.0,), False), ((-1.0, 1.0), True), ((-1.0, -1.0), False)])
def test_one_counterexample_among_several_judged_cases_is_said_to_suffice(values, said):
    made = judge(replace(computed(*values), missing=1), Rule(Scope.FOR_ALL, ClaimKind.DIFFERENCE))
    assert made.verdict is Verdict.REFUTED and ("One counterexample suffices." in made.reason) is said


def test_nothing_is_found_to_exist_more_often_than_alpha():
    shares = rates([0.0] * 20, Rule(Scope.EXISTS, ClaimKind.DIFFERENCE))
    assert shares[Verdict.AS_STATED] + shares[Verdict.WEAKER] <= at_most(ALPHA)


def test_a_gain_that_may_exist_is_denied_as_seldom_as_alpha():
    # One of the cases has just the least gain worth the name, the others plainly none.
    rule = Rule(Scope.EXISTS, ClaimKind.DIFFERENCE, 1.0)
    assert rates([-4.0] * 5 + [1.0], rule)[Verdict.REFUTED] <= at_most(ALPHA)
    assert rates([-1.0] * 5, rule, n=20)[Verdict.REFUTED] > 0.95


def test_experiments_taken_together_err_as_seldom_as_alpha():
    rule = Rule(Scope.IN_EXPERIMENTS, ClaimKind.DIFFERENCE)
    shares = rates([0.0] * 9, rule)
    assert shares[Verdict.AS_STATED] + shares[Verdict.WEAKER] + shares[Verdict.REFUTED] <= at_most(ALPHA)


def test_experiments_that_all_fail_by_their_own_test_refute_what_is_said_of_them():
    rule = Rule(Scope.IN_EXPERIMENTS, ClaimKind.DIFFERENCE)
    spread = np.array([-1.0, 1.0] * 5)
    near = [from_values(f"near {index}", -0.8 + spread) for index in range(4)]  # p = 0.04 of failing, each
    said = judge(ClaimEvidence(near), rule)
    assert said.verdict is Verdict.REFUTED and said.reason == "All 4 cases, each tested alone, contradict it."
    assert said.counts.fail == 0  # none does once all four are considered together
    assert judge(ClaimEvidence(near, missing=1), rule).verdict is Verdict.UNDECIDED
    assert judge(ClaimEvidence([*near, from_values("plain", 0.1 + spread)]), rule).verdict is Verdict.UNDECIDED
    # A true case among them would have to fail its own test.
    assert rates([0.0, -1.0], rule, n=100)[Verdict.REFUTED] <= at_most(ALPHA)


@pytest.mark.parametrize("kind", [ClaimKind.EQUIVALENCE, ClaimKind.RATE])
def test_equality_needs_a_margin_and_enough_runs(kind):
    rule = Rule(Scope.FOR_ALL, kind, 0.5)
    assert rates([0.0] * 3, rule, n=200)[Verdict.AS_STATED] > 0.95
    assert rates([0.0] * 3, rule, n=3)[Verdict.AS_STATED] <= at_most(ALPHA)  # no difference found is no equality
    assert rates([0.5, 0.0, 0.0], rule, n=100)[Verdict.AS_STATED] <= at_most(ALPHA)
    assert rates([0.5, 0.0, 0.0], rule, n=100)[Verdict.REFUTED] <= at_most(ALPHA)
    assert rates([1.5, 0.0, 0.0], rule, n=100)[Verdict.REFUTED] > 0.95


def test_a_loss_within_the_margin_leaves_the_weaker_statement():
    shares = rates([2.0, -0.3], Rule(Scope.FOR_ALL, ClaimKind.DIFFERENCE, 1.0), n=100)
    assert shares[Verdict.WEAKER] > 0.95
    cases = judge(
        simulated(np.random.default_rng(0), [2.0, -0.3], 100), Rule(Scope.FOR_ALL, ClaimKind.DIFFERENCE, 1.0)
    ).cases
    assert [each.status for each in cases] == [Status.WITHIN_MARGIN, Status.HOLDS]


@pytest.mark.parametrize("rule", CLAIMS)
def test_a_single_run_decides_nothing(rule):
    single = ClaimEvidence([from_values(f"case {index}", [100.0]) for index in range(5)])
    judgement = judge(single, rule)
    assert judgement.verdict is Verdict.UNDECIDED and judgement.counts == Counts(open=5, single=5, on_side=5)
    side = "" if rule.scope is Scope.EXISTS else " In all 5 cases the number is on the claim's side."
    assert judgement.reason.endswith(f"; 5 have a single run on at least one side, which no test can judge.{side}")
    assert judge(ClaimEvidence(single.cases[:1]), rule).reason.endswith(
        "It has a single run on at least one side, which no test can judge."
    )


def test_an_only_case_within_the_margin_says_so():
    judgement = judge(
        ClaimEvidence([Case("c", -0.2, 0.1, 10, 9)]),
        Rule(Scope.FOR_ALL, ClaimKind.DIFFERENCE, 1.0, "gain, in points ="),
    )
    assert (judgement.verdict, judgement.reason) == (
        Verdict.WEAKER,
        "Its only case falls short by less than the margin (1 point), if at all.",
    )


def test_cases_with_a_single_run_are_tests_to_come():
    """A single run has no p-value, but once it has more runs it is a case like the others."""
    rule = Rule(Scope.FOR_ALL, ClaimKind.DIFFERENCE)
    fails = from_values("fails", [-1.0, -1.2, -0.9, -1.1, -0.5])
    alone = [from_values(f"single {index}", [1.0]) for index in range(5)]
    p_value = judge(ClaimEvidence([fails]), rule).cases[0].p_value
    judged = judge(ClaimEvidence([fails, *alone]), rule)
    assert judged.counts.single == 5 and judged.cases[0].adjusted_p == pytest.approx(6 * p_value)
    assert judged.cases[0].adjusted_p == judge(ClaimEvidence([fails], missing=5), rule).cases[0].adjusted_p


def test_a_lead_over_the_best_of_several_does_not_fall_short():
    rule = Rule(Scope.FOR_ALL, ClaimKind.DIFFERENCE, margin=5.0)
    evidence = ClaimEvidence([from_values(f"case {index}", [-1.0, -1.1, -0.9, -1.0]) for index in range(2)])
    assert "falls short" in judge(evidence, rule).reason
    judged = judge(replace(evidence, best_of_several=True), rule)
    assert "falls short" not in judged.reason and judged.counts.short == 0


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        (Counts(open=1, fail_alone=1, short=1), ""),
        (
            Counts(open=4, single=4, on_side=4),
            "None of the 4 cases shows it and none contradicts it. Most have a single run, which no test can judge. In "
            "all 4 cases the number is on the claim's side.",
        ),
        (Counts(hold=1, fail=2, open=1), "1 of the 4 cases shows it and 2 contradict it."),
        (Counts(hold=2, fail=1, open=1, single=1, missing=9), "2 of the 4 cases show it and 1 contradicts it."),
        (
            Counts(open=4, fail_alone=1, short=3, on_side=1),
            "None of the 4 cases shows it and none contradicts it. Tested alone, 1 case would contradict it. In 1 of 4 "
            "cases the number is on the claim's side.",
        ),
        (
            Counts(hold=1, open=3, hold_alone=2, on_side=4),
            "1 of the 4 cases shows it and none contradicts it. Tested alone, 2 cases would also show it. "
            "In all 4 cases the number is on the claim's side.",
        ),
        (
            Counts(open=3, fail=1, fail_alone=2, short=2),
            "None of the 4 cases shows it and 1 contradicts it. Tested alone, 2 cases would also contradict it.",
        ),
        (
            Counts(open=2, within_margin=2, short=2),
            "None of the 4 cases shows it and none contradicts it. In 2 cases it falls short by more than chance, but "
            "perhaps by less than the margin (1 point). In 0 of 4 cases the number is on the claim's side.",
        ),
    ],
)
def test_an_undecided_claim_says_why_in_short(counts, said):
    """A case whose interval alone looks like a contradiction is named."""
    assert counts.why_undecided("the margin (1 point)") == said
    assert Counts.of(pd.DataFrame([asdict(counts)]).astype(float).iloc[0]) == counts


@pytest.mark.parametrize(
    ("counts", "of_claim", "of_question"),
    [
        (Counts(hold=2), "Shown in both cases.", "Yes in both cases."),
        (Counts(fail=2), "Both cases contradict it.", "Both cases say no."),
        (Counts(fail=1), "Its only case contradicts it.", "Its only case says no."),
        (Counts(hold=1, fail=1), "1 of 2 cases contradicts it; 1 shows it.", "1 of 2 cases says no; 1 says yes."),
        (Counts(fail=2, open=1), "2 of 3 cases contradict it; none shows it", "2 of 3 cases say no; none says yes"),
        (
            Counts(hold=1, open=2, fail_alone=1),
            "1 of 3 cases shows it and 0 contradict it once all 3 are considered together; 2 cannot tell. "
            "Tested alone, 1 case would contradict it.",
            "1 of 3 cases says yes and 0 say no once all 3 are considered together; 2 cannot tell. "
            "Tested alone, 1 case would say no. In 0 of 3 cases the number is on the side of a yes.",
        ),
        (
            Counts(open=3, hold_alone=2, fail_alone=1, on_side=2),
            "0 of 3 cases show it and 0 contradict it once all 3 are considered together; 3 cannot tell. "
            "Tested alone, 2 cases would show it and 1 would contradict it. In 2 of 3 cases",
            "0 of 3 cases say yes and 0 say no once all 3 are considered together; 3 cannot tell. "
            "Tested alone, 2 cases would say yes and 1 would say no. In 2 of 3 cases",
        ),
    ],
)
def test_a_case_shows_a_claim_and_answers_a_question(counts, of_claim, of_question):
    assert counts.sentence("the margin").startswith(of_claim)
    assert counts.sentence("the margin", OF_QUESTION).startswith(of_question)


def test_a_case_that_can_be_tested_goes_before_single_runs():
    tested = simulated(np.random.default_rng(6), [0.0, 5.0]).cases
    single = [from_values(f"single {value}", [value]) for value in (-100.0, 100.0)]
    judgement = judge(ClaimEvidence([*single, *tested]), Rule(Scope.FOR_ALL, ClaimKind.DIFFERENCE))
    assert judgement.verdict is Verdict.UNDECIDED and judgement.cases[0].case.case == "effect 0.0"
    assert judgement.reason == (
        "1 of 4 cases shows it and 0 contradict it; 2 have a single run on at least one side, which no test can judge; "
        "1 cannot tell. In 3 of 4 cases the number is on the claim's side."
    )


def test_cases_are_found_within_a_margin_by_chance_as_seldom_as_alpha():
    # All cases miss by just the margin: without a correction one in twenty would be taken for within it.
    rule, draw = Rule(Scope.FOR_ALL, ClaimKind.DIFFERENCE, 1.0), np.random.default_rng(7)
    found = sum(judge(simulated(draw, [-1.0] * 20), rule).counts.within_margin > 0 for _ in range(REPEATS))
    assert found / REPEATS <= at_most(ALPHA)


@pytest.mark.parametrize("rule", CLAIMS)
@pytest.mark.parametrize("effect", [5.0, -5.0])
def test_stand_in_data_decide_nothing(rule, effect):
    evidence = simulated(np.random.default_rng(3), [effect] * 3, stand_in="digits")
    judgement = judge(evidence, rule)
    would_be = judge(simulated(np.random.default_rng(3), [effect] * 3), rule).verdict
    assert judgement.verdict is Verdict.UNDECIDED
    assert judgement.reason.startswith("It was run on stand-in data only (digits)")
    assert f"'{would_be}'" in judgement.reason
    assert [each.status for each in judgement.cases].count(Status.STAND_IN) == 3
    single = ClaimEvidence([from_values("case", [1.0], stand_in="digits")])
    assert judge(single, rule).reason == "It was run on stand-in data only (digits), so there is no verdict."


def test_stand_in_data_beside_real_ones_count_as_not_run():
    draw, rule = np.random.default_rng(4), Rule(Scope.FOR_ALL, ClaimKind.DIFFERENCE)
    real, other = simulated(draw, [5.0]), simulated(draw, [-5.0, -5.0], stand_in="digits")
    judgement = judge(ClaimEvidence([*real.cases, *other.cases]), rule)
    assert judgement.verdict is Verdict.UNDECIDED and judgement.counts.missing == 2
    assert [each.status for each in judgement.cases] == [Status.HOLDS, Status.STAND_IN, Status.STAND_IN]


def test_what_was_not_run_keeps_a_claim_open_and_saves_no_refuted_one():
    rule = Rule(Scope.FOR_ALL, ClaimKind.DIFFERENCE)
    assert judge(ClaimEvidence(computed(1, 2).cases, missing=2), rule).verdict is Verdict.UNDECIDED
    most = judge(ClaimEvidence(computed(1, 2, 3).cases, missing=2), rule)
    assert most.verdict is Verdict.WEAKER and "2 more cases were not run" in most.reason
    assert judge(ClaimEvidence(computed(1, -2).cases, missing=50), rule).verdict is Verdict.REFUTED
    nothing = judge(ClaimEvidence(missing=3, absent="Too few clients."), rule)
    assert nothing.verdict is Verdict.NOT_RUN and nothing.reason == "Too few clients." and nothing.cases == []


def test_no_case_contradicts_a_claim_that_needs_one():
    cases = [from_values(f"case {mean}", mean + np.array([-1.0, 0.0, 1.0])) for mean in (-90.0, 0.1, 0.2)]
    judgement = judge(ClaimEvidence(cases), Rule(Scope.EXISTS, ClaimKind.DIFFERENCE))
    assert judgement.verdict is Verdict.UNDECIDED
    assert judgement.reason == (
        "None of the 3 cases shows it, and one would be enough; 1 misses it by more than chance; 2 cannot tell."
    )


def test_a_case_that_alone_would_show_a_claim_is_named_where_all_of_them_do_not():
    """Its interval alone is above the target."""
    cases = [from_values(f"case {mean}", mean + np.array([-1.0, 0.0, 1.0])) for mean in (3.0, 0.1, 0.2)]
    judgement = judge(ClaimEvidence(cases), Rule(Scope.EXISTS, ClaimKind.DIFFERENCE))
    assert judgement.verdict is Verdict.UNDECIDED and judgement.counts.hold_alone == 1
    assert judgement.reason == (
        "None of the 3 cases shows it, and one would be enough; 3 cannot tell. Tested alone, 1 case would show it; "
        "adjusted for all 3, none does."
    )


@pytest.mark.parametrize(("scope", "side"), [(Scope.FOR_ALL, -1), (Scope.EXISTS, 1)])
def test_cases_that_were_not_run_are_of_the_family_so_that_a_final_verdict_stays(scope, side):
    def case(p_value: float, side: int) -> Case:
        return Case("a", side * stats.t.ppf(1 - p_value / 2, 10), 1.0, 11, 10)

    rule, ran = Rule(scope, ClaimKind.DIFFERENCE), [case(0.02, side), case(0.9, 1)]
    assert judge(ClaimEvidence(ran), rule).verdict in (Verdict.REFUTED, Verdict.AS_STATED)
    assert judge(ClaimEvidence(ran, missing=20), rule).verdict is Verdict.UNDECIDED
    assert judge(ClaimEvidence([*ran, *[case(0.9, 1)] * 20]), rule).verdict is Verdict.UNDECIDED


def test_runs_that_all_gave_the_same_decide_nothing():
    rule = Rule(Scope.FOR_ALL, ClaimKind.DIFFERENCE)
    made = judge(ClaimEvidence([from_values("both at chance", [-0.01, -0.01])]), rule)
    assert made.verdict is Verdict.UNDECIDED and math.isnan(made.cases[0].p_value)


def test_the_deciding_case_comes_first():
    refuted = judge(computed(1, -0.5, -3, 2), Rule(Scope.FOR_ALL, ClaimKind.DIFFERENCE)).cases
    assert refuted[0].case.estimate == -3 and [each.status for each in refuted[:2]] == [Status.FAILS] * 2
    assert judge(computed(1, 0.2, 3), Rule(Scope.FOR_ALL, ClaimKind.DIFFERENCE)).cases[0].case.estimate == 0.2
    assert judge(computed(-1, 0.2, 3), Rule(Scope.EXISTS, ClaimKind.DIFFERENCE)).cases[0].case.estimate == 3
    assert judge(computed(-1, -0.2, -3), Rule(Scope.EXISTS, ClaimKind.DIFFERENCE)).cases[0].case.estimate == -0.2
    beside = judge(
        ClaimEvidence(computed(1).cases, beside=[Case("beside", 9.0)]), Rule(Scope.FOR_ALL, ClaimKind.DIFFERENCE)
    )
    assert [each.status for each in beside.cases] == [Status.HOLDS, Status.BESIDE]


def test_p_values_are_those_of_the_side_that_decides():
    draw = np.random.default_rng(5)
    judgement = judge(simulated(draw, [5.0, -5.0, 0.0]), Rule(Scope.FOR_ALL, ClaimKind.DIFFERENCE))
    by_status = {each.status: each for each in judgement.cases}
    assert by_status[Status.FAILS].p_value < by_status[Status.FAILS].adjusted_p < ALPHA
    assert by_status[Status.HOLDS].adjusted_p < ALPHA < by_status[Status.OPEN].adjusted_p
    assert math.isnan(judge(computed(1), Rule(Scope.FOR_ALL, ClaimKind.DIFFERENCE)).cases[0].p_value)


def test_an_open_case_on_the_other_side_has_the_p_values_that_it_fails():
    """Holm: 3 tests, so a case that fails alone with p = 0.03 is open with 0.09."""
    error = 1 / stats.t.isf(0.015, 19)  # a two-sided p of 0.03 for a mean of -1
    cases = [
        Case("against", -1.0, error, 20, 19),
        Case("for", 9.0, error, 20, 19),
        Case("for as well", 9.0, error, 20, 19),
    ]
    judgement = judge(ClaimEvidence(cases), Rule(Scope.FOR_ALL, ClaimKind.DIFFERENCE))
    [against] = [each for each in judgement.cases if each.case.case == "against"]
    assert against.status is Status.OPEN
    assert (against.p_value, against.adjusted_p) == pytest.approx((0.03, 0.09))


@given(st.lists(st.tuples(st.floats(-3, 3), st.floats(0, 2), st.integers(1, 9)), min_size=1, max_size=8), st.data())
def test_any_evidence_gets_one_verdict_and_keeps_every_case(drawn, data):
    rule = Rule(data.draw(st.sampled_from(Scope)), data.draw(st.sampled_from(ClaimKind)), data.draw(st.floats(0, 1)))
    cases = [Case(f"case {index}", *each[:2], each[2] + 1, each[2]) for index, each in enumerate(drawn)]
    missing = data.draw(st.integers(0, 5))
    judgement = judge(ClaimEvidence(cases, missing), rule)
    assert sorted(each.case.case for each in judgement.cases) == sorted(each.case for each in cases)
    statuses = [each.status for each in judgement.cases]
    if judgement.verdict is Verdict.AS_STATED and rule.scope is Scope.FOR_ALL:
        assert set(statuses) == {Status.HOLDS} and not missing
    if judgement.verdict is Verdict.REFUTED:
        assert Status.FAILS in statuses or rule.scope is Scope.EXISTS
    if judgement.verdict is Verdict.UNDECIDED:
        assert missing or set(statuses) != {Status.HOLDS}


numbers = st.floats(-5, 5)
errors = st.floats(0.01, 3)


def test_values_give_the_paired_t_test_of_scipy():
    values = np.random.default_rng(0).normal(0.4, 1.0, 12)
    case = from_values("case", values)
    test = stats.ttest_1samp(values, 0.0)
    assert case.p_outside(0.0, math.inf) == pytest.approx(test.pvalue, rel=1e-12)
    assert case.interval() == pytest.approx(tuple(test.confidence_interval(LEVEL)), rel=1e-12)
    assert case.n == 12


def test_a_missing_value_is_left_out_and_one_run_has_no_interval():
    assert from_values("case", [1.0, math.nan, 3.0]).n == 2
    single = from_values("case", [1.0])
    assert single.n == 1 and all(map(math.isnan, single.interval())) and math.isnan(single.p_outside(0, math.inf))
    assert math.isnan(from_interval("case", 1, 1.0, math.nan, level=0.9).error)
    assert math.isnan(from_values("case", []).estimate)


@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
@pytest.mark.parametrize("n", [2, 3, 7])
def test_an_interval_of_any_level_gives_the_same_case(level, n):
    values = np.random.default_rng(1).normal(size=n)
    half = stats.t.ppf(0.5 + level / 2, n - 1) * values.std(ddof=1) / math.sqrt(n)
    case, right = from_interval("case", n, values.mean(), half, level=level), from_values("case", values)
    assert case.error == pytest.approx(right.error, rel=1e-12) and case.freedom == right.freedom


@given(numbers, errors, numbers, st.integers(1, 30))
def test_interval_and_test_agree_on_a_threshold(estimate, error, threshold, freedom):
    case = Case("case", estimate, error, freedom + 1, freedom)
    low, high = case.interval()
    if min(abs(low - threshold), abs(high - threshold)) < 1e-6:
        return
    assert (case.p_outside(threshold, math.inf) < ALPHA) == (low > threshold)
    assert (case.p_inside(threshold, math.inf) < ALPHA) == (high < threshold)


@given(numbers, errors, st.floats(0.1, 4), st.integers(1, 30))
def test_equivalence_is_two_one_sided_tests(estimate, error, margin, freedom):
    case = Case("case", estimate, error, freedom + 1, freedom)
    low, high = case.interval()
    if min(abs(low + margin), abs(high - margin), abs(low - margin), abs(high + margin)) < 1e-6:
        return
    assert (case.p_outside(-margin, margin) < ALPHA) == (-margin < low and high < margin)
    assert (case.p_inside(-margin, margin) < ALPHA) == (low > margin or high < -margin)


@given(numbers, numbers, numbers)
def test_a_computed_number_has_no_chance_in_it(estimate, one, other):
    low, high = sorted((one, other))
    case = Case("case", estimate)
    assert case.p_outside(low, high) == float(not low <= estimate <= high) == 1 - case.p_inside(low, high)
    assert case.interval() == (estimate, estimate)


def test_the_difference_of_separate_runs_has_the_error_of_welch_and_the_freedom_of_the_fewer_runs():
    draw = np.random.default_rng(2)
    one, two = draw.normal(1.0, 1.0, 5), draw.normal(0.0, 3.0, 9)
    case = difference("case", from_values("", one), from_values("", two), published=1.5)
    welch = stats.ttest_ind(one, two, equal_var=False)
    assert case.estimate / case.error == pytest.approx(welch.statistic, rel=1e-10)
    assert case.p_outside(0.0, math.inf) == pytest.approx(2 * stats.t.sf(welch.statistic, 4), rel=1e-10)
    assert case.freedom == 4 and case.published == 1.5
    single = difference("case", from_values("", one), from_values("", [1.0]))
    assert math.isnan(single.error)
    assert difference("case", Case("", 3.0), Case("", 1.0)).interval() == (2.0, 2.0)


@pytest.mark.parametrize("scatter", [0.2, 1.0, 5.0])
def test_ten_runs_against_two_are_found_to_differ_no_more_often_than_the_level_says(scatter):
    """At levels of Holm's adjustment, where Welch's degrees of freedom err ten times as often.

    This test is wrong once in 10^6 at most.
    """
    pairs, level = 4_000, 0.002
    rng = np.random.default_rng(3)
    found = 0
    for _ in range(pairs):
        many, few = from_values("", rng.standard_normal(10)), from_values("", scatter * rng.standard_normal(2))
        found += difference("", many, few).p_inside(0.0, math.inf) < level  # in one direction: half the level
    assert found <= stats.binom.ppf(1 - 1e-6, pairs, level / 2)


def test_a_row_is_the_case_of_its_interval_and_names_the_data_that_stand_in():
    data = pd.DataFrame({"dataset": ["a", "b"], "stand_in_for": ["", "c"], "seeds": [3, 1], "mean": [2.0, 4.0]})
    one, other = interval_cases(data, "on {dataset}", data["mean"] / 2, data["mean"], runs="seeds", target=1.0)
    wanted = from_interval("on a", 3, 1.0, 2.0, level=0.9, target=1.0)
    np.testing.assert_equal(asdict(one), asdict(wanted))  # here nan equals nan
    assert (other.case, other.n, other.stand_in) == ("on b", 1, "b") and np.isnan(other.error)


def test_a_number_that_no_run_gives_is_a_case_without_runs():
    case = from_interval("case", math.nan, math.nan, math.nan, level=0.9, target=0.0)
    assert case.n == 0 and math.isnan(case.estimate) and math.isnan(case.p_outside(-1.0, 1.0))


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"target": math.nan}, "target is nan"),
        ({"error": -1.0}, "must be at least 0"),
        ({"margin": -0.1}, "must be at least 0"),
        ({"margin": math.nan}, "must be at least 0"),
        ({"kind": "difference"}, "kind is 'difference'; it must be a ClaimKind"),
    ],
)
def test_a_case_that_would_decide_by_a_slip_is_refused(facts, said):
    with pytest.raises(InputError, match=re.escape(said)):
        Case("case", 1.0, **facts)


@pytest.mark.parametrize("level", [0.0, 1.0, 90])
def test_a_level_in_per_cent_is_refused(level):
    with pytest.raises(InputError, match="it must be a share"):
        from_interval("case", 5, 1.0, 0.1, level=level)
