"""Rules that turn the cases of a claim into a verdict. CHANGELOG.md says which of them changed after the runs.

A claim declares in claims.yaml, with the reason: its `scope`, its `kind` (`ClaimKind`), and a `margin` where it has
one. Its check returns `ClaimEvidence`: cases, each a number with its uncertainty and the target that the claim sets it.
Tests are Student's t (scipy), two-sided, so that a test at ALPHA and an interval at LEVEL always agree.

A case by itself:

    holds           the number is where the claim says, significantly
    within margin   it is not shown to be there, but shown to miss it by less than the margin, if at all (kind
                    difference alone)
    fails           it is significantly elsewhere, by more than the margin: a counterexample
    open            neither, or a single run, which has no interval and cannot be tested

All three are decided on p-values adjusted by Holm over all cases of the claim that have an uncertainty, so that the
chance of any false counterexample is at most ALPHA; where every case passes its own test, none is adjusted. Computed
numbers decide by themselves, without error. Nothing is adjusted over the claims of a paper.

A claim, by its scope:

    for all         refuted: one case fails.
                    as stated: every case holds; this needs no correction, as a single false case would have to pass
                    its own test (intersection-union). weaker than stated: no case fails, and either all are within
                    the margin at least, or more than half of them hold.
    exists          a claim of "may" or "can". As stated: one case holds. Weaker than stated: one holds, but each that
                    does is significantly below the margin, here the least gain worth the name. Refuted: every case
                    is significantly below the margin, each tested at ALPHA.
    in experiments  a claim about a set of experiments taken together. As stated: every case holds, or more than half
                    hold and none fails. Refuted: more than half fail, or every case does, each tested at ALPHA (then a
                    true case would have to fail its own test). Weaker than stated: some hold and some fail.

Everything else is undecided. Cases that a claim covers and that were not run (`missing`) count as open; without any the
verdict is not run. Cases on stand-in data never count: if there are no others, the claim is undecided. "More than
half" is the least share that can be called "mostly". Weaker than stated does not say that the rest is false.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import special, stats

from dpfl.errors import InputError
from dpfl.reporting.statistics import LEVEL as BAR_LEVEL
from dpfl.reporting.statistics import holm

if TYPE_CHECKING:
    import pandas as pd

# Cases of a claim: one number each with its uncertainty, what the claim says it should be, and its tests.

LEVEL = 0.95
"""Of every interval in the evidence, whatever level the paper's own bars have: 1 - ALPHA, so that an interval excludes
a threshold exactly where the two-sided p-value is below ALPHA."""
ALPHA = 0.05
"""Chance of a wrong decision on a case, and (by Holm) of any wrong counterexample in all the cases of a claim."""


class ClaimKind(StrEnum):
    """Kind of statement that a claim makes about the number of a case."""

    DIFFERENCE = "difference"
    """The number is above its target."""
    NOT_WORSE = "not worse"
    """The number is above its target less the margin."""
    BOUND = "bound"
    """The number is at most its target; the margin is what rounding may add."""
    EQUIVALENCE = "equivalence"
    """The number is within the margin of its target (two one-sided tests)."""
    RATE = "rate"
    """As equivalence; the number is an exponent, a factor or a ratio of growth."""
    FORMULA = "formula"
    """As equivalence; the number is computed by another route than the target, the margin is numerical."""


@dataclass(frozen=True)
class Case:
    """One case of a claim.

    `estimate` with its standard `error` (0 for a computed number, nan for a single run) comes from `n` runs (0 where
    it is computed), tested by Student's t with `freedom` degrees of freedom. `target` is what the claim compares it
    with; `margin` and `kind` are the claim's where they are None. `published`: the same number by the paper's print.
    `stand_in` names the data that stand in for the published ones.
    """

    case: str
    estimate: float
    error: float = 0.0
    n: int = 0
    freedom: float = math.inf
    target: float = 0.0
    margin: float | None = None
    kind: ClaimKind | None = None
    published: float = math.nan
    stand_in: str = ""

    def __post_init__(self) -> None:
        """Raise InputError for numbers that would give a verdict of their own: a target of nan, a negative error."""
        if math.isnan(self.target):
            raise InputError(f"case {self.case}: target is nan; it must be a number")
        if self.error < 0 or (self.margin is not None and not self.margin >= 0):
            raise InputError(f"case {self.case}: error {self.error} and margin {self.margin} must be at least 0")
        if self.kind is not None and not isinstance(self.kind, ClaimKind):
            raise InputError(f"case {self.case}: kind is {self.kind!r}; it must be a ClaimKind")

    def interval(self) -> tuple[float, float]:
        """Return the two ends of the interval of `estimate` at LEVEL, nan for a single run."""
        half = float(stats.t.ppf(0.5 + LEVEL / 2, self.freedom)) * self.error if self.error else self.error
        return self.estimate - half, self.estimate + half

    def p_outside(self, low: float, high: float) -> float:
        """Return the p-value against `low <= number <= high` being false: small where the number is inside.

        Two-sided at each end, the larger of both (two one-sided tests). 0 or 1 for a computed number, nan for a
        single run, and for runs that all gave the same: their scatter is not known.
        """
        if self._is_untestable():
            return math.nan
        if not self.error:
            return float(not low <= self.estimate <= high)
        return max(self._two_sided(self.estimate - low), self._two_sided(high - self.estimate))

    def p_inside(self, low: float, high: float) -> float:
        """Return the p-value against `low <= number <= high`: small where it is outside; else as `p_outside`."""
        if self._is_untestable():
            return math.nan
        if not self.error:
            return float(low <= self.estimate <= high)
        return min(self._two_sided(low - self.estimate), self._two_sided(self.estimate - high))

    def _is_untestable(self) -> bool:
        """Return whether there is no number, or no scatter that a test could measure it by."""
        return math.isnan(self.estimate) or math.isnan(self.error) or (self.n > 0 and not self.error)

    def _two_sided(self, distance: float) -> float:
        """Return the two-sided p-value of a distance in the direction that is tested; 1 in the other direction."""
        score = -distance / self.error
        below = special.stdtr(self.freedom, score) if math.isfinite(self.freedom) else special.ndtr(score)
        return min(1.0, 2 * float(below))


def from_interval(case: str, n: int, estimate: float, half_width: float, *, level: float, **facts: Any) -> Case:
    """Return the case of a mean of `n` runs with the half-width of its interval by Student's t at `level`.

    `facts` are further fields of `Case`. Below two runs the error is nan; nan runs, if no number could be computed
    from what was run, are none.
    """
    if not 0 < level < 1:
        raise InputError(f"case {case}: level is {level}; it must be a share, between 0 and 1")
    n = 0 if math.isnan(n) else n
    freedom = n - 1
    error = float(half_width / stats.t.ppf(0.5 + level / 2, freedom)) if n >= 2 else math.nan
    return Case(case, float(estimate), error, int(n), freedom, **facts)


def interval_cases(
    rows: pd.DataFrame,
    named: str,
    estimate: pd.Series,
    half_width: pd.Series,
    *,
    runs: str = "runs",
    level: float = BAR_LEVEL,
    target: pd.Series | float = 0.0,
) -> list[Case]:
    """Return the case of every row: the mean of as many runs as its column `runs` says, with its interval at `level`.

    `named` is the format of a case's name, from the row's columns. A row with a `stand_in_for` is of stand-in data.
    """
    numbers = zip(estimate, half_width, np.broadcast_to(target, len(rows)), strict=True)
    return [
        from_interval(
            named.format(**row), row[runs], value, half, level=level, target=wanted,
            stand_in=row["dataset"] if row.get("stand_in_for") else "",
        )
        for row, (value, half, wanted) in zip(rows.to_dict("records"), numbers, strict=True)
    ]  # fmt: skip


def from_values(case: str, values: Iterable[float], **facts: Any) -> Case:
    """Return the case of the mean of values, one a run; missing ones (nan) are left out."""
    known = np.asarray(list(values), dtype=np.float64)
    known = known[~np.isnan(known)]
    n = len(known)
    error = float(known.std(ddof=1)) / math.sqrt(n) if n >= 2 else math.nan
    return Case(case, float(known.mean()) if n else math.nan, error, n, n - 1, **facts)


def difference(case: str, first: Case, second: Case, **facts: Any) -> Case:
    """Return the case of the first number minus the second by Student's t-test, as if their runs were separate.

    The degrees of freedom are those of the fewer runs: the test keeps its level whatever the two variances are. Welch's
    are more, and with ten runs against two too many p-values are small. Source: qiu2017, which extends this bound of
    Hsu (1938).

    Runs of one seed often share their data and their noise. As a rule that makes the difference vary less than separate
    runs would, and the test is then cautious.
    """
    error = math.hypot(first.error, second.error)
    freedom = min(first.freedom, second.freedom)
    return Case(case, first.estimate - second.estimate, error, min(first.n, second.n), freedom, **facts)


class Verdict(StrEnum):
    """Verdict on a claim."""

    AS_STATED = "as stated"
    WEAKER = "weaker than stated"
    REFUTED = "refuted"
    UNDECIDED = "undecided"
    NOT_RUN = "not run"


class Scope(StrEnum):
    """Scope of a claim over its cases."""

    FOR_ALL = "for all"
    EXISTS = "exists"
    IN_EXPERIMENTS = "in experiments"


class Status(StrEnum):
    """Status of one case."""

    HOLDS = "holds"
    WITHIN_MARGIN = "within margin"
    FAILS = "fails"
    OPEN = "open"
    STAND_IN = "stand-in data"
    BESIDE = "not counted"


class Words(NamedTuple):
    """What a case does to a claim, or says to a question of ours: of one case, and of several."""

    shows: tuple[str, str]
    contradicts: tuple[str, str]
    everywhere: str
    counterexample: str
    side: str

    def show(self, number: int) -> str:
        """Say that so many cases show the claim, without the number: "shows it", "say yes"."""
        return self.shows[number > 1]

    def contradict(self, number: int) -> str:
        """Say that so many cases contradict the claim, without the number: "contradicts it", "say no"."""
        return self.contradicts[number > 1]


OF_CLAIM = Words(
    ("shows it", "show it"), ("contradicts it", "contradict it"), "Shown", "counterexample", "the claim's side"
)
OF_QUESTION = Words(("says yes", "say yes"), ("says no", "say no"), "Yes", "no", "the side of a yes")


@dataclass(frozen=True)
class Rule:
    """Rule of a claim, as claims.yaml declares it."""

    scope: Scope
    kind: ClaimKind
    margin: float = 0.0
    unit: str = ""
    words: Words = OF_CLAIM

    def margin_in_words(self, cases: Iterable[Case]) -> str:
        """Return "the margin" with its size, unless cases have margins of their own: "the margin (0.5 points)"."""
        if any(case.margin not in (None, self.margin) for case in cases):
            return "the margin"
        points = " points" if self.unit.removesuffix(" =").endswith("in points") else ""
        return f"the margin ({self.margin:g}{points.removesuffix('s') if self.margin == 1 else points})"


@dataclass(frozen=True)
class ClaimEvidence:
    """Evidence for a claim: its cases, how many more it covers that were not run, and numbers that do not count.

    `absent` says why there is no case, for a reader, if there is none. `best_of_several`: the case's number is a lead
    over the best of several others, which is below 0 by chance alone, so misses of the claim mean nothing.
    """

    cases: list[Case] = field(default_factory=list)
    missing: int = 0
    beside: list[Case] = field(default_factory=list)
    absent: str = "No case was run."
    best_of_several: bool = False


@dataclass(frozen=True)
class Judged:
    """A case with its status, and the p-value behind it, as tested and adjusted (nan for computed numbers)."""

    case: Case
    status: Status
    p_value: float = math.nan
    adjusted_p: float = math.nan


@dataclass(frozen=True)
class Counts:
    """Numbers of cases behind a verdict, and the sentences that are made from them.

    `hold`, `within_margin`, `fail` and `open` count the judged cases by status; `missing` were not run. `single` of the
    open ones have a single run. Of the cases that do not fail, `fail_alone` would if each were tested alone, and
    `short` miss the claim by more than chance, also tested alone; of those that do not hold, `hold_alone` would. The
    number itself, whatever its interval, is where the claim says in `on_side`. The claims' table has a column for each.
    """

    hold: int = 0
    within_margin: int = 0
    fail: int = 0
    open: int = 0
    missing: int = 0
    single: int = 0
    fail_alone: int = 0
    short: int = 0
    hold_alone: int = 0
    on_side: int = 0

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Counts:
        """Return the counts in a row of the claims' table."""
        return cls(**{each.name: int(row[each.name]) for each in fields(cls)})

    @property
    def judged(self) -> int:
        """Cases that were judged."""
        return self.hold + self.within_margin + self.fail + self.open

    @property
    def total(self) -> int:
        """Cases that the claim covers: judged or not run."""
        return self.judged + self.missing

    def sentence(self, margin: str, words: Words = OF_CLAIM) -> str:
        """Say how many cases show the claim, how many contradict it, and what the others are; counterexamples first.

        The first sentence is the plain one, the others are its statistics. `margin` is that of the claim, in words.
        """
        if self.hold == self.judged:
            return f"{words.everywhere} in {self.all_judged()}."
        if self.judged == 1 and self.within_margin:
            return f"Its only case falls short by less than {margin}, if at all."
        if self.judged == 1 and not self.fail:
            single = " It has a single run on at least one side, which no test can judge." if self.single else ""
            return f"Its only case does not decide it.{single}"
        if self.fail == self.judged:
            return self.all_fail(words)
        more = [self._alone(words)] if self.fail_alone or self.hold_alone else []
        if self.short > self.fail_alone:
            more.append(f"{self._falls_short()}.")
        if not self.fail:
            more.append(self._on_side(words))
        return " ".join([f"{self._outcome(words)}{self._others(margin)}.", *more])

    def all_fail(self, words: Words) -> str:
        """Say that every judged case contradicts the claim, and whether it takes all p-values together to say so: "Both
        cases contradict it."."""
        alone = ", each tested alone," if self.fail < self.judged else ""
        return f"{self.all_judged().capitalize()}{alone} {words.contradict(self.judged)}."

    def none_shows(self, margin: str, words: Words) -> str:
        """Say that no case shows a claim that needs one, and what the cases are; none can contradict such a claim."""
        if self.judged < 2:
            return self.sentence(margin, words)
        misses = f"; {self.fail} {'misses' if self.fail == 1 else 'miss'} it by more than chance" if self.fail else ""
        alone = ""
        if self.hold_alone:
            alone = (
                f" Tested alone, {_count(self.hold_alone, 'case')} would {words.show(2)}; adjusted for all "
                f"{self.judged}, none does."
            )
        return (
            f"None of the {self.judged} cases {words.show(1)}, and one would be enough{misses}{self._others(margin)}."
            f"{alone}"
        )

    def why_undecided(self, margin: str, words: Words = OF_CLAIM) -> str:
        """Say why the claim is undecided in two or three short sentences; "" if it has fewer than two cases.

        For example "None of the 22 cases shows it and none contradicts it. Most have a single run, which no test can
        judge." A case that misses the claim, but contradicts it neither by the margin nor beside the others, is named:
        its interval alone looks like a contradiction. `margin` is that of the claim, in words.
        """
        if self.judged < 2:
            return ""
        hold, fail = str(self.hold or "none").capitalize(), self.fail or "none"
        outcome = f"{words.show(self.hold)} and {fail} {words.contradict(self.fail)}"
        said = f"{hold} of the {self.judged} cases {outcome}."
        if 2 * self.single > self.judged:
            said += " Most have a single run, which no test can judge."
        if self.fail_alone or self.hold_alone:
            said += f" {self._alone(words)}"
        if self.short and not self.fail_alone:
            said += f" {self._falls_short()}, but perhaps by less than {margin}."
        return said if self.fail else f"{said} {self._on_side(words)}"

    def all_judged(self) -> str:
        """Return "all N cases", "both cases" or "its only case"."""
        return {1: "its only case", 2: "both cases"}.get(self.judged, f"all {self.judged} cases")

    def _outcome(self, words: Words) -> str:
        """Say how many cases show the claim and how many contradict it, and by which test if none does."""
        if self.fail:
            shown = f"{self.hold or 'none'} {words.show(self.hold)}"
            return f"{self.fail} of {self.judged} cases {words.contradict(self.fail)}; {shown}"
        together = f" once all {self.judged} are considered together" if self.fail_alone or self.hold_alone else ""
        shown = f"{self.hold} of {self.judged} cases {words.show(self.hold or 2)}"
        return f"{shown} and 0 {words.contradict(2)}{together}"

    def _others(self, margin: str) -> str:
        """Say why the other cases do neither: the margin, a single run, or too much scatter; "" without others."""
        kinds = {
            f"{'falls' if self.within_margin == 1 else 'fall'} short by less than {margin}, if at all": (
                self.within_margin
            ),
            f"{'has' if self.single == 1 else 'have'} a single run on at least one side, which no test can judge": (
                self.single
            ),
            "cannot tell": self.open - self.single,
        }
        others = "; ".join(f"{count} {words}" for words, count in kinds.items() if count)
        return f"; {others}" if others else ""

    def _alone(self, words: Words) -> str:
        """Say how many cases would show the claim, and how many contradict it, if each were tested alone."""
        parts = []
        for number, already, what in (
            (self.hold_alone, self.hold, words.show(2)),
            (self.fail_alone, self.fail, words.contradict(2)),
        ):
            counted = str(number) if parts else _count(number, "case")
            parts += [f"{counted} would{' also' if already else ''} {what}"] if number else []
        return f"Tested alone, {' and '.join(parts)}."

    def _on_side(self, words: Words) -> str:
        """Say in how many cases the number is where the claim says, whatever its interval."""
        where = self.all_judged() if self.on_side == self.judged else f"{self.on_side} of {self.judged} cases"
        return f"In {where} the number is on {words.side}."

    def _falls_short(self) -> str:
        """Say in how many cases the number misses the claim by more than chance, without the full stop."""
        return f"In {_count(self.short, 'case')} it falls short by more than chance"


def _count(number: int, thing: str) -> str:
    """Return a number of things: "1 case", "2 cases"."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


@dataclass(frozen=True)
class Judgement:
    """A verdict, its reason in a sentence, the judged cases, the deciding one first, and the counts behind it."""

    verdict: Verdict
    reason: str
    cases: list[Judged] = field(default_factory=list)
    counts: Counts = Counts()


def region(case: Case, rule: Rule) -> tuple[float, float]:
    """Return the ends of the range in which the claim says that the case's number is."""
    margin = rule.margin if case.margin is None else case.margin
    kind = case.kind or rule.kind
    if kind is ClaimKind.DIFFERENCE:
        return math.nextafter(case.target, math.inf), math.inf
    if kind is ClaimKind.NOT_WORSE:
        return case.target - margin, math.inf
    if kind is ClaimKind.BOUND:
        return -math.inf, case.target + margin
    return case.target - margin, case.target + margin


def tolerated(case: Case, rule: Rule) -> tuple[float, float]:
    """Return the range outside of which a case fails: its region, widened by the margin of a difference; for a claim
    that something exists the margin is the least gain worth the name, and narrows it."""
    low, high = region(case, rule)
    if (case.kind or rule.kind) is not ClaimKind.DIFFERENCE:
        return low, high
    margin = rule.margin if case.margin is None else case.margin
    return (low + margin if rule.scope is Scope.EXISTS else low - margin), high


def judge(evidence: ClaimEvidence, rule: Rule) -> Judgement:
    """Return the verdict on a claim by the rules at the top of this module."""
    real = [case for case in evidence.cases if not case.stand_in]
    beside = [Judged(case, Status.BESIDE) for case in evidence.beside]
    if not evidence.cases:
        return Judgement(Verdict.NOT_RUN, evidence.absent, beside, Counts(missing=evidence.missing))
    if not real:
        names = ", ".join(sorted({case.stand_in for case in evidence.cases}))
        there = _judge(evidence.cases, evidence.missing, rule, evidence.best_of_several)
        would_be = "" if there.verdict is Verdict.UNDECIDED else f" On these data the claim would be '{there.verdict}'."
        reason = f"It was run on stand-in data only ({names}), so there is no verdict.{would_be}"
        shown = [replace(each, status=Status.STAND_IN) for each in there.cases]
        return Judgement(Verdict.UNDECIDED, reason, [*shown, *beside], Counts(missing=evidence.missing))
    aside = [Judged(case, Status.STAND_IN) for case in evidence.cases if case.stand_in]
    made = _judge(real, evidence.missing + len(aside), rule, evidence.best_of_several)
    return replace(made, cases=[*made.cases, *aside, *beside])


def _judge(cases: list[Case], missing: int, rule: Rule, best_of_several: bool) -> Judgement:
    """Return the verdict on cases that all count."""
    tests = _Tests(cases, rule, missing)
    statuses = tests.statuses()
    counts = tests.counts(statuses)
    if best_of_several:
        counts = replace(counts, short=0)
    decide = {Scope.FOR_ALL: _for_all, Scope.EXISTS: _exists, Scope.IN_EXPERIMENTS: _in_experiments}[rule.scope]
    verdict, reason, decisive = decide(tests, statuses, counts)
    order = dict.fromkeys([tests.foremost(decisive), *tests.order(statuses)])
    if missing and verdict is not Verdict.REFUTED:
        reason = f"{reason} {missing} more {'case was' if missing == 1 else 'cases were'} not run."
    return Judgement(verdict, reason, [tests.judged(index, statuses[index]) for index in order], counts)


class _Tests:
    """The p-values of the cases of a claim: that they hold, miss it, fail by more than the margin, are within that."""

    def __init__(self, cases: list[Case], rule: Rule, missing: int) -> None:
        self.cases, self.rule, self.missing = cases, rule, missing
        self.margin = rule.margin_in_words(cases)
        self.regions = [region(case, rule) for case in cases]
        self.holds = np.array([case.p_outside(*ends) for case, ends in zip(cases, self.regions, strict=True)])
        self.fails = np.array([case.p_inside(*tolerated(case, rule)) for case in cases])
        self.within = np.array([case.p_outside(*tolerated(case, rule)) for case in cases])
        self.misses = np.array([case.p_inside(*ends) for case, ends in zip(cases, self.regions, strict=True)])
        self.computed = np.array([case.error == 0 and case.n == 0 for case in cases])
        self.holds_adjusted, self.fails_adjusted = self._adjusted(self.holds), self._adjusted(self.fails)
        self.within_adjusted = self._adjusted(self.within)
        self.all_hold, self.all_within = (bool((each < ALPHA).all()) for each in (self.holds, self.within))

    def _adjusted(self, p_values: np.ndarray) -> np.ndarray:
        """Return p-values adjusted by Holm over the uncertain cases, with those that were not run or have too few runs
        to be tested; those of computed numbers as they are."""
        untested = self.missing + int((np.isnan(p_values) & ~self.computed).sum())
        return np.where(self.computed, p_values, holm(np.where(self.computed, math.nan, p_values), untested))

    def statuses(self) -> list[Status]:
        """Return the status of each case."""
        made = []
        for index, case in enumerate(self.cases):
            wider = tolerated(case, self.rule)[0] < region(case, self.rule)[0]
            if self.all_hold or self.holds_adjusted[index] < ALPHA:
                made.append(Status.HOLDS)
            elif self.fails_adjusted[index] < ALPHA:
                made.append(Status.FAILS)
            elif wider and (self.all_within or self.within_adjusted[index] < ALPHA):
                made.append(Status.WITHIN_MARGIN)
            else:
                made.append(Status.OPEN)
        return made

    def counts(self, statuses: list[Status]) -> Counts:
        """Return the counts of the cases with these statuses."""
        spared = np.array([each is not Status.FAILS for each in statuses]) & ~self.computed
        return Counts(
            hold=statuses.count(Status.HOLDS),
            within_margin=statuses.count(Status.WITHIN_MARGIN),
            fail=statuses.count(Status.FAILS),
            open=statuses.count(Status.OPEN),
            missing=self.missing,
            single=sum(each is Status.OPEN and case.n == 1 for each, case in zip(statuses, self.cases, strict=True)),
            fail_alone=int((spared & (self.fails < ALPHA)).sum()),
            short=int((spared & (self.misses < ALPHA)).sum()),
            hold_alone=int((self.holds < ALPHA).sum()) - statuses.count(Status.HOLDS),
            on_side=sum(
                low <= case.estimate <= high for case, (low, high) in zip(self.cases, self.regions, strict=True)
            ),
        )

    def foremost(self, decisive: tuple[np.ndarray, bool]) -> int:
        """Return the case with the smallest value of a list (or the largest), one without a value only if none has any.

        Among ties it is the farthest off, for a claim that something exists the nearest.
        """
        values, smallest = decisive
        known = np.where(np.isnan(values), math.inf if smallest else -math.inf, values)
        best = known.min() if smallest else known.max()
        ties = np.flatnonzero(known == best)
        rooms = np.array([self._room(index) for index in ties])
        nearest = self.rule.scope is Scope.EXISTS
        return int(ties[rooms.argmax() if nearest else rooms.argmin()])

    def _room(self, index: int | np.intp) -> float:
        """Return how far a case's number is inside the range that the claim says (negative outside), nan as 0."""
        low, high = region(self.cases[index], self.rule)
        room = min(self.cases[index].estimate - low, high - self.cases[index].estimate)
        return 0.0 if math.isnan(room) else room

    def order(self, statuses: list[Status]) -> list[int]:
        """Return the cases as a reader wants them: failing ones first, then open ones, then the rest as they came."""
        rank = [Status.FAILS, Status.OPEN, Status.WITHIN_MARGIN, Status.HOLDS]
        return sorted(range(len(statuses)), key=lambda index: rank.index(statuses[index]))

    def judged(self, index: int, status: Status) -> Judged:
        """Return a case with its status and the p-values that stand for it: those that it fails if it does, or if it
        is open and they are smaller; else those that it holds."""
        if self.computed[index]:
            return Judged(self.cases[index], status)
        fails = status is Status.FAILS or (status is Status.OPEN and self.fails[index] < self.holds[index])
        raw, adjusted = (self.fails, self.fails_adjusted) if fails else (self.holds, self.holds_adjusted)
        return Judged(self.cases[index], status, float(raw[index]), float(adjusted[index]))


Decision = tuple[Verdict, str, tuple[np.ndarray, bool]]  # the last: p-values, and whether the smallest decides


def _for_all(tests: _Tests, _statuses: list[Status], counts: Counts) -> Decision:
    """Decide a claim for all."""
    weakest, said = (tests.holds, False), counts.sentence(tests.margin, tests.rule.words)
    if counts.fail:
        suffices = f" One {tests.rule.words.counterexample} suffices." if counts.fail == 1 < counts.judged else ""
        return Verdict.REFUTED, f"{said}{suffices}", (tests.fails_adjusted, True)
    if counts.hold == counts.total:
        return Verdict.AS_STATED, said, weakest
    near = counts.hold + counts.within_margin
    if (near == counts.total and tests.all_within) or 2 * counts.hold > counts.total:
        return Verdict.WEAKER, said, weakest
    return Verdict.UNDECIDED, said, weakest


def _exists(tests: _Tests, statuses: list[Status], counts: Counts) -> Decision:
    """Decide a claim of "may" or "can"."""
    strongest = (tests.holds_adjusted, True)
    shown = f"{tests.rule.words.everywhere} in {counts.hold} of {counts.judged} cases"
    below = tests.fails < ALPHA
    if any(each is Status.HOLDS and not small for each, small in zip(statuses, below, strict=True)):
        return Verdict.AS_STATED, f"{shown}; one is enough.", strongest
    if counts.hold:
        return Verdict.WEAKER, f"{shown}, but by less than {tests.margin}.", strongest
    if not counts.missing and bool(below.all()):
        return Verdict.REFUTED, counts.all_fail(tests.rule.words), (tests.fails, False)
    return Verdict.UNDECIDED, counts.none_shows(tests.margin, tests.rule.words), strongest


def _in_experiments(tests: _Tests, _statuses: list[Status], counts: Counts) -> Decision:
    """Decide a claim about experiments taken together."""
    weakest, worst = (tests.holds, False), (tests.fails_adjusted, True)
    said = counts.sentence(tests.margin, tests.rule.words)
    if 2 * counts.fail > counts.total:
        return Verdict.REFUTED, said, worst
    if not counts.missing and bool((tests.fails < ALPHA).all()):
        return Verdict.REFUTED, counts.all_fail(tests.rule.words), (tests.fails, False)
    if 2 * counts.hold > counts.total and not counts.fail:
        return Verdict.AS_STATED, said if counts.hold == counts.total else f"{said} More than half are enough.", weakest
    if counts.hold and counts.fail:
        return Verdict.WEAKER, said, worst
    return Verdict.UNDECIDED, said, worst if counts.fail else weakest
