"""The workflow engine's own report, opened as a reader opens it, and ours beside it after a run."""

import shutil

import pytest

from dpfl.catalog import keys, load

pytestmark = [
    pytest.mark.workflow,
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which("chromium") and shutil.which("chromedriver")), reason="needs chromium and chromedriver"
    ),
]
PAPERS = ("lowy2021", "bhaskar2025")  # of the tiny run


@pytest.fixture(scope="module")
def browser(tiny_run, tmp_path_factory):
    """Headless Chromium with the tiny run's report open."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    folder, run, _ = tiny_run
    made = run("dpfl", "report", "--config", "results/demo/config.yaml")
    assert made.returncode == 0, made.stderr
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "no-first-run", "disable-background-networking"):
        options.add_argument(f"--{flag}")
    for flag in ("disable-component-update", "disable-sync", "disable-quic", "window-size=1600,1200"):
        options.add_argument(f"--{flag}")
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('chromium')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    driver.get((folder / "results/demo/workflow.html").as_uri())
    yield driver
    driver.quit()


def silent(driver):
    """No error on the console; Snakemake's own stylesheet warns of its use, which is not ours to mend."""
    return [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []


def show(driver, path, content):
    """Open one result as a click on it does."""
    driver.execute_script(
        "app.setView({navbarMode: 'resultinfo', resultPath: arguments[0], content: arguments[1],"
        " contentPath: results[arguments[0]].data_uri})",
        path,
        content,
    )


def expected(kind, suffix):
    return [f"results/demo/{kind}/{key}_{name}.{suffix}" for key in PAPERS for name in getattr(load(key), kind)]


def test_the_front_page_says_what_the_report_is_and_leads_to_ours(browser):
    text = browser.find_element("tag name", "body").text
    assert "stand-in data" in text and "report.html" in text
    assert silent(browser)


def test_our_page_has_every_claim_and_links_the_engines_report(browser, tiny_run):
    page = (tiny_run[0] / "results/demo/report.html").read_text()
    for key in PAPERS:
        assert all(f'id="claim-{key}-{claim}"' in page for claim in load(key).claims)
    assert 'href="workflow.html"' in page


def test_results_are_grouped_by_paper(browser):
    groups = browser.execute_script("return Object.keys(categories)")
    assert set(groups) == set(PAPERS) < set(keys())


def test_every_figure_is_drawn_and_captioned(browser):
    from selenium.webdriver.support.ui import WebDriverWait

    for path in expected("figures", "svg"):
        show(browser, path, "img")
        loaded = "return [...document.images].some(i => i.complete && i.naturalWidth > 300)"
        WebDriverWait(browser, 10).until(lambda driver, script=loaded: driver.execute_script(script))
        caption = browser.execute_script("return results[arguments[0]].caption", path)
        assert len(caption) > 200
    assert silent(browser)


def test_every_table_and_verdict_is_shown(browser):
    from selenium.webdriver.support.ui import WebDriverWait

    for path in [*expected("tables", "html"), *(f"results/demo/claims/{key}.html" for key in PAPERS)]:
        show(browser, path, "html")
        WebDriverWait(browser, 10).until(lambda driver: driver.find_elements("tag name", "iframe"))
        browser.switch_to.frame(browser.find_element("tag name", "iframe"))
        WebDriverWait(browser, 10).until(lambda driver: len(driver.find_elements("css selector", "tbody tr")) > 0)
        browser.switch_to.default_content()
    assert silent(browser)


def test_the_engines_own_diagrams_are_drawn(browser):
    from selenium.webdriver.support.ui import WebDriverWait

    for content, diagrams in (("rulegraph", 1), ("stats", 2)):
        browser.execute_script("app.setView({content: arguments[0]})", content)
        drawn = "return document.querySelectorAll('.vega-embed svg, .vega-embed canvas').length"
        WebDriverWait(browser, 10).until(
            lambda driver, script=drawn, least=diagrams: driver.execute_script(script) >= least
        )
    assert silent(browser)


def test_no_other_script_than_the_engines_runs(browser):
    """The last test that looks at the console: what is refused is an error there."""
    browser.execute_script(
        """
        const part = document.createElement('div');
        part.innerHTML = '<a id="foreign" href="javascript:window.ran = 1"></a><img src="" onerror="window.ran = 2">';
        document.body.append(part);
        document.getElementById('foreign').click();
        const frame = document.createElement('iframe');
        window.addEventListener('message', event => { window.ran = event.data });
        frame.src = 'data:text/html,<script>parent.postMessage(3, "*")</' + 'script>';
        frame.onload = () => { window.loaded = true };
        document.body.append(frame);
        """
    )
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 10).until(lambda driver: driver.execute_script("return window.loaded"))
    assert browser.execute_script("return window.ran") is None
    assert not silent(browser)


def test_every_claim_has_its_verdict(browser, tiny_run):
    folder, _, _ = tiny_run
    for key in PAPERS:
        page = (folder / f"results/demo/claims/{key}.html").read_text()
        assert all(claim in page for claim in load(key).claims)
