from dpfl.reporting.report_page.contents import contents
from dpfl.reporting.report_page.render import verdict_lines


def test_each_paper_has_one_line_with_its_verdicts(made):
    first, second = verdict_lines(contents(*made))
    assert (
        first == "Asoodeh 2020: 1 as stated, 1 weaker than stated, 1 refuted, 1 undecided, 1 not run; 0 of 2 jobs run"
    )
    assert second.startswith("Bhaskar 2025: 1 as stated") and "5 of 72 printed numbers run" in second


def test_a_paper_without_verdicts_says_so(copied):
    folder, config = copied
    (folder / "claims" / "asoodeh2020.csv").unlink()
    assert next(verdict_lines(contents(folder, config))) == "Asoodeh 2020: no verdict yet; 0 of 2 jobs run"
