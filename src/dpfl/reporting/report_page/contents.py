"""Contents of the page: the statements of each paper, the findings on them, and their tables and figures."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dpfl import __version__
from dpfl.catalog import Paper, dataset_entries, load
from dpfl.errors import InputError
from dpfl.files import is_regular, read_bytes
from dpfl.grid import expansion
from dpfl.reporting.errata import ErratumKind
from dpfl.reporting.report_page import epsilons
from dpfl.reporting.report_page.agreement import Summary, summary
from dpfl.reporting.report_page.claim_views import ClaimView, VerdictStyle, claim_views, tally
from dpfl.reporting.report_page.code_origins import untraced_runs
from dpfl.reporting.report_page.parts import Part, Parts, parts_of
from dpfl.reporting.report_page.picture import Picture, lead_picture
from dpfl.reporting.report_page.printed_gaps import PrintedGap, gaps_in_words, printed_gaps
from dpfl.reporting.report_page.sweep_counts import SweepCounts, sweep_counts, total
from dpfl.reporting.report_page.traces import Trace, trace_of
from dpfl.reporting.results import read_csv, showing
from dpfl.reporting.standing import Standing

ABOUT_SCALE = {
    "demo": "Scale demo: small runs on data that ship with scikit-learn. They show that every stage works; accuracies "
    "are not comparable with the published ones.",
    "quick": "Scale quick: the real datasets with few seeds.",
    "paper": "Scale paper: the real datasets, with as many runs as published or fewer: their number stands with each "
    "result. What was not run is marked.",
}


@dataclass(frozen=True)
class Setting:
    """A setting of a paper's runs; `reason` is why it has its value, "" where the paper states it."""

    name: str
    value: str
    reason: str


@dataclass(frozen=True)
class PaperView:
    """A paper on the page."""

    paper: Paper
    claims: tuple[ClaimView, ...]
    parts: Parts
    errata: Part | None
    errata_counts: str
    untraced: str
    statements: tuple[epsilons.EpsilonStatement, ...]
    noise_trace: Trace
    data: str
    sweeps: SweepCounts

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
    def printed(self) -> Summary:
        """Distances of the printed numbers from ours."""
        return summary(self.parts.numbers)

    @property
    def gaps(self) -> tuple[PrintedGap, ...]:
        """Its printed numbers without a run of ours or with a single one, by table, data set and model."""
        return printed_gaps(self.parts.numbers)

    @property
    def gaps_in_words(self) -> str:
        """Number of those printed numbers, in words; "" where there are none."""
        return gaps_in_words(self.parts.numbers)

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
    def canaries(self) -> Part | None:
        """The table of attacks on its training, where there is one."""
        return next((part for part in self.parts.tables if part.name == "canaries" and not part.not_run), None)


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
    def across(self) -> list[tuple[PaperView, Part]]:
        """The figures that compare papers: those that paper.yaml marks `across`."""
        return [
            (view, part)
            for view in self.papers
            for part in view.parts.figures
            if view.paper.figures[part.name].get("across") and part.picture
        ]

    @property
    def tally(self) -> list[tuple[VerdictStyle, int]]:
        """Number of claims of all papers with each verdict."""
        return tally(claim for view in self.papers for claim in view.claims)

    @property
    def statements(self) -> tuple[epsilons.EpsilonStatement, ...]:
        """The private settings of all papers that claim an epsilon."""
        return tuple(statement for view in self.papers for statement in view.statements)

    @property
    def epsilons_not_kept(self) -> list[tuple[Standing, int, list[tuple[PaperView, int, str]]]]:
        """The refuted and the open epsilons: how many in all, then for each paper, sampler and source, and of what."""
        found = []
        for wanted in (Standing.REFUTED, Standing.OPEN):
            groups = [(view, *group) for view in self.papers for group in epsilons.of_standing(view.statements, wanted)]
            total_of = sum(count for _, count, _ in groups)
            found.append((wanted, total_of, sorted(groups, key=lambda group: -group[1])))
        return [each for each in found if each[1]]

    @property
    def under_other_batches(self) -> list[str]:
        """Outcome of epsilons that are stated for other batches than were drawn, in sentences."""
        return epsilons.under_other_batches(self.statements)

    @property
    def sweeps(self) -> SweepCounts:
        """Number of sweeps of all papers, and of those that were run."""
        return total(view.sweeps for view in self.papers)

    @property
    def printed(self) -> Summary:
        """Distances of the printed numbers of all papers from ours."""
        return summary(number for view in self.papers for number in view.parts.numbers)


def contents(folder: Path, config: Mapping[str, Any]) -> Page:
    """Return the contents of the page of results/<scale>.

    Raises InputError where nothing is finished there, or a table cannot be shown.
    """
    sweeps, views = sweep_counts(folder, config), []
    for key in config["papers"]:
        with showing(folder, key):
            views.append(_view(folder, key, config, sweeps[key]))
    if not any(view.claims or view.parts.tables or view.parts.figures for view in views):
        raise InputError(f"nothing to report in {folder}: run make first")
    manifest = folder / "manifest.json"
    return Page(
        scale=config["scale"],
        about=ABOUT_SCALE[config["scale"]],
        papers=tuple(views),
        picture=lead_picture(
            [number for view in views for number in view.parts.numbers],
            [statement for view in views for statement in view.statements],
        ),
        version=__version__,
        manifest_sha256=hashlib.sha256(read_bytes(manifest)).hexdigest() if is_regular(manifest) else "",
        engine_page="workflow.html" if (folder / "workflow.html").is_file() else "",
        folder=f"results/{config['scale']}",
    )


def _view(folder: Path, key: str, config: Mapping[str, Any], sweeps: SweepCounts) -> PaperView:
    """Return what the page shows of one paper."""
    parts = parts_of(folder, key)
    own = [sweep for sweep in expansion.expand(config) if sweep.paper == key]
    names = sorted({sweep.dataset for sweep in own})
    studies = {sweep.family for sweep in own if sweep.settings.get("study")}
    entries = [dataset_entries()[name] for name in names]
    return PaperView(
        paper=load(key),
        claims=claim_views(folder, key),
        parts=Parts(tuple(part for part in parts.tables if part.name != "errata"), parts.figures, parts.numbers),
        errata=next((part for part in parts.tables if part.name == "errata"), None),
        errata_counts=_errata_counts(folder / "tables" / f"{key}_errata.csv"),
        untraced=untraced_runs(folder, key),
        statements=tuple(epsilons.statements(folder, key, studies)),
        noise_trace=trace_of(expansion.noise_table(folder, key), folder.absolute().parents[1]),
        data=_listed(entry["title"] for entry in entries),
        sweeps=sweeps,
    )


def _errata_counts(csv: Path) -> str:
    """Return how many entries of the errata are of each kind, in words; "" where there are none."""
    if not csv.is_file():
        return ""
    entries = read_csv(csv).groupby("kind")["number"].nunique()
    return ", ".join(f"{entries[kind]} {kind}" for kind in ErratumKind if kind in entries)


def _listed(names: Iterable[str]) -> str:
    """Return names as a list in a sentence."""
    known = list(names)
    return " and ".join([", ".join(known[:-1]), known[-1]] if len(known) > 1 else known) or "no data: formulas alone"


def _flow(value: Any) -> str:
    """Return a value of paper.yaml on one line."""
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).strip().removesuffix("...").strip()
