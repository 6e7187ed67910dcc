"""No value of a configuration reaches a shell as anything but one word."""

import re
import shlex
import subprocess

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from snakemake.utils import format as snakemake_format

SHELL = re.compile(r'shell:\n\s+f?"(.+)"')
HOSTILE = [
    "; touch pwned #",
    "$(touch pwned)",
    "`touch pwned`",
    "' && touch pwned '",
    '"; touch pwned; "',
    "\n touch p",
]
LIKE_A_RULE = "printf '%s\\0' {wildcards.paper:q} --config {params.config:q}"


def commands(repository) -> list[str]:
    """Every shell command of the workflow as Snakemake gets it; DPFL, a command, is quoted where it is made."""
    texts = [file.read_text() for file in (repository / "workflow").rglob("*.smk")]
    assert 'DPFL = f"dpfl --directory {shlex.quote(str(ROOT))}"' in "".join(texts)
    found = [command for text in texts for command in SHELL.findall(text)]
    return [command.replace("{DPFL}", "dpfl").replace("{{", "{").replace("}}", "}") for command in found]


class Anything:
    """Stands for wildcards, params and files: every attribute is the same text."""

    def __init__(self, text: str):
        self.text = text

    def __getattr__(self, name: str) -> str:
        return self.text

    def __format__(self, how: str) -> str:
        return shlex.quote(self.text) if how == "q" else self.text


def test_every_substitution_is_quoted(repository):
    found = commands(repository)
    rules = sum(file.read_text().count("shell:") for file in (repository / "workflow").rglob("*.smk"))
    assert len(found) == rules >= 8
    assert [command for command in found for part in re.findall(r"\{(.*?)\}", command) if not part.endswith(":q")] == []


@settings(max_examples=60)
@given(st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1)))
def test_a_shell_sees_any_text_as_one_word(tmp_path_factory, text):
    folder = tmp_path_factory.getbasetemp()
    command = snakemake_format(LIKE_A_RULE, stepout=1, wildcards=Anything(text), params=Anything(text))
    done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == [text, "--config", text]
    assert not (folder / "pwned").exists()


@pytest.mark.slow
@pytest.mark.workflow
@pytest.mark.parametrize("name", ["$(touch pwned) é", "a; touch pwned #", 'quo\'ted "twice" `touch pwned`'])
def test_a_hostile_folder_is_a_folder(checkout, tmp_path, name):
    folder = tmp_path / "w"
    run = checkout(folder)
    (folder / "hostile.yaml").write_text(yaml.safe_dump({"data": {"folder": name}}))
    done = run("snakemake", "--cores", "1", f"{name}/arrays/digits/description.json", "--configfile", "hostile.yaml")
    assert not (folder / "pwned").exists()
    refused = done.returncode == 2 and "data.folder" in done.stderr
    assert refused or (folder / name / "arrays/digits/description.json").is_file(), done.stderr[-2000:]
