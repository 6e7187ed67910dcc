"""Every paper's errata: texts complete, and numbers that agree with the other route where the print does not."""

import inspect
from dataclasses import dataclass

import pandas as pd
import pytest

from dpfl.catalog import keys, load, module
from dpfl.reporting.errata import ErratumKind, errata_page
from dpfl.reporting.tables import latex, markdown

FIELDS = {"number", "kind", "printed_form", "corrected_form", "case", "source", "arguments"}


@pytest.fixture(scope="module", params=[key for key in keys() if "errata" in load(key).tables])
def paper(request):
    return request.param


@pytest.fixture(scope="module")
def rows(paper, computed):
    """The paper's errata, each number computed."""
    return computed(paper, "tables", "errata")


@dataclass(frozen=True)
class Agrees:
    """The other route gives the corrected value within `tolerance` of it, a share of it or absolute, and the print is
    further away."""

    tolerance: float = 1e-7
    absolute: bool = False

    def holds(self, printed: float, corrected: float, independent: float) -> bool:
        off = self.tolerance * (1.0 if self.absolute else abs(corrected))
        return abs(independent - corrected) <= off and abs(printed - corrected) > 3 * off


class Between:
    """The other route gives what really happens: strictly beyond the print, at most the corrected bound."""

    def holds(self, printed: float, corrected: float, independent: float) -> bool:
        return printed < independent <= corrected


class Tighter:
    """Both bounds are above what really happens; the corrected one is nearer."""

    def holds(self, printed: float, corrected: float, independent: float) -> bool:
        return independent <= corrected < printed


# What the numbers of an entry have to satisfy where that is not agreement to 1e-7. Tolerances are relative: grids of
# positions or of the loss, Opacus's stated error, fixed draws of a simulation (deviation 0.003 in 0.55), and, for the
# clipped mean, a bound whose profile takes both directions as worst at once.
EXPECTED = {
    ("asoodeh2020", "step_size"): Agrees(2e-3),
    ("asoodeh2020", "step_size_laplace"): Agrees(2e-3),
    ("asoodeh2020", "last_record_laplace"): Agrees(2e-3),
    ("asoodeh2020", "vacuous_stopping"): Tighter(),
    ("asoodeh2021", "corollary_utility"): Between(),
    ("asoodeh2021", "long_first_steps"): Between(),
    ("bhaskar2025", "parallel_disjoint"): Agrees(2e-4),
    ("bhaskar2025", "overlapping_clients"): Agrees(3e-3),
    ("bhaskar2025", "intermediate"): Agrees(1.2e-3, absolute=True),  # PRV's 1e-3 and the grid of PLD
    ("bhaskar2025", "noise_on_average"): Agrees(1.2e-3, absolute=True),  # as above
    ("bhaskar2025", "utility_dimension"): Between(),
    ("lowy2021", "theorem_sampled"): Tighter(),
    ("lowy2021", "later_script"): Agrees(1e-3),
    ("lowy2021", "later_script_locally"): Agrees(1e-3),
    ("lowy2021", "clipped_mean"): Agrees(2e-2),
    ("lowy2021", "group_delta"): Between(),
    ("lowy2021", "leaked_rows"): Agrees(2e-2),
    ("vandijk2023", "group_delta"): Between(),
    ("vandijk2023", "whose_accountant"): Agrees(8e-3),
    ("vandijk2023", "pessimistic_h"): Agrees(2e-2),
}
# Entries whose point is that the print equals something: tested by hand below.
EQUALITIES = {
    ("asoodeh2021", "disjoint_supports"),
    ("asoodeh2021", "inert_contraction"),
    ("vandijk2023", "central_limit"),
}


def checked(paper, rows):
    """Yield (name, what has to hold, printed, corrected, independent) of every row with numbers."""
    for row in rows[rows["kind"] != ErratumKind.UNSTATED].itertuples():
        if (paper, row.entry) not in EQUALITIES:
            expected = EXPECTED.get((paper, row.entry), Agrees())
            yield row.case, expected, row.printed, row.corrected, row.independent


def test_entries_have_all_fields_and_a_function_that_takes_their_arguments(paper):
    for name, entry in load(paper).errata.items():
        assert set(entry) <= FIELDS and {"number", "kind", "printed_form", "corrected_form", "case"} <= set(entry), name
        if ErratumKind(entry["kind"]) is not ErratumKind.UNSTATED:
            parameters = set(inspect.signature(getattr(module(paper, "errata"), name)).parameters)
            assert all(set(arguments) == parameters for arguments in entry.get("arguments", [{}])), name
    numbers = {entry["number"] for entry in load(paper).errata.values()}
    assert sorted(numbers) == list(range(1, len(numbers) + 1))


def test_numbers_agree_with_the_other_route_and_not_with_the_print(paper, rows):
    for case, expected, *numbers in checked(paper, rows):
        assert expected.holds(*numbers), (case, numbers)


def of_entry(rows, name):
    """The rows of an entry, of which there are some."""
    found = rows[rows["entry"] == name]
    assert len(found), name
    return found


@pytest.mark.parametrize("paper", ["asoodeh2021"], indirect=True)
def test_prints_of_asoodeh2021_that_equal_something(rows):
    disjoint, inert = of_entry(rows, "disjoint_supports"), of_entry(rows, "inert_contraction")
    assert disjoint[["printed", "corrected", "independent"]].to_numpy() == pytest.approx(1.0)
    assert inert["printed"].tolist() == pytest.approx(inert["corrected"].tolist(), rel=2e-4)
    assert inert["independent"].tolist() == pytest.approx(inert["corrected"].tolist(), rel=1e-9)


@pytest.mark.parametrize("paper", ["vandijk2023"], indirect=True)
def test_the_print_of_vandijk2023_that_equals_something(rows):
    (limit,) = of_entry(rows, "central_limit").itertuples()
    assert limit.printed == pytest.approx(limit.independent, rel=1e-6)
    assert limit.printed > 1.01 * limit.corrected


def test_each_kind_is_shown_under_its_own_heading(paper, rows):
    page = errata_page(rows)
    assert len(page.body) == len(rows) and not page.body.map(lambda cell: "|" in cell).any(axis=None)
    text = markdown(page, "title", "caption")
    headings = [heading for heading, _ in page.sections()]
    assert len(set(headings)) == len(headings) == rows["kind"].nunique()
    assert all(f"*{heading}*" in text for heading in headings)
    assert latex(page, "title", "label").count(r"\multicolumn") == len(headings)


def test_only_two_kinds_are_called_errata(rows):
    page = errata_page(rows)
    errors = pd.Series([heading.startswith("Errata: ") for heading in page.headings])
    assert errors.tolist() == rows["kind"].isin(["wrong", "inconsistent"]).tolist()
