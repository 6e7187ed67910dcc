"""Mechanisms by another route, and the statements that they make."""

import dataclasses
import json
import math

import mpmath as mp
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import laplace, norm

from dpfl.accounting import guarantee
from dpfl.accounting.guarantees import Guarantee
from dpfl.accounting.neighbouring import Neighbouring, Observer
from dpfl.accounting.samplers import BallsInBins, FixedBatches, FullBatch, Poisson, ShuffledEpochs, WithReplacement
from dpfl.accounting.statements import (
    ClippedMeanGaussian,
    Gaussian,
    Laplace,
    NoNoise,
    PrivacyStatement,
    Segmented,
    ShuffledGaussian,
    SummedGaussian,
    decode,
    encode,
    sample_rate,
)
from dpfl.accounting.tradeoff.curves import Segment

# Each mechanism by another route: closed forms through scipy, dp_accounting, and each other.

REPLACED = {"neighbouring": Neighbouring.REPLACE_ONE, "delta": 1e-5}
SAMPLERS = [Poisson(0.1), FixedBatches(10, 100), WithReplacement(10, 100), ShuffledEpochs(10, 100), BallsInBins(10)]


def gaussian_delta(epsilon, move):
    """Balle, Wang 2018, Theorem 8."""
    return norm.cdf(move / 2 - epsilon / move) - math.exp(epsilon) * norm.cdf(-move / 2 - epsilon / move)


@pytest.mark.parametrize(("relation", "moves"), [("replace_one", 2), ("zero_out", 1), ("add_or_remove", 1)])
def test_full_batches_spend_what_the_closed_form_says(relation, moves):
    run = {"noise_multiplier": 5.0, "steps": 9, "delta": 1e-5, "neighbouring": Neighbouring(relation)}
    found = Gaussian().guarantee(FullBatch(), **run)
    assert found.upper == found.lower
    assert gaussian_delta(found.upper, moves * 3 / 5) == pytest.approx(1e-5, rel=1e-6)
    among = SummedGaussian(16).guarantee(FullBatch(), **{**run, "noise_multiplier": 1.25})
    assert among.upper == pytest.approx(found.upper)


def test_one_pass_spends_one_step_and_two_passes_are_not_taken_for_one():
    once = Gaussian().guarantee(ShuffledEpochs(10, 100), noise_multiplier=3.0, steps=10, **REPLACED)
    assert gaussian_delta(once.upper, 2 / 3) == pytest.approx(1e-5, rel=1e-6)
    assert Gaussian().guarantee(ShuffledEpochs(10, 100), noise_multiplier=3.0, steps=11, **REPLACED).upper > once.upper


@pytest.mark.parametrize("sampler", [ShuffledEpochs(10, 95), ShuffledEpochs(1, 10), ShuffledEpochs(64, 6017)])
def test_one_record_more_changes_every_batch_of_a_pass(sampler):
    run = {"steps": sampler.steps_per_epoch, "delta": 1e-5, "neighbouring": Neighbouring.ADD_OR_REMOVE}
    stated = Gaussian().guarantee(sampler, noise_multiplier=1.0, **run)
    assert stated.upper >= guarantee(sampler, noise_multiplier=1.0, **run).lower > 5
    assert Laplace().guarantee(sampler, noise_multiplier=1.0, **run).upper == math.inf


def test_laplace_noise_spends_what_integration_says():
    multiplier, delta = 4.0, 0.01
    run = {"noise_multiplier": multiplier, "steps": 50, "neighbouring": Neighbouring.REPLACE_ONE, "delta": delta}
    found = Laplace().guarantee(ShuffledEpochs(1, 50), **run)
    scale = multiplier / math.sqrt(2)
    # Beyond this point the densities of Laplace noise around 2 and 0 differ by exp(epsilon) or more.
    point = 1 + found.upper * scale / 2
    excess = laplace.sf(point, 2, scale) - math.exp(found.upper) * laplace.sf(point, 0, scale)
    assert excess == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize("k", range(1, 40))
def test_laplace_noise_is_rounded_up(k):
    noise = k / 37
    run = {"noise_multiplier": noise, "steps": 10, "delta": 0.0, "neighbouring": Neighbouring.REPLACE_ONE}
    with mp.workdps(50):
        assert Laplace().guarantee(ShuffledEpochs(1, 10), **run).upper >= 2 * mp.sqrt(2) / mp.mpf(noise)


def test_shuffling_lies_between_the_sum_of_messages_and_the_messages_alone():
    run = {"noise_multiplier": 8.0, "steps": 2, **REPLACED}
    found = ShuffledGaussian(20, 1, 2).guarantee(FullBatch(), **run)
    assert found.lower == SummedGaussian(20).guarantee(FullBatch(), **run).upper
    assert found.lower < found.upper <= Gaussian().guarantee(FullBatch(), **run).upper


def test_clients_that_can_be_told_apart_are_not_hidden_by_shuffling():
    """All gradients of the other clients are -L, all of this one's are +L or all but one: its message is the largest
    in every round, but for a chance of 1e-60, and the observer has it alone."""
    run = {"noise_multiplier": 8.0, "steps": 2, **REPLACED}
    assert 19 * 2 * norm.sf(2 * 99 / 8.0 / math.sqrt(2)) < 1e-60
    alone = Gaussian().guarantee(FullBatch(), **run).upper
    assert ShuffledGaussian(20, 100, 2).guarantee(FullBatch(), **run).upper == alone


def test_equal_segments_are_the_sampler_of_fixed_batches():
    run = {"noise_multiplier": 4.0, "steps": 30, **REPLACED}
    one = Gaussian().guarantee(FixedBatches(10, 100), **run)
    two = Segmented((Segment(10, 2.0, 0.1), Segment(20, 2.0, 0.1))).guarantee(FixedBatches(10, 100), **run)
    assert one.upper == pytest.approx(two.upper, rel=5e-3)


def test_segments_spend_at_least_what_their_pairs_do():
    """dp_accounting's distributions of the two pairs, composed, with errors on either side."""
    segments = (Segment(24, 0.51, 0.05), Segment(216, 1.69, 0.1), Segment(1, 3.0, 1.0), Segment(9, 2.0, 0.1, 4.0))
    found = Segmented(segments).guarantee(FixedBatches(10, 100), noise_multiplier=2.0, steps=250, **REPLACED)
    low, high = (
        from_gaussian_mechanism(0.51, sampling_prob=0.05, pessimistic_estimate=above)
        .self_compose(24)
        .compose(from_gaussian_mechanism(1.69, sampling_prob=0.1, pessimistic_estimate=above).self_compose(216))
        .get_epsilon_for_delta(1e-5)
        for above in (False, True)
    )
    assert low * (1 - 1e-3) <= found.lower <= high < found.upper
    drawn_by_none = Segmented(segments[2:]).guarantee(FixedBatches(10, 100), noise_multiplier=2.0, steps=10, **REPLACED)
    assert (drawn_by_none.lower, drawn_by_none.lower_by) == (0.0, "nothing")


def test_a_share_that_is_no_whole_number_of_records_gives_no_pair():
    """Half a record cannot be drawn: the bound below is of the other rounds alone."""
    whole, broken = Segment(20, 1.0, 0.1), Segment(20, 1.0, 0.15)
    run = {"noise_multiplier": 1.0, "steps": 20, **REPLACED}
    known = Segmented((whole,)).guarantee(FixedBatches(1, 10), **run)
    both = Segmented((whole, broken)).guarantee(FixedBatches(1, 10), **run)
    assert both.lower == pytest.approx(known.lower) and both.upper > known.upper
    assert Segmented((broken,)).guarantee(FixedBatches(1, 10), **run).lower == 0.0
    assert Segmented((whole,)).guarantee(FixedBatches(1, 10), **run | {"neighbouring": "replace_one"}) == known
    with pytest.raises(ValueError, match="delta must be at least 0"):
        Segmented((whole,)).guarantee(FixedBatches(1, 10), **run | {"delta": -1.0})


@pytest.mark.parametrize("mechanism", [Gaussian(), SummedGaussian(3), ShuffledGaussian(3, 4, 2)])
def test_noise_that_hides_nothing_has_an_infinite_epsilon_and_refutes_none(mechanism):
    found = mechanism.guarantee(FullBatch(), noise_multiplier=1e-101, steps=1, **REPLACED)
    assert (found.upper, found.lower) == (math.inf, 0.0)


def test_a_clipped_mean_turns_with_the_chance_of_its_own_sampler():
    """One step on half of the records, and ten draws of one out of ten: C_p of N(2, 1), by its closed form."""
    for sampler, rate in ((FixedBatches(5, 10), 0.5), (FixedBatches(10, 10), 1.0), (WithReplacement(10, 10), 0.651322)):
        found = ClippedMeanGaussian().guarantee(sampler, noise_multiplier=1.0, steps=1, **REPLACED)
        inner = math.log1p(math.expm1(found.upper) / rate)
        assert rate * gaussian_delta(inner, 2.0) == pytest.approx(1e-5, rel=2e-3)
        assert 0.9 * found.upper < found.lower <= found.upper


@pytest.mark.parametrize("mechanism", [ClippedMeanGaussian(), ShuffledGaussian(3, 4, 2), Laplace(), Segmented(())])
def test_what_has_no_proof_states_none(mechanism):
    run = {"noise_multiplier": 1.0, "steps": 200, "delta": 1e-5, "neighbouring": Neighbouring.ZERO_OUT}
    found = mechanism.guarantee(Poisson(0.1), **run)
    assert (found.upper, found.lower) == (math.inf, 0.0)


@pytest.mark.parametrize(
    "mechanism", [Gaussian(), ClippedMeanGaussian(), SummedGaussian(3), ShuffledGaussian(3, 4, 2), Laplace()]
)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("noise_multiplier", value) for value in (0.0, -1.0, math.nan, True)),
        *(("steps", value) for value in (-1, 1.5)),
        *(("delta", value) for value in (-1e-5, 1.0, math.nan)),
        ("neighbouring", "nonsense"),
    ],
)
def test_a_mechanism_names_an_argument_out_of_range(mechanism, name, value):
    run = {"noise_multiplier": 1.0, "steps": 2, **REPLACED, name: value}
    with pytest.raises(ValueError, match=f"^{name} "):
        mechanism.guarantee(FullBatch(), **run)


@pytest.mark.parametrize(
    ("mechanism", "fields"),
    [
        (SummedGaussian, (0,)),
        (ShuffledGaussian, (-1, 1, 2)),
        (ShuffledGaussian, (3, 0, 2)),
        (ShuffledGaussian, (3, 1, 0.5)),
    ],
)
def test_a_mechanism_has_clients_and_a_dimension(mechanism, fields):
    with pytest.raises(ValueError, match=r"^(clients|records|dimension) must be"):
        mechanism(*fields)


@given(st.sampled_from(SAMPLERS))
def test_the_encoding_says_kind_and_fields(sampler):
    text = json.loads(encode(sampler))
    assert text.pop("kind") == type(sampler).__name__ and type(sampler)(**text) == sampler
    assert sample_rate(sampler) == pytest.approx(0.1)


@pytest.mark.parametrize(
    "part",
    [
        *SAMPLERS,
        *(
            FullBatch(),
            NoNoise(),
            Gaussian(),
            ClippedMeanGaussian(),
            SummedGaussian(4),
            ShuffledGaussian(3, 4, 2),
            Laplace(),
        ),
        Segmented((Segment(10, 2.0, 0.1), Segment(20, 1.0, 0.2, 4.0))),
    ],
)
def test_what_was_encoded_is_read_back(part):
    assert decode(encode(part)) == part


def test_the_encoding_of_segments_is_plain_json_and_the_text_is_for_people():
    mechanism = Segmented((Segment(10, 2.0, 0.1), Segment(20, 1.0, 0.2, 4.0)))
    first, second = json.loads(encode(mechanism))["segments"]
    assert Segment(**first) == mechanism.segments[0] and second["arsinh_scale"] == 4.0
    assert "arsinh" in str(mechanism) and str(Gaussian()) == "Gaussian" and str(NoNoise()) == "none"


@pytest.mark.parametrize(
    ("scale", "delta", "said"), [(0.5, 1e-5, "arsinh_scale"), (2.0, 2e-2, "delta"), (math.inf, 1e-12, "delta")]
)
def test_segments_that_no_accountant_covers_have_nothing_proven(scale, delta, said):
    run = {"noise_multiplier": 4.0, "steps": 5, "neighbouring": Neighbouring.REPLACE_ONE}
    covered = Segmented((Segment(5, 2.0, 0.1),)).guarantee(FixedBatches(10, 100), delta=1e-5, **run)
    refused = Segmented((Segment(5, 2.0, 0.1, scale),)).guarantee(FixedBatches(10, 100), delta=delta, **run)
    assert 0 < covered.upper < math.inf == refused.upper and said in refused.upper_by


# Privacy statements.

FIELDS = {
    "mechanism": Gaussian(),
    "sampler": Poisson(0.01),
    "neighbouring": Neighbouring.ZERO_OUT,
    "observer": Observer.EVERY_STEP,
    "records": 6000,
    "records_public": True,
    "clip_norm": 1.0,
    "noise_multiplier": 1.1,
    "steps": 100,
    "delta": 1e-5,
    "guarantee": Guarantee(0.9, 0.5, "one accountant", "another"),
    "note": "",
}
RUN = {"neighbouring": Neighbouring.ZERO_OUT, "records": 100, "delta": 1e-5}


def test_columns_carry_every_field_as_plain_values():
    columns = json.loads(json.dumps(PrivacyStatement(**FIELDS).columns()))
    for name in set(FIELDS) - {"mechanism", "sampler", "guarantee"}:
        assert columns[f"privacy_{name}"] == FIELDS[name]
    assert columns["privacy_sampling"] == "poisson" and columns["privacy_sample_rate"] == 0.01
    assert (columns["privacy_epsilon_proven"], columns["privacy_proven_by"]) == (0.9, "one accountant")
    assert (columns["privacy_epsilon_refuted"], columns["privacy_refuted_by"]) == (0.5, "another")
    assert json.loads(columns["privacy_mechanism"]) == {"kind": "Gaussian"}
    assert json.loads(columns["privacy_sampler"]) == {"kind": "Poisson", "sample_rate": 0.01}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("neighbouring", "another"),
        ("observer", "everybody"),
        ("records", 0),
        ("records", 10.5),
        ("clip_norm", 0.0),
        ("noise_multiplier", -1.0),
        ("steps", -1),
        ("delta", 1.0),
        ("guarantee", Guarantee(-0.1, 0.0, "", "")),
        ("guarantee", Guarantee(1.0, 2.0, "", "")),
    ],
)
def test_a_field_out_of_range_is_named(field, value):
    with pytest.raises(ValueError, match=field):
        PrivacyStatement(**{**FIELDS, field: value})


def test_a_negative_noise_is_named():
    run = {"neighbouring": Neighbouring.ZERO_OUT, "records": 100, "steps": 2, "delta": 1e-5}
    with pytest.raises(ValueError, match=r"^noise_multiplier must be at least 0"):
        PrivacyStatement.of(Gaussian(), FullBatch(), noise_multiplier=-1.0, **run)


def test_without_noise_nothing_is_promised():
    statement = PrivacyStatement.of(Gaussian(), FullBatch(), noise_multiplier=0.0, steps=3, **RUN)
    assert statement.guarantee.upper == statement.guarantee.lower == math.inf
    assert str(statement.mechanism) == "none" and "no privacy" in statement.note


def test_an_epsilon_stands_as_proven_only_where_there_is_a_proof():
    run = {"noise_multiplier": 1.0, "steps": 40, **RUN}
    shuffled = PrivacyStatement.of(Gaussian(), ShuffledEpochs(10, 100), **run).columns()
    poisson = PrivacyStatement.of(Gaussian(), Poisson(0.1), **run).columns()
    assert poisson["privacy_epsilon_proven"] < shuffled["privacy_epsilon_proven"]
    assert not [name for name in shuffled if name in ("privacy_epsilon", "epsilon")]


def test_relation_and_observer_may_be_texts():
    texts = {"neighbouring": "zero_out", "observer": "every_step"}
    assert PrivacyStatement(**{**FIELDS, **texts}).columns() == PrivacyStatement(**FIELDS).columns()


def test_a_statement_cannot_be_altered():
    with pytest.raises(dataclasses.FrozenInstanceError):
        PrivacyStatement(**FIELDS).delta = 0.5
