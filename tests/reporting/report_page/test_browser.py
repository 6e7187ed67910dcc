"""The page, opened as a reader opens it: in a browser, wide and narrow, light and dark, by keyboard and on paper."""

import base64
import os
import re
import shutil
from pathlib import Path

import pytest

from dpfl.reporting.report_page.contents import contents
from dpfl.reporting.report_page.render import write

AXE = Path(os.environ.get("DPFL_AXE", "node_modules/axe-core/axe.min.js"))
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "headless=new", "no-sandbox", "disable-gpu", "no-first-run", "disable-background-networking",
    "disable-component-update", "disable-sync", "disable-quic", "disable-dev-shm-usage",
)  # fmt: skip
SIZES = ((1280, 800), (768, 1024), (390, 844))
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and shutil.which("chromedriver")), reason="needs chromium and chromedriver"
)


@pytest.fixture(scope="module")
def address(made, tmp_path_factory):
    """Where the page is."""
    folder = tmp_path_factory.mktemp("page é") / "results" / "demo"
    shutil.copytree(made[0], folder)
    return write(folder, contents(folder, made[1]))[0].as_uri()


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """Headless Chromium without network."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    running = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    running.set_script_timeout(300)
    yield running
    running.quit()


@pytest.fixture
def browser(driver, address):
    """The page, newly opened, 1280 pixels wide and light."""
    show(driver, *SIZES[0])
    driver.get("about:blank")
    driver.get(address)
    driver.get_log("browser")
    driver.get(address)
    return driver


def show(driver, width, height, scheme="light"):
    """Set the window and the colours that the reader prefers."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})


def press(driver, *keys):
    """Press keys as a reader without a mouse does."""
    from selenium.webdriver.common.action_chains import ActionChains

    for key in keys:
        ActionChains(driver).send_keys(key).perform()


def turn_to(driver, name):
    """Follow a link to a place."""
    driver.execute_script("location.hash = arguments[0]", name)
    driver.execute_async_script("setTimeout(arguments[0], 200)")


def unfold(driver):
    """Show all sections, and all that is folded in them."""
    driver.execute_script("document.querySelectorAll('main > section').forEach(each => { each.hidden = false; })")
    driver.execute_script("document.querySelectorAll('details').forEach(each => { each.open = true; })")


def focused(driver):
    """What has the keyboard."""
    return driver.switch_to.active_element


def column(driver, table, index):
    script = "return [...arguments[0].tBodies[0].rows].map(r => r.cells[arguments[1]].textContent.trim())"
    return driver.execute_script(script, table, index)


def test_the_console_is_silent_and_nothing_is_asked_of_a_network(browser):
    assert browser.get_log("browser") == []
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert [name for name in loaded if not name.startswith("data:")] == []


def test_the_first_screen_says_what_it_is_and_a_strangers_text_stays_text(browser):
    assert "scale demo" in browser.title
    heading = browser.find_element("tag name", "h1")
    assert heading.text == "Two papers on differentially private federated learning, reproduced"
    for paper in browser.find_elements("css selector", ".papers > li"):
        assert "1 as stated, 1 weaker than stated, 1 refuted, 1 undecided, 1 not run" in paper.text
    assert "5 of 72 published numbers" in browser.find_element("css selector", ".papers").text
    first = browser.find_element("css selector", ".papers li:nth-child(1) .squares a")
    assert browser.execute_script("return getComputedStyle(arguments[0]).backgroundColor", first) != "rgba(0, 0, 0, 0)"


def test_one_section_is_shown_at_a_time_and_a_link_turns_to_another(browser):
    def shown():
        sections = browser.find_elements("css selector", "main > section")
        marked = browser.find_elements("css selector", "nav [aria-current]")
        return [each.get_attribute("id") for each in sections if each.is_displayed()], [each.text for each in marked]

    assert shown() == (["overview"], ["Overview"])
    browser.find_element("css selector", "nav a[href='#bhaskar2025']").click()
    assert shown() == (["bhaskar2025"], ["Bhaskar 2025"])
    turn_to(browser, "claims")
    browser.find_element("css selector", "#claims-table tbody a").click()
    browser.execute_async_script("setTimeout(arguments[0], 200)")
    assert shown() == (["asoodeh2020"], ["Asoodeh 2020"])
    browser.back()
    browser.execute_async_script("setTimeout(arguments[0], 200)")
    assert shown() == (["claims"], ["Claims"])
    turn_to(browser, "nowhere")
    assert shown() == (["claims"], ["Claims"])


@pytest.mark.parametrize("size", SIZES)
def test_nothing_sticks_out_of_the_window(browser, size):
    show(browser, *size)
    unfold(browser)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= size[0]


@pytest.mark.skipif(not AXE.is_file(), reason="needs axe-core: npm install --no-save axe-core, or its path in DPFL_AXE")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [SIZES[0], SIZES[2]])
def test_axe_finds_nothing_serious(browser, size, scheme):
    show(browser, *size, scheme)
    unfold(browser)
    browser.execute_script(AXE.read_text(encoding="utf-8"))
    found = browser.execute_async_script(
        "const done = arguments[0]; axe.run({resultTypes: ['violations']}).then(r => done(r.violations.map("
        "v => [v.impact, v.id, v.nodes.slice(0, 3).map(n => n.html + n.failureSummary).join()])))"
    )
    assert [each for each in found if each[0] in ("serious", "critical")] == []


def test_a_square_leads_to_the_claim_and_unfolds_nothing_else(browser):
    browser.find_elements("css selector", ".squares a")[2].click()
    target = browser.find_element("css selector", ":target")
    assert target.get_attribute("id") == "claim-asoodeh2020-claim_2" and "refuted" in target.text
    assert re.search(
        r"case 2: 1.25 points \(0.5 to 2, 95 % interval of \d+ runs?\); the claim needs above 0.", target.text
    )


def test_a_link_into_a_fold_opens_it(browser):
    turn_to(browser, "trace-table-bhaskar2025-table_2")
    assert browser.find_element("id", "trace-table-bhaskar2025-table_2").get_attribute("open") is not None


def test_a_wide_table_says_that_it_scrolls_and_keeps_its_first_column(browser):
    turn_to(browser, "bhaskar2025")
    wide = browser.find_element("css selector", "#table-bhaskar2025-table_2 .scroll")
    line = wide.find_element("xpath", "preceding-sibling::*[1]")
    assert not line.is_displayed()
    show(browser, *SIZES[2])
    browser.execute_async_script("setTimeout(arguments[0], 200)")
    assert line.text.startswith("Wider than this window") and "cut" in wide.get_attribute("class")
    cells = wide.find_elements("css selector", "tbody tr:first-child td")
    assert [cell.text for cell in cells[:2]] == ["(1, 20)", "ours"], "published values are in the row below"
    assert cells[2].rect["x"] + 30 < SIZES[2][0]
    before = cells[0].rect["x"]
    browser.execute_script("arguments[0].scrollLeft = 9999", wide)
    browser.execute_async_script("setTimeout(arguments[0], 200)")
    assert cells[0].rect["x"] == before and "cut" not in wide.get_attribute("class")


def unfold_numbers(browser):
    """Open the list of numbers below Table 2."""
    browser.execute_script("document.querySelector('#table-bhaskar2025-table_2 details.long').open = true")


def test_a_column_sorts_as_numbers_up_and_down(browser):
    turn_to(browser, "bhaskar2025")
    unfold_numbers(browser)
    table = browser.find_element("css selector", "#table-bhaskar2025-table_2 table.sortable")
    titles = [each.text.strip(" ↕↑↓") for each in table.find_elements("css selector", "thead th")]
    index = titles.index("difference, points")
    button = table.find_elements("css selector", "thead th")[index].find_element("tag name", "button")
    for direction, sign in (("ascending", 1), ("descending", -1)):
        browser.execute_script("arguments[0].click()", button)
        shown = [text.replace("\N{MINUS SIGN}", "-") for text in column(browser, table, index)]
        known = [sign * float(text) for text in shown if text != "–"]
        assert known == sorted(known) and len(known) == 5
        heading = table.find_elements("css selector", "thead th")[index]
        assert heading.get_attribute("aria-sort") == direction


@pytest.mark.parametrize("size", [SIZES[0], SIZES[2]])
def test_typing_a_verdict_keeps_its_claims(browser, size):
    show(browser, *size)
    turn_to(browser, "claims")
    browser.find_element("id", "filter").send_keys("refuted")
    rows = browser.find_elements("css selector", "#claims-table tbody tr")
    assert [row.is_displayed() for row in rows].count(True) == 2
    assert browser.find_element("id", "filter-count").text == "2 of 10 claims, 0 of 4 figures and tables"


def test_the_filter_finds_figures_and_tables(browser):
    turn_to(browser, "claims")
    browser.find_element("id", "filter").send_keys("local epochs and R rounds")
    rows = browser.find_elements("css selector", "#index-table tbody tr")
    shown = [row.text for row in rows if row.is_displayed()]
    assert len(shown) == 1 and "Table 2" in shown[0] and len(rows) == 4


@pytest.mark.parametrize("size", SIZES)
def test_a_claim_has_its_figure_beside_it_or_below(browser, size):
    show(browser, *size)
    turn_to(browser, "claim-asoodeh2020-claim_1")
    card = browser.find_element("id", "claim-asoodeh2020-claim_1")
    text, picture = card.find_element("css selector", "h4").rect, card.find_element("css selector", ".thumb img").rect
    assert picture["width"] > 200
    assert (picture["x"] > text["x"] + 200) == (size[0] > 1000) and picture["x"] + picture["width"] <= size[0]


def test_no_half_of_a_card_is_empty_on_a_wide_screen(browser):
    """Right of its words a card has a figure, the picture of its cases, or more of its words."""
    show(browser, 1440, 900)
    for paper, kind in (("asoodeh2020", "thumb"), ("bhaskar2025", "cases")):
        turn_to(browser, f"{paper}-claims")
        kinds = []
        for card in browser.find_elements("css selector", f"#{paper} .claim"):
            words, right = card.find_elements("xpath", "./*")[:2]
            kinds += set(right.get_attribute("class").split()) & {"thumb", "cases"}
            assert right.rect["x"] >= words.rect["x"] + words.rect["width"] and right.rect["width"] > 400
            assert right.rect["x"] + right.rect["width"] > 1300 and right.rect["height"] > 100
        assert kind in kinds and len(kinds) == len(browser.find_elements("css selector", f"#{paper} .claim"))


@pytest.mark.parametrize("size", SIZES)
def test_the_menu_is_whole(browser, size):
    show(browser, *size)
    for link in browser.find_elements("css selector", "nav a"):
        assert link.rect["x"] + link.rect["width"] <= size[0]


def test_a_phrase_is_looked_for_as_it_stands_and_else_its_words(browser):
    turn_to(browser, "claims")
    rows = browser.find_elements("css selector", "#claims-table tbody tr")
    texts = [" ".join(row.text.lower().split()) for row in rows]
    box = browser.find_element("id", "filter")
    box.send_keys("Claim 3")
    assert [row.is_displayed() for row in rows] == ["claim 3" in text for text in texts]
    box.clear()
    box.send_keys("of claim")
    shown = ["of" in text and "claim" in text for text in texts]
    assert not any("of claim" in text for text in texts) and any(shown)
    assert [row.is_displayed() for row in rows] == shown


def test_a_row_gives_the_command_that_traces_it(browser):
    from selenium.webdriver.common.keys import Keys

    turn_to(browser, "bhaskar2025")
    unfold_numbers(browser)
    link = browser.find_element("css selector", "#table-bhaskar2025-table_2 a[data-where]")
    browser.execute_script("arguments[0].focus()", link)
    press(browser, Keys.ENTER)
    dialog = browser.find_element("id", "trace-dialog")
    assert dialog.is_displayed()
    command = browser.find_element("id", "trace-command").text
    assert command.startswith("dpfl trace results/demo/tables/bhaskar2025_table_2.csv --where model=cnn_relu,")
    assert "SHA-256" in browser.find_element("id", "trace-record").text
    press(browser, Keys.ESCAPE)
    assert not dialog.is_displayed()
    assert focused(browser) == link, "the keyboard is where it was"


def test_the_keyboard_reaches_the_content_first(browser):
    from selenium.webdriver.common.keys import Keys

    press(browser, Keys.TAB)
    assert focused(browser).text == "Skip to the papers" and focused(browser).is_displayed()
    press(browser, Keys.ENTER, Keys.TAB)
    assert focused(browser).get_attribute("href").endswith("#claims")
    assert browser.execute_script("return document.getElementById('asoodeh2020-not-run').tagName") == "DETAILS"


@pytest.mark.slow
def test_light_and_dark_differ_and_both_keep_the_verdicts_apart(browser):
    seen = {}
    for scheme in ("light", "dark"):
        show(browser, *SIZES[0], scheme)
        style = "[...document.querySelectorAll('.papers li:first-child .squares a')].map(e => getComputedStyle(e)"
        colours = browser.execute_script(f"return {style}.backgroundColor)")
        assert len(set(colours)) == 5
        seen[scheme] = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert seen["light"] != seen["dark"]


@pytest.mark.slow
def test_it_prints(browser):
    paper = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})
    content = base64.b64decode(paper["data"])
    assert content.startswith(b"%PDF") and content.count(b"/Type /Page\n") > 5, (
        "all sections, not the one that is shown"
    )
    assert [each.is_displayed() for each in browser.find_elements("css selector", "main > section")].count(True) == 1
