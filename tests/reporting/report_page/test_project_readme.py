import re
from dataclasses import replace
from pathlib import Path

import pytest

from dpfl.errors import InputError
from dpfl.grid import configuration
from dpfl.reporting.display_names import EpsilonVerdict
from dpfl.reporting.report_page.contents import contents
from dpfl.reporting.report_page.project_readme import SCALE, updated
from dpfl.reporting.results import read_csv

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = ROOT / "results" / SCALE
SHIPPED = (RESULTS / "config.yaml").is_file()


def rows(text):
    """The cells of each paper's row in a README, by key."""
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if "](src/dpfl/papers/" in line]
    return {each[0].split("`")[1]: each[1:] for each in cells}


@pytest.mark.skipif(not SHIPPED, reason="no results of scale paper are here")
def test_the_readme_says_what_the_results_say():
    assert updated(README, contents(RESULTS, configuration.read(RESULTS / "config.yaml"))) == README


@pytest.mark.skipif(not SHIPPED, reason="no results of scale paper are here")
def test_the_numbers_on_the_rate_of_the_pixel_cnns_are_its_tables():
    table = (RESULTS / "tables" / "bhaskar2025_open_settings.md").read_text(encoding="utf-8")
    text = " ".join(README.split())
    [(papers, shipped)] = re.findall(r"is nearer to the published values \((.+?) points, not (.+?)\)", text)
    [again] = re.findall(r"0\.2 has (\S+) if a second run of one seed counts", text)
    [rule] = [line for line in table.splitlines() if line.startswith("- CIFAR-10: (0.2, 0.5), shuffled has")]
    assert f"points ((0.3, 0.5), fixed: {papers})" in rule
    assert f"CIFAR-10 (0.2, 0.5), fixed: {again} points, not {shipped};" in table


@pytest.mark.skipif(not SHIPPED, reason="no results of scale paper are here")
def test_so_many_pairs_of_data_and_model_miss_a_goal():
    rows = read_csv(RESULTS / "tables" / "bhaskar2025_distance_summary.csv").query(
        "dataset != 'all' and model != 'all'"
    )
    goal = rows["model"].map(lambda model: 0.2 if model == "scatter_linear" else 1.0)
    misses = (rows["median_distance_pct"].round(2) > goal) | (rows["reproduced_as_single"] < 0.6)
    assert f"Of {len(rows)} pairs of data and model, {misses.sum()} miss one of [our" in " ".join(README.split())


@pytest.mark.skipif(not SHIPPED, reason="no results of scale paper are here")
def test_two_refuted_claims_fail_by_one_condition():
    verdicts = read_csv(RESULTS / "claims" / "asoodeh2020.csv").set_index("claim")["verdict"]
    assert (verdicts[["gaussian_any_step", "laplace_any_step"]] == "refuted").all()
    assert "Two refuted claims of `asoodeh2020` fail by one condition, which its" in README


def test_a_row_a_paper_and_nothing_else_changes(made):
    page = contents(*made)
    text = updated(README, page)
    assert list(rows(text)) == [view.paper.key for view in page.papers]
    assert rows(text)["asoodeh2020"][0] == "1 as stated, 1 weaker than stated, 1 refuted, 1 undecided, 1 not run"
    limit = "(for a record that one client holds)"
    assert rows(text)["bhaskar2025"][1:] == ["none", f"1 proven, 1 refuted, 1 unproven {limit}"]
    distance = read_csv(made[0] / "tables" / "bhaskar2025_table_2.csv").query("runs > 0 and not stand_in")
    half = distance["difference_pct"].abs().median()
    said = text.partition("end of results")[0].partition("**What reproduces:** ")[2].splitlines()
    assert said[0] == (
        "2 of 10 claims hold as stated (2 by runs), 2 more in part. 5 of 72 published numbers were run: 2 reproduced, "
        "1 not reproduced, 1 undecided, 1 with one run. Reproduced with as many runs as the paper: 2 of 2. Reproduced "
        f"by an interval wider than ±2 points: 2 of 2. The median difference is {half:.2g} points. 1 of 3 epsilons are "
        "proven."
    )
    link = f"[refuted]({page.folder}/README.md)"
    fails = f"2 claims are {link}; 1 claimed epsilon is refuted"
    assert said[1] == f"**What does not:** {fails}."
    assert said[2].startswith("**Why:** the refuted epsilon is `bhaskar2025`'s, from ")
    assert updated(text, page) == text
    assert text.partition("<!-- results")[0] == README.partition("<!-- results")[0]
    assert text.partition("<!-- end of results -->")[2] == README.partition("<!-- end of results -->")[2]


def test_epsilons_that_studies_of_ours_refute_are_not_the_papers(made):
    page = contents(*made)
    ours = [replace(v, statements=tuple(replace(e, of_study=True) for e in v.statements)) for v in page.papers]
    text = updated(README, replace(page, papers=tuple(ours)))
    assert rows(text)["bhaskar2025"][2].startswith("1 proven, 1 refuted in our studies, 1 unproven in our studies (")
    claimed = [
        replace(v, statements=tuple(replace(e, stated_by="the paper's formula") for e in v.statements)) for v in ours
    ]
    text = updated(README, replace(page, papers=tuple(claimed)))
    assert rows(text)["bhaskar2025"][1].startswith("1 proven, 1 refuted, 1 unproven, all in our studies (")
    assert "1 claimed epsilon is refuted (1 in our studies)." in text
    bad = [replace(v, statements=tuple(e for e in v.statements if e.verdict is EpsilonVerdict.REFUTED)) for v in ours]
    assert rows(updated(README, replace(page, papers=tuple(bad))))["bhaskar2025"][2].startswith("1 refuted in our stud")


def test_epsilons_that_hold_by_construction_are_counted_apart(made):
    page = contents(*made)
    [view] = [v for v in page.papers if v.statements]
    claimed, *own = (replace(e, verdict=EpsilonVerdict.PROVEN) for e in view.statements)
    limit = " (for a record that one client holds)"
    for changed, said, cells in (
        (
            [replace(claimed, stated_by="the paper's formula"), *own],
            "1 of 1 claimed epsilons are proven, as are 2 for which",
            [f"1 proven{limit}", f"2 proven{limit}"],
        ),
        (
            [replace(e, stated_by="the paper's formula") for e in view.statements],
            "1 of 3 claimed epsilons are proven.",
            [f"1 proven, 1 refuted, 1 unproven{limit}", "none"],
        ),
    ):
        papers = [replace(v, statements=tuple(changed)) if v is view else v for v in page.papers]
        text = updated(README, replace(page, papers=tuple(papers)))
        assert f". {said}" in text and rows(text)["bhaskar2025"][1:] == cells


def test_the_sentence_says_how_many_claims_count_twice(made):
    page = contents(*made)
    printed = [tuple(replace(claim, judged_by="the published tables") for claim in v.claims) for v in page.papers]
    told = [replace(v, claims=claims) for v, claims in zip(page.papers, printed, strict=True)]
    text = updated(README, replace(page, papers=tuple(told)))
    assert "2 of 10 claims (10 count twice) hold as stated (2 by runs), 2 more in part." in text
    own = "(1 by its own tables)"
    assert rows(text)["asoodeh2020"][0].startswith(f"1 as stated {own}, 1 weaker than stated {own}, 1 refuted {own}, ")


def test_results_without_a_refuted_claim_say_nothing_of_one(made):
    page = contents(*made)
    text = updated(README, replace(page, papers=tuple(replace(v, claims=(), statements=()) for v in page.papers)))
    assert "refuted" not in text.partition("<!-- results")[2].partition("<!-- end of results")[0]


def test_a_readme_without_its_marks_is_refused(made):
    with pytest.raises(InputError, match=r"README\.md has no"):
        updated(README.replace("<!-- end of results -->\n", ""), contents(*made))
