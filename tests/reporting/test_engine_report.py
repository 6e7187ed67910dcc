import base64
import hashlib
import os
import re
import subprocess
import sys
from importlib import resources
from pathlib import Path
from types import SimpleNamespace

import pytest

from dpfl.errors import InputError
from dpfl.reporting import engine_report
from dpfl.reporting.engine_report import build

HOSTILE = "<script>document.title = 'owned'</script>"
RENDER = (
    "import sys; from docutils.core import publish_parts; print(publish_parts(sys.argv[1], writer_name='html')['body'])"
)


def test_nothing_to_report_is_said(tmp_path):
    with pytest.raises(InputError, match="nothing to report"):
        build(tmp_path, tmp_path / "config.yaml")


def test_without_a_snakefile_nothing_can_be_made(tmp_path, monkeypatch):
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "a.html").write_text("")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="could not make the report"):
        build(tmp_path, tmp_path / "config.yaml")


TEMPLATE = resources.files("snakemake") / "report" / "html_reporter" / "template" / "index.html.jinja2"
SCRIPTS = TEMPLATE.read_text().count("<script")
PAGE = f'<html><head><meta charset="utf-8"></head>{"<script>1</script>" * SCRIPTS}</html>'


@pytest.fixture
def foreign(tmp_path, monkeypatch):
    """Results of a stranger, and the environment in which the engine, which is not run, is asked for its report."""
    seen = {}

    def engine(command, env, **_):
        seen.update(env)
        seen["rendered"] = {text: _rendered(text, env) for text in seen.get("captions", ())}
        Path(command[-1]).write_text(seen.get("page", PAGE))
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(engine_report.subprocess, "run", engine)
    for kind in ("tables", "figures", "claims"):
        (tmp_path / kind).mkdir()
    (tmp_path / "figures" / "bhaskar2025_splits.svg").write_text("<svg></svg>")
    return tmp_path, seen


RUN = subprocess.run


def _rendered(text, env):
    """A caption as the engine's docutils renders it."""
    return RUN([sys.executable, "-c", RENDER, text], env=env, capture_output=True, text=True).stdout


def test_the_captions_of_a_stranger_include_neither_files_nor_html(foreign):
    folder, seen = foreign
    (folder / "secret").write_text("a secret of the reader")
    raw, included = f".. raw:: html\n\n   {HOSTILE}", f".. include:: {folder}/secret"
    seen["captions"] = [raw, included]
    assert HOSTILE in _rendered(raw, os.environ) and "a secret of" in _rendered(included, os.environ)
    build(folder, folder / "config.yaml")
    assert "&lt;script&gt;" in seen["rendered"][raw] and HOSTILE not in seen["rendered"][raw]
    assert "a secret of" not in seen["rendered"][included]


def test_the_tables_of_a_stranger_are_written_from_their_csv(foreign):
    folder, _ = foreign
    (folder / "tables" / "bhaskar2025_table_2.csv").write_text(f'not_run\n"{HOSTILE}"\n')
    page = folder / "tables" / "bhaskar2025_table_2.html"
    page.write_text(HOSTILE)
    build(folder, folder / "config.yaml")
    assert HOSTILE not in page.read_text() and "&lt;script&gt;" in page.read_text()


def test_a_link_in_the_place_of_a_part_is_refused(foreign):
    folder, _ = foreign
    (folder / "tables" / "x.html").symlink_to(folder / "figures" / "bhaskar2025_splits.svg")
    with pytest.raises(InputError, match="not a regular file"):
        build(folder, folder / "config.yaml")


def test_a_link_in_the_place_of_the_report_is_replaced_and_where_it_led_stays_as_it_was(foreign):
    folder, _ = foreign
    (folder / "mine").write_text("<html>mine</html>")
    for name in ("workflow.html", "workflow.partial.html"):
        (folder / name).symlink_to(folder / "mine")
    report = build(folder, folder / "config.yaml")
    assert "<script>1" in report.read_text() and not report.is_symlink()
    assert (folder / "mine").read_text() == "<html>mine</html>"


def test_the_report_of_a_stranger_is_made_anew_however_new_it_is(foreign):
    folder, _ = foreign
    report = folder / "workflow.html"
    report.write_text(f"<html>{HOSTILE}</html>\n")
    os.utime(report, (1 << 32, 1 << 32))
    assert HOSTILE not in build(folder, folder / "config.yaml").read_text()


def test_only_the_scripts_of_the_engine_run_in_the_report(foreign):
    folder, seen = foreign
    seen["page"] = PAGE.replace("<script>1<", "<script>var a = '<b>&amp;é';<", 1)
    text = build(folder, folder / "config.yaml").read_text()
    [policy] = re.findall('<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="(.*?)">', text)
    for script in ("1", "var a = '<b>&amp;é';"):
        assert f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in policy
    assert policy.startswith("default-src 'none'; ") and policy.count("sha256-") == SCRIPTS
    assert "'unsafe-inline'" not in re.search("script-src[^;]*", policy)[0]


@pytest.mark.parametrize("page", [PAGE.replace("</html>", f"{HOSTILE}</html>"), PAGE.replace("charset", "x")])
def test_a_report_with_a_script_that_is_not_the_engines_is_refused(foreign, page):
    folder, seen = foreign
    seen["page"] = page
    with pytest.raises(InputError, match="not the engine's"):
        build(folder, folder / "config.yaml")
    assert not (folder / "workflow.html").exists()


def test_a_table_that_lacks_its_columns_is_one_line(foreign):
    folder, _ = foreign
    (folder / "tables" / "bhaskar2025_table_2.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match=r"a table of bhaskar2025 .* cannot be shown"):
        build(folder, folder / "config.yaml")


ACTIVE = {
    "script": "<script>1</script>",
    "handler": '<g onload="alert(1)"/>',
    "link": '<a href="javascript:alert(1)"><g/></a>',
    "foreign": '<foreignObject><p xmlns="http://www.w3.org/1999/xhtml"/></foreignObject>',
    "address": '<image href="https://example.org/x.png"/>',
    "old address": '<use xmlns:x="http://www.w3.org/1999/xlink" x:href="https://example.org/x.svg#a"/>',
    "animation": '<set attributeName="href" to="javascript:alert(1)"/>',
    "style": "<style>@import url(https://example.org/x.css);</style>",
    "fill": '<path style="fill: url(https://example.org/x.svg#a)"/>',
    "escaped address": r'<path style="fill: u\72l(https://example.org/x.svg#a)"/>',
    "escaped style": r"<style>@\69mport 'https://example.org/x.css';</style>",
    "other address": "<path style=\"background: image-set('https://example.org/x.png' 1x)\"/>",
    "html": '<iframe xmlns="http://www.w3.org/1999/xhtml" src="x"/>',
    "stylesheet": '<?xml-stylesheet href="https://example.org/x.css"?>',
    "cut off": "<g>",
}


@pytest.mark.parametrize("kind", ACTIVE)
def test_a_picture_that_holds_more_than_drawing_is_refused(foreign, kind):
    folder, _ = foreign
    inside = '<defs><style>*{a: b}</style></defs><path style="fill: url(#a)" clip-path="url(#b)"/><use href="#c"/>'
    picture, head = (
        folder / "figures" / "bhaskar2025_splits.svg",
        engine_report._DECLARATION + '<svg xmlns="http://www.w3.org/2000/svg">',
    )
    picture.write_text(f"{head}{inside}</svg>")
    build(folder, folder / "config.yaml")
    picture.write_text(f"{head}{inside}{ACTIVE[kind]}</svg>")
    with pytest.raises(InputError, match="holds more than drawing"):
        build(folder, folder / "config.yaml")


def test_the_captions_of_a_stranger_are_written_again(foreign):
    folder, _ = foreign
    (folder / "figures" / "bhaskar2025_splits.csv").write_text("not_run\nx\n")
    caption = folder / "figures" / "bhaskar2025_splits.rst"
    caption.write_text("`click <javascript:alert(1)>`_\n")
    build(folder, folder / "config.yaml")
    assert "javascript" not in caption.read_text() and "bhaskar2025_splits.csv" in caption.read_text()


def test_every_picture_of_ours_is_a_drawing(tmp_path):
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    axes.imshow([[0, 1], [1, 0]])
    axes.fill_between([0, 1], 1, hatch="/")
    axes.plot([0, 1], [1, 0], marker="o", label="a @ b")
    axes.legend()
    figure.savefig(tmp_path / "a.svg")
    pyplot.close(figure)
    engine_report._require_drawing(tmp_path / "a.svg")
