"""The table of results in the project's README.md, made from results/paper alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpfl.errors import InputError
from dpfl.reporting.display_names import EpsilonVerdict, listed
from dpfl.reporting.report_page.epsilons import OWN_BOUND, counts
from dpfl.reporting.rules import Verdict

if TYPE_CHECKING:
    from dpfl.reporting.report_page.claim_views import ClaimView
    from dpfl.reporting.report_page.contents import Page, PaperView
    from dpfl.reporting.report_page.epsilons import EpsilonStatement

SCALE = "paper"
"""The scale whose results README.md shows."""
_BEGIN, _END = "<!-- results: written by make pages SCALE=paper -->\n", "<!-- end of results -->\n"
_HEAD = (
    "| paper | verdicts on its claims | claimed epsilons | epsilons with our noise |",
    "|---|---|---|---|",
)


def updated(text: str, page: Page) -> str:
    """Return README.md with the table of results between its two marks.

    Raises InputError if the text lacks the marks.
    """
    if _BEGIN not in text or _END not in text:
        raise InputError(f"README.md has no lines between {_BEGIN.strip()} and {_END.strip()}")
    before, _, rest = text.partition(_BEGIN)
    return f"{before}{_BEGIN}{results_table(page)}{_END}{rest.partition(_END)[2]}"


def results_table(page: Page) -> str:
    """Return the table of results, a row for each paper, and what reproduces, what does not, and why, in sentences."""
    return "\n".join([*_HEAD, *map(_row, page.papers), "", *_sentences(page), ""])


def _sentences(page: Page) -> list[str]:
    """Return a sentence each on what reproduces, on what does not, and on why; counts of 0 are not named."""
    claims = [claim for view in page.papers for claim in view.claims if not claim.our_question]
    known = {word: [claim for claim in claims if claim.verdict.word == word] for word in Verdict}
    refuted, epsilons = known[Verdict.REFUTED], counts(page.statements)
    numbers = page.printed
    twice = sum(bool(claim.judged_by) for claim in claims)
    which = f" ({twice} count twice)" if twice else ""
    by_runs = sum(bool(claim.runs) for claim in known[Verdict.AS_STATED])
    how = f" ({by_runs} by runs)" if by_runs else ""
    in_part = f", {len(known[Verdict.WEAKER])} more in part" if known[Verdict.WEAKER] else ""
    holds = f"{len(known[Verdict.AS_STATED])} of {len(claims)} claims{which} hold as stated{how}{in_part}"
    parts = [holds, *([numbers.outcomes_and_median()] if numbers.comparable else []), *_proven(page)]
    said = [f"**What reproduces:** {'. '.join(parts)}."]
    own = sum(each.of_study for each in page.statements if each.verdict is EpsilonVerdict.REFUTED)
    of_studies = f" ({own} in our studies)" if own else ""
    link = f"[refuted]({page.folder}/README.md)"
    fails = [
        f"{_are(len(refuted), 'claim')} {link}{_such_as(page)}" if refuted else "",
        f"{_are(epsilons[EpsilonVerdict.REFUTED], 'claimed epsilon')} refuted{of_studies}"
        if epsilons[EpsilonVerdict.REFUTED]
        else "",
    ]
    if any(fails):
        said.append(f"**What does not:** {'; '.join(filter(None, fails))}.")
    if reasons := _reasons(page, refuted):
        said.append(f"**Why:** {'; '.join(reasons)}.")
    return said


def _proven(page: Page) -> list[str]:
    """Return how many epsilons are proven; those for which an accountant of their batches set the noise hold by
    construction, and are counted apart."""
    claimed = [each for each in page.statements if each.stated_by != OWN_BOUND]
    proven = sum(each.verdict is EpsilonVerdict.PROVEN for each in claimed)
    targets = sum(each.verdict is EpsilonVerdict.PROVEN for each in page.statements) - proven
    if not claimed:
        return [f"{targets} of {len(page.statements)} epsilons are proven"] if page.statements else []
    own = sum(each.of_study for each in claimed)
    of_these = f" ({own} of the {len(claimed)} are of our studies)" if own else ""
    also = f", as are {targets} for which we set the noise" if targets else ""
    return [f"{proven} of {len(claimed)} claimed epsilons are proven{of_these}{also}"]


def _such_as(page: Page) -> str:
    """Return the lead findings that are refuted themselves, not only in a part, after a comma; "" if none is."""
    found = [
        f"*{lead.sentence.removesuffix('.')}* (`{view.paper.key}`)"
        for view in page.papers
        for lead in view.findings
        if lead.counterexample
    ]
    return f", among them {listed(found)}" if found else ""


def _reasons(page: Page, refuted: Sequence[ClaimView]) -> list[str]:
    """Return what refutes claims and epsilons, as far as the results tell."""
    reasons = []
    if computed := sum(not claim.runs for claim in refuted):
        reasons.append(f"arithmetic or the papers' own tables refute {computed} of the {len(refuted)} claims")
    for verdict, number, groups in page.epsilons_not_proven:
        if verdict is EpsilonVerdict.REFUTED:
            view = groups[0][0]
            own = [(count, what.partition("ε ")[2]) for paper, count, what in groups if paper is view]
            which = (
                "the refuted epsilon is"
                if number == 1
                else f"{sum(count for count, _ in own)} of the {number} refuted epsilons are"
            )
            sources = listed([f"{count} {source}" if len(own) > 1 else source for count, source in own])
            reasons.append(f"{which} `{view.paper.key}`'s, {sources}")
    return reasons


def _checked(statements: Sequence[EpsilonStatement]) -> str:
    """Return how many epsilons have each verdict, and whether all of a bad one, or all claims, are of studies."""
    said = []
    all_ours = all(each.of_study and each.stated_by != OWN_BOUND for each in statements)
    for verdict, count in counts(statements).items():
        bad = not all_ours and verdict is not EpsilonVerdict.PROVEN
        ours = bad and all(each.of_study for each in statements if each.verdict is verdict)
        said += [f"{count} {verdict}{' in our studies' if ours else ''}"] if count else []
    if said and all_ours:
        said[-1] += " in our studies" if len(said) == 1 else ", all in our studies"
    return ", ".join(said) or "none"


def _are(count: int, noun: str) -> str:
    """Return a count with its noun and verb: "1 claim is", "2 claims are"."""
    return f"{count} {noun} is" if count == 1 else f"{count} {noun}s are"


def _row(view: PaperView) -> str:
    """Return the table's row of a paper."""
    paper = view.paper
    printed = Counter(claim.verdict.word for claim in view.claims if claim.judged_by and not claim.our_question)
    tally = []
    for style, count in view.tally:
        alone = f" ({printed[style.word]} by its own tables)" if printed[style.word] else ""
        tally.append(f"{count} {style.word}{alone}")
    verdicts = ", ".join(tally) or "none yet"
    limit = f" (for {view.epsilon_limit['for']})" if view.epsilon_limit else ""
    claimed = [each for each in view.statements if each.stated_by != OWN_BOUND]
    ours = [each for each in view.statements if each.stated_by == OWN_BOUND]
    epsilons = [_checked(each) + (limit if each else "") for each in (claimed, ours)]
    title = f"[{paper.title}]({paper.url}) [`{paper.key}`](src/dpfl/papers/{paper.key})"
    cells = [title, verdicts, *epsilons]
    return f"| {' | '.join(cells)} |"
