"""Claims of others: verdicts, files, logs, events of dp_accounting."""

import json
import math
from dataclasses import fields
from pathlib import Path

import dp_accounting
import pytest
from dp_accounting import dp_event as events
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus.accountants import RDPAccountant
from scipy.stats import norm

from dpfl.accounting import external_claims
from dpfl.accounting.external_claims import (
    SCHEMA,
    Claim,
    ClaimVerdict,
    Entry,
    check,
    claims_of,
    from_dp_event,
    history_of,
    judge,
    phases_on,
    poisson_phases,
    read_rows,
    sampler_named,
)
from dpfl.accounting.guarantees import Guarantee, Phase, guarantee_of_phases
from dpfl.accounting.samplers import (
    SAMPLERS,
    BallsInBins,
    FixedBatches,
    FullBatch,
    Poisson,
    Sampling,
    ShuffledEpochs,
    WithReplacement,
)
from dpfl.errors import InputError

# The verdict on a claim: on each side of a known epsilon, and for each sampler by name.

INTERVAL = Guarantee(upper=3.0, lower=1.0, upper_by="a proof", lower_by="a pair")


@pytest.mark.parametrize(
    ("epsilon", "verdict", "why"),
    [
        (0.99, ClaimVerdict.REFUTED, "a pair"),
        (1.0, ClaimVerdict.UNPROVEN, "not proven by: a proof; not refuted by: a pair"),
        (2.99, ClaimVerdict.UNPROVEN, "not proven by: a proof; not refuted by: a pair"),
        (3.0, ClaimVerdict.PROVEN, "a proof"),
    ],
)
def test_the_verdict_follows_from_the_interval(epsilon, verdict, why):
    found = judge(epsilon, INTERVAL)
    assert (found.verdict, found.why) == (verdict, why)


@pytest.mark.parametrize("epsilon", [-1.0, math.nan, math.inf, "3", None])
def test_an_epsilon_that_is_none_is_refused(epsilon):
    with pytest.raises(ValueError, match="epsilon"):
        judge(epsilon, INTERVAL)
    with pytest.raises(ValueError, match="epsilon"):
        Claim("no number", (Phase(FullBatch(), 1.0, 1),), 1e-5, epsilon)


def test_a_claim_needs_a_phase():
    with pytest.raises(ValueError, match="phases"):
        Claim("empty", (), 1e-5, 1.0)


def test_full_batches_are_decided_by_the_closed_form():
    # Two phases of one Gaussian step each: mu = sqrt(1/4 + 1/9), delta(eps) = Phi(mu/2 - eps/mu) - e^eps Phi(...).
    mu, epsilon = math.sqrt(1 / 4 + 1 / 9), 2.0
    delta = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    phases = (Phase(FullBatch(), 2.0, 1), Phase(FullBatch(), 3.0, 1))
    verdicts = [check(Claim("", phases, delta, claimed)).verdict for claimed in (0.999 * epsilon, 1.001 * epsilon)]
    assert verdicts == [ClaimVerdict.REFUTED, ClaimVerdict.PROVEN]


def test_an_observer_of_the_last_iterate_leaves_a_claim_open():
    run = (Phase(ShuffledEpochs(batch_size=10, records=100), 1.0, 30),)
    assert check(Claim("", list(run), 1e-5, 2.0)).verdict is ClaimVerdict.REFUTED
    assert check(Claim("", run, 1e-5, 2.0, observer="last_iterate")).verdict is ClaimVerdict.UNPROVEN


def test_samplers_are_made_by_name():
    settings = {"sample_rate": 0.1, "batch_size": 10, "records": 100, "steps_per_epoch": 10}
    assert set(SAMPLERS) == set(Sampling)
    for name, kind in SAMPLERS.items():
        needed = {field.name: settings[field.name] for field in fields(kind)}
        assert sampler_named(name, **needed) == kind(**needed)
    assert sampler_named("poisson", sample_rate=0.1) == Poisson(0.1)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("bingo", {}, "sampler must be one of"),
        ("poisson", {}, "poisson needs sample_rate, got none"),
        ("full_batch", {"records": 3}, "no setting of its own, got records"),
        ("poisson", {"sample_rate": 2.0}, "sample_rate must be at most 1"),
    ],
)
def test_a_wrong_sampler_is_named(name, settings, message):
    with pytest.raises(ValueError, match=message):
        sampler_named(name, **settings)


# Files of claims are read completely or refused in one line that names the claim and the field.

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


_FIRST = {"sampler": "poisson", "sample_rate": 0.1, "noise_multiplier": 1.0, "steps": 1}
TWO_PHASES = {"delta": 0.1, "epsilon": 1, "phases": [_FIRST, {**_FIRST, "sample_rate": 2}]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "schema"),
        ({"schema": "dpfl-claims/2", "claims": [GOOD]}, "dpfl-claims/1"),
        ({"schema": SCHEMA, "claims": []}, "one claim or more"),
        ({"schema": SCHEMA, "claims": [GOOD], "more": 1}, "nothing else"),
        ({"schema": SCHEMA, "claims": [3]}, "claim 1: should be an object"),
        ({"schema": SCHEMA, "claims": [{"delta": 0.1, "epsilon": 1, "phases": 3}]}, "phases should be a list"),
        (
            {"schema": SCHEMA, "claims": [{"delta": 0.1, "epsilon": 1, "phases": [3]}]},
            "phase 1: should be an object, got 3",
        ),
        ({"schema": SCHEMA, "claims": [{"delta": 0.1, "epsilon": 1, "phases": []}]}, "at least one phase"),
        ({"schema": SCHEMA, "claims": [{**GOOD, "epsilon": None}]}, "claim 1: epsilon is null, should be a value"),
        ({"schema": SCHEMA, "claims": [TWO_PHASES]}, "claim 1: phase 2: sample_rate must be at most 1, got 2"),
    ],
)
def test_a_wrong_file_is_named(content, message):
    with pytest.raises(InputError, match=message):
        claims_of(content, FILE)


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


# Logs of runs: the same history from CSV, JSON lines and an accountant's state; wrong rows are named.

STEPS = [(1.0, 0.1)] * 3 + [(1.5, 0.1)] * 2
HISTORY = [Entry(1.0, 0.1, 3), Entry(1.5, 0.1, 2)]


@pytest.fixture
def accountant():
    """Opacus's accountant after the steps."""
    accountant = RDPAccountant()
    for noise, rate in STEPS:
        accountant.step(noise_multiplier=noise, sample_rate=rate)
    return accountant


def test_a_row_per_step_joins_to_the_history(tmp_path, accountant):
    rows = tmp_path / "log.csv"
    rows.write_text("noise_multiplier,sample_rate\n" + "".join(f"{n},{q}\n" for n, q in STEPS))
    lines = tmp_path / "log.jsonl"
    lines.write_text("".join(json.dumps({"noise_multiplier": n, "sample_rate": q}) + "\n" for n, q in STEPS))
    state = json.loads(json.dumps(accountant.state_dict()))
    each = {"steps_per_row": 1}
    assert read_rows(rows, **each) == read_rows(lines, **each) == history_of(state, Path("state.json")) == HISTORY


def test_rows_that_are_epochs_have_the_steps_that_are_stated(tmp_path):
    rows = tmp_path / "log.csv"
    rows.write_text("noise_multiplier,sample_rate\n" + "1,0.0625\n" * 3)
    assert read_rows(rows, steps_per_row=16) == [Entry(1.0, 0.0625, 48)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("log.csv", "noise_multiplier,sample_rate\n1.0,0.0625\n1.0,0.0625\n1.0,0.0625\n"),
        ("log.jsonl", '{"noise_multiplier": 1.0, "sample_rate": 0.0625}\n' * 3),
    ],
)
def test_rows_of_unknown_length_are_refused(tmp_path, name, text):
    """Three epochs of 16 steps were three steps: the claim 2.8062 was proven of a run that spends 3.2405."""
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError, match="does not say how many steps a row is"):
        read_rows(path)


RISING = [[1.0, 0.0625, 16], [1.0, 0.0625, 32], [1.2, 0.0625, 48]]


def test_steps_so_far_are_never_added(tmp_path):
    """16, 32 and 48 steps are 48 or 96: nobody but the user knows."""
    rows = tmp_path / "log.csv"
    rows.write_text("noise_multiplier,sample_rate,num_steps\n" + "".join(f"{n},{q},{t}\n" for n, q, t in RISING))
    reads = [
        lambda **which: read_rows(rows, **which),
        lambda **which: history_of({"history": RISING}, Path("state.json"), **which),
        lambda **which: history_of({"history": RISING, "mechanism": "rdp"}, Path("state.json"), **which),
    ]
    for read in reads:
        with pytest.raises(InputError, match=r"rises from row to row, up to 48: .*\(96 together\)"):
            read()
        assert read(num_steps="cumulative") == [Entry(1.0, 0.0625, 32), Entry(1.2, 0.0625, 16)]
        assert read(num_steps="per_row") == [Entry(1.0, 0.0625, 48), Entry(1.2, 0.0625, 48)]


def test_a_log_that_falls_is_not_read_as_rows_and_a_shorter_last_row_is(tmp_path):
    """Newest first, 3000 steps so far looked like 6000: a right claim was refuted."""
    rows = tmp_path / "log.csv"

    def read(*counts, **which):
        rows.write_text("noise_multiplier,sample_rate,num_steps\n" + "".join(f"1.0,0.01,{t}\n" for t in counts))
        return read_rows(rows, **which)

    with pytest.raises(InputError, match=r"falls from row to row: .*oldest row first.*\(6000 together\)"):
        read(3000, 2000, 1000)
    assert read(3000, 2000, 1000, num_steps="per_row") == [Entry(1.0, 0.01, 6000)]
    assert read(100, 100, 40) == [Entry(1.0, 0.01, 240)]


def test_of_two_rates_that_round_one_another_the_larger_counts():
    for log, ours in ((0.0100099, 0.01), (0.01, 0.0100099)):
        [phase] = phases_on(Poisson(ours), [Entry(1.0, log, 3000)])
        assert phase.sampler == Poisson(0.0100099)


def test_a_state_as_opacus_writes_it_needs_no_word_on_its_steps(accountant):
    for _ in range(7):
        accountant.step(noise_multiplier=2.0, sample_rate=0.1)
    state = {**accountant.state_dict(), "history": accountant.history[1:]}
    assert history_of(json.loads(json.dumps(state)), Path("s.json")) == [Entry(1.5, 0.1, 2), Entry(2.0, 0.1, 7)]


@pytest.mark.parametrize(
    ("more", "message"),
    [({"rounds": 3, "local_epochs": 16}, "'rounds', 'local_epochs' is not of a log"), ({"mechanism": "mine"}, "mech")],
)
def test_a_state_that_says_more_is_refused(more, message):
    with pytest.raises(InputError, match=message):
        history_of({"history": [[1.0, 0.0625, 3]], **more}, Path("state.json"))


def test_options_that_contradict_the_log_are_refused(tmp_path):
    rows = tmp_path / "log.csv"
    rows.write_text("noise_multiplier,sample_rate,num_steps\n1,0.1,32\n1,0.1,16\n")
    for options, message in [
        ({"steps_per_row": 1}, "leave out --steps-per-row"),
        ({"num_steps": "cumulative"}, "falls"),
        ({"num_steps": "x"}, "--num-steps must be one of"),
    ]:
        with pytest.raises(InputError, match=message):
            read_rows(rows, **options)
    rows.write_text("noise_multiplier,sample_rate\n1,0.1\n")
    for options, message in [
        ({"num_steps": "per_row", "steps_per_row": 1}, "leave out --num-steps"),
        ({"steps_per_row": 0}, "steps_per_row must be at least 1"),
    ]:
        with pytest.raises(InputError, match=message):
            read_rows(rows, **options)


def test_a_history_becomes_phases(accountant):
    expected = (Phase(Poisson(0.1), 1.0, 3), Phase(Poisson(0.1), 1.5, 2))
    assert poisson_phases(accountant.history) == poisson_phases(HISTORY) == expected
    assert phases_on(FixedBatches(10, 100), HISTORY) == tuple(
        Phase(FixedBatches(10, 100), entry.noise_multiplier, entry.num_steps) for entry in HISTORY
    )


@pytest.mark.parametrize("sampler", [BallsInBins(2), ShuffledEpochs(50, 100)])
def test_noise_that_changes_within_an_epoch_is_refused(sampler):
    with pytest.raises(ValueError, match="after 3 steps, within an epoch of 2"):
        phases_on(sampler, [Entry(1.0, 0.5, 3), Entry(1.5, 0.5, 2)])
    assert len(phases_on(sampler, [Entry(1.0, 0.5, 4), Entry(2.0, 0.5, 3)])) == 2


RATES = [
    (Poisson(0.01), (0.01,)),
    (FixedBatches(64, 6000), (64 / 6000, 1 / 94)),
    (WithReplacement(64, 6000), (64 / 6000, 1 / 94)),
    (ShuffledEpochs(64, 6000), (64 / 6000, 1 / 94)),
    (BallsInBins(94), (1 / 94,)),
    (FullBatch(), (1.0,)),
]
"""Every sampler, and the sampling rates that its log may state: batch over records, one over the loader's length."""


def test_the_rates_of_every_sampler_are_known():
    assert {type(sampler) for sampler, _ in RATES} == set(SAMPLERS.values())


@pytest.mark.parametrize(("sampler", "rates"), RATES, ids=lambda value: type(value).__name__)
def test_no_sampler_ignores_the_rate_of_a_log(sampler, rates):
    for rate in rates:
        for written in (rate, float(f"{rate:.4g}")):
            assert phases_on(sampler, [Entry(1.0, written, 94)]) == (Phase(sampler, 1.0, 94),)
        for wrong in (rate / 2, rate * 0.98, 1 / 93, 0.5):
            message = f"sample_rate is {wrong:.6g} in the log, .* should be {rates[0]:.6g} "
            with pytest.raises(ValueError, match=message):
                phases_on(sampler, [Entry(1.0, rate, 94), Entry(1.0, wrong, 94)])


def test_a_rate_that_is_written_in_two_ways_does_not_cut_an_epoch():
    history = [Entry(1.0, 64 / 6000, 50), Entry(1.0, 1 / 94, 44), Entry(2.0, 1 / 94, 94)]
    sampler = ShuffledEpochs(64, 6000)
    assert phases_on(sampler, history) == (Phase(sampler, 1.0, 94), Phase(sampler, 2.0, 94))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("log.csv", "noise_multiplier,sample_rate,num_steps\n", "holds no step"),
        ("log.csv", "noise_multiplier,sample_rate\n1,0.1\n0,0.1\n", "line 3: noise_multiplier must be above 0"),
        ("log.csv", "noise_multiplier,sample_rate\n1,2\n", "line 2: sample_rate must be at most 1"),
        ("log.csv", "noise_multiplier,sample_rate\n1\n", "line 2: has fewer cells than the header"),
        ("log.csv", "noise_multiplier,sample_rate,num_steps\n1,0.1,8\n1,0.2\n", "line 3: has fewer cells"),
        ("log.csv", "noise_multiplier,sample_rate,num_steps\n1,0.1,1,880\n", "line 2: has more cells"),
        ("log.csv", "noise_multiplier,sample_rate,num_steps\n1,0.1,\n", "line 2: num_steps must be a real number"),
        ("log.csv", "epoch,noise_multiplier,sample_rate,epsilon\n0,1,0.1,2\n", "'epoch', 'epsilon' is not of a log"),
        ("log.csv", "noise_multiplier,sample_rate,num_steps,batches\n1,0.1,3,16\n", "'batches' is not of a log"),
        ("log.csv", "noise_multiplier,sample_rate,Total_Steps\n1,0.1,188000\n", "'Total_Steps' is not of a log"),
        ("log.jsonl", '{"noise_multiplier": 1, "sample_rate": 0.1, "rounds": 9}\n', "'rounds' is not of a log"),
        ("log.csv", "noise_multiplier,sample_rate,a,b,c,d,e,f,g,h\n" + ",".join("1" * 10), "'g', 'h' is not of a log"),
        ("log.csv", "noise_multiplier,sample_rate,a,b,c,d,e,f,g,h,i\n" + ",".join("1" * 11), "'h', ... is not of a"),
        ("log.csv", "noise_multiplier;sample_rate;num_steps\n1;0.1;3\n", "with commas in between, and this one reads"),
        (
            "log.jsonl",
            '{"noise_multiplier": 1, "sample_rate": 1, "num_steps": 9}\n{"noise_multiplier": 2, "sample_rate": 1}\n',
            "line 2: num_steps must be a real number",
        ),
        ("log.csv", "noise_multiplier,sample_rate\nx,0.1\n", "line 2: noise_multiplier must be a real number"),
        ("log.csv", "noise_multiplier,sample_rate\n1_0,0.1\n", "line 2: noise_multiplier must be a real number"),
        ("log.csv", "noise_multiplier,noise_multiplier,sample_rate\n1,5,0.1\n", "a column stands twice"),
        ("log.jsonl", '{"noise_multiplier": 1, "noise_multiplier": 5, "sample_rate": 1}\n', "line 1: key 'noise_mul"),
        ("log.jsonl", '{"noise_multiplier": true, "sample_rate": 1}\n', "noise_multiplier must be a real number"),
        ("log.csv", "sigma,q\n1,0.1\n", "has no column noise_multiplier and no column sample_rate"),
        ("log.jsonl", '{"noise_multiplier": 1, "sample_rate": 0.1}\n[1]\n', "line 2: should be a JSON object"),
        ("log.csv", "noise_multiplier,sample_rate\n" + "1" * 200_000 + ",0.1\n", "line 2: field larger"),
        ("log.jsonl", "[" * 100_000, "line 1: should be a JSON object"),
        ("log.jsonl", "x\n", "line 1: should be a JSON object"),
        ("log.jsonl", None, "cannot read"),
    ],
)
def test_a_wrong_row_is_one_line(tmp_path, name, text, message):
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    counted = text is None or "num_steps" in text
    with pytest.raises(InputError, match=message) as caught:
        read_rows(path, steps_per_row=None if counted else 1)
    assert "\n" not in str(caught.value)


def test_the_mark_that_excel_writes_first_is_no_part_of_a_name(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("noise_multiplier,sample_rate\n1,0.1\n", encoding="utf-8-sig")
    assert read_rows(path, steps_per_row=1) == [Entry(1.0, 0.1, 1)]


@pytest.mark.parametrize("history", [3, [3], [[1, 0.1]], [[1, 0.1, 2.5]], [[1, 0.1, 10**400]], []])
def test_a_wrong_state_is_refused(history):
    with pytest.raises(InputError, match=r"state\.json"):
        history_of({"history": history}, Path("state.json"))


def test_a_state_without_a_history_is_refused():
    with pytest.raises(InputError, match=r"^state\.json: history should be a list"):
        history_of({"mechanism": "rdp"}, Path("state.json"))


# dp_accounting's events give the phases that its own PLD accountant accounts for.

GAUSSIAN = events.GaussianDpEvent(2.0)
STEP = events.PoissonSampledDpEvent(0.1, events.GaussianDpEvent(1.0))


@pytest.mark.parametrize(
    ("event", "phases"),
    [
        (GAUSSIAN, (Phase(FullBatch(), 2.0, 1),)),
        (STEP, (Phase(Poisson(0.1), 1.0, 1),)),
        (events.SelfComposedDpEvent(STEP, 7), (Phase(Poisson(0.1), 1.0, 7),)),
        (
            # Four million million parts on one sample: once a list of as many numbers.
            events.PoissonSampledDpEvent(0.1, events.SelfComposedDpEvent(events.GaussianDpEvent(4e6), 4 * 10**12)),
            (Phase(Poisson(0.1), 2.0, 1),),
        ),
        (events.ComposedDpEvent([STEP, GAUSSIAN, STEP]), (Phase(Poisson(0.1), 1.0, 2), Phase(FullBatch(), 2.0, 1))),
        (
            events.SelfComposedDpEvent(events.ComposedDpEvent([STEP, events.SelfComposedDpEvent(GAUSSIAN, 2)]), 3),
            (Phase(Poisson(0.1), 1.0, 3), Phase(FullBatch(), 2.0, 6)),
        ),
        (events.SampledWithoutReplacementDpEvent(100, 5, GAUSSIAN), (Phase(FixedBatches(5, 100), 2.0, 1),)),
        (events.SampledWithReplacementDpEvent(100, 5, GAUSSIAN), (Phase(WithReplacement(5, 100), 2.0, 1),)),
        (events.ComposedDpEvent([events.NoOpDpEvent()]), ()),
        (events.PoissonSampledDpEvent(0.1, events.NoOpDpEvent()), ()),
        (events.SampledWithoutReplacementDpEvent(100, 10, events.NoOpDpEvent()), ()),
    ],
)
def test_known_events(event, phases):
    assert from_dp_event(event) == phases


@pytest.mark.parametrize(
    "event",
    [
        events.PoissonSampledDpEvent(0.1, events.ZCDpEvent(1.0)),
        events.NonPrivateDpEvent(),
        events.UnsupportedDpEvent(),
        events.PoissonSampledDpEvent(0.1, STEP),
        events.ComposedDpEvent([STEP, events.SingleEpochTreeAggregationDpEvent(1.0, 4)]),
        "GaussianDpEvent",
    ],
)
def test_an_unknown_event_is_named_in_one_line(event):
    with pytest.raises(ValueError, match=r"^event .* is not known here; known are Gaussian") as caught:
        from_dp_event(event)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("buckets", [1, 4])
def test_a_chance_below_0_is_refused_by_any_number_of_buckets(buckets):
    with pytest.raises(ValueError, match=r"^noise_parameter must be at least 0"):
        from_dp_event(events.RandomizedResponseDpEvent(-0.5, buckets))


def test_a_rate_out_of_range_is_named():
    with pytest.raises(ValueError, match="sample_rate"):
        from_dp_event(events.PoissonSampledDpEvent(1.5, GAUSSIAN))


@pytest.mark.parametrize("count", [-3, 2.5, "3", True])
def test_a_count_that_is_none_is_refused(count):
    """-3 steps and 10 more were 7."""
    with pytest.raises(ValueError, match="count"):
        from_dp_event(events.ComposedDpEvent([events.SelfComposedDpEvent(STEP, count), STEP]))


@settings(max_examples=2, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0.02, 0.5), st.floats(0.8, 4.0), st.integers(1, 30)), min_size=1, max_size=2
    )
)  # fmt: skip
def test_the_interval_agrees_with_their_accountant(parts):
    event = dp_accounting.ComposedDpEvent(
        [
            events.SelfComposedDpEvent(events.PoissonSampledDpEvent(rate, events.GaussianDpEvent(noise)), count)
            for rate, noise, count in parts
        ]
    )
    found = guarantee_of_phases(from_dp_event(event), delta=1e-5, neighbouring="add_or_remove")
    theirs = PLDAccountant(value_discretization_interval=1e-4).compose(event).get_epsilon(1e-5)
    # Theirs is pessimistic: never below the truth, above it by its grid of 1e-4.
    assert found.lower <= theirs * (1 + 1e-6) + 1e-9
    assert theirs <= found.upper * (1 + 1e-3) + 2e-3
