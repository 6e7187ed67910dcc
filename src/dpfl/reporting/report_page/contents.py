"""Contents of the page: the statements of each paper, the findings on them, and what all papers share."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from dpfl import __version__
from dpfl.catalog import Paper, dataset_entries, load
from dpfl.errors import InputError
from dpfl.files import is_regular, read_bytes
from dpfl.grid import configuration, expansion
from dpfl.reporting.display_names import EpsilonVerdict, listed, with_greek_symbols
from dpfl.reporting.errata import ErratumKind
from dpfl.reporting.report_page import epsilons
from dpfl.reporting.report_page.agreement import PrintedGap, Summary, gaps_in_words, printed_gaps, summary
from dpfl.reporting.report_page.claim_views import ClaimView, Trace, VerdictStyle, claim_views, tally, trace_of
from dpfl.reporting.report_page.picture import Picture, lead_picture
from dpfl.reporting.report_page.run_counts import JobCounts, job_counts, total, untraced_runs
from dpfl.reporting.report_page.sections import Section, Sections, sections_of
from dpfl.reporting.results import read_csv, showing

if TYPE_CHECKING:
    from dpfl.grid.training_job import TrainingJob

ABOUT_SCALE = {
    "demo": "These results are small runs. Data that come with scikit-learn stand in for the papers' real data. "
    "They show that every stage works. Do not compare their accuracies with the published ones.",
    "quick": "These results are on the papers' real data, with few seeds.",
    "paper": "These results are on the papers' real data, and on synthetic problems if a paper's claim is about all "
    "problems. Each gives its number of runs and marks what was not run.",
}


@dataclass(frozen=True)
class Setting:
    """A setting of a paper's runs; `reason` is why it has its value, "" where the paper states it."""

    name: str
    value: str
    reason: str


@dataclass(frozen=True)
class LeadFinding:
    """A finding on the first screen: a sentence, what was found, a picture, and the place that shows more.

    `verdict` is None for a finding that is no claim; then `found` is the first note of its table. `counterexample` is
    the case that refutes it, "" if none does. `parts` are the claims that are parts of it and have another verdict;
    `beside` are the claims and questions that qualify it.
    """

    sentence: str
    verdict: VerdictStyle | None
    found: str
    figure: Section | None
    place: str
    counterexample: str = ""
    parts: tuple[ClaimView, ...] = ()
    beside: tuple[ClaimView, ...] = ()


@dataclass(frozen=True)
class PaperView:
    """A paper on the page."""

    paper: Paper
    claims: tuple[ClaimView, ...]
    sections: Sections
    errata: Section | None
    errata_counts: str
    untraced: str
    statements: tuple[epsilons.EpsilonStatement, ...]
    noise_trace: Trace
    data: str
    jobs: JobCounts

    @property
    def short(self) -> str:
        """Name of the paper in a list of links: the first author's family name and the year in its key."""
        names = self.paper.authors.split(",")[0].split()
        return f"{' '.join(names[1:] or names)} {self.paper.key[-4:]}"

    @property
    def tally(self) -> list[tuple[VerdictStyle, int]]:
        """Number of claims with each verdict, without the verdicts that none has."""
        return tally(self.claims)

    @property
    def questions(self) -> int:
        """Number of questions of ours among its claims, which no tally counts."""
        return sum(claim.our_question for claim in self.claims)

    @property
    def refuted(self) -> list[ClaimView]:
        """The paper's own claims that are refuted."""
        return [claim for claim in self.claims if claim.is_refuted]

    @property
    def refuted_first(self) -> list[ClaimView]:
        """All claims: those that are refuted, then the others, each in the paper's order."""
        return sorted(self.claims, key=lambda claim: not claim.is_refuted)

    @property
    def printed(self) -> Summary:
        """Distances of the published numbers from ours."""
        return summary(self.sections.numbers)

    @property
    def gaps(self) -> tuple[PrintedGap, ...]:
        """Its published numbers without a run of ours or with a single one, by table, data set and model."""
        return printed_gaps(self.sections.numbers)

    @property
    def gaps_in_words(self) -> str:
        """Number of those published numbers, in words; "" if there are none."""
        return gaps_in_words(self.sections.numbers)

    @property
    def parts(self) -> list[Section]:
        """Its figures and tables, the errata last."""
        return [*self.sections.figures, *self.sections.tables, *([self.errata] if self.errata else [])]

    def figure(self, name: str) -> Section | None:
        """Return its figure of this name if it has a picture, else None."""
        return next((part for part in self.sections.figures if part.name == name and part.picture), None)

    @property
    def findings(self) -> list[LeadFinding]:
        """Its lead findings, in the order of paper.yaml, without findings of which nothing is finished."""
        return [found for each in self.paper.findings if (found := self._finding(each))]

    @property
    def has_study(self) -> bool:
        """True if one of its lead findings is a study of ours: the card of such a study says what shuffling does."""
        return any(found.verdict is None for found in self.findings)

    def _finding(self, entry: Mapping[str, Any]) -> LeadFinding | None:
        """Return a finding that paper.yaml names, None if neither its claim nor its table is finished."""
        figure = self.figure(entry["figure"])
        sentence, key = with_greek_symbols(entry["sentence"]), self.paper.key
        beside = tuple(claim for name in entry.get("beside", []) for claim in self.claims if claim.key == name)
        for claim in self.claims:
            if claim.key == entry.get("claim"):
                place, refuting = f"claim-{key}-{claim.key}", claim.deciding if claim.is_refuted else ""
                parts = tuple(each for each in self._other_parts(claim) if each not in beside)
                return LeadFinding(sentence, claim.verdict, claim.in_short, figure, place, refuting, parts, beside)
        for table in self.sections.tables:
            if table.name == entry.get("table"):
                found = table.notes[0] if table.notes else f"Not run: {table.not_run}."
                place = f"table-{key}-{table.name}"
                return LeadFinding(sentence, None, found, figure, place, beside=beside)
        return None

    def parts_of(self, whole: ClaimView) -> list[ClaimView]:
        """Return the claims and questions that are parts of a claim."""
        return [claim for claim in self.claims if claim.of == whole.key != claim.key]

    def _other_parts(self, whole: ClaimView) -> tuple[ClaimView, ...]:
        """Return the parts of a claim that have another verdict; questions of ours are none."""
        return tuple(each for each in self.parts_of(whole) if each.verdict != whole.verdict and not each.our_question)

    @property
    def notation(self) -> list[tuple[str, str]]:
        """The paper's symbols with what they mean."""
        return [(with_greek_symbols(symbol), with_greek_symbols(text)) for symbol, text in self.paper.notation.items()]

    @property
    def settings(self) -> list[Setting]:
        """The settings of the paper's runs, those that the paper states first."""
        everything = self.paper.inferred.get("*", "")
        known = [
            Setting(name, _flow(value), self.paper.inferred.get(name, everything))
            for name, value in self.paper.settings.items()
        ]
        return sorted(known, key=lambda setting: bool(setting.reason))

    @property
    def epsilon_groups(self) -> list[tuple[epsilons.Group, list[epsilons.EpsilonStatement]]]:
        """Its private settings by what their epsilons belong to."""
        return list(epsilons.by_sampling(self.statements).items())

    @property
    def epsilons_in_sentences(self) -> str:
        """Verdicts of the epsilons that it claims, and what refutes the refuted ones."""
        return epsilons.in_sentences(self.statements, self.epsilon_limit)

    @property
    def epsilon_limit(self) -> Mapping[str, str] | None:
        """The records `for` which the verdicts on its epsilons hold, `but` what is so for others; None for all."""
        return next(
            (claim["limits_epsilons"] for claim in self.paper.claims.values() if "limits_epsilons" in claim), None
        )

    @property
    def epsilon_limit_in_words(self) -> str:
        """That limit as a sentence; "" for a paper without it or without epsilons."""
        limit = self.epsilon_limit if self.statements else None
        return f"The verdicts on {self.short} are for {limit['for']}; {limit['but']}." if limit else ""

    @property
    def limits_epsilons(self) -> ClaimView | None:
        """The claim that says for which records its epsilons are judged; None if there is none."""
        claims = self.paper.claims
        return next((each for each in self.claims if "limits_epsilons" in claims.get(each.key, {})), None)

    @property
    def under_other_batches(self) -> list[str]:
        """Outcome of epsilons that are stated for other batches than were drawn, in sentences."""
        return epsilons.under_other_batches(self.statements)

    @property
    def canaries(self) -> Section | None:
        """The table of attacks on its training, if there is one."""
        return next((part for part in self.sections.tables if part.name == "canaries" and not part.not_run), None)


@dataclass(frozen=True)
class Page:
    """All that the page shows; the same results give the same contents."""

    scale: str
    about: str
    papers: tuple[PaperView, ...]
    picture: Picture | None
    version: str
    manifest_sha256: str
    engine_page: str
    folder: str

    @property
    def across(self) -> list[tuple[PaperView, Section]]:
        """The figures that compare papers: those that paper.yaml marks `across`."""
        return [
            (view, part)
            for view in self.papers
            for part in view.sections.figures
            if view.paper.figures[part.name].get("across") and part.picture
        ]

    @property
    def tally(self) -> list[tuple[VerdictStyle, int]]:
        """Number of claims of all papers with each verdict."""
        return tally(claim for view in self.papers for claim in view.claims)

    @property
    def questions(self) -> int:
        """Number of questions of ours on all papers."""
        return sum(view.questions for view in self.papers)

    @property
    def statements(self) -> tuple[epsilons.EpsilonStatement, ...]:
        """The private settings of all papers that claim an epsilon."""
        return tuple(statement for view in self.papers for statement in view.statements)

    @property
    def epsilons_not_proven(self) -> list[tuple[EpsilonVerdict, int, list[tuple[PaperView, int, str]]]]:
        """The refuted and the unproven epsilons: how many in all, then by paper, sampler and source, and of what."""
        found = []
        for wanted in (EpsilonVerdict.REFUTED, EpsilonVerdict.UNPROVEN):
            groups = [
                (view, *group) for view in self.papers for group in epsilons.with_verdict(view.statements, wanted)
            ]
            total_of = sum(count for _, count, _ in groups)
            found.append((wanted, total_of, sorted(groups, key=lambda group: -group[1])))
        return [each for each in found if each[1]]

    @property
    def studies(self) -> list[LeadFinding]:
        """The lead findings that are studies of ours."""
        return [found for view in self.papers for found in view.findings if found.verdict is None]

    @property
    def jobs(self) -> JobCounts:
        """Number of jobs of all papers, and of those that were run."""
        return total(view.jobs for view in self.papers)

    @property
    def printed(self) -> Summary:
        """Distances of the published numbers of all papers from ours."""
        return summary(number for view in self.papers for number in view.sections.numbers)


def contents(folder: Path, config: Mapping[str, Any]) -> Page:
    """Return the contents of the page of results/<scale>.

    Raises InputError if nothing is finished there, or a table cannot be shown.
    """
    jobs, views = job_counts(folder, config), []
    for key in config["papers"]:
        with showing(folder, key):
            views.append(_view(folder, key, config, jobs[key]))
    if not any(view.claims or view.sections.tables or view.sections.figures for view in views):
        raise InputError(f"nothing to report in {folder}: dpfl run with the same --config first")
    manifest = folder / "manifest.json"
    return Page(
        scale=config["scale"],
        about=ABOUT_SCALE[config["scale"]],
        papers=tuple(views),
        picture=lead_picture(
            [number for view in views for number in view.sections.numbers],
            [statement for view in views for statement in view.statements],
        ),
        version=__version__,
        manifest_sha256=hashlib.sha256(read_bytes(manifest)).hexdigest() if is_regular(manifest) else "",
        engine_page="workflow.html" if (folder / "workflow.html").is_file() else "",
        folder=configuration.results_folder(config).as_posix(),
    )


def _view(folder: Path, key: str, config: Mapping[str, Any], jobs: JobCounts) -> PaperView:
    """Return what the page shows of one paper."""
    sections = sections_of(folder, key)
    own = [job for job in expansion.expand(config) if job.paper == key]
    absent = {job.name for job in expansion.not_run(config, folder) if job.paper == key}
    names = sorted({job.dataset for job in own if job.name not in absent})
    studies = {job.calibration_key for job in own if job.settings.get("study")}
    keys = {job.calibration_key for job in own}
    return PaperView(
        paper=load(key),
        claims=claim_views(folder, key),
        sections=Sections(
            tuple(each for each in sections.tables if each.name != "errata"), sections.figures, sections.numbers
        ),
        errata=next((part for part in sections.tables if part.name == "errata"), None),
        errata_counts=_errata_counts(folder / "tables" / f"{key}_errata.csv"),
        untraced=untraced_runs(folder, key),
        statements=tuple(epsilons.statements(folder, key, studies, keys)),
        noise_trace=trace_of(expansion.noise_table_path(folder, key), folder.absolute().parents[1]),
        data=_data(own, names),
        jobs=jobs,
    )


def _data(jobs: Collection[TrainingJob], names: Collection[str]) -> str:
    """Return the datasets of those jobs that were run, in words."""
    if not names:
        return "none yet" if jobs else "none, formulas only"
    return listed(dataset_entries()[name]["title"].replace("Synthetic ", "synthetic ") for name in names)


def _errata_counts(csv: Path) -> str:
    """Return how many entries of the errata are of each kind, in words; "" if there are none."""
    if not csv.is_file():
        return ""
    entries = read_csv(csv).groupby("kind")["number"].nunique()
    return ", ".join(f"{entries[kind]} {kind}" for kind in ErratumKind if kind in entries)


def _flow(value: Any) -> str:
    """Return a value of paper.yaml on one line."""
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).strip().removesuffix("...").strip()
