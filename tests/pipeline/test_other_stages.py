"""The stages around training: which there are, what is open, and what time they take."""

import pytest

from dpfl.grid import configuration, expansion
from dpfl.pipeline.plan import stages


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return configuration.resolve({"papers": ["bhaskar2025"]})


def rules(known):
    return {stage.rule for stage in known}


def test_the_stages_are_the_rules_of_the_workflow(config, repository):
    known = stages(config, expansion.expand(config))
    text = "\n".join(path.read_text() for path in (repository / "workflow" / "rules").glob("*.smk"))
    for rule in rules(known) - {"tables_bhaskar2025", "figures_bhaskar2025"}:
        assert any(f"{kind} {rule}:" in text for kind in ("rule", "checkpoint")), rule
    assert 'f"{_kind}_{_paper}"' in text


def test_features_are_made_for_the_models_that_read_them(config):
    jobs = expansion.expand(config)
    assert any(stage.rule == "features" for stage in stages(config, jobs))
    pixels = [job for job in jobs if not job.needs_features]
    assert not any(stage.rule == "features" for stage in stages(config, pixels))


def test_where_nothing_is_trained_only_pages_are_made(config):
    assert rules(stages(config, [])) == {"tables_bhaskar2025", "figures_bhaskar2025", "claims", "audit"}


def test_a_stage_is_done_when_all_its_files_are_there(config):
    tables = next(stage for stage in stages(config, []) if stage.rule == "tables_bhaskar2025")
    tables.outputs[0].parent.mkdir(parents=True)
    for path in tables.outputs:
        assert not tables.is_done
        path.touch()
    assert tables.is_done


def test_features_of_more_pixels_take_longer(config):
    paper = configuration.resolve({"scale": "paper", "papers": ["bhaskar2025"]})
    seconds = {each.subject: each.seconds for each in stages(paper, expansion.expand(paper)) if each.rule == "features"}
    assert seconds["cifar10"] > seconds["mnist"] > 60
