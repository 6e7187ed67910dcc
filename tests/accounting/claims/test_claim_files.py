"""Files of claims are read completely or refused in one line that names the claim and the field."""

import json
from pathlib import Path

import pytest

from dpfl.accounting import external_claims
from dpfl.accounting.external_claims import SCHEMA, check, claims_of, read_json
from dpfl.accounting.guarantees import Phase
from dpfl.accounting.samplers import FullBatch, Poisson, ShuffledEpochs
from dpfl.errors import InputError

GOOD = {
    "sampler": "poisson", "sample_rate": 0.01, "noise_multiplier": 1.0, "steps": 10, "delta": 1e-5, "epsilon": 1.0,
}  # fmt: skip
FILE = Path("claims.json")


def test_the_example_of_the_format_is_read():
    text = external_claims.__doc__
    start = text.index("{")
    example = json.loads(text[start : text.index("\n\n", start)])
    first, second = claims_of(example, FILE)
    assert (first.name, first.epsilon, first.delta, first.neighbouring) == ("Table 2", 2.93, 1e-5, "zero_out")
    assert first.phases == (Phase(ShuffledEpochs(64, 6000), 1.0072, 1880),)
    assert second.phases == (Phase(Poisson(0.01), 1.2, 500), Phase(FullBatch(), 40, 10))
    assert (second.neighbouring, second.observer) == ("zero_out", "every_step")


def test_a_claim_without_a_name_has_its_number():
    assert [claim.name for claim in claims_of({"schema": SCHEMA, "claims": [GOOD, GOOD]}, FILE)] == ["1", "2"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"sigma": 1.0}, "claim 1: 'sigma' is unknown"),
        ({"delta": None}, None),
        ({"epsilon": "big"}, "claim 1: epsilon must be a real number"),
        ({"sampler": "bingo"}, "claim 1: sampler must be one of"),
        ({"sample_rate": 2}, "claim 1: sample_rate must be at most 1"),
        ({"batch_size": 3}, "claim 1: sampler poisson needs sample_rate"),
        ({"noise_multiplier": [1.0]}, "claim 1: noise_multiplier must be one number"),
        ({"steps": 1.5}, "claim 1: steps must be a whole number"),
        ({"delta": [0.1]}, "claim 1: delta must be one number"),
        ({"neighbouring": "near"}, "claim 1: neighbouring must be one of"),
        ({"observer": ["x"]}, "claim 1: observer must be one of"),
        ({"sampler": ["x"]}, "claim 1: sampler must be one of"),
        ({"phases": []}, "claim 1: 'sampler' is unknown"),
    ],
)
def test_a_wrong_claim_is_named(changed, message):
    entry = {key: value for key, value in {**GOOD, **changed}.items() if value is not None}
    with pytest.raises(InputError, match=message or "claim 1: delta is missing") as caught:
        claims_of({"schema": SCHEMA, "claims": [entry]}, FILE)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "schema"),
        ({"schema": "dpfl-claims/2", "claims": [GOOD]}, "dpfl-claims/1"),
        ({"schema": SCHEMA, "claims": []}, "one claim or more"),
        ({"schema": SCHEMA, "claims": [GOOD], "more": 1}, "nothing else"),
        ({"schema": SCHEMA, "claims": [3]}, "claim 1: should be an object"),
        ({"schema": SCHEMA, "claims": [{"delta": 0.1, "epsilon": 1, "phases": 3}]}, "phases should be a list"),
        ({"schema": SCHEMA, "claims": [{"delta": 0.1, "epsilon": 1, "phases": [3]}]}, "phases should be a list"),
        ({"schema": SCHEMA, "claims": [{"delta": 0.1, "epsilon": 1, "phases": []}]}, "at least one phase"),
    ],
)
def test_a_wrong_file_is_named(content, message):
    with pytest.raises(InputError, match=message):
        claims_of(content, FILE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "a": 2}', "'a' stands twice"),
        ("{", "no JSON file"),
        ("[" * 100_000, "nested too deeply"),
        (None, "cannot read"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(tmp_path, text, message):
    path = tmp_path / "claims.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        read_json(path)
    assert "\n" not in str(caught.value)


CONVEX = {"smoothness": 1, "learning_rate": 0.5, "lipschitz": 1, "strong_convexity": 0.4}


def convex_claim(epsilon, convex):
    """A claim about the last iterate of 200 full batches."""
    run = {"sampler": "full_batch", "noise_multiplier": 3, "steps": 200}
    return {"observer": "last_iterate", "delta": 1e-5, "epsilon": epsilon, "convex": convex, **run}


def test_a_claim_may_state_a_convex_problem():
    """mu = 1 in the limit of many steps, an epsilon of 4.37718 at 1e-5; 30.5 with every step seen."""
    content = {"schema": "dpfl-claims/1", "claims": [convex_claim(4.378, CONVEX), convex_claim(4.376, CONVEX)]}
    assert [check(claim).verdict for claim in claims_of(content, Path("f.json"))] == ["proven", "refuted"]


@pytest.mark.parametrize(
    ("convex", "message"),
    [(3, "object"), ({"smoothness": 1}, "learning_rate is missing"), (CONVEX | {"clip": 1}, "'clip' is unknown")],
)
def test_a_wrong_problem_of_a_claim_is_named(convex, message):
    with pytest.raises(InputError, match=message):
        claims_of({"schema": "dpfl-claims/1", "claims": [convex_claim(1, convex)]}, Path("f.json"))
