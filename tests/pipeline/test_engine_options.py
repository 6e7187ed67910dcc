"""Words for Snakemake are read as Snakemake reads them."""

import pytest

from dpfl.errors import InputError
from dpfl.pipeline.run import engine_options


@pytest.mark.parametrize("option", ["--cores", "-c", "--core", "--jobs", "-j", "--local-cores"])
@pytest.mark.parametrize("number", ["0", "00", "+0", "-0", "-1", "-5", "0_0", " 0 "])
def test_fewer_than_one_core_is_refused_in_every_spelling(option, number):
    attached = f"{option}={number}" if option.startswith("--") else f"{option}{number}"
    for words in ([attached], [option, number], ["x.csv", option, number], ["-k", attached, "--forceall"]):
        with pytest.raises(InputError, match="must be at least 1") as caught:
            engine_options(words)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "words", [["--cores", "all"], ["-call"], ["--cores", "1"], ["-j", "unlimited"], ["-j2"], ["--", "-c0"], []]
)
def test_other_numbers_of_cores_are_taken(words):
    assert not engine_options(words).is_dry_run


@pytest.mark.parametrize("words", [["-n"], ["-np"], ["-pn"], ["--dry-run"], ["--dryrun"], ["--executor", "dryrun"]])
def test_a_dry_run_is_one_in_every_spelling(words):
    assert engine_options(["--cores", "2", *words, "--forcerun", "train"]).is_dry_run


@pytest.mark.parametrize("words", [["--", "-n"], ["--forcerun", "n"], ["--config", "n=1"], ["-p"], ["--nolock"]])
def test_no_other_word_is_a_dry_run(words):
    assert not engine_options(words).is_dry_run


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cores", "few"], "integer"),
        (["--cores", "0.5"], "integer"),
        (["--cores"], "--cores"),
        (["-j", "0x1"], "integer"),
        (["--nonsense"], "--nonsense"),
        (["--dry"], "ambiguous"),
        (["--retries", "x"], "--retries"),
        (["a.csv", "--cores", "1", "b.csv"], "b.csv"),
        (["--resources", "gpu"], "used: dictionary"),
        (["--set-threads", "train"], "used: Invalid threads"),
    ],
)
def test_what_snakemake_cannot_read_is_one_line_without_its_usage(capsys, words, said):
    with pytest.raises(InputError, match=said) as caught:
        engine_options(words)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["--config", "papers=[]"], ("--config",)),
        (["--config"], ("--config",)),
        (["--configfiles", "mine.yaml"], ("--configfile",)),
        (["-s", "other.smk", "-d", "elsewhere"], ("--snakefile", "--directory")),
        (["--configfile=mine.yaml", "--profile", "slurm"], ("--configfile", "--profile")),
        (["--cores", "2", "a.csv"], ()),
    ],
)
def test_options_that_would_replace_dpfl_s_own_are_known(words, given):
    assert engine_options(words).ours == given


def test_a_profile_of_the_environment_is_none_that_was_asked_for(monkeypatch, tmp_path):
    (tmp_path / "config.yaml").write_text("cores: 1\n")
    monkeypatch.setenv("SNAKEMAKE_PROFILE", str(tmp_path))
    assert engine_options(["--cores", "2"]).ours == ()


def test_targets_are_what_is_to_be_made():
    assert engine_options(["a.csv", "b.csv", "--forcerun", "train", "-c", "1"]).targets == {"a.csv", "b.csv"}
    assert engine_options(["--forcerun", "train", "--cores", "1"]).targets == set()
