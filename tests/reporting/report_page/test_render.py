import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from dpfl.reporting.report_page.contents import contents
from dpfl.reporting.report_page.epsilons import counts_in_words
from dpfl.reporting.report_page.render import html, markdown, verdict_lines, write

LARGEST = 15_000_000
VOID = {"meta", "link", "img", "input", "br", "path", "circle"}


class Reader(HTMLParser):
    """What a page has: its elements with their attributes, its text, and elements that are left open."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.words = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def page(made):
    return contents(*made)


@pytest.fixture(scope="module")
def text(page):
    return html(page)


@pytest.fixture(scope="module")
def read(text):
    return Reader(text)


def test_every_element_is_closed(read):
    assert read.open == []


def test_a_strangers_text_is_text(read, text):
    assert "<script>document.title" not in text
    assert sum("<script>document.title = 'owned'</script>" in word for word in read.words) >= 2
    assert [tag for tag, _ in read.elements].count("script") == 1


def test_nothing_is_loaded_from_elsewhere(read):
    for tag, attributes in read.elements:
        for name in ("src", "srcset", "data", "poster", "action"):
            assert attributes.get(name, "data:").startswith("data:"), (tag, attributes)
        assert tag != "iframe" and not any(name.startswith("on") or name == "style" for name in attributes)
        assert tag != "link" or attributes["href"] == "data:,"
    assert "@import" not in "".join(read.words) and not re.search(r"url\((?!data:)", "".join(read.words))


def test_the_policy_allows_this_style_and_script_alone(read, text):
    [policy] = [a["content"] for tag, a in read.elements if tag == "meta" and a.get("http-equiv")]
    for tag in ("style", "script"):
        [source] = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_every_link_inside_the_page_has_its_target_and_every_target_one_place(read):
    places = [attributes["id"] for _, attributes in read.elements if "id" in attributes]
    assert len(places) == len(set(places))
    inside = {a["href"][1:] for tag, a in read.elements if tag == "a" and a["href"].startswith("#")}
    assert inside <= set(places)


def test_every_figure_and_table_is_linked(read):
    shown = [a["id"] for tag, a in read.elements if (tag, a.get("class")) in (("figure", "figure"), ("div", "table"))]
    links = {a["href"][1:] for tag, a in read.elements if tag == "a"}
    assert len(shown) == 4 and set(shown) <= links


def test_every_claim_leads_from_the_first_screen_to_its_verdict(read):
    for paper in ("asoodeh2020", "bhaskar2025"):
        for number in range(5):
            links = [a for tag, a in read.elements if tag == "a" and a["href"] == f"#claim-{paper}-claim_{number}"]
            refuted = any("Refuted." in link.get("title", "") for link in links)
            is_part = number > 0
            assert len(links) == 3 + refuted + is_part, (
                "a square, a row of the table of claims, a line above its paper's claims, one on the first screen if "
                "it is refuted, and one at the claim that it is a part of"
            )


def test_the_first_screen_says_how_the_claimed_epsilons_stand(page, text):
    assert f"<h2>Claimed epsilons</h2>\n<p>{counts_in_words(page.statements)}: <a" in text
    assert len(page.statements) == sum(len(view.statements) for view in page.papers) > 0


def test_the_first_screen_says_whose_epsilons_are_not_kept_and_what_shuffling_does(changed, made):
    note = "the noise is calibrated for Poisson sampling by Opacus's PRV accountant, the batches are shuffled_epochs"

    def shuffled(table):
        other = table["privacy_epsilon_refuted"] == 12.8
        table.loc[other, ["privacy_sampling", "privacy_note"]] = ["shuffled_epochs", note]
        return table

    folder = changed("accounting/bhaskar2025.csv", shuffled)
    first = html(contents(folder, made[1])).partition('<section id="claims"')[0]
    assert (
        '<a href="#bhaskar2025-epsilons">Shuffled epochs with the ε for Poisson batches: refuted in its only setting '
        "(claimed 2.93, in truth at least 12.80).</a>" in first
    )
    assert "<li>1 refuted: " in first
    assert "Bhaskar 2025</a> 1 (shuffled epochs, zero out, ε from a bound for" in first
    assert "<li>1 unproven: " in first


def test_shapes_alone_tell_the_marks_of_the_first_picture_apart(text):
    lead = text.partition('<figure class="lead">')[2].partition("</figure>")[0]
    mark = r'<g transform[^>]*>(<\w+ class="m-[\w-]+"[^>]*)/><title>[^<]*, ([^<,]*)</title>'
    shapes = dict(re.findall(mark, lead))
    drawn = {said: re.sub(r' class="[^"]*"', "", shape) for shape, said in shapes.items()}
    filled = {said: "m-reproduced" in shape or "m-not-reproduced" in shape for shape, said in shapes.items()}
    assert len(drawn) == 4 and len({(drawn[said], filled[said]) for said in drawn}) == 4


def test_every_row_of_printed_numbers_can_be_traced(read):
    traced = [a["data-where"] for tag, a in read.elements if a.get("href") == "#trace-table-bhaskar2025-table_2"]
    assert len(traced) == len(set(traced)) == 72


def test_the_same_results_give_the_same_bytes_and_few_of_them(copied):
    folder, config = copied
    paths = write(folder, contents(folder, config))
    first = [path.read_bytes() for path in paths]
    assert [path.name for path in paths] == ["report.html", "README.md"]
    assert [path.read_bytes() for path in write(folder, contents(folder, config))] == first
    assert len(first[0]) < LARGEST


def test_the_short_form_is_one_table_a_paper_and_keeps_a_strangers_text_in_its_cell(page):
    lines = markdown(page).splitlines()
    [row] = [line for line in lines if line.startswith("| \\<script\\>") and "asoodeh2020" in line]
    assert len(re.findall(r"(?<!\\)\|", row)) == 6 and "| all | ✓ as stated |" in row
    assert "[figure 2](figures/asoodeh2020_figure_2.png)" in row
    assert (
        sum(line == "| claim | rule | verdict | reason and deciding case | figures and tables |" for line in lines) == 2
    )


def test_each_paper_has_one_line_with_its_verdicts(page):
    first, second = verdict_lines(page)
    assert (
        first
        == "Asoodeh 2020: 1 as stated, 1 weaker than stated, 1 refuted, 1 undecided, 1 not run; 0 of 2 jobs were run"
    )
    assert second.startswith("Bhaskar 2025: 1 as stated") and "5 of 72 published numbers were run" in second


def test_a_paper_without_verdicts_says_so(copied):
    folder, config = copied
    (folder / "claims" / "asoodeh2020.csv").unlink()
    assert next(verdict_lines(contents(folder, config))) == "Asoodeh 2020: no verdict yet; 0 of 2 jobs were run"


def test_the_records_that_spend_more_are_named_wherever_epsilons_are_counted(page, text):
    said = [view.epsilon_limit_in_words for view in page.papers]
    assert said[0] == "" and said[1] == (
        "The verdicts on Bhaskar 2025 are for a record that one client holds; a record that several clients hold "
        "spends more."
    )
    overview, paper = (text.partition(f'<section id="{each}"')[2] for each in ("overview", "bhaskar2025"))
    assert said[1] in overview.partition("</section>")[0] and said[1] in markdown(page)
    assert ", for a record that one client holds; a record that several clients hold spends more." in paper


def test_a_figure_of_many_panels_is_told_in_words_on_a_card_and_linked(copied):
    """Figure 2 of asoodeh2020 has three panels; with ids of two more its card has its message instead.

    The card of the refuted claim shows its counterexample, and has the message in any case.
    """
    folder, config = copied
    name = "figure-asoodeh2020-figure_2"
    assert html(contents(folder, config)).count(f'data-of="{name}"') == 4  # a claim each
    svg = folder / "figures" / "asoodeh2020_figure_2.svg"
    drawn = svg.read_text()
    for more, pictures in (("4", 4), ("4 5", 0)):
        added = "".join(f'<g id="axes_{number}"/>' for number in more.split())
        svg.write_text(drawn.replace("</svg>", f"{added}</svg>"))
        page = contents(folder, config)
        text, [figure] = html(page), [each for each in page.papers[0].sections.figures if each.name == "figure_2"]
        assert text.count(f'data-of="{name}"') == pictures
        said = f'The figure of {figure.panels} panels shows: <a href="#{name}">{figure.message}</a>.'
        assert (figure.fits_card, figure.fits_first) == (pictures == 4, False)
        assert figure.message and text.count(said) == 5 - pictures


def test_a_card_without_any_picture_has_its_settings_right_of_its_verdict(changed, made, page):
    same = {"estimate": 1.0, "low": 1.0, "high": 1.0, "within": "at most 1"}
    folder = changed("claims/bhaskar2025_evidence.csv", lambda cases: cases.assign(**same))
    for each, settings_in in ((contents(folder, made[1]), 1), (page, 0)):
        cards = re.findall(r'<article class="claim[^>]*id="claim-bhaskar2025.*?</article>', html(each), re.DOTALL)
        parts = [card.split('<div class="folds">')[0].split("</div>", 1) for card in cards]
        assert len(cards) == 5 and all('<figure class="cases">' in right for _, right in parts) == (not settings_in)
        assert all("Settings: " in each[settings_in] and "Settings: " not in each[1 - settings_in] for each in parts)
