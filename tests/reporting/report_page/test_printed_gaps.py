from dataclasses import replace

import pytest

from dpfl.reporting.report_page.agreement import gaps_in_words, printed_gaps, printed_numbers
from dpfl.reporting.report_page.contents import contents
from dpfl.reporting.report_page.render import html


@pytest.fixture
def numbers(made):
    return printed_numbers("bhaskar2025", "table_2", made[0] / "tables/bhaskar2025_table_2.csv")


def test_numbers_without_a_run_and_with_one_are_counted_by_what_was_trained(numbers):
    gaps = {gap.name: gap for gap in printed_gaps(numbers)}
    assert list(gaps) == [f"Table 2, MNIST, {name}" for name in ("CNN + ReLU", "CNN + tanh", "ScatterNet + linear",
                                                               "ScatterNet + CNN")]  # fmt: skip
    first = gaps["Table 2, MNIST, CNN + ReLU"]
    assert (first.total, first.not_run, first.single) == (18, 12, 1)
    assert sum(gap.not_run for gap in gaps.values()) == 66 and gaps["Table 2, MNIST, CNN + tanh"].which == "all"


def test_those_without_a_run_are_named_by_what_tells_them_apart(numbers):
    clients = [
        replace(each, keys={**each.keys, "epsilon": "7.53", "local_epochs": "1", "rounds": "20", "clients": text})
        for each, text in zip([*numbers[:3], *numbers[6:8]], ("10", "25", "50", "100", "1"), strict=True)
    ]
    [gap] = printed_gaps(clients)
    assert (gap.not_run, gap.single, gap.which) == (2, 0, "100 clients; one client")


def test_a_group_whose_numbers_all_have_several_runs_is_no_gap(numbers):
    assert printed_gaps(numbers[:4]) == () and gaps_in_words(numbers[:4]) == "" and gaps_in_words([]) == ""


def test_the_sum_in_words_says_how_many_runs_the_paper_prints(numbers):
    assert gaps_in_words(numbers) == (
        "Of 72 printed numbers: 66 with no run of ours; 1 with one run of ours, where the paper says that it prints "
        "means of 10"
    )
    assert gaps_in_words(numbers[6:]) == "Of 66 printed numbers: 66 with no run of ours"
    unknown = [replace(each, printed_runs=0) for each in numbers[:5]]
    assert gaps_in_words(unknown) == "Of 5 printed numbers: 1 with one run of ours"


def test_the_page_lists_them_and_the_first_screen_leads_there(made):
    text = html(contents(*made))
    assert text.count('href="#bhaskar2025-printed-gaps"') == 1 and 'id="bhaskar2025-printed-gaps"' in text
    assert "asoodeh2020-printed-gaps" not in text, "it prints no table"
